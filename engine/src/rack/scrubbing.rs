//! Scrubs blobs step by step for damage, and repairs damaged stacks ([`crate::scrub`]).
//!
//! Invariants: a step is in service like any operation, and operations queued for its group wait for at most one; a
//! stack is regenerated only if a scrub has found it damaged.

use super::Rack;
use crate::action::{Outcome, Rejection, Transfer};
use crate::budget::StartBudget;
use crate::class::ClassPhase;
use crate::event::{BlobOnDrive, DriveOutcome, DriveResult, Request, Work};
use crate::ops::Op;
use crate::policy::PriorityClass;
use crate::scrub::{AtBlob, Need, Next, ScrubPage, Scrubbed, Scrubber};
use crate::step::Step;
use model::{Attempt, ClassId, DriveId, GroupId, OpId, Time};

impl Rack {
    pub(super) fn scrub_requested(&mut self, group: Option<GroupId>, step: &mut Step) {
        let wanted = self.setup.groups().filter(|each| group.is_none_or(|one| one == *each));
        for group in wanted {
            if !self.setup.owns(group) {
                continue;
            }
            let (class, used_bytes) = (self.setup.class_of(group), self.stack_bytes_in(group));
            self.scrubber.request(class, group, used_bytes, step.now);
            self.persist_scrub(group, step);
        }
    }

    pub(super) fn scrub_page(&mut self, (group, attempt): (GroupId, Attempt), page: ScrubPage, step: &mut Step) {
        if group.index() < self.setup.layout.groups.len() {
            self.scrubber.page(self.setup.class_of(group), (group, attempt), page, step.now);
            self.persist_scrub(group, step);
        }
    }

    pub(super) fn scrub_unlisted(&mut self, group: GroupId, attempt: Attempt, now: Time) {
        if group.index() < self.setup.layout.groups.len() {
            self.scrubber.unlisted(self.setup.class_of(group), group, attempt, now);
        }
    }

    /// Bytes of stacks in `group`.
    fn stack_bytes_in(&self, group: GroupId) -> u64 {
        let used = self.setup.members(group).iter().map(|drive| self.placement.used_bytes(*drive));
        used.fold(0, u64::saturating_add)
    }

    fn persist_scrub(&mut self, group: GroupId, step: &mut Step) {
        if let Some(action) = self.scrubber.persist(group) {
            step.ask(action);
        }
    }

    /// Looks at the passes that are due for a check. True if this gives a class something to do.
    pub(super) fn queue_scrubs(&mut self, step: &mut Step) -> bool {
        assert!(!self.closing, "nothing is scrubbed any more once the rack closes");
        let mut queued = false;
        for group in self.scrubber.to_look_at(step.now) {
            if !self.setup.owns(group) {
                self.scrubber.look_again(group, Time::MAX);
                continue;
            }
            self.scrubber.begin_due(group, self.stack_bytes_in(group), step.now);
            self.persist_scrub(group, step);
            if !self.scrubber.knows_its_end(group) {
                // Now rather than when the group is first awake: data written meanwhile is read back anyway.
                if self.scrubber.need(self.setup.class_of(group), group, step.now) == Some(Need::Page) {
                    self.list_to_scrub(self.setup.class_of(group), group, step);
                }
            } else if self.scrubber.is_due(group, step.now) {
                queued |= self.scrub_due(group, step);
            } else {
                self.scrubber.not_due(group, step.now);
            }
        }
        queued
    }

    /// The pass of `group` is due. True if this gives its class something to do.
    fn scrub_due(&mut self, group: GroupId, step: &mut Step) -> bool {
        let class = self.setup.class_of(group);
        if self.classes[class.index()].awake() == Some(group) {
            self.scrubber.own(class, group, step.now);
            self.scrubber.look_again(group, Scrubber::pause_from(step.now));
            return true;
        }
        let need = if self.scrubber.is_pass_due(group, step.now) {
            self.scrubber.need(class, group, step.now)
        } else {
            self.scrubber.may_read_again(class).then_some(Need::Wake)
        };
        let Some(need) = need else { return false };
        if !self.may_wake_to_scrub(class, group, step.now) {
            return false;
        }
        match need {
            // No group is woken only to find that nothing is left of its pass.
            Need::Page => {
                self.list_to_scrub(class, group, step);
                false
            }
            Need::Wake => self.queue_scrub_wake(class, group, step.now),
        }
    }

    /// True if `group` may be woken for its pass now. If its drives, starts or pass do not allow that, it is checked
    /// tomorrow.
    fn may_wake_to_scrub(&mut self, class: ClassId, group: GroupId, now: Time) -> bool {
        let state = &self.classes[class.index()];
        let pressing = self.scrubber.is_overdue(group, now) || self.scrubber.is_requested(group);
        let is_free = !state.has_work() && matches!(state.phase, ClassPhase::Asleep | ClassPhase::Awake { .. });
        if !is_free && !pressing {
            return false;
        }
        let enough = self.drives.enough_left(self.setup.members(group), self.setup.data_stacks()).is_ok();
        let may_start = self.may_start(group, PriorityClass::Background, now);
        let may = enough && may_start && self.scrubber.may_wake(group, now);
        if !may {
            self.scrubber.look_again(group, StartBudget::next_day(now));
        }
        may
    }

    fn queue_scrub_wake(&mut self, class: ClassId, group: GroupId, now: Time) -> bool {
        let (op, work) = (self.ops.own_number(), Work::ScrubWake { group });
        let request = Request { op, priority: PriorityClass::Background, overtake_limit: None, work };
        if self.queue(Op::new(request, class, group), now).is_some() {
            self.scrubber.look_again(group, Scrubber::pause_from(now));
            return false;
        }
        self.scrubber.queued(class, group, op);
        true
    }

    /// Records the wake of `group`, which is ready, if it was for its pass.
    pub(super) fn note_scrub_wake(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        let pending = self.classes[class.index()].pending.map(|pick| pick.op);
        if pending.is_some_and(|op| self.scrubber.is_own_wake(class, op)) {
            self.stats.scrub_wakes += 1;
            self.scrubber.woken(group, step.now);
            self.persist_scrub(group, step);
        }
    }

    /// Ends the wake of `group` for its pass, successful or not.
    pub(super) fn scrub_wake_ended(&mut self, group: GroupId, outcome: &Outcome, now: Time) {
        let (up, again) = match outcome {
            Outcome::Deleted => (true, Scrubber::pause_from(now)),
            Outcome::Failed(Rejection::StartBudgetSpent) => (false, StartBudget::next_day(now)),
            _ => (false, Scrubber::pause_from(now)),
        };
        self.scrubber.wake_ended(self.setup.class_of(group), group, (up, again), now);
    }

    /// The awake group of `class` goes to sleep.
    pub(super) fn scrub_rests(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        self.scrubber.rest(class);
        self.persist_scrub(group, step);
    }

    /// True if the group of `class` stays awake for an overdue pass although other groups wait for the permits it
    /// holds: for a quantum from the time when it was ready.
    pub(super) fn scrub_is_held(&self, class: ClassId, now: Time) -> bool {
        let state = &self.classes[class.index()];
        let overdue = state.awake().is_some_and(|group| self.scrubber.is_overdue(group, now));
        overdue && self.scrubber.is_own(class) && now < state.ready_at + self.setup.policy.scheduler.quantum
    }

    /// Another group of `class` is wanted for `priority`. True if the pass for which `group` was woken continues.
    pub(super) fn scrub_holds(
        &mut self,
        class: ClassId,
        group: GroupId,
        priority: PriorityClass,
        step: &mut Step,
    ) -> bool {
        let patient = priority != PriorityClass::Client || self.scrubber.is_overdue(group, step.now);
        patient && self.scrubber.is_own(class) && self.scrub_next(class, group, step.now, step)
    }

    /// Continues the pass of `group`, which is awake and has had no other work since `idle_since`. True while there is
    /// something to wait for.
    pub(super) fn scrub_next(&mut self, class: ClassId, group: GroupId, idle_since: Time, step: &mut Step) -> bool {
        assert!(self.classes[class.index()].in_service.is_none(), "one operation in service per class");
        if !self.scrubber.may_begin(class, group, idle_since, step.now) {
            return false;
        }
        if !self.has_room_for_repairs(class) {
            return false;
        }
        if !self.enough_ready(group) {
            self.scrubber.none_is_there(group, step.now);
            return false;
        }
        let may_go_on = self.scrubber.may_go_on(class, group, idle_since, step.now);
        loop {
            let waits = match self.scrubber.next(class, group, may_go_on, step.now) {
                Next::Done => return false,
                Next::Wait => true,
                Next::Page => self.list_to_scrub(class, group, step),
                Next::Step if self.begin_scrub_step(class, group, step) => return true,
                Next::Step => continue,
            };
            if waits {
                // The page arrives as an event; there is no time to look before.
                self.classes[class.index()].stay_until(Time::MAX);
            }
            return waits;
        }
    }

    /// True if the queue of `class` has room for the repairs of one more blob. A pass that finds much damage waits for
    /// its repairs here; otherwise a full queue would refuse them.
    fn has_room_for_repairs(&self, class: ClassId) -> bool {
        let queued = self.classes[class.index()].queues.queue_len(PriorityClass::Rebuild);
        let free = (self.setup.policy.scheduler.queue_depth as usize).saturating_sub(queued);
        queued == 0 || free >= usize::from(self.setup.spec.code.parity)
    }

    fn enough_ready(&self, group: GroupId) -> bool {
        let ready = self.setup.members(group).iter().filter(|drive| self.drives.is_ready(**drive));
        ready.count() >= self.setup.data_stacks()
    }

    /// Asks for the next page of `group`. False if no page is left: its pass is complete.
    fn list_to_scrub(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        let attempt = self.ops.own_attempt();
        let asked = self.scrubber.list(class, group, attempt, step.now);
        let is_asked = asked.is_some();
        if let Some(action) = asked {
            step.ask(action);
        }
        self.persist_scrub(group, step);
        is_asked
    }

    /// Starts the next step in the current blob of `class`. False if the blob cannot be read now, or need not be.
    fn begin_scrub_step(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        let code = self.setup.spec.code;
        let Some(at) = self.scrubber.at(class) else { return false };
        let (from, blob) = (at.from, at.blob.clone());
        let stacks = self.drives.ready_stacks(&blob.drives);
        let is_ready = |index: &u8| stacks.iter().any(|(ready, _)| ready == index);
        at.unread.extend((0_u8..).take(blob.drives.len()).filter(|index| !is_ready(index)));
        if blob.living && stacks.len() < usize::from(code.data) && self.may_be_there_later(&blob) {
            self.put_off_to_scrub(class, group, step);
            return false;
        }
        if !blob.living || stacks.len() < usize::from(code.data) {
            self.scrub_blob_done(class, group, step);
            return false;
        }
        let to = self.scrubber.step_end(from, blob.bytes, code.stripe_bytes());
        assert!(from < to && to <= blob.bytes, "a step of {} reads something of it", blob.blob);
        let (op, drives) = (self.ops.own_number(), blob.drives);
        let work = Work::Scrub { blob: blob.blob, group, drives: drives.clone(), bytes: to - from, to };
        let request = Request { op, priority: PriorityClass::Background, overtake_limit: None, work };
        self.ops.insert(Op::new(request, class, group));
        self.scrubber.set_stepping(class, true);
        let transfer = Transfer::Scrub { blob: blob.blob, group, drives, stacks, need: code.data, from, to };
        self.begin_transfer(op, transfer, step);
        true
    }

    /// True if enough drives of `blob` may be present at another time.
    fn may_be_there_later(&self, blob: &BlobOnDrive) -> bool {
        self.drives.failed_count(&blob.drives) <= usize::from(self.setup.spec.code.parity)
    }

    /// Postpones the current blob of `class`, which cannot be read now.
    fn put_off_to_scrub(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        self.scrubber.put_off(class, group, step.now);
        self.persist_scrub(group, step);
    }

    /// Ends a step.
    pub(super) fn scrub_ended(&mut self, op: OpId, outcomes: &[DriveOutcome], done: bool, step: &mut Step) {
        let Some(state) = self.ops.get(op) else { return };
        let Work::Scrub { blob, group, bytes, to, .. } = state.request.work else { return };
        let class = state.class;
        self.scrubber.set_stepping(class, false);
        self.stats.scrubbed_bytes += if done { bytes } else { 0 };
        let at = self.scrubber.at(class).filter(|at| at.blob.blob == blob);
        let Some(at) = at.filter(|_| !outcomes.is_empty()) else {
            // The blob is gone, or the pass was restarted meanwhile and is not at this blob any more.
            if self.scrubber.at(class).is_some_and(|at| at.blob.blob == blob) {
                self.scrub_blob_done(class, group, step);
            }
            return self.finish(op, Outcome::Scrubbed(Scrubbed::Gone), step);
        };
        at.take_note(outcomes);
        let all_answered = self.drives.all_asked(&at.blob.drives, outcomes) && outcomes.iter().all(has_answered);
        if !done && !all_answered {
            let blob = at.blob.clone();
            if self.may_be_there_later(&blob) {
                self.put_off_to_scrub(class, group, step);
            } else {
                self.scrub_blob_done(class, group, step);
            }
            return self.finish(op, Outcome::Scrubbed(Scrubbed::Unread), step);
        }
        at.lost |= !done;
        at.from = to;
        if to < at.blob.bytes || at.ends_round() {
            return self.finish(op, Outcome::Scrubbed(Scrubbed::InPart), step);
        }
        let (found, blob) = (found_of(at), at.blob.clone());
        if let Scrubbed::Damaged(stacks) = &found
            && !self.queue_repairs(&blob, group, stacks, step.now)
        {
            self.put_off_to_scrub(class, group, step);
        } else {
            self.scrub_blob_done(class, group, step);
        }
        self.finish(op, Outcome::Scrubbed(found), step);
    }

    /// The pass of `group` has finished its current blob.
    fn scrub_blob_done(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> Option<AtBlob> {
        let at = self.scrubber.done(class, group)?;
        if self.scrubber.page_is_done(class) || !at.bad.is_empty() || at.lost {
            self.persist_scrub(group, step);
        }
        Some(at)
    }
}

impl AtBlob {
    /// Records the findings of a step on each drive.
    fn take_note(&mut self, outcomes: &[DriveOutcome]) {
        for DriveOutcome { drive, result } in outcomes {
            let at = self.blob.drives.iter().position(|other: &DriveId| other == drive);
            let Some(index) = at.and_then(|at| u8::try_from(at).ok()) else { continue };
            match result {
                DriveResult::Fine => {}
                DriveResult::StackBad => {
                    self.bad.insert(index);
                }
                DriveResult::Repaired { .. } => {
                    self.repaired.insert(index);
                }
                _ => {
                    self.unread.insert(index);
                }
            }
        }
    }
}

/// True if a drive has reported the state of its stack.
fn has_answered(outcome: &DriveOutcome) -> bool {
    matches!(outcome.result, DriveResult::Fine | DriveResult::Repaired { .. } | DriveResult::StackBad)
}

/// The result for a blob that was read to its end.
fn found_of(at: &AtBlob) -> Scrubbed {
    match at {
        at if at.lost => Scrubbed::Lost,
        at if !at.bad.is_empty() => Scrubbed::Damaged(at.bad.iter().copied().collect()),
        at if !at.before.is_empty() => Scrubbed::Repaired(at.before.iter().copied().collect()),
        _ => Scrubbed::Sound,
    }
}
