//! The label of a drive: which rack and which place in it the drive belongs to, and which drive it is.
//!
//! It is the file `larder.label`, one block of 4 KiB that is checked at every mount, so that a drive in the wrong slot,
//! of another rack, or with a damaged file system is never written to. `docs/format.md` draws its bytes.
//!
//! [`Label`] is what a place in a rack expects, [`DriveLabel`] all that lies on the drive: with a UUID of the drive
//! itself, a replaced drive that comes back is told from its replacement, and two copies of one are seen to be copies.
//!
//! Invariant: a label is written once, when the rack is made or a drive replaced, and never over another one.

use crate::format::{BLOCK_BYTES, BlockReader, BlockWriter, FormatError, other_version};
use crate::{Buffer, Drive, DriveError, FileName};
use model::DriveId;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"LARDLABL";
const RACK_NAME_MAX_BYTES: usize = 63;
/// The longest text of a device's identity: a WWN or a serial number.
pub const DEVICE_TEXT_MAX_BYTES: usize = 63;
/// What the rack's name and the device's text take each, zeros behind them included.
const TEXT_BYTES: usize = 64;
const FILE: &str = "larder.label";
/// Where the device's text begins, and behind it the rack's name.
const DEVICE_OFFSET: usize = 64;
const NAME_OFFSET: usize = DEVICE_OFFSET + TEXT_BYTES;

/// The identity of a rack for ever, drawn when it is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RackUuid(pub [u8; 16]);

impl fmt::Display for RackUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, f)
    }
}

impl fmt::Debug for RackUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of one drive, drawn when it is labelled: of two drives that were in one place, each has its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveUuid(pub [u8; 16]);

impl fmt::Display for DriveUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, f)
    }
}

impl fmt::Debug for DriveUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_uuid(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, byte) in bytes.iter().enumerate() {
        let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{dash}{byte:02x}")?;
    }
    Ok(())
}

/// How a device names itself, wherever it is plugged in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// It is no device but a directory.
    #[default]
    None,
    /// By its World Wide Name: 1 to 63 bytes, as the kernel spells it.
    Wwn(String),
    /// By its serial number: 1 to 63 bytes.
    Serial(String),
}

impl Device {
    /// Its kind on the media, and its text.
    fn parts(&self) -> (u8, &str) {
        match self {
            Self::None => (0, ""),
            Self::Wwn(text) => (1, text),
            Self::Serial(text) => (2, text),
        }
    }

    fn of_parts(kind: u8, text: String) -> Result<Self, FormatError> {
        match (kind, text.is_empty()) {
            (0, true) => Ok(Self::None),
            (1, false) => Ok(Self::Wwn(text)),
            (2, false) => Ok(Self::Serial(text)),
            _ => Err(FormatError::Field("device")),
        }
    }
}

/// Which rack and which place in it a drive belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The rack.
    pub rack: RackUuid,
    /// What the rack's description calls it, for people: 1 to 63 bytes. Two racks are told apart by `rack` alone.
    pub rack_name: String,
    /// The drive's place in it.
    pub drive: DriveId,
}

/// All that lies in the label of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveLabel {
    /// Its place in its rack.
    pub label: Label,
    /// Which drive it is.
    pub uuid: DriveUuid,
    /// When it was labelled, in milliseconds of the Unix epoch.
    pub labelled_ms: u64,
    /// The device that it was labelled on.
    pub device: Device,
}

/// Why a drive's label is not the one it should have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The drive itself is not there.
    #[error("there is no directory {}: the drive is missing, or not mounted", .0.display())]
    NoDirectory(PathBuf),
    /// There is none.
    #[error("the drive has no label: it was never made part of a rack")]
    Missing,
    /// There is one, but it cannot be read.
    #[error("the drive's label is damaged: {0}")]
    Damaged(FormatError),
    /// Another version wrote it.
    #[error("the drive's label: {}", other_version(*.0))]
    OtherVersion(u32),
    /// The drive belongs to another rack.
    #[error("the drive belongs to rack {found_name} ({found}), not to {expected}")]
    ForeignRack {
        /// The rack on the label.
        found: RackUuid,
        /// Its name.
        found_name: String,
        /// The rack it was expected to belong to.
        expected: RackUuid,
    },
    /// The drive belongs to this rack, but elsewhere.
    #[error("the drive is {found} of this rack, but sits in the place of {expected}")]
    ForeignDrive {
        /// The drive on the label.
        found: DriveId,
        /// The drive that was expected there.
        expected: DriveId,
    },
    /// The drive belongs here, but it failed, and another took its place.
    #[error("the drive {found} failed here, and {expected} took its place")]
    Replaced {
        /// The drive on the label.
        found: DriveUuid,
        /// The one that took its place.
        expected: DriveUuid,
    },
}

impl DriveLabel {
    /// The label as a block. The rack's name must have 1 to 63 bytes, as every rack's has, and a device's text as many.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let Label { rack, rack_name, drive } = &self.label;
        let (kind, text) = self.device.parts();
        assert!((1..=RACK_NAME_MAX_BYTES).contains(&rack_name.len()), "a rack's name has 1 to 63 bytes");
        assert!(text.len() <= DEVICE_TEXT_MAX_BYTES, "a device's text has at most 63 bytes");
        let mut block = [0; BLOCK_BYTES];
        let mut writer = BlockWriter::new(&mut block, MAGIC);
        writer.put(&drive.0.to_le_bytes());
        writer.put(&rack.0);
        writer.put(&self.uuid.0);
        writer.put(&self.labelled_ms.to_le_bytes());
        writer.put(&[kind, text.len() as u8, rack_name.len() as u8, 0]);
        writer.skip_to(DEVICE_OFFSET);
        writer.put(text.as_bytes());
        writer.skip_to(NAME_OFFSET);
        writer.put(rack_name.as_bytes());
        writer.seal();
        block
    }

    /// The label that `block` is.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = BlockReader::open(block, MAGIC, "label")?;
        let drive = DriveId(reader.u32());
        let (rack, uuid) = (RackUuid(reader.take()), DriveUuid(reader.take()));
        let labelled_ms = reader.u64();
        let [kind, device_bytes, name_bytes, reserved] = reader.take();
        if !(1..=RACK_NAME_MAX_BYTES).contains(&usize::from(name_bytes)) {
            return Err(FormatError::Field("name"));
        }
        if usize::from(device_bytes) > DEVICE_TEXT_MAX_BYTES || reserved != 0 {
            return Err(FormatError::Field("device"));
        }
        reader.zeros_to(DEVICE_OFFSET)?;
        let mut text = |bytes: u8, end, field| {
            let text = str::from_utf8(reader.slice(bytes.into())).map_err(|_| FormatError::Field(field))?;
            reader.zeros_to(end)?;
            Ok(text.to_owned())
        };
        let device = Device::of_parts(kind, text(device_bytes, NAME_OFFSET, "device")?)?;
        let rack_name = text(name_bytes, NAME_OFFSET + TEXT_BYTES, "name")?;
        reader.finish()?;
        Ok(Self { label: Label { rack, rack_name, drive }, uuid, labelled_ms, device })
    }
}

impl Label {
    /// What lies on the drive whose label is `block`, if that drive belongs here.
    fn compare(&self, block: &[u8]) -> Result<DriveLabel, LabelError> {
        let on_drive = DriveLabel::decode(block).map_err(|error| match error {
            FormatError::Version(version) => LabelError::OtherVersion(version),
            other => LabelError::Damaged(other),
        })?;
        let found = &on_drive.label;
        if found.rack != self.rack {
            let (found, found_name) = (found.rack, found.rack_name.clone());
            return Err(LabelError::ForeignRack { found, found_name, expected: self.rack });
        }
        if found.drive != self.drive {
            return Err(LabelError::ForeignDrive { found: found.drive, expected: self.drive });
        }
        Ok(on_drive)
    }
}

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

/// The label of the drive, which must be the one of this place; [`DriveError::Label`] says why it is not.
pub async fn check(drive: &dyn Drive, expected: &Label) -> Result<DriveLabel, DriveError> {
    Ok(expected.compare(&read(drive).await?)?)
}

/// The drive must be the very one that took the place of another which failed; [`DriveError::Label`] says why it is
/// not. Its place is not looked at.
pub async fn check_replacement(drive: &dyn Drive, expected: DriveUuid) -> Result<(), DriveError> {
    let found = DriveLabel::decode(&read(drive).await?).map_err(LabelError::Damaged)?.uuid;
    if found == expected { Ok(()) } else { Err(LabelError::Replaced { found, expected }.into()) }
}

/// The block that the label is.
async fn read(drive: &dyn Drive) -> Result<Buffer, DriveError> {
    match drive.read_at(&file_name(), 0, Buffer::zeroed(BLOCK_BYTES)).await {
        Err(DriveError::NotFound(_)) => Err(LabelError::Missing.into()),
        Err(DriveError::Short(_)) => Err(LabelError::Damaged(FormatError::Length(0)).into()),
        read => read,
    }
}

/// Makes the directories of a rack and labels them, with one sync of each file system in the end rather than one of
/// each file. Blocks the caller's thread. Nothing may have labelled them before. On an error some are labelled.
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
    Ok(())
}

fn write_unsynced(path: &Path, label: &DriveLabel) -> io::Result<u64> {
    fs::create_dir_all(path)?;
    let mut file = fs::File::create_new(path.join(FILE))?;
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

    fn label(drive: u32) -> Label {
        Label { rack: RackUuid([7; 16]), rack_name: "cold-1".into(), drive: DriveId(drive) }
    }

    fn on_drive(drive: u32) -> DriveLabel {
        let uuid = DriveUuid([drive as u8; 16]);
        let device = Device::Wwn("0x5000c500a1b2c3d4".into());
        DriveLabel { label: label(drive), uuid, labelled_ms: 1_700_000_000_000, device }
    }

    #[test]
    fn devices_of_every_kind_come_back() {
        for device in [Device::None, Device::Wwn("w".into()), Device::Serial("s".repeat(DEVICE_TEXT_MAX_BYTES))] {
            let label = DriveLabel { device, ..on_drive(1) };
            assert_eq!(DriveLabel::decode(&label.encode()), Ok(label));
        }
    }

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

    #[test]
    fn uuids_look_like_uuids() {
        let uuid = RackUuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
