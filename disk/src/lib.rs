//! Drives and what lies on them.
//!
//! - [`Drive`] is the seam: named files, written once, read by offset; and the four power commands.
//! - `DirectoryDrive` keeps them in a directory, `MemoryDrive` in memory, `EmulatedDrive` puts `model`'s physics over either.
//! - `stack` is the stripe stack: the format in which a blob lies on k + r drives, its writer, reader, verifier, repairer.
//!
//! Invariants: a transfer holds at most 2 x (k + r) x request size of memory; nothing here decides when a drive spins.

mod clock;
mod drive;

pub use clock::{Clock, TokioClock};
pub use drive::{Buffer, Drive, DriveError, DriveFuture, FileName, Space};
