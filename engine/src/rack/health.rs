//! Asks drives for their health while they are mounted for other reasons, and retires worn drives ([`crate::health`]).
//!
//! Invariant: a worn drive is retired only while no other drive of the rack is being emptied and its group has nothing
//! to rebuild, and only if the other drives of its group can take a whole blob and have room for its data.

use super::Rack;
use crate::action::Action;
use crate::health::HealthView;
use crate::step::Step;
use model::{DriveId, GroupId};

impl Rack {
    /// Asks `drive`, which was mounted and is in service, for its health if that is due.
    pub(super) fn ask_health(&mut self, drive: DriveId, step: &mut Step) {
        if self.health.is_due(drive, step.now) {
            step.ask(Action::ReadHealth { drive });
        }
    }

    /// Asks for the retirement of the worst worn drive, if one may be retired.
    pub(super) fn retire_worn(&mut self, step: &mut Step) {
        let mut health = core::mem::take(&mut self.health);
        let worn = health.next_to_retire(step.now, |drive| self.may_drain(drive));
        self.health = health;
        if let Some(drive) = worn {
            step.ask(Action::Retire { drive });
        }
    }

    fn may_drain(&self, drive: DriveId) -> bool {
        let Some(group) = self.setup.own_group_of(drive) else { return false };
        if self.is_emptying() || self.lacks_stacks(group) {
            return false;
        }
        let is_good = |other: &DriveId| {
            *other != drive && !self.is_retiring(*other) && !self.has_failed(*other) && !self.drives.is_away(*other)
        };
        let good = self.setup.members(group).iter().copied().filter(is_good);
        let (count, free_bytes) = good.fold((0, 0_u64), |(count, free), other| {
            (count + 1, free.saturating_add(self.placement.free_bytes(other)))
        });
        count >= self.setup.spec.code.stacks() && free_bytes >= self.placement.used_bytes(drive)
    }

    /// True if a good drive is being emptied.
    fn is_emptying(&self) -> bool {
        self.retiring.iter().any(|drive| !self.has_failed(*drive))
    }

    /// True if stacks of `group` are to be rebuilt.
    fn lacks_stacks(&self, group: GroupId) -> bool {
        let mut left = self.rebuilder.left_bytes(|drive| self.placement.used_bytes(drive));
        left.any(|(drive, left_bytes)| left_bytes > 0 && self.setup.own_group_of(drive) == Some(group))
    }

    /// Records the number of bad sectors that `drive` reported.
    pub(super) fn health_read(&mut self, drive: DriveId, bad_sectors: u64) {
        if !self.drives.knows(drive) {
            return;
        }
        self.health.read(drive, bad_sectors);
        if self.has_failed(drive) || self.is_retiring(drive) {
            self.health.settled(drive);
        }
    }

    /// The last report of `drive` on its bad sectors; `None` if it never reported.
    pub fn drive_health(&self, drive: DriveId) -> Option<HealthView> {
        self.health.view(drive)
    }
}
