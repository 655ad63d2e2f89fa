//! Switches a class between its groups: drain, unmount, stop, spin up, mount (the state diagram is in
//! [`crate::class`]).
//!
//! All drives of a group start together. Where the power budget does not allow it, the rest follows as the first drives
//! come up to speed. The group becomes ready without a member that does not answer in time: a blob needs k of its k + r
//! stacks.

use super::Rack;
use crate::class::ClassPhase;
use crate::ops::TRIES_MAX;
use crate::policy::{IdleTimeout, PriorityClass};
use crate::step::Step;
use model::{ClassId, GroupId, Time};

/// Phase changes of a class that one operation may cause within one step.
const MOVES_PER_OP: usize = 5 * TRIES_MAX as usize + 1;

impl Rack {
    /// Advances `class` until it waits for the world.
    pub(super) fn advance_class(&mut self, class: ClassId, step: &mut Step) {
        // Each round of the loop changes the phase, or puts an operation into service or ends it. Where every member of
        // the wanted groups is away, the class waits for nothing, and all operations may end here, each after all its
        // tries, and each try on another group than the one before: four phases and a round for every try.
        for _ in 0..(self.ops.len() + 4) * MOVES_PER_OP {
            let moved = match self.classes[class.index()].phase {
                ClassPhase::Asleep => self.leave_sleep(class, step),
                ClassPhase::Waking { group, until } => self.continue_waking(class, group, until, step),
                ClassPhase::Awake { group, .. } => self.serve(class, group, step),
                ClassPhase::Resting { group, until } => self.continue_resting(class, group, until, step.now),
            };
            self.follow_drives();
            if !moved {
                return;
            }
        }
        panic!("a class went round without end");
    }

    fn leave_sleep(&mut self, class: ClassId, step: &mut Step) -> bool {
        let Some((group, priority)) = self.classes[class.index()].pick(step.now, None) else { return false };
        if !self.may_start(group, priority, step.now) {
            self.give_up_for_budget(class, step);
            return true;
        }
        self.classes[class.index()].begin_switch(priority, step.now);
        // A member that was found spinning is stopping; the group wakes as a whole when the drive has stopped.
        if self.drives.on_the_way(group).is_stopping() {
            self.rest(class, group, step);
        } else if !self.recover(class, group, step) {
            self.begin_waking(class, group, priority, step.now);
        }
        true
    }

    /// Starts the members that came back after their group had become ready, before the group serves anything else.
    /// With too few members it would refuse everything, and yet never be idle long enough to go to sleep and wake as a
    /// whole.
    pub(super) fn wake_returned(&mut self, class: ClassId, group: GroupId, priority: PriorityClass, now: Time) -> bool {
        let returned = self.classes[class.index()].returned && self.may_start(group, priority, now);
        if returned {
            self.begin_waking(class, group, priority, now);
        }
        returned
    }

    /// Sends another stop to members that may recover, before a group that is too small to be read wakes or serves. The
    /// number of immediate attempts on a silent drive is limited, so this terminates.
    pub(super) fn recover(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        let members = self.setup.members(group);
        let worth_it = self.drives.are_worth_recovering(members, self.setup.data_stacks(), step.now);
        if worth_it {
            self.rest(class, group, step);
        }
        worth_it
    }

    pub(super) fn may_start(&self, group: GroupId, priority: PriorityClass, now: Time) -> bool {
        self.drives.may_start(self.setup.members(group), priority, now)
    }

    fn begin_waking(&mut self, class: ClassId, group: GroupId, priority: PriorityClass, now: Time) {
        assert!(self.setup.class_of(group) == class, "a class wakes a group of its own");
        let state = &mut self.classes[class.index()];
        state.begin_switch(priority, now);
        state.begin_waking(group, now, now + self.setup.switch_timeout());
        self.reclaim.reset(class);
        self.drives.want(self.setup.members(group));
        if self.setup.policy.tries_given_up {
            self.drives.begin_trials(self.setup.members(group), now);
        }
    }

    fn continue_waking(&mut self, class: ClassId, group: GroupId, until: Time, step: &mut Step) -> bool {
        let members = self.setup.members(group);
        let over = step.now >= until;
        if !over && !self.closing && self.drives.on_the_way(group).only_starts() {
            return false;
        }
        if !self.closing {
            self.drives.request_permits(members, step);
        }
        self.drives.give_up_waiting(members, &self.setup.spec, over, step.now);
        let on_the_way = self.drives.on_the_way(group);
        let (starting, waking) = (on_the_way.is_starting(), on_the_way.is_waking());
        self.hasten_others(class, group, step.now);
        if self.closing && !starting {
            self.rest(class, group, step);
            return true;
        }
        if !waking {
            self.ready(class, group, step);
        }
        !waking
    }

    /// Hastens the sleep of idle classes that hold permits for which members of `group`, one of `waiting`, wait.
    fn hasten_others(&mut self, waiting: ClassId, group: GroupId, now: Time) {
        let IdleTimeout::After(timeout) = self.setup.policy.idle_timeout else { return };
        let blocking = self.drives.blocking(self.setup.members(group));
        if blocking.is_empty() {
            return;
        }
        assert!(self.classes[waiting.index()].idle_since().is_none(), "a class that wakes is not idle");
        for index in 0..self.classes.len() {
            let held = self.scrub_is_held(ClassId(index as u32), now);
            let class = &mut self.classes[index];
            let idle = class.idle_since().is_some() && !held;
            let Some(awake) = class.awake().filter(|_| idle) else { continue };
            if self.drives.hold_any_of(self.setup.members(awake), &blocking, &self.setup.spec) {
                class.hasten_sleep(now - timeout);
            }
        }
    }

    fn ready(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        let (switch, woke) = self.classes[class.index()].ready(group, step.now);
        if let Some(span) = woke {
            self.estimates.woke(self.load_beside(class), span);
        }
        if let Some(switch) = switch {
            let caused_by = PriorityClass::ALL.iter().position(|priority| *priority == switch.priority).unwrap_or(0);
            self.stats.group_wakes[caused_by] += 1;
            self.stats.switching += step.now.since(switch.since);
        }
        assert!(!self.drives.on_the_way(group).is_waking(), "whoever is not ready by now is done without");
        if self.note_initialised(class, group, step) {
            self.stats.initialisation_wakes += 1;
        }
        self.note_scrub_wake(class, group, step);
        self.begin_reclaim(class, group, step);
    }

    /// Starts to put the awake group of `class` to sleep.
    pub(super) fn rest(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        assert!(self.setup.class_of(group) == class, "a class puts a group of its own to sleep");
        self.end_while_awake(class, group, step);
        self.classes[class.index()].begin_resting(group, step.now, step.now + self.setup.switch_timeout());
        self.reclaim.reset(class);
        self.scrub_rests(class, group, step);
        self.drives.rest(self.setup.members(group), step);
        assert!(!self.drives.on_the_way(group).is_waking(), "no member of a group that rests is on its way up");
    }

    fn continue_resting(&mut self, class: ClassId, group: GroupId, until: Time, now: Time) -> bool {
        if self.drives.on_the_way(group).is_stopping() {
            if now < until {
                return false;
            }
            self.drives.give_up_stopping(self.setup.members(group), now);
        }
        assert!(!self.drives.on_the_way(group).is_stopping(), "a group sleeps when none of its drives is on its way");
        if let Some(span) = self.classes[class.index()].fall_asleep(now) {
            self.estimates.rested(span);
        }
        assert!(!self.drives.on_the_way(group).is_waking(), "no drive of a group that sleeps is on its way up");
        true
    }
}
