//! What a rack hears of the checks of its workshop.

use super::Rack;
use crate::event::CheckProgress;
use crate::staging::checks::CheckedPage;
use crate::step::Step;

impl Rack {
    pub(super) fn checks_reported(&mut self, progress: CheckProgress) {
        if !self.booted {
            self.checker.reported(self.now, progress);
        }
    }

    pub(super) fn staged_checked(&mut self, page: &CheckedPage, step: &mut Step) {
        self.checker.checked(step.now, page, &mut self.migrator, step.actions);
    }
}
