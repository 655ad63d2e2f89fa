//! What was lost: a part of the contents, as readers have to know it, and a loss, as it is said to people.

use crate::log::Rot;
use crate::mask::Mask;
use crate::names::{DriveUuid, FileId};
use crate::record::Sequence;
use std::fmt;

/// A part of the contents that was lost: what had these keys, and numbers up to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostPart {
    /// The first and the last key; `None` is any.
    pub(crate) keys: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) max: Sequence,
}

impl LostPart {
    /// Whether something newer than `sequence` may have been lost of `key`.
    pub(crate) fn may_have(&self, key: &[u8], sequence: Sequence) -> bool {
        let is_in = |(first, last): &(Vec<u8>, Vec<u8>)| first.as_slice() <= key && key <= last.as_slice();
        sequence < self.max && self.keys.as_ref().is_none_or(is_in)
    }

    /// Whether it is of no account any more, since `key` has the version `sequence`.
    pub(crate) fn is_answered_by(&self, key: &[u8], sequence: Sequence) -> bool {
        sequence >= self.max && self.keys.as_ref().is_some_and(|(first, last)| first == key && last == key)
    }

    /// Whether one of `masks` hides all that it may have had.
    pub(crate) fn is_hidden(&self, masks: &[Mask]) -> bool {
        let hides = |(first, last): &(Vec<u8>, Vec<u8>)| masks.iter().any(|m| m.hides_all((first, last), self.max));
        self.keys.as_ref().is_some_and(hides)
    }
}

/// Something that was acknowledged and cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// One version of a key.
    Version {
        /// The key.
        key: Vec<u8>,
        /// Its number.
        sequence: Sequence,
    },
    /// A place in a log; the records in it are not known.
    Place {
        /// The log.
        file: FileId,
        /// Its drive.
        drive: DriveUuid,
        /// Where, and how much.
        rot: Rot,
    },
    /// A shelf.
    Shelf {
        /// Which one.
        file: FileId,
        /// Its drive.
        drive: DriveUuid,
        /// Its first and last key, and the number of its records.
        keys: (Vec<u8>, Vec<u8>, u64),
    },
    /// A file that cannot be read as what its name says. It is left where it is until another rotation has given back
    /// what it held.
    File {
        /// Its name.
        name: String,
        /// Its drive.
        drive: DriveUuid,
        /// What is wrong with it.
        problem: String,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { key, sequence } => write!(f, "version {} of the key {}", sequence.0, key.escape_ascii()),
            Self::Place { file, drive, rot } => write!(f, "a part of the log {file} on drive {drive}: {rot:?}"),
            Self::Shelf { file, drive, keys: (first, last, records) } => {
                let (first, last) = (first.escape_ascii(), last.escape_ascii());
                write!(f, "the shelf {file} on drive {drive}: {records} records, of the keys {first} to {last}")
            }
            Self::File { name, drive, problem } => write!(f, "the file {name} on drive {drive}: {problem}"),
        }
    }
}
