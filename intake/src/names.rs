//! The identities of pools, drives and files, and the names of files.
//!
//! A file's id is used once: a nonce drawn when the intake was opened, and a count. So a list of superseded files never
//! matches a later file, and a drive that comes back after years has no file that looks like another. Nothing is
//! removed only because of its name: each file also has its id inside.

use crate::bytes::{Damage, Fields};
use std::fmt;

/// The identity of a pool of drives.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolUuid(pub u128);

/// The identity of a drive in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveUuid(pub u128);

impl fmt::Display for DriveUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The identity of a log or a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Drawn at random when the intake was opened.
    pub nonce: u64,
    /// Counted up from then on.
    pub count: u64,
}

impl FileId {
    /// The stamp in each record, which identifies the file that it was written to, so that a strayed record is
    /// recognised.
    pub(crate) fn stamp(self) -> u64 {
        self.nonce ^ self.count.rotate_left(32)
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nonce.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self, Damage> {
        Ok(Self { nonce: fields.u64()?, count: fields.u64()? })
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.nonce, self.count)
    }
}

/// The identity of a file, as stored in its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pool: PoolUuid,
    pub(crate) drive: DriveUuid,
    pub(crate) file: FileId,
}

impl Identity {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pool.0.to_le_bytes());
        out.extend_from_slice(&self.drive.0.to_le_bytes());
        self.file.put(out);
    }

    /// The identity in `fields`, which must be this one.
    pub(crate) fn check(self, fields: &mut Fields<'_>) -> Result<(), Damage> {
        let found =
            Self { pool: PoolUuid(fields.u128()?), drive: DriveUuid(fields.u128()?), file: FileId::take(fields)? };
        if found == self { Ok(()) } else { Err(Damage::Elsewhere) }
    }
}

/// A file of the intake, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A log.
    Log(FileId),
    /// A shelf.
    Shelf(FileId),
    /// An unfinished shelf.
    Unfinished(FileId),
}

impl Name {
    /// The kind and id in `name`; `None` if it does not belong to an intake.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (stem, ending) = name.rsplit_once('.')?;
        let (nonce, count) = stem.split_once('-')?;
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let file = FileId { nonce: number(nonce)?, count: number(count)? };
        let parsed = match ending {
            "log" => Self::Log(file),
            "shelf" => Self::Shelf(file),
            "new" => Self::Unfinished(file),
            _ => return None,
        };
        Some(parsed).filter(|parsed| parsed.to_string() == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(file) => write!(f, "{file}.log"),
            Self::Shelf(file) => write!(f, "{file}.shelf"),
            Self::Unfinished(file) => write!(f, "{file}.new"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_would_be_written_are_ours() {
        let id = FileId { nonce: 0xab, count: 7 };
        for name in [Name::Log(id), Name::Shelf(id), Name::Unfinished(id)] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
            assert_eq!(Name::parse(&name.to_string().to_uppercase()), None);
            assert_eq!(Name::parse(&format!("0{name}")), None);
        }
        for other in ["", "a.log", "1-2.log", "intake.pool", "00000000000000ab-0000000000000007.stack"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
