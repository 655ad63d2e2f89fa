//! The single writing thread: it takes every waiting batch, lets the committer commit them together, and answers them
//! all.
//!
//! If the medium is full, each batch is tried again alone, so that a large one does not take small ones with it.

use super::records::SqliteRecords;
use crate::committer::Committer;
use crate::error::StoreError;
use crate::store::{Batch, StoreFuture};
use lineage::Sequence;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Maximum number of writes per transaction, unless a single batch has more: limits how long the first one waits.
const GROUP_WRITES_MAX: usize = 16_384;
/// Maximum payload bytes per transaction, unless a single batch has more.
const GROUP_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Counts of the writer, which it shares with the store.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) transactions: AtomicU64,
    pub(super) covers: AtomicU64,
    /// The number of the last batch that was answered.
    pub(super) sequence: AtomicU64,
    /// The reason why nothing is committed any more.
    pub(super) stopped: OnceLock<String>,
    /// True if the last transaction found no room.
    pub(super) is_full: AtomicBool,
}

impl Counters {
    pub(super) fn new(last: Sequence) -> Self {
        let count = || AtomicU64::new(0);
        Self {
            batches: count(),
            transactions: count(),
            covers: count(),
            sequence: AtomicU64::new(last.0),
            stopped: OnceLock::new(),
            is_full: AtomicBool::new(false),
        }
    }
}

/// A waiting batch, and the channel for its answer.
struct QueuedBatch {
    batch: Batch,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

/// Work of the thread.
enum Job {
    Commit(QueuedBatch),
    /// The log may forget what the file has.
    Cover,
}

/// The handle of the thread. Dropping it ends the thread after everything queued is done.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    takes_payloads: bool,
}

impl Writer {
    pub(super) fn start(committer: Committer<SqliteRecords>, counters: Arc<Counters>) -> Result<Self, StoreError> {
        let (jobs, queue) = channel();
        let takes_payloads = committer.log.is_some();
        let work = WriterThread { committer, counters };
        let thread = std::thread::Builder::new().name("catalog-writer".into()).spawn(move || work.run(&queue));
        let thread = thread.map_err(|error| StoreError::Failed(error.to_string()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), takes_payloads })
    }

    pub(super) fn takes_payloads(&self) -> bool {
        self.takes_payloads
    }

    /// Queues `batch` at once; the future only waits for the answer.
    pub(super) fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        assert!(self.takes_payloads || batch.payload.is_none(), "a payload travels only where a log takes it");
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("the queue is closed only by drop");
        let sent = jobs.send(Job::Commit(QueuedBatch { batch, answer })).is_ok();
        Box::pin(async move {
            let gone = || StoreError::Failed("the catalog's writer has ended".into());
            if sent { answered.await.unwrap_or_else(|_| Err(gone())) } else { Err(gone()) }
        })
    }

    /// Has the log forget what the file has, unless it is to retain it.
    pub(super) fn cover(&self) {
        // A thread that has ended has done so, or cannot.
        self.jobs.iter().for_each(|jobs| drop(jobs.send(Job::Cover)));
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
    committer: Committer<SqliteRecords>,
    counters: Arc<Counters>,
}

impl WriterThread {
    fn run(mut self, queue: &Receiver<Job>) {
        let mut next = None;
        while let Some(job) = next.take().or_else(|| queue.recv().ok()) {
            match job {
                Job::Commit(first) => {
                    let group;
                    (group, next) = gather(first, queue);
                    self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
                    self.commit(group);
                }
                Job::Cover => self.cover(),
            }
        }
        self.close();
    }

    fn cover(&mut self) {
        self.committer.cover_now();
        self.counters.covers.store(self.committer.covers, Ordering::Relaxed);
        if let Some(why) = self.committer.stopped() {
            self.counters.stopped.get_or_init(|| why.to_owned());
        }
    }

    fn commit(&mut self, group: Vec<QueuedBatch>) {
        self.counters.transactions.fetch_add(1, Ordering::Relaxed);
        let batches: Vec<&Batch> = group.iter().map(|job| &job.batch).collect();
        let done = self.committer.commit(&batches);
        self.counters.covers.store(self.committer.covers, Ordering::Relaxed);
        self.counters.is_full.store(matches!(done, Err(StoreError::Full)), Ordering::Relaxed);
        if let Some(why) = self.committer.stopped() {
            self.counters.stopped.get_or_init(|| why.to_owned());
        }
        match done {
            Ok(verdicts) => {
                if verdicts.iter().any(Option::is_none) {
                    self.counters.sequence.store(self.committer.state.sequence.0, Ordering::Release);
                }
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

    /// Makes the file whole without its log from now on, if possible.
    fn close(&mut self) {
        if self.committer.log.is_none() || !self.committer.close() {
            return;
        }
        if let Err(error) = self.committer.records.end_log() {
            tracing::warn!(%error, "the catalog still needs its log");
        }
    }
}

/// `first` and other waiting batches, up to the limits of one transaction; and the job after them, if it is another.
fn gather(first: QueuedBatch, queue: &Receiver<Job>) -> (Vec<QueuedBatch>, Option<Job>) {
    let payload = |job: &QueuedBatch| job.batch.payload.as_ref().map_or(0, |payload| payload.bytes.len());
    let (mut writes, mut bytes) = (first.batch.writes.len(), payload(&first));
    let mut group = vec![first];
    while writes < GROUP_WRITES_MAX
        && bytes < GROUP_PAYLOAD_BYTES_MAX
        && let Ok(job) = queue.try_recv()
    {
        let Job::Commit(job) = job else { return (group, Some(job)) };
        writes += job.batch.writes.len();
        bytes += payload(&job);
        group.push(job);
    }
    (group, None)
}

/// A caller that no longer waits needs no answer.
fn answer(job: QueuedBatch, answer: Result<(), StoreError>) {
    let _ = job.answer.send(answer);
}
