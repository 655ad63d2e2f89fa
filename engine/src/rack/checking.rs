//! Passes the results of checks of the workshop to the checker and the migrator.

use super::Rack;
use crate::event::CheckProgress;
use crate::staging::checks::CheckedPage;
use crate::step::Step;
use model::Attempt;

impl Rack {
    pub(super) fn checks_reported(&mut self, progress: CheckProgress) {
        if !self.booted {
            self.checker.reported(self.now, progress);
        }
    }

    /// Records the load, for a pass of checks or for a move that waits for an idle workshop.
    pub(super) fn load_measured(&mut self, attempt: Attempt, load_permille: u32) {
        self.checker.measured(self.now, attempt, load_permille);
        self.migrator.measured(self.now, attempt, load_permille);
    }

    pub(super) fn staged_checked(&mut self, page: &CheckedPage, step: &mut Step) {
        self.checker.checked(step.now, page, &mut self.migrator, step.actions);
    }
}
