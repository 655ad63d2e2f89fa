//! Writing labels to drives, and comparing the label on a drive with the expected one.
//!
//! Invariant: no label is written over another one.

use super::{Device, DriveLabel, DriveUuid, Label, LabelError};
use crate::buffer::Buffer;
use crate::drive::{Drive, DriveError, FileName};
use crate::format::{BLOCK_BYTES, FormatError};
use crate::private;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "larder.label";

/// The name of the label's file.
pub fn file_name() -> FileName {
    FileName::new(FILE).expect("the label's name is a file name")
}

/// Writes `label` to a drive that has none, and syncs it.
pub async fn write(drive: &dyn Drive, label: &DriveLabel) -> Result<(), DriveError> {
    let name = file_name();
    drive.create(&name, BLOCK_BYTES as u64).await?;
    drive.write_at(&name, 0, Buffer::copy_of(&label.encode())).await?;
    drive.sync(&name).await
}

/// The label of the drive, which must be the expected one; [`DriveError::Label`] gives the difference.
pub async fn check(drive: &dyn Drive, expected: &Label) -> Result<DriveLabel, DriveError> {
    Ok(expected.compare(&read(drive).await?)?)
}

/// As [`check`], for the drive whose files are in `directory`. Reads only the label, and writes nothing. Blocks.
pub(crate) fn check_directory(directory: &Path, expected: &Label) -> Result<DriveLabel, DriveError> {
    let path = directory.join(FILE);
    let mut block = [0; BLOCK_BYTES];
    match fs::File::open(&path).and_then(|mut file| file.read_exact(&mut block)) {
        Ok(()) => Ok(expected.compare(&block)?),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(LabelError::Damaged(FormatError::Length(0)).into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LabelError::Missing.into()),
        Err(error) => Err(DriveError::of_system(format!("reading {}", path.display()), error)),
    }
}

/// Checks that the drive is the one that replaced a failed drive; [`DriveError::Label`] gives the difference. Its place
/// is not checked.
pub async fn check_replacement(drive: &dyn Drive, expected: DriveUuid) -> Result<(), DriveError> {
    let found = uuid_of(drive).await?;
    if found == expected { Ok(()) } else { Err(LabelError::Replaced { found, expected }.into()) }
}

/// The UUID on the label of a mounted drive.
pub async fn uuid_of(drive: &dyn Drive) -> Result<DriveUuid, DriveError> {
    Ok(DriveLabel::decode(&read(drive).await?).map_err(LabelError::Damaged)?.uuid)
}

/// The disk that the label of a mounted drive was written for.
pub async fn device_of(drive: &dyn Drive) -> Result<Device, DriveError> {
    Ok(DriveLabel::decode(&read(drive).await?).map_err(LabelError::Damaged)?.device)
}

/// The block of the label.
async fn read(drive: &dyn Drive) -> Result<Buffer, DriveError> {
    match drive.read_at(&file_name(), 0, Buffer::zeroed(BLOCK_BYTES)).await {
        Err(DriveError::NotFound(_)) => Err(LabelError::Missing.into()),
        Err(DriveError::Short(_)) => Err(LabelError::Damaged(FormatError::Length(0)).into()),
        read => read,
    }
}

/// Creates the directories of a rack and labels them, with one sync of each file system at the end instead of one sync
/// of each file. Blocks the caller's thread. They must not have labels yet. After an error some are labelled.
pub fn write_directories(labels: &[(PathBuf, DriveLabel)]) -> Result<(), DriveError> {
    let mut unsynced = BTreeSet::new();
    for (path, label) in labels {
        let device = write_unsynced(path, label).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => DriveError::Exists(file_name()),
            io::ErrorKind::StorageFull => DriveError::Full,
            _ => DriveError::Io { context: format!("labelling {}", path.display()), source },
        })?;
        unsynced.insert(device);
    }
    for (path, _) in labels {
        sync_once(path, &mut unsynced)
            .map_err(|source| DriveError::Io { context: format!("syncing {}", path.display()), source })?;
    }
    assert!(unsynced.is_empty(), "every file system that got a label is synced");
    Ok(())
}

fn write_unsynced(path: &Path, label: &DriveLabel) -> io::Result<u64> {
    private::make_directory(path)?;
    let file = path.join(FILE);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(private::FILE_MODE).open(file)?;
    file.write_all(&label.encode())?;
    Ok(file.metadata()?.dev())
}

/// Syncs the file system of `path` if it is still among `unsynced`.
fn sync_once(path: &Path, unsynced: &mut BTreeSet<u64>) -> io::Result<()> {
    let directory = fs::File::open(path)?;
    if unsynced.remove(&directory.metadata()?.dev()) {
        rustix::fs::syncfs(&directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::MemoryDrive;
    use crate::label::RackUuid;
    use crate::label::tests::{label, on_drive};
    use model::DriveId;

    async fn complaint(drive: &MemoryDrive, expected: &Label) -> LabelError {
        match check(drive, expected).await {
            Err(DriveError::Label(error)) => error,
            other => panic!("{other:?} is no complaint about a label"),
        }
    }

    #[tokio::test]
    async fn each_wrong_label_is_told_apart() {
        let drive = MemoryDrive::new(1 << 20);
        assert_eq!(complaint(&drive, &label(3)).await, LabelError::Missing);
        write(&drive, &on_drive(3)).await.unwrap();
        assert_eq!(check(&drive, &label(3)).await.unwrap(), on_drive(3));
        assert!(matches!(write(&drive, &on_drive(4)).await, Err(DriveError::Exists(_))));
        check_replacement(&drive, on_drive(3).uuid).await.unwrap();
        let (found, expected) = (on_drive(3).uuid, DriveUuid([1; 16]));
        let replaced = check_replacement(&drive, expected).await;
        assert!(matches!(replaced, Err(DriveError::Label(error)) if error == LabelError::Replaced { found, expected }));

        let elsewhere = LabelError::ForeignDrive { found: DriveId(3), expected: DriveId(4) };
        assert_eq!(complaint(&drive, &label(4)).await, elsewhere);
        let other_rack = Label { rack: RackUuid([8; 16]), ..label(3) };
        assert!(matches!(complaint(&drive, &other_rack).await, LabelError::ForeignRack { .. }));
        drive.flip_bit(&file_name(), 100, 1);
        assert_eq!(complaint(&drive, &label(3)).await, LabelError::Damaged(FormatError::Checksum));
    }

    #[tokio::test]
    async fn a_label_of_another_version_is_named_as_such() {
        let mut block = on_drive(0).encode();
        block[8] = 9;
        let crc = crate::format::crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
        let drive = MemoryDrive::new(1 << 20);
        drive.create(&file_name(), 4096).await.unwrap();
        drive.write_at(&file_name(), 0, Buffer::copy_of(&block)).await.unwrap();
        assert_eq!(complaint(&drive, &label(0)).await, LabelError::OtherVersion(9));
    }

    #[tokio::test]
    async fn a_whole_rack_is_labelled_at_once() {
        let root = tempfile::tempdir().unwrap();
        let labels: Vec<_> = (0..1152).map(|i| (root.path().join(format!("d{i}")), on_drive(i))).collect();
        write_directories(&labels).unwrap();
        assert!(matches!(write_directories(&labels[..1]), Err(DriveError::Exists(_))));
        for (path, on_drive) in &labels {
            check(&crate::DirectoryDrive::at(path), &on_drive.label).await.unwrap();
        }
    }
}
