//! The errors of the intake, one narrow enum for each kind of operation.

use crate::bytes::Damage;
use crate::config::RETAINED_MAX;
use std::error::Error;
use std::io;

/// A caller's reason to refuse a change, as its `prepare` returned it.
pub type Refusal = Box<dyn Error + Send + Sync>;

/// The reasons why a change was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The caller's `prepare` refused it. Nothing was written.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The key, the entry or the value is longer than a record may be. Nothing was written.
    #[error("{what} of {bytes} bytes is too long: the limit is {limit}")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum length.
        limit: usize,
    },
    /// Too much already waits, so no more is taken in; later there may be room. Nothing was written.
    #[error("too much waits to be written")]
    Busy,
    /// No drive of the pool has room. Nothing was written.
    #[error("no drive has room")]
    NoSpace,
    /// The maximum number of logs is retained for a caller that has not confirmed their changes
    /// ([`crate::Intake::covered`]), or has asked for retention ([`crate::Intake::retain`]). Nothing was written.
    #[error(
        "the maximum of {RETAINED_MAX} logs is retained, since the catalog does not have their contents yet; nothing \
         was written"
    )]
    Retaining,
    /// No drive of the pool takes writes any more. The change may or may not exist when the intake is opened again.
    #[error("no drive takes writes")]
    Unknown,
    /// A rotation is behind the other one, and the manifest cannot say so. The change may or may not exist when the
    /// intake is opened again.
    #[error("the manifest of the pool, in the data directory, cannot be written")]
    Unnoted,
    /// The intake was closed before it was written.
    #[error("the intake is closed")]
    Closed,
}

/// The reasons why a key cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The drive failed.
    #[error("the drive failed: {0}")]
    Drive(#[from] io::Error),
    /// The key does not exist, but may have been in a permanently lost part.
    #[error("it may have been in a lost part")]
    Lost,
    /// The key does not exist, but may be on a missing drive.
    #[error("it may be on a drive of the pool that is missing")]
    Away,
    /// The stored bytes are not those that were written.
    #[error("what was read is damaged: {0}")]
    Damaged(#[from] Damage),
}

/// The reasons why an intake cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No drive, or more than the maximum of a pool.
    #[error("a pool has 1 to {limit} drives, and these are {drives}")]
    Drives {
        /// Their number.
        drives: usize,
        /// The maximum.
        limit: usize,
    },
    /// A drive cannot be used.
    #[error("drive {drive} of the pool: {error}")]
    Drive {
        /// Its position among the directories.
        drive: usize,
        /// The error.
        error: ReadError,
    },
    /// Two directories have the same drive, or they have drives of different pools.
    #[error("drive {drive} {problem}")]
    Mixed {
        /// Its position among the directories.
        drive: usize,
        /// The problem.
        problem: &'static str,
    },
    /// Every rotation lacks a drive, or cannot read one.
    #[error(
        "a drive of the pool is missing or cannot be read, and may have the only copy of the last acknowledged changes"
    )]
    LacksDrives,
    /// Files in the manifest are missing or replaced by others, or have lost changes that the caller needs, and no
    /// other rotation has everything. [`crate::Config::accepts_losses`] gives them up.
    #[error("the pool lacks {}", .0.join(", "))]
    Incomplete(Vec<String>),
    /// The manifest is missing, damaged or older than the files.
    #[error("the manifest of the pool {0}")]
    Manifest(String),
    /// The home cannot be used.
    #[error("the directory of the manifest: {0}")]
    Home(io::Error),
    /// No drive takes writes.
    #[error("no drive of the pool takes writes")]
    NoDrive,
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
}
