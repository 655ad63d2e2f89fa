//! Stripe stacks: the format in which a blob lies on k + r drives (Pelican, section 3).
//!
//! - [`StackWriter`] writes a blob as k + r stacks, one to each drive, and syncs them.
//! - [`StackReader`] reads any range of it, checks every fragment it reads, rebuilds and repairs what is bad.
//! - [`rebuild`] regenerates one stack from the others, [`verify_stack`] reads back one.
//! - [`verify`] reads back everything that was written; [`remove`] removes it, and nothing but it.
//! - [`inspect`] says what is wrong with the stacks of a blob, and changes nothing.
//! - [`stack_bytes`] says what a stack will take; [`Header`], [`ChecksumPage`] and [`Footer`] are its blocks.
//!
//! Invariants: no transfer holds more than 2 x (k + r) x [`REQUEST_BYTES`](crate::REQUEST_BYTES) in buffers (for
//! fragments of up to 1 MiB; a rebuild holds a stripe and a request more); bytes are given out only if their fragment's
//! checksum matches, or if they were rebuilt from k fragments whose checksums match; a stack that is complete is never
//! overwritten but to repair it.

mod fetch;
mod format;
mod inspect;
mod read;
mod rebuild;
mod remove;
mod verify;
mod write;

pub use format::{Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, stack_bytes, stack_name, stack_of};
pub use inspect::{Flaw, Inspection, inspect, inspect_deeply};
pub use read::{PayloadSink, Policy, SinkClosed, StackReader};
pub use rebuild::{Lost, rebuild, verify_stack};
pub use remove::remove;
pub use verify::verify;
pub use write::{StackWriter, Written};

use crate::DriveError;
use model::BlobId;

/// How one stack (and its drive) fared in a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackOutcome {
    /// Everything asked of it was done.
    Fine,
    /// It was not asked, since the others sufficed.
    Unused,
    /// Some fragments failed their checksum or could not be read; so many were repaired in place.
    Repaired {
        /// How many fragments.
        fragments: u32,
    },
    /// The stack is missing, incomplete, damaged beyond repair in place, or another blob's; the drive itself answers.
    StackBad,
    /// The drive has no room.
    Full,
    /// The drive answered with this error.
    Failed(String),
    /// The drive did not answer in time.
    NoAnswer,
    /// It could not be asked: the process has too many files open. No fault of the drive's.
    NotAsked,
}

/// What became of a transfer, and of each stack in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<T> {
    /// What became of the transfer.
    pub result: Result<T, StackError>,
    /// What became of each stack.
    pub outcomes: Vec<StackOutcome>,
}

/// Why a transfer did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// At least one stack could not be written.
    #[error("not every stack could be written")]
    WriteFailed,
    /// More or fewer bytes came than were announced.
    #[error("{announced} payload bytes were announced, and {got} came")]
    WrongLength {
        /// How many were announced.
        announced: u64,
        /// How many came, or would have come at least.
        got: u64,
    },
    /// Too few stacks answer; with the others, which may come back, there would be enough.
    #[error("only {good} of the {need} stacks needed can be read; others may come back")]
    TooFewStacks {
        /// k.
        need: u8,
        /// How many can be read.
        good: u8,
    },
    /// Fewer than k good fragments of a stripe are left, and none can come back: its bytes are lost.
    #[error("data of blob {blob} is lost: stripe {stripe} has too few good fragments; bad are those of stacks {bad:?}")]
    DataLost {
        /// Which blob.
        blob: BlobId,
        /// Which stripe; the first such one.
        stripe: u64,
        /// The stacks whose fragment is bad, by index.
        bad: Vec<u8>,
    },
    /// Every fragment is good, but the payload's checksum is not the expected one.
    #[error("the payload's checksum is {found:016x}, not {expected:016x}")]
    WrongPayload {
        /// The checksum it should have.
        expected: u64,
        /// The checksum it has.
        found: u64,
    },
    /// What was written did not come back whole from every stack.
    #[error("not every stack holds what was written to it")]
    Unsound,
    /// Nobody takes the payload any more.
    #[error("nobody takes the payload any more")]
    SinkClosed,
}

impl StackOutcome {
    /// What `error` means for a stack.
    fn of(error: &DriveError) -> Self {
        match error {
            DriveError::NotFound(_) | DriveError::Short(_) | DriveError::Exists(_) => Self::StackBad,
            DriveError::Full => Self::Full,
            DriveError::NoAnswer(_) => Self::NoAnswer,
            DriveError::TooManyOpenFiles => Self::NotAsked,
            other => Self::Failed(other.to_string()),
        }
    }
}
