//! Reads: payload bytes of a blob, from the drives to whoever wants them.
//!
//! A client's go into the spool, whose writer never waits for a reader. Background work takes its bytes from memory
//! ([`super::MemoryReads`]): they never cross the workshop's disk.
//!
//! Invariants:
//! - between a transfer and a consumer in memory there are at most [`MEMORY_READ_BYTES`];
//! - an operation waits for such a consumer no longer than [`CONSUMER_WAIT_MAX`] in all. It then ends where it is, and
//!   the consumer orders the rest anew when it wants it;
//! - a read that is tried again, with other drives, goes on where it stood.

use super::transfer::{described, drive_outcomes};
use super::{Job, Message, World};
use crate::losses::Losses;
use bytes::Bytes;
use catalog::Blob;
use disk::Drive;
use disk::stack::{self, PayloadSink, Policy, SinkClosed, StackError, StackOutcome, StackReader};
use engine::recall::{CONSUMER_WAIT_MAX, MEMORY_READ_BYTES};
use engine::{Event, JobClass, Outcome, PriorityClass, ReadPolicy, Rejection, Request, Work};
use futures::future::BoxFuture;
use model::{Attempt, BlobId, DriveId, OpId};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use workshop::SpoolWriter;

/// The pieces in which bytes are handed over in memory.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces that wait for their consumer; one more is in the transfer's hand.
const PIECES: usize = MEMORY_READ_BYTES as usize / PIECE_BYTES - 1;
const _: () = assert!(PIECES > 0 && (PIECES + 1) * PIECE_BYTES <= MEMORY_READ_BYTES as usize);

/// A part of a blob's payload that is to be read.
pub struct ReadOrder {
    /// The blob.
    pub blob: Blob,
    /// The part of its payload.
    pub range: Range<u64>,
    /// Where the bytes go.
    pub target: ReadTarget,
    /// The priority class whose share is charged.
    pub priority: PriorityClass,
    /// The class of the repartition job of whose step it is a part, if it is.
    pub job: Option<JobClass>,
    /// Set if the engine refuses it or gives it up.
    pub refused: Arc<OnceLock<Rejection>>,
}

/// Where the bytes of a read go.
pub enum ReadTarget {
    /// Into the spool, for clients.
    Spool(Box<SpoolWriter>),
    /// To a consumer in memory.
    Memory(MemorySink),
}

/// Hands bytes to a consumer in memory.
pub struct MemorySink {
    pieces: mpsc::Sender<Bytes>,
    /// The time that the consumer was waited for.
    waited: Duration,
}

impl MemorySink {
    /// A sink, and what its consumer takes the bytes from.
    pub fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (pieces, consumer) = mpsc::channel(PIECES);
        (Self { pieces, waited: Duration::ZERO }, consumer)
    }

    /// Hands over `piece`, unless the consumer is gone, or was waited for long enough.
    async fn give(&mut self, piece: Bytes) -> Result<(), SinkClosed> {
        assert!(piece.len() <= PIECE_BYTES, "pieces are bounded");
        let began = Instant::now();
        let given = tokio::time::timeout(CONSUMER_WAIT_MAX.saturating_sub(self.waited), self.pieces.send(piece)).await;
        self.waited += began.elapsed();
        given.ok().and_then(Result::ok).ok_or(SinkClosed)
    }
}

/// A read under way: its target, and how much of it is there.
pub(crate) struct Progress {
    range: Range<u64>,
    target: ReadTarget,
    given_bytes: u64,
    /// The target took no more; the drives are not to blame.
    closed: bool,
}

impl Progress {
    /// The bytes that the target has.
    fn given(&self) -> Range<u64> {
        self.range.start..self.range.start + self.given_bytes
    }

    /// True if the consumer of an operation that reads into memory is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.target, ReadTarget::Memory(sink) if sink.pieces.is_closed())
    }

    async fn give(&mut self, bytes: &[u8]) -> Result<(), SinkClosed> {
        match &mut self.target {
            ReadTarget::Spool(writer) => {
                writer.append(bytes).await.map_err(|error| {
                    tracing::error!(%error, "the spool does not take a recall");
                    SinkClosed
                })?;
                self.given_bytes += bytes.len() as u64;
            }
            ReadTarget::Memory(sink) => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    sink.give(Bytes::copy_from_slice(piece)).await?;
                    self.given_bytes += piece.len() as u64;
                }
            }
        }
        Ok(())
    }
}

impl PayloadSink for Progress {
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(async move {
            let given = self.give(bytes).await;
            assert!(self.given().end <= self.range.end, "no more is given than was ordered");
            self.closed = given.is_err();
            given
        })
    }
}

impl World {
    pub(super) fn order_read(&mut self, order: ReadOrder) {
        let ReadOrder { blob, range, target, priority, job, refused } = order;
        if let ReadTarget::Spool(writer) = &target {
            assert_eq!(writer.range(), range, "the spool has room for what is read");
        }
        let op = self.next_op();
        let (group, drives) = (blob.group, blob.drives.clone());
        let work = Work::Read { blob: blob.blob, group, drives, bytes: range.end - range.start };
        self.context.holds.hold(blob.blob);
        let progress = Some(Box::new(Progress { range, target, given_bytes: 0, closed: false }));
        self.jobs.insert(op, Job::Read { blob, progress, refused });
        self.submit(job, Request { op, priority, overtake_limit: None, work });
    }

    pub(super) fn read(
        &mut self,
        op: OpId,
        attempt: Attempt,
        id: BlobId,
        stacks: &[(u8, DriveId)],
        policy: ReadPolicy,
    ) {
        let stacks_with_drives = self.with_drives(stacks);
        let Some(Job::Read { blob, progress, .. }) = self.jobs.get_mut(&op) else {
            panic!("{op} reads, and is no read");
        };
        assert_eq!(blob.blob, id, "an operation reads the blob it was asked for");
        let Some(progress) = progress.take() else { panic!("{op} is read twice at once") };
        assert!(self.context.holds.is_held(id), "a blob keeps its stacks while it is read");
        let read = Read {
            blob: described(&self.context, blob),
            stacks: stacks_with_drives,
            policy: match policy {
                ReadPolicy::All => Policy::All,
                ReadPolicy::K => Policy::K,
            },
            progress,
        };
        let stacks = stacks.to_vec();
        let (handle, context) = (self.handle.clone(), self.context.clone());
        self.start(async move {
            let (progress, done, outcomes) = read.run(id, &context.counters.losses).await;
            name_damaged(id, &stacks, &outcomes);
            let drives: Vec<DriveId> = stacks.iter().map(|(_, drive)| *drive).collect();
            let outcomes = drive_outcomes(&context, &drives, outcomes);
            let event = Event::TransferEnded { op, attempt, done, outcomes };
            handle.send(Message::ReadEnded { event, op, progress });
        });
    }

    /// A transfer is over; what it read into comes back, for an attempt with other drives to go on with.
    pub(super) fn transfer_read(&mut self, op: OpId, ended: Box<Progress>, event: Event) {
        if let Some(Job::Read { progress, .. }) = self.jobs.get_mut(&op) {
            *progress = Some(ended);
        }
        self.apply(event);
    }

    /// The operation is over.
    pub(super) fn read_ended(&self, blob: &Blob, progress: Progress, refused: &OnceLock<Rejection>, outcome: &Outcome) {
        self.context.holds.release(blob.blob);
        self.note_loss(blob, &progress, outcome);
        let reason = match outcome {
            Outcome::Read => None,
            Outcome::Failed(reason) => {
                tracing::warn!(?reason, "a read failed: {reason}");
                Some(*reason)
            }
            // Withdrawn: whoever did that knows, and whoever else wants these bytes may try again.
            _ => Some(Rejection::QueueFull),
        };
        if let Some(reason) = reason {
            // Set before anybody comes to the end of the bytes, so that who ordered them knows why.
            let _ = refused.set(reason);
        }
        match (progress.target, reason) {
            (ReadTarget::Spool(writer), None) => self.start(async move {
                if let Err(error) = writer.finish().await {
                    tracing::error!(%error, "a recall could not be completed in the spool");
                }
            }),
            (ReadTarget::Spool(writer), Some(reason)) => writer.fail(reason.text()),
            (ReadTarget::Memory(sink), _) => drop(sink),
        }
    }

    /// Remembers what was lost when `blob` was read, or that nothing was.
    fn note_loss(&self, blob: &Blob, progress: &Progress, outcome: &Outcome) {
        let losses = &self.context.counters.losses;
        match outcome {
            Outcome::Read => losses.forget(blob.blob, &progress.given()),
            // The transfer knows the stripe, unless drives that failed for good were not asked at all.
            Outcome::Failed(Rejection::DataLost) => {
                let stripe = u64::from(blob.code_data) * u64::from(blob.fragment_bytes);
                let at = progress.given().end - progress.given().end % stripe;
                if losses.within(blob.blob, &(at..progress.range.end.max(at))).is_none() {
                    losses.met(blob.blob, at, Vec::new());
                }
            }
            _ => {}
        }
    }
}

struct Read {
    blob: stack::Blob,
    stacks: Vec<(u8, Arc<dyn Drive>)>,
    policy: Policy,
    progress: Box<Progress>,
}

impl Read {
    /// Goes on where the target ends. Done is also what the target, not the rack, could not take.
    async fn run(mut self, id: BlobId, losses: &Losses) -> (Box<Progress>, bool, Vec<StackOutcome>) {
        let stripe_bytes = self.blob.code.stripe_bytes();
        let range = self.progress.given().end..self.progress.range.end;
        let opened = StackReader::open(self.blob, self.stacks, self.policy).await;
        let (result, outcomes) = match opened.result {
            Ok(mut reader) => {
                let result = reader.read(range, &mut *self.progress).await;
                (result, reader.outcomes())
            }
            Err(error) => (Err(error), opened.outcomes),
        };
        match &result {
            Ok(()) => assert_eq!(self.progress.given(), self.progress.range, "a complete read gives all of its bytes"),
            Err(StackError::SinkClosed) => {}
            Err(error @ StackError::DataLost { stripe, bad, .. }) => {
                tracing::error!(blob = %id, %error, "DATA LOST");
                losses.met(id, (stripe * stripe_bytes).max(self.progress.range.start), bad.clone());
            }
            Err(error) => tracing::warn!(blob = %id, %error, "a read failed"),
        }
        let done = result.is_ok() || self.progress.closed;
        (self.progress, done, outcomes)
    }
}

/// Says which drives hold what was found damaged.
fn name_damaged(blob: BlobId, stacks: &[(u8, DriveId)], outcomes: &[StackOutcome]) {
    for ((index, drive), outcome) in stacks.iter().zip(outcomes) {
        let stack = stack::stack_name(blob, *index);
        match outcome {
            StackOutcome::StackBad => tracing::warn!(%drive, %stack, "a stack is damaged or missing"),
            StackOutcome::Repaired { fragments } => tracing::warn!(%drive, %stack, fragments, "a stack was repaired"),
            StackOutcome::Failed(error) => tracing::warn!(%drive, %stack, %error, "a drive does not give a stack"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn progress(bytes: u64) -> (Progress, mpsc::Receiver<Bytes>) {
        let (sink, consumer) = MemorySink::new();
        (Progress { range: 0..bytes, target: ReadTarget::Memory(sink), given_bytes: 0, closed: false }, consumer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_waits_for_its_consumer_so_long_and_holds_so_much() {
        let (mut progress, mut consumer) = progress(1 << 40);
        let began = Instant::now();
        let stripe = vec![7; 1 << 20];
        while progress.take(&stripe).await.is_ok() {}
        assert!(progress.closed);
        assert_eq!(began.elapsed(), CONSUMER_WAIT_MAX);
        assert!(progress.given_bytes < MEMORY_READ_BYTES, "{} bytes wait", progress.given_bytes);
        let given = progress.given_bytes;
        drop(progress);
        let mut taken = 0;
        while let Some(piece) = consumer.recv().await {
            taken += piece.len() as u64;
        }
        assert_eq!(taken, given, "what was given is not lost");
    }

    #[tokio::test(start_paused = true)]
    async fn waits_add_up() {
        let (mut progress, mut consumer) = progress(1 << 40);
        let taken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Some(piece) = consumer.recv().await {
                count.fetch_add(piece.len() as u64, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let began = Instant::now();
        while progress.take(&[7; PIECE_BYTES]).await.is_ok() {}
        assert_eq!(began.elapsed(), CONSUMER_WAIT_MAX);
        assert!(progress.given_bytes > MEMORY_READ_BYTES, "a slow consumer gets on");
        assert!(progress.given_bytes - taken.load(Ordering::Relaxed) <= MEMORY_READ_BYTES);
    }

    #[tokio::test]
    async fn a_consumer_that_is_gone_ends_the_transfer() {
        let (mut progress, consumer) = progress(1 << 40);
        assert!(!progress.is_abandoned());
        drop(consumer);
        assert!(progress.is_abandoned());
        assert!(progress.take(&[1]).await.is_err());
        assert_eq!(progress.given_bytes, 0);
    }
}
