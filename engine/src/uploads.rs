//! Open uploads in parts: the room that they may take in the workshop, and the stale ones, which were open for too long
//! and are aborted.
//!
//! Their ages are counted in *served time*: the total time that servers of this data directory have run, by their
//! monotonic clocks. No wall clock is used, since a wrong one at a start would make every upload years old at once, and
//! aborted parts are gone.
//! 1. At intervals the watch notes the numbers of versions and slots that have been assigned so far: an `UploadMark`.
//!    The number of an upload is that of a version, and each part has its own slot; numbers only increase. So an upload
//!    or part with a number below a mark's existed when the mark was made.
//! 2. An upload is stale if it and all of its parts are below a mark that is at least as old as the limit.
//! 3. Marks and the served time are stored in the catalog, so a restart loses at most the time served since they were
//!    last stored. That loss makes uploads younger, never older.
//!
//! The room that open uploads take is counted as they change. After a change without an answer the count is uncertain.
//! It is then made again from the catalog, repeatedly until that succeeds: a count that is too large keeps staged data
//! from moving, since that data counts as parts, and refuses new parts for which there is room.
//!
//! Invariants: nothing is stale before servers have run for the whole limit since its last part began; at most
//! `MARKS_MAX` marks are kept.

use alloc::collections::VecDeque;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The share of the workshop that the parts of open uploads may take, in thousandths: they take their room and never
/// migrate.
const OPEN_PERMILLE: u64 = 750;
/// When to ask again for room in that share.
pub const SHARE_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The pause after a first count that failed.
const RECOUNT_MIN: Duration = Duration::from_secs(1);
/// The longest pause: a client that was asked to retry finds that the count was made meanwhile.
const RECOUNT_MAX: Duration = SHARE_RETRY_AFTER;

/// The part of the limit that marks are apart at least: an upload is aborted up to that much later than possible.
const MARKS_PER_LIMIT: u32 = 8;
/// The marks within the limit, the newest one beyond it, and a new one.
const MARKS_MAX: usize = MARKS_PER_LIMIT as usize + 3;

/// The minimum and maximum time between two looks.
const LOOK_MIN: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_hours(1);

/// The next numbers to be assigned: everything with a number below was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Of versions, and so of uploads.
    pub version: u64,
    /// Of slots, and so of parts.
    pub slot: u64,
}

/// The numbers that had been assigned at one moment of served time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UploadMark {
    served_ms: u64,
    ends: Ends,
}

/// The persisted state of a watch, which continues with it after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persisted {
    served_ms: u64,
    marks: VecDeque<UploadMark>,
}

/// The bytes that the parts of all open uploads may take of a workshop.
pub fn open_bytes_max(capacity_bytes: u64) -> u64 {
    (u128::from(capacity_bytes) * u128::from(OPEN_PERMILLE) / 1000) as u64
}

/// The pause before the room of open uploads is counted again, after this number of consecutive failures. A count reads
/// no more than the catalog.
pub fn recount_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    RECOUNT_MIN.saturating_mul(doubled).min(RECOUNT_MAX)
}

/// Watches for stale uploads. See the head of this file.
#[derive(Clone, Debug)]
pub struct StaleWatch {
    limit: Duration,
    /// Served time before this watch began.
    before_ms: u64,
    known: Persisted,
}

impl StaleWatch {
    /// A watch for uploads that are open longer than `limit`. It continues from the state that an earlier watch stored.
    pub fn new(limit: Duration, remembered: Option<Persisted>) -> Self {
        let known = remembered.unwrap_or_default();
        Self { limit, before_ms: known.served_ms, known }
    }

    /// The time between two looks.
    pub fn interval(&self) -> Duration {
        (self.limit / MARKS_PER_LIMIT).clamp(LOOK_MIN, LOOK_MAX)
    }

    /// A look after this watch has run for `watched`, when the numbers `next` are the next to be assigned. An upload is
    /// stale if its own number and the slots of all its parts are below the returned numbers.
    pub fn look(&mut self, watched: Duration, next: Ends) -> Option<Ends> {
        let now_ms = self.before_ms.saturating_add(watched.as_millis() as u64).max(self.known.served_ms);
        self.known.served_ms = now_ms;
        let apart_ms = (self.limit / MARKS_PER_LIMIT).as_millis() as u64;
        let marks = &mut self.known.marks;
        if marks.back().is_none_or(|last| now_ms.saturating_sub(last.served_ms) >= apart_ms) {
            marks.push_back(UploadMark { served_ms: now_ms, ends: next });
        }
        let limit_ms = self.limit.as_millis() as u64;
        let is_old = |mark: &UploadMark| now_ms.saturating_sub(mark.served_ms) >= limit_ms;
        // Of the marks that are old enough, the newest covers most.
        while marks.get(1).is_some_and(is_old) {
            marks.pop_front();
        }
        // A shorter limit than that of the last watch leaves more marks than needed; the oldest cover least.
        while marks.len() > MARKS_MAX {
            marks.pop_front();
        }
        marks.front().filter(|mark| is_old(mark)).map(|mark| mark.ends)
    }

    /// The state to be persisted, as of the last look.
    pub fn remember(&self) -> &Persisted {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::vec::Vec;

    const HOUR: Duration = Duration::from_hours(1);
    const WEEK: Duration = Duration::from_hours(7 * 24);

    fn ends(number: u64) -> Ends {
        Ends { version: number, slot: 10 * number }
    }

    /// Restarts as a server does, by way of the catalog.
    fn restarted(watch: &StaleWatch) -> StaleWatch {
        let kept = serde_json::to_vec(watch.remember()).unwrap();
        StaleWatch::new(watch.limit, Some(serde_json::from_slice(&kept).unwrap()))
    }

    #[test]
    fn nothing_is_stale_at_a_start_whatever_the_wall_clock_says() {
        assert_eq!(StaleWatch::new(WEEK, None).look(Duration::ZERO, ends(1_000)), None);
        let mut watch = StaleWatch::new(WEEK, None);
        watch.look(6 * 24 * HOUR, ends(5));
        assert_eq!(restarted(&watch).look(Duration::ZERO, ends(1_000)), None);
    }

    #[test]
    fn what_was_there_before_the_limit_is_stale_and_what_came_within_it_is_not() {
        let mut watch = StaleWatch::new(WEEK, None);
        let mut first = None;
        for hour in 0..1_000_u32 {
            // One upload an hour: its number is the hour in which it began.
            let Some(stale) = watch.look(hour * HOUR, ends(u64::from(hour))) else { continue };
            first = first.or(Some(hour));
            let age = u64::from(hour) - stale.version;
            assert!((7 * 24..=8 * 24).contains(&age), "{age} h old is the limit, or an eighth more");
            assert_eq!(stale.slot, 10 * stale.version);
        }
        assert_eq!(first, Some(7 * 24));
    }

    #[test]
    fn time_in_which_no_server_ran_does_not_count_and_restarts_lose_no_more_than_the_last_look() {
        let mut watch = StaleWatch::new(WEEK, None);
        assert_eq!(watch.look(Duration::ZERO, ends(9)), None);
        // Up for six hours at a time.
        let mut days = 0;
        while watch.look(6 * HOUR, ends(100)).is_none() {
            watch = restarted(&watch);
            days += 1;
        }
        assert_eq!(days, 7 * 24 / 6 - 1);
        assert_eq!(watch.look(6 * HOUR, ends(100)), Some(ends(9)));
    }

    #[test]
    fn few_marks_are_kept_however_often_it_is_looked_and_whatever_the_limit_was() {
        let mut watch = StaleWatch::new(WEEK, None);
        for second in 0..100_000 {
            watch.look(Duration::from_secs(10 * second), ends(second));
            assert!(watch.known.marks.len() <= MARKS_MAX);
        }
        let remembered = watch.remember().clone();
        for limit in [Duration::ZERO, HOUR, 100 * WEEK] {
            let mut watch = StaleWatch::new(limit, Some(remembered.clone()));
            let stale = watch.look(Duration::ZERO, ends(1_000_000));
            assert_eq!(stale.is_some(), limit < 2 * WEEK, "{limit:?}");
            assert!(watch.known.marks.len() <= MARKS_MAX);
        }
    }

    #[test]
    fn a_count_that_fails_is_made_again_soon_and_for_ever() {
        let pauses_s: Vec<u64> = (1..9).map(|failures| recount_after(failures).as_secs()).collect();
        assert_eq!(pauses_s, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(recount_after(u32::MAX), RECOUNT_MAX);
    }

    #[test]
    fn a_limit_of_nothing_takes_everything_that_is_there() {
        assert_eq!(StaleWatch::new(Duration::ZERO, None).look(Duration::ZERO, ends(3)), Some(ends(3)));
    }
}
