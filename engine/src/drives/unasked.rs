//! Drives that spin without having been started, or that may spin.
//!
//! A drive like that is charged to the ledger even beyond its limits, and is sent a stop. Invariant: it holds its
//! permits until it reports that it has stopped.

use super::{DrivePhase, Drives, Notice};
use crate::step::Step;
use model::DriveId;

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

    /// Drives that are away and may spin, although their power can be switched: they keep their permits.
    pub fn unstopped(&self) -> impl Iterator<Item = DriveId> + '_ {
        let all = (0..self.states.len()).map(|index| DriveId(index as u32));
        let stops = |drive: &DriveId| self.is_permitted(*drive) && !self.ledger.is_always_on(*drive);
        all.filter(move |drive| self.is_away(*drive) && stops(drive))
    }
}
