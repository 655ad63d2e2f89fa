//! The knowledge about a disk while it should sleep.

use crate::counters::IoCounters;

/// The knowledge about a disk while it sleeps.
#[derive(Default)]
pub(super) struct Sleep {
    /// The kernel's counters when it was last seen asleep, and the number of commands sent from here until then; `None`
    /// while it should not sleep.
    pub(super) asleep: Option<(IoCounters, u64)>,
    /// Number of times that it was started from here or mounted, or that another disk took its place.
    pub(super) starts: u64,
    /// True if it was last seen stopped, and was not started from here since. Unlike its counters, this is also known
    /// for a disk whose power was cut.
    pub(super) stands_still: bool,
    /// True if it was not present at the last look.
    pub(super) gone: bool,
}

impl Sleep {
    /// Notes that it was just seen asleep, with these counters.
    pub fn begins(&mut self, counters: Option<(IoCounters, u64)>) {
        self.asleep = counters;
        self.stands_still = true;
    }

    /// Notes that it is about to be started.
    pub fn ends(&mut self) {
        self.asleep = None;
        self.starts += 1;
        self.stands_still = false;
    }
}
