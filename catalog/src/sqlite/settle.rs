//! Makes sure, when the file is opened, that the data that is read is on the medium.
//!
//! A failed sync leaves pages in the memory of the operating system that never reached the medium, and that Linux
//! treats as clean from then on: they are not written again, the next sync succeeds, and a process that opens the file
//! before the power fails reads them. The writer stops at this failure. But if its process is killed or ends then, the
//! next process finds a whole, committed transaction in the log which the medium may never have received. If it acted
//! on that, by removing data that the transaction has moved, it would lose the only copy.
//!
//! So before anything in the log is used:
//! 1. The log is read and written over itself, byte for byte, and synced. Writing makes all its pages dirty again, so
//!    the sync covers everything that was read. From here on the log on the medium is the one that SQLite reads, even
//!    if memory forgets its pages at any moment.
//! 2. SQLite folds all of it into the file, with a sync of the log, a sync of the file, and an end of the log
//!    (`wal_checkpoint(TRUNCATE)`). Its record of earlier folds ended with the last process, so it writes every page
//!    that is in the log. Pages of the file that are not in the log were folded by an earlier checkpoint whose sync
//!    succeeded: SQLite restarts the log only after a successful checkpoint, and otherwise retains the frames.
//!
//! If either sync fails, the open fails: nothing was used, nothing is swept, and the next start tries again.

use super::failure::store_error;
use super::path::beside;
use crate::error::StoreError;
use rusqlite::Connection;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the log that are rewritten at once.
const STEP_BYTES: usize = 1 << 20;

const FIX: &str = "check its disk, and start again; nothing was changed";

/// Writes the log of the file at `path` over itself and syncs it, if it exists. No connection may have it open.
pub(super) fn rewrite_log(path: &Path) -> Result<(), StoreError> {
    let log = beside(path, "-wal");
    let file = match File::options().read(true).write(true).open(&log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other,
    };
    let rewritten = file.and_then(|file| {
        let mut buffer = vec![0; STEP_BYTES];
        let mut at = 0;
        loop {
            let bytes = file.read_at(&mut buffer, at)?;
            if bytes == 0 {
                return file.sync_all();
            }
            file.write_all_at(&buffer[..bytes], at)?;
            at += bytes as u64;
        }
    });
    rewritten.map_err(|error| unsettled(&log, &error))
}

/// Folds the whole log into the file and syncs it.
pub(super) fn fold_log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let folded = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match folded {
        Ok(0) => Ok(()),
        Ok(_) => Err(unsettled(path, &"another program reads it")),
        Err(error) => match store_error(path, &error) {
            StoreError::Failed(_) => Err(unsettled(path, &error)),
            other => Err(other),
        },
    }
}

fn unsettled(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Failed(format!("{} cannot be synced ({error}); {FIX}", path.display()))
}
