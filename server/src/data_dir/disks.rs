//! The file `disks`: the disks that took the places of others, beside the rack's description, which stays unchanged.
//!
//! Text lines; the last one is the CRC-32C of those before it. `drive 3 = NEW for OLD` means that drive 3 is the disk
//! to which the link NEW leads, as long as the description names OLD for it. So a change of the description takes
//! precedence.

use super::error::{DataDirError, damaged, read_part, refused};
use super::identity::{crc32c, uuid_from};
use disk::label::RackUuid;
use model::{DriveId, RackDraft, RackSpec};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

pub(super) const DISKS: &str = "disks";
const HEAD: &str = "Larder disks\n";
const VERSION: u32 = 1;
/// Separates the two links of a line.
const FOR: &str = " for ";

/// A disk in the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Substitute {
    link: String,
    described: String,
}

/// The contents of the file `disks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disks {
    rack: RackUuid,
    substitutes: BTreeMap<DriveId, Substitute>,
}

impl Disks {
    /// The contents in the data directory `dir`, of this rack; empty without the file.
    pub(super) fn read(dir: &Path, rack: RackUuid) -> Result<Self, DataDirError> {
        let path = dir.join(DISKS);
        if !path.exists() {
            return Ok(Self { rack, substitutes: BTreeMap::new() });
        }
        Self::parse(&read_part(&path)?, rack, &path)
    }

    fn parse(text: &str, rack: RackUuid, path: &Path) -> Result<Self, DataDirError> {
        let bad = || damaged(path, "is damaged");
        let lines = text.strip_prefix(HEAD).ok_or_else(bad)?;
        let version = lines.lines().next().and_then(|line| line.strip_prefix("version = ")).ok_or_else(bad)?;
        if version != VERSION.to_string() {
            let what =
                format!("has format version {version}, and this Larder knows {VERSION}; use the Larder that made it");
            return Err(refused(path, what));
        }
        let mut found = Self { rack, substitutes: BTreeMap::new() };
        for line in lines.lines() {
            let Some((name, value)) = line.split_once(" = ") else { return Err(bad()) };
            if name == "rack" && uuid_from(value) != Some(rack) {
                return Err(refused(
                    path,
                    format!("belongs to rack {value}, not to {rack}; put this rack's file back"),
                ));
            }
            let Some(drive) = name.strip_prefix("drive ") else { continue };
            let (link, described) = value.split_once(FOR).ok_or_else(bad)?;
            let substitute = Substitute { link: link.to_owned(), described: described.to_owned() };
            found.substitutes.insert(DriveId(drive.parse().map_err(|_| bad())?), substitute);
        }
        // A file that differs from its own encoding is damaged.
        if found.to_text() == text { Ok(found) } else { Err(bad()) }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{HEAD}version = {VERSION}\nrack = {}\n", self.rack);
        for (drive, Substitute { link, described }) in &self.substitutes {
            let _ = writeln!(text, "drive {} = {link}{FOR}{described}", drive.0);
        }
        let sum = crc32c(text.as_bytes());
        format!("{text}checksum = {sum:08x}\n")
    }

    /// The rack `described`, with these disks.
    pub(super) fn applied(&self, described: &RackSpec) -> Result<RackSpec, DataDirError> {
        let mut draft = RackDraft::clone(described);
        for drive in &mut draft.drives {
            let substitute = self.substitutes.get(&drive.id);
            if let Some(substitute) = substitute.filter(|one| drive.path.as_deref() == Some(one.described.as_str())) {
                drive.path = Some(substitute.link.clone());
            }
        }
        let why = |error| {
            DataDirError::Refused(format!("the disks that took the place of others do not fit the rack: {error}"))
        };
        RackSpec::validated(draft).map_err(why)
    }

    /// Records that the disk to which `link` leads is `drive`, for which the description names `described`.
    pub(super) fn put(&mut self, drive: DriveId, link: &str, described: &str) {
        if link == described {
            self.substitutes.remove(&drive);
        } else {
            let substitute = Substitute { link: link.to_owned(), described: described.to_owned() };
            self.substitutes.insert(drive, substitute);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OLD: &str = "/dev/disk/by-id/wwn-0x1";
    const NEW: &str = "/dev/disk/by-id/wwn-0x2";

    fn disks() -> Disks {
        let mut disks = Disks { rack: RackUuid([7; 16]), substitutes: BTreeMap::new() };
        disks.put(DriveId(3), NEW, OLD);
        disks
    }

    #[test]
    fn it_is_read_as_it_was_written_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Disks::read(dir.path(), RackUuid([7; 16])).unwrap().substitutes.len(), 0, "there is none");
        std::fs::write(dir.path().join(DISKS), disks().to_text()).unwrap();
        assert_eq!(Disks::read(dir.path(), RackUuid([7; 16])).unwrap(), disks());
        assert!(
            Disks::read(dir.path(), RackUuid([8; 16])).unwrap_err().to_string().contains("belongs to rack 07070707")
        );
        let text = disks().to_text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let flipped = String::from_utf8(bytes).unwrap();
            assert!(Disks::parse(&flipped, RackUuid([7; 16]), dir.path()).is_err(), "{flipped}");
            assert!(Disks::parse(&text[..at], RackUuid([7; 16]), dir.path()).is_err(), "{at}");
        }
        let newer = text.replace("version = 1", "version = 2");
        let error = Disks::parse(&newer, RackUuid([7; 16]), dir.path()).unwrap_err().to_string();
        assert!(error.contains("has format version 2"), "{error}");
    }

    #[test]
    fn it_counts_as_long_as_the_description_is_the_one_it_was_made_for() {
        let (_, nas8) = model::text::SHIPPED.iter().find(|(name, _)| *name == "nas8").unwrap();
        let nas8 = model::text::parse(nas8, "rack.toml").unwrap();
        for (described, is) in [(OLD, NEW), ("/dev/disk/by-id/wwn-0x9", "/dev/disk/by-id/wwn-0x9")] {
            let mut draft = RackDraft::clone(&nas8);
            draft.drives[3].path = Some(described.into());
            let rack = disks().applied(&RackSpec::validated(draft).unwrap()).unwrap();
            assert_eq!(rack.drives[3].path.as_deref(), Some(is), "who changes the description has the word");
        }
        let mut back = disks();
        back.put(DriveId(3), OLD, OLD);
        assert!(back.substitutes.is_empty(), "the first disk is back");
    }
}
