//! A disk with its file system: mounted and unmounted around its sleep. Calls block.

use super::mkfs;
use super::mount;
use super::powered::PoweredDisk;
use crate::DriveError;
use crate::label::{self, DriveLabel, Label, LabelError};
use crate::owner::Claim;
use crate::private;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory in the file system's root with everything of Larder.
const DIRECTORY: &str = "larder";
/// The directory of a drive's files, while it is mounted at `mount_point`.
pub fn directory_in(mount_point: &Path) -> PathBuf {
    mount_point.join(DIRECTORY)
}

/// A disk and its mount point.
pub(super) struct DeviceState {
    pub(super) power: Arc<PoweredDisk>,
    mount_point: PathBuf,
    expected: Label,
    pub(super) claim: Option<Arc<Claim>>,
}

impl DeviceState {
    pub(super) fn new(power: PoweredDisk, mount_point: PathBuf, expected: Label) -> Self {
        Self { power: Arc::new(power), mount_point, expected, claim: None }
    }

    /// The directory of its files, while it is mounted.
    pub(super) fn directory(&self) -> PathBuf {
        directory_in(&self.mount_point)
    }

    /// The name of its file system.
    fn volume(&self) -> String {
        label::volume_name(self.expected.rack)
    }

    /// Creates its file system. All former content of the disk is gone.
    pub(super) fn make_file_system(&self) -> Result<(), DriveError> {
        let name = self.power.disk.name()?;
        mkfs::make_file_system(&self.power.disk.node(&name), &self.volume())
            .map_err(|error| DriveError::Io { context: name, source: io::Error::other(error) })
    }

    /// Mounts it. Label and owner mark are checked before the mount for writing, so not even the file system writes to
    /// a foreign disk or to one of another server.
    pub(super) fn mount(&self) -> Result<(), DriveError> {
        let (node, system) = self.ready_to_mount()?;
        mount::mount_untouched(&node, &self.mount_point, system)?;
        let checked = self.check();
        self.unmount()?;
        match checked {
            Err(
                error @ (DriveError::Label(LabelError::ForeignRack { .. } | LabelError::ForeignDrive { .. })
                | DriveError::Owner(_)),
            ) => Err(error),
            // A missing label may appear once the journal was replayed; it is read again then.
            _ => mount::mount(&node, &self.mount_point, system),
        }
    }

    /// Checks label and owner mark of the mounted drive.
    fn check(&self) -> Result<(), DriveError> {
        label::check_directory(&self.directory(), &self.expected)?;
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check(&self.directory()))
    }

    /// Mounts a file system of this rack that may have no label yet.
    pub(super) fn mount_new(&self) -> Result<(), DriveError> {
        let (node, system) = self.ready_to_mount()?;
        mount::mount(&node, &self.mount_point, system)
    }

    /// Its device node and the kind of its file system. Unmounts anything that is mounted in its place.
    fn ready_to_mount(&self) -> Result<(PathBuf, &'static str), DriveError> {
        self.power.sleep.lock().ends();
        // A killed server may have left any disk mounted here.
        mount::unmount(&self.mount_point)?;
        let name = self.power.disk.name()?;
        let system = self.power.disk.file_system(&name, &self.volume())?;
        Ok((self.power.disk.node(&name), system))
    }

    /// Unmounts and stops a disk that sleeps while mounted, for example one that was stopped otherwise after a crash: a
    /// late write of its file system could start it at any moment. False if it may spin afterwards.
    pub(super) fn settle(&self) -> bool {
        if !mount::is_mounted(&self.mount_point) {
            return true;
        }
        let stopped = self.stop();
        if let Err(error) = &stopped {
            tracing::warn!(disk = %self.power.disk.id().display(), %error, "a disk was left mounted and will not stop");
        }
        stopped.is_ok()
    }

    /// Mounts it so that nothing is written to it.
    pub(super) fn mount_untouched(&self) -> Result<(), DriveError> {
        let (node, system) = self.ready_to_mount()?;
        mount::mount_untouched(&node, &self.mount_point, system)
    }

    pub(super) fn unmount(&self) -> Result<(), DriveError> {
        mount::unmount(&self.mount_point)
    }

    /// Unmounts and stops it.
    pub(super) fn stop(&self) -> Result<(), DriveError> {
        self.power.stop(|| self.unmount())
    }

    /// Writes the label of a new drive, whose file system is mounted. `owner`, a user and a group, owns Larder's files
    /// on it if given, otherwise the present user.
    pub(super) fn label(&self, label: &DriveLabel, owner: Option<(u32, u32)>) -> Result<(), DriveError> {
        self.make_directory()?;
        label::write_directories(&[(self.directory(), label.clone())])?;
        if let Some(owner) = owner {
            self.give_to(owner)?;
        }
        self.sync_root()
    }

    /// Gives the directory, and the label in it if it exists, to the user and the group.
    pub(super) fn give_to(&self, (user, group): (u32, u32)) -> Result<(), DriveError> {
        let directory = self.directory();
        let label = directory.join(label::file_name().as_str());
        let made = [Some(directory.clone()), label.exists().then_some(label)];
        let given = made.iter().flatten().try_for_each(|path| chown(path, Some(user), Some(group)));
        let given = given.and_then(|()| fs::File::open(&directory)?.sync_all());
        given.map_err(|source| DriveError::Io {
            context: format!("giving {} to its owner", directory.display()),
            source,
        })
    }

    /// Creates the directory of its files unless it exists.
    pub(super) fn make_directory(&self) -> Result<(), DriveError> {
        let directory = self.directory();
        let made = private::make_directory(&directory);
        made.map_err(|source| DriveError::Io { context: format!("making {}", directory.display()), source })
    }

    /// Makes the directory's name durable.
    pub(super) fn sync_root(&self) -> Result<(), DriveError> {
        let synced = fs::File::open(&self.mount_point).and_then(|root| root.sync_all());
        synced.map_err(|source| DriveError::Io { context: format!("syncing {}", self.mount_point.display()), source })
    }
}
