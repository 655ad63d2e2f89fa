//! The records of the one connection that writes, as the committer changes them.
//!
//! Without a log every commit syncs SQLite's own log (WAL, `synchronous = FULL`). With one in front it does not
//! (`NORMAL`), and SQLite's log is synced and folded into the file when the committer asks for it, never by SQLite of
//! its own accord: SQLite ignores a sync that fails then, and Linux reports it once, so that it would fold in frames
//! that the medium has not got. A power loss in between leaves the transactions up to some commit, as ever in WAL mode.

use super::failure::store_error;
use super::path::beside;
use super::{schema, statements};
use crate::committer::{Failure, Records, State};
use crate::error::StoreError;
use crate::key_digest::KeyDigest;
use crate::seal::Sequence;
use crate::store::{Batch, Write};
use rusqlite::{Connection, ErrorCode};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Pages in SQLite's log (4 KiB each) at which it is folded into the file: what is written to the same page meanwhile
/// is folded once.
const LOG_PAGES: i64 = 8_192;

/// The records of a file.
pub(super) struct SqliteRecords {
    connection: Connection,
    path: Arc<Path>,
    /// SQLite's own log, where its commits are not durable by themselves. Open from before the first of them, so that
    /// it learns of every write that failed.
    log: Option<File>,
}

impl SqliteRecords {
    /// The records of the file at `path`, each commit durable.
    pub(super) fn new(connection: Connection, path: Arc<Path>) -> Self {
        Self { connection, path, log: None }
    }

    /// The same ones; commits are durable from now on only after [`Records::make_durable`].
    pub(super) fn without_sync(mut self) -> Result<Self, StoreError> {
        let path = beside(&self.path, "-wal");
        let opened = File::open(&path).map_err(|error| StoreError::Failed(format!("{}: {error}", path.display())));
        self.log = Some(opened?);
        self.set("synchronous", "NORMAL")?;
        self.set("wal_autocheckpoint", "0")?;
        Ok(self)
    }

    /// Marks the file, all of which must be durable, as one that is whole without a log.
    pub(super) fn end_log(&self) -> Result<(), StoreError> {
        self.set("synchronous", "FULL")?;
        schema::end_log(&self.connection, &self.path)
    }

    fn set(&self, pragma: &str, value: &str) -> Result<(), StoreError> {
        let set = self.connection.pragma_update_and_check(None, pragma, value, |_| Ok(()));
        match set {
            Ok(()) | Err(rusqlite::Error::QueryReturnedNoRows) => Ok(()),
            Err(error) => Err(store_error(&self.path, &error)),
        }
    }

    /// `error` of a transaction. A full medium, or a tool that holds the file, leaves everything as it was; after
    /// anything else (a failed sync above all) it is unknown what is durable.
    fn failure(&self, error: &rusqlite::Error) -> Failure {
        let harmless = matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy));
        let error = store_error(&self.path, error);
        if harmless { Failure::Harmless(error) } else { Failure::Fatal(error) }
    }

    fn run(&self, sql: &str) -> Result<(), Failure> {
        self.connection.execute_batch(sql).map_err(|error| self.failure(&error))
    }

    /// Folds SQLite's log into the file as far as no reader is in the way: how many pages it has, and how many of them
    /// are folded in.
    fn checkpoint(&self, mode: &str) -> Result<(i64, i64), rusqlite::Error> {
        let mut pragma = self.connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
        pragma.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    }
}

impl Records for SqliteRecords {
    fn begin(&mut self) -> Result<(), Failure> {
        self.run("BEGIN IMMEDIATE")
    }

    fn failed_check(&self, batch: &Batch) -> Result<Option<usize>, Failure> {
        statements::failed_check(&self.connection, batch).map_err(|error| self.failure(&error))
    }

    fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure> {
        statements::write(&self.connection, write, sequence, keys).map_err(|error| self.failure(&error))
    }

    fn set_state(&mut self, state: State) -> Result<(), Failure> {
        let stored = statements::write_sequence(&self.connection, state.sequence, state.expected);
        stored.map_err(|error| self.failure(&error))
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.run("COMMIT")?;
        assert!(self.connection.is_autocommit(), "a batch is answered when its transaction is over");
        Ok(())
    }

    /// SQLite may have rolled back by itself.
    fn roll_back(&mut self) -> Result<(), Failure> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        let rolled_back = self.connection.execute_batch("ROLLBACK");
        rolled_back.map_err(|error| Failure::Fatal(store_error(&self.path, &error)))
    }

    fn make_durable(&mut self) -> Result<(), Failure> {
        let Some(log) = &self.log else { return Ok(()) };
        let failed = |error| Failure::Fatal(StoreError::Failed(format!("{}: {error}", self.path.display())));
        log.sync_data().map_err(failed)?;
        match self.checkpoint("PASSIVE").map_err(|error| self.failure(&error)) {
            // What is durable in SQLite's log may stay there.
            Ok(_) | Err(Failure::Harmless(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn is_due(&self) -> Result<bool, Failure> {
        if self.log.is_none() {
            return Ok(false);
        }
        let (pages, folded) = self.checkpoint("NOOP").map_err(|error| self.failure(&error))?;
        Ok(pages - folded >= LOG_PAGES)
    }
}
