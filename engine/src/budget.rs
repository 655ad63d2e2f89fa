//! The daily start budget: how often each drive may be started for work that nobody waits for.
//!
//! Drives are rated for so many start-stop cycles over their life; spread evenly, 30,000 over 8 years is 10 a day
//! (Serviceable cold storage, section 4). Clients and rebuilds may go beyond it, since a wait until tomorrow costs more
//! than a cycle; that is counted. Background work may not.
//!
//! Invariants: a drive's day never goes back, so a clock that is set back gives nobody a second budget for one day.

use crate::policy::{PriorityClass, SpinDownPolicy};
use alloc::vec;
use alloc::vec::Vec;
use model::{DriveId, Time};

/// Starts used on the last day on which there were any.
#[derive(Clone, Copy, Default)]
struct StartsUsed {
    day: u32,
    starts: u32,
}

/// The budgets of a rack's drives. See the head of this file.
pub struct StartBudget {
    per_day: u32,
    drives: Vec<StartsUsed>,
    /// Starts beyond the budget, over all drives, since boot.
    pub exceeded: u64,
}

impl StartBudget {
    /// Untouched budgets of `per_day` starts for drives 0 to `drive_count - 1`.
    pub fn new(drive_count: usize, per_day: u32) -> Self {
        assert!(drive_count > 0, "a rack has drives");
        Self { per_day, drives: vec![StartsUsed::default(); drive_count], exceeded: 0 }
    }

    /// At boot: `drive` was started so many times on that day.
    pub fn restore(&mut self, drive: DriveId, day: u32, starts: u32) {
        self.drives[drive.index()] = StartsUsed { day, starts };
    }

    /// Whether `drive` may be started now for work of `priority`.
    pub fn may_start(&self, drive: DriveId, now: Time, priority: PriorityClass) -> bool {
        priority != PriorityClass::Background || self.starts_today(drive, now) < self.per_day
    }

    /// Counts a start of `drive` and says what to remember of it: the day, and the starts on it.
    pub fn record(&mut self, drive: DriveId, now: Time) -> (u32, u32) {
        let used = &mut self.drives[drive.index()];
        if used.day < now.day() {
            *used = StartsUsed { day: now.day(), starts: 0 };
        }
        assert!(used.day >= now.day(), "a drive's day never goes back");
        used.starts = used.starts.saturating_add(1);
        self.exceeded += u64::from(used.starts > self.per_day);
        (used.day, used.starts)
    }

    /// How often `drive` was started on the day of `now`.
    pub fn starts_today(&self, drive: DriveId, now: Time) -> u32 {
        let used = self.drives[drive.index()];
        if used.day < now.day() { 0 } else { used.starts }
    }

    /// Whether `policy` keeps what consists of `drives` spinning, since one of them has no starts left today.
    pub fn keeps_spinning(&self, policy: SpinDownPolicy, drives: &[DriveId], now: Time) -> bool {
        let is_exhausted = |drive: &DriveId| !self.may_start(*drive, now, PriorityClass::Background);
        policy.keeps_exhausted && drives.iter().any(is_exhausted)
    }

    /// The moment until which what consists of `drives`, is idle and has been ready since `ready_at`, keeps spinning
    /// (spin-down manager, Serviceable cold storage, section 4).
    pub fn stays_until(&self, policy: SpinDownPolicy, drives: &[DriveId], ready_at: Time, now: Time) -> Time {
        if self.keeps_spinning(policy, drives, now) { Self::next_day(now) } else { ready_at + policy.min_gap }
    }

    /// When the next day begins, and with it new budgets.
    pub fn next_day(now: Time) -> Time {
        let next = if now.day() == Time::MAX.day() { Time::MAX } else { Time::start_of_day(now.day() + 1) };
        assert!(next > now || next == Time::MAX, "the next day lies ahead");
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time::from_secs(43_200);

    #[test]
    fn background_work_stops_at_the_budget_and_others_are_counted_beyond_it() {
        let mut budget = StartBudget::new(2, 2);
        let drive = DriveId(1);
        assert_eq!((budget.record(drive, NOON), budget.record(drive, NOON)), ((0, 1), (0, 2)));
        assert!(!budget.may_start(drive, NOON, PriorityClass::Background));
        assert!(
            budget.may_start(drive, NOON, PriorityClass::Client)
                && budget.may_start(drive, NOON, PriorityClass::Rebuild)
        );
        assert_eq!(budget.exceeded, 0);
        assert_eq!((budget.record(drive, NOON), budget.exceeded), ((0, 3), 1));
        assert!(budget.may_start(DriveId(0), NOON, PriorityClass::Background), "each drive has its own");
    }

    #[test]
    fn a_new_day_brings_a_new_budget_and_a_clock_set_back_does_not() {
        let mut budget = StartBudget::new(1, 1);
        let drive = DriveId(0);
        budget.record(drive, NOON);
        let tomorrow = StartBudget::next_day(NOON);
        assert_eq!(tomorrow, Time::from_secs(86_400));
        assert!(budget.may_start(drive, tomorrow, PriorityClass::Background));
        assert_eq!(budget.record(drive, tomorrow), (1, 1));
        assert!(!budget.may_start(drive, NOON, PriorityClass::Background));
        assert_eq!((budget.record(drive, NOON), budget.starts_today(drive, tomorrow)), ((1, 2), 2));
    }

    #[test]
    fn what_was_used_before_a_restart_counts() {
        let mut budget = StartBudget::new(1, 10);
        budget.restore(DriveId(0), 0, 10);
        assert!(!budget.may_start(DriveId(0), NOON, PriorityClass::Background));
        assert!(budget.may_start(DriveId(0), Time::start_of_day(1), PriorityClass::Background));
    }

    #[test]
    fn what_has_no_starts_left_spins_until_tomorrow() {
        let mut budget = StartBudget::new(2, 1);
        let policy = SpinDownPolicy { min_gap: core::time::Duration::from_secs(60), keeps_exhausted: true };
        let until = |budget: &StartBudget, policy| budget.stays_until(policy, &[DriveId(0), DriveId(1)], NOON, NOON);
        assert_eq!(until(&budget, policy), Time::from_secs(43_260));
        budget.record(DriveId(1), NOON);
        assert_eq!(until(&budget, policy), Time::from_secs(86_400), "one of them is enough");
        assert_eq!(until(&budget, SpinDownPolicy { keeps_exhausted: false, ..policy }), Time::from_secs(43_260));
    }

    #[test]
    fn the_last_day_has_no_next() {
        assert_eq!(StartBudget::next_day(Time::MAX), Time::MAX);
    }
}
