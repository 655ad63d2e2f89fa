//! What is known of a disk while it is supposed to sleep.

use crate::counters::IoCounters;

/// What is known of a disk while it sleeps.
#[derive(Default)]
pub(super) struct Sleep {
    /// The kernel's counters when it was last seen asleep, and the commands sent from here until then; `None` while it
    /// is not supposed to sleep.
    pub(super) asleep: Option<(IoCounters, u64)>,
    /// It was last seen standing still, and nobody here has started it since. Unlike its counters, that is known of one
    /// whose power was taken away.
    pub(super) stands_still: bool,
    /// It was not there when it was last looked for.
    pub(super) gone: bool,
}

impl Sleep {
    /// It was just seen asleep, with these counters.
    pub fn begins(&mut self, counters: Option<(IoCounters, u64)>) {
        self.asleep = counters;
        self.stands_still = true;
    }

    /// It is about to be started.
    pub fn ends(&mut self) {
        self.asleep = None;
        self.stands_still = false;
    }
}
