//! A drive that is a whole disk, with a file system of its own.
//!
//! ```text
//!  stopped,  --spin_up--> START, polled  --mount--> superblock read,
//!  unmounted              until at speed            mounted, label checked
//!     ^                                                     |
//!     +--stop-- unmounted: no late write is left <--unmount-+
//!     STOP, polled until the disk says standby
//! ```
//! The disk is named by its link in /dev/disk/by-id, which is followed anew for each command: the kernel's name (`sda`)
//! may be another disk's tomorrow. On the mounted file system all is done by a [`DirectoryDrive`], in the directory
//! `larder` of its root: while nothing is mounted there is no such directory, so that a late request finds nothing to
//! write to below the mount point.
//!
//! Invariants:
//! - nothing is stopped that is mounted: the file system's next write would start it again;
//! - nothing is mounted that does not carry the name of this rack's volumes, and nothing stays mounted whose label is
//!   not the expected one;
//! - a disk counts as stopped only if it says so itself.

mod handle;
mod mkfs;
mod mount;
mod rack;
mod watch;

pub use handle::DiskHandle;
pub use mkfs::MkfsError;
pub use rack::{DeviceRack, RackDrive, WATCH_EVERY};

use crate::directory::{DirectoryDrive, OpenFiles};
use crate::label::{self, DriveLabel, Label};
use crate::power::{PowerError, PowerMode, trial};
use crate::{Buffer, Drive, DriveError, FileName, Space, finished};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use watch::Sleep;

/// The directory of the file system's root in which everything of Larder's lies.
const DIRECTORY: &str = "larder";
/// Between two questions whether a disk has got to speed, or stands still.
const POLL: Duration = Duration::from_millis(200);
/// The longest that is waited for either. Whoever commands the drive has deadlines of their own.
const SPIN_MAX: Duration = Duration::from_mins(2);

struct DeviceState {
    disk: DiskHandle,
    mount_point: PathBuf,
    volume: String,
    /// What is known of it since it was seen asleep.
    sleep: Mutex<Sleep>,
}

/// A drive that is a whole disk. See the head of this file.
pub struct DeviceDrive {
    state: Arc<DeviceState>,
    files: DirectoryDrive,
}

impl DeviceDrive {
    /// The drive on the disk `id` (a path below /dev/disk/by-id), mounted at `mount_point`, which must carry `label`.
    pub fn new(id: impl Into<PathBuf>, mount_point: impl Into<PathBuf>, label: Label) -> Self {
        let mount_point = mount_point.into();
        let state = DeviceState {
            disk: DiskHandle::new(id),
            volume: label::volume_name(label.rack),
            sleep: Mutex::default(),
            mount_point,
        };
        let files = DirectoryDrive::at(state.mount_point.join(DIRECTORY)).with_label(label);
        Self { state: Arc::new(state), files }
    }

    /// Caches its open files in `files`, which it shares with other drives.
    #[must_use]
    pub fn with_open_files(mut self, files: &OpenFiles) -> Self {
        self.files = self.files.with_open_files(files);
        self
    }

    /// Makes a drive of the disk, which is awake and of which nothing is needed any more: a file system, with `label`
    /// in it, unmounted and asleep. Blocks.
    ///
    /// # Errors
    /// [`DriveError`]; what the disk held is gone then.
    pub fn make(&self, label: &DriveLabel) -> Result<(), DriveError> {
        let name = self.state.disk.name()?;
        mkfs::make_file_system(&self.state.disk.node(&name), &self.state.volume)
            .map_err(|error| DriveError::Io { context: name, source: io::Error::other(error) })?;
        self.state.mount()?;
        let labelled = self.state.label(label);
        // It also shows whether it obeys.
        let stopped = self.state.stop();
        labelled.and(stopped)
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

impl DeviceState {
    fn start(&self) -> Result<(), DriveError> {
        self.sleep.lock().ends();
        let control = self.disk.control()?;
        control.start().map_err(DriveError::Power)?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Active, &mut std::thread::sleep) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(DriveError::NoAnswer(SPIN_MAX)),
            Err(error) => Err(DriveError::Power(error)),
        }
    }

    fn mount(&self) -> Result<(), DriveError> {
        self.sleep.lock().ends();
        // What a server that was killed left mounted, on whatever disk it was.
        mount::unmount(&self.mount_point)?;
        let name = self.disk.name()?;
        let system = self.disk.file_system(&name, &self.volume)?;
        mount::mount(&self.disk.node(&name), &self.mount_point, system)
    }

    fn unmount(&self) -> Result<(), DriveError> {
        mount::unmount(&self.mount_point)
    }

    fn stop(&self) -> Result<(), DriveError> {
        self.unmount()?;
        let control = self.disk.control()?;
        control.stop().map_err(DriveError::Power)?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Standby, &mut std::thread::sleep) {
            Ok(Some(_)) => {
                self.sleep.lock().begins(self.disk.counters());
                Ok(())
            }
            Ok(None) => Err(DriveError::Power(PowerError::StopIgnored)),
            Err(error) => Err(DriveError::Power(error)),
        }
    }

    /// Writes the label of a new drive, whose file system is mounted.
    fn label(&self, label: &DriveLabel) -> Result<(), DriveError> {
        let directory = self.mount_point.join(DIRECTORY);
        let failed = |source| DriveError::Io { context: format!("making {}", directory.display()), source };
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        label::write_directories(&[(directory.clone(), label.clone())])?;
        fs::File::open(&self.mount_point).and_then(|root| root.sync_all()).map_err(failed)
    }
}

/// The directory of a drive's files, while it is mounted at `mount_point`.
pub fn directory_in(mount_point: &Path) -> PathBuf {
    mount_point.join(DIRECTORY)
}

/// Whether `path` names a device, rather than a directory.
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
        self.run(DeviceState::start).await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        self.run(DeviceState::mount).await?;
        let mounted = self.files.mount().await;
        if mounted.is_err() {
            // The error of the label is the one that counts.
            let _ = self.unmount().await;
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
}
