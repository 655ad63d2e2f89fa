//! The result of a transfer as a whole, and of each stack in it.

use crate::drive::DriveError;
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
