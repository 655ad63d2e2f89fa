//! A disk with a file system that the operator mounted, and that stays mounted while the disk sleeps.
//!
//! Larder's open files there stay open, so the file system cannot be unmounted before the disk stops, as that of a
//! rack's drive is. It is quiesced instead ([`super::freeze`]). A later read or write is not refused: the kernel starts
//! the disk, which shows in its counters.
//!
//! Invariants:
//! - only the disk with the directory is stopped, even if mounts have changed meanwhile;
//! - no disk is stopped that the kernel would not start by itself: a late request would fail, and its file system with
//!   it;
//! - no file system stays frozen.

use super::freeze;
use super::handle::DiskHandle;
use super::powered::PoweredDisk;
use crate::DriveError;
use crate::discover::Tree;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the links that name disks by their identity.
pub const BY_ID: &str = "/dev/disk/by-id";

/// A disk under control, and a directory on it. See the header of this file.
pub struct MountedDisk {
    pub(super) power: Arc<PoweredDisk>,
    directory: PathBuf,
    tree: Tree,
    quiesce: fn(&Path) -> io::Result<()>,
}

/// The reason why a mounted disk cannot be put to sleep, or was not started.
#[derive(Debug, thiserror::Error)]
pub enum MountedError {
    /// The directory is somewhere else.
    #[error(
        "{} is not on {}, but on {found}: mount that disk there, without LVM, RAID or encryption in between, or name \
         the right one", .directory.display(), .disk.display()
    )]
    Elsewhere {
        /// The directory.
        directory: PathBuf,
        /// The disk that it should be on.
        disk: PathBuf,
        /// The device that it is on.
        found: String,
    },
    /// Its name may belong to another disk tomorrow.
    #[error("{} may be another disk after the next start; name its link in {BY_ID}", .0.display())]
    Unstable(PathBuf),
    /// The disk has other partitions.
    #[error("{} has other partitions besides {partition}; programs that use these would wake the disk: leave only one \
             partition on it", .disk.display())]
    Shared {
        /// The disk.
        disk: PathBuf,
        /// The partition with the directory.
        partition: String,
    },
    /// The kernel does not start it on requests.
    #[error(
        "{} stays awake: if it slept, a late write would fail and shut its file system down, since the kernel would \
         not start it; write 1 to /sys/block/{name}/device/scsi_disk/*/allow_restart, with a udev rule", .disk.display()
    )]
    NoRestart {
        /// The disk.
        disk: PathBuf,
        /// The kernel's name for it.
        name: String,
    },
    /// The file system cannot be quiesced.
    #[error("{}: the file system cannot be frozen, without which no disk is stopped: {source}", .directory.display())]
    Freeze {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An error of the disk itself.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

impl MountedDisk {
    /// The disk that `directory` is on.
    pub fn new(disk: DiskHandle, directory: impl Into<PathBuf>) -> Self {
        Self::within(PoweredDisk::new(disk), directory.into(), Tree::below("/"), freeze::quiesce)
    }

    /// The same in `tree`, with a different way to quiesce file systems.
    pub(super) fn within(
        power: PoweredDisk,
        directory: PathBuf,
        tree: Tree,
        quiesce: fn(&Path) -> io::Result<()>,
    ) -> Self {
        Self { power: Arc::new(power), directory, tree, quiesce }
    }

    /// The disk's link.
    fn disk(&self) -> Result<PathBuf, MountedError> {
        let disk = self.power.disk.id();
        if disk.starts_with(BY_ID) { Ok(disk) } else { Err(MountedError::Unstable(disk)) }
    }

    /// Checks that the disk can be put to sleep: the directory is on it and on no other, and the kernel would start it
    /// if necessary. Reads the directory's inode, so the disk should be awake. Blocks.
    ///
    /// # Errors
    /// [`MountedError`].
    pub fn check(&self) -> Result<(), MountedError> {
        let disk = self.disk()?;
        let name = self.power.disk.name()?;
        let elsewhere =
            |found| MountedError::Elsewhere { directory: self.directory.clone(), disk: disk.clone(), found };
        let found = std::fs::metadata(&self.directory).map_err(|error| elsewhere(format!("nothing ({error})")))?;
        let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let device = self.tree.target(format!("sys/dev/block/{major}:{minor}"));
        let named = |path: Option<&Path>| Some(path?.file_name()?.to_str()?.to_owned());
        let Some(on) = named(device.as_deref()) else {
            return Err(elsewhere(format!("no disk of its own (device {major}:{minor})")));
        };
        let is_partition = named(device.as_deref().and_then(Path::parent)).as_ref() == Some(&name);
        if on != name && !is_partition {
            return Err(elsewhere(on));
        }
        let partitions = self.tree.names(Path::new("sys/block").join(&name));
        if partitions.iter().any(|partition| partition.starts_with(&name) && *partition != on) {
            return Err(MountedError::Shared { disk, partition: on });
        }
        if self.power.disk.habits().and_then(|habits| habits.allow_restart) == Some(false) {
            return Err(MountedError::NoRestart { disk, name });
        }
        Ok(())
    }

    /// Makes sure that it is awake before anything is read: starts it if it reports standby, and undoes a freeze that a
    /// killed process left. True if it was started. Blocks.
    ///
    /// # Errors
    /// [`MountedError`]; its directory must not be read if it did not start.
    pub fn ready(&self) -> Result<bool, MountedError> {
        self.disk()?;
        let stands_still = self.power.ask() == Some(true);
        if stands_still {
            self.power.start()?;
        }
        self.check()?;
        let thawed = freeze::thaw(&self.directory);
        thawed.map_err(|source| MountedError::Freeze { directory: self.directory.clone(), source })?;
        Ok(stands_still)
    }

    /// Starts it, and returns when it is at speed. Blocks.
    ///
    /// # Errors
    /// [`MountedError`]: also if another disk has taken its place, with a different file system.
    pub fn start(&self) -> Result<(), MountedError> {
        self.power.start()?;
        self.check()
    }

    /// Quiesces its file system and stops it; returns when it has stopped. Blocks.
    ///
    /// # Errors
    /// [`MountedError`]; no stop was sent to it unless the disk itself is at fault.
    pub fn stop(&self) -> Result<(), MountedError> {
        self.power.stop(|| {
            self.check()?;
            (self.quiesce)(&self.directory)
                .map_err(|source| MountedError::Freeze { directory: self.directory.clone(), source })
        })
    }
}
