//! The deadlines of requests to a drive, and each drive's record of meeting them.
//!
//! A drive that hangs instead of failing would hold its operation, and with it its class, indefinitely. So every
//! request has a deadline. The world enforces the deadlines and reports each drive that missed one
//! ([`DriveResult::MissedDeadline`](crate::DriveResult::MissedDeadline), [`Loss::NoAnswer`](crate::Loss::NoAnswer)).
//! The engine decides what that means for the operation and for the drive:
//!
//! - a read continues with any k of the other stacks, within the same transfer; a write fails and is placed elsewhere;
//! - a drive that missed a deadline is out of service for the rest of its group's wake, and comes back like any drive
//!   that was given up on ([`crate::drives`]);
//! - a drive that did so in three wakes in a row is left alone for a pause that doubles each time;
//! - until the drive has answered, it gets no other request: the world refuses requests on its behalf. A refusal
//!   neither counts as another missed deadline nor is held against the drive. It is retried after an eighth of the time
//!   for which it is silent, at least after a minute and at most after an hour.

use core::time::Duration;
use model::{DriveProfile, Time};
use serde::{Deserialize, Serialize};

/// Time limits of a drive's answers to requests, in modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deadlines {
    /// A read of at most a MiB: a checksum page, a footer, a batch of fragments.
    pub read: Duration,
    /// A write of at most a MiB; creating or removing a file.
    pub write: Duration,
    /// A sync.
    pub sync: Duration,
}

impl Default for Deadlines {
    /// Longer than a sound drive tries to read a bad sector (about 7 s, if the drive has a limit at all), and much
    /// longer than a busy host takes.
    fn default() -> Self {
        Self { read: Duration::from_secs(15), write: Duration::from_secs(30), sync: Duration::from_mins(1) }
    }
}

/// The deadlines of all commands and requests to a drive, in modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveDeadlines {
    /// Of reads, writes and syncs.
    pub requests: Deadlines,
    /// Of a start.
    pub spin_up: Duration,
    /// Of a mount.
    pub mount: Duration,
    /// Of an unmount.
    pub unmount: Duration,
    /// Of a stop.
    pub stop: Duration,
}

impl DriveDeadlines {
    /// The deadlines for drives of this profile: the longest time of each command, plus `host_slack`.
    pub fn new(profile: &DriveProfile, requests: Deadlines, host_slack: Duration) -> Self {
        Self {
            requests,
            spin_up: profile.spin_up.longest() + host_slack,
            mount: profile.mount.longest().max(profile.mount_busy.longest()) + host_slack,
            unmount: profile.unmount.longest() + host_slack,
            stop: profile.spin_down.max + host_slack,
        }
    }
}

/// The shortest pause before a retry of a drive that owes an answer.
const PAUSE_OWING_MIN: Duration = Duration::from_mins(1);
/// The longest one.
const PAUSE_OWING_MAX: Duration = Duration::from_hours(1);

/// A drive's record of meeting its deadlines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Punctuality {
    /// Deadlines it has missed since boot.
    pub missed: u64,
    /// It has answered nothing since the last deadline that it missed.
    pub owes_answer: bool,
    /// Consecutive wakes in which it missed a deadline in a transfer, or failed too many transfers.
    pub wakes_missed: u32,
    /// When it last missed a deadline.
    missed_at: Option<Time>,
    /// When it missed the first deadline since it last answered.
    silent_since: Option<Time>,
}

impl Punctuality {
    /// The drive did not answer, and its request may still be under way. True if it owed an answer already: then this
    /// request was never sent to it, and the miss is not to be counted again.
    pub fn note_missed(&mut self, now: Time) -> bool {
        assert!(self.missed_at.is_none_or(|before| before <= now), "time does not go back");
        self.missed_at = Some(now);
        let owed_one = core::mem::replace(&mut self.owes_answer, true);
        if !owed_one {
            self.silent_since = Some(now);
        }
        owed_one
    }

    /// The pause before a retry of the drive, which owes an answer, so its command was not sent. An eighth of the time
    /// for which it is silent, so a drive that answers late is out of service for an eighth longer, at most an hour,
    /// and one that never answers costs a retry an hour. A group that needs the drive retries it earlier.
    pub fn pause_while_owing(&self, now: Time) -> Duration {
        assert!(self.owes_answer, "a drive that has answered is sent its commands");
        let silent = self.silent_since.map_or(Duration::ZERO, |since| now.since(since));
        (silent / 8).clamp(PAUSE_OWING_MIN, PAUSE_OWING_MAX)
    }

    /// One more wake in which it missed a deadline.
    pub fn count_wake(&mut self) {
        assert!(self.owes_answer, "a wake counts for the answer that is missing");
        self.wakes_missed += 1;
    }

    /// Another drive is in its place; the record of that drive is empty.
    pub fn begin_anew(&mut self) {
        *self = Self { missed: self.missed, ..Self::default() };
    }

    /// It gets another chance: after one more missed wake it is out again.
    pub fn leave_one_chance(&mut self, wakes_max: u32) {
        assert!(wakes_max > 0, "there is a chance to leave");
        self.wakes_missed = self.wakes_missed.min(wakes_max - 1);
        assert!(self.wakes_missed < wakes_max, "one more chance is left");
    }

    /// True if it missed a deadline less than `slack` ago: it may still be busy with that request and not answer
    /// another one.
    pub fn missed_within(&self, slack: Duration, now: Time) -> bool {
        self.missed_at.is_some_and(|missed_at| now < missed_at + slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_drive_is_tried_less_often_the_longer_it_is_silent_and_soon_again_after_an_answer() {
        let mut drive = Punctuality::default();
        let after = |minutes: u64| Time::ZERO + Duration::from_mins(minutes);
        assert!(!drive.note_missed(after(0)), "its first miss");
        let mut pauses = Vec::new();
        for minutes in [0, 4, 16, 80, 480, 100_000] {
            assert!(drive.note_missed(after(minutes)), "it owes an answer");
            pauses.push(drive.pause_while_owing(after(minutes)).as_secs());
        }
        assert_eq!(pauses, [60, 60, 120, 600, 3600, 3600]);
        drive.owes_answer = false;
        assert!(!drive.note_missed(after(100_001)));
        assert_eq!(drive.pause_while_owing(after(100_003)).as_secs(), 60);
    }
}
