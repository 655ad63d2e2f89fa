//! An empty directory in the place of a drive that failed becomes that drive: it gets the drive's label.
//!
//! Invariants: a directory is labelled only if there is nothing in it (but what a fresh file system has); no directory
//! is made; a label is never written over.

use disk::DriveError;
use disk::label::{self, DriveLabel, DriveUuid};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The entries of a file system that was just made.
const FRESH: &str = "lost+found";

/// Why a directory does not become a drive.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The drive in this place is in service.
    #[error("drive {0} has not failed; if it will not come back, say `larder drive fail {0}` first")]
    NotFailed(u32),
    /// There is no directory.
    #[error("there is no directory {}; make it, or mount the new drive there, and say this again", .0.display())]
    Missing(PathBuf),
    /// There is something in it.
    #[error(
        "{} is not empty ({found} is there): what is on a drive is never deleted; move it away, or use another drive",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// The first thing in it.
        found: String,
    },
    /// It cannot be looked into.
    #[error("looking into {}: {source}; see that it can be read and written", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The label cannot be written.
    #[error("labelling {}: {source}; see that the drive can be written, empty it, and say this again", path.display())]
    Label {
        /// The directory.
        path: PathBuf,
        /// The drive's error.
        source: DriveError,
    },
}

/// Writes `fresh` into the directory `path`, which must be there and empty. One that holds a label of this place and
/// nothing else was labelled before, by a command that did not come to its end. The UUID on the label is the drive's.
///
/// # Errors
/// [`ReplaceError`]. Nothing that was there is changed.
pub fn take(path: &Path, fresh: &DriveLabel) -> Result<DriveUuid, ReplaceError> {
    let names = names_in(path)?;
    let others: Vec<&String> = names.iter().filter(|name| *name != label::file_name().as_str()).collect();
    if let Some(found) = others.first() {
        return Err(ReplaceError::NotEmpty { path: path.to_owned(), found: (*found).clone() });
    }
    if names.is_empty() {
        let written = label::write_directories(&[(path.to_owned(), fresh.clone())]);
        written.map_err(|source| ReplaceError::Label { path: path.to_owned(), source })?;
        return Ok(fresh.uuid);
    }
    let found = fs::read(path.join(label::file_name().as_str())).ok().and_then(|block| DriveLabel::decode(&block).ok());
    let place = (fresh.label.rack, fresh.label.drive);
    if let Some(found) = found.filter(|found| (found.label.rack, found.label.drive) == place) {
        return Ok(found.uuid);
    }
    let found = "the label of another drive".to_owned();
    Err(ReplaceError::NotEmpty { path: path.to_owned(), found })
}

/// Everything in the directory `path`, by name, but for what a fresh file system has.
fn names_in(path: &Path) -> Result<Vec<String>, ReplaceError> {
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
    look().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReplaceError::Missing(path.to_owned()),
        _ => ReplaceError::Unreadable { path: path.to_owned(), source },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use disk::label::{Device, Label, RackUuid};
    use model::DriveId;

    fn label(drive: u32) -> DriveLabel {
        let label = Label { rack: RackUuid([7; 16]), rack_name: "cold".into(), drive: DriveId(drive) };
        DriveLabel { label, uuid: DriveUuid([9; 16]), labelled_ms: 5, device: Device::None }
    }

    #[test]
    fn only_an_empty_directory_is_taken_and_once_more_after_a_crash() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("0003");
        assert!(matches!(take(&place, &label(3)), Err(ReplaceError::Missing(_))));
        assert!(!place.exists(), "none is made");
        fs::create_dir_all(place.join(FRESH)).unwrap();
        let again = DriveLabel { uuid: DriveUuid([8; 16]), ..label(3) };
        assert_eq!((take(&place, &label(3)).unwrap(), take(&place, &again).unwrap()), (label(3).uuid, label(3).uuid));
        assert!(matches!(take(&place, &label(4)), Err(ReplaceError::NotEmpty { .. })), "another's label stays");
        assert_eq!(DriveLabel::decode(&fs::read(place.join("larder.label")).unwrap()).unwrap(), label(3));
    }

    #[test]
    fn whatever_is_there_is_left_and_named() {
        for found in ["Letters", ".hidden", "0000000000000001.000.stack", "larder.label"] {
            let place = tempfile::tempdir().unwrap();
            fs::write(place.path().join(found), b"dear").unwrap();
            let error = take(place.path(), &label(3)).unwrap_err().to_string();
            assert!(error.contains("is not empty"), "{error}");
            assert_eq!(fs::read(place.path().join(found)).unwrap(), b"dear");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        }
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("Holiday pictures")).unwrap();
        assert!(take(place.path(), &label(3)).unwrap_err().to_string().contains("Holiday pictures"));
    }
}
