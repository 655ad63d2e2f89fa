//! The interface of a controller: events in, actions and the next deadline out.
//!
//! [`Rack`](crate::Rack) is the controller that serves. The simulator runs the controllers that the paper compares it
//! with (`sim::baseline`) in exactly the same world, so that only the decisions differ.

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
    /// The sum of the times from the demand for other drives until they are ready.
    pub time: Duration,
    /// The number of schedulers.
    pub schedulers: u32,
}

static NO_THERMOMETER: Thermometer = Thermometer::none();

/// Makes the decisions for a rack.
pub trait Controller {
    /// Handles `event` and appends the resulting actions to `actions`. `now` never goes back.
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>);

    /// When to send [`Event::DeadlineReached`], if nothing happens before; [`Time::MAX`] is never.
    fn next_deadline(&self) -> Time;

    /// The rack's description.
    fn spec(&self) -> &RackSpec;

    /// The deadlines of all requests to a drive.
    fn drive_deadlines(&self) -> DriveDeadlines;

    /// When `op`, which is in service, left its queue. Its service time counts from then, so it includes the wake that
    /// it caused.
    fn picked_at(&self, op: OpId) -> Option<Time>;

    /// The client requests that wait for the class of `drive`, in thousandths of the capacity of its queue. A rack
    /// description can use it to define heavy load ([`model::HeavyLoad`]).
    fn queue_fill_permille(&self, drive: DriveId) -> u32;

    /// The time spent on waking so far.
    fn waking(&self) -> Waking;

    /// Groups that are still to be initialised; 0 for a controller that initialises none.
    fn uninitialised_groups(&self) -> usize {
        0
    }

    /// The rules by which the world judges the staged objects that it lists from its workshop.
    fn thermometer(&self) -> &Thermometer {
        &NO_THERMOMETER
    }
}
