//! Another disk in the place of a drive that failed, where drives are whole disks.
//!
//! 1. The disk is judged as `larder init` judges one: what stands against it is said, and nothing is written. Of all
//!    other disks only the kernel is asked, so that none is touched. It may be none that a drive of this rack is.
//! 2. One that holds a file system of this rack is mounted so that nothing is written, and its label read: it is the
//!    drive that failed, or one that was made by a command that did not come to its end, or it is refused.
//! 3. Any other becomes a drive: file system, label, asleep.
//! 4. The data directory remembers its link (`data_dir/disks.rs`); only then does the catalog know of it.
//!
//! Invariants: nothing is written to a disk that is refused, and none is wiped that was not named for it.

use crate::data_dir::{DataDir, DiskRegister, disks_of_machine, fresh_label, judge_disk};
use crate::replace::{Found, Taken, look, take};
use disk::DriveError;
use disk::device::{DeviceDrive, DiskHandle};
use disk::discover::{Disk, Refusal, Tree};
use disk::label::{self, DriveLabel, DriveUuid, Label};
use disk::owner::Claim;
use model::DriveId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disk that is to take the place of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskChoice {
    /// Its link in /dev/disk/by-id; without one it is the disk in the drive's place.
    pub path: Option<String>,
    /// The same disk again, by its link, serial number or World Wide Name: nothing on it is needed any more.
    pub wipe: Option<String>,
}

impl DiskChoice {
    /// True if nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.path.is_none() && self.wipe.is_none()
    }
}

/// Puts disks into the places of drives.
pub struct DiskExchange {
    register: DiskRegister,
    labels: Vec<(PathBuf, Label)>,
    claim: Arc<Claim>,
}

impl DiskExchange {
    /// Those of `dir`.
    pub fn of(dir: &DataDir) -> Self {
        Self { register: dir.register(), labels: dir.labels(), claim: dir.claim() }
    }

    /// Has the chosen disk take the place of `drive`, which failed and is a disk; that has the UUID `known`, if it is
    /// one that took the place of another. What took its place, and the link that leads there. Blocks.
    ///
    /// # Errors
    /// Why it does not, with the mend.
    pub fn take(
        &self,
        drive: DriveId,
        choice: &DiskChoice,
        known: Option<DriveUuid>,
    ) -> Result<(Taken, PathBuf), String> {
        let rack = self.register.rack().map_err(|error| error.to_string())?;
        let described = rack.drive(drive).path.clone().unwrap_or_default();
        let link = choice.path.clone().unwrap_or(described);
        let (_, label) = self.labels[drive.index()].clone();
        let command = rack.drive(drive).power_command();
        let handle = DiskHandle::new(&link, command.cloned());
        let device = DeviceDrive::new(handle, self.register.mount_point(drive), label.clone());
        // The one that failed may be mounted still, and would be in use by that.
        device.clear_place().map_err(|error| about(&link, &error))?;
        let tree = Tree::below("/");
        let disks = disks_of_machine(&tree, Path::new(&link), command);
        let volume = label::volume_name(label.rack);
        let disk = judge_disk(&rack, (drive, &link), choice.wipe.as_deref(), &volume, (&tree, &disks))?;
        let fresh = DriveLabel { device: disk.identity(), ..fresh_label(label).map_err(|error| error.to_string())? };
        let owner = self.register.owner().map_err(|error| error.to_string())?;
        let taken = match found(&device, &disk, &fresh, (choice, known, &self.claim))? {
            Some(Found::Itself(uuid)) => {
                device.put_to_sleep().map_err(|error| about(&link, &error))?;
                Taken::Itself(uuid)
            }
            Some(_) => {
                let taken = device.complete(owner, |directory| take(directory, &fresh, known, &self.claim));
                taken.map_err(|error| about(&link, &error))??
            }
            None => {
                device.make(&fresh, owner).map_err(|error| about(&link, &error))?;
                Taken::Another(fresh.uuid)
            }
        };
        self.register.put(drive, &link).map_err(|error| error.to_string())?;
        Ok((taken, link.into()))
    }
}

/// What is on `disk`, if that is a file system of this rack's that is not to be wiped; `None` if it gets a new one.
fn found(
    device: &DeviceDrive,
    disk: &Disk,
    fresh: &DriveLabel,
    (choice, known, claim): (&DiskChoice, Option<DriveUuid>, &Claim),
) -> Result<Option<Found>, String> {
    let volume = label::volume_name(fresh.label.rack);
    if choice.wipe.is_some() || !disk.refusals.contains(&Refusal::LardersOwn(volume)) {
        return Ok(None);
    }
    let seen = device.peek(|directory| {
        // A command that did not come to its end may have got no further than the file system.
        if directory.exists() { look(directory, &fresh.label, known, claim) } else { Ok(Found::Nothing) }
    });
    let seen = seen.map_err(|error| about(&disk.name, &error))?;
    seen.map(Some).map_err(|why| {
        let name = &disk.name;
        format!("{name} is a disk of this rack: {why}. Or say `--wipe {name}`: everything on it is lost then")
    })
}

fn about(link: &str, error: &DriveError) -> String {
    format!("{link}: {error}")
}
