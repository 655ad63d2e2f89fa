//! Open uploads in parts: how much of the workshop they may take, and which were left open for so long that they are
//! aborted.
//!
//! Their ages are counted in *served time*: the time that servers of this data directory have run, by their monotonic
//! clocks, one after another. No wall clock is asked, since one that is wrong at a start would make every upload years
//! old at once, and parts that are aborted are gone.
//! 1. Every so often it is noted which numbers of versions and slots have been given out so far: an `UploadMark`. The
//!    number of an upload is that of a version, and each part has a slot of its own; numbers only go up. So what has a
//!    number below a mark's was there when the mark was made.
//! 2. An upload is stale if it, and every part of it, lies below a mark that is at least as old as the limit.
//! 3. Marks and the served time are kept in the catalog, so that a restart forgets at most what was served since they
//!    were kept last. What it forgets makes uploads younger, never older.
//!
//! What open uploads take is counted as they change. After a change that was not answered the count is in doubt, and is
//! made anew from the catalog, again and again until that succeeds: one that is too large keeps staged data from
//! moving, since that counts as parts, and it refuses new parts for which there is room.
//!
//! Invariants: nothing is stale before servers have run for the whole limit since its last part was begun; at most
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
/// The longest: who was told to ask for room again finds that it was counted meanwhile.
const RECOUNT_MAX: Duration = SHARE_RETRY_AFTER;

/// Marks are so much of the limit apart, or more: an upload is aborted that much later than it might be.
const MARKS_PER_LIMIT: u32 = 8;
/// Those within the limit, the newest one beyond it, and one that is just made.
const MARKS_MAX: usize = MARKS_PER_LIMIT as usize + 3;

/// How often it is looked, at least and at most.
const LOOK_MIN: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_hours(1);

/// Numbers that have not been given out: all that is below was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Of versions, and so of uploads.
    pub version: u64,
    /// Of slots, and so of parts.
    pub slot: u64,
}

/// Which numbers had been given out at a moment of served time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UploadMark {
    served_ms: u64,
    ends: Ends,
}

/// The persisted state of a watch, which goes on with it after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persisted {
    served_ms: u64,
    marks: VecDeque<UploadMark>,
}

/// The bytes that the parts of all open uploads may take of a workshop.
pub fn open_bytes_max(capacity_bytes: u64) -> u64 {
    (u128::from(capacity_bytes) * u128::from(OPEN_PERMILLE) / 1000) as u64
}

/// How long to wait before what open uploads take is counted again, after so many counts in a row have failed. A count
/// reads no more than the catalog.
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
    /// A watch for what is left open longer than `limit`, going on from what an earlier one remembered.
    pub fn new(limit: Duration, remembered: Option<Persisted>) -> Self {
        let known = remembered.unwrap_or_default();
        Self { limit, before_ms: known.served_ms, known }
    }

    /// How long to wait between two looks.
    pub fn interval(&self) -> Duration {
        (self.limit / MARKS_PER_LIMIT).clamp(LOOK_MIN, LOOK_MAX)
    }

    /// A look when this watch has gone on for `watched` and these numbers are the next. Uploads are stale whose own
    /// number, and the slots of all whose parts, are below the answer.
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
        // Of the marks that are old enough, the newest says most.
        while marks.get(1).is_some_and(is_old) {
            marks.pop_front();
        }
        // A shorter limit than the last watch had leaves more than are needed; the oldest say least.
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
            // One upload an hour: its number is the hour it was begun in.
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
