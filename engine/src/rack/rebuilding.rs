//! Lost stacks are regenerated one by one on other drives of their group ([`crate::rebuild`]).
//!
//! A stack that a scrub has found damaged ([`crate::scrub`]) takes the same way, to a place beside itself.
//!
//! Invariants: a stack is never read from a drive that failed, nor from the lost index, nor written over; nothing is
//! freed on the strength of a write alone.

use super::Rack;
use super::service::without;
use crate::action::{Action, Outcome, Rejection, Transfer};
use crate::event::{BlobOnDrive, DriveOutcome, DriveResult, Request, Work};
use crate::ops::{Op, StackMove, TRIES_MAX};
use crate::policy::PriorityClass;
use crate::rebuild::Need;
use crate::step::Step;
use alloc::vec;
use alloc::vec::Vec;
use model::{Attempt, DriveId, GroupId, OpId, Time};

impl Rack {
    pub(super) fn drive_failed(&mut self, drive: DriveId, now: Time) {
        if !self.drives.knows(drive) || !self.drives.fail(drive) {
            return;
        }
        assert!(!self.drives.is_ready(drive), "{drive} is not used any more");
        self.placement.retire(drive);
        let Some(group) = self.setup.own_group_of(drive) else { return };
        self.reclaim.unstick(group);
        if let Some(lost_bytes) = self.rebuilder.failed(drive, now) {
            self.placement.lose_more(drive, lost_bytes);
        }
    }

    /// Whether another drive may take the place of `drive`: it failed, stands still as far as anybody knows, and no
    /// operation that began before it failed still counts on it.
    pub fn may_be_replaced(&self, drive: DriveId) -> bool {
        self.drives.may_be_replaced(drive) && !self.ops.count_on(drive)
    }

    pub(super) fn drive_replaced(&mut self, drive: DriveId, lost_bytes: u64, now: Time) {
        if !self.drives.knows(drive) {
            return;
        }
        if self.booted {
            if !self.may_be_replaced(drive) {
                return;
            }
            assert!(self.placement.reserved_bytes(drive) == 0, "nothing is reserved on a drive that is replaced");
            self.placement.replace(drive);
            assert!(self.placement.used_bytes(drive) == 0, "the new {drive} is empty");
            self.drives.replace(drive);
            self.initialisation.replace(drive);
            self.follow_drives();
        }
        if self.setup.own_group_of(drive).is_some() {
            self.rebuilder.replaced(drive, lost_bytes, now);
        }
    }

    /// Every failed drive's rebuild goes on as far as it can. True if something was queued.
    pub(super) fn queue_rebuilds(&mut self, step: &mut Step) -> bool {
        assert!(!self.closing, "nothing is rebuilt any more once the rack closes");
        if self.rebuilder.is_idle() {
            return false;
        }
        let mut queued = false;
        for drive in self.rebuilder.drives() {
            let used_bytes = self.placement.used_bytes(drive);
            let mut need = self.rebuilder.need(drive, used_bytes, step.now);
            if need == Need::Queue {
                queued |= self.queue_page(drive, step.now);
                need = self.rebuilder.need_behind_page(drive, used_bytes, step.now);
            }
            if let Need::Page { after } = need {
                let attempt = self.ops.own_attempt();
                self.rebuilder.list(drive, after, attempt).into_iter().for_each(|action| step.ask(action));
            }
        }
        queued
    }

    /// Queues the blobs of a page, as far as the window and the queue have room. True if any was queued.
    fn queue_page(&mut self, drive: DriveId, now: Time) -> bool {
        let mut queued = false;
        let Some(group) = self.setup.layout.group_of(drive) else { return false };
        while let Some(blob) = self.rebuilder.next_blob(drive) {
            let lost = blob.drives.iter().position(|other| *other == drive);
            let Some(lost) = lost.filter(|_| blob.living) else { continue }; // rebuilt already, or dead
            // Nobody wakes a group for what would be in vain.
            if let Err(reason) = self.can_rebuild(group, &blob, lost as u8) {
                self.rebuilder.skipped(drive, reason);
                continue;
            }
            let op = self.rebuild_of(&blob, group, lost as u8);
            if self.queue(op, now).is_some() {
                self.rebuilder.put_back(drive, blob);
                break;
            }
            self.rebuilder.queued(drive);
            queued = true;
        }
        queued
    }

    fn rebuild_of(&mut self, blob: &BlobOnDrive, group: GroupId, lost: u8) -> Op {
        let BlobOnDrive { blob, drives, stack_bytes, bytes, .. } = blob.clone();
        let work = Work::Rebuild { blob, group, drives, lost, stack_bytes, bytes, in_place: false };
        self.rebuild_op(work, group)
    }

    fn rebuild_op(&mut self, work: Work, group: GroupId) -> Op {
        let op = self.ops.own_number();
        let request = Request { op, priority: PriorityClass::Rebuild, overtake_limit: None, work };
        assert!(self.setup.owns(group), "{group} is of a class of ours");
        Op::new(request, self.setup.class_of(group), group)
    }

    /// Queues the repair of a stack of `blob` that is damaged, in its place. Where the queue is full, the next scrub
    /// finds it again.
    pub(super) fn queue_repair(&mut self, blob: &BlobOnDrive, group: GroupId, index: u8, now: Time) {
        let BlobOnDrive { blob, drives, stack_bytes, bytes, .. } = blob.clone();
        let work = Work::Rebuild { blob, group, drives, lost: index, stack_bytes, bytes, in_place: true };
        let op = self.rebuild_op(work, group);
        self.queue(op, now);
    }

    fn can_rebuild(&self, group: GroupId, blob: &BlobOnDrive, lost: u8) -> Result<(), Rejection> {
        let members = self.setup.members(group);
        let fits =
            blob.drives.len() == self.setup.spec.code.stacks() && blob.drives.iter().all(|d| members.contains(d));
        if !fits {
            return Err(Rejection::Malformed);
        }
        let others = without(&blob.drives, lost);
        self.drives.enough_left(&others, self.setup.data_stacks())?;
        let from = blob.drives[usize::from(lost)];
        let target = self.placement.choose_another(group, &others, &[from], blob.stack_bytes);
        target.map(|_| ()).ok_or(Rejection::NoRoom)
    }

    /// Puts a rebuild into service, for the first time or again. True if it ended at once.
    pub(super) fn start_rebuild(&mut self, op: OpId, step: &mut Step) -> bool {
        let Some(state) = self.ops.get_mut(op) else { return true };
        let Work::Rebuild { blob, group, drives, lost, stack_bytes, in_place, .. } = state.request.work.clone() else {
            return true;
        };
        let need = self.setup.spec.code.data;
        let (from, others) = (drives[usize::from(lost)], without(&drives, lost));
        let mut stacks = self.drives.ready_stacks(&drives);
        stacks.retain(|(index, _)| *index != lost);
        if stacks.len() < usize::from(need) {
            let reason = self.why_too_few(op);
            self.finish(op, Outcome::Failed(reason), step);
            return true;
        }
        let target = if in_place {
            let may = self.drives.is_ready(from) && !state.shunned().contains(&from);
            (may && self.placement.reserve_beside(from, stack_bytes)).then_some(from)
        } else {
            let unready = self.setup.members(group).iter().filter(|drive| !self.drives.is_ready(**drive));
            let unfit: Vec<DriveId> = unready.chain(state.shunned()).chain([&from]).copied().collect();
            let target = self.placement.choose_another(group, &others, &unfit, stack_bytes);
            target.inspect(|target| self.placement.reserve_another(&others, *target, stack_bytes))
        };
        let Some(target) = target else {
            self.finish(op, Outcome::Failed(Rejection::NoRoom), step);
            return true;
        };
        assert!(stacks.iter().all(|(index, _)| *index != lost), "the lost stack is not read");
        assert!(
            stacks.iter().all(|(_, drive)| !self.drives.has_failed(*drive)),
            "no stack is read from a failed drive"
        );
        assert!(self.drives.is_ready(target), "{target} is ready to be written to");
        assert!(!others.contains(&target), "{target} would have two stacks of {blob}");
        assert!(in_place == (target == from), "what is lost goes elsewhere, what is damaged to where it lies");
        assert!(!self.drives.has_failed(target), "{target} failed, and is not written to");
        state.aim_at(target);
        let policy = self.setup.policy.read_policy;
        let transfer = Transfer::Rebuild { blob, group, drives, lost, stacks, need, policy, target };
        self.begin_transfer(op, transfer, step);
        false
    }

    /// A rebuilt stack is written, or was read back: on to reading it back, or to the catalog.
    pub(super) fn rebuild_written(&mut self, op: OpId, step: &mut Step) {
        let read_back = self.setup.policy.rebuild_read_back;
        let Some(state) = self.ops.get_mut(op) else { return };
        let Some(to) = state.reserved.first().copied() else { return };
        let Work::Rebuild { blob, ref drives, lost: index, in_place, .. } = state.request.work else { return };
        let from = drives[usize::from(index)];
        assert!(in_place == (from == to), "a stack is not written in the place of the lost one");
        // Nothing takes the place of a stack that may be better than it.
        if (read_back || in_place) && state.begin_verify() {
            self.begin_transfer(op, Transfer::Verify { drives: vec![to] }, step);
            return;
        }
        state.begin_move();
        let attempt = self.put_into_service(op, step);
        step.ask(Action::MoveStack { op, attempt, blob, index, from, to });
    }

    pub(super) fn rebuild_failed(&mut self, op: OpId, outcomes: &[DriveOutcome], step: &mut Step) {
        let Some(target) = self.ops.get(op).and_then(|op| op.reserved.first().copied()) else { return };
        self.release_space(op);
        let Some(state) = self.ops.get_mut(op) else { return };
        let Work::Rebuild { ref drives, lost, .. } = state.request.work else { return };
        let others = without(drives, lost);
        let tries = state.count_try();
        let fine = |result| matches!(result, DriveResult::Fine | DriveResult::Unused);
        let target_fine = outcomes.iter().all(|outcome| outcome.drive != target || fine(outcome.result));
        if !target_fine {
            state.shun(target);
        }
        let sources = outcomes.iter().filter(|outcome| outcome.drive != target);
        let some_failed = sources.clone().any(|outcome| outcome.result.may_do_better());
        let left = others.len() - self.drives.failed_count(&others);
        if target_fine && !some_failed && sources.count() == left {
            self.finish(op, Outcome::Failed(Rejection::DataLost), step);
        } else if self.closing || tries >= TRIES_MAX || (target_fine && !some_failed) {
            self.finish(op, Outcome::Failed(Rejection::TooManyDrivesAway), step);
        } else {
            self.start_rebuild(op, step);
        }
    }

    pub(super) fn stack_moved(&mut self, op: OpId, attempt: Attempt, done: bool, step: &mut Step) {
        let Some(state) = self.ops.get_mut(op).filter(|state| state.awaits_move(attempt)) else { return };
        let Work::Rebuild { blob, ref drives, lost: index, in_place, .. } = state.request.work else { return };
        let from = drives[usize::from(index)];
        let class = &mut self.classes[state.class.index()];
        let Some(service) = class.serves(op) else { return };
        class.leave_service(service, step.now);
        if !done {
            self.release_space(op);
            self.finish(op, Outcome::Failed(Rejection::WriteFailed), step);
            return;
        }
        let (target, stack_bytes) = state.take_reserved();
        assert!(target.len() == 1, "a rebuild has one target");
        self.placement.settle(&target, stack_bytes, if in_place { 0 } else { stack_bytes });
        // Of one that was replaced, what was lost is not among the used bytes.
        if !in_place && self.drives.has_failed(from) {
            self.placement.freed(from, stack_bytes);
        }
        self.stats.rebuilt_bytes += stack_bytes;
        self.finish(op, Outcome::Rebuilt, step);
        if in_place {
            return;
        }
        let moved = StackMove { blob, index, from, to: target[0] };
        self.ops.follow_move(&moved);
        self.rebuilder.follow_move(&moved);
        self.reclaim.follow_move(&moved);
        self.scrubber.follow_move(&moved);
    }
}
