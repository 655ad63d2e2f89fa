//! Drives that spin without having been started, or that may spin.
//!
//! A drive like that is charged to the ledger even beyond its limits, and is sent a stop. Something else may have
//! started it a moment ago, so it counts as starting for as long as a start takes: another start beside it could trip a
//! fuse.
//!
//! Invariants:
//! - it holds its permits until it reports that it has stopped;
//! - it counts as starting for a bounded time, whether or not it answers.

use super::{DrivePhase, Drives, Notice};
use crate::step::Step;
use model::{DriveId, Time};

impl Drives {
    /// `drive` spins without a permit, or may: it is charged to the ledger and sent a stop. Ignored for a drive that
    /// holds its permits, unless it was given up on.
    pub fn spins(&mut self, drive: DriveId, step: &mut Step) {
        if !self.knows(drive) {
            return;
        }
        let phase = self.phase(drive);
        if !(phase.is_away() || matches!(phase, DrivePhase::Standby | DrivePhase::AwaitingPermit)) {
            return;
        }
        if !self.is_permitted(drive) {
            self.ledger.found_spinning(drive);
            self.found.retain(|(_, other)| *other != drive);
            self.found.insert((step.now + self.spin_up_max, drive));
            assert!(self.found.len() <= self.states.len(), "{drive} is found once");
        }
        let state = &mut self.states[drive.index()];
        // It answers, or is to be asked; its return is not reported again.
        state.lost_by_world = false;
        if phase.is_away() && !state.failed {
            self.notices.push_back(Notice::Returned(drive));
        }
        self.unpermitted.retain(|other| *other != drive);
        self.backoff.plan(drive, step.now + self.switch_timeout);
        self.command(drive, DrivePhase::Unmounting, step);
        assert!(self.is_permitted(drive) && self.phase(drive).is_stopping(), "{drive} is booked and sent a stop");
    }

    /// True if `drive` was found spinning and counts as starting: it releases its permit to start soon.
    pub(super) fn may_be_starting(&self, drive: DriveId) -> bool {
        self.found.iter().any(|(_, other)| *other == drive)
    }

    /// The time when the start of a drive that was found spinning would be over.
    pub fn found_deadline(&self) -> Time {
        self.found.first().map_or(Time::MAX, |(at, _)| *at)
    }

    /// Drives that were found spinning count as starting no longer than a start takes.
    pub fn end_found_starts(&mut self, now: Time) {
        while self.found_deadline() <= now
            && let Some((_, drive)) = self.found.pop_first()
        {
            self.ledger.found_at_speed(drive);
        }
    }

    /// Drives that are away and may spin, although their power can be switched: they keep their permits.
    pub fn unstopped(&self) -> impl Iterator<Item = DriveId> + '_ {
        let all = (0..self.states.len()).map(|index| DriveId(index as u32));
        let stops = |drive: &DriveId| self.is_permitted(*drive) && !self.ledger.is_always_on(*drive);
        all.filter(move |drive| self.is_away(*drive) && stops(drive))
    }
}
