//! Opening the file: whose it is, whether it is whole, and that nobody else has it open.

use super::mend::{self, Walked};
use super::{beside, settle, store_error};
use crate::store::StoreError;
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, Permissions, TryLockError};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// `PRAGMA application_id` of a catalog: "LRDR".
const APPLICATION_ID: i32 = 0x4C52_4452;
/// For the owner alone.
const OWNER_ONLY: u32 = 0o600;
/// `PRAGMA user_version`: the format of the table. Records carry versions of their own.
const FORMAT_VERSION: i32 = 2;
/// Files up to this size are checked page by page at each open; larger ones only as pages are used.
const CHECKED_BYTES_MAX: u64 = 64 << 20;
/// Pages of SQLite's cache for the writer and for each reader, in KiB (negative is SQLite's way to say so).
const CACHE_KIB: i32 = -16_384;

pub(super) const MEND_FOREIGN: &str = "point Larder at its own data directory, or at an empty one";
pub(super) const MEND_DAMAGED: &str = "restore it from a backup";

pub(super) fn unusable(path: &Path, what: &str, mend: &str) -> StoreError {
    StoreError::Unusable(format!("{} {what}; {mend}", path.display()))
}

/// Takes the lock file beside `path`; held for as long as the answer lives.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let lock_path = beside(path, ".lock");
    let failed = |error: &dyn std::fmt::Display| StoreError::Failed(format!("{}: {error}", lock_path.display()));
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(OWNER_ONLY);
    let file = options.open(&lock_path).map_err(|e| failed(&e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(unusable(path, "is open in another Larder", "stop that one first, or use another data directory"))
        }
        Err(TryLockError::Error(error)) => Err(failed(&error)),
    }
}

/// The one connection that writes, and what the walk through the file found. Makes the table if the file is new. A
/// damaged file is written anew before, if that may better it.
pub(super) fn open_for_writing(path: &Path, max_bytes: Option<u64>) -> Result<(Connection, Walked), StoreError> {
    let say = |error: rusqlite::Error| store_error(path, &error);
    let connection = open_settled(path, max_bytes)?;
    let walked = Walked::through(&connection).map_err(say)?;
    let flaw = match walked.flaw().filter(|_| walked.may_be_mended()) {
        Some(flaw) => flaw,
        None => match flaw_of_pages(&connection, path).map_err(say)? {
            Some(flaw) => flaw,
            None => return Ok((connection, walked)),
        },
    };
    mend::rewrite(connection, path, &flaw)?;
    let connection = open_settled(path, max_bytes)?;
    let walked = Walked::through(&connection).map_err(say)?;
    Ok((connection, walked))
}

/// The connection that writes, on a file whose log is folded in.
fn open_settled(path: &Path, max_bytes: Option<u64>) -> Result<Connection, StoreError> {
    let say = |error: rusqlite::Error| store_error(path, &error);
    close_to_others(path);
    settle::rewrite_log(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(say)?;
    if is_new(&connection).map_err(say)? {
        create(&connection, path)?;
    }
    check_identity(&connection, path)?;
    let mode = prepare(&connection).map_err(say)?;
    if mode != "wal" {
        let what = format!("cannot be kept with a write-ahead log here (SQLite chose {mode:?})");
        return Err(unusable(path, &what, "put Larder's data directory on a local disk"));
    }
    if let Some(max_bytes) = max_bytes {
        let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(say)?;
        let pages = (max_bytes / u64::from(page_bytes)).clamp(1, u64::from(u32::MAX)) as u32;
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).map_err(say)?;
    }
    settle::fold_log(&connection, path)?;
    Ok(connection)
}

/// Makes the file for its owner alone, since it holds users' keys, and takes the right to read it from others where an
/// older Larder has left it to them. SQLite gives its log and its shared memory the rights of the file.
fn close_to_others(path: &Path) {
    // Where this fails, SQLite says why in a moment.
    let _ = File::options().create_new(true).write(true).mode(OWNER_ONLY).open(path);
    for suffix in ["", "-wal", "-shm", "-journal", ".lock"] {
        let file = beside(path, suffix);
        let is_open = || file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0);
        if !is_open() {
            continue;
        }
        if std::fs::set_permissions(&file, Permissions::from_mode(OWNER_ONLY)).is_err() || is_open() {
            tracing::warn!(
                "others may read {0}, which holds users' keys; mend it with `chmod 600 {0}`",
                file.display()
            );
        } else {
            tracing::warn!("others could read {}, and can no more; its users' keys may be known", file.display());
        }
    }
}

/// A connection that reads.
pub(super) fn open_for_reading(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "cache_size", CACHE_KIB)?;
        Ok(connection)
    };
    open().map_err(|error| store_error(path, &error))
}

/// A connection that reads and leaves nothing behind: where there is no log to read, not even the files of one.
pub(super) fn open_as_it_is(path: &Path) -> Result<Connection, StoreError> {
    if std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return open_for_reading(path);
    }
    let uri = super::read_only::immutable_uri(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).map_err(|error| store_error(path, &error))
}

/// Whether the file holds nothing yet. Creating is one transaction, so there is no half-made file.
fn is_new(connection: &Connection) -> rusqlite::Result<bool> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(application == 0 && tables == 0)
}

/// A connection to a new file at `path`, with its table.
pub(super) fn make_new(path: &Path) -> Result<Connection, StoreError> {
    close_to_others(path);
    let connection = Connection::open(path).map_err(|error| store_error(path, &error))?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(|error| store_error(path, &error))?;
    create(&connection, path)?;
    Ok(connection)
}

fn create(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let script = format!(
        "BEGIN IMMEDIATE;
         PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {FORMAT_VERSION};
         CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID, STRICT;
         CREATE TABLE sequence (one INTEGER PRIMARY KEY CHECK (one = 1), v BLOB NOT NULL) STRICT;
         COMMIT;"
    );
    connection.execute_batch(&script).map_err(|error| store_error(path, &error))?;
    sync_directory(path).map_err(|error| StoreError::Failed(format!("{}: {error}", path.display())))
}

/// SQLite syncs the file, not the directory that names it.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

pub(super) fn check_identity(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = pragma("application_id").map_err(|error| store_error(path, &error))?;
    if application != APPLICATION_ID {
        return Err(unusable(path, "is not a catalog of Larder", MEND_FOREIGN));
    }
    let version = pragma("user_version").map_err(|error| store_error(path, &error))?;
    if version != FORMAT_VERSION {
        let what = format!("has catalog format {version}, and this Larder knows {FORMAT_VERSION}");
        let mend = if version < FORMAT_VERSION {
            "it is from a trial version of Larder: begin with a new data directory"
        } else {
            "use the Larder that wrote it"
        };
        return Err(unusable(path, &what, mend));
    }
    Ok(())
}

/// Durable before answered: in WAL mode, `synchronous = FULL` syncs the log at every commit. Answers the journal mode,
/// since SQLite keeps another one where the file system has no shared memory.
fn prepare(connection: &Connection) -> rusqlite::Result<String> {
    connection.busy_timeout(Duration::from_secs(10))?;
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    Ok(mode)
}

/// What SQLite finds wrong with the pages of a small file, in its words.
fn flaw_of_pages(connection: &Connection, path: &Path) -> rusqlite::Result<Option<String>> {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes > CHECKED_BYTES_MAX {
        return Ok(None);
    }
    let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((check != "ok").then_some(check))
}
