//! A disk under commands: started, mounted, unmounted, stopped. Calls block.

use super::handle::DiskHandle;
use super::mkfs;
use super::mount;
use super::sleep::Sleep;
use crate::DriveError;
use crate::label::{self, DriveLabel};
use crate::power::{PowerError, PowerMode, trial};
use crate::smart::Smart;
use parking_lot::Mutex;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the file system's root in which everything of Larder's lies.
const DIRECTORY: &str = "larder";
/// Between two questions whether a disk has got to speed, or stands still.
const POLL: Duration = Duration::from_millis(200);
/// The longest that is waited for either. Whoever commands the drive has deadlines of their own.
const SPIN_MAX: Duration = Duration::from_mins(2);

/// The directory of a drive's files, while it is mounted at `mount_point`.
pub fn directory_in(mount_point: &Path) -> PathBuf {
    mount_point.join(DIRECTORY)
}

/// A disk, where it is mounted, and what is known of its sleep.
pub(super) struct DeviceState {
    pub(super) disk: DiskHandle,
    mount_point: PathBuf,
    volume: String,
    pub(super) sleep: Mutex<Sleep>,
    /// Held while it is started or stopped, or asked for its health, which could start it again.
    commanded: Mutex<()>,
}

impl DeviceState {
    pub(super) fn new(id: PathBuf, mount_point: PathBuf, volume: String) -> Self {
        Self { disk: DiskHandle::new(id), mount_point, volume, sleep: Mutex::default(), commanded: Mutex::default() }
    }

    /// The directory of its files, while it is mounted.
    pub(super) fn directory(&self) -> PathBuf {
        directory_in(&self.mount_point)
    }

    /// Makes its file system. All that was on the disk is gone.
    pub(super) fn make_file_system(&self) -> Result<(), DriveError> {
        let name = self.disk.name()?;
        mkfs::make_file_system(&self.disk.node(&name), &self.volume)
            .map_err(|error| DriveError::Io { context: name, source: io::Error::other(error) })
    }

    pub(super) fn start(&self) -> Result<(), DriveError> {
        let _commanded = self.commanded.lock();
        self.sleep.lock().ends();
        let control = self.disk.control()?;
        control.start().map_err(DriveError::Power)?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Active, &mut std::thread::sleep) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(DriveError::NoAnswer(SPIN_MAX)),
            Err(error) => Err(DriveError::Power(error)),
        }
    }

    pub(super) fn mount(&self) -> Result<(), DriveError> {
        self.sleep.lock().ends();
        // What a server that was killed left mounted, on whatever disk it was.
        mount::unmount(&self.mount_point)?;
        let name = self.disk.name()?;
        let system = self.disk.file_system(&name, &self.volume)?;
        mount::mount(&self.disk.node(&name), &self.mount_point, system)
    }

    pub(super) fn unmount(&self) -> Result<(), DriveError> {
        mount::unmount(&self.mount_point)
    }

    pub(super) fn stop(&self) -> Result<(), DriveError> {
        let _commanded = self.commanded.lock();
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

    /// What it says of its own health, if its platters turn.
    pub(super) fn health(&self) -> Result<Option<Smart>, DriveError> {
        let _commanded = self.commanded.lock();
        self.disk.health()
    }

    /// Writes the label of a new drive, whose file system is mounted.
    pub(super) fn label(&self, label: &DriveLabel) -> Result<(), DriveError> {
        let directory = self.directory();
        let failed = |source| DriveError::Io { context: format!("making {}", directory.display()), source };
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        label::write_directories(&[(directory.clone(), label.clone())])?;
        fs::File::open(&self.mount_point).and_then(|root| root.sync_all()).map_err(failed)
    }
}
