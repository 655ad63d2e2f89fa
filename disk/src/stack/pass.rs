//! The stand-in for [`StackReader`](super::StackReader) in runs that need a read's time and not its bytes.
//!
//! It sends the drives the same requests as the reader, in the same order: both ends of each stack, then batches of
//! stripes from all of them at once, with the checksum page of a run before its fragments. Only the drives' time
//! passes; nothing is checked, decoded or repaired, and the receiver gets numbers of bytes.
//!
//! 1. The first batch is as long as the reader's, so the first byte comes as soon as it would.
//! 2. Later ones may be longer: a batch is sent while it is being read, as the reader's many short ones would be.
//!
//! Invariant: the policy determines the number of drives that are read, each for all fragments of the stripes in
//! question.

use super::format::{Blob, RUN_STRIPES, Shape, StripeBatch, stack_name};
use super::outcome::{Report, StackError, StackOutcome};
use super::read::{Policy, SinkClosed};
use crate::format::BLOCK_BYTES;
use crate::{Drive, DriveError, FileName};
use futures::future::{BoxFuture, join, join_all};
use std::ops::Range;
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Takes a payload with only its length.
pub trait PassSink: Send {
    /// Takes the next `bytes` bytes.
    fn pass(&mut self, bytes: u64) -> BoxFuture<'_, Result<(), SinkClosed>>;
}

/// The part of a payload that is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Payload bytes.
    pub range: Range<u64>,
    /// Maximum bytes of fragments per request to a drive, after the first batch.
    pub request_bytes: u64,
}

/// A stack that takes part.
struct Passed {
    drive: Arc<dyn Drive>,
    name: FileName,
    outcome: StackOutcome,
}

/// Lets the time pass that a read of the payload bytes of `passage` takes from these `stacks`, each given by its index
/// and drive.
pub async fn pass_over(
    blob: Blob,
    stacks: Vec<(u8, Arc<dyn Drive>)>,
    policy: Policy,
    passage: Passage,
    sink: &mut dyn PassSink,
) -> Report<()> {
    let mut passing = Passing::new(blob, stacks, policy);
    let result = passing.run(passage, sink).await;
    Report { result, outcomes: passing.stacks.into_iter().map(|stack| stack.outcome).collect() }
}

struct Passing {
    blob: Blob,
    shape: Shape,
    stacks: Vec<Passed>,
}

impl Passing {
    fn new(blob: Blob, stacks: Vec<(u8, Arc<dyn Drive>)>, policy: Policy) -> Self {
        let mut used: Vec<u8> = stacks.iter().map(|(index, _)| *index).collect();
        used.sort_unstable();
        if policy == Policy::K {
            used.truncate(blob.code.data.into());
        }
        let passed = |(index, drive): (u8, Arc<dyn Drive>)| Passed {
            drive,
            name: stack_name(blob.id, index),
            outcome: if used.contains(&index) { StackOutcome::Fine } else { StackOutcome::Unused },
        };
        let shape = Shape::new(blob.code, blob.payload_bytes);
        Self { blob, shape, stacks: stacks.into_iter().map(passed).collect() }
    }

    async fn run(&mut self, passage: Passage, sink: &mut dyn PassSink) -> Result<(), StackError> {
        let Passage { range, request_bytes } = passage;
        assert!(range.end <= self.blob.payload_bytes, "the range lies within the payload");
        if range.is_empty() {
            return Ok(());
        }
        let last_run = self.shape.runs() - 1;
        self.ask(self.shape.page_offset(last_run), 2 * BLOCK).await?;
        self.ask(0, BLOCK).await?;
        let stripe_bytes = self.blob.code.stripe_bytes();
        let end = (range.end - 1) / stripe_bytes + 1;
        let mut batch = self.shape.batch(range.start / stripe_bytes, end);
        let mut page_of = last_run;
        if batch.run() != page_of {
            page_of = batch.run();
            self.ask(self.shape.page_offset(page_of), BLOCK).await?;
        }
        self.ask_for(batch).await?;
        // A batch is sent while the next one is being read.
        let mut sent = range.start;
        while batch.end() < end {
            batch = self.longer(batch.end(), end, request_bytes);
            if batch.run() != page_of {
                page_of = batch.run();
                self.ask(self.shape.page_offset(page_of), BLOCK).await?;
            }
            let until = self.shape.payload_of(batch.end() - 1).end.min(range.end);
            let (asked, given) = join(self.ask_for(batch), sink.pass(until - sent)).await;
            asked?;
            given.map_err(|SinkClosed| StackError::SinkClosed)?;
            sent = until;
        }
        if sent < range.end {
            sink.pass(range.end - sent).await.map_err(|SinkClosed| StackError::SinkClosed)?;
        }
        Ok(())
    }

    /// Requests the fragments of `batch`.
    async fn ask_for(&mut self, batch: StripeBatch) -> Result<(), StackError> {
        self.ask(self.shape.fragment_offset(batch.first), self.shape.len(batch) as u64).await
    }

    /// The batch from stripe `first` on, of at most `request_bytes` bytes unless the reader's is longer.
    fn longer(&self, first: u64, end: u64, request_bytes: u64) -> StripeBatch {
        let stripes = (request_bytes / u64::from(self.blob.code.fragment_bytes)).max(self.shape.batch_stripes());
        let run_end = self.shape.run_end(first / RUN_STRIPES);
        StripeBatch { first, stripes: stripes.min(end - first).min(run_end - first) }
    }

    /// Requests the same bytes from all participating stacks. A drive that fails no longer participates.
    async fn ask(&mut self, offset: u64, bytes: u64) -> Result<(), StackError> {
        let fine = self.stacks.iter_mut().filter(|stack| stack.outcome == StackOutcome::Fine);
        join_all(fine.map(|stack| async {
            let asked: Result<(), DriveError> = stack.drive.pass(&stack.name, offset, bytes).await;
            if let Err(error) = asked {
                stack.outcome = StackOutcome::of(&error);
            }
        }))
        .await;
        let (need, good) =
            (self.blob.code.data, self.stacks.iter().filter(|stack| stack.outcome == StackOutcome::Fine));
        let good = good.count() as u8;
        if good >= need { Ok(()) } else { Err(StackError::TooFewStacks { need, good }) }
    }
}
