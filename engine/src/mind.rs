//! What a world needs of whatever decides: facts in, wishes out, and when to be woken.
//!
//! [`Rack`] is the one that serves. The simulator puts a straw man of the paper beside it ([`crate::baseline`]) in the
//! very same world, so that what is compared is the deciding alone.

use crate::action::Action;
use crate::deadlines::DriveDeadlines;
use crate::event::Event;
use crate::rack::Rack;
use alloc::vec::Vec;
use core::time::Duration;
use model::{OpId, RackSpec, Time};

/// What its schedulers have spent on waking and resting drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waking {
    /// Their time from the wish for other drives to those being ready, added up.
    pub time: Duration,
    /// How many schedulers there are.
    pub schedulers: u32,
}

/// Decides for a rack.
pub trait Mind {
    /// Takes note of `event` and appends to `actions` what is to be done about it. `now` never goes back.
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>);

    /// When to send [`Event::DeadlineReached`], if nothing happens before; [`Time::MAX`] is never.
    fn next_deadline(&self) -> Time;

    /// The rack's description.
    fn spec(&self) -> &RackSpec;

    /// How long a drive may take for what it is asked.
    fn drive_deadlines(&self) -> DriveDeadlines;

    /// When `op`, which is in service, was taken out of its queue: its service time counts from then, and so with the
    /// wake that it caused.
    fn picked_at(&self, op: OpId) -> Option<Time>;

    /// What was spent on waking so far.
    fn waking(&self) -> Waking;
}

impl Mind for Rack {
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        Self::apply(self, now, event, actions);
    }

    fn next_deadline(&self) -> Time {
        Self::next_deadline(self)
    }

    fn spec(&self) -> &RackSpec {
        Self::spec(self)
    }

    fn drive_deadlines(&self) -> DriveDeadlines {
        Self::drive_deadlines(self)
    }

    fn picked_at(&self, op: OpId) -> Option<Time> {
        let class = &self.classes[self.ops.get(&op)?.class.index()];
        class.in_service.filter(|service| service.op == op).map(|_| class.picked_at)
    }

    fn waking(&self) -> Waking {
        Waking { time: self.stats.switching, schedulers: self.classes.len() as u32 }
    }
}
