//! An empty directory in the place of a failed drive becomes that drive: it gets the drive's label. A directory with
//! the label of the failed drive itself is that drive, and is taken back with its contents.
//!
//! Invariants: a directory is labelled only if it is empty (but for what a fresh file system has); no directory is
//! created; a label is never overwritten; a directory that another server owns is left untouched. A label of zeros is
//! left by a kill while the label was written, and counts as none. Drives that are whole disks are replaced in
//! `exchange.rs`.

use crate::report::{DriveReport, ReplacedReport};
use catalog::{Catalog, CatalogError};
use disk::label::{self, DriveLabel, DriveUuid, Label};
use disk::owner::{self, Claim};
use engine::GroupLeft;
use model::{DriveId, GroupId, RackSpec};
use std::fs;
use std::io;
use std::path::Path;

/// The entries of a file system that was just made.
const FRESH: &str = "lost+found";

/// The drive that is in the place of a failed drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Another drive, which is empty, and its UUID.
    Another(DriveUuid),
    /// The failed drive itself, and its UUID.
    Itself(DriveUuid),
}

impl Taken {
    /// The place of the drive as in `report`, with the drive that is in it from now on.
    pub(crate) fn report(self, drive: DriveReport) -> ReplacedReport {
        let taken = if matches!(self, Self::Itself(_)) { "itself" } else { "another" };
        ReplacedReport { taken: taken.to_owned(), drive }
    }

    /// Records it in `catalog` in the place of `drive`. Returns the bytes of stacks that are lost, at least until they
    /// are looked for; `None` if `drive` has not failed.
    ///
    /// # Errors
    /// Those of the catalog. It may be recorded or not.
    pub(crate) async fn remember(self, catalog: &Catalog, drive: DriveId) -> Result<Option<u64>, CatalogError> {
        match self {
            Self::Another(uuid) => catalog.replace_drive(drive, uuid.0).await,
            Self::Itself(uuid) => catalog.take_back_drive(drive, uuid.0).await,
        }
    }
}

/// The refusal to replace a drive in service.
pub(crate) fn not_failed(drive: DriveId) -> String {
    let number = drive.0;
    format!("drive {number} has not failed; if it will not come back, run `larder drive fail {number}` first")
}

/// The refusal to give up a drive without `--force`: its group would have fewer drives in service than a blob has
/// stacks. `None` if there are enough, or if the drive is a spare.
pub(crate) fn leaves_too_few(group: GroupId, drive: DriveId, left: GroupLeft) -> Option<String> {
    (!left.is_enough()).then(|| {
        format!(
            "without drive {0}, group {1} would have {2} in service, and blobs have {3} stacks: the data of drive {0} \
             could not be rebuilt until a drive that failed is replaced (`larder drive replace`). If drive {0} cannot \
             be read, use --force, and replace it",
            drive.0,
            group.0,
            drives(left.left),
            left.needed
        )
    })
}

/// `1 drive`, `2 drives`.
fn drives(number: usize) -> String {
    format!("{number} drive{}", if number == 1 { "" } else { "s" })
}

/// The refusal to put another drive in the place of one that the rack gave up by itself: blobs lack stacks on the
/// drives `unbuilt` as well. `None` if there are no such drives.
pub(crate) fn is_needed(drive: DriveId, unbuilt: &[u32]) -> Option<String> {
    let number = drive.0;
    (!unbuilt.is_empty()).then(|| {
        format!(
            "the rack gave up drive {number} because it stayed away, and blobs need it: they have lost stacks with \
             drives {unbuilt:?} as well. Put drive {number} itself back and run this again; if it cannot be read, run \
             `larder drive fail {number} --force` first"
        )
    })
}

/// The refusal to retire a failed drive.
pub(crate) fn has_failed(drive: DriveId) -> String {
    let number = drive.0;
    format!(
        "drive {number} has failed: there is nothing to copy from it. Its data is rebuilt; `larder drive replace \
         {number}` puts another drive in its place"
    )
}

/// The contents of a directory that may be in the place of a failed drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The drive that failed.
    Itself(DriveUuid),
    /// Nothing but a label of this place, left by a command that did not complete.
    Labelled(DriveUuid),
    /// Nothing.
    Nothing,
}

/// Looks into the directory `path`, which must exist, belong to no other server by `claim`, and be empty; or finds
/// there, by its label, the drive that failed in the place `label`. That has the UUID `known`, if it is one that took
/// the place of another; if not, no other drive was ever labelled for this place. A directory with nothing but a label
/// of this place and another UUID was labelled before, by a command that was cut short.
///
/// # Errors
/// Why it does not become a drive, with the fix.
pub(crate) fn look(path: &Path, place: &Label, known: Option<DriveUuid>, claim: &Claim) -> Result<Found, String> {
    let (shown, label_name) = (path.display(), label::file_name());
    let mut names = names_in(path)?;
    claim.check_owner(path).map_err(|error| format!("{shown} cannot be used: {error}"))?;
    let is_blank = is_blank_label(path);
    // Neither an owner mark nor a blank label counts as content.
    names.retain(|name| *name != owner::file_name().as_str() && !(is_blank && *name == label_name.as_str()));
    let found = fs::read(path.join(label_name.as_str())).ok().and_then(|block| DriveLabel::decode(&block).ok());
    let found = found.filter(|found| (found.label.rack, found.label.drive) == (place.rack, place.drive));
    let holds_more = names.iter().any(|name| *name != label_name.as_str());
    if let Some(found) = &found
        && known.map_or(holds_more, |known| known == found.uuid)
    {
        return Ok(Found::Itself(found.uuid));
    }
    let not_empty = |found: &str| {
        let never = "Larder never deletes files on a drive; move them away, or use another drive";
        Err(format!("{shown} is not empty ({found} is there): {never}"))
    };
    if let Some(found) = names.iter().find(|name| *name != label_name.as_str()) {
        return not_empty(found);
    }
    match found {
        _ if names.is_empty() => Ok(Found::Nothing),
        Some(found) => Ok(Found::Labelled(found.uuid)),
        None => not_empty("the label of another drive"),
    }
}

/// Writes `fresh` into the directory `path` if it is empty; `look` defines what else may be in it. The UUID on the
/// label is the drive's.
///
/// # Errors
/// As those of `look`, and of the label. Nothing that was there is changed.
pub fn take(path: &Path, fresh: &DriveLabel, known: Option<DriveUuid>, claim: &Claim) -> Result<Taken, String> {
    match look(path, &fresh.label, known, claim)? {
        Found::Itself(uuid) => Ok(Taken::Itself(uuid)),
        Found::Labelled(uuid) => Ok(Taken::Another(uuid)),
        Found::Nothing => {
            remove_blank_label(path)?;
            let fix = "make the drive writable, empty it, and run this again";
            let written = label::write_directories(&[(path.to_owned(), fresh.clone())]);
            let written = written.map(|()| Taken::Another(fresh.uuid));
            written.map_err(|error| format!("labelling {}: {error}; {fix}", path.display()))
        }
    }
}

/// True if the label in the directory `path` has no byte but zeros: a kill ended the command that wrote it.
fn is_blank_label(path: &Path) -> bool {
    fs::read(path.join(label::file_name().as_str())).is_ok_and(|block| block.iter().all(|byte| *byte == 0))
}

/// Removes a blank label from the directory `path`, which has no other content.
fn remove_blank_label(path: &Path) -> Result<(), String> {
    if !is_blank_label(path) {
        return Ok(());
    }
    let at = path.join(label::file_name().as_str());
    fs::remove_file(&at).map_err(|error| format!("removing the blank {}: {error}; remove it", at.display()))
}

/// Everything in the directory `path`, by name, except the entries of a fresh file system.
fn names_in(path: &Path) -> Result<Vec<String>, String> {
    let look = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != FRESH || !entry.file_type()?.is_dir() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    };
    look().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            format!(
                "there is no directory {}; create it, or mount the new drive there, and run this again",
                path.display()
            )
        }
        _ => format!("reading the directory {}: {error}; make it readable and writable", path.display()),
    })
}

/// The refusal to replace a directory by a disk.
pub(crate) fn not_a_disk(drive: DriveId, path: &Path) -> String {
    format!(
        "the place of drive {} is the directory {}; mount the new drive there, and leave --path and --wipe out, which \
         are for whole disks",
        drive.0,
        path.display()
    )
}

/// True if `drive` is a device.
pub(crate) fn is_device(rack: &RackSpec, drive: DriveId) -> bool {
    rack.drive(drive).path.as_deref().is_some_and(|path| disk::device::is_device(Path::new(path)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use disk::label::{Device, RackUuid};
    use disk::owner::Runs;
    use lineage::{OwnRuns, RunId};

    fn label(drive: u32) -> DriveLabel {
        let label = Label { rack: RackUuid([7; 16]), rack_name: "cold".into(), drive: DriveId(drive) };
        DriveLabel { label, uuid: DriveUuid([9; 16]), labelled_ms: 5, device: Device::None }
    }

    /// The claim of a data directory whose only run is `run`.
    fn claim_of(run: u64) -> Claim {
        let known = [RunId(run)].into();
        let own = OwnRuns { known, previous: None, current: Some(RunId(run)), accepted_ms: 0 };
        let (rack, directory) = (RackUuid([7; 16]), [1; 16]);
        let place = format!("server {run}");
        Claim::new(Runs { rack, directory, own, place, path: "/srv/cold".into() }, 10)
    }

    fn claim() -> Claim {
        claim_of(1)
    }

    #[test]
    fn a_directory_that_another_server_has_marked_is_left_untouched() {
        let place = tempfile::tempdir().unwrap();
        let listed = || names_in(place.path()).unwrap();
        drop(claim_of(2).acquire(place.path()).unwrap());
        let error = take(place.path(), &label(3), None, &claim()).unwrap_err();
        assert!(error.contains("server 2") && error.contains("larder take-over --data /srv/cold"), "{error}");
        assert_eq!(listed(), ["larder.owner"], "no label was written");
        assert_eq!(take(place.path(), &label(3), None, &claim_of(2)), Ok(Taken::Another(label(3).uuid)));
        // Nor is a labelled drive taken back, and its owner's lock does not matter.
        let held = claim_of(2);
        held.hold(place.path()).unwrap();
        assert!(take(place.path(), &label(3), Some(label(3).uuid), &claim()).unwrap_err().contains("server 2"));
        assert_eq!(take(place.path(), &label(3), Some(label(3).uuid), &held), Ok(Taken::Itself(label(3).uuid)));
    }

    #[test]
    fn a_label_without_a_byte_is_none_unless_something_lies_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join(label::file_name().as_str());
        for blank in [&[][..], &[0; 4096]] {
            fs::write(&at, blank).unwrap();
            assert_eq!(take(place.path(), &label(4), None, &claim()), Ok(Taken::Another(DriveUuid([9; 16]))));
        }
        fs::write(&at, b"").unwrap();
        fs::write(place.path().join("a.stack"), b"what lies there").unwrap();
        assert!(take(place.path(), &label(4), None, &claim()).unwrap_err().contains("is not empty"));
        assert_eq!(fs::read(&at).unwrap(), b"");
    }

    #[test]
    fn only_an_empty_directory_is_taken_and_once_more_after_a_crash() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("0003");
        assert!(take(&place, &label(3), None, &claim()).unwrap_err().starts_with("there is no directory "));
        assert!(!place.exists(), "none is made");
        fs::create_dir_all(place.join(FRESH)).unwrap();
        let again = DriveLabel { uuid: DriveUuid([8; 16]), ..label(3) };
        for fresh in [&label(3), &again] {
            assert_eq!(take(&place, fresh, None, &claim()).unwrap(), Taken::Another(label(3).uuid));
        }
        assert!(
            take(&place, &label(4), None, &claim()).unwrap_err().contains("is not empty (the label of another drive"),
            "another's label stays"
        );
        assert_eq!(DriveLabel::decode(&fs::read(place.join("larder.label")).unwrap()).unwrap(), label(3));
    }

    #[test]
    fn whatever_is_there_is_left_and_named() {
        for found in ["Letters", ".hidden", "0000000000000001.000.stack", "larder.label"] {
            let place = tempfile::tempdir().unwrap();
            fs::write(place.path().join(found), b"dear").unwrap();
            let error = take(place.path(), &label(3), None, &claim()).unwrap_err();
            assert!(error.contains("is not empty"), "{error}");
            assert_eq!(fs::read(place.path().join(found)).unwrap(), b"dear");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        }
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("Holiday pictures")).unwrap();
        assert!(take(place.path(), &label(3), None, &claim()).unwrap_err().contains("Holiday pictures"));
    }

    #[test]
    fn the_drive_that_failed_is_known_by_its_label_and_no_other_is() {
        let place = tempfile::tempdir().unwrap();
        take(place.path(), &label(3), None, &claim()).unwrap();
        fs::write(place.path().join("0000000000000001.000.stack"), b"dear").unwrap();
        let fresh = DriveLabel { uuid: DriveUuid([8; 16]), ..label(3) };
        let own = label(3).uuid;
        for known in [None, Some(own)] {
            assert_eq!(take(place.path(), &fresh, known, &claim()).unwrap(), Taken::Itself(own));
        }
        let older = take(place.path(), &fresh, Some(DriveUuid([1; 16])), &claim()).unwrap_err();
        assert!(older.contains("is not empty"), "one that was replaced since: {older}");
        assert!(take(place.path(), &label(4), None, &claim()).unwrap_err().contains("is not empty"));
        fs::remove_file(place.path().join("0000000000000001.000.stack")).unwrap();
        assert_eq!(take(place.path(), &fresh, Some(own), &claim()).unwrap(), Taken::Itself(own), "nothing was on it");
    }
}
