//! Silent drives whose group needs them at once.
//!
//! Each attempt to recover one puts its whole group to sleep and wakes it. Invariant: a drive that nobody can ask is
//! the reason for a bounded number of them until it mounts; from then on only its pauses lead to a try.

use super::{DrivePhase, Drives, FAILURES_MAX};
use crate::event::Loss;
use model::{DriveId, Time};

impl Drives {
    /// Whether fewer than `need` of `members` are there, and one that is away may turn out to be if it is sent a stop
    /// once more. One that has just missed a deadline is not asked yet: what it owes an answer to may be under way.
    /// One that cannot be asked, since it owes an answer for longer or the host is at its limits, is tried a few times
    /// and then left to its pauses: each such try puts the whole group to sleep and wakes it.
    pub fn are_worth_recovering(&self, members: &[DriveId], need: usize, now: Time) -> bool {
        assert!(need > 0, "a group is read from at least one drive");
        if self.tally.all_there() && members.len() >= need {
            return false;
        }
        let there = members.iter().filter(|drive| !self.is_away(**drive) && !self.has_failed(**drive)).count();
        let owes = |drive: DriveId| self.punctuality[drive.index()].missed_within(self.host_slack, now);
        there < need && members.iter().any(|drive| self.may_recover(*drive) && !owes(*drive))
    }

    /// Whether `drive` is away since its transfers failed, and was not started and mounted anew since.
    pub fn is_untried(&self, drive: DriveId) -> bool {
        self.untried.contains(&drive) && self.is_away(drive)
    }

    /// Whether `drive` was given up on for want of an answer, and may yet be there: sent a stop once more, it may say
    /// so.
    pub(super) fn may_recover(&self, drive: DriveId) -> bool {
        let state = &self.states[drive.index()];
        let silent = !state.failed && matches!(state.phase, DrivePhase::Away(loss) if loss != Loss::FuseTripped);
        silent && self.is_permitted(drive) && state.failures.max(state.refusals) < FAILURES_MAX
    }
}
