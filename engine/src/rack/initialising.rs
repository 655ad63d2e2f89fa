//! Wakes the groups that were never woken, each once ([`crate::initialisation`]).
//!
//! Invariant: an initialisation wakes its group as any operation does, so all rules for wakes apply to it.

use super::Rack;
use crate::action::{Action, Outcome};
use crate::budget::StartBudget;
use crate::event::{Request, Work};
use crate::ops::Op;
use crate::policy::PriorityClass;
use crate::step::Step;
use model::{ClassId, GroupId, OpId, Time};

impl Rack {
    /// Work may start: all groups with drives that were never initialised are to be initialised.
    pub(super) fn booted(&mut self, now: Time) {
        if core::mem::replace(&mut self.booted, true) {
            return;
        }
        self.absences.booted(now);
        for group in self.setup.groups().filter(|group| self.setup.owns(*group)) {
            let members = self.setup.members(group);
            let never_seen = |drive| !self.drives.is_away(drive) && !self.initialisation.is_remembered(drive);
            if members.iter().any(|drive| never_seen(*drive)) {
                self.initialisation.want(group);
            }
        }
    }

    /// Groups that are left to be initialised, of all that this instance owns.
    pub fn uninitialised_groups(&self) -> usize {
        self.initialisation.left()
    }

    /// Queues the next initialisation of each class that has none queued. True if something was queued.
    pub(super) fn queue_initialisations(&mut self, step: &Step) -> bool {
        assert!(!self.closing, "nothing is initialised any more once the rack closes");
        if self.initialisation.left() == 0 {
            return false;
        }
        let mut queued = false;
        for class in (0..self.classes.len()).map(|class| ClassId(class as u32)) {
            let Some(group) = self.initialisation.next(class, step.now) else { continue };
            let work = Work::Initialise { group };
            let op = self.ops.own_number();
            let request = Request { op, priority: PriorityClass::Background, overtake_limit: None, work };
            // If the queue is full, the rack tries again after the next event.
            if self.queue(Op::new(request, class, group), step.now).is_none() {
                self.initialisation.queued(group, op);
                queued = true;
            }
        }
        queued
    }

    /// Records that `group`, which was woken for any reason, is initialised, if one of its drives is ready. True if it
    /// was woken for nothing else.
    pub(super) fn note_initialised(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        let members = self.setup.members(group);
        if !members.iter().any(|drive| self.drives.is_ready(*drive)) {
            return false;
        }
        let (op, drives) = self.initialisation.done(group, members);
        assert!(drives.iter().all(|drive| members.contains(drive)), "what is remembered of {group} is of its drives");
        if !drives.is_empty() {
            step.ask(Action::PersistInitialised { group, drives });
        }
        let Some(op) = op else { return false };
        // The group was woken for another reason, so nothing is left to do. An initialisation that caused the wake ends
        // when it is served.
        let needless = self.classes[class.index()].remove(op);
        if needless {
            self.finish(op, Outcome::Deleted, step);
        }
        !needless
    }

    /// Ends the initialisation of `group`, successful or not.
    pub(super) fn initialisation_ended(&mut self, group: GroupId, op: OpId, now: Time) {
        assert!(!self.ops.contains(op), "{op} is over");
        self.initialisation.ended(group, now, StartBudget::next_day(now));
        for drive in self.setup.members(group) {
            self.absences.tried(*drive, self.drives.is_missing(*drive));
        }
    }
}
