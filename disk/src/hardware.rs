//! What a rack's hardware says and is asked beside the commands of its drives.

use crate::DriveError;
use crate::emulated::{DriveEvent, EmulatedRack, Overrun};
use async_trait::async_trait;
use model::{DriveId, PoolDriveId, PowerHabits, UnaskedWake};
use std::collections::BTreeMap;
use std::path::Path;

/// How full the clients' queue of a drive's class is, in thousandths.
pub type QueueFill = Box<dyn Fn(DriveId) -> u32 + Send + Sync>;

/// The hardware of a rack: emulated, or devices.
#[async_trait]
pub trait Hardware: Send + Sync + 'static {
    /// The next event that no command caused. Each event goes to one listener.
    async fn news(&self) -> DriveEvent;

    /// Asks the drives for their states: those that spin, or of which nobody knows whether they do. Starts none. Asked
    /// once, before anything is started.
    async fn spinning(&self) -> Vec<DriveId> {
        Vec::new()
    }

    /// Drive `id` holds files of so many bytes. See [`EmulatedRack::assume_used`].
    fn assume_used(&self, _id: DriveId, _bytes: u64) {}

    /// Says how full queues are. See [`EmulatedRack::watch_queues`].
    fn watch_queues(&self, _fill: QueueFill) {}

    /// Another drive takes the place of one that failed.
    fn replace(&self, _drive: DriveId) {}

    /// The drive, which is a disk and does nothing now, is the disk to which the link `id` leads from now on. That one
    /// is asked for its state.
    async fn use_disk(&self, _drive: DriveId, _id: &Path) {}

    /// Starts the platters of a drive of the pool; returns when they turn at speed.
    ///
    /// # Errors
    /// [`DriveError::NotReady`]: of drives that are no emulated ones nobody here controls the power.
    async fn start_pool_drive(&self, _drive: PoolDriveId) -> Result<(), DriveError> {
        Err(DriveError::NotReady("not under control"))
    }

    /// Stops the platters of a drive of the pool; returns when they stand still.
    ///
    /// # Errors
    /// As [`Hardware::start_pool_drive`].
    async fn stop_pool_drive(&self, _drive: PoolDriveId) -> Result<(), DriveError> {
        Err(DriveError::NotReady("not under control"))
    }

    /// The time by which the drives below emulated ones were slower than the model.
    fn overrun(&self) -> Overrun {
        Overrun::default()
    }

    /// How often drives were found awake that another program had started.
    fn woken_by_others(&self) -> u64 {
        0
    }

    /// How often drives were found awake that nobody had started: they woke by themselves.
    fn woke_themselves(&self) -> u64 {
        0
    }

    /// What each drive that is a device does about its power by itself, as far as it is there and the kernel knows. No
    /// drive is asked.
    fn habits(&self) -> BTreeMap<DriveId, PowerHabits> {
        BTreeMap::new()
    }

    /// Of each drive that was found awake and that nobody here had started, the last time.
    fn last_wakes(&self) -> BTreeMap<DriveId, UnaskedWake> {
        BTreeMap::new()
    }
}

#[async_trait]
impl Hardware for EmulatedRack {
    async fn news(&self) -> DriveEvent {
        Self::news(self).await
    }

    fn assume_used(&self, id: DriveId, bytes: u64) {
        Self::assume_used(self, id, bytes);
    }

    fn watch_queues(&self, fill: QueueFill) {
        Self::watch_queues(self, fill);
    }

    fn replace(&self, drive: DriveId) {
        Self::replace(self, drive);
    }

    async fn start_pool_drive(&self, drive: PoolDriveId) -> Result<(), DriveError> {
        Self::start_pool_drive(self, drive).await
    }

    async fn stop_pool_drive(&self, drive: PoolDriveId) -> Result<(), DriveError> {
        Self::stop_pool_drive(self, drive).await
    }

    fn overrun(&self) -> Overrun {
        Self::overrun(self)
    }
}
