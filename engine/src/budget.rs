//! The daily start budget: the number of starts that each drive may make a day for background work.
//!
//! Drives are rated for a number of start-stop cycles over their life; spread evenly, 30,000 over 8 years is 10 a day
//! (Serviceable cold storage, section 4). Clients and rebuilds may exceed the budget, since a wait until tomorrow costs
//! more than a cycle; those starts are counted. Background work may not exceed it.
//!
//! Invariant: a drive's day never goes back, so a clock that is set back gives no drive a second budget for the same
//! day.

use crate::policy::PriorityClass;
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

    /// At boot: `drive` was started this number of times on `day`.
    pub fn restore(&mut self, drive: DriveId, day: u32, starts: u32) {
        self.drives[drive.index()] = StartsUsed { day, starts };
    }

    /// True if `drive` may be started now for work of `priority`.
    pub fn may_start(&self, drive: DriveId, now: Time, priority: PriorityClass) -> bool {
        priority != PriorityClass::Background || self.starts_today(drive, now) < self.per_day
    }

    /// Counts a start of `drive`. Returns the record to store: the day, and the starts on it.
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

    /// Number of starts of `drive` on the day of `now`, or on its last recorded day if that is later.
    pub fn starts_today(&self, drive: DriveId, now: Time) -> u32 {
        let used = self.drives[drive.index()];
        if used.day < now.day() { 0 } else { used.starts }
    }

    /// The start of the next day, when budgets are renewed; [`Time::MAX`] on the last day.
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
    fn the_last_day_has_no_next() {
        assert_eq!(StartBudget::next_day(Time::MAX), Time::MAX);
    }
}
