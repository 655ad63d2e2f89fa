//! The checkpoint schedule of an active job: the times at which it makes its progress durable.
//!
//! 1. The job has made progress, and the interval has passed since the last checkpoint. The time in which the job
//!    waited, for example for starts of the next day, does not count. The buffers are emptied.
//! 2. When nothing is buffered and no step is in hand, the job asks the world for the checkpoint.
//! 3. The job resumes after the answer, even if the checkpoint failed.
//!
//! If the buffers cannot be emptied, for example because a group has no room for offloaded bytes, the checkpoint is
//! postponed by an interval; the job does not fail.
//!
//! Invariant: at most a fiftieth of a job's time is spent on writing buffers for checkpoints and reading them back.

use core::time::Duration;
use model::{Attempt, Time};

/// The inverse of the largest part of a job's time that checkpoints take.
const PART_MAX: u32 = 50;

/// The checkpoints of an active job.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    interval: Duration,
    /// The time when the last checkpoint was taken or postponed, or the job started.
    last: Option<Time>,
    /// The time that the job had waited at `last`, and until now.
    waited: [Duration; 2],
    /// True if there was progress since.
    changed: bool,
    phase: CheckpointPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckpointPhase {
    /// The job works.
    Working,
    /// Its buffers are being emptied.
    Emptying,
    /// The world is making the checkpoint durable.
    Taking(Attempt),
}

impl Checkpoints {
    /// The schedule of a job whose checkpoints take at most `cost` each.
    pub fn new(interval: Duration, cost: Duration) -> Self {
        let interval = interval.max(cost.saturating_mul(PART_MAX));
        Self { interval, last: None, waited: [Duration::ZERO; 2], changed: false, phase: CheckpointPhase::Working }
    }

    /// Records progress of the job.
    pub fn changed(&mut self) {
        assert!(!self.is_taken(), "nothing is done while a checkpoint is taken");
        self.changed = true;
    }

    /// True if a checkpoint becomes due now. `waited` is the time that the job has waited since it started.
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

    /// True while buffers are being emptied for a checkpoint.
    pub fn is_emptying(&self) -> bool {
        self.phase == CheckpointPhase::Emptying
    }

    /// True while the world is making a checkpoint durable.
    pub fn is_taken(&self) -> bool {
        matches!(self.phase, CheckpointPhase::Taking(_))
    }

    /// The buffers are empty, and the world is asked for the checkpoint.
    pub fn take(&mut self, attempt: Attempt) {
        assert!(self.is_emptying(), "buffers are emptied before a checkpoint");
        self.phase = CheckpointPhase::Taking(attempt);
    }

    /// The world has answered; false if this attempt was not asked for.
    pub fn ended(&mut self, now: Time, attempt: Attempt, done: bool) -> bool {
        if self.phase != CheckpointPhase::Taking(attempt) {
            return false;
        }
        self.changed &= !done;
        self.put_off(now);
        true
    }

    /// Postpones the checkpoint: the job continues as if none had been due.
    pub fn put_off(&mut self, now: Time) {
        assert!(self.waited[0] <= self.waited[1], "time that was waited does not come back");
        (self.phase, self.last, self.waited[0]) = (CheckpointPhase::Working, Some(now), self.waited[1]);
    }
}
