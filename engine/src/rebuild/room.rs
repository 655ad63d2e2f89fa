//! Rebuilds that wait for room: deleted data of their group is reclaimed for them, and they are retried after that.
//!
//! Invariant: a retry does not wait for the end of a pause that grew while nothing was freed.

use super::{PAUSE_MIN, RebuildPhase, Rebuilder};
use core::time::Duration;
use model::{GroupId, Time};

/// Pause between the first removal of deleted data and the retry: one visit to a group removes many blobs.
const FREED_PAUSE: Duration = Duration::from_mins(1);

impl Rebuilder {
    /// True if blobs of `group` could not be rebuilt because no drive of it has room.
    pub fn lacks_room(&self, group: GroupId) -> bool {
        self.drives.values().any(|passes| passes.home.group == group && passes.reported(1).unplaced > 0)
    }

    /// Deleted data of `group` was removed: rebuilds that wait for room there are retried soon.
    pub fn room_freed(&mut self, group: GroupId, now: Time) {
        let of_group = self.drives.values_mut().filter(|passes| passes.home.group == group);
        for passes in of_group.filter(|passes| passes.reported(1).unplaced > 0) {
            passes.pause = PAUSE_MIN;
            if let RebuildPhase::Idle { due } = &mut passes.phase {
                *due = (*due).min(now + FREED_PAUSE);
            }
        }
    }
}
