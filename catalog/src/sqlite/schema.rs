//! The table, the marks that identify the file as a catalog, and its permissions.

use super::failure::{FIX_DAMAGED, FIX_FOREIGN, damaged, store_error, unusable};
use super::path::{beside, sync_directory};
use crate::error::StoreError;
use rusqlite::Connection;
use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// `PRAGMA application_id` of a catalog: "LRDR".
const APPLICATION_ID: i32 = 0x4C52_4452;
/// Permissions of the file and of all files beside it.
pub(super) const OWNER_ONLY: u32 = 0o600;
/// `PRAGMA user_version` of a file that was closed in order: the format of the table. Records have separate versions.
const FORMAT_VERSION: i32 = 2;
/// The version of a file that is not whole without the log in front of it: the last acknowledged batches may be only in
/// the log. It differs from every other version in at least three bits, so a flipped bit is known as damage, and never
/// counts as the mark of a file that was closed in order.
const LOGGED_VERSION: i32 = 0b1101;
/// The same, in a file that an earlier Larder wrote.
const LOGGED_VERSION_BEFORE: i32 = 3;

/// Creates the file for its owner only, since it holds users' keys, and revokes others' read access to files of an
/// older Larder. SQLite gives its log and its shared memory the permissions of the file.
pub(super) fn close_to_others(path: &Path) {
    // If this fails, SQLite reports the reason in a moment.
    let _ = File::options().create_new(true).write(true).mode(OWNER_ONLY).open(path);
    for suffix in ["", "-wal", "-shm", "-journal", ".lock"] {
        let file = beside(path, suffix);
        let is_open = || file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0);
        if !is_open() {
            continue;
        }
        if std::fs::set_permissions(&file, Permissions::from_mode(OWNER_ONLY)).is_err() || is_open() {
            tracing::warn!("others may read {0}, which holds users' keys; run `chmod 600 {0}`", file.display());
        } else {
            tracing::warn!(
                "other users of this machine could read {}; that is fixed, but they may know the keys in it: run \
                 `larder user rotate` for each user",
                file.display()
            );
        }
    }
}

/// True for a file without content.
pub(super) fn is_new(connection: &Connection) -> rusqlite::Result<bool> {
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

/// Creates the table in one transaction, so that no file has half of it.
pub(super) fn create(connection: &Connection, path: &Path) -> Result<(), StoreError> {
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

/// The file must be a catalog of this format, and whole without a log unless `with_log`.
pub(super) fn check_identity(connection: &Connection, path: &Path, with_log: bool) -> Result<(), StoreError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = pragma("application_id").map_err(|error| store_error(path, &error))?;
    if application != APPLICATION_ID {
        return Err(damaged(path, "is not a catalog of Larder", FIX_FOREIGN));
    }
    match pragma("user_version").map_err(|error| store_error(path, &error))? {
        FORMAT_VERSION => Ok(()),
        LOGGED_VERSION | LOGGED_VERSION_BEFORE if with_log => Ok(()),
        LOGGED_VERSION | LOGGED_VERSION_BEFORE => {
            let what = "was not closed properly, and its log may have the only copy of the last acknowledged changes";
            Err(unusable(path, what, "start Larder on it once, and stop it properly"))
        }
        // The directory of a later Larder is refused before its catalog is opened, so this is usually damage.
        version => {
            let known = format!("{FORMAT_VERSION}, {LOGGED_VERSION_BEFORE} and {LOGGED_VERSION}");
            let what = format!("has catalog format {version}, and this Larder knows {known}");
            let fix = if version < FORMAT_VERSION {
                "if it is from a trial version of Larder, begin with a new data directory"
            } else {
                "if a later Larder wrote it, use that one"
            };
            Err(damaged(path, &what, &format!("{fix}; else {FIX_DAMAGED}")))
        }
    }
}

/// True if the file is marked as not whole without its log.
pub(super) fn needs_log(connection: &Connection) -> rusqlite::Result<bool> {
    Ok([LOGGED_VERSION, LOGGED_VERSION_BEFORE].contains(&version(connection)?))
}

/// True if the file is marked as closed in order.
pub(super) fn is_closed(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? == FORMAT_VERSION)
}

fn version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Marks the file as not whole without its log. Durable where commits are.
pub(super) fn begin_log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    set_version(connection, path, LOGGED_VERSION)
}

/// Marks the file as whole without a log.
pub(super) fn end_log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    set_version(connection, path, FORMAT_VERSION)
}

/// Copies the mark of the file of `from` to the file of `to`.
pub(super) fn copy_version(from: &Connection, to: &Connection) -> rusqlite::Result<()> {
    to.pragma_update(None, "user_version", version(from)?)
}

fn set_version(connection: &Connection, path: &Path, version: i32) -> Result<(), StoreError> {
    connection.pragma_update(None, "user_version", version).map_err(|error| store_error(path, &error))
}
