//! The embedded store: one SQLite file on the server's own disk.
//!
//! Invariants:
//! - all changes go through one writer thread, which puts every batch that waits into one transaction (group commit)
//!   and answers them once it is durable (WAL, `synchronous = FULL`); one sync is shared by as many batches as there
//!   are;
//! - reads go through connections of their own, which never wait for the writer and see every batch that was answered;
//! - one process at a time: a lock on the file beside it is held from open until the writer has ended;
//! - after an error that leaves open what is durable (a failed sync), no more is written until the file is opened anew;
//! - what is read after an open is durable, whatever the sync before it came to (`settle.rs`);
//! - after an open a search finds whatever the file holds, and whether it holds all that it should is known
//!   (`mend.rs`).

mod file;
mod key_digest;
mod mend;
mod read_only;
mod settle;
mod statements;
mod writer;

use crate::seal::{Sealed, Sequence};
use crate::store::{Batch, Entry, KeyRange, Store, StoreError, StoreFuture};
pub use read_only::SqliteView;
use rusqlite::{Connection, ErrorCode};
use statements::Reader;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use writer::Writer;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// How many reads may run at once. At least 1.
    pub readers: usize,
    /// The size the file may grow to, in bytes (rounded down to whole pages); beyond, commits answer
    /// [`StoreError::Full`]. `None` leaves it to the disk.
    pub max_bytes: Option<u64>,
    /// Batches get sequence numbers above this one, and above all that the file has seen. A server gives a number that
    /// follows from the wall clock, so that a file that was put back from a backup does not give numbers out again.
    pub sequence_min: Sequence,
    /// Records that are missing are given up: the file counts as complete from now on.
    pub accept_incomplete: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 4, max_bytes: None, sequence_min: Sequence::default(), accept_incomplete: false }
    }
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqliteStats {
    /// Batches that were taken from the queue.
    pub batches: u64,
    /// Transactions they were put into.
    pub transactions: u64,
}

/// A [`Store`] in one SQLite file.
pub struct SqliteStore {
    // Fields are dropped in this order: the readers go first, so that the writer closes last and folds the log into the
    // file; only then another process may come.
    pool: Arc<Pool>,
    writer: Writer,
    counters: Arc<Counters>,
    incomplete: Option<String>,
    _lock: File,
}

/// The counters behind [`SqliteStats`].
#[derive(Debug, Default)]
struct Counters {
    batches: AtomicU64,
    transactions: AtomicU64,
    sequence: AtomicU64,
}

/// The connections for reading.
struct Pool {
    path: Arc<Path>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl SqliteStore {
    /// Opens the catalog file at `path`, or makes it.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is another kind of file, damaged, written by a newer Larder or open elsewhere;
    /// the message names the path and the mend.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the catalog file at `path`, or makes it, with options.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        assert!(options.readers > 0, "a store without readers answers nothing");
        let path: Arc<Path> = path.as_ref().into();
        let lock = file::lock(&path)?;
        let (connection, walked) = file::open_for_writing(&path, options.max_bytes)?;
        let incomplete = walked.flaw().filter(|_| !options.accept_incomplete);
        let expected = walked.expected(options.accept_incomplete);
        let idle = (0..options.readers).map(|_| file::open_for_reading(&path)).collect::<Result<_, _>>()?;
        let last = last_sequence(&connection, &path)?;
        let sequence = last.max(options.sequence_min);
        let counters = Arc::new(Counters { sequence: AtomicU64::new(last.0), ..Counters::default() });
        let writer = Writer::start(connection, path.clone(), counters.clone(), sequence, expected)?;
        let permits = Arc::new(Semaphore::new(options.readers));
        let pool = Arc::new(Pool { path, idle: Mutex::new(idle), permits });
        Ok(Self { pool, writer, counters, incomplete, _lock: lock })
    }

    /// What was done since it was opened.
    pub fn stats(&self) -> SqliteStats {
        SqliteStats {
            batches: self.counters.batches.load(Ordering::Relaxed),
            transactions: self.counters.transactions.load(Ordering::Relaxed),
        }
    }
}

impl Pool {
    /// Runs `read` on a free connection, on a thread that may block.
    fn read<T, F>(self: &Arc<Self>, read: F) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let pool = Arc::clone(self);
        Box::pin(async move {
            let permit = pool.permits.clone().acquire_owned().await;
            let permit = permit.map_err(|closed| StoreError::Failed(closed.to_string()))?;
            let task = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                pool.run(read)
            });
            task.await.map_err(|broken| StoreError::Failed(broken.to_string()))?
        })
    }

    fn run<T>(&self, read: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let connection = self.idle().pop();
        let connection = connection.expect("there are as many connections as permits, and this thread holds a permit");
        let answer = read(&Reader::new(&connection));
        self.idle().push(connection);
        answer.map_err(|error| store_error(&self.path, &error))
    }

    /// Nothing panics while it holds the lock, so a poisoned one is as good.
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.writer.commit(batch)
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

/// What SQLite said of the file at `path`, in our words.
fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::NotADatabase) => file::unusable(path, "is not a catalog of Larder", file::MEND_FOREIGN),
        Some(ErrorCode::DatabaseCorrupt) => file::unusable(path, &format!("is damaged ({error})"), file::MEND_DAMAGED),
        _ => StoreError::Failed(format!("{}: {error}", path.display())),
    }
}

/// The path of `path` with `suffix` behind its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
