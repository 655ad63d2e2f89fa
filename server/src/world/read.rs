//! Reads: payload bytes of a blob, from the drives to their consumers.
//!
//! Reads for clients go into the spool, whose writer never waits for a reader. Background work takes its bytes from
//! memory (`memory_read.rs`); they never touch the workshop's disk.
//!
//! Invariants: a read that is retried with other drives resumes where it stopped.

use super::operation::Operation;
use super::outcome::{described, drive_outcomes, policy_of};
use super::read_target::{ReadOrder, ReadProgress, ReadTarget};
use super::spool_sink::SpoolSink;
use super::state::World;
use crate::losses::Losses;
use crate::refusals::Why;
use catalog::Blob;
use disk::stack::{self, Passage, Policy, StackError, StackOutcome, StackReader};
use disk::{Drive, clock};
use engine::{Controller, Event, Outcome, ReadPolicy, Rejection, Request, Work};
use model::{Attempt, BlobId, DriveId, OpId};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

impl World {
    pub(super) fn order_read(&mut self, order: ReadOrder) {
        let ReadOrder { blob, range, target, priority, job, while_awake, refused } = order;
        if let ReadTarget::Spool(sink) = &target {
            assert_eq!(sink.range(), range, "the spool takes what is read");
        }
        let op = self.next_op();
        let (group, drives) = (blob.group, blob.drives.clone());
        let work = Work::Read { blob: blob.blob, group, drives: drives.into(), bytes: range.end - range.start };
        let hold = self.context.holds.guard(blob.blob);
        let progress = Some(Box::new(ReadProgress::new(range, target)));
        let before = self.operations.insert(op, Operation::Read { blob, progress, refused, _hold: hold });
        assert!(before.is_none(), "{op} is one operation");
        let request = Request { op, priority, overtake_limit: None, work };
        if while_awake {
            assert!(job.is_none(), "the steps of a job wake their groups");
            return self.apply(Event::SubmittedWhileAwake(Box::new(request)));
        }
        self.submit(job, request);
    }

    pub(super) fn read(
        &mut self,
        op: OpId,
        attempt: Attempt,
        id: BlobId,
        (stacks, policy): (&[(u8, DriveId)], ReadPolicy),
    ) {
        let stacks_with_drives = self.with_drives(stacks);
        let Some(Operation::Read { blob, progress, .. }) = self.operations.get_mut(&op) else {
            panic!("{op} reads, and is no read");
        };
        let picked = self.rack.picked_at(op);
        if let Some(ReadTarget::Timed(client)) = progress.as_mut().map(|progress| &mut progress.target) {
            client.picked(picked);
        }
        assert_eq!(blob.blob, id, "an operation reads the blob it was asked for");
        let Some(progress) = progress.take() else { panic!("{op} is read twice at once") };
        assert!(self.context.holds.is_held(id), "a blob keeps its stacks while it is read");
        let read = Read {
            blob: described(&self.context, blob),
            stacks: stacks_with_drives,
            policy: policy_of(policy),
            progress,
        };
        let stacks = stacks.to_vec();
        self.start_with(move |handle, context| async move {
            let (progress, done, outcomes) = read.run(id, &context.counters.losses).await;
            name_damaged(id, &stacks, &outcomes);
            let drives: Vec<DriveId> = stacks.iter().map(|(_, drive)| *drive).collect();
            let outcomes = drive_outcomes(&context, &drives, outcomes);
            let event = Event::TransferEnded { op, attempt, done, outcomes };
            handle.run(move |world| world.transfer_read((op, attempt), progress, event));
        });
    }

    /// Ends a transfer; its progress returns, so that an attempt with other drives can resume it.
    fn transfer_read(&mut self, (op, attempt): (OpId, Attempt), ended: Box<ReadProgress>, event: Event) {
        if ended.closed {
            let bytes = ended.given().end - ended.range.start;
            self.apply(Event::ReadCutShort { op, attempt, bytes });
        }
        if let Some(Operation::Read { progress, .. }) = self.operations.get_mut(&op) {
            *progress = Some(ended);
        }
        self.apply(event);
    }

    /// Ends the operation.
    pub(super) fn read_ended(
        &self,
        blob: &Blob,
        progress: ReadProgress,
        refused: &OnceLock<Rejection>,
        outcome: &Outcome,
    ) {
        self.note_loss(blob, &progress, outcome);
        self.note_refusal(blob, &progress, outcome);
        let reason = match outcome {
            Outcome::Read => None,
            // The read was not worth a wake.
            Outcome::Failed(reason @ Rejection::Asleep) => Some(*reason),
            Outcome::Failed(reason) => {
                tracing::warn!(?reason, "a read failed: {reason}");
                Some(*reason)
            }
            // Withdrawn: the task that withdrew it knows, and others that want these bytes may retry.
            _ => Some(Rejection::QueueFull),
        };
        if let Some(reason) = reason {
            // Set before a consumer reaches the end of the bytes, so that it finds the reason.
            let _ = refused.set(reason);
        }
        match (progress.target, reason) {
            (ReadTarget::Spool(sink), None) => self.finish(blob.blob, sink),
            (ReadTarget::Spool(sink), Some(reason)) => sink.fail(reason.text()),
            (ReadTarget::Memory(sink), _) => drop(sink),
            (ReadTarget::Timed(client), reason) => client.ended(reason),
        }
    }

    /// Completes the recall of `blob` in the spool, with all of it or as much as the spool has room for.
    fn finish(&self, blob: BlobId, sink: Box<SpoolSink>) {
        self.start_with(move |_, context| async move {
            let (left, is_known) = (sink.left(), sink.failure().is_some());
            if let Err(error) = sink.finish().await
                && !is_known
            {
                context.counters.refusals.met(blob, left, Why::Spool(error.to_string()), clock::monotonic());
            }
        });
    }

    /// Records why a recall of `blob` failed, or clears that if it succeeded.
    fn note_refusal(&self, blob: &Blob, progress: &ReadProgress, outcome: &Outcome) {
        let ReadTarget::Spool(sink) = &progress.target else { return };
        let refusals = &self.context.counters.refusals;
        let (why, range) = match (outcome, sink.failure()) {
            // Data beside a lost stripe is not lost.
            (Outcome::Failed(Rejection::DataLost), _) => {
                (Why::Rack(Rejection::DataLost), self.lost_stripe(blob, progress))
            }
            (Outcome::Failed(reason), _) if reason.is_kept() => (Why::Rack(*reason), sink.left()),
            (Outcome::Read, Some(failure)) => (Why::Spool(failure.to_owned()), sink.left()),
            (Outcome::Read, None) => return refusals.forget(blob.blob, &progress.given()),
            _ => return,
        };
        refusals.met(blob.blob, range, why, clock::monotonic());
    }

    /// The lost stripe of `blob` at which a read has just ended.
    fn lost_stripe(&self, blob: &Blob, progress: &ReadProgress) -> Range<u64> {
        let stripe = blob.code().stripe_bytes();
        let at = progress.given().end - progress.given().end % stripe;
        let known = self.context.counters.losses.within(blob.blob, &(at..progress.range.end.max(at)));
        let start = known.map_or(at, |(start, _)| start);
        start..start - start % stripe + stripe
    }

    /// Records the data lost when `blob` was read, or clears that if nothing was lost.
    fn note_loss(&self, blob: &Blob, progress: &ReadProgress, outcome: &Outcome) {
        let losses = &self.context.counters.losses;
        match outcome {
            Outcome::Read => losses.forget(blob.blob, &progress.given()),
            // The transfer knows the stripe, unless permanently failed drives were not asked at all.
            Outcome::Failed(Rejection::DataLost) => {
                let stripe = blob.code().stripe_bytes();
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
    progress: Box<ReadProgress>,
}

impl Read {
    /// Resumes where the target ends. The result also counts as done if it was the target, not the rack, that ended the
    /// read.
    async fn run(mut self, id: BlobId, losses: &Losses) -> (Box<ReadProgress>, bool, Vec<StackOutcome>) {
        let stripe_bytes = self.blob.code.stripe_bytes();
        let range = self.progress.given().end..self.progress.range.end;
        let (blob, stacks, policy) = (self.blob, self.stacks, self.policy);
        let (result, outcomes) = match self.progress.request_bytes_without_payload() {
            None => read_payload(blob, stacks, policy, (range, &mut *self.progress)).await,
            Some(request_bytes) => {
                let passage = Passage { range, request_bytes };
                let passed = stack::pass_over(blob, stacks, policy, passage, &mut *self.progress).await;
                (passed.result, passed.outcomes)
            }
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

/// Reads the bytes of a range into a progress; checks each fragment.
async fn read_payload(
    blob: stack::Blob,
    stacks: Vec<(u8, Arc<dyn Drive>)>,
    policy: Policy,
    (range, progress): (Range<u64>, &mut ReadProgress),
) -> (Result<(), StackError>, Vec<StackOutcome>) {
    let opened = StackReader::open(blob, stacks, policy).await;
    match opened.result {
        Ok(mut reader) => {
            let result = reader.read(range, progress).await;
            (result, reader.outcomes())
        }
        Err(error) => (Err(error), opened.outcomes),
    }
}

/// Logs the drives with damaged stacks.
fn name_damaged(blob: BlobId, stacks: &[(u8, DriveId)], outcomes: &[StackOutcome]) {
    for ((index, drive), outcome) in stacks.iter().zip(outcomes) {
        let stack = stack::stack_name(blob, *index);
        match outcome {
            StackOutcome::StackBad => tracing::warn!(%drive, %stack, "a stack is damaged or missing"),
            StackOutcome::Repaired { fragments } => tracing::warn!(%drive, %stack, fragments, "a stack was repaired"),
            StackOutcome::Failed(error) => tracing::warn!(%drive, %stack, %error, "cannot read a stack from a drive"),
            _ => {}
        }
    }
}
