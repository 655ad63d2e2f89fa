//! Counts of each group's members that are on their way, and of the drives that are out of service. Nearly every event
//! reads one of them, so they are updated as phases change.
//!
//! Invariant: the counts match the phases (asserted when one is decreased).

use super::phase::DrivePhase;
use crate::layout::Layout;
use alloc::vec;
use alloc::vec::Vec;
use model::{DriveId, GroupId};

/// Counts of members of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnTheWay {
    awaiting_permit: u32,
    starting: u32,
    stopping: u32,
}

impl OnTheWay {
    fn count(&mut self, phase: DrivePhase) -> Option<&mut u32> {
        match phase {
            DrivePhase::AwaitingPermit => Some(&mut self.awaiting_permit),
            _ if phase.is_starting() => Some(&mut self.starting),
            _ if phase.is_stopping() => Some(&mut self.stopping),
            _ => None,
        }
    }

    /// True if any were sent a start or a mount.
    pub fn is_starting(self) -> bool {
        self.starting > 0
    }

    /// True if any are on their way to be ready.
    pub fn is_waking(self) -> bool {
        self.starting > 0 || self.awaiting_permit > 0
    }

    /// True if any were sent an unmount or a stop.
    pub fn is_stopping(self) -> bool {
        self.stopping > 0
    }

    /// True if any are starting, and none waits for a permit: there is nothing to do but wait. Most events find a
    /// waking class in this state.
    pub fn only_starts(self) -> bool {
        self.starting > 0 && self.awaiting_permit == 0
    }
}

/// The counts of a rack. See the head of this file.
pub(super) struct Tally {
    group_of: Vec<Option<GroupId>>,
    groups: Vec<OnTheWay>,
    away: usize,
    failed: usize,
}

impl Tally {
    /// Counts for this number of drives, all of them away.
    pub fn new(layout: &Layout, drive_count: usize) -> Self {
        let group_of = (0..drive_count).map(|drive| layout.group_of(DriveId(drive as u32))).collect();
        Self { group_of, groups: vec![OnTheWay::default(); layout.groups.len()], away: drive_count, failed: 0 }
    }

    /// The phase of `drive` changes.
    pub fn change(&mut self, drive: DriveId, before: DrivePhase, phase: DrivePhase) {
        let (was_away, is_away) = (usize::from(before.is_away()), usize::from(phase.is_away()));
        assert!(self.away >= was_away, "{drive} was counted as away");
        self.away = self.away - was_away + is_away;
        assert!(self.away <= self.group_of.len(), "no more drives are away than there are");
        let Some(group) = self.group_of[drive.index()] else { return };
        let group = &mut self.groups[group.index()];
        if let Some(count) = group.count(before) {
            assert!(*count > 0, "{drive} was counted in its group");
            *count -= 1;
        }
        if let Some(count) = group.count(phase) {
            *count += 1;
        }
    }

    /// A drive failed permanently.
    pub fn fail(&mut self) {
        self.failed += 1;
        assert!(self.failed <= self.group_of.len(), "a drive fails for good once");
    }

    /// A failed drive is replaced.
    pub fn replace(&mut self) {
        assert!(self.failed > 0, "who is replaced had failed");
        self.failed -= 1;
    }

    /// True if no drive is away and none has failed.
    pub fn all_there(&self) -> bool {
        self.away == 0 && self.failed == 0
    }

    /// The members of `group`.
    pub fn of(&self, group: GroupId) -> OnTheWay {
        self.groups[group.index()]
    }
}
