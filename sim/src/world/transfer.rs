//! Bytes in motion: each transfer is its seeks and then a flow of as many streams as it has drives.

use super::moving::{DriveStream, Moving, TransferPlan};
use super::state::{OpenOp, Scheduled, World};
use crate::flow::Demand;
use engine::{Controller, DriveResult, Event, PriorityClass, Transfer};
use model::{Attempt, OpId, transfer_time};
use std::time::Duration;

impl<M: Controller> World<M> {
    pub(super) fn transfer(&mut self, op: OpId, attempt: Attempt, transfer: &Transfer) {
        if !self.begin_own_op(op, transfer) {
            // The blob was reclaimed while its rebuild was queued: no drive is asked.
            let ended = Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() };
            return self.plan(self.now, ended, None);
        }
        let mut plan = TransferPlan::of(transfer);
        let (mut for_client, mut payload_bytes) = (false, 0);
        if let Some(open) = self.open.get_mut(&op) {
            open.picked = open.picked.or_else(|| self.rack.picked_at(op));
            (for_client, payload_bytes) = (open.priority == PriorityClass::Client, open.bytes);
        }
        plan.sent &= for_client;
        let (streams, waited) = self.streams_of(transfer, &plan);
        let data = u64::from(self.rack.spec().code.data);
        let moving = Moving {
            op,
            attempt,
            need: plan.need,
            target: plan.target,
            stream_bytes: if plan.moves { payload_bytes.div_ceil(data) } else { 0 },
            sent_bytes: if plan.sent { payload_bytes } else { 0 },
            waited,
            stream_bytes_per_s: self.slowest(&streams, plan.read.map_or(op.0, |blob| blob.number)),
            seeks: if self.one_seek { 1 } else { plan.seeks },
            streams,
        };
        self.begin_transfer(moving, if plan.sent { data } else { 0 });
    }

    /// Opens an operation that the engine began by itself: nobody asked for it, but it ends like any other. False if
    /// the blob that it is about is gone.
    fn begin_own_op(&mut self, op: OpId, transfer: &Transfer) -> bool {
        match transfer {
            Transfer::Delete { blob, .. } => {
                self.blobs.begin_delete(op, *blob);
                self.open(op, OpenOp::new(PriorityClass::Background, None, self.now));
            }
            Transfer::Rebuild { blob, group, drives, .. } if !self.open.contains_key(&op) => {
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

    /// The drives that take part: those that can, until there are enough, and the target. Failures are found out at
    /// once; drives that hang, after a deadline that is the same for all.
    fn streams_of(&mut self, transfer: &Transfer, plan: &TransferPlan) -> (Vec<DriveStream>, Duration) {
        let requests = self.deadlines.requests;
        let (mut fine, mut waited) = (0, Duration::ZERO);
        let mut streams = Vec::with_capacity(transfer.drives().count());
        for drive in transfer.drives() {
            let is_target = plan.target == Some(drive);
            let deadline = if plan.writes || is_target { requests.write } else { requests.read };
            let result = if fine == plan.streams && !is_target {
                DriveResult::Unused
            } else if self.drives.fails_transfer(self.now, drive) {
                DriveResult::Failed
            } else if let Some(deadline) = self.drives.hangs(self.now, drive, deadline) {
                waited = waited.max(deadline);
                DriveResult::MissedDeadline
            } else if !is_target && plan.read.is_some_and(|blob| self.blobs.is_corrupt(blob, drive)) {
                DriveResult::StackBad
            } else {
                fine += usize::from(!is_target);
                DriveResult::Fine
            };
            streams.push(DriveStream { drive, result, losses: self.drives.losses(drive) });
        }
        assert!(fine <= plan.streams, "{fine} drives take part, where {} are to", plan.streams);
        (streams, waited)
    }

    /// The rate of the slowest of the drives that take part, for the file numbered `file`.
    fn slowest(&self, streams: &[DriveStream], file: u64) -> u64 {
        let fine = streams.iter().filter(|stream| stream.result == DriveResult::Fine);
        fine.map(|stream| self.drives.bytes_per_s(stream.drive, file)).min().unwrap_or(1)
    }

    /// Counts the streams of a transfer on their servers, as it begins or ends.
    fn count_streams(&mut self, moving: &Moving, begins: bool) {
        for stream in &moving.streams {
            if begins {
                self.servers.stream_begins(stream.drive);
            } else {
                self.servers.stream_ends(stream.drive);
            }
        }
    }

    fn begin_transfer(&mut self, moving: Moving, sent_streams: u64) {
        let drives_known = self.now + moving.waited;
        if !moving.is_done_by(moving.fine()) {
            return self.agenda.plan(drives_known, Scheduled::Over(moving));
        }
        let heads_there = drives_known + self.rack.spec().profile.seek * moving.seeks;
        if moving.stream_bytes == 0 || moving.fine().next().is_none() {
            return self.agenda.plan(heads_there, Scheduled::Over(moving));
        }
        let demand = self.links.demand(moving.fine(), moving.stream_bytes_per_s, sent_streams);
        self.agenda.plan(heads_there, Scheduled::Begin(moving, demand));
    }

    pub(super) fn begin_flow(&mut self, moving: Moving, demand: Demand) {
        let (op, stream_bytes, stream_bytes_per_s) = (moving.op, moving.stream_bytes, moving.stream_bytes_per_s);
        self.count_streams(&moving, true);
        let rate = self.flows.begin(self.now, moving, demand, stream_bytes);
        assert!(rate <= stream_bytes_per_s, "{op} is faster than its drives");
        let fragment_bytes = u64::from(self.rack.spec().code.fragment_bytes).min(stream_bytes);
        if let Some(open) = self.open.get_mut(&op) {
            let first_byte = self.now + transfer_time(fragment_bytes, rate);
            open.first_byte.get_or_insert(first_byte);
        }
    }

    pub(super) fn flow_ended(&mut self) {
        if let Some(moving) = self.flows.take_ended(self.now) {
            self.count_streams(&moving, false);
            let read_bytes = moving.fine().count() as u64 * moving.stream_bytes;
            assert!(moving.sent_bytes <= read_bytes, "{} sends more than its drives have read", moving.op);
            self.counted.drive_bytes += read_bytes;
            self.counted.sent_bytes += moving.sent_bytes;
            self.transfer_over(&moving);
        }
    }

    pub(super) fn transfer_over(&mut self, moving: &Moving) {
        let outcomes = moving.outcomes(|drive| self.drives.losses(drive));
        let fine = outcomes.iter().filter(|outcome| outcome.result == DriveResult::Fine);
        let done = moving.is_done_by(fine.map(|outcome| outcome.drive));
        let (op, attempt) = (moving.op, moving.attempt);
        let versions = self.staging.unreadable_of(op);
        self.report_perhaps_twice(if versions.is_empty() {
            Event::TransferEnded { op, attempt, done, outcomes }
        } else {
            Event::SourceUnreadable { op, attempt, versions, outcomes }
        });
    }
}
