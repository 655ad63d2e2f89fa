//! Recovering silent drives that their group needs at once.
//!
//! Each attempt puts the whole group to sleep and wakes it. Invariant: a drive that cannot be sent a command causes a
//! bounded number of attempts until it mounts; after these it is only retried after its backoff.

use super::{DrivePhase, Drives, FAILURES_MAX};
use crate::event::Loss;
use model::{DriveId, Time};

impl Drives {
    /// True if fewer than `need` of `members` are present, and one that is away may answer when it is sent a stop
    /// again. A drive that has just missed a deadline is not asked yet: its unanswered command may be under way. A
    /// drive that cannot be sent a command, because it owes an answer or the host is at its limits, gets a few attempts
    /// and is then left to its backoff.
    pub fn are_worth_recovering(&self, members: &[DriveId], need: usize, now: Time) -> bool {
        assert!(need > 0, "a group is read from at least one drive");
        if self.tally.all_there() && members.len() >= need {
            return false;
        }
        let there = members.iter().filter(|drive| !self.is_away(**drive) && !self.has_failed(**drive)).count();
        let owes = |drive: DriveId| self.punctuality[drive.index()].missed_within(self.host_slack, now);
        there < need && members.iter().any(|drive| self.may_recover(*drive) && !owes(*drive))
    }

    /// True if `drive` is away because its transfers failed, and was not started and mounted since.
    pub fn is_untried(&self, drive: DriveId) -> bool {
        self.untried.contains(&drive) && self.is_away(drive)
    }

    /// True if `drive` was given up on because it did not answer, and may still be present: it may answer when it is
    /// sent a stop again.
    pub(super) fn may_recover(&self, drive: DriveId) -> bool {
        let state = &self.states[drive.index()];
        let silent = !state.failed && matches!(state.phase, DrivePhase::Away(loss) if loss != Loss::FuseTripped);
        silent && self.is_permitted(drive) && state.failures.max(state.unsent) < FAILURES_MAX
    }
}
