//! Decides if the workshop is idle, so that data may move between the thresholds.
//!
//! SOHO's regular threshold appears only in a table of the paper; that data between it and the critical one moves only
//! while the workshop is idle is ours. Requests that follow each other with pauses are no idleness, and one request in
//! an hour is no reason to wait, so the criterion is the recent load ([`LoadMeter`](super::LoadMeter)):
//!
//! 1. Before a listing for the regular threshold starts, and before each further page of it, the world measures the
//!    load, unless it did so within a scan interval.
//! 2. Below [`IDLE_PERMILLE`] the listing continues. Otherwise it ends there, and is tried again after a scan interval.
//!    Writes that are already composed continue to the drives that spin for them; the pacer ([`super::pacing`]) gives
//!    them its least share.
//! 3. A move that clients have delayed for [`PUT_OFF_MAX`] is overdue, and continues beside them until the workshop is
//!    at its regular threshold.
//!
//! Above the critical threshold, and for due data, moves do not wait for idleness.
//!
//! Invariant: one measurement is awaited at a time, and its number is never one of a pass of checks.

use core::time::Duration;
use model::{Attempt, Time};

/// Below this load, in thousandths, the workshop is idle.
pub const IDLE_PERMILLE: u32 = 100;
/// The longest time, in modelled time, for which clients may delay a move for the regular threshold.
pub const PUT_OFF_MAX: Duration = Duration::from_hours(1);
/// The first number of these measurements; those of checks ([`super::checks`]) start at 1.
const FIRST_ATTEMPT: u32 = 1 << 31;

/// The decision if data may move between the thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The workshop is idle, or it has been busy for too long.
    Idle,
    /// Clients use the workshop.
    Busy,
    /// The load must be measured, under this number; `None` if a measurement is already under way.
    Unknown(Option<Attempt>),
}

/// Stores the load, and the time since which a move is delayed. See the head of this file.
#[derive(Clone, Debug)]
pub(crate) struct Idleness {
    /// A measurement is valid for this long.
    interval: Duration,
    /// The load, and when it was measured.
    load: Option<(u32, Time)>,
    attempt: Attempt,
    is_awaited: bool,
    /// The time since which clients delay a move.
    put_off: Option<Time>,
}

impl Idleness {
    pub(crate) fn new(interval: Duration) -> Self {
        let attempt = Attempt(FIRST_ATTEMPT);
        Self { interval, load: None, attempt, is_awaited: false, put_off: None }
    }

    /// Records that there is nothing to move.
    pub(crate) fn nothing_waits(&mut self) {
        self.put_off = None;
    }

    /// Decides if data may move at `now`.
    pub(crate) fn verdict(&mut self, now: Time) -> Verdict {
        let put_off = *self.put_off.get_or_insert(now);
        if now.since(put_off) >= PUT_OFF_MAX {
            return Verdict::Idle;
        }
        match self.load.filter(|(_, at)| now.since(*at) < self.interval) {
            Some((load, _)) if load < IDLE_PERMILLE => {
                self.put_off = None;
                Verdict::Idle
            }
            Some(_) => Verdict::Busy,
            None if core::mem::replace(&mut self.is_awaited, true) => Verdict::Unknown(None),
            None => {
                self.attempt = Attempt(self.attempt.0.wrapping_add(1).max(FIRST_ATTEMPT));
                Verdict::Unknown(Some(self.attempt))
            }
        }
    }

    /// Records a measured load. False if the measurement was for another part, or late.
    pub(crate) fn measured(&mut self, now: Time, attempt: Attempt, load_permille: u32) -> bool {
        let ours = self.is_awaited && attempt == self.attempt;
        if ours {
            (self.is_awaited, self.load) = (false, Some((load_permille, now)));
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    fn asked(idleness: &mut Idleness, now: Time) -> Attempt {
        let Verdict::Unknown(Some(attempt)) = idleness.verdict(now) else { panic!("the load is measured") };
        attempt
    }

    #[test]
    fn a_load_is_measured_once_and_holds_for_an_interval() {
        let idleness = &mut Idleness::new(INTERVAL);
        let attempt = asked(idleness, Time::from_secs(1));
        assert!(attempt.0 >= FIRST_ATTEMPT);
        assert_eq!(idleness.verdict(Time::from_secs(1)), Verdict::Unknown(None), "one at a time");
        assert!(!idleness.measured(Time::from_secs(1), Attempt(1), 0), "that of a check");
        assert!(idleness.measured(Time::from_secs(1), attempt, IDLE_PERMILLE - 1));
        assert!(!idleness.measured(Time::from_secs(2), attempt, 900), "a second answer");
        assert_eq!(idleness.verdict(Time::from_secs(5)), Verdict::Idle);
        let again = asked(idleness, Time::from_secs(6));
        assert!(again != attempt && idleness.measured(Time::from_secs(6), again, IDLE_PERMILLE));
        assert_eq!(idleness.verdict(Time::from_secs(6)), Verdict::Busy);
    }

    #[test]
    fn what_was_put_off_for_long_is_overdue_until_there_is_nothing_to_move() {
        let idleness = &mut Idleness::new(INTERVAL);
        let begun = Time::from_secs(1);
        let busy = |idleness: &mut Idleness, now| {
            let attempt = asked(idleness, now);
            idleness.measured(now, attempt, 1000);
            idleness.verdict(now)
        };
        assert_eq!(busy(idleness, begun), Verdict::Busy);
        assert_eq!(busy(idleness, begun + PUT_OFF_MAX - Duration::from_secs(1)), Verdict::Busy);
        assert_eq!(idleness.verdict(begun + PUT_OFF_MAX), Verdict::Idle);
        assert_eq!(idleness.verdict(begun + 2 * PUT_OFF_MAX), Verdict::Idle, "and stays so");
        idleness.nothing_waits();
        assert_eq!(busy(idleness, begun + 3 * PUT_OFF_MAX), Verdict::Busy);
    }
}
