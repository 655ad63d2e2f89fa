//! A disk under commands: started, mounted, unmounted, stopped. Calls block.

use super::handle::DiskHandle;
use super::mkfs;
use super::mount;
use super::sleep::Sleep;
use crate::DriveError;
use crate::label::{self, DriveLabel, Label, LabelError};
use crate::power::{PowerError, PowerMode, trial};
use crate::scsi::TransportError;
use model::Smart;
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
    expected: Label,
    pub(super) sleep: Mutex<Sleep>,
    /// Waits between two questions.
    pub(super) pause: fn(Duration),
    /// Held while it is started or stopped, or asked for its health, which could start it again.
    commanded: Mutex<()>,
}

impl DeviceState {
    pub(super) fn new(disk: DiskHandle, mount_point: PathBuf, expected: Label) -> Self {
        let (sleep, commanded) = (Mutex::default(), Mutex::default());
        Self { disk, mount_point, expected, sleep, pause: std::thread::sleep, commanded }
    }

    /// The directory of its files, while it is mounted.
    pub(super) fn directory(&self) -> PathBuf {
        directory_in(&self.mount_point)
    }

    /// The name of its file system.
    fn volume(&self) -> String {
        label::volume_name(self.expected.rack)
    }

    /// Makes its file system. All that was on the disk is gone.
    pub(super) fn make_file_system(&self) -> Result<(), DriveError> {
        let name = self.disk.name()?;
        mkfs::make_file_system(&self.disk.node(&name), &self.volume())
            .map_err(|error| DriveError::Io { context: name, source: io::Error::other(error) })
    }

    pub(super) fn start(&self) -> Result<(), DriveError> {
        let _commanded = self.commanded.lock();
        self.sleep.lock().ends();
        let control = self.disk.control()?;
        control.start().map_err(|error| self.power_error(error))?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Active, &mut |pause| (self.pause)(pause)) {
            Ok(Some(_)) => self.await_disk(),
            Ok(None) => Err(DriveError::NoAnswer(SPIN_MAX)),
            Err(error) => Err(self.power_error(error)),
        }
    }

    /// Waits for a disk whose power a command controls until the kernel has found it.
    fn await_disk(&self) -> Result<(), DriveError> {
        let mut waited = Duration::ZERO;
        while self.disk.is_commanded() && self.disk.name().is_err() {
            if waited >= SPIN_MAX {
                return Err(DriveError::Gone(self.disk.id()));
            }
            (self.pause)(POLL);
            waited += POLL;
        }
        Ok(())
    }

    /// Mounts it. A disk with another label is not written, not even by its file system: that is compared before it
    /// is mounted for writing.
    pub(super) fn mount(&self) -> Result<(), DriveError> {
        let (node, system) = self.ready_to_mount()?;
        mount::mount_untouched(&node, &self.mount_point, system)?;
        let labelled = label::check_directory(&self.directory(), &self.expected);
        self.unmount()?;
        match labelled {
            Err(error @ DriveError::Label(LabelError::ForeignRack { .. } | LabelError::ForeignDrive { .. })) => {
                Err(error)
            }
            // A label that was not found may be seen once the journal was replayed: it is read again then.
            _ => mount::mount(&node, &self.mount_point, system),
        }
    }

    /// Mounts a file system of this rack's that may have no label yet.
    pub(super) fn mount_new(&self) -> Result<(), DriveError> {
        let (node, system) = self.ready_to_mount()?;
        mount::mount(&node, &self.mount_point, system)
    }

    /// Its device node and the kind of its file system. Nothing is mounted in its place any more.
    fn ready_to_mount(&self) -> Result<(PathBuf, &'static str), DriveError> {
        self.sleep.lock().ends();
        // What a server that was killed left mounted, on whatever disk it was.
        mount::unmount(&self.mount_point)?;
        let name = self.disk.name()?;
        let system = self.disk.file_system(&name, &self.volume())?;
        Ok((self.disk.node(&name), system))
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
        let (node, system) = self.ready_to_mount()?;
        mount::mount_untouched(&node, &self.mount_point, system)
    }

    /// Another disk is in its place: the one to which the link `id` leads.
    pub(super) fn becomes(&self, id: &Path) {
        self.disk.lead_to(id);
        {
            let mut sleep = self.sleep.lock();
            // What the disk before it answers counts no more.
            *sleep = Sleep { starts: sleep.starts + 1, ..Sleep::default() };
        }
        self.ask();
    }

    pub(super) fn unmount(&self) -> Result<(), DriveError> {
        mount::unmount(&self.mount_point)
    }

    pub(super) fn stop(&self) -> Result<(), DriveError> {
        let _commanded = self.commanded.lock();
        self.unmount()?;
        let control = self.disk.control()?;
        control.stop().map_err(|error| self.power_error(error))?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Standby, &mut |pause| (self.pause)(pause)) {
            Ok(Some(_)) => {
                self.sleep.lock().begins(self.disk.counters());
                Ok(())
            }
            Ok(None) => Err(DriveError::Power(PowerError::StopIgnored)),
            Err(error) => Err(self.power_error(error)),
        }
    }

    /// The error for one of power control: a disk may have gone in the middle of a start.
    fn power_error(&self, error: PowerError) -> DriveError {
        match error {
            PowerError::Transport(TransportError::Gone) => DriveError::Gone(self.disk.id()),
            error => DriveError::Power(error),
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

    /// Makes the directory, and the label in it if there is one, the user's and the group's.
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
