//! Start and end of operations: admission, placement, queueing, cancelling, and the one answer to each.
//!
//! A write is placed when it is admitted, so that space is reserved while it waits.
//!
//! Invariant: an operation has an entry in `ops` from its admission to its answer, and a reservation no longer than
//! that.

use super::Rack;
use crate::action::{Action, Outcome, Rejection};
use crate::class::GroupState;
use crate::event::{Request, Work};
use crate::ops::Op;
use crate::placement::Wanted;
use crate::policy::{PinnedTo, PriorityClass};
use crate::reorder::Queued;
use crate::step::Step;
use alloc::boxed::Box;
use alloc::vec::Vec;
use model::{ClassId, DriveId, GroupId, OpId, Time};

impl Rack {
    pub(super) fn submitted(&mut self, request: Box<Request>, step: &mut Step) {
        self.submit(request, false, step);
    }

    /// Admits a read or an inspection that does not justify a wake.
    pub(super) fn submitted_while_awake(&mut self, request: Box<Request>, step: &mut Step) {
        self.submit(request, true, step);
    }

    fn submit(&mut self, request: Box<Request>, while_awake: bool, step: &mut Step) {
        if !self.is_new(&request) {
            return;
        }
        if self.closing {
            self.reject(&request, Rejection::Closing, step);
            return;
        }
        match self.admit(&request, step.now) {
            Ok((group, drives)) => {
                let class = self.setup.class_of(group);
                if while_awake && drives.is_empty() && self.classes[class.index()].up() != Some(group) {
                    return self.reject(&request, Rejection::Asleep, step);
                }
                // The usual case in a busy rack. A write is refused later, since its space must be released.
                if drives.is_empty() && self.classes[class.index()].queues.is_full(request.priority) {
                    return self.reject(&request, Rejection::QueueFull, step);
                }
                let op = Op::new(*request, class, group).with_reserved(drives);
                self.enqueue(if while_awake { op.while_awake() } else { op }, step);
            }
            Err(reason) => {
                if reason == Rejection::NoRoom {
                    self.room.note(&request.work);
                    if let Work::Write { pin, .. } = request.work {
                        self.visit_most_dead(pin, step);
                    }
                }
                self.reject(&request, reason, step);
            }
        }
    }

    /// True for a new request: the world numbers its operations upwards, and the migrator awaits a migration write
    /// until it ends.
    fn is_new(&mut self, request: &Request) -> bool {
        if self.ops.contains(request.op) {
            return false;
        }
        match request.work {
            Work::Write { migration: true, .. } => self.migrator.awaits(request.op),
            Work::Visit { .. } => self.ops.may_be_numbered(request.op),
            _ => self.ops.note_number(request.op),
        }
    }

    /// The group that will serve the operation, and the drives of a write.
    fn admit(&mut self, request: &Request, now: Time) -> Result<(GroupId, Vec<DriveId>), Rejection> {
        match &request.work {
            Work::Read { group, drives, .. } => {
                self.validate(*group, drives)?;
                self.drives.enough_left(drives, self.setup.data_stacks())?;
                Ok((*group, Vec::new()))
            }
            Work::Delete { group, drives, .. } => self.validate(*group, drives).map(|()| (*group, Vec::new())),
            Work::Visit { group } | Work::Inspect { group } => {
                self.validate(*group, &[]).map(|()| (*group, Vec::new()))
            }
            // Only the engine itself requests these.
            Work::Rebuild { .. } | Work::Initialise { .. } | Work::Scrub { .. } | Work::ScrubWake { .. } => {
                Err(Rejection::Malformed)
            }
            Work::Write { bytes, stack_bytes, pin, .. } => {
                self.validate_pin(*pin)?;
                self.place_new(request, self.wanted(*bytes, *stack_bytes, *pin), now)
            }
        }
    }

    /// The space that a write of `bytes` in stacks of `stack_bytes` needs.
    pub(super) fn wanted(&self, bytes: u64, stack_bytes: u64, pin: PinnedTo) -> Wanted<'static> {
        Wanted { pin, choice: self.setup.policy.group_choice, ..Wanted::anywhere(bytes, stack_bytes) }
    }

    fn place_new(
        &mut self,
        request: &Request,
        wanted: Wanted,
        now: Time,
    ) -> Result<(GroupId, Vec<DriveId>), Rejection> {
        let Wanted { stack_bytes, pin, .. } = wanted;
        let mut spent = self.without_starts(request.priority, now);
        spent.retain(|group| pin.allows(*group, self.setup.class_of(*group)));
        let place = self.place_where_composed(request.op, wanted, &spent);
        place.or_else(|| self.place(wanted, &spent)).ok_or_else(|| match pin {
            _ if !spent.is_empty() => Rejection::StartBudgetSpent,
            // No other group is tried, and nothing has to be removed: the drives have to come back.
            PinnedTo::Group(group) if self.placement.has_room_away(group, stack_bytes) => Rejection::TooManyDrivesAway,
            _ => Rejection::NoRoom,
        })
    }

    /// Groups that sleep and may not be woken for `priority` again today.
    fn without_starts(&self, priority: PriorityClass, now: Time) -> Vec<GroupId> {
        let asleep = |group: &GroupId| self.group_state(*group) == GroupState::Asleep;
        self.setup.groups().filter(|group| asleep(group) && !self.may_start(*group, priority, now)).collect()
    }

    fn validate(&self, group: GroupId, drives: &[DriveId]) -> Result<(), Rejection> {
        let known = group.index() < self.setup.layout.groups.len()
            && self.setup.owns(group)
            && drives.iter().all(|drive| self.drives.knows(*drive));
        if known { Ok(()) } else { Err(Rejection::Malformed) }
    }

    fn validate_pin(&self, pin: PinnedTo) -> Result<(), Rejection> {
        match pin {
            PinnedTo::Class(class) if class.index() >= self.classes.len() => Err(Rejection::Malformed),
            PinnedTo::Group(group) => self.validate(group, &[]),
            PinnedTo::Anywhere | PinnedTo::Class(_) => Ok(()),
        }
    }

    pub(super) fn place(&mut self, wanted: Wanted, excluded: &[GroupId]) -> Option<(GroupId, Vec<DriveId>)> {
        let mut excluded = excluded.to_vec();
        excluded.extend(self.setup.groups().filter(|group| !self.setup.owns(*group)));
        let wanted = Wanted { excluded_groups: &excluded, ..wanted };
        let place = self.placement.choose(&wanted, &mut self.rng);
        assert!(
            place.as_ref().is_none_or(|(group, _)| self.setup.owns(*group)),
            "a write is placed in a class of ours"
        );
        place
    }

    /// The place of a write that was recomposed while its group was awake: that group, if possible.
    fn place_where_composed(
        &mut self,
        op: OpId,
        wanted: Wanted,
        excluded: &[GroupId],
    ) -> Option<(GroupId, Vec<DriveId>)> {
        let composed = self.migrator.group_of(op).filter(|group| !excluded.contains(group))?;
        let others: Vec<GroupId> = self.setup.groups().filter(|group| *group != composed).collect();
        let place = self.place(wanted, &others);
        assert!(place.as_ref().is_none_or(|(group, _)| *group == composed), "it goes to {composed} or nowhere");
        place
    }

    /// Reclaims deleted bytes at once while a write finds no room.
    pub(super) fn reclaim_if_full(&mut self, step: &mut Step) {
        if let Some(pin) = self.room.unplaced.map(|wanted| wanted.pin)
            && self.booted
            && !self.closing
        {
            self.visit_most_dead(pin, step);
        }
    }

    /// Reclaims deleted bytes of `group` at once while rebuilds find no room there: nothing else may wake it.
    pub(super) fn reclaim_for_rebuilds(&mut self, group: GroupId, step: &mut Step) {
        // The catalog may name a group that this rack does not have; no rebuild is there.
        let may_help = self.rebuilder.lacks_room(group) && self.reclaim.reclaimable_bytes(group) > 0;
        if may_help && self.booted && !self.closing {
            self.visit(group, step);
        }
    }

    /// Visits the group with most reclaimable bytes that `pin` allows, if any has some, so that a retry finds room.
    fn visit_most_dead(&mut self, pin: PinnedTo, step: &mut Step) {
        let reclaimable = |group: &GroupId| self.reclaim.reclaimable_bytes(*group);
        let groups = self.setup.groups_for(pin).filter(|group| reclaimable(group) > 0);
        if let Some(group) = groups.max_by_key(reclaimable) {
            self.visit(group, step);
        }
    }

    /// Makes sure that `group` is visited, so that its dead blobs are reclaimed.
    fn visit(&mut self, group: GroupId, step: &mut Step) {
        assert!(!self.closing, "nobody wakes {group} for room once the rack closes");
        assert!(self.reclaim.reclaimable_bytes(group) > 0, "{group} is visited for what can be given back");
        if self.ops.visits(group) {
            return;
        }
        let op = self.ops.own_number();
        let request =
            Request { op, priority: PriorityClass::Background, overtake_limit: None, work: Work::Visit { group } };
        self.submitted(Box::new(request), step);
    }

    /// Queues `op`, or rejects it if its queue is full.
    pub(super) fn enqueue(&mut self, op: Op, step: &mut Step) {
        if let Some(mut refused) = self.queue(op, step.now) {
            let (drives, stack_bytes) = refused.take_reserved();
            self.placement.release(&drives, stack_bytes);
            self.reject(&refused.request, Rejection::QueueFull, step);
        }
    }

    /// Queues `op` in its class. Returns it if the queue is full.
    pub(super) fn queue(&mut self, op: Op, now: Time) -> Option<Op> {
        let request = &op.request;
        let queued = Queued {
            op: request.op,
            group: op.group,
            weight: self.setup.weight(&request.work),
            switch_weight: self.setup.switch_weight(),
            overtake_limit: request.overtake_limit.unwrap_or(self.setup.policy.scheduler.overtake_limit),
            due: self.setup.due(request, now),
        };
        assert!(self.setup.class_of(op.group) == op.class, "{} is queued in the class of its group", request.op);
        let is_write = matches!(request.work, Work::Write { .. });
        assert!(op.reserved.is_empty() != is_write, "space is reserved for a write while it waits");
        if self.classes[op.class.index()].push(request.priority, queued).is_err() {
            return Some(op);
        }
        assert!(!self.closing, "nothing is queued any more once the rack closes");
        self.ops.insert(op);
        None
    }

    /// Releases the space that is reserved for an operation.
    pub(super) fn release_space(&mut self, op: OpId) {
        if let Some(op) = self.ops.get_mut(op) {
            let (drives, stack_bytes) = op.take_reserved();
            self.placement.release(&drives, stack_bytes);
        }
    }

    pub(super) fn cancelled(&mut self, op: OpId, step: &mut Step) {
        let Some(known) = self.ops.get(op) else {
            self.migrator.ended(step.now, op, true); // a pack that had no versions left
            return;
        };
        if !self.classes[known.class.index()].remove(op) {
            return; // in service, or its group is waking for it
        }
        self.release_space(op);
        self.finish(op, Outcome::Cancelled, step);
    }

    /// Ends the operations of `group`, which goes to sleep, that do not justify a wake.
    pub(super) fn end_while_awake(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        for op in self.ops.while_awake(group) {
            if self.classes[class.index()].give_up(op) {
                self.finish(op, Outcome::Failed(Rejection::Asleep), step);
            }
        }
        let left = self.ops.while_awake(group);
        assert!(left.is_empty(), "{left:?} would wake {group} again");
    }

    /// Ends the pending operation, which may not wake its group again today.
    pub(super) fn give_up_for_budget(&mut self, class: ClassId, step: &mut Step) {
        let Some(pick) = self.classes[class.index()].give_up_pending() else { return };
        assert!(self.ops.contains(pick.op), "{} waits for its group", pick.op);
        self.release_space(pick.op);
        self.finish(pick.op, Outcome::Failed(Rejection::StartBudgetSpent), step);
    }

    /// Forgets `op` and reports its outcome, except for visits and initialisations, for which no client waits, and for
    /// rebuilds that never were in service, which are unknown outside.
    pub(super) fn finish(&mut self, op: OpId, outcome: Outcome, step: &mut Step) {
        let ended = self.ops.remove(op);
        self.jobs.operation_ended(op, &outcome);
        let settled = ended.as_ref().is_none_or(|ended| ended.reserved.is_empty());
        assert!(settled, "no space stays reserved for {op}, which is over");
        let work = ended.as_ref().map(|ended| &ended.request.work);
        if let Some(Work::ScrubWake { group }) = work {
            return self.scrub_wake_ended(*group, &outcome, step.now);
        }
        if let Some(Work::Scrub { .. }) = work {
            return step.ask(Action::Finished { op, outcome });
        }
        if let Some(Work::Rebuild { blob, group, drives, lost, stack_bytes, in_place, .. }) = work {
            if !in_place {
                self.rebuilder.ended(drives[usize::from(*lost)], *blob, &outcome, *stack_bytes);
            } else if outcome == Outcome::Rebuilt {
                self.scrubber.repaired(*group);
            }
            if ended.as_ref().is_some_and(Op::was_served) {
                step.ask(Action::Finished { op, outcome });
            }
            return;
        }
        if let Outcome::Written { group, drives } = &outcome {
            assert!(drives.len() == self.setup.spec.code.stacks(), "{op} was written to k + r drives");
            assert!(drives.iter().all(|drive| self.setup.layout.group_of(*drive) == Some(*group)), "all of {group}");
        }
        if let Some(Work::Initialise { group }) = ended.as_ref().map(|ended| &ended.request.work) {
            return self.initialisation_ended(*group, op, step.now);
        }
        let visit = ended.is_some_and(|op| matches!(op.request.work, Work::Visit { .. }));
        self.migrator.ended(step.now, op, matches!(outcome, Outcome::Written { .. }));
        if let Outcome::Failed(reason) = &outcome {
            self.stats.refused += 1;
            self.stats.data_lost += u64::from(*reason == Rejection::DataLost);
        }
        if !visit {
            step.ask(Action::Finished { op, outcome });
        }
    }

    /// Refuses an operation that was never admitted.
    fn reject(&mut self, request: &Request, reason: Rejection, step: &mut Step) {
        assert!(!self.ops.contains(request.op), "{} is answered once", request.op);
        self.migrator.ended(step.now, request.op, false);
        self.jobs.operation_ended(request.op, &Outcome::Failed(reason));
        self.stats.refused += 1;
        if !matches!(request.work, Work::Visit { .. }) {
            step.ask(Action::Rejected { op: request.op, reason });
        }
    }
}
