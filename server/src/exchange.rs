//! Another disk in the place of a failed drive, where drives are whole disks.
//!
//! 1. The disk is judged as by `larder init`: objections are reported, and nothing is written. For all other disks only
//!    the kernel is asked, so none of them is touched. It must not be the disk of another drive of this rack.
//! 2. A disk with a file system of this rack is mounted so that nothing is written, and its label is read: it is the
//!    failed drive, or was made by a command that did not complete, or it is refused.
//! 3. Any other disk becomes a drive: file system, label, asleep.
//! 4. The data directory records its link (`data_dir/disks.rs`); only then does the catalog know of it.
//!
//! Invariants: nothing is written to a refused disk, and no disk is wiped that was not named for it.

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
    /// Its link in /dev/disk/by-id; without one, the disk now in the drive's place.
    pub path: Option<String>,
    /// The same disk again, by its link, serial number or World Wide Name: its data is no longer needed.
    pub wipe: Option<String>,
}

impl DiskChoice {
    /// True if nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.path.is_none() && self.wipe.is_none()
    }
}

/// Puts disks into the places of drives.
pub struct DiskReplacement {
    register: DiskRegister,
    labels: Vec<(PathBuf, Label)>,
    claim: Arc<Claim>,
}

impl DiskReplacement {
    /// The exchange for the drives of `dir`.
    pub fn of(dir: &DataDir) -> Self {
        Self { register: dir.register(), labels: dir.labels(), claim: dir.claim() }
    }

    /// Puts the chosen disk in the place of `drive`, which failed and is a disk. `known` is the UUID of `drive` if it
    /// took the place of another. Returns what took its place, and the link that leads there. Blocks.
    ///
    /// # Errors
    /// The reason that it fails, with the fix.
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
        // The failed disk may still be mounted, and would count as in use.
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

/// The contents of `disk`, if it has a file system of this rack that is not to be wiped; `None` if it gets a new one.
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
        format!("{name} is a disk of this rack: {why}. Or give `--wipe {name}`: everything on it is lost then")
    })
}

fn about(link: &str, error: &DriveError) -> String {
    format!("{link}: {error}")
}
