//! How long a drive may take to answer.
//!
//! A drive that hangs, rather than failing, would keep its operation and with it its class for as long as it pleases.
//! So every request has a deadline. The world keeps them, and says of each drive that missed one
//! ([`DriveResult::MissedDeadline`](crate::DriveResult::MissedDeadline), [`Loss::NoAnswer`]); what that means for the
//! operation and for the drive is decided here:
//!
//! - a read goes on with any k of the other stacks, within the same transfer; a write fails and is placed elsewhere;
//! - a drive that missed a deadline is out of service for the rest of its group's wake, and comes back like any drive
//!   that was given up on ([`crate::recover`]);
//! - one that did so in three wakes in a row is left alone for a while, which doubles each time;
//! - until it has answered what it was asked, it is asked nothing else, which the world answers for it. That is neither
//!   counted as another deadline missed nor held against it.

use crate::event::Loss;
use crate::rack::{DrivePhase, Rack};
use core::time::Duration;
use model::{DriveId, DriveProfile, Time};
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
            spin_up: profile.spin_up.max + host_slack,
            mount: profile.mount.max.max(profile.mount_busy.max) + host_slack,
            unmount: profile.unmount.max + host_slack,
            stop: profile.spin_down.max + host_slack,
        }
    }
}

/// What is known of a drive's answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Punctuality {
    /// Deadlines that it missed since boot.
    missed: u64,
    /// It has not answered anything since it missed the last one.
    pub(crate) owes_answer: bool,
    /// Wakes in a row in which it missed one in a transfer.
    pub(crate) wakes_missed: u32,
    /// When it missed one last.
    missed_at: Option<Time>,
}

impl Rack {
    /// How long the drives of this rack may take for what they are asked.
    pub fn drive_deadlines(&self) -> DriveDeadlines {
        DriveDeadlines::new(&self.spec.profile, self.policy.deadlines, self.policy.host_slack)
    }

    /// Deadlines that `drive` missed since boot.
    pub fn missed_deadlines(&self, drive: DriveId) -> u64 {
        self.drives[drive.index()].punctuality.missed
    }

    /// `drive` did not answer; what it was asked may still be under way. True if it owed an answer already, so that it
    /// was not even asked.
    pub(crate) fn note_missed_deadline(&mut self, drive: DriveId, now: Time) -> bool {
        let punctuality = &mut self.drives[drive.index()].punctuality;
        punctuality.missed_at = Some(now);
        let owed_one = core::mem::replace(&mut punctuality.owes_answer, true);
        if !owed_one {
            self.count_missed_deadline(drive);
        }
        owed_one
    }

    /// `drive` missed a deadline.
    pub(crate) fn count_missed_deadline(&mut self, drive: DriveId) {
        self.drives[drive.index()].punctuality.missed += 1;
        self.stats.missed_deadlines += 1;
    }

    /// `drive` answered.
    pub(crate) fn note_answer(&mut self, drive: DriveId) {
        self.drives[drive.index()].punctuality.owes_answer = false;
    }

    /// `drive` missed a deadline in a transfer: it is done without until its group wakes next.
    pub(crate) fn transfer_missed_deadline(&mut self, drive: DriveId, now: Time) {
        self.note_missed_deadline(drive, now);
        let state = &mut self.drives[drive.index()];
        state.errors += 1;
        if state.phase == DrivePhase::Ready {
            state.punctuality.wakes_missed += 1;
            self.set_away(drive, Loss::NoAnswer);
            self.try_again_later(drive, now);
        }
    }

    /// Whether `drive` missed a deadline only just now: it may still be busy with what it was asked then, and would not
    /// answer anything else.
    pub(crate) fn is_owing_an_answer(&self, drive: DriveId, now: Time) -> bool {
        let missed_at = self.drives[drive.index()].punctuality.missed_at;
        missed_at.is_some_and(|missed_at| now < missed_at + self.policy.host_slack)
    }
}
