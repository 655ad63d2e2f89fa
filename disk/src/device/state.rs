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
use std::os::unix::fs::{DirBuilderExt, chown};
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
    pub(super) fn new(disk: DiskHandle, mount_point: PathBuf, volume: String) -> Self {
        Self { disk, mount_point, volume, sleep: Mutex::default(), commanded: Mutex::default() }
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
            Ok(Some(_)) => self.await_disk(),
            Ok(None) => Err(DriveError::NoAnswer(SPIN_MAX)),
            Err(error) => Err(DriveError::Power(error)),
        }
    }

    /// Waits for a disk whose power a command controls until the kernel has found it.
    fn await_disk(&self) -> Result<(), DriveError> {
        let mut waited = Duration::ZERO;
        while self.disk.is_commanded() && self.disk.name().is_err() {
            if waited >= SPIN_MAX {
                return Err(DriveError::Gone(self.disk.id()));
            }
            std::thread::sleep(POLL);
            waited += POLL;
        }
        Ok(())
    }

    pub(super) fn mount(&self) -> Result<(), DriveError> {
        self.sleep.lock().ends();
        // What a server that was killed left mounted, on whatever disk it was.
        mount::unmount(&self.mount_point)?;
        let name = self.disk.name()?;
        let system = self.disk.file_system(&name, &self.volume)?;
        mount::mount(&self.disk.node(&name), &self.mount_point, system)
    }

    /// Unmounts and stops a disk that sleeps and is mounted all the same, as one that something else stopped after a
    /// crash: a late write of its file system would start it at any moment. False if it may spin in the end.
    pub(super) fn settle(&self) -> bool {
        if !mount::is_mounted(&self.mount_point) {
            return true;
        }
        let stopped = self.stop();
        if let Err(error) = &stopped {
            tracing::warn!(disk = %self.disk.id().display(), %error, "a disk was left mounted and will not stop");
        }
        stopped.is_ok()
    }

    /// Mounts it so that nothing is written to it.
    pub(super) fn mount_untouched(&self) -> Result<(), DriveError> {
        mount::unmount(&self.mount_point)?;
        let name = self.disk.name()?;
        let system = self.disk.file_system(&name, &self.volume)?;
        mount::mount_untouched(&self.disk.node(&name), &self.mount_point, system)
    }

    /// Another disk is in its place: the one to which the link `id` leads.
    pub(super) fn becomes(&self, id: &Path) {
        self.disk.lead_to(id);
        *self.sleep.lock() = Sleep::default();
        self.ask();
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

    /// Writes the label of a new drive, whose file system is mounted. What Larder makes on it is `owner`'s, a user and
    /// a group, if that is not whoever runs this.
    pub(super) fn label(&self, label: &DriveLabel, owner: Option<(u32, u32)>) -> Result<(), DriveError> {
        self.make_directory()?;
        label::write_directories(&[(self.directory(), label.clone())])?;
        if let Some(owner) = owner {
            self.give_to(owner)?;
        }
        self.sync_root()
    }

    /// Makes the directory and the label in it the user's and the group's.
    fn give_to(&self, (user, group): (u32, u32)) -> Result<(), DriveError> {
        let directory = self.directory();
        let made = [directory.clone(), directory.join(label::file_name().as_str())];
        let given = made.iter().try_for_each(|path| chown(path, Some(user), Some(group)));
        let given = given.and_then(|()| fs::File::open(&directory)?.sync_all());
        given.map_err(|source| DriveError::Io {
            context: format!("giving {} to its owner", directory.display()),
            source,
        })
    }

    /// Makes the directory of its files, unless it is there.
    pub(super) fn make_directory(&self) -> Result<(), DriveError> {
        let directory = self.directory();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| DriveError::Io { context: format!("making {}", directory.display()), source })
    }

    /// The directory's name is durable then.
    pub(super) fn sync_root(&self) -> Result<(), DriveError> {
        let synced = fs::File::open(&self.mount_point).and_then(|root| root.sync_all());
        synced.map_err(|source| DriveError::Io { context: format!("syncing {}", self.mount_point.display()), source })
    }
}
