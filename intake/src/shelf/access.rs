//! Access to a shelf's drive: at once, or when background work has its turn.

use crate::drive::Drive;
use std::io;

/// A way to use a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// At once, by nodes: single reads, which start a sleeping drive.
    Direct,
    /// At once, in large pieces: the stages of the rotation.
    Stage,
    /// When the drive has no stage, in large pieces: merges.
    Background,
}

impl Access {
    /// Executes a piece of work on `drive`.
    pub(crate) fn run<T>(self, drive: &Drive, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Direct => drive.rouse()?,
            Self::Stage => {}
            Self::Background => return drive.background(work),
        }
        work()
    }

    /// Minimum number of bytes per read, if the file has them.
    pub(super) fn read_bytes(self) -> u32 {
        if self == Self::Direct { 0 } else { 1 << 20 }
    }
}
