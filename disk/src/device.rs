//! A drive that is a whole disk, with a separate file system.
//!
//! ```text
//!  stopped,  --spin_up--> START, polled  --mount--> superblock read,
//!  unmounted              until at speed            label compared in a mount that
//!     ^                                             writes nothing; mounted
//!     |                                                     |
//!     +--stop-- unmounted: no late write is left <--unmount-+
//!     STOP, polled until the disk says standby
//! ```
//! It is started and stopped by the disk itself, or by a command of the operator's, which may cut its power: then it is
//! gone while it sleeps, and is waited for when it is started.
//!
//! The disk is named by its link in /dev/disk/by-id, which is resolved again for each command: the kernel's name
//! (`sda`) may be another disk's tomorrow. On the mounted file system all work is done by a [`DirectoryDrive`], in the
//! directory `larder` of its root: while nothing is mounted this directory does not exist, so a late request cannot
//! write below the mount point.
//!
//! Invariants:
//! - no mounted disk is stopped: the file system's next write would start it again;
//! - no file system is mounted that does not have the name of this rack's volumes, and none is mounted for writing, or
//!   stays mounted, if its label is not the expected one;
//! - a disk counts as stopped only if it reports that itself.

mod freeze;
mod handle;
mod measured_disk;
mod mkfs;
mod mount;
mod mounted;
mod pool;
mod powered;
mod rack;
mod sleep;
mod state;
#[cfg(test)]
mod tests;
mod watch;
mod watched;

pub use handle::DiskHandle;
pub use mkfs::MkfsError;
pub use mounted::{BY_ID, MountedDisk, MountedError};
pub use pool::PoolDisks;
pub use rack::{DeviceRack, RackDrive};
pub use state::directory_in;
pub use watched::WATCH_EVERY;

use crate::directory::{DirectoryDrive, OpenFiles};
use crate::label::{self, DriveLabel, Label};
use crate::measure::Subject;
use crate::owner::Claim;
use crate::power::PowerMode;
use crate::{Buffer, Drive, DriveError, FileName, Space, finished};
use async_trait::async_trait;
use measured_disk::MeasuredDisk;
use model::Smart;
use powered::PoweredDisk;
use state::DeviceState;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A drive that is a whole disk. See the header of this file.
pub struct DeviceDrive {
    state: Arc<DeviceState>,
    files: DirectoryDrive,
}

impl DeviceDrive {
    /// The drive on `disk`, mounted at `mount_point`, which must carry `label`.
    pub fn new(disk: DiskHandle, mount_point: impl Into<PathBuf>, label: Label) -> Self {
        let state = DeviceState::new(PoweredDisk::new(disk), mount_point.into(), label.clone());
        let files = DirectoryDrive::at(state.directory()).with_label(label);
        Self { state: Arc::new(state), files }
    }

    /// Caches its open files in `files`, which it shares with other drives.
    #[must_use]
    pub fn with_open_files(mut self, files: &OpenFiles) -> Self {
        self.files = self.files.with_open_files(files);
        self
    }

    /// Mounts acquire the drive for `claim`, and fail if another server owns it.
    #[must_use]
    pub fn with_claim(mut self, claim: Arc<Claim>) -> Self {
        let state = Arc::get_mut(&mut self.state).expect("a drive is set up before it is used");
        state.claim = Some(Arc::clone(&claim));
        self.files = self.files.with_claim(claim);
        self
    }

    /// Turns the disk, which is awake and whose data is not needed, into a drive: with a file system and `label` in it,
    /// unmounted and asleep. `owner`, a user and a group, owns it if given, otherwise the present user. Blocks.
    ///
    /// # Errors
    /// [`DriveError`]; the disk's former content is then gone.
    pub fn make(&self, label: &DriveLabel, owner: Option<(u32, u32)>) -> Result<(), DriveError> {
        self.state.make_file_system()?;
        self.state.mount_new()?;
        let labelled = self.state.label(label, owner);
        // This also shows whether the disk obeys.
        let stopped = self.state.stop();
        labelled.and(stopped)
    }

    /// The disk, for measurements. The caller ensures that the drive is not used otherwise meanwhile.
    pub fn to_measure(&self) -> impl Subject + use<> {
        MeasuredDisk(Arc::clone(&self.state))
    }

    /// Its power mode. Does not start it. Blocks.
    ///
    /// # Errors
    /// [`DriveError`] if it is gone or may not be sent commands.
    pub fn mode(&self) -> Result<PowerMode, DriveError> {
        self.state.power.disk.mode()
    }

    /// Warns if the mounted volume was made on another disk. The volume is used nevertheless: an operator who copied a
    /// dying disk to a new one, and named that one in the description, wants exactly this.
    async fn warn_of_another_disk(&self) {
        let Ok(made_on) = label::device_of(&self.files).await else { return };
        let shown = format!("{made_on:?}");
        if let Ok(Some(other)) = self.run(move |state| Ok(state.power.disk.other_than(&made_on))).await {
            tracing::warn!(
                disk = %self.state.power.disk.id().display(),
                "a drive was created on another disk ({shown}) than the one that it is on ({other}): unless you copied \
                 it, make sure that the other disk is not served as well"
            );
        }
    }

    /// Unmounts any disk that is mounted in its place. Blocks.
    ///
    /// # Errors
    /// [`DriveError`], above all if it is in use.
    pub fn clear_place(&self) -> Result<(), DriveError> {
        self.state.unmount()
    }

    /// Calls `look` with the directory of the disk's files, in a file system of this rack that is mounted so that
    /// nothing is written to the disk. The disk is awake, and stays so. Blocks.
    ///
    /// # Errors
    /// [`DriveError`].
    pub fn peek<T>(&self, look: impl FnOnce(&Path) -> T) -> Result<T, DriveError> {
        self.state.mount_untouched()?;
        let seen = look(&self.state.directory());
        self.state.unmount()?;
        Ok(seen)
    }

    /// Calls `work` with the directory of the disk's files, in a file system of this rack; the directory is created if
    /// necessary. It then belongs to `owner`, as after [`DeviceDrive::make`], which may have been killed before that
    /// step. The disk, which is awake, is unmounted and asleep at the end. Blocks.
    ///
    /// # Errors
    /// [`DriveError`]; completed work stays.
    pub fn complete<T>(&self, owner: Option<(u32, u32)>, work: impl FnOnce(&Path) -> T) -> Result<T, DriveError> {
        self.state.mount_new()?;
        let done = self.state.make_directory().map(|()| work(&self.state.directory()));
        let given = || owner.map_or(Ok(()), |owner| self.state.give_to(owner)).and_then(|()| self.state.sync_root());
        let done = done.and_then(|done| given().map(|()| done));
        let stopped = self.state.stop();
        done.and_then(|done| stopped.map(|()| done))
    }

    /// Unmounts and stops the disk. Blocks.
    ///
    /// # Errors
    /// [`DriveError`], above all if the disk does not report that it has stopped.
    pub fn put_to_sleep(&self) -> Result<(), DriveError> {
        self.state.stop()
    }

    /// Runs `work` on a thread that may block.
    async fn run<T, F>(&self, work: F) -> Result<T, DriveError>
    where
        T: Send + 'static,
        F: FnOnce(&DeviceState) -> Result<T, DriveError> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let done = tokio::task::spawn_blocking(move || work(&state)).await;
        finished(done).unwrap_or(Err(DriveError::NotReady("shutting down")))
    }
}

/// True if `path` names a device, not a directory.
pub fn is_device(path: &Path) -> bool {
    path.starts_with("/dev")
}

#[async_trait]
impl Drive for DeviceDrive {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        self.files.create(name, bytes).await
    }

    async fn create_sparse(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        self.files.create_sparse(name, bytes).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        self.files.write_at(name, offset, data).await
    }

    async fn read_at(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError> {
        self.files.read_at(name, offset, into).await
    }

    async fn read_end(&self, name: &FileName, bytes: u64) -> Result<(u64, Buffer), DriveError> {
        self.files.read_end(name, bytes).await
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        self.files.sync(name).await
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        self.files.remove(name).await
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        self.files.replace(from, to).await
    }

    async fn remove_many(&self, names: Vec<FileName>) -> Vec<Result<u64, DriveError>> {
        self.files.remove_many(names).await
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        self.files.len(name).await
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.files.list().await
    }

    async fn space(&self) -> Result<Space, DriveError> {
        self.files.space().await
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        self.run(|state| state.power.start()).await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        // Releases the lock of an earlier mount.
        self.files.unmount().await?;
        self.run(DeviceState::mount).await?;
        let mounted = self.files.mount().await;
        if mounted.is_err() {
            // The error of the label is the relevant one.
            let _ = self.unmount().await;
        } else {
            self.warn_of_another_disk().await;
        }
        mounted
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.files.unmount().await?;
        self.run(DeviceState::unmount).await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        self.files.unmount().await?;
        self.run(DeviceState::stop).await
    }

    async fn health(&self) -> Result<Option<Smart>, DriveError> {
        self.run(|state| state.power.health()).await
    }
}
