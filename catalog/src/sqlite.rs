//! The embedded store: one SQLite file on the server's own disk.
//!
//! Invariants:
//! - all changes go through one writer thread, which puts every waiting batch into one transaction (group commit) and
//!   answers them once it is durable (WAL, `synchronous = FULL`), so that all of them share one sync;
//! - reads use connections of their own, which never wait for the writer and see every batch that was answered;
//! - one process at a time: a lock on the file beside it is held from open until the writer has ended;
//! - after an error that leaves open what is durable (a failed sync), nothing is written until the file is opened
//!   again;
//! - everything that is read after an open is durable, whatever became of the sync before it (`settle.rs`);
//! - after an open a search finds whatever the file holds, and any records that are missing are known to be
//!   (`mend.rs`);
//! - a store that is opened read-only changes neither the file nor its log.

mod failure;
mod file;
mod key_digest;
mod mend;
mod path;
mod pool;
mod schema;
mod settle;
mod statements;
mod writer;

use crate::error::StoreError;
use crate::look::read_only;
use crate::seal::{Sealed, Sequence};
use crate::store::{Batch, Entry, KeyRange, Store, StoreFuture};
use failure::store_error;
use mend::Walk;
use pool::Pool;
use rusqlite::Connection;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use writer::{Counters, Writer};

/// Connections of a store that is opened read-only.
const READ_ONLY_READERS: usize = 2;
/// Faults of the pages that are reported.
const PAGE_FAULTS_MAX: u32 = 20;

/// Options of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// How many reads may run at once. At least 1.
    pub readers: usize,
    /// The size that the file may grow to, in bytes (rounded down to whole pages); beyond, commits answer
    /// [`StoreError::Full`]. `None` leaves it to the disk.
    pub max_bytes: Option<u64>,
    /// Batches get sequence numbers above this one, and above all that the file has seen. A server derives it from the
    /// wall clock, so that a file restored from a backup does not use numbers again.
    pub sequence_min: Sequence,
    /// Gives up records that are missing: the file counts as complete from now on.
    pub accept_incomplete: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 4, max_bytes: None, sequence_min: Sequence::default(), accept_incomplete: false }
    }
}

/// Counts since a store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqliteStats {
    /// Batches that were taken from the queue.
    pub batches: u64,
    /// Transactions that they were put into.
    pub transactions: u64,
}

/// A [`Store`] in one SQLite file.
pub struct SqliteStore {
    // Fields are dropped in this order: the readers go first, so that the writer closes last and folds the log into the
    // file; only then may another process open it.
    pool: Pool,
    /// `None` if it is opened read-only.
    writer: Option<Writer>,
    counters: Arc<Counters>,
    incomplete: Option<String>,
    _lock: File,
}

impl SqliteStore {
    /// Opens the catalog file at `path`, or creates it.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is another kind of file, damaged, written by a newer Larder or open elsewhere;
    /// the message names the path and says what to do.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the catalog file at `path`, or creates it, with options.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.as_ref().into();
        let lock = file::lock(&path)?;
        let (connection, walked) = file::open_for_writing(&path, options.max_bytes)?;
        let incomplete = walked.flaw().filter(|_| !options.accept_incomplete);
        let expected = walked.expected(options.accept_incomplete);
        let readers = (0..options.readers).map(|_| file::open_for_reading(&path)).collect::<Result<_, _>>()?;
        let pool = Pool::new(path.clone(), readers);
        let last = last_sequence(&connection, &path)?;
        let sequence = last.max(options.sequence_min);
        let counters = Arc::new(Counters::new(last));
        let writer = Some(Writer::start(connection, path, counters.clone(), sequence, expected)?);
        Ok(Self { pool, writer, counters, incomplete, _lock: lock })
    }

    /// Opens the catalog file at `path`, which must exist, to look at it, and walks through it once: records that are
    /// missing show in [`Store::incomplete`], also where a start would rewrite the file. Every commit is refused.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is another kind of file, written by a newer Larder or open elsewhere.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.as_ref().into();
        let lock = file::lock(&path)?;
        let readers = (0..READ_ONLY_READERS).map(|_| file::open_read_only(&path)).collect::<Result<Vec<_>, _>>()?;
        schema::check_identity(&readers[0], &path)?;
        let sequence = statements::read_sequence(&readers[0]).map_err(|error| store_error(&path, &error))?;
        // A file that cannot be walked to its end is a finding, not a reason to refuse a look at the rest.
        let incomplete =
            Walk::through(&readers[0]).map_or_else(|error| Some(error.to_string()), |walked| walked.flaw());
        let counters = Arc::new(Counters::new(sequence.unwrap_or_default()));
        Ok(Self { pool: Pool::new(path, readers), writer: None, counters, incomplete, _lock: lock })
    }

    /// Reads every page of the file and compares each table with its index. The faults that SQLite finds, in its words.
    pub async fn check_pages(&self) -> Result<Vec<String>, StoreError> {
        match self.pool.read(|reader| reader.check_pages(PAGE_FAULTS_MAX)).await {
            Err(StoreError::Unusable(error)) => Ok(vec![error]),
            other => other,
        }
    }

    /// Counts since it was opened.
    pub fn stats(&self) -> SqliteStats {
        SqliteStats {
            batches: self.counters.batches.load(Ordering::Relaxed),
            transactions: self.counters.transactions.load(Ordering::Relaxed),
        }
    }
}

impl Store for SqliteStore {
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        let key = key.to_vec();
        self.pool.read(move |reader| reader.get(&key))
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        self.pool.read(move |reader| reader.get_many(&keys))
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.pool.read(move |reader| reader.scan(range, limit))
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

    fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }
}

/// The number of the last batch of the file.
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
