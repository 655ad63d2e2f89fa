//! Errors of SQLite as errors of a store; errors of the file itself include its path and a remedy.

use crate::error::StoreError;
use rusqlite::{ErrorCode, ffi};
use std::path::Path;

pub(super) const FIX_FOREIGN: &str = "point Larder at its own data directory, or at an empty one; or, if this is the \
                                       rack's catalog and damaged, rebuild it from its journal with `larder recover \
                                       --replace`";
pub(super) const FIX_DAMAGED: &str =
    "restore it from a backup, or rebuild it from its journal with `larder recover --replace`";

/// The error for a file at `path` that cannot be used: it `what`.
pub(super) fn unusable(path: &Path, what: &str, fix: &str) -> StoreError {
    StoreError::Unusable(format!("{} {what}; {fix}", path.display()))
}

/// The same error for a damaged file.
pub(super) fn damaged(path: &Path, what: &str, fix: &str) -> StoreError {
    StoreError::Damaged(format!("{} {what}; {fix}", path.display()))
}

/// An error of SQLite with the file at `path`.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::NotADatabase) => damaged(path, "is not a catalog of Larder", FIX_FOREIGN),
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, &format!("is damaged ({error})"), FIX_DAMAGED),
        // Values that Larder writes have the requested types.
        None if is_of_another_type(error) => damaged(path, &format!("is damaged ({error})"), FIX_DAMAGED),
        _ => StoreError::Failed(format!("{}: {error}", path.display())),
    }
}

/// As [`store_error`], for an error while the file is opened: a file that cannot be read then, or has another table
/// than Larder makes, is damaged. While the file is in use such an error may be temporary.
pub(super) fn open_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    use rusqlite::Error::{SqlInputError, SqliteFailure};
    let (SqliteFailure(of_sqlite, _) | SqlInputError { error: of_sqlite, .. }) = error else {
        return store_error(path, error);
    };
    match of_sqlite.extended_code {
        ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_CORRUPTFS | ffi::SQLITE_ERROR => {
            damaged(path, &format!("is damaged ({error})"), FIX_DAMAGED)
        }
        _ => store_error(path, error),
    }
}

fn is_of_another_type(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType};
    matches!(error, InvalidColumnType(..) | FromSqlConversionFailure(..))
}
