//! Who waits for a group to get up: reading ahead, which wakes none.

use super::state::{World, WorldHandle};
use engine::GroupState;
use model::{DriveId, GroupId};
use tokio::sync::oneshot;

impl World {
    /// A drive is about to start: those that wait for its group, if that gets up, go on.
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
    /// Waits until `group` is awake or on its way to be; false if the world ends before.
    pub async fn group_up(&self, group: GroupId) -> bool {
        let (waiting, up) = oneshot::channel();
        self.run(move |world| world.await_up(group, waiting));
        up.await.is_ok()
    }
}
