//! Bytes in motion: each transfer is its seeks, followed by a flow with one stream per drive.

use super::moving::{Moving, TransferPlan};
use super::state::{OpenOp, Scheduled, World};
use engine::{Controller, DriveOutcome, DriveResult, Event, PriorityClass, Transfer};
use model::{Attempt, OpId, Time, transfer_time};
use std::time::Duration;

impl<M: Controller> World<M> {
    pub(super) fn transfer(&mut self, op: OpId, attempt: Attempt, transfer: &Transfer) {
        if !self.begin_own_op(op, transfer) {
            // The blob was reclaimed while its rebuild was queued, so no drive is asked.
            let ended = Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() };
            return self.plan(self.now, ended, None);
        }
        let mut plan = TransferPlan::of(transfer);
        let (mut for_client, mut payload_bytes) = (false, 0);
        if let Some(open) = self.open.get_mut(op) {
            if open.picked == Time::MAX {
                open.picked = self.rack.picked_at(op).unwrap_or(Time::MAX);
            }
            (for_client, payload_bytes) = (open.priority == PriorityClass::Client, open.bytes);
        }
        plan.sent &= for_client;
        let data = u64::from(self.rack.spec().code.data);
        let mut moving = Moving {
            op,
            attempt,
            need: plan.need,
            target: plan.target,
            outcomes: Vec::new(),
            streams: 0,
            done: false,
            losses: self.drives.losses(),
            stream_bytes: if plan.moves { payload_bytes.div_ceil(data) } else { 0 },
            stream_bytes_per_s: u64::MAX,
            sent_bytes: if plan.sent { payload_bytes } else { 0 },
            sent_streams: if plan.sent { data } else { 0 },
            waited: Duration::ZERO,
            seeks: if self.one_seek { 1 } else { plan.seeks },
        };
        self.ask_drives(transfer, &plan, &mut moving);
        self.begin_transfer(moving);
    }

    /// Opens an operation that the engine began by itself: no client requested it, but it ends like any other. False if
    /// its blob is gone.
    fn begin_own_op(&mut self, op: OpId, transfer: &Transfer) -> bool {
        match transfer {
            Transfer::Delete { blob, .. } => {
                self.blobs.begin_delete(op, *blob);
                self.open(op, OpenOp::new(PriorityClass::Background, None, self.now));
            }
            Transfer::Scrub { blob, group, from, to, .. } => {
                let there = self.blobs.get(*blob).is_some();
                let bytes = if there { to - from } else { 0 };
                self.open(op, OpenOp { bytes, ..OpenOp::new(PriorityClass::Background, Some(*group), self.now) });
                return there;
            }
            Transfer::Rebuild { blob, group, drives, .. } if !self.open.contains(op) => {
                let found = self.blobs.get(*blob);
                assert!(found.is_none_or(|found| found.drives == *drives), "{blob} is rebuilt where it lies");
                let (there, bytes) = (found.is_some(), found.map_or(0, |found| found.bytes));
                self.open(op, OpenOp { bytes, ..OpenOp::new(PriorityClass::Rebuild, Some(*group), self.now) });
                return there;
            }
            _ => {}
        }
        true
    }

    /// Determines the drives that take part: those that can, until there are enough, and the target. Failures are
    /// noticed at once; hanging drives are noticed after a deadline, which is the same for all. The slowest drive sets
    /// the pace.
    fn ask_drives(&mut self, transfer: &Transfer, plan: &TransferPlan, moving: &mut Moving) {
        let requests = self.deadlines.requests;
        let file = plan.read.map_or(moving.op.0, |blob| blob.number);
        let mut fine = 0;
        moving.outcomes.extend(transfer.drives().map(|drive| DriveOutcome { drive, result: DriveResult::Unused }));
        for DriveOutcome { drive, result } in &mut moving.outcomes {
            let is_target = plan.target == Some(*drive);
            if fine == plan.streams && !is_target {
                continue;
            }
            let deadline = if plan.writes || is_target { requests.write } else { requests.read };
            *result = if self.drives.fails_transfer(*drive) {
                DriveResult::Failed
            } else if let Some(deadline) = self.drives.hangs(self.now, *drive, deadline) {
                moving.waited = moving.waited.max(deadline);
                DriveResult::MissedDeadline
            } else if !is_target && plan.read.is_some_and(|blob| self.blobs.is_corrupt(blob, *drive)) {
                DriveResult::StackBad
            } else {
                fine += usize::from(!is_target);
                moving.streams += 1;
                moving.stream_bytes_per_s = moving.stream_bytes_per_s.min(self.drives.bytes_per_s(*drive, file));
                DriveResult::Fine
            };
        }
        assert!(fine <= plan.streams, "{fine} drives take part, where {} are to", plan.streams);
        moving.done = moving.is_done();
    }

    fn begin_transfer(&mut self, moving: Moving) {
        let drives_known = self.now + moving.waited;
        let heads_there = drives_known + self.rack.spec().profile.seek * moving.seeks;
        let (done, moves) = (moving.done, moving.stream_bytes > 0 && moving.streams > 0);
        let transfer = self.transfers.put(moving);
        match (done, moves) {
            (false, _) => self.agenda.plan(drives_known, Scheduled::Over(transfer)),
            (true, false) => self.agenda.plan(heads_there, Scheduled::Over(transfer)),
            (true, true) => self.agenda.plan(heads_there, Scheduled::Begin(transfer)),
        }
    }

    pub(super) fn begin_flow(&mut self, transfer: u32) {
        let moving = self.transfers.get(transfer);
        self.servers.streams_begin(moving.drives());
        let demand = self.links.demand(moving.fine(), moving.stream_bytes_per_s, moving.sent_streams);
        let rate = self.flows.begin(self.now, transfer, demand, moving.stream_bytes);
        assert!(rate <= moving.stream_bytes_per_s, "{} is faster than its drives", moving.op);
        let fragment_bytes = u64::from(self.rack.spec().code.fragment_bytes).min(moving.stream_bytes);
        if let Some(open) = self.open.get_mut(moving.op)
            && open.first_byte == Time::MAX
        {
            open.first_byte = self.now + transfer_time(fragment_bytes, rate);
        }
    }

    pub(super) fn flow_ended(&mut self) {
        let Some(transfer) = self.flows.take_ended(self.now) else { return };
        let moving = self.transfers.get(transfer);
        self.servers.streams_end(moving.drives());
        let read_bytes = moving.streams * moving.stream_bytes;
        assert!(moving.sent_bytes <= read_bytes, "{} sends more than its drives have read", moving.op);
        self.counted.drive_bytes += read_bytes;
        self.counted.sent_bytes += moving.sent_bytes;
        self.transfer_over(transfer);
    }

    pub(super) fn transfer_over(&mut self, transfer: u32) {
        let mut moving = self.transfers.take(transfer);
        if self.drives.losses() != moving.losses {
            for outcome in &mut moving.outcomes {
                if outcome.result == DriveResult::Fine && self.drives.lost_since(outcome.drive, moving.losses) {
                    outcome.result = DriveResult::Failed;
                }
            }
            moving.done = moving.is_done();
        }
        let Moving { op, attempt, done, outcomes, .. } = moving;
        let versions = self.staging.unreadable_of(op);
        self.report_perhaps_twice(if versions.is_empty() {
            Event::TransferEnded { op, attempt, done, outcomes }
        } else {
            Event::SourceUnreadable { op, attempt, versions, outcomes }
        });
    }
}
