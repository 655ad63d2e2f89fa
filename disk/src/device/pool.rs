//! The disks of a pool of small records, whose file systems stay mounted while they sleep.

use super::mounted::{MountedDisk, MountedError};
use super::watch::Seen;
use super::watched::Watched;
use crate::DriveError;
use model::PoolDriveId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The drives of a pool that are whole disks.
pub struct PoolDisks {
    disks: BTreeMap<PoolDriveId, Arc<MountedDisk>>,
    watched: Watched<PoolDriveId>,
    unread: Mutex<VecDeque<PoolDriveId>>,
    /// The errors of the last commands to disks.
    failures: Mutex<BTreeMap<PoolDriveId, String>>,
}

impl PoolDisks {
    /// A pool with these disks.
    pub fn new(disks: impl IntoIterator<Item = (PoolDriveId, MountedDisk)>) -> Self {
        let disks: BTreeMap<_, _> = disks.into_iter().map(|(drive, disk)| (drive, Arc::new(disk))).collect();
        let watched = disks.iter().map(|(drive, disk)| (*drive, Arc::clone(&disk.power))).collect();
        Self { disks, watched: Watched::new(watched), unread: Mutex::default(), failures: Mutex::default() }
    }

    /// True if no drive of the pool is a disk.
    pub fn is_empty(&self) -> bool {
        self.disks.is_empty()
    }

    /// The disk of `drive`, if it is one.
    pub fn get(&self, drive: PoolDriveId) -> Option<&MountedDisk> {
        self.disks.get(&drive).map(|disk| &**disk)
    }

    /// Starts the platters of `drive`; returns when they are at speed.
    ///
    /// # Errors
    /// [`MountedError`].
    pub async fn start(&self, drive: PoolDriveId) -> Result<(), MountedError> {
        self.run(drive, MountedDisk::start).await
    }

    /// Stops the platters of `drive`; returns when they have stopped.
    ///
    /// # Errors
    /// [`MountedError`].
    pub async fn stop(&self, drive: PoolDriveId) -> Result<(), MountedError> {
        self.run(drive, MountedDisk::stop).await
    }

    /// The next disk that was stopped and is found spinning: something else started it. Each goes to one listener.
    pub async fn found_spinning(&self) -> PoolDriveId {
        loop {
            if let Some(drive) = self.unread.lock().pop_front() {
                return drive;
            }
            let seen = self.watched.look().await;
            let spins = |seen: &Seen| matches!(seen, Seen::Woken(_) | Seen::Back { asleep: false });
            self.unread.lock().extend(seen.iter().filter(|(_, seen)| spins(seen)).map(|(drive, _)| *drive));
        }
    }

    /// The error of the last command to `drive`; `None` if it succeeded.
    pub fn failure(&self, drive: PoolDriveId) -> Option<String> {
        self.failures.lock().get(&drive).cloned()
    }

    /// Number of times that disks were found awake because another program had started them.
    pub fn woken_by_others(&self) -> u64 {
        self.watched.woken_by_others()
    }

    /// Number of times that disks were found awake that no program had started.
    pub fn woke_themselves(&self) -> u64 {
        self.watched.woke_themselves()
    }

    async fn run(
        &self,
        drive: PoolDriveId,
        command: fn(&MountedDisk) -> Result<(), MountedError>,
    ) -> Result<(), MountedError> {
        let none = DriveError::NotReady("not controlled");
        let disk = Arc::clone(self.disks.get(&drive).ok_or(none)?);
        let done = tokio::task::spawn_blocking(move || command(&disk)).await;
        let done = done.unwrap_or(Err(DriveError::NotReady("shutting down").into()));
        let mut failures = self.failures.lock();
        match &done {
            Ok(()) => failures.remove(&drive),
            Err(error) => failures.insert(drive, error.to_string()),
        };
        done
    }
}
