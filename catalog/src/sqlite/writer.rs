//! The one thread that writes: it takes every batch that waits, commits them together, and then answers them all.
//!
//! No savepoint is needed between the batches of a transaction: the checks of a batch are evaluated before its first
//! write, and a write that then fails can only be the medium's fault, for which the whole transaction is rolled back.
//! If the medium is full, each batch is tried again alone, so that a large one does not take small ones with it.

use super::failure::store_error;
use super::key_digest::ExpectedKeys;
use super::statements::{failed_check, write, write_sequence};
use crate::error::StoreError;
use crate::seal::Sequence;
use crate::store::{Batch, StoreFuture};
use rusqlite::{Connection, ErrorCode};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Writes of one transaction at most, unless a single batch has more: bounds how long the first one waits.
const GROUP_WRITES_MAX: usize = 16_384;

/// Counts of the writer, which it shares with the store.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) transactions: AtomicU64,
    /// The number of the last batch that was answered.
    pub(super) sequence: AtomicU64,
}

impl Counters {
    pub(super) fn new(last: Sequence) -> Self {
        let sequence = AtomicU64::new(last.0);
        Self { batches: AtomicU64::new(0), transactions: AtomicU64::new(0), sequence }
    }
}

/// A waiting batch, and where its answer goes.
struct QueuedBatch {
    batch: Batch,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

/// The handle on the thread. Dropping it ends the thread once everything queued is done.
pub(super) struct Writer {
    jobs: Option<Sender<QueuedBatch>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: Arc<Path>,
        counters: Arc<Counters>,
        sequence: Sequence,
        expected: ExpectedKeys,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = channel();
        let work = WriterThread { connection, path, counters, sequence, expected, broken: None };
        let thread = std::thread::Builder::new().name("catalog-writer".into()).spawn(move || work.run(&queue));
        let thread = thread.map_err(|error| StoreError::Failed(error.to_string()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Queues `batch` at once; the future only waits for the answer.
    pub(super) fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("the queue is closed only by drop");
        let sent = jobs.send(QueuedBatch { batch, answer }).is_ok();
        Box::pin(async move {
            let gone = || StoreError::Failed("the catalog's writer has ended".into());
            if sent { answered.await.unwrap_or_else(|_| Err(gone())) } else { Err(gone()) }
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the catalog's writer panicked");
        }
    }
}

/// The state of the thread.
struct WriterThread {
    connection: Connection,
    path: Arc<Path>,
    counters: Arc<Counters>,
    /// Of the last batch that was committed.
    sequence: Sequence,
    /// The records that the file should hold.
    expected: ExpectedKeys,
    /// Why nothing more may be written.
    broken: Option<String>,
}

/// The result of a batch within a transaction: the check that failed, if one did.
type Verdict = Option<usize>;

impl WriterThread {
    fn run(mut self, queue: &Receiver<QueuedBatch>) {
        while let Ok(first) = queue.recv() {
            let group = gather(first, queue);
            self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
            self.commit(group);
        }
    }

    fn commit(&mut self, group: Vec<QueuedBatch>) {
        match self.transaction(&group) {
            Ok(verdicts) => {
                assert_eq!(verdicts.len(), group.len(), "every batch has its verdict");
                assert!(self.broken.is_none(), "nothing is acknowledged after a failed sync");
                for (job, verdict) in group.into_iter().zip(verdicts) {
                    answer(job, verdict.map_or(Ok(()), |check| Err(StoreError::CheckFailed(check))));
                }
            }
            Err(StoreError::Full) if group.len() > 1 => group.into_iter().for_each(|job| self.commit(vec![job])),
            Err(error) => {
                let text = error.to_string();
                let mut first = Some(error);
                for job in group {
                    answer(job, Err(first.take().unwrap_or_else(|| StoreError::Failed(text.clone()))));
                }
            }
        }
    }

    /// All of `group` in one durable transaction, or nothing of it.
    fn transaction(&mut self, group: &[QueuedBatch]) -> Result<Vec<Verdict>, StoreError> {
        if let Some(why) = &self.broken {
            return Err(StoreError::Failed(why.clone()));
        }
        self.counters.transactions.fetch_add(1, Ordering::Relaxed);
        let done = self.try_transaction(group);
        let done = done.map(|(verdicts, sequence, expected)| {
            assert!(sequence >= self.sequence, "sequence numbers grow");
            let applied = verdicts.iter().filter(|verdict| verdict.is_none()).count() as u64;
            assert_eq!(sequence.0 - self.sequence.0, applied, "each batch that changes something has its own number");
            assert!(self.connection.is_autocommit(), "a batch is answered when its transaction is over");
            (self.sequence, self.expected) = (sequence, expected);
            self.counters.sequence.store(sequence.0, Ordering::Release);
            verdicts
        });
        done.map_err(|error| {
            self.roll_back();
            // A full medium, or a tool that holds the file, leaves everything as it was; after anything else (a failed
            // sync above all) it is unknown what is durable.
            let harmless = matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy));
            let error = store_error(&self.path, &error);
            if !harmless {
                let why = format!("{error}; nothing more is written until Larder is started anew");
                tracing::error!("{why}");
                self.broken = Some(why);
            }
            error
        })
    }

    /// The verdict on each batch, the number of the last of them that changed something, and the records that the file
    /// should hold.
    fn try_transaction(&self, group: &[QueuedBatch]) -> rusqlite::Result<(Vec<Verdict>, Sequence, ExpectedKeys)> {
        assert!(self.broken.is_none() && !group.is_empty(), "a transaction has batches, on a file that can be written");
        let (mut sequence, mut expected) = (self.sequence, self.expected);
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut verdicts = Vec::with_capacity(group.len());
        for job in group {
            let failed = failed_check(&self.connection, &job.batch)?;
            if failed.is_none() {
                sequence.0 += 1;
                job.batch.writes.iter().try_for_each(|to| write(&self.connection, to, sequence, &mut expected.keys))?;
            }
            verdicts.push(failed);
        }
        write_sequence(&self.connection, sequence, expected)?;
        self.connection.execute_batch("COMMIT")?;
        Ok((verdicts, sequence, expected))
    }

    /// SQLite may have rolled back by itself.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            self.broken = Some(format!("{}: {error}", self.path.display()));
        }
    }
}

/// `first` and whatever else waits, as far as one transaction goes.
fn gather(first: QueuedBatch, queue: &Receiver<QueuedBatch>) -> Vec<QueuedBatch> {
    let mut writes = first.batch.writes.len();
    let mut group = vec![first];
    while writes < GROUP_WRITES_MAX
        && let Ok(job) = queue.try_recv()
    {
        writes += job.batch.writes.len();
        group.push(job);
    }
    group
}

/// A caller that no longer waits needs no answer.
fn answer(job: QueuedBatch, answer: Result<(), StoreError>) {
    let _ = job.answer.send(answer);
}
