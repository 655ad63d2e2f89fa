//! Retries of drives that are away.
//!
//! The pause doubles with each try until the drive has done all that was asked of it between a start and a stop, so a
//! drive that stays broken costs about one command or one start a day.
//!
//! Invariant: a drive has at most one try planned.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{DriveId, Time};

/// The first pause before a drive is tried again, in modelled time.
const PAUSE_MIN: Duration = Duration::from_mins(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_hours(24);

const _: () = assert!(PAUSE_MIN.as_nanos() > 0 && PAUSE_MIN.as_nanos() < PAUSE_MAX.as_nanos(), "a pause can grow");

/// The planned tries of all drives. See the head of this file.
pub(super) struct Backoff {
    /// Per drive, the pause before its last planned try.
    pauses: Vec<Duration>,
    /// Few drives are given up on at a time.
    planned: BTreeSet<(Time, DriveId)>,
    /// Drives whose pause their last try has doubled already: each try doubles it once, however much of it fails.
    doubled: BTreeSet<DriveId>,
}

impl Backoff {
    pub fn new(drive_count: usize) -> Self {
        Self { pauses: vec![Duration::ZERO; drive_count], planned: BTreeSet::new(), doubled: BTreeSet::new() }
    }

    /// Plans the next try of `drive`; it replaces an earlier plan.
    pub fn plan(&mut self, drive: DriveId, at: Time) {
        self.forget(drive);
        self.planned.insert((at, drive));
        assert!(self.planned.len() <= self.pauses.len(), "no drive has two tries planned");
    }

    /// Plans the next try of `drive`, whose last one failed, after a pause twice as long as before that one.
    pub fn plan_later(&mut self, drive: DriveId, now: Time) {
        let pause = &mut self.pauses[drive.index()];
        if self.doubled.insert(drive) {
            *pause = (*pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        }
        let at = now + *pause;
        assert!(at > now || at == Time::MAX, "the next try is in the future");
        self.plan(drive, at);
    }

    /// Drops the planned try of `drive`, which may be started at any time: that is its next try.
    pub fn begin_try(&mut self, drive: DriveId) {
        self.forget(drive);
        self.doubled.remove(&drive);
    }

    /// Drops the planned try of `drive`, if any.
    pub fn forget(&mut self, drive: DriveId) {
        self.planned.retain(|(_, planned)| *planned != drive);
    }

    /// Resets the pause to the shortest one.
    pub fn reset(&mut self, drive: DriveId) {
        self.pauses[drive.index()] = Duration::ZERO;
        self.doubled.remove(&drive);
    }

    /// Takes the next drive that is due.
    pub fn take_due(&mut self, now: Time) -> Option<DriveId> {
        // At the end of time every try would be planned for the current time, in an endless loop.
        self.planned.first().filter(|(at, _)| *at <= now && *at < Time::MAX)?;
        let (_, drive) = self.planned.pop_first()?;
        self.doubled.remove(&drive);
        Some(drive)
    }

    /// The time of the next try of any drive.
    pub fn deadline(&self) -> Time {
        self.planned.first().map_or(Time::MAX, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(backoff: &Backoff, drive: DriveId) -> u64 {
        backoff.pauses[drive.index()].as_secs() / 60
    }

    #[test]
    fn each_start_of_a_drive_is_a_try_whether_or_not_its_pause_ended() {
        let mut backoff = Backoff::new(2);
        let drive = DriveId(1);
        for expected in [10, 20, 40] {
            backoff.begin_try(drive);
            backoff.plan_later(drive, Time::ZERO);
            backoff.forget(drive);
            assert_eq!(minutes(&backoff, drive), expected);
        }
    }

    #[test]
    fn a_pause_that_was_reset_is_the_shortest_one_even_within_the_same_try() {
        let mut backoff = Backoff::new(2);
        let drive = DriveId(1);
        backoff.plan_later(drive, Time::ZERO);
        backoff.reset(drive);
        backoff.plan_later(drive, Time::ZERO);
        assert_eq!(minutes(&backoff, drive), 10);
    }

    #[test]
    fn pauses_double_up_to_a_day_and_once_for_each_try() {
        let mut backoff = Backoff::new(2);
        let drive = DriveId(1);
        let mut pause = || {
            backoff.plan_later(drive, Time::ZERO);
            backoff.forget(drive);
            backoff.plan_later(drive, Time::ZERO);
            assert_eq!(backoff.take_due(Time::MAX), Some(drive));
            minutes(&backoff, drive)
        };
        let pauses: Vec<u64> = (0..10).map(|_| pause()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]);
    }
}
