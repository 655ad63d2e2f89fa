//! The interface of whatever decides: events in, actions out, and when to be woken.
//!
//! [`Rack`](crate::Rack) is the one that serves. The simulator puts others beside it, with which the paper compares
//! (`sim::baseline`), in the very same world, so that only the decisions differ.

use crate::action::Action;
use crate::deadlines::DriveDeadlines;
use crate::event::Event;
use crate::thermometer::Thermometer;
use alloc::vec::Vec;
use core::time::Duration;
use model::{DriveId, OpId, RackSpec, Time};

/// Time that schedulers have spent on waking and resting drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waking {
    /// The times from wanting other drives to having them ready, added up.
    pub time: Duration,
    /// The number of schedulers.
    pub schedulers: u32,
}

static NO_THERMOMETER: Thermometer = Thermometer::none();

/// Decides for a rack.
pub trait Controller {
    /// Takes note of `event` and appends to `actions` what is to be done about it. `now` never goes back.
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>);

    /// When to send [`Event::DeadlineReached`], if nothing happens before; [`Time::MAX`] is never.
    fn next_deadline(&self) -> Time;

    /// The rack's description.
    fn spec(&self) -> &RackSpec;

    /// The time limits of everything that a drive is asked.
    fn drive_deadlines(&self) -> DriveDeadlines;

    /// When `op`, which is in service, left its queue: its service time counts from then, and so includes the wake that
    /// it caused.
    fn picked_at(&self, op: OpId) -> Option<Time>;

    /// The clients' requests that wait for the class of `drive`, in thousandths of what its queue may hold. By it a
    /// description may say that load is heavy ([`model::HeavyLoad`]).
    fn queue_fill_permille(&self, drive: DriveId) -> u32;

    /// The time spent on waking so far.
    fn waking(&self) -> Waking;

    /// Groups that are left to be initialised; 0 where there is no such thing.
    fn uninitialised_groups(&self) -> usize {
        0
    }

    /// The rules by which the world judges what it lists of its workshop.
    fn thermometer(&self) -> &Thermometer {
        &NO_THERMOMETER
    }
}
