//! The retry policy for a blocked class of a job: when it retries, and when it gives up.
//!
//! Each reason has a backoff that doubles, and a limit on the time that it may block the class without progress.
//! Waiting for one reason does not count against another.
//!
//! Invariant: a class that is blocked has a time at which it retries.

use crate::action::Rejection;
use crate::budget::StartBudget;
use crate::job_protocol::BlockReason;
use core::time::Duration;
use model::Time;

/// The reason for which an operation was refused, if it may pass.
pub(super) fn passing(refused: Rejection) -> Option<BlockReason> {
    match refused {
        Rejection::QueueFull => Some(BlockReason::Queue),
        Rejection::NoRoom => Some(BlockReason::Room),
        Rejection::TooManyDrivesAway | Rejection::WriteFailed => Some(BlockReason::Drives),
        Rejection::StartBudgetSpent => Some(BlockReason::Starts),
        Rejection::DataLost
        | Rejection::SourceUnreadable
        | Rejection::Malformed
        | Rejection::Closing
        | Rejection::Asleep => None,
    }
}

/// The retries of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Retry {
    /// The time of the next retry, if the class is blocked.
    pub at: Option<Time>,
    /// The reason that blocks the class, and since when.
    blocked: Option<(BlockReason, Time)>,
    /// The number of consecutive refusals for this reason.
    tries: u32,
    /// The time that each reason blocked the class since the last progress, in the order of [`BlockReason::ALL`].
    waited: [Duration; BlockReason::ALL.len()],
}

impl Retry {
    /// Records progress.
    pub fn went_on(&mut self) {
        *self = Self::default();
    }

    /// Blocks the class for this reason. False if the reason has blocked it for too long. Pauses and limits are times
    /// of the host, and last `scale` times as long in modelled time.
    pub fn block(&mut self, reason: BlockReason, now: Time, scale: u32) -> bool {
        assert!(scale > 0, "time goes on");
        let again = self.blocked.is_some_and(|(before, _)| before == reason) || reason == BlockReason::Queue;
        self.tries = if again { self.tries.saturating_add(1) } else { 0 };
        if reason != BlockReason::Queue
            && let Some((before, since)) = self.blocked.replace((reason, now))
        {
            self.waited[before as usize] += now.since(since);
        }
        self.at = Some(match reason {
            BlockReason::Starts => StartBudget::next_day(now),
            _ => now + self.pause(reason).saturating_mul(scale),
        });
        assert!(self.at > Some(now), "what is blocked tries again later");
        assert!(reason == BlockReason::Queue || self.reason() == Some(reason), "what stands in the way is known");
        let waited = self.waited[reason as usize];
        reason.limit().is_none_or(|limit| waited < limit.saturating_mul(scale))
    }

    fn pause(&self, reason: BlockReason) -> Duration {
        let (first, most) = match reason {
            BlockReason::Queue => (Duration::from_millis(20), Duration::from_secs(1)),
            _ => (Duration::from_secs(5), Duration::from_mins(1)),
        };
        let pause = first.saturating_mul(1 << self.tries.min(16)).min(most);
        assert!(pause >= first, "a pause grows with the tries");
        pause
    }

    /// Makes a waiting class retry at once, since the reason may not apply any more.
    pub fn hasten(&mut self, now: Time) {
        self.at = self.at.map(|at| at.min(now));
    }

    /// Takes the retry if it is due. True if it was.
    pub fn take_due(&mut self, now: Time) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }

    /// The reason that blocks the class, other than a full queue.
    pub fn reason(&self) -> Option<BlockReason> {
        self.blocked.map(|(reason, _)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_waited_for_without_end_and_room_is_not() {
        for (reason, limit_s) in
            [(BlockReason::Starts, u64::MAX), (BlockReason::Drives, 86_400), (BlockReason::Room, 600)]
        {
            let (mut retry, begin) = (Retry::default(), Time::from_secs(1_000));
            let mut now = begin;
            let waited_s = |now: Time| now.since(begin).as_secs();
            while waited_s(now) < 200_000 && retry.block(reason, now, 1) {
                assert_eq!(retry.reason(), Some(reason));
                now = retry.at.unwrap_or(Time::MAX);
                assert!(retry.take_due(now) && retry.at.is_none());
            }
            let waited_s = waited_s(now);
            assert_eq!(waited_s >= 200_000, limit_s > 200_000, "{reason:?}: {waited_s} s");
            assert!((limit_s.min(200_000)..limit_s.saturating_add(61)).contains(&waited_s), "{reason:?}: {waited_s} s");
            retry.went_on();
            assert!(retry.block(reason, now, 1), "it begins anew");
        }
    }

    #[test]
    fn waiting_for_one_reason_does_not_count_against_another() {
        let (mut retry, mut now) = (Retry::default(), Time::ZERO);
        for reason in [BlockReason::Starts, BlockReason::Room, BlockReason::Drives, BlockReason::Queue] {
            assert!(retry.block(reason, now, 1), "{reason:?}");
            now += Duration::from_secs(if reason == BlockReason::Room { 301 } else { 30_000 });
        }
        assert!(retry.block(BlockReason::Room, now, 1), "301 s of room's own");
        assert!(retry.block(BlockReason::Room, now + Duration::from_secs(298), 1), "599 s");
        assert!(!retry.block(BlockReason::Room, now + Duration::from_mins(5), 1), "601 s");
    }

    #[test]
    fn pauses_double_and_starts_come_back_with_the_day() {
        let (mut retry, now) = (Retry::default(), Time::from_secs(100));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            retry.block(BlockReason::Drives, now, 1);
            pauses.extend(retry.at.map(|at| at.since(now).as_secs()));
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        retry.block(BlockReason::Starts, now, 7);
        assert_eq!(retry.at, Some(Time::start_of_day(1)), "days are not scaled");
        retry.hasten(now);
        assert!(retry.take_due(now) && !retry.take_due(now));
        retry.hasten(now);
        assert_eq!(retry.at, None, "nothing waits");
    }

    use std::vec::Vec;
}
