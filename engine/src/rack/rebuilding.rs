//! Regenerates lost stacks one by one on other drives of their group ([`crate::rebuild`]).
//!
//! A stack that a scrub found damaged ([`crate::scrub`]) is handled in the same way, and is written beside itself. A
//! stack on a good drive that is retired is copied, and a stack on a drive that came back is looked for there; only if
//! it cannot be read there is it regenerated from others.
//!
//! Invariants: a stack is never read from a failed drive; a lost stack is read only when it is looked for; no stack is
//! overwritten unless it is known to be bad; nothing is freed because of a write alone.

use super::Rack;
use super::service::without;
use crate::action::{Action, Outcome, Rejection, Transfer};
use crate::event::{BlobOnDrive, DriveOutcome, DriveResult, Request, Work};
use crate::ops::{Op, StackMove, TRIES_MAX};
use crate::policy::PriorityClass;
use crate::rebuild::{Home, Need};
use crate::step::Step;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, DriveId, GroupId, OpId, Time};

/// The delay before a retired drive on which a write still counts is checked again.
const LOOKED_AT_AGAIN: Duration = Duration::from_mins(1);
/// The delay before a drive that was given up is tried once more: it has just been tried.
const RECOGNISED_FROM: Duration = Duration::from_mins(10);
/// The delay before the rack asks again to give up an emptied drive, if the request had no effect.
const ASKED_AGAIN: Duration = Duration::from_hours(1);

impl Rack {
    /// `drive` failed permanently: the operator reports it, or it was given up at the rack's request. `pulled` means
    /// that the drive was pulled or cut off, or will be.
    pub(super) fn drive_failed(&mut self, drive: DriveId, pulled: bool, step: &mut Step) {
        if !self.drives.knows(drive) {
            return;
        }
        if pulled {
            self.gave_up.remove(&drive);
        } else if !self.drives.has_failed(drive) {
            self.gave_up.insert(drive);
        }
        let is_new = self.drives.fail(drive, pulled);
        let is_tried = self.setup.policy.tries_given_up && self.gave_up.contains(&drive);
        if is_tried && !self.retiring.contains(&drive) {
            self.drives.may_return(drive, step.now + RECOGNISED_FROM);
        }
        if !is_new {
            return;
        }
        assert!(!self.drives.is_ready(drive), "{drive} is not used any more");
        self.absences.settled(drive);
        self.health.settled(drive);
        self.placement.retire(drive);
        let Some(group) = self.setup.own_group_of(drive) else { return };
        self.reclaim.unstick(group);
        let home = self.home_of(group);
        if let Some(lost_bytes) = self.rebuilder.failed(drive, home, step.now) {
            self.placement.lose_more(drive, lost_bytes);
        }
        self.withdraw_rebuilds(group, drive, step);
    }

    /// `drive` is being retired, by the operator or because it is worn: it gets no new stacks, and its stacks move to
    /// other drives.
    pub(super) fn drive_retiring(&mut self, drive: DriveId, now: Time) {
        if !self.drives.knows(drive) || !self.retiring.insert(drive) || self.drives.has_failed(drive) {
            return;
        }
        self.health.settled(drive);
        self.placement.retire(drive);
        let home = self.setup.own_group_of(drive).map(|group| self.home_of(group));
        if let Some(lost_bytes) = home.and_then(|home| self.rebuilder.retires(drive, home, now)) {
            self.placement.lose_more(drive, lost_bytes);
        }
    }

    /// An earlier run of the rack gave up `drive`, and it has not been reported as pulled.
    pub(super) fn drive_may_return(&mut self, drive: DriveId, now: Time) {
        if self.drives.knows(drive) && !self.booted {
            self.gave_up.insert(drive);
            self.drives.was_not_pulled(drive);
            if self.setup.policy.tries_given_up {
                self.drives.may_return(drive, now);
            }
        }
    }

    /// Takes back drives that were given up but answered when they were tried.
    pub(super) fn take_back_recognised(&mut self, step: &mut Step) {
        for drive in core::mem::take(&mut self.recognised) {
            if self.may_be_replaced(drive) && self.gave_up.contains(&drive) && !self.closing {
                step.ask(Action::TakeBack { drive });
            }
        }
    }

    /// Requests that `drive` be recorded as permanently failed.
    pub(super) fn give_up(&mut self, drive: DriveId, retired: bool, step: &mut Step) {
        assert!(!self.drives.has_failed(drive), "{drive} is given up once");
        step.ask(Action::GiveUp { drive, retired });
    }

    /// True if the rack itself gave `drive` up, and it has not been reported as pulled since.
    pub fn gave_up(&self, drive: DriveId) -> bool {
        self.gave_up.contains(&drive)
    }

    /// True if `drive` is being retired, or has been.
    pub fn is_retiring(&self, drive: DriveId) -> bool {
        self.retiring.contains(&drive)
    }

    /// True if `drive` has been retired and may be pulled: a listing has shown that no blob needs it. A drive that was
    /// given up before it was empty has failed like any other.
    pub fn is_retired(&self, drive: DriveId) -> bool {
        let is_empty = || self.rebuilder.is_over(drive, self.placement.used_bytes(drive));
        self.is_retiring(drive) && self.drives.has_failed(drive) && is_empty()
    }

    fn home_of(&self, group: GroupId) -> Home {
        Home { class: self.setup.class_of(group), group, parity: self.setup.spec.code.parity }
    }

    /// Withdraws the queued rebuilds of `group`: others have become more urgent, since `failed` failed. Rebuilds in
    /// service continue.
    fn withdraw_rebuilds(&mut self, group: GroupId, failed: DriveId, step: &mut Step) {
        for op in self.ops.rebuilds_of(group) {
            let class = self.setup.class_of(group);
            if self.classes[class.index()].remove(op) {
                self.finish(op, Outcome::Cancelled, step);
            } else if let Some(Work::Rebuild { blob, drives, lost, .. }) = self.ops.get(op).map(|op| &op.request.work)
                && drives.contains(&failed)
            {
                self.rebuilder.lacks_more(*blob, drives[usize::from(*lost)], failed);
            }
        }
    }

    /// True if another drive may take the place of `drive`: it failed, has stopped as far as is known, and no operation
    /// that started before it failed still counts on it.
    pub fn may_be_replaced(&self, drive: DriveId) -> bool {
        self.drives.may_be_replaced(drive) && !self.ops.count_on(drive)
    }

    /// Another drive is in the place of `drive`, or the drive itself is `back`.
    pub(super) fn drive_replaced(&mut self, drive: DriveId, lost_bytes: u64, back: bool, now: Time) {
        if !self.drives.knows(drive) {
            return;
        }
        if !self.booted && self.retiring.contains(&drive) {
            return self.placement.lose_more(drive, lost_bytes);
        }
        if self.booted {
            if !self.may_be_replaced(drive) {
                return;
            }
            assert!(self.placement.reserved_bytes(drive) == 0, "nothing is reserved on a drive that is replaced");
            self.placement.replace(drive);
            assert!(self.placement.used_bytes(drive) == 0, "the new {drive} is empty");
            self.drives.replace(drive);
            self.retiring.remove(&drive);
            self.gave_up.remove(&drive);
            if !back {
                self.health.replaced(drive);
            }
            self.initialisation.replace(drive);
            self.migrator.hasten(now);
            self.follow_drives();
        }
        let Some(home) = self.setup.own_group_of(drive).map(|group| self.home_of(group)) else { return };
        if back {
            self.rebuilder.returned(drive, home, lost_bytes, now);
            if self.booted {
                self.initialisation.want_again(home.group);
            }
        } else {
            self.rebuilder.replaced(drive, home, lost_bytes, now);
        }
    }

    /// Advances the rebuild of every failed drive as far as possible. True if something was queued, or a pass has
    /// ended, in which case its group need not spin for it any more.
    pub(super) fn queue_rebuilds(&mut self, step: &mut Step) -> bool {
        assert!(!self.closing, "nothing is rebuilt any more once the rack closes");
        if self.rebuilder.is_idle() {
            return false;
        }
        let mut changed = false;
        loop {
            // A rebuild that waits for another drive may continue when that drive has finished its level. Each round
            // ends a level or a pass, so the loop terminates.
            let mut moved = false;
            for drive in self.rebuilder.drives() {
                let (now, placement) = (step.now, &self.placement);
                let used_bytes = placement.used_bytes(drive);
                let mut need = self.rebuilder.need(drive, |drive| placement.used_bytes(drive), now);
                if need == Need::Queue {
                    changed |= self.queue_page(drive, now);
                    need = self.rebuilder.need_behind_page(drive, used_bytes, now);
                }
                moved |= matches!(need, Need::Page { .. } | Need::Ended);
                changed |= need == Need::Ended;
                if need == Need::Ended
                    && let Some(group) = self.setup.own_group_of(drive)
                {
                    self.reclaim_for_rebuilds(group, step);
                }
                if need == Need::Ended && self.rebuilder.has_emptied(drive, used_bytes) {
                    self.give_up_emptied(drive, step);
                }
                if let Need::Page { after } = need {
                    let attempt = self.ops.own_attempt();
                    self.rebuilder.list(drive, after, attempt).into_iter().for_each(|action| step.ask(action));
                }
            }
            if !moved {
                return changed;
            }
        }
    }

    /// Gives up `drive`, which is being retired and is empty, unless a write that started before still counts on it.
    /// The drive is checked again until it is known to be given up.
    fn give_up_emptied(&mut self, drive: DriveId, step: &mut Step) {
        if self.ops.count_on(drive) {
            return self.rebuilder.written(drive, step.now + LOOKED_AT_AGAIN);
        }
        self.give_up(drive, true, step);
        self.rebuilder.written(drive, step.now + ASKED_AGAIN);
    }

    /// Queues the blobs of a page that may be rebuilt now, as far as the window and the queue have room. True if any
    /// was queued.
    fn queue_page(&mut self, drive: DriveId, now: Time) -> bool {
        let mut queued = false;
        let Some(group) = self.setup.layout.group_of(drive) else { return false };
        while let Some(blob) = self.rebuilder.next_blob(drive) {
            let lost = blob.drives.iter().position(|other| *other == drive);
            let Some(lost) = lost.filter(|_| blob.living) else { continue }; // already rebuilt, or dead
            let missing = self.missing_of(&blob, drive);
            // No group is woken for a rebuild that would fail.
            let itself = self.can_do_with_itself(drive, (&missing, blob.left_there), false);
            let can = match itself {
                Some(_) => Ok(()),
                None => self.can_rebuild(group, &blob, (drive, &missing)),
            };
            let verdict = match can {
                Err(Rejection::DataLost) => self.rebuilder.surveys(drive).then_some(Err(Rejection::DataLost)),
                // A stack that may still be there costs only a read, and other rebuilds of its blob may wait for it.
                verdict => {
                    let is_looked_for = blob.left_there && itself == Some(Itself::LookedFor);
                    (is_looked_for || self.rebuilder.takes(drive, &missing)).then_some(verdict)
                }
            };
            if let Some(Ok(())) = verdict {
                let op = self.rebuild_of(&blob, group, lost as u8);
                if self.queue(op, now).is_some() {
                    self.rebuilder.put_back(drive, blob);
                    break;
                }
                queued = true;
            }
            self.rebuilder.looked_at(drive, &missing);
            match verdict {
                None => self.rebuilder.left_to_others(drive),
                Some(Err(reason)) => self.rebuilder.skipped(drive, reason),
                Some(Ok(())) => self.rebuilder.queued(drive, blob.blob, missing),
            }
        }
        queued
    }

    /// The drives of `blob`, which was listed with `listed`, that lack its stack: they failed, or took the place of a
    /// drive that did.
    fn missing_of(&self, blob: &BlobOnDrive, listed: DriveId) -> Vec<DriveId> {
        let is_good = self.rebuilder.is_retiring(listed);
        let lacks = |drive: DriveId| {
            (drive == listed && !is_good) || self.drives.has_failed(drive) || blob.lost.contains(&drive)
        };
        let mut missing: Vec<DriveId> = blob.drives.iter().copied().filter(|drive| lacks(*drive)).collect();
        missing.sort_unstable();
        missing
    }

    fn rebuild_of(&mut self, blob: &BlobOnDrive, group: GroupId, lost: u8) -> Op {
        let BlobOnDrive { blob, drives, stack_bytes, bytes, left_there, .. } = blob.clone();
        let work = Work::Rebuild { blob, group, drives, lost, stack_bytes, bytes, in_place: false };
        self.rebuild_op(work, group).with_left_there(left_there)
    }

    fn rebuild_op(&mut self, work: Work, group: GroupId) -> Op {
        let op = self.ops.own_number();
        // A good drive that is retired lacks nothing: its copies wait until missing stacks are rebuilt.
        let from = blob_drive(&work);
        let is_good = from.is_some_and(|drive| self.rebuilder.is_retiring(drive));
        let priority = if is_good { PriorityClass::Background } else { PriorityClass::Rebuild };
        let request = Request { op, priority, overtake_limit: None, work };
        assert!(self.setup.owns(group), "{group} is of a class of ours");
        Op::new(request, self.setup.class_of(group), group)
    }

    /// Queues the repair of the damaged `stacks` of `blob`, each in its place. False if the queue is full or the rack
    /// closes: the blob is to be scrubbed again.
    pub(super) fn queue_repairs(&mut self, blob: &BlobOnDrive, group: GroupId, stacks: &[u8], now: Time) -> bool {
        if self.closing {
            return false;
        }
        let mut all_queued = true;
        for lost in stacks.iter().copied() {
            let BlobOnDrive { blob, drives, stack_bytes, bytes, .. } = blob.clone();
            let work = Work::Rebuild { blob, group, drives, lost, stack_bytes, bytes, in_place: true };
            let op = self.rebuild_op(work, group);
            all_queued &= self.queue(op, now).is_none();
        }
        all_queued
    }

    fn can_rebuild(
        &self,
        group: GroupId,
        blob: &BlobOnDrive,
        (from, missing): (DriveId, &[DriveId]),
    ) -> Result<(), Rejection> {
        let members = self.setup.members(group);
        let fits =
            blob.drives.len() == self.setup.spec.code.stacks() && blob.drives.iter().all(|d| members.contains(d));
        if !fits {
            return Err(Rejection::Malformed);
        }
        let is_left = |drive: &DriveId| *drive != from && !missing.contains(drive);
        let others: Vec<DriveId> = blob.drives.iter().copied().filter(is_left).collect();
        if others.len() < self.setup.data_stacks() {
            // A stack that is still looked for is not lost, for any absence of its drive. For this one that holds
            // regardless of other losses: the other drives may be back by the time it is found.
            let sought = missing.iter().filter(|drive| self.is_sought(**drive, false));
            let may_be_enough = others.len() + sought.count() >= self.setup.data_stacks();
            let is_lost = !may_be_enough && !self.is_sought(from, blob.left_there);
            return Err(if is_lost { Rejection::DataLost } else { Rejection::TooManyDrivesAway });
        }
        self.drives.enough_left(&others, self.setup.data_stacks())?;
        let unfit: Vec<DriveId> =
            blob.drives.iter().copied().filter(|d| *d != from || !self.takes_back(from)).collect();
        let target = self.placement.choose_another(group, &others, &unfit, blob.stack_bytes);
        target.map(|_| ()).ok_or(Rejection::NoRoom)
    }

    /// True if a stack that was lost with `drive` may be written there again: another drive is in its place, or it is
    /// back.
    fn takes_back(&self, drive: DriveId) -> bool {
        !self.drives.has_failed(drive) && !self.retiring.contains(&drive)
    }

    /// True if stacks that were lost with `drive` are still looked for there, or if an earlier rebuild has `left_there`
    /// the stack in question.
    fn is_sought(&self, drive: DriveId, left_there: bool) -> bool {
        self.takes_back(drive) && (left_there || self.rebuilder.has_returned(drive))
    }

    /// True if the stack that a rebuild regenerates may still be in the place where it was lost: it was not looked for
    /// since its drive is back, or the drive did not answer.
    pub(super) fn may_lie_there(&self, rebuild: &Op) -> bool {
        let Work::Rebuild { drives, lost, in_place, .. } = &rebuild.request.work else { return false };
        let from = drives[usize::from(*lost)];
        let may_look = rebuild.may_do_with_itself() && !in_place;
        rebuild.may_lie_on(from) || (may_look && self.is_sought(from, false))
    }

    /// The way in which a rebuild can use the stack on `from` itself, of a blob that lacks its stacks on the drives
    /// `missing`. It copies the stack from a good drive that is retired, or looks for it on a drive that is back, or
    /// where an earlier rebuild may have left it. That needs no other stacks, only the presence of the drive: `now`, or
    /// once its group is awake.
    fn can_do_with_itself(
        &self,
        from: DriveId,
        (missing, left_there): (&[DriveId], bool),
        now: bool,
    ) -> Option<Itself> {
        let there = if now { self.drives.is_ready(from) } else { !self.drives.is_away(from) };
        match () {
            () if !there || self.drives.has_failed(from) => None,
            () if self.retiring.contains(&from) && !missing.contains(&from) => Some(Itself::Copied),
            () if self.is_sought(from, left_there) => Some(Itself::LookedFor),
            () => None,
        }
    }

    /// Puts a rebuild into service, for the first time or again. True if it ended at once.
    pub(super) fn start_rebuild(&mut self, op: OpId, step: &mut Step) -> bool {
        let Some(state) = self.ops.get(op) else { return true };
        let Work::Rebuild { blob, group, drives, lost, in_place, .. } = state.request.work.clone() else {
            return true;
        };
        let (from, others) = (drives[usize::from(lost)], self.others_of(blob, &drives, lost));
        let itself = self.does_with_itself(state, from);
        let (stacks, need) = if itself.is_some() {
            (vec![(lost, from)], 1)
        } else {
            let mut stacks = self.drives.ready_stacks(&drives);
            stacks.retain(|(_, drive)| others.contains(drive));
            (stacks, self.setup.spec.code.data)
        };
        if stacks.len() < usize::from(need) {
            let reason = self.why_too_few(op);
            self.finish(op, Outcome::Failed(reason), step);
            return true;
        }
        let Some(target) = self.rebuild_target(op, (from, &others), itself) else {
            self.finish(op, Outcome::Failed(Rejection::NoRoom), step);
            return true;
        };
        assert!(itself.is_some() || stacks.iter().all(|(index, _)| *index != lost), "the lost stack is not read");
        assert!(
            stacks.iter().all(|(_, drive)| !self.drives.has_failed(*drive)),
            "no stack is read from a failed drive"
        );
        assert!(self.drives.is_ready(target), "{target} is ready to be written to");
        assert!(!others.contains(&target), "{target} would have two stacks of {blob}");
        assert!(!in_place || target == from, "what is damaged is regenerated where it lies");
        assert!(!self.drives.has_failed(target), "{target} failed, and is not written to");
        let Some(state) = self.ops.get_mut(op) else { return true };
        state.aim_at(target, itself.is_some());
        let policy = self.setup.policy.read_policy;
        let transfer = Transfer::Rebuild { blob, group, drives, lost, stacks, need, policy, target, spare: in_place };
        self.begin_transfer(op, transfer, step);
        false
    }

    /// The way in which a rebuild of a stack that is or was on `from` uses that stack itself in this try; none if it
    /// does not.
    fn does_with_itself(&self, op: &Op, from: DriveId) -> Option<Itself> {
        let Work::Rebuild { blob, in_place: false, .. } = op.request.work else { return None };
        let missing = self.rebuilder.missing_of(blob, from);
        self.can_do_with_itself(from, (missing, op.may_be_left_there()), true).filter(|_| op.may_do_with_itself())
    }

    /// The target of a rebuild of the stack of `from`, whose blob also has stacks on `others`; its space is reserved.
    /// None if no drive has room.
    fn rebuild_target(
        &mut self,
        op: OpId,
        (from, others): (DriveId, &[DriveId]),
        itself: Option<Itself>,
    ) -> Option<DriveId> {
        let state = self.ops.get(op)?;
        let Work::Rebuild { group, ref drives, stack_bytes, in_place, .. } = state.request.work else { return None };
        if in_place {
            let may = self.drives.is_ready(from) && !state.shunned().contains(&from);
            return (may && self.placement.reserve_beside(from, stack_bytes)).then_some(from);
        }
        if itself == Some(Itself::LookedFor) {
            self.placement.reserve_found(from, stack_bytes);
            return Some(from);
        }
        let unready = self.setup.members(group).iter().filter(|drive| !self.drives.is_ready(**drive));
        let of_blob = drives.iter().filter(|drive| **drive != from || !self.takes_back(from));
        let unfit: Vec<DriveId> = unready.chain(state.shunned()).chain(of_blob).copied().collect();
        let target = self.placement.choose_another(group, others, &unfit, stack_bytes)?;
        self.placement.reserve_another(others, target, stack_bytes);
        Some(target)
    }

    /// The drives in `drives` that have a stack of `blob`, except for the one at `lost`.
    fn others_of(&self, blob: BlobId, drives: &[DriveId], lost: u8) -> Vec<DriveId> {
        let missing = self.rebuilder.missing_of(blob, drives[usize::from(lost)]);
        without(drives, lost).into_iter().filter(|drive| !missing.contains(drive)).collect()
    }

    /// A rebuilt stack was written, or was read back: reads it back, or asks the catalog to count it.
    pub(super) fn rebuild_written(&mut self, op: OpId, step: &mut Step) {
        let read_back = self.setup.policy.rebuild_read_back;
        let Some(state) = self.ops.get_mut(op) else { return };
        let Some(to) = state.reserved.first().copied() else { return };
        let Work::Rebuild { blob, ref drives, lost: index, in_place, .. } = state.request.work else { return };
        let from = drives[usize::from(index)];
        assert!(!in_place || from == to, "what is damaged is regenerated where it lies");
        // A stack that was only looked for was read as a whole. Nothing replaces a stack that may be better than the
        // replacement.
        let was_read = from == to && state.reads_itself();
        if (read_back || from == to) && !was_read && state.begin_verify() {
            self.begin_transfer(op, Transfer::Verify { drives: vec![to] }, step);
            return;
        }
        state.begin_move();
        let attempt = self.put_into_service(op, step);
        let removes = from != to && !self.drives.has_failed(from) && self.retiring.contains(&from);
        step.ask(Action::MoveStack { op, attempt, blob, index, from, to, removes });
    }

    pub(super) fn rebuild_failed(&mut self, op: OpId, outcomes: &[DriveOutcome], step: &mut Step) {
        let Some(target) = self.ops.get(op).and_then(|op| op.reserved.first().copied()) else { return };
        self.release_space(op);
        let Some(state) = self.ops.get_mut(op) else { return };
        let Work::Rebuild { blob, ref drives, lost, .. } = state.request.work else { return };
        let (drives, tries) = (drives.clone(), state.count_try());
        let fine = |result| matches!(result, DriveResult::Fine | DriveResult::Unused);
        let from = drives[usize::from(lost)];
        let of_itself = outcomes.first().filter(|_| state.reads_itself());
        if let Some(DriveOutcome { result, .. }) = of_itself.filter(|outcome| !fine(outcome.result)) {
            // A stack that is looked for in its place is read again only if the drive did not answer.
            let was_silent = matches!(result, DriveResult::MissedDeadline | DriveResult::NotAsked);
            if !(from == target && was_silent && tries + 1 < TRIES_MAX) {
                state.give_itself_up();
                // A stack is overwritten only if it is known to be bad.
                if from == target && *result != DriveResult::StackBad {
                    state.shun(target);
                }
            }
            if self.closing || tries >= TRIES_MAX {
                self.finish(op, Outcome::Failed(Rejection::TooManyDrivesAway), step);
            } else {
                self.start_rebuild(op, step);
            }
            return;
        }
        let target_fine = outcomes.iter().all(|outcome| outcome.drive != target || fine(outcome.result));
        if !target_fine {
            state.shun(target);
        }
        let may_lie_there = self.ops.get(op).is_some_and(|state| self.may_lie_there(state));
        let others = self.others_of(blob, &drives, lost);
        let mut sources = outcomes.iter().filter(|outcome| outcome.drive != target);
        let some_failed = sources.any(|outcome| outcome.result.may_do_better());
        let all_asked = of_itself.is_none() && !may_lie_there && self.drives.all_asked(&others, outcomes);
        if target_fine && !some_failed && all_asked {
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
        // The lost bytes of a replaced drive do not count as used, unless the drive failed again or is retired since.
        if !in_place && (self.drives.has_failed(from) || self.retiring.contains(&from)) {
            self.placement.freed(from, stack_bytes);
        }
        self.stats.rebuilt_bytes += stack_bytes;
        self.finish(op, Outcome::Rebuilt, step);
        if target[0] == from {
            return;
        }
        let moved = StackMove { blob, index, from, to: target[0] };
        self.ops.follow_move(&moved);
        self.rebuilder.follow_move(&moved);
        self.reclaim.follow_move(&moved);
        self.scrubber.follow_move(&moved);
    }
}

/// A way for a rebuild to use the stack itself, without the other stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Itself {
    /// The stack is copied from a good drive that is retired.
    Copied,
    /// The drive was given up and is back, or an earlier rebuild may have left the stack there: the stack is read and
    /// checked in its place, and nothing is written.
    LookedFor,
}

/// The drive whose stack a rebuild regenerates.
fn blob_drive(work: &Work) -> Option<DriveId> {
    let Work::Rebuild { drives, lost, .. } = work else { return None };
    drives.get(usize::from(*lost)).copied()
}
