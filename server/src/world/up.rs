//! Waiting for a group to wake: used by read-ahead, which wakes none itself.

use super::state::{World, WorldHandle};
use engine::GroupState;
use model::{DriveId, GroupId};
use tokio::sync::oneshot;

impl World {
    /// Notes that a drive is about to start: tasks that wait for its group continue if the group wakes.
    pub(super) fn note_start(&mut self, drive: DriveId) {
        if let Some(group) = self.rack.layout().group_of(drive).filter(|group| self.is_up(*group)) {
            for waiting in self.awaiting_up.remove(&group).unwrap_or_default() {
                let _ = waiting.send(());
            }
        }
    }

    fn is_up(&self, group: GroupId) -> bool {
        matches!(self.rack.group_state(group), GroupState::Waking | GroupState::Busy | GroupState::Idle)
    }

    fn await_up(&mut self, group: GroupId, waiting: oneshot::Sender<()>) {
        if self.is_up(group) {
            let _ = waiting.send(());
            return;
        }
        let all = self.awaiting_up.entry(group).or_default();
        all.retain(|other| !other.is_closed());
        all.push(waiting);
    }
}

impl WorldHandle {
    /// Waits until `group` is awake or waking; false if the world ends first.
    pub async fn group_up(&self, group: GroupId) -> bool {
        let (waiting, up) = oneshot::channel();
        self.run(move |world| world.await_up(group, waiting));
        up.await.is_ok()
    }
}
