//! Bytes in motion: each transfer is a seek and then a flow of as many streams as it has drives.

use super::{Happening, World};
use crate::flow::Demand;
use engine::{DriveOutcome, DriveResult, Event, Lane, Mind, ReadPolicy, Transfer};
use model::{Attempt, BlobId, DriveId, OpId, transfer_time};
use std::time::Duration;

/// A transfer that is under way, or about to be.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    op: OpId,
    attempt: Attempt,
    /// Drives that must do well for the whole to have done well, the target aside.
    need: usize,
    /// A drive that must do well, too: the one that a rebuilt stack is written to.
    target: Option<DriveId>,
    drives: Vec<Part>,
    /// Bytes of each stream.
    stream_bytes: u64,
    /// Payload bytes that leave by the network: what clients read. What a server reads for itself stays there.
    sent_bytes: u64,
    /// How long drives that hang were waited for before the others went on.
    waited: Duration,
}

impl Moving {
    /// The drives that take part.
    fn fine(&self) -> impl Iterator<Item = &Part> {
        self.drives.iter().filter(|part| part.result == DriveResult::Fine)
    }

    fn streams(&self) -> usize {
        self.fine().count()
    }

    /// Whether the whole has done well if these drives have.
    fn is_done_by(&self, fine: impl Iterator<Item = DriveId>) -> bool {
        let (mut others, mut target) = (0, self.target.is_none());
        for drive in fine {
            let is_target = self.target == Some(drive);
            target |= is_target;
            others += usize::from(!is_target);
        }
        target && others >= self.need
    }
}

/// A drive's part in a transfer.
#[derive(Clone, Copy, Debug)]
struct Part {
    drive: DriveId,
    /// How it fared, if it is not lost on the way.
    result: DriveResult,
    /// How often it had been lost when the transfer began.
    losses: u32,
}

/// A transfer whose heads are on their way.
#[derive(Clone, Debug)]
pub(super) struct Begin {
    moving: Moving,
    demand: Demand,
}

/// What a kind of transfer asks for.
struct Asked {
    need: usize,
    /// How many of the drives that can are to take part.
    streams: usize,
    /// The blob that is read.
    read: Option<BlobId>,
    /// The drive that is written beside those that are read.
    target: Option<DriveId>,
    /// Whether what is read leaves by the network.
    sent: bool,
    moves: bool,
    writes: bool,
}

impl Asked {
    fn of(transfer: &Transfer) -> Self {
        let nothing = Self { need: 0, streams: 0, read: None, target: None, sent: false, moves: true, writes: false };
        let reading = |blob: BlobId, stacks: usize, need: u8, policy: ReadPolicy| {
            let need = usize::from(need);
            let streams = if policy == ReadPolicy::All { stacks } else { need };
            Self { need, streams, read: Some(blob), ..nothing }
        };
        match transfer {
            Transfer::Read { blob, stacks, need, policy } => {
                Self { sent: true, ..reading(*blob, stacks.len(), *need, *policy) }
            }
            Transfer::Rebuild { blob, stacks, need, policy, target, .. } => {
                Self { target: Some(*target), ..reading(*blob, stacks.len(), *need, *policy) }
            }
            Transfer::Write { drives, .. } => {
                Self { need: drives.len(), streams: drives.len(), writes: true, ..nothing }
            }
            Transfer::Verify { drives } => Self { need: drives.len(), streams: drives.len(), ..nothing },
            Transfer::Delete { stacks, .. } => Self { streams: stacks.len(), moves: false, writes: true, ..nothing },
        }
    }
}

/// The drives of a transfer, in its order.
fn drives_of(transfer: &Transfer) -> impl ExactSizeIterator<Item = DriveId> {
    let (stacks, drives): (&[(u8, DriveId)], &[DriveId]) = match transfer {
        Transfer::Read { stacks, .. } | Transfer::Delete { stacks, .. } => (stacks, &[]),
        Transfer::Rebuild { stacks, target, .. } => (stacks, std::slice::from_ref(target)),
        Transfer::Write { drives, .. } | Transfer::Verify { drives } => (&[], drives),
    };
    let drive = move |at: usize| stacks.get(at).map_or_else(|| drives[at - stacks.len()], |(_, drive)| *drive);
    (0..stacks.len() + drives.len()).map(drive)
}

impl<M: Mind> World<M> {
    pub(super) fn transfer(&mut self, op: OpId, attempt: Attempt, transfer: &Transfer) {
        // The engine's own operations: they were never asked for, but they end like any other.
        match transfer {
            Transfer::Delete { blob, .. } => {
                self.deleting.insert(op, *blob);
                self.opened(op, Lane::Background, None, 0, 0);
            }
            Transfer::Rebuild { blob, group, drives, .. } if !self.open.contains_key(&op) => {
                let Some(found) = self.blobs.get(blob) else {
                    // It was reclaimed while its rebuild was queued: no drive is asked.
                    self.opened(op, Lane::Rebuild, Some(*group), 0, 0);
                    self.plan(self.now, Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() }, None);
                    return;
                };
                assert!(found.drives == *drives, "{blob} is rebuilt where it lies");
                let bytes = found.bytes;
                self.opened(op, Lane::Rebuild, Some(*group), bytes, 0);
            }
            _ => {}
        }
        let mut asked = Asked::of(transfer);
        asked.sent &= self.open.get(&op).is_some_and(|open| open.lane == Lane::Client);
        let payload_bytes = self.open.get(&op).map_or(0, |open| open.bytes);
        let picked = self.rack.picked_at(op);
        if let Some(open) = self.open.get_mut(&op) {
            open.picked = open.picked.or(picked);
        }
        let (drives, waited) = self.parts(&asked, drives_of(transfer));
        let data = u64::from(self.rack.spec().code.data);
        let moving = Moving {
            op,
            attempt,
            need: asked.need,
            target: asked.target,
            stream_bytes: if asked.moves { payload_bytes.div_ceil(data) } else { 0 },
            sent_bytes: if asked.sent { payload_bytes } else { 0 },
            waited,
            drives,
        };
        self.begin_transfer(moving, if asked.sent { data } else { 0 });
    }

    /// Who takes part: drives that can, until there are enough, and the target; those that fail are found out at once,
    /// those that hang after a deadline, which is the same for all.
    fn parts(&mut self, asked: &Asked, drives: impl ExactSizeIterator<Item = DriveId>) -> (Vec<Part>, Duration) {
        let requests = self.rack.drive_deadlines().requests;
        let deadline_of = |is_target| if asked.writes || is_target { requests.write } else { requests.read };
        let (mut fine, mut waited) = (0, Duration::ZERO);
        let mut parts = Vec::with_capacity(drives.len());
        for drive in drives {
            let is_target = asked.target == Some(drive);
            let result = if fine == asked.streams && !is_target {
                DriveResult::Unused
            } else if self.unlucky(self.faults.transfer_permille)
                || self.physics[drive.index()].ready(self.now).is_err()
            {
                DriveResult::Failed
            } else if let Some(deadline) = self.hangs(drive, deadline_of(is_target)) {
                waited = waited.max(deadline);
                DriveResult::MissedDeadline
            } else if !is_target && asked.read.is_some_and(|blob| self.spoilt.contains(&(blob, drive))) {
                DriveResult::StackBad
            } else {
                fine += usize::from(!is_target);
                DriveResult::Fine
            };
            parts.push(Part { drive, result, losses: self.physics[drive.index()].losses() });
        }
        (parts, waited)
    }

    /// Counts its streams on their servers, or no longer.
    fn count_streams(&mut self, moving: &Moving, begins: bool) {
        for part in &moving.drives {
            let streams = &mut self.streams[self.links.server_of(part.drive)];
            *streams = if begins { *streams + 1 } else { *streams - 1 };
        }
    }

    fn begin_transfer(&mut self, moving: Moving, sent_streams: u64) {
        let streams = moving.streams();
        if !moving.is_done_by(moving.fine().map(|part| part.drive)) {
            self.agenda.plan(self.now + moving.waited, Happening::Over(moving));
            return;
        }
        let heads_there = self.now + moving.waited + self.rack.spec().profile.seek;
        if moving.stream_bytes == 0 || streams == 0 {
            self.agenda.plan(heads_there, Happening::Over(moving));
            return;
        }
        let demand = self.links.demand(moving.fine().map(|part| part.drive), sent_streams);
        self.agenda.plan(heads_there, Happening::Begin(Begin { moving, demand }));
    }

    pub(super) fn begin_flow(&mut self, begin: Begin) {
        let Begin { moving, demand } = begin;
        let (op, stream_bytes) = (moving.op, moving.stream_bytes);
        self.count_streams(&moving, true);
        let rate = self.flows.begin(self.now, moving, demand, stream_bytes);
        let fragment_bytes = u64::from(self.rack.spec().code.fragment_bytes).min(stream_bytes);
        if let Some(open) = self.open.get_mut(&op) {
            let first_byte = self.now + transfer_time(fragment_bytes, rate);
            open.first_byte.get_or_insert(first_byte);
        }
    }

    pub(super) fn flow_ended(&mut self) {
        if let Some(moving) = self.flows.take_ended(self.now) {
            self.count_streams(&moving, false);
            self.counted.drive_bytes += moving.streams() as u64 * moving.stream_bytes;
            self.counted.sent_bytes += moving.sent_bytes;
            self.transfer_over(&moving);
        }
    }

    pub(super) fn transfer_over(&mut self, moving: &Moving) {
        let fared = |part: &Part| {
            let lost = self.physics[part.drive.index()].losses() != part.losses;
            let result = if lost && part.result == DriveResult::Fine { DriveResult::Failed } else { part.result };
            DriveOutcome { drive: part.drive, result }
        };
        let outcomes: Vec<DriveOutcome> = moving.drives.iter().map(fared).collect();
        let fine = outcomes.iter().filter(|outcome| outcome.result == DriveResult::Fine);
        let done = moving.is_done_by(fine.map(|outcome| outcome.drive));
        let (op, attempt) = (moving.op, moving.attempt);
        let versions = self.unreadable_of(op);
        if !versions.is_empty() {
            return self.tell_perhaps_twice(Event::SourceUnreadable { op, attempt, versions, outcomes });
        }
        self.tell_perhaps_twice(Event::TransferEnded { op, attempt, done, outcomes });
    }
}
