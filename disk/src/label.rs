//! The label of a drive: its rack, its place in the rack, and its identity.
//!
//! It is the file `larder.label`, one block of 4 KiB that is checked at every mount, so that a drive in the wrong slot,
//! of another rack, or with a damaged file system is never written to. `docs/format/drives.md` draws its bytes.
//!
//! [`Label`] is the expected label of a place in a rack, [`DriveLabel`] the whole label on a drive: by the drive's
//! UUID, a replaced drive that comes back is distinguished from its replacement, and two copies of one drive are
//! recognised.
//!
//! Invariant: a label is written once, when the rack is created or a drive replaced, and never over another one.

mod on_drive;

pub(crate) use on_drive::check_directory;
pub use on_drive::{check, check_replacement, device_of, file_name, uuid_of, write, write_directories};

use crate::format::{BLOCK_BYTES, BlockDecoder, BlockEncoder, FormatError, other_version};
use model::DriveId;
use model::sabotage::{Sabotage, is_on};
use std::fmt;
use std::path::PathBuf;

const MAGIC: [u8; 8] = *b"LARDLABL";
const RACK_NAME_MAX_BYTES: usize = 63;
/// The longest text of a device's identity: a WWN or a serial number.
pub const DEVICE_TEXT_MAX_BYTES: usize = 63;
/// The room of the rack's name and of the device's text, including padding zeros.
const TEXT_BYTES: usize = 64;
/// Offset of the device's text, and after it of the rack's name.
const DEVICE_OFFSET: usize = 64;
const NAME_OFFSET: usize = DEVICE_OFFSET + TEXT_BYTES;

/// The permanent identity of a rack, drawn when it is created.
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

/// The identity of one drive, drawn when it is labelled: two drives of one place have different ones.
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

/// The identity of a device, independent of the slot it is plugged into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// Not a device but a directory.
    #[default]
    None,
    /// By its World Wide Name: 1 to 63 bytes, in the kernel's notation.
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

/// Prefix of the name of a file system that Larder creates on a device.
const VOLUME_NAME_PREFIX: &str = "larder";
/// The digits after it, of 5 bits each: with the prefix these are the 12 characters that XFS has room for.
const VOLUME_NAME_DIGITS: usize = 6;
const BASE_32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The name of the file systems that Larder creates on the devices of `rack`: `larder`, and the first 30 bits of the
/// rack's identity. It is in the superblock, so a drive of another rack is recognised before it is mounted; the label
/// decides.
pub fn volume_name(rack: RackUuid) -> String {
    let bits = u128::from_be_bytes(rack.0);
    let digit = |at: usize| char::from(BASE_32[(bits >> (128 - 5 * (at + 1))) as usize % 32]);
    VOLUME_NAME_PREFIX.chars().chain((0..VOLUME_NAME_DIGITS).map(digit)).collect()
}

/// True if `name` is that of a file system that Larder made for some rack.
pub fn is_volume_name(name: &str) -> bool {
    name.strip_prefix(VOLUME_NAME_PREFIX)
        .is_some_and(|digits| digits.len() == VOLUME_NAME_DIGITS && digits.bytes().all(|b| BASE_32.contains(&b)))
}

/// The rack and the place in it that a drive belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The rack.
    pub rack: RackUuid,
    /// Its name in the rack's description, for people: 1 to 63 bytes. Only `rack` distinguishes two racks.
    pub rack_name: String,
    /// The drive's place in it.
    pub drive: DriveId,
}

/// The label as it is stored on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveLabel {
    /// Its place in its rack.
    pub label: Label,
    /// The identity of the drive.
    pub uuid: DriveUuid,
    /// Time of labelling, in milliseconds of the Unix epoch.
    pub labelled_ms: u64,
    /// The device that it was labelled on.
    pub device: Device,
}

/// The reason why a drive's label is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The drive itself is missing.
    #[error("there is no directory {}: the drive is missing, or not mounted", .0.display())]
    NoDirectory(PathBuf),
    /// The drive has no label.
    #[error("the drive has no label: it was never made part of a rack")]
    Missing,
    /// The label cannot be read.
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
        /// The expected rack.
        expected: RackUuid,
    },
    /// The file system on the disk is not one of this rack's drives.
    #[error("the disk's file system is {found}, and not {expected}: it belongs to another rack, or not to Larder")]
    OtherVolume {
        /// Its name.
        found: String,
        /// The name of this rack's file systems.
        expected: String,
    },
    /// The drive belongs to this rack, but to another place.
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
        /// The drive that took its place.
        expected: DriveUuid,
    },
}

impl DriveLabel {
    /// The label as a block. The rack's name must have 1 to 63 bytes, as every rack's has, and a device's text at most
    /// 63.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let Label { rack, rack_name, drive } = &self.label;
        let (kind, text) = self.device.parts();
        assert!((1..=RACK_NAME_MAX_BYTES).contains(&rack_name.len()), "a rack's name has 1 to 63 bytes");
        assert!(text.len() <= DEVICE_TEXT_MAX_BYTES, "a device's text has at most 63 bytes");
        let mut block = [0; BLOCK_BYTES];
        let mut writer = BlockEncoder::new(&mut block, MAGIC);
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

    /// The label in `block`.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = BlockDecoder::open(block, MAGIC, "label")?;
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
    /// The label in `block`, if that drive belongs here.
    pub(crate) fn compare(&self, block: &[u8]) -> Result<DriveLabel, LabelError> {
        let on_drive = DriveLabel::decode(block).map_err(|error| match error {
            FormatError::Version(version) => LabelError::OtherVersion(version),
            other => LabelError::Damaged(other),
        })?;
        let found = &on_drive.label;
        if found.rack != self.rack {
            let (found, found_name) = (found.rack, found.rack_name.clone());
            return Err(LabelError::ForeignRack { found, found_name, expected: self.rack });
        }
        if found.drive != self.drive && !is_on(Sabotage::CloneBelieved) {
            return Err(LabelError::ForeignDrive { found: found.drive, expected: self.drive });
        }
        Ok(on_drive)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(super) fn label(drive: u32) -> Label {
        Label { rack: RackUuid([7; 16]), rack_name: "cold-1".into(), drive: DriveId(drive) }
    }

    pub(super) fn on_drive(drive: u32) -> DriveLabel {
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

    #[test]
    fn a_volume_is_named_after_its_rack() {
        let name = volume_name(RackUuid(*b"\x00\x44\x32\x14\xc7\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
        assert_eq!(name, "larderabcdef");
        assert!(is_volume_name(&name) && is_volume_name(&volume_name(RackUuid([0xff; 16]))));
        assert_ne!(volume_name(RackUuid([7; 16])), volume_name(RackUuid([8; 16])));
        for other in ["larder", "larder-disk1", "larderabcde1", "pantryabcdef", ""] {
            assert!(!is_volume_name(other), "{other}");
        }
    }

    #[test]
    fn uuids_look_like_uuids() {
        let uuid = RackUuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
