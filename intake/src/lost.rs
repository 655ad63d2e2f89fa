//! Losses: lost parts of the contents, for readers, and losses in words, for people.

use crate::log::Rot;
use crate::mask::Mask;
use crate::names::{DriveUuid, FileId};
use crate::record::Sequence;
use std::fmt;

/// A lost part of the contents: versions of these keys with numbers up to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostPart {
    /// The first and the last key; `None` means any key.
    pub(crate) keys: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) max: Sequence,
}

impl LostPart {
    /// True if a version of `key` newer than `sequence` may have been lost.
    pub(crate) fn may_have(&self, key: &[u8], sequence: Sequence) -> bool {
        let is_in = |(first, last): &(Vec<u8>, Vec<u8>)| first.as_slice() <= key && key <= last.as_slice();
        sequence < self.max && self.keys.as_ref().is_none_or(is_in)
    }

    /// True if it no longer matters because `key` has the version `sequence`.
    pub(crate) fn is_answered_by(&self, key: &[u8], sequence: Sequence) -> bool {
        sequence >= self.max && self.keys.as_ref().is_some_and(|(first, last)| first == key && last == key)
    }

    /// True if one of `masks` hides all that it may have had.
    pub(crate) fn is_hidden(&self, masks: &[Mask]) -> bool {
        let hides = |(first, last): &(Vec<u8>, Vec<u8>)| masks.iter().any(|m| m.hides_all((first, last), self.max));
        self.keys.as_ref().is_some_and(hides)
    }
}

/// Something that was acknowledged and can no longer be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// One version of a key.
    Version {
        /// The key.
        key: Vec<u8>,
        /// Its number.
        sequence: Sequence,
    },
    /// A place in a log with unknown records.
    Place {
        /// The log.
        file: FileId,
        /// Its drive.
        drive: DriveUuid,
        /// Its position and length.
        rot: Rot,
    },
    /// A shelf.
    Shelf {
        /// The shelf.
        file: FileId,
        /// Its drive.
        drive: DriveUuid,
        /// Its first and last key, and the number of its records.
        keys: (Vec<u8>, Vec<u8>, u64),
    },
    /// A file that cannot be read as the kind that its name gives. It stays until another rotation has restored its
    /// content.
    File {
        /// Its name.
        name: String,
        /// Its drive.
        drive: DriveUuid,
        /// The problem.
        problem: String,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { key, sequence } => write!(f, "version {} of the key {}", sequence.0, key.escape_ascii()),
            Self::Place { file, drive, rot } => write!(f, "{rot} of the log {file} on drive {drive}"),
            Self::Shelf { file, drive, keys: (first, last, records) } => {
                let (first, last) = (first.escape_ascii(), last.escape_ascii());
                write!(f, "the shelf {file} on drive {drive}: {records} records, of the keys {first} to {last}")
            }
            Self::File { name, drive, problem } => write!(f, "the file {name} on drive {drive}: {problem}"),
        }
    }
}
