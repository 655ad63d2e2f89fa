//! Power that fails at a chosen step: every call of a drive and every commit of the catalog is a step before it is done
//! and one after.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Number of steps at one moment of virtual time after which time counts as standing still.
const STANDSTILL_STEPS: u64 = 3_000_000;

/// The power of a site. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Power(Arc<Wires>);

#[derive(Default)]
struct Wires {
    taken: AtomicU64,
    /// The step at which the power fails; 0 is never.
    fails_at: AtomicU64,
    failed: Notify,
    /// Commits until one is done and answered with an error; 0 is never.
    unanswered_in: AtomicU64,
    /// Reads of a record until the next wrong one (0 is never), the distance between wrong ones, and how many more
    /// follow.
    misread_in: AtomicU64,
    misread_every: AtomicU64,
    misreads: AtomicU64,
    /// Listings until the next one that fails (0 is never), the distance between failures, and how many more follow.
    unlisted_in: AtomicU64,
    unlisted_every: AtomicU64,
    unlisted: AtomicU64,
    /// Commits until the sync of one fails; 0 is never.
    unsynced_in: AtomicU64,
    /// The last moment at which a step was taken, since `epoch`, and the number of steps at that moment.
    epoch: std::sync::OnceLock<Instant>,
    moment_ns: AtomicU64,
    at_moment: AtomicU64,
}

impl Power {
    /// Makes the power fail `steps` steps from now.
    pub(crate) fn fail_in(&self, steps: u64) {
        assert!(steps > 0, "a step that lies ahead");
        self.0.fails_at.store(self.steps() + steps, Ordering::Relaxed);
    }

    /// The `commits`th commit from now is done, and answered with an error: 1 is the next one.
    pub(crate) fn leave_unanswered(&self, commits: u64) {
        self.0.unanswered_in.store(commits, Ordering::Relaxed);
    }

    /// Every `every`th read of a record from now is wrong, `times` times: 1 is the next one.
    pub(crate) fn misread(&self, every: u64, times: u64) {
        self.0.misread_in.store(every, Ordering::Relaxed);
        self.0.misread_every.store(every, Ordering::Relaxed);
        self.0.misreads.store(times - 1, Ordering::Relaxed);
    }

    /// Every `every`th listing from now fails, `times` times: 1 is the next one.
    pub(crate) fn leave_unlisted(&self, every: u64, times: u64) {
        self.0.unlisted_in.store(every, Ordering::Relaxed);
        self.0.unlisted_every.store(every, Ordering::Relaxed);
        self.0.unlisted.store(times - 1, Ordering::Relaxed);
    }

    /// The sync of the `commits`th commit from now fails: 1 is the next one.
    pub(crate) fn leave_unsynced(&self, commits: u64) {
        self.0.unsynced_in.store(commits, Ordering::Relaxed);
    }

    /// Restores the power, and cancels all armed faults.
    pub(crate) fn restore(&self) {
        self.0.fails_at.store(0, Ordering::Relaxed);
        for armed in [&self.0.unanswered_in, &self.0.misread_in, &self.0.unlisted_in, &self.0.unsynced_in] {
            armed.store(0, Ordering::Relaxed);
        }
    }

    /// Number of steps so far.
    pub(crate) fn steps(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Returns after the power has failed.
    pub(crate) async fn failed(&self) {
        loop {
            self.0.failed.notified().await;
            // Otherwise the notification is from an earlier failure.
            if self.0.fails_at.load(Ordering::Relaxed) != 0 {
                return;
            }
        }
    }

    /// Takes a step. Without power it never returns.
    pub(crate) async fn step(&self) {
        let taken = self.0.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.time_goes_on();
        let fails_at = self.0.fails_at.load(Ordering::Relaxed);
        if fails_at != 0 && taken >= fails_at {
            self.0.failed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Panics if the number of steps at one moment is so high that the run cannot be making progress.
    pub(crate) fn time_goes_on(&self) {
        let epoch = *self.0.epoch.get_or_init(disk::clock::monotonic);
        let now = disk::clock::monotonic().saturating_duration_since(epoch).as_nanos() as u64;
        if self.0.moment_ns.swap(now, Ordering::Relaxed) != now {
            self.0.at_moment.store(0, Ordering::Relaxed);
        }
        let steps = self.0.at_moment.fetch_add(1, Ordering::Relaxed);
        assert!(steps < STANDSTILL_STEPS, "time stands still: {steps} steps at one moment");
    }
}

/// Counts down to an armed fault; true when it is due.
fn is_due(armed: &AtomicU64) -> bool {
    let count = |left: u64| left.checked_sub(1);
    armed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1)
}

/// The same for a fault that is due `left` more times, every `every`th time.
fn repeats(armed: &AtomicU64, every: &AtomicU64, left: &AtomicU64) -> bool {
    let is_now = is_due(armed);
    let more = left.load(Ordering::Relaxed);
    if is_now && more > 0 {
        left.store(more - 1, Ordering::Relaxed);
        armed.store(every.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    is_now
}

impl Power {
    /// Counts a commit; true for the one that is done and answered with an error.
    pub(crate) fn is_unanswered(&self) -> bool {
        is_due(&self.0.unanswered_in)
    }

    /// Counts a read of a record; true for a wrong one.
    pub(crate) fn is_misread(&self) -> bool {
        repeats(&self.0.misread_in, &self.0.misread_every, &self.0.misreads)
    }

    /// Counts a listing; true for one that fails.
    pub(crate) fn is_unlisted(&self) -> bool {
        repeats(&self.0.unlisted_in, &self.0.unlisted_every, &self.0.unlisted)
    }

    /// Counts a commit; true for the one whose sync fails.
    pub(crate) fn is_unsynced(&self) -> bool {
        is_due(&self.0.unsynced_in)
    }
}

/// Enough virtual time for all work that was started beside an answer to end.
pub(crate) const SETTLED: Duration = Duration::from_millis(1);
