//! Opening the file: it must be a whole catalog that no other process has open.

use super::failure::{open_error, store_error, unusable};
use super::path::{beside, immutable_uri};
use super::repair::{self, Walk};
use super::schema::{OWNER_ONLY, check_identity, close_to_others, create, is_new};
use super::settle;
use crate::error::StoreError;
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Files up to this size are checked page by page at each open; larger ones only when pages are used.
const CHECKED_BYTES_MAX: u64 = 64 << 20;
/// Size of SQLite's page cache for the writer and for each reader, in KiB (negative, as SQLite expects).
const CACHE_KIB: i32 = -16_384;

/// Takes the lock file beside `path`, and holds it as long as the returned file exists.
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

/// The single writing connection, and the result of the walk through the file. Creates the table if the file is new.
/// Rewrites a damaged file before, if that may improve it. A file that is not whole without its log is refused, unless
/// `with_log`.
pub(super) fn open_for_writing(
    path: &Path,
    max_bytes: Option<u64>,
    with_log: bool,
) -> Result<(Connection, Walk), StoreError> {
    let say = |error: rusqlite::Error| open_error(path, &error);
    let connection = open_settled(path, max_bytes, with_log)?;
    let walked = Walk::through(&connection).map_err(say)?;
    let flaw = match walked.flaw().filter(|_| walked.may_be_repaired()) {
        Some(flaw) => flaw,
        None => match flaw_of_pages(&connection, path).map_err(say)? {
            Some(flaw) => flaw,
            None => return Ok((connection, walked)),
        },
    };
    repair::rewrite(connection, path, &flaw)?;
    let connection = open_settled(path, max_bytes, with_log)?;
    let walked = Walk::through(&connection).map_err(say)?;
    Ok((connection, walked))
}

/// The writing connection, to a file whose log is folded in.
fn open_settled(path: &Path, max_bytes: Option<u64>, with_log: bool) -> Result<Connection, StoreError> {
    let say = |error: rusqlite::Error| open_error(path, &error);
    close_to_others(path);
    settle::rewrite_log(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(say)?;
    if is_new(&connection).map_err(say)? {
        create(&connection, path)?;
    }
    check_identity(&connection, path, with_log)?;
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

/// A connection that reads and creates no files: without a log to read, not even the files of one.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, StoreError> {
    if std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return open_for_reading(path);
    }
    let uri = immutable_uri(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).map_err(|error| store_error(path, &error))
}

/// Makes commits durable before they are answered: in WAL mode, `synchronous = FULL` syncs the log at every commit.
/// Returns the journal mode, since SQLite uses another one where the file system has no shared memory.
fn prepare(connection: &Connection) -> rusqlite::Result<String> {
    connection.busy_timeout(Duration::from_secs(10))?;
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    Ok(mode)
}

/// The flaw that SQLite finds in the pages of a small file, in SQLite's words.
fn flaw_of_pages(connection: &Connection, path: &Path) -> rusqlite::Result<Option<String>> {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes > CHECKED_BYTES_MAX {
        return Ok(None);
    }
    let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((check != "ok").then_some(check))
}
