//! Reports of and requests to a rack's hardware, besides the commands to its drives.

use crate::DriveError;
use crate::emulated::{DriveEvent, EmulatedRack, Overrun};
use async_trait::async_trait;
use model::{DriveId, PoolDriveId, PowerHabits, UnaskedWake};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns how full the clients' queue of a drive's class is, in thousandths.
pub type QueueFill = Box<dyn Fn(DriveId) -> u32 + Send + Sync>;

/// The hardware of a rack: emulated, or devices.
#[async_trait]
pub trait Hardware: Send + Sync + 'static {
    /// The next event that no command caused. Each event goes to one listener.
    async fn news(&self) -> DriveEvent;

    /// Asks the drives for their states, and returns those that spin or may spin. Starts none. Called once, before
    /// anything is started.
    async fn spinning(&self) -> Vec<DriveId> {
        Vec::new()
    }

    /// Sets the bytes of the files on drive `id`. See [`EmulatedRack::assume_used`].
    fn assume_used(&self, _id: DriveId, _bytes: u64) {}

    /// Sets the source of queue fills. See [`EmulatedRack::watch_queues`].
    fn watch_queues(&self, _fill: QueueFill) {}

    /// Notes that another drive takes the place of a failed one.
    fn replace(&self, _drive: DriveId) {}

    /// Makes the disk that the link `id` refers to the disk of this drive, which is idle now. The new disk is asked for
    /// its state.
    async fn use_disk(&self, _drive: DriveId, _id: &Path) {}

    /// Starts the platters of a drive of the pool; returns when they are at speed.
    ///
    /// # Errors
    /// [`DriveError::NotReady`]: the power of drives that are not emulated is not controlled here.
    async fn start_pool_drive(&self, _drive: PoolDriveId) -> Result<(), DriveError> {
        Err(DriveError::NotReady("not under control"))
    }

    /// Stops the platters of a drive of the pool; returns when they have stopped.
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

    /// Number of times that drives were found awake because another program had started them.
    fn woken_by_others(&self) -> u64 {
        0
    }

    /// Number of times that drives were found awake that no program had started: they woke by themselves.
    fn woke_themselves(&self) -> u64 {
        0
    }

    /// The power habits of each drive that is a present device, as far as the kernel knows them. No drive is asked.
    fn habits(&self) -> BTreeMap<DriveId, PowerHabits> {
        BTreeMap::new()
    }

    /// The last wake of each drive that was found awake without a start from here.
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
