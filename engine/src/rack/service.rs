//! Serves one operation of a class at a time: service, retry, end.
//!
//! - A read is served by the members that are ready, if they hold at least k of its stacks. A failed read is tried
//!   again with the drives that did not fail. Data that no drive could return is lost, and reported as lost.
//! - A write is written, read back, and only then reported; a failed write is placed again in another group. A write
//!   whose source cannot be read ends instead, and the rest of a migration's pack is composed again.

use super::Rack;
use crate::action::{Action, Outcome, Rejection, Transfer};
use crate::event::{DriveOutcome, DriveResult, Work};
use crate::ops::{Answer, TRIES_MAX};
use crate::policy::{IdleTimeout, PinnedTo, PriorityClass};
use crate::spin_down::Spinning;
use crate::step::Step;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, OpId, Time};

impl Rack {
    /// Serves the next operation of a ready group, or reclaims, or puts the group to sleep.
    pub(super) fn serve(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        let state = &mut self.classes[class.index()];
        assert!(state.awake() == Some(group), "{group} is awake, and serves");
        if state.in_service.is_some() {
            return false;
        }
        if self.closing {
            self.rest(class, group, step);
            return true;
        }
        if state.anticipates(group, step.now, self.setup.policy.scheduler.anticipation) {
            return false;
        }
        match state.pick(step.now, Some(group)) {
            Some((wanted, priority)) if wanted == group => self.serve_pending(class, group, priority, step),
            Some((wanted, priority)) if !self.may_start(wanted, priority, step.now) => {
                self.give_up_for_budget(class, step);
                true
            }
            Some((_, priority)) => self.yield_to_other(class, group, priority, step),
            None => self.idle(class, group, step),
        }
    }

    fn serve_pending(&mut self, class: ClassId, group: GroupId, priority: PriorityClass, step: &mut Step) -> bool {
        if self.wake_returned(class, group, priority, step.now) || self.recover(class, group, step) {
            return true;
        }
        let state = &mut self.classes[class.index()];
        state.set_idle(None);
        let Some(pick) = state.take_pending() else { return false };
        assert!(pick.group == group, "{} is served in its own group", pick.op);
        self.start(pick.op, step)
    }

    /// Another group is wanted for `priority`: `group` goes to sleep, after at most a quantum of reclaiming or of an
    /// overdue scrub for which it was woken.
    fn yield_to_other(&mut self, class: ClassId, group: GroupId, priority: PriorityClass, step: &mut Step) -> bool {
        assert!(self.classes[class.index()].pending.is_some_and(|pick| pick.group != group), "another group is wanted");
        let yields_at = self.reclaim.yields_at(class, step.now + self.setup.policy.scheduler.quantum);
        if step.now < yields_at && self.reclaim_next(class, group, step) {
            return false;
        }
        if step.now < yields_at && self.scrub_holds(class, group, priority, step) {
            return false;
        }
        self.classes[class.index()].begin_switch(priority, step.now);
        self.rest(class, group, step);
        true
    }

    fn idle(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        if self.reclaim_next(class, group, step) {
            return false;
        }
        let state = &mut self.classes[class.index()];
        assert!(state.pending.is_none(), "a group without work is idle");
        let since = state.idle_since().unwrap_or(step.now);
        assert!(since <= step.now, "{group} has been idle since some moment that has passed");
        state.set_idle(Some(since));
        if !state.is_hastened && self.scrub_next(class, group, since, step) {
            return false;
        }
        let stays_until = self.stays_until(class, group, step.now);
        self.classes[class.index()].stay_until(stays_until);
        match self.setup.policy.idle_timeout {
            IdleTimeout::After(timeout) if step.now >= (since + timeout).max(stays_until) => {
                self.rest(class, group, step);
                true
            }
            _ => false,
        }
    }

    /// The time until which an idle `group` keeps spinning ([`crate::spin_down`]).
    fn stays_until(&self, class: ClassId, group: GroupId, now: Time) -> Time {
        let state = &self.classes[class.index()];
        if state.is_hastened {
            return Time::ZERO;
        }
        let (is_exhausted, recovery_reserved) = (self.keeps_exhausted(group, now), self.is_reserved(group, now));
        let spinning = Spinning { ready_at: state.ready_at, is_exhausted, recovery_reserved };
        self.setup.policy.spin_down.stays_until(&spinning, now)
    }

    /// True if `group`, which is idle at the moment, will soon have a rebuild or a write: the catalog was asked for
    /// more of the lost data of one of its drives, or data for it is being composed. Both requests are always answered.
    fn is_reserved(&self, group: GroupId, now: Time) -> bool {
        let comes_here = |(op, pin, composed_for): (OpId, PinnedTo, Option<GroupId>)| {
            !self.ops.contains(op) && composed_for.or(self.placement.batch_group(pin)) == Some(group)
        };
        self.rebuilder.is_pending(group, |drive| self.placement.used_bytes(drive), now)
            || self.migrator.composed().any(comes_here)
    }

    /// True if `group` would be kept spinning because one of its drives has no starts left today.
    fn keeps_exhausted(&self, group: GroupId, now: Time) -> bool {
        let is_exhausted = |drive: &DriveId| !self.drives.may_start(&[*drive], PriorityClass::Background, now);
        self.setup.policy.spin_down.keeps_exhausted && self.setup.members(group).iter().any(is_exhausted)
    }

    /// The group of `class` that has been idle longer than the idle timeout, and keeps spinning because one of its
    /// drives has no starts left today.
    pub fn kept_spinning(&self, class: ClassId, now: Time) -> Option<GroupId> {
        let state = &self.classes[class.index()];
        let (IdleTimeout::After(timeout), Some(since)) = (self.setup.policy.idle_timeout, state.idle_since()) else {
            return None;
        };
        let group = state.awake()?;
        (now >= since + timeout && self.keeps_exhausted(group, now)).then_some(group)
    }

    /// Puts an operation into service. True if it ended at once, so that another can be picked.
    fn start(&mut self, op: OpId, step: &mut Step) -> bool {
        let Some(state) = self.ops.get(op) else { return true };
        match state.request.work {
            Work::Read { blob, ref drives, .. } => {
                let stacks = self.drives.ready_stacks(drives);
                self.start_read(op, blob, stacks, step)
            }
            Work::Write { .. } => self.start_write(op, step),
            Work::Rebuild { .. } => self.start_rebuild(op, step),
            Work::Scrub { .. } => unreachable!("a step of a scrub is never queued"),
            Work::Delete { blob, ref drives, .. } => {
                let stacks = self.drives.ready_stacks(drives);
                self.begin_transfer(op, Transfer::Delete { blob, stacks }, step);
                false
            }
            Work::Visit { group } => {
                // A group that was already awake has not been asked for blobs that died since.
                self.begin_reclaim(state.class, group, step);
                self.finish(op, Outcome::Deleted, step);
                true
            }
            Work::Inspect { group } => self.start_inspect(op, group, step),
            // These only make their group ready, which it is.
            Work::Initialise { .. } | Work::ScrubWake { .. } => {
                self.finish(op, Outcome::Deleted, step);
                true
            }
        }
    }

    fn start_inspect(&mut self, op: OpId, group: GroupId, step: &mut Step) -> bool {
        let members = self.setup.members(group).iter().copied();
        let drives: Vec<DriveId> = members.filter(|drive| self.drives.is_ready(*drive)).collect();
        if drives.is_empty() {
            self.finish(op, Outcome::Failed(Rejection::TooManyDrivesAway), step);
            return true;
        }
        self.begin_transfer(op, Transfer::Inspect { group, drives }, step);
        false
    }

    fn start_read(&mut self, op: OpId, blob: BlobId, stacks: Vec<(u8, DriveId)>, step: &mut Step) -> bool {
        let need = self.setup.spec.code.data;
        if stacks.len() < usize::from(need) {
            let reason = self.why_too_few(op);
            self.finish(op, Outcome::Failed(reason), step);
            return true;
        }
        assert!(
            stacks.iter().all(|(_, drive)| self.drives.is_ready(*drive)),
            "a read is served by drives that are ready"
        );
        let transfer = Transfer::Read { blob, stacks, need, policy: self.setup.policy.read_policy };
        self.begin_transfer(op, transfer, step);
        false
    }

    /// The reason why fewer than k stacks of a read or a rebuild are ready.
    pub(super) fn why_too_few(&self, op: OpId) -> Rejection {
        let need = self.setup.data_stacks();
        let Some(state) = self.ops.get(op) else { return Rejection::Malformed };
        let left = match &state.request.work {
            Work::Read { drives, .. } => self.drives.enough_left(drives, need),
            // If it counted as lost, the pass would not look for it again, and the stack would never be read.
            Work::Rebuild { .. } if self.may_lie_there(state) => return Rejection::TooManyDrivesAway,
            Work::Rebuild { drives, lost, .. } => self.drives.enough_left(&without(drives, *lost), need),
            _ => return Rejection::Malformed,
        };
        left.err().unwrap_or(Rejection::TooManyDrivesAway)
    }

    fn start_write(&mut self, op: OpId, step: &mut Step) -> bool {
        self.leave_retiring(op);
        let Some(state) = self.ops.get(op) else { return true };
        if state.reserved.is_empty() || state.reserved.iter().any(|drive| !self.drives.is_ready(*drive)) {
            self.place_anew(op, step);
            return true;
        }
        let drives = state.reserved.clone();
        assert!(drives.len() == self.setup.spec.code.stacks(), "a blob is written to k + r drives");
        let members = self.setup.members(state.group);
        assert!(drives.iter().all(|drive| members.contains(drive)), "{op} is written within its group");
        assert!(!drives.iter().any(|drive| self.retiring.contains(drive)), "{op} adds nothing to what is to be empty");
        let transfer = Transfer::Write { group: state.group, drives };
        self.begin_transfer(op, transfer, step);
        false
    }

    /// Places a waiting write again within its group, which is awake, if one of its drives was retired meanwhile. If
    /// the group has no room, the write has no reservation afterwards.
    fn leave_retiring(&mut self, op: OpId) {
        let Some(state) = self.ops.get(op) else { return };
        let Work::Write { bytes, stack_bytes, pin, .. } = state.request.work else { return };
        let group = state.group;
        if !state.reserved.iter().any(|drive| self.retiring.contains(drive)) {
            return;
        }
        self.release_space(op);
        let others: Vec<GroupId> = self.setup.groups().filter(|other| *other != group).collect();
        let place = self.place(self.wanted(bytes, stack_bytes, pin), &others);
        if let (Some(state), Some((_, drives))) = (self.ops.get_mut(op), place) {
            state.reserved = drives;
        }
    }

    pub(super) fn begin_transfer(&mut self, op: OpId, transfer: Transfer, step: &mut Step) {
        let attempt = self.put_into_service(op, step);
        step.ask(Action::Transfer { op, attempt, transfer });
    }

    /// Puts an operation into service for its next request to the world; returns the number of that attempt.
    pub(super) fn put_into_service(&mut self, op: OpId, step: &Step) -> Attempt {
        let Some(state) = self.ops.get_mut(op) else { panic!("{op} is put into service, and is not known") };
        let class = &mut self.classes[state.class.index()];
        assert!(class.awake() == Some(state.group), "{op} is served by its own group");
        class.serve(op, state.request.priority, step.now);
        state.next_attempt()
    }

    pub(super) fn transfer_ended(&mut self, answer: &Answer, done: bool, step: &mut Step) {
        let Answer { op, outcomes, .. } = *answer;
        let Some(took) = self.leave_transfer(answer, step) else { return };
        let Some(state) = self.ops.get(op) else { return };
        match state.request.work {
            Work::Read { bytes, .. } if done => {
                self.estimates.transferred(self.load_beside(state.class), self.setup.transfer_estimate(bytes), took);
                self.stats.read_bytes += bytes;
                self.finish(op, Outcome::Read, step);
            }
            Work::Read { .. } => self.read_failed(op, outcomes, step),
            Work::Write { .. } if done => self.write_ended(op, step),
            Work::Write { .. } => self.place_anew(op, step),
            Work::Delete { .. } if done => self.delete_ended(op, step),
            Work::Delete { .. } => self.finish(op, Outcome::Failed(Rejection::WriteFailed), step),
            Work::Rebuild { .. } if done => self.rebuild_written(op, step),
            Work::Rebuild { .. } => self.rebuild_failed(op, outcomes, step),
            Work::Scrub { .. } => self.scrub_ended(op, outcomes, done, step),
            Work::Inspect { .. } => self.finish(op, Outcome::Inspected, step),
            Work::ScrubWake { .. } | Work::Visit { .. } | Work::Initialise { .. } => {}
        }
    }

    /// Ends the transfer that `op` was in service for: the class is free, and the state of each drive follows from its
    /// result. Returns the time in service, or `None` if the answer is late.
    fn leave_transfer(&mut self, answer: &Answer, step: &Step) -> Option<Duration> {
        let Answer { op, attempt, outcomes } = *answer;
        let state = self.ops.get(op).filter(|state| state.awaits_transfer(attempt))?;
        let class = &mut self.classes[state.class.index()];
        let service = class.serves(op)?;
        class.leave_service(service, step.now);
        assert!(class.in_service.is_none(), "the class is free again");
        self.note_job_service(service, step.now);
        for outcome in outcomes {
            match outcome.result {
                _ if !self.drives.knows(outcome.drive) => {}
                DriveResult::Failed => self.drives.transfer_failed(outcome.drive, step.now),
                DriveResult::MissedDeadline => self.drives.transfer_missed_deadline(outcome.drive, step.now),
                DriveResult::Full => self.placement.set_free(outcome.drive, 0),
                _ => {}
            }
        }
        self.follow_drives();
        Some(step.now.since(service.since))
    }

    /// Ends a write whose source cannot be read, which would fail in any group. The readable part is composed again and
    /// goes to the same group, which is awake, if it has room.
    pub(super) fn source_unreadable(&mut self, answer: &Answer, versions: &[u64], step: &mut Step) {
        let op = answer.op;
        if self.leave_transfer(answer, step).is_none() {
            return;
        }
        self.release_space(op);
        let Some(state) = self.ops.get(op) else { return };
        if let Work::Write { pin, .. } = state.request.work
            && !versions.is_empty()
            && !self.closing
            && let Some(next) = self.migrator.recompose(op, state.group)
        {
            step.ask(Action::Recompose { op: next, of: op, pin });
        }
        self.finish(op, Outcome::Failed(Rejection::SourceUnreadable), step);
    }

    fn read_failed(&mut self, op: OpId, outcomes: &[DriveOutcome], step: &mut Step) {
        let Some(state) = self.ops.get_mut(op) else { return };
        let Work::Read { blob, ref drives, .. } = state.request.work else { return };
        let drives = drives.clone();
        let tries = state.count_try();
        let may_do_better = outcomes.iter().any(|outcome| outcome.result.may_do_better());
        // Data is lost only if every stack was asked for and answered: a drive that is away may bring back missing
        // data.
        let all_asked = self.drives.all_asked(&drives, outcomes);
        // It is also lost only if a second try fails: a sector that cannot be read now may be readable later.
        let seems_lost = !may_do_better && all_asked;
        if seems_lost && state.seemed_lost() {
            self.finish(op, Outcome::Failed(Rejection::DataLost), step);
        } else if (!may_do_better && !seems_lost) || tries >= TRIES_MAX {
            self.finish(op, Outcome::Failed(Rejection::TooManyDrivesAway), step);
        } else {
            let stacks = self.drives.ready_stacks(&drives);
            self.start_read(op, blob, stacks, step);
        }
    }

    /// A write has ended, or its reading back.
    fn write_ended(&mut self, op: OpId, step: &mut Step) {
        let read_back = self.setup.policy.write_read_back;
        let Some(state) = self.ops.get_mut(op) else { return };
        if read_back && state.begin_verify() {
            let drives = state.reserved.clone();
            self.begin_transfer(op, Transfer::Verify { drives }, step);
            return;
        }
        let Work::Write { bytes, migration, .. } = state.request.work else { return };
        let (group, (drives, stack_bytes)) = (state.group, state.take_reserved());
        assert!(drives.len() == self.setup.spec.code.stacks(), "a blob counts with all its stacks");
        self.placement.settle(&drives, stack_bytes, stack_bytes);
        for drive in drives.iter().filter(|drive| self.drives.has_failed(**drive) || self.retiring.contains(drive)) {
            self.rebuilder.written(*drive, step.now); // it has a stack of it to be rebuilt
        }
        self.stats.written_bytes += bytes;
        self.stats.migrated_bytes += if migration { bytes } else { 0 };
        self.finish(op, Outcome::Written { group, drives }, step);
    }

    /// Releases the space of a write that failed in its place, and places and queues the write again: in another group,
    /// or, if it is pinned to this one, on the drives of this group that are present and have room now.
    fn place_anew(&mut self, op: OpId, step: &mut Step) {
        self.release_space(op);
        let Some(mut state) = self.ops.remove(op) else { return };
        let Work::Write { bytes, stack_bytes, pin, .. } = state.request.work else { return };
        if !matches!(pin, PinnedTo::Group(_)) {
            state.exclude_group();
        }
        let tries = state.count_try();
        let again = !self.closing && tries < TRIES_MAX;
        let wanted = self.wanted(bytes, stack_bytes, pin);
        let place = if again { self.place(wanted, state.failed_groups()) } else { None };
        let Some((group, drives)) = place else {
            self.ops.insert(state);
            let reason = if self.closing { Rejection::Closing } else { Rejection::WriteFailed };
            self.finish(op, Outcome::Failed(reason), step);
            return;
        };
        let class = self.setup.class_of(group);
        self.enqueue(state.moved_to(class, group, drives), step);
    }
}

/// `drives` without the one at `index`.
pub(super) fn without(drives: &[DriveId], index: u8) -> Vec<DriveId> {
    let others = drives.iter().enumerate().filter(|(other, _)| *other != usize::from(index));
    others.map(|(_, drive)| *drive).collect()
}
