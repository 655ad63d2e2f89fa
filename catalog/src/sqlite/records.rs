//! The records of the single writing connection, as the committer changes them.
//!
//! Without a log every commit is a transaction of SQLite, which syncs its own log (WAL, `synchronous = FULL`).
//!
//! With a log in front a commit changes only memory (`overlay.rs`), and a transaction of SQLite takes in many commits
//! when the committer asks for durability. The transaction itself is not synced (`NORMAL`): SQLite's log is synced, and
//! folded into the file, only when the committer asks, never by SQLite itself. SQLite would ignore a failed sync then,
//! and Linux reports the failure once, so SQLite would fold in frames that the medium does not have. A power loss in
//! between leaves the file at some commit, as usual in WAL mode.
//!
//! If the medium has no room for the waiting records, they stay in memory and in the log, and only changes that make
//! the store smaller are accepted until there is room: so memory stays bounded.

use super::failure::store_error;
use super::overlay::{Overlay, merged, within};
use super::path::beside;
use super::statements::{Changes, Statements};
use super::{schema, statements};
use crate::committer::{Failure, Records, State};
use crate::error::StoreError;
use crate::key_digest::KeyDigest;
use crate::seal::Sealed;
use crate::snapshot::LoadTarget;
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use lineage::Sequence;
use rusqlite::{Connection, ErrorCode};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Pages in SQLite's log (4 KiB each) at which it is folded into the file: several writes of one page until then are
/// folded once.
const LOG_PAGES: i64 = 8_192;
/// Bytes of waiting records at which they are folded into the file.
const WAITING_BYTES: usize = 12 << 20;

/// The records of a file.
pub(super) struct SqliteRecords {
    connection: Connection,
    path: Arc<Path>,
    behind: Option<Behind>,
}

/// State for a store whose log makes commits durable.
struct Behind {
    /// SQLite's own log. Opened before the first transaction that is not durable, so that it reports every failed
    /// write.
    wal: File,
    overlay: Arc<Overlay>,
    /// The state of the last commit.
    state: State,
    open: Open,
    /// The reason why the waiting records could not be folded.
    stuck: Option<Stuck>,
}

/// The open transaction.
#[derive(Default)]
struct Open {
    changes: Changes,
    state: Option<State>,
    puts: u64,
    /// Number of keys by which the store grows.
    keys: i64,
}

enum Stuck {
    Full,
    Failed(String),
}

impl SqliteRecords {
    /// The records of the file at `path`, each commit durable.
    pub(super) fn new(connection: Connection, path: Arc<Path>) -> Self {
        Self { connection, path, behind: None }
    }

    /// The same records in the state `state`. From now on commits are changes of `overlay`, and durable only after
    /// [`Records::make_durable`].
    pub(super) fn behind_log(mut self, overlay: Arc<Overlay>, state: State) -> Result<Self, StoreError> {
        let path = beside(&self.path, "-wal");
        let opened = File::open(&path).map_err(|error| StoreError::Failed(format!("{}: {error}", path.display())));
        let open = Open::default();
        self.behind = Some(Behind { wal: opened?, overlay, state, open, stuck: None });
        self.set("synchronous", "NORMAL")?;
        self.set("wal_autocheckpoint", "0")?;
        Ok(self)
    }

    /// Marks the file as whole without a log. All of it must be durable.
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

    /// Classifies `error` of a transaction. A full medium, or a tool that holds the file, leaves everything unchanged;
    /// after any other error (above all a failed sync) it is unknown what is durable.
    fn failure(&self, error: &rusqlite::Error) -> Failure {
        let harmless = matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy));
        let error = store_error(&self.path, error);
        if harmless { Failure::Harmless(error) } else { Failure::Fatal(error) }
    }

    fn run(&self, sql: &str) -> Result<(), Failure> {
        self.connection.execute_batch(sql).map_err(|error| self.failure(&error))
    }

    /// Folds SQLite's log into the file as far as readers allow. Returns the number of its pages, and how many of them
    /// are folded in.
    fn checkpoint(&self, mode: &str) -> Result<(i64, i64), rusqlite::Error> {
        let mut pragma = self.connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
        pragma.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    }
}

impl SqliteRecords {
    /// Folds all waiting records into the file, in one transaction.
    fn fold(&mut self) -> Result<(), Failure> {
        let Some(behind) = &self.behind else { return Ok(()) };
        let folded = behind.overlay.fold(|changes| {
            self.run("BEGIN IMMEDIATE")?;
            statements::fold(&self.connection, changes).map_err(|error| self.failure(&error))?;
            self.store_state(behind.state)?;
            self.run("COMMIT")
        });
        if folded.is_err() {
            self.end_transaction()?;
        }
        let stuck = match &folded {
            Err(Failure::Harmless(StoreError::Full)) => Some(Stuck::Full),
            Err(Failure::Harmless(error)) => Some(Stuck::Failed(error.to_string())),
            _ => None,
        };
        if let Some(behind) = &mut self.behind {
            behind.stuck = stuck;
        }
        folded
    }

    fn store_state(&self, state: State) -> Result<(), Failure> {
        let stored = statements::write_sequence(&self.connection, state.sequence, state.expected);
        stored.map_err(|error| self.failure(&error))
    }

    /// SQLite may already have rolled back by itself.
    fn end_transaction(&self) -> Result<(), Failure> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        let rolled_back = self.connection.execute_batch("ROLLBACK");
        rolled_back.map_err(|error| Failure::Fatal(store_error(&self.path, &error)))
    }

    /// The result of `read` on the file.
    fn read<T>(&self, read: impl FnOnce(&Statements<'_>) -> rusqlite::Result<T>) -> Result<T, Failure> {
        read(&Statements::new(&self.connection)).map_err(|error| self.failure(&error))
    }

    fn get(&self, behind: &Behind, key: &[u8]) -> Result<Option<Sealed>, Failure> {
        match behind.open.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.read(|file| behind.overlay.get_over(file, key)),
        }
    }

    fn is_there(&self, behind: &Behind, key: &[u8]) -> Result<bool, Failure> {
        if let Some(value) = behind.open.changes.get(key) {
            return Ok(value.is_some());
        }
        self.read(|file| behind.overlay.is_there(file, key))
    }

    /// The first `limit` entries of `range`, including the open transaction.
    fn scan(&self, behind: &Behind, range: &KeyRange, limit: usize) -> Result<Vec<Entry>, Failure> {
        let (range, mut changes, _) = behind.overlay.changes_in(range.clone(), usize::MAX);
        changes.extend(within(&behind.open.changes, &range).map(|(key, value)| (key.clone(), value.clone())));
        self.read(|file| merged(file, range, limit, changes))
    }

    fn holds(&self, behind: &Behind, check: &Check) -> Result<bool, Failure> {
        Ok(match check {
            Check::Absent(key) => !self.is_there(behind, key)?,
            Check::Present(key) => self.get(behind, key)?.is_some(),
            Check::Is(key, body) => self.get(behind, key)?.is_some_and(|value| value.has_body(body)),
            Check::Empty(range) => self.scan(behind, range, 1)?.is_empty(),
        })
    }

    /// Sets `key` in the open transaction.
    fn change(&mut self, key: Vec<u8>, value: Option<Sealed>, keys: &mut KeyDigest) -> Result<(), Failure> {
        let Some(behind) = &self.behind else { return Ok(()) };
        let (was_there, is_there) = (self.is_there(behind, &key)?, value.is_some());
        keys.turn(&key, was_there, is_there);
        let Some(behind) = &mut self.behind else { return Ok(()) };
        behind.open.puts += u64::from(is_there);
        behind.open.keys += i64::from(is_there) - i64::from(was_there);
        behind.open.changes.insert(key, value);
        Ok(())
    }
}

impl Behind {
    /// The reason why the open transaction cannot be accepted, if there is a reason.
    fn refusal(&self) -> Option<Failure> {
        let refusal = match self.stuck.as_ref()? {
            Stuck::Full => StoreError::Full,
            Stuck::Failed(error) => StoreError::Failed(error.clone()),
        };
        let is_smaller = self.open.puts == 0 || self.open.keys < 0;
        (!is_smaller).then_some(Failure::Harmless(refusal))
    }
}

impl Records for SqliteRecords {
    fn begin(&mut self) -> Result<(), Failure> {
        let Some(behind) = &self.behind else { return self.run("BEGIN IMMEDIATE") };
        if behind.stuck.is_some()
            && let Err(failure @ Failure::Fatal(_)) = self.fold()
        {
            return Err(failure);
        }
        // The transaction only reads, with one lock for all its reads.
        self.run("BEGIN")
    }

    fn failed_check(&self, batch: &Batch) -> Result<Option<usize>, Failure> {
        let Some(behind) = &self.behind else {
            return statements::failed_check(&self.connection, batch).map_err(|error| self.failure(&error));
        };
        for (index, check) in batch.checks.iter().enumerate() {
            if !self.holds(behind, check)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure> {
        let Some(behind) = &self.behind else {
            return statements::write(&self.connection, write, sequence, keys).map_err(|error| self.failure(&error));
        };
        assert!(sequence.0 > 0, "a record is sealed with the number of its batch");
        match write {
            Write::Put(key, body) => self.change(key.clone(), Some(Sealed::seal(key, body.clone(), sequence)), keys),
            Write::Delete(key) => self.change(key.clone(), None, keys),
            Write::DeleteRange(range) => {
                let removed = self.scan(behind, range, usize::MAX)?;
                removed.into_iter().try_for_each(|entry| self.change(entry.key, None, keys))
            }
        }
    }

    fn set_state(&mut self, state: State) -> Result<(), Failure> {
        let Some(behind) = &mut self.behind else { return self.store_state(state) };
        behind.open.state = Some(state);
        behind.refusal().map_or(Ok(()), Err)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.run("COMMIT")?;
        assert!(self.connection.is_autocommit(), "a batch is answered when its transaction is over");
        if let Some(behind) = &mut self.behind {
            let Open { changes, state, .. } = std::mem::take(&mut behind.open);
            behind.state = state.unwrap_or(behind.state);
            behind.overlay.publish(changes);
        }
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        if let Some(behind) = &mut self.behind {
            behind.open = Open::default();
        }
        self.end_transaction()
    }

    fn make_durable(&mut self) -> Result<(), Failure> {
        self.fold()?;
        let Some(Behind { wal, .. }) = &self.behind else { return Ok(()) };
        let failed = |error| Failure::Fatal(StoreError::Failed(format!("{}: {error}", self.path.display())));
        wal.sync_data().map_err(failed)?;
        let is_long = || self.checkpoint("NOOP").map(|(pages, folded)| pages - folded >= LOG_PAGES);
        let folded = is_long().and_then(|is_long| if is_long { self.checkpoint("PASSIVE").map(drop) } else { Ok(()) });
        match folded.map_err(|error| self.failure(&error)) {
            // Durable records may stay in SQLite's log.
            Ok(()) | Err(Failure::Harmless(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn is_due(&self) -> Result<bool, Failure> {
        let waits = |behind: &Behind| behind.stuck.is_none() && behind.overlay.waiting_bytes() >= WAITING_BYTES;
        Ok(self.behind.as_ref().is_some_and(waits))
    }
}

impl LoadTarget for SqliteRecords {
    fn put_damaged(&mut self, key: &[u8], value: &Sealed, keys: &mut KeyDigest) -> Result<(), Failure> {
        assert!(self.behind.is_none(), "a file that is being filled has no log");
        statements::put(&self.connection, key, value, keys).map_err(|error| self.failure(&error))
    }

    fn has(&mut self, key: &[u8]) -> Result<bool, Failure> {
        statements::has(&self.connection, key).map_err(|error| self.failure(&error))
    }
}
