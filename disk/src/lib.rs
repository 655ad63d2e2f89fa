//! Drives, and the formats of the files on them.
//!
//! - [`Drive`] is the interface: named files, written once, read by offset; and the four power commands.
//! - [`DirectoryDrive`] stores them in a directory, [`MemoryDrive`] in memory; [`EmulatedDrive`] puts `model`'s physics
//!   over either; [`DeadlineDrive`] bounds the time of every call.
//! - [`device`] is a drive that is a whole disk, mounted and unmounted, started and stopped through the kernel.
//! - [`power`] starts, stops and queries real disks, over [`scsi`]: commands by SG_IO and the answers of disks.
//! - [`smart`] reads the health reports of disks that are awake.
//! - [`discover`] lists the disks of this machine and shows which can be used; [`IoCounters`] shows accesses to a disk.
//! - [`doctor`] finds other programs that wake disks. [`child`] runs commands with deadlines.
//! - [`label`] identifies a drive, its rack and its place in it.
//! - [`stack`] is the stripe stack: the format of a blob on k + r drives, its writer, reader and verifier.
//!
//! Invariants: a transfer holds at most 2 x (k + r) x request size of memory; nothing here decides when a drive spins.

mod buffer;
pub mod child;
pub mod clock;
mod code;
mod counters;
mod deadline;
pub mod device;
mod directory;
pub mod discover;
pub mod doctor;
mod drive;
mod emulated;
mod format;
#[cfg(test)]
mod format_tests;
mod hardware;
pub mod label;
pub mod limit;
pub mod measure;
mod memory;
pub mod owner;
pub mod power;
pub mod private;
pub mod scsi;
pub mod smart;
pub mod stack;

pub use buffer::{ALIGNMENT_BYTES, Buffer, Meter};
pub use clock::{Clock, TokioClock};
pub use code::{Codec, TooFewFragments};
pub use counters::{IoCounters, Touch};
pub use deadline::{DeadlineDrive, Deadlines, REQUESTS_MAX};
pub use directory::{DESCRIPTORS_PER_FILE, DirectoryDrive, IoMode, OpenFiles};
pub use drive::{Drive, DriveError, DriveFuture, FileName, Space};
pub use emulated::{DriveEvent, DriveEventKind, EmulatedDrive, EmulatedRack, FUSE_RESET, Overrun};
pub use format::{BLOCK_BYTES, FORMAT_VERSION, FormatError};
pub use hardware::{Hardware, QueueFill};
pub use label::{Device, DriveLabel, DriveUuid, Label, LabelError, RackUuid};
pub use memory::{MemoryCall, MemoryDrive};

/// Bytes of the longest request to a drive, unless a single fragment is longer: large enough to make a seek a small
/// part of it.
pub const REQUEST_BYTES: usize = 1 << 20;

/// Bytes of fragments in a request of this size, besides the checksum page that may accompany them.
pub const REQUEST_FRAGMENTS_BYTES: u64 = (REQUEST_BYTES - BLOCK_BYTES) as u64;

/// The result of an awaited task; `None` if the runtime ended it. A panic continues here.
fn finished<T>(joined: Result<T, tokio::task::JoinError>) -> Option<T> {
    match joined.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(result) => Some(result),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => None,
    }
}
