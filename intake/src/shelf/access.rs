//! How a shelf's drive is used: at once, or when it is the turn of background work.

use crate::drive::Drive;
use std::io;

/// How a drive is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// At once, by nodes: single reads.
    Direct,
    /// At once, in large pieces: the stages of the rotation.
    Stage,
    /// When the drive has no stage, in large pieces: merges.
    Background,
}

impl Access {
    /// Does a piece of work on `drive`.
    pub(crate) fn run<T>(self, drive: &Drive, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self == Self::Background { drive.background(work) } else { work() }
    }

    /// Bytes that are read at least, if there are so many.
    pub(super) fn read_bytes(self) -> u32 {
        if self == Self::Direct { 0 } else { 1 << 20 }
    }
}
