//! The errors of staging a file, and of reading a staged file.

use crate::drain::Full;
use crate::format::FormatError;
use disk::DriveError;

/// The reason that a file was not staged. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// There is no room, in the capacity or on the disk itself.
    #[error(transparent)]
    Full(#[from] Full),
    /// It was given more bytes than were reserved.
    #[error("more than the {reserved_bytes} bytes that were reserved")]
    TooLong {
        /// The number of reserved bytes.
        reserved_bytes: u64,
    },
    /// The disk failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// The reason that a staged file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The slot has no file, or was freed.
    #[error("slot {slot} is not staged")]
    NotFound {
        /// The slot.
        slot: u64,
    },
    /// A block is not as it was written.
    #[error("block {block} of slot {slot} is damaged")]
    Damaged {
        /// The slot.
        slot: u64,
        /// The block, counted from 0.
        block: u64,
    },
    /// Its footer or table is not as it was written.
    #[error("the file of slot {slot} cannot be used: {source}")]
    Unusable {
        /// The slot.
        slot: u64,
        /// The flaw.
        source: FormatError,
    },
    /// It belongs to another version: the catalog is not the one that it was staged with.
    #[error(
        "the file of slot {slot} was staged for another object than the catalog records: check that the catalog is the \
         newest"
    )]
    AnotherVersion {
        /// The slot.
        slot: u64,
    },
    /// It is shorter than the requested range.
    #[error("slot {slot} ends at byte {bytes}")]
    OutOfRange {
        /// The slot.
        slot: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The disk failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

impl ReadError {
    /// The slot that cannot be read, unless the disk or the request is at fault.
    pub fn slot(&self) -> Option<u64> {
        match self {
            Self::NotFound { slot }
            | Self::Damaged { slot, .. }
            | Self::Unusable { slot, .. }
            | Self::AnotherVersion { slot } => Some(*slot),
            Self::OutOfRange { .. } | Self::Drive(_) => None,
        }
    }
}
