//! When a job at work makes durable how far it is.
//!
//! 1. Something was done, and the interval has passed since the last checkpoint, but for the time in which the job
//!    waited, such as for starts of the next day: the buffers are emptied.
//! 2. When nothing is buffered and no step is in hand, the world is asked for the checkpoint.
//! 3. Its answer lets the job go on, done or not.
//!
//! An obstacle to emptying the buffers, such as a group without room for what would be offloaded, puts the
//! checkpoint off for an interval: it costs no job its end.
//!
//! Invariant: no more than a fiftieth of a job's time goes into writing buffers for checkpoints and reading them back.

use core::time::Duration;
use model::{Attempt, Time};

/// The part of a job's time that checkpoints take, at most: one in so many.
const PART_MAX: u32 = 50;

/// The checkpoints of a job at work.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    interval: Duration,
    /// When the last one was taken or put off, or the job began.
    last: Option<Time>,
    /// The time that the job had waited by then, and until now.
    waited: [Duration; 2],
    /// Whether anything was done since.
    changed: bool,
    phase: CheckpointPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckpointPhase {
    /// The job works.
    Working,
    /// Its buffers are being emptied.
    Emptying,
    /// The world is making it durable.
    Taking(Attempt),
}

impl Checkpoints {
    /// A job whose checkpoints cost so much at most.
    pub fn new(interval: Duration, cost: Duration) -> Self {
        let interval = interval.max(cost.saturating_mul(PART_MAX));
        Self { interval, last: None, waited: [Duration::ZERO; 2], changed: false, phase: CheckpointPhase::Working }
    }

    /// Something was done.
    pub fn changed(&mut self) {
        assert!(!self.is_taken(), "nothing is done while a checkpoint is taken");
        self.changed = true;
    }

    /// Whether one becomes due now. The job has waited so long since it began.
    pub fn begins(&mut self, now: Time, waited: Duration) -> bool {
        assert!(waited >= self.waited[1], "time that was waited does not come back");
        self.waited[1] = waited;
        let worked = now.since(*self.last.get_or_insert(now)).saturating_sub(waited.saturating_sub(self.waited[0]));
        let due = self.changed && worked >= self.interval && self.phase == CheckpointPhase::Working;
        if due {
            self.phase = CheckpointPhase::Emptying;
        }
        due
    }

    /// Whether buffers are being emptied for one.
    pub fn is_emptying(&self) -> bool {
        self.phase == CheckpointPhase::Emptying
    }

    /// Whether the world is making one durable.
    pub fn is_taken(&self) -> bool {
        matches!(self.phase, CheckpointPhase::Taking(_))
    }

    /// The buffers are empty, and the world is asked for it.
    pub fn take(&mut self, attempt: Attempt) {
        assert!(self.is_emptying(), "buffers are emptied before a checkpoint");
        self.phase = CheckpointPhase::Taking(attempt);
    }

    /// The world has answered; false if that was not asked for.
    pub fn ended(&mut self, now: Time, attempt: Attempt, done: bool) -> bool {
        if self.phase != CheckpointPhase::Taking(attempt) {
            return false;
        }
        self.changed &= !done;
        self.put_off(now);
        true
    }

    /// Not now: the job goes on as if none had been due.
    pub fn put_off(&mut self, now: Time) {
        assert!(self.waited[0] <= self.waited[1], "time that was waited does not come back");
        (self.phase, self.last, self.waited[0]) = (CheckpointPhase::Working, Some(now), self.waited[1]);
    }
}
