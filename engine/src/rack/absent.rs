//! Gives up drives that stay away ([`crate::absence`]).
//!
//! Invariant: a drive is given up here only by an action, and counts as failed when the world reports that it failed.

use super::Rack;
use crate::absence::{AbsenceView, Facts, Verdict};
use crate::event::{Request, Work};
use crate::ops::Op;
use crate::policy::PriorityClass;
use crate::step::Step;
use alloc::vec::Vec;
use model::{DriveId, Time};

impl Rack {
    /// Gives up drives that were away long enough, and wakes the groups of drives that are to be tried once more. True
    /// if something was queued.
    pub(super) fn give_up_absent(&mut self, step: &mut Step) -> bool {
        let mut queued = false;
        while let Some(verdict) = self.next_verdict(step.now) {
            match verdict {
                Verdict::GiveUp(drive) => self.give_up(drive, false, step),
                Verdict::Try(drive) => queued |= self.try_once_more(drive, step.now),
            }
        }
        queued
    }

    fn next_verdict(&mut self, now: Time) -> Option<Verdict> {
        let mut absences = core::mem::take(&mut self.absences);
        let asked: Vec<DriveId> = absences.asked().collect();
        let verdict = self.with_facts(&asked, |facts| absences.next_verdict(now, facts));
        self.absences = absences;
        verdict
    }

    /// The drives that are away, since when, and when they will be given up.
    pub fn absences(&self) -> Vec<AbsenceView> {
        let asked: Vec<DriveId> = self.absences.asked().collect();
        self.with_facts(&asked, |facts| self.absences.views(self.now, facts))
    }

    fn with_facts<T>(&self, asked: &[DriveId], look: impl FnOnce(&Facts) -> T) -> T {
        let is_lossy = |drive: DriveId| {
            let is_good = self.retiring.contains(&drive) && !self.drives.has_failed(drive);
            let left = self.rebuilder.left_bytes_of(drive, self.placement.used_bytes(drive));
            (left > 0 && !is_good) || asked.contains(&drive)
        };
        let lossy_beside = |drive: DriveId| {
            let group = self.setup.own_group_of(drive);
            // A drive without a group is a spare, and a drive of another instance's group is that instance's to give
            // up.
            let members =
                group.map(|group| self.setup.members(group).iter().filter(|member| is_lossy(**member)).count());
            members.unwrap_or(usize::MAX - 1)
        };
        let is_away = |drive: DriveId| self.drives.is_away(drive) && !self.drives.has_failed(drive);
        let is_untried = |drive: DriveId| self.drives.is_untried(drive);
        let spec = &self.setup.spec;
        look(&Facts { spec, is_away: &is_away, is_untried: &is_untried, lossy_beside: &lossy_beside })
    }

    /// Queues a wake of the group of `drive`, which tries the drive. False if the queue is full.
    fn try_once_more(&mut self, drive: DriveId, now: Time) -> bool {
        let Some(group) = self.setup.own_group_of(drive) else { return false };
        let op = self.ops.own_number();
        let work = Work::Initialise { group };
        let request = Request { op, priority: PriorityClass::Rebuild, overtake_limit: None, work };
        // If the queue is full, the try is requested again.
        self.queue(Op::new(request, self.setup.class_of(group), group), now).is_none()
    }
}
