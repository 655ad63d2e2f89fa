//! How long a drive may take to answer, and its record of doing so.
//!
//! A drive that hangs, rather than failing, would hold its operation, and with it its class, for as long as it likes.
//! So every request has a deadline. The world enforces them and reports each drive that missed one
//! ([`DriveResult::MissedDeadline`](crate::DriveResult::MissedDeadline), [`Loss::NoAnswer`](crate::Loss::NoAnswer)).
//! The engine decides what that means for the operation and for the drive:
//!
//! - a read goes on with any k of the other stacks, within the same transfer; a write fails and is placed elsewhere;
//! - a drive that missed a deadline is out of service for the rest of its group's wake, and comes back like any drive
//!   that was given up on ([`crate::drives`]);
//! - one that did so in three wakes in a row is left alone for a while, which doubles each time;
//! - until it has answered, it is asked nothing else: the world refuses on its behalf. That neither counts as another
//!   missed deadline nor is held against it.

use core::time::Duration;
use model::{DriveProfile, Time};
use serde::{Deserialize, Serialize};

/// How long a request to a drive may take, in modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deadlines {
    /// A read of at most a MiB: a checksum page, a footer, a batch of fragments.
    pub read: Duration,
    /// A write of as much; making or removing a file.
    pub write: Duration,
    /// A sync.
    pub sync: Duration,
}

impl Default for Deadlines {
    /// Longer than a sound drive tries to read a bad sector (about 7 s, where it has a limit at all), and much longer
    /// than a busy host takes.
    fn default() -> Self {
        Self { read: Duration::from_secs(15), write: Duration::from_secs(30), sync: Duration::from_mins(1) }
    }
}

/// The deadlines of everything that a drive is asked, in modelled time.
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
    /// Those of a drive like `profile`: a command may take as long as it takes at most, and `host_slack` more.
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

/// A drive's record of answers in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Punctuality {
    /// Deadlines it has missed since boot.
    pub missed: u64,
    /// It has answered nothing since it missed the last one.
    pub owes_answer: bool,
    /// Wakes in a row in which it missed a deadline in a transfer, or failed too many.
    pub wakes_missed: u32,
    /// The last time it missed one.
    missed_at: Option<Time>,
}

impl Punctuality {
    /// The drive did not answer; what it was asked may still be under way. True if it owed an answer already, so that
    /// it was not even asked; that is not counted again.
    pub fn note_missed(&mut self, now: Time) -> bool {
        assert!(self.missed_at.is_none_or(|before| before <= now), "time does not go back");
        self.missed_at = Some(now);
        core::mem::replace(&mut self.owes_answer, true)
    }

    /// One more wake in which it missed a deadline.
    pub fn count_wake(&mut self) {
        assert!(self.owes_answer, "a wake counts for the answer that is missing");
        self.wakes_missed += 1;
    }

    /// Another drive is in its place: nothing is known of that one yet.
    pub fn begin_anew(&mut self) {
        *self = Self { missed: self.missed, ..Self::default() };
    }

    /// It gets another chance: one more missed wake, and it is out again.
    pub fn leave_one_chance(&mut self, wakes_max: u32) {
        assert!(wakes_max > 0, "there is a chance to leave");
        self.wakes_missed = self.wakes_missed.min(wakes_max - 1);
        assert!(self.wakes_missed < wakes_max, "one more chance is left");
    }

    /// Whether it missed a deadline less than `slack` ago: it may still be busy with what it was asked then, and would
    /// not answer anything else.
    pub fn missed_within(&self, slack: Duration, now: Time) -> bool {
        self.missed_at.is_some_and(|missed_at| now < missed_at + slack)
    }
}
