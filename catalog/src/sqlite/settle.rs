//! Making sure, when the file is opened, that what is read is what the medium holds.
//!
//! A sync that fails leaves pages in the memory of the operating system that never reached the medium, and that Linux
//! calls clean from then on: they are not written again, the next sync succeeds, and a process that opens the
//! file before the power fails reads them. The writer stops at such a failure; but a process that is killed then, or
//! ends, is followed by one that finds a whole, committed transaction in the log which the medium may never have seen.
//! Acting on it, by removing what it says has moved, would lose the only copy.
//!
//! So before anything is believed:
//! 1. The log is read and written over itself, byte for byte, and synced. Writing makes its pages dirty again, whatever
//!    they were, so that the sync covers all that was read. From here on the log on the medium is the one that SQLite
//!    reads, even if memory forgets its pages at any moment.
//! 2. SQLite folds all of it into the file, with a sync of the log, a sync of the file, and an end of the log
//!    (`wal_checkpoint(TRUNCATE)`). Its memory of what was folded before is gone with the last process, so it writes
//!    every page that is in the log. Pages of the file that are not in the log were folded by an earlier checkpoint
//!    whose sync succeeded: SQLite begins the log anew only after such a one, and otherwise retains their frames.
//!
//! Either sync failing fails the open: nothing was believed, nothing is swept, and the next start tries again.

use super::failure::store_error;
use super::path::beside;
use crate::error::StoreError;
use rusqlite::Connection;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the log that are written again at once.
const STEP_BYTES: usize = 1 << 20;

const MEND: &str = "see to the disk that it lies on, and start again; nothing was changed";

/// Writes the log of the file at `path` over itself and syncs it, if there is one. Nobody may have it open.
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
    StoreError::Failed(format!("{} cannot be synced ({error}); {MEND}", path.display()))
}
