//! The embedded store: one SQLite file on the server's own disk.
//!
//! Invariants:
//! - all changes go through one writer thread, which puts every waiting batch into one transaction (group commit) and
//!   answers them once it is durable, so that all of them share one sync: that of SQLite's own log (WAL, `synchronous =
//!   FULL`), or that of the log in front of the store, if it has one (`catalog/src/log.rs`);
//! - if a log is in front, commits wait in memory and are folded into the file many at once; all readers see them
//!   (`overlay.rs`);
//! - a file with a log in front is marked, and is opened without the log only after it was closed in order;
//! - reads use separate connections, which never wait for the writer and see every batch that was answered;
//! - one process at a time: a lock on the file beside it is held from open until the writer has ended;
//! - after an error that leaves it unknown what is durable (a failed sync), nothing is written until the file is opened
//!   again;
//! - everything that is read after an open is durable, regardless of an earlier failed sync (`settle.rs`);
//! - after an open a search finds every record in the file, and missing records are known to be missing (`repair.rs`);
//! - a store that is opened read-only changes neither the file nor its log.

mod failure;
mod file;
mod look;
mod lookups;
mod overlay;
mod path;
mod pool;
mod records;
mod repair;
mod schema;
mod settle;
mod statements;
mod view;
mod writer;

use crate::committer::{Committer, LogUse, State};
use crate::error::StoreError;
use crate::follow::Followers;
use crate::follower::{FollowedFrom, Follower};
use crate::log::CommitLog;
use crate::look::read_only;
use crate::seal::Sealed;
use crate::snapshot::{FillError, LoadTarget};
use crate::store::{Batch, Entry, KeyRange, Store, StoreFuture};
use failure::store_error;
use lineage::Sequence;
use look::Looked;
use lookups::Lookups;
use overlay::Overlay;
use pool::Pool;
use records::SqliteRecords;
use repair::Walk;
pub(crate) use repair::corrected;
use rusqlite::Connection;
use statements::Changes;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use writer::{Counters, Writer};

/// Connections of a store that is opened read-only.
const READ_ONLY_READERS: usize = 2;
/// Maximum number of reported page faults.
const PAGE_FAULTS_MAX: u32 = 20;

/// See [`SqliteOptions::cover_after_bytes`].
const COVER_AFTER_BYTES: u64 = 128 << 20;

/// Options of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Number of scans, and number of look-ups, that may run at once. At least 1.
    pub readers: usize,
    /// Maximum size of the file in bytes (rounded down to whole pages); beyond it, commits return [`StoreError::Full`].
    /// `None` leaves the limit to the disk.
    pub max_bytes: Option<u64>,
    /// Batches get sequence numbers above this one and above all in the file. A server derives it from the wall clock,
    /// so a file that was restored from a backup does not use numbers again.
    pub sequence_min: Sequence,
    /// Accepts missing records: the file counts as complete from now on.
    pub accept_incomplete: bool,
    /// Bytes, with payloads, that are logged in front of the store before the store is made durable, so that the log
    /// may forget them. Limits what a start replays.
    pub cover_after_bytes: u64,
    /// The log is held until it is released: see [`Store::retains_log`].
    pub retains_log: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            readers: 2,
            max_bytes: None,
            sequence_min: Sequence::default(),
            accept_incomplete: false,
            cover_after_bytes: COVER_AFTER_BYTES,
            retains_log: false,
        }
    }
}

/// Counts since a store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqliteStats {
    /// Batches that were taken from the queue.
    pub batches: u64,
    /// Transactions that they were put into.
    pub transactions: u64,
    /// Number of times that the store was made durable for its log.
    pub covers: u64,
}

/// A [`Store`] in one SQLite file.
pub struct SqliteStore {
    // Fields are dropped in this order: the readers first, so that the writer closes last and folds the log into the
    // file; only then may another process open it.
    pool: Pool,
    lookups: Lookups,
    /// `None` if it is opened read-only.
    writer: Option<Writer>,
    /// The changes that its log has and the file lacks.
    overlay: Arc<Overlay>,
    counters: Arc<Counters>,
    incomplete: Option<String>,
    behind_log: Option<String>,
    log_use: Arc<LogUse>,
    followers: Arc<Followers>,
    /// `None` for a view, which does not outlive its store.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the catalog file at `path`, or creates it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is another kind of file or damaged, [`StoreError::Unusable`] if it was written by
    /// a newer Larder or is open elsewhere; the message has the path and a remedy.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the catalog file at `path`, or creates it, with options.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        Self::open_behind(path.as_ref(), options, None)
    }

    /// As [`SqliteStore::open_with`], with `log` in front: the file takes from it the batches that it lacks. If the two
    /// do not fit, [`Store::behind_log`] reports it, and nothing is taken.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with_log(
        path: impl AsRef<Path>,
        options: SqliteOptions,
        log: Arc<dyn CommitLog>,
    ) -> Result<Self, StoreError> {
        Self::open_behind(path.as_ref(), options, Some(log))
    }

    fn open_behind(path: &Path, options: SqliteOptions, log: Option<Arc<dyn CommitLog>>) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.into();
        let lock = file::lock(&path)?;
        let (connection, mut walked) = file::open_for_writing(&path, options.max_bytes, log.is_some())?;
        let last = last_sequence(&connection, &path)?;
        let state = State { sequence: last, expected: *walked.digests().1 };
        if log.is_some() {
            schema::begin_log(&connection, &path)?;
            // The file itself gets the mark: without it, damage of SQLite's log would bring the mark before it back.
            settle::fold_log(&connection, &path)?;
        }
        let mut committer = Committer::new(SqliteRecords::new(connection, path.clone()), state, options.sequence_min);
        let (mut behind_log, mut overlay) = (None, Arc::new(Overlay::of(Changes::new())));
        if let Some(log) = log {
            committer = committer.behind(log, options.cover_after_bytes);
            committer.retains_log = options.retains_log;
            behind_log = settle_with_log(&mut committer, &mut walked, options.accept_incomplete)?;
            let is_whole = walked.flaw().is_none() || options.accept_incomplete;
            // The missing records may be only in the log, from which the file may be remade.
            committer.log_use.forgets_nothing.store(!is_whole, Ordering::Relaxed);
            if behind_log.is_none() && is_whole {
                // This bounds the log even if a server is repeatedly killed right after its start.
                committer.cover().map_err(|failure| committer.break_after(failure))?;
            }
            overlay = Arc::new(Overlay::of_a_writer());
        }
        committer.state.expected = walked.expected(options.accept_incomplete);
        if committer.log.is_some() {
            committer.records = committer.records.behind_log(Arc::clone(&overlay), committer.state)?;
        }
        let incomplete = walked.flaw().filter(|_| !options.accept_incomplete);
        let readers = || (0..options.readers).map(|_| file::open_for_reading(&path)).collect::<Result<_, _>>();
        let (pool, lookups) = (Pool::new(path.clone(), readers()?), Lookups::start(path.clone(), readers()?)?);
        let counters = Arc::new(Counters::new(committer.state.sequence));
        let (log_use, followers) = (committer.log_use.clone(), committer.followers.clone());
        followers.begin(committer.state.followed());
        let writer = Some(Writer::start(committer, counters.clone())?);
        let lock = Some(lock);
        Ok(Self { pool, lookups, writer, overlay, counters, incomplete, behind_log, log_use, followers, _lock: lock })
    }

    /// True if, when this was opened, the log ended with batches of a copy that is not the newest one: that copy was
    /// used since then.
    pub fn log_ended_aside(&self) -> bool {
        self.log_use.ended_aside.load(Ordering::Relaxed)
    }

    /// Creates a new file at `path` and lets `fill` fill its records, which are empty.
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; also the errors of `fill`.
    pub(crate) fn fill<T>(
        path: &Path,
        fill: impl FnOnce(&mut dyn LoadTarget) -> Result<T, FillError>,
    ) -> Result<T, FillError> {
        let path: Arc<Path> = path.into();
        let _lock = file::lock(&path).map_err(FillError::Store)?;
        let (connection, _) = file::open_for_writing(&path, None, false).map_err(FillError::Store)?;
        fill(&mut SqliteRecords::new(connection, path))
    }

    /// True if the file at `path` has a log and was not closed in order: it must not be opened without the log. False
    /// if the file does not exist or cannot be read; opening it reports that.
    pub fn needs_log(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        path.exists() && file::open_read_only(path).is_ok_and(|file| schema::needs_log(&file).unwrap_or(false))
    }

    /// True unless the file at `path` does not exist, or is marked as closed in order. A damaged mark shows nothing.
    pub fn may_need_log(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        path.exists() && !file::open_read_only(path).is_ok_and(|file| schema::is_closed(&file).unwrap_or(false))
    }

    /// Opens the catalog file at `path`, which must exist, read-only, and reads all of it once: missing records show in
    /// [`Store::incomplete`], even where a start would rewrite the file. Every commit is refused. Batches that only
    /// `log`, the log in front of it, has are visible as after a start, and stay there.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is another kind of file, was written by a newer Larder or is open elsewhere, or
    /// if it was not closed in order and `log` is `None`.
    pub fn open_read_only(path: impl AsRef<Path>, log: Option<Arc<dyn CommitLog>>) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.as_ref().into();
        let lock = file::lock(&path)?;
        let readers = (0..READ_ONLY_READERS).map(|_| file::open_read_only(&path)).collect::<Result<Vec<_>, _>>()?;
        schema::check_identity(&readers[0], &path, log.is_some())?;
        let sequence = statements::read_sequence(&readers[0]).map_err(|error| store_error(&path, &error))?;
        let mut sequence = sequence.unwrap_or_default();
        let (mut changes, mut behind_log) = (Overlay::of(Changes::new()), None);
        // A file that cannot be read to its end is a finding, and no reason to refuse access to the rest.
        let incomplete = match Walk::through(&readers[0]) {
            Err(error) => Some(error.to_string()),
            Ok(mut walked) => {
                if let Some(log) = log {
                    let looked = Looked { connection: &readers[0], path: path.clone(), changes };
                    let state = State { sequence, expected: *walked.digests().1 };
                    let mut committer = Committer::new(looked, state, sequence).behind(log, u64::MAX);
                    behind_log = committer.replay(walked.digests().0)?.behind;
                    (*walked.digests().1, sequence) = (committer.state.expected, committer.state.sequence);
                    changes = committer.records.changes;
                }
                walked.flaw()
            }
        };
        let counters = Arc::new(Counters::new(sequence));
        let lookups = Lookups::start(path.clone(), vec![file::open_read_only(&path)?])?;
        let (pool, overlay, log_use) = (Pool::new(path, readers), Arc::new(changes), Arc::default());
        let (writer, followers) = (None, Arc::default());
        let lock = Some(lock);
        Ok(Self { pool, lookups, writer, overlay, counters, incomplete, behind_log, log_use, followers, _lock: lock })
    }

    /// Counts since it was opened.
    pub fn stats(&self) -> SqliteStats {
        SqliteStats {
            batches: self.counters.batches.load(Ordering::Relaxed),
            transactions: self.counters.transactions.load(Ordering::Relaxed),
            covers: self.counters.covers.load(Ordering::Relaxed),
        }
    }
}

impl Store for SqliteStore {
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        if let Ok(value) = self.overlay.get(key) {
            return Box::pin(std::future::ready(Ok(value)));
        }
        let (key, overlay) = (key.to_vec(), Arc::clone(&self.overlay));
        self.lookups.read(move |reader| overlay.get_over(reader, &key))
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        if let Some(values) = self.overlay.get_many(&keys) {
            return Box::pin(std::future::ready(Ok(values)));
        }
        let overlay = Arc::clone(&self.overlay);
        self.lookups.read(move |reader| overlay.get_many_over(reader, &keys))
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        let overlay = Arc::clone(&self.overlay);
        self.pool.read(move |reader| overlay.scan_over(reader, &range, limit))
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        match &self.writer {
            Some(writer) => writer.commit(batch),
            None => Box::pin(std::future::ready(Err(read_only()))),
        }
    }

    fn sequence(&self) -> Sequence {
        Sequence(self.counters.sequence.load(Ordering::Acquire))
    }

    fn view(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.as_of_now().await?) as Arc<dyn Store>) })
    }

    /// Reads every page of the file and compares each table with its index.
    fn check_pages(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async {
            match self.pool.read(|reader| reader.check_pages(PAGE_FAULTS_MAX)).await {
                Err(StoreError::Damaged(error)) => Ok(vec![error]),
                other => other,
            }
        })
    }

    fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    fn stopped(&self) -> Option<&str> {
        self.counters.stopped.get().map(String::as_str)
    }

    fn is_full(&self) -> bool {
        self.counters.is_full.load(Ordering::Relaxed)
    }

    fn takes_payloads(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::takes_payloads)
    }

    fn behind_log(&self) -> Option<&str> {
        self.behind_log.as_deref()
    }

    fn retain_log(&self) {
        self.log_use.forgets_nothing.store(true, Ordering::Relaxed);
    }

    fn retains_log(&self) -> bool {
        self.log_use.is_held.load(Ordering::Relaxed)
    }

    fn release_log(&self) {
        self.log_use.is_held.store(false, Ordering::Relaxed);
        self.writer.iter().for_each(Writer::cover);
    }

    fn set_aside(&self, is_aside: bool) {
        self.log_use.is_aside.store(is_aside, Ordering::Relaxed);
    }

    fn follow(&self, follower: &Arc<dyn Follower>) -> Option<FollowedFrom> {
        self.writer.as_ref().map(|_| self.followers.add(follower))
    }
}

/// Takes from the log the batches that the file lacks, so that the file and the end of the log are the same state,
/// durably. Returns the reason if the two do not fit.
fn settle_with_log(
    committer: &mut Committer<SqliteRecords>,
    walked: &mut Walk,
    accept_incomplete: bool,
) -> Result<Option<String>, StoreError> {
    let replayed = committer.replay(walked.digests().0)?;
    *walked.digests().1 = committer.state.expected;
    committer.state.expected = walked.expected(accept_incomplete);
    match committer.catch_up() {
        Ok(true) => Ok(replayed.behind),
        Ok(false) => Err(StoreError::Full),
        Err(failure) => Err(committer.break_after(failure)),
    }
}

/// The number of the file's last batch.
fn last_sequence(connection: &Connection, path: &Path) -> Result<Sequence, StoreError> {
    let say = |error: rusqlite::Error| store_error(path, &error);
    if let Some(sequence) = statements::read_sequence(connection).map_err(say)? {
        return Ok(sequence);
    }
    tracing::error!("the catalog's sequence number is damaged; it is taken from the records");
    statements::highest_sequence(connection).map_err(say)
}

#[cfg(test)]
mod tests;
