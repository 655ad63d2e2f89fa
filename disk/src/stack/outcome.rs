//! The result of a transfer as a whole, and of each stack in it.

use crate::drive::DriveError;
use model::BlobId;

/// The outcome of a transfer for one stack and its drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackOutcome {
    /// Every request succeeded.
    Fine,
    /// It was not used, since the others were sufficient.
    Unused,
    /// Some fragments failed their checksum or could not be read; this number of them were repaired in place.
    Repaired {
        /// The number of fragments.
        fragments: u32,
    },
    /// The stack is missing, incomplete, damaged beyond repair in place, or another blob's; the drive itself answers.
    StackBad,
    /// The drive has no room.
    Full,
    /// The drive returned this error.
    Failed(String),
    /// The drive did not answer in time.
    NoAnswer,
    /// It could not be used: the process has too many open files. Not the drive's fault.
    NotAsked,
}

/// The result of a transfer, and the outcome of each stack in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<T> {
    /// The result of the transfer.
    pub result: Result<T, StackError>,
    /// The outcome of each stack.
    pub outcomes: Vec<StackOutcome>,
}

/// The reason why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// At least one stack could not be written.
    #[error("not every stack could be written")]
    WriteFailed,
    /// More or fewer bytes arrived than were announced.
    #[error("{announced} payload bytes were announced, and {got} came")]
    WrongLength {
        /// The number of announced bytes.
        announced: u64,
        /// The number of bytes that arrived, or at least would have.
        got: u64,
    },
    /// Too few stacks can be read; the others may come back, and would be enough.
    #[error("only {good} of the {need} stacks needed can be read; others may come back")]
    TooFewStacks {
        /// k.
        need: u8,
        /// The number of readable stacks.
        good: u8,
    },
    /// Fewer than k good fragments of a stripe are left, and none can come back: its bytes are lost.
    #[error("data of blob {blob} is lost: stripe {stripe} has too few good fragments; bad are those of stacks {bad:?}")]
    DataLost {
        /// The blob.
        blob: BlobId,
        /// The first lost stripe.
        stripe: u64,
        /// The stacks whose fragment is bad, by index.
        bad: Vec<u8>,
    },
    /// Every fragment is good, but the payload's checksum is not the expected one.
    #[error("the payload's checksum is {found:016x}, not {expected:016x}")]
    WrongPayload {
        /// The expected checksum.
        expected: u64,
        /// The actual checksum.
        found: u64,
    },
    /// Some stack does not hold the bytes that were written to it.
    #[error("not every stack holds what was written to it")]
    Unsound,
    /// The receiver of the payload is gone.
    #[error("the reader of the payload has gone")]
    SinkClosed,
}

impl StackOutcome {
    /// The outcome for a stack whose drive returned `error`.
    pub(super) fn of(error: &DriveError) -> Self {
        match error {
            DriveError::NotFound(_) | DriveError::Short(_) | DriveError::Exists(_) => Self::StackBad,
            DriveError::Full => Self::Full,
            DriveError::NoAnswer(_) => Self::NoAnswer,
            DriveError::TooManyOpenFiles => Self::NotAsked,
            other => Self::Failed(other.to_string()),
        }
    }
}
