//! The ways in which one stack of a blob can be wrong.

use crate::drive::DriveError;
use crate::format::FormatError;

/// A flaw of a stack.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// Its drive cannot be used.
    #[error("its drive cannot be used")]
    NoDrive,
    /// The drive's error: most often that there is no such file.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// It has another length.
    #[error("it has {bytes} bytes and should have {expected_bytes}")]
    Length {
        /// Its length.
        bytes: u64,
        /// The length that follows from code and payload.
        expected_bytes: u64,
    },
    /// Its footer cannot be read, so that it was never finished, or is damaged.
    #[error("its footer: {0}")]
    Footer(FormatError),
    /// Its footer is another stack's.
    #[error("its footer is another stack's")]
    ForeignFooter,
    /// Its header cannot be read.
    #[error("its header: {0}")]
    Header(FormatError),
    /// Its header is another stack's.
    #[error("its header is another stack's")]
    ForeignHeader,
    /// Its header and its footer were not written together.
    #[error("its header is not the one that its footer names")]
    Unbound,
    /// The payload's checksum in its footer is not that of most stacks of the blob.
    #[error("its footer has another payload checksum than the others'")]
    OtherPayload,
    /// Its last checksum page is bad.
    #[error("its last checksum page is bad")]
    Page,
    /// So many of its fragments do not match their checksums, or have none that can be read.
    #[error("bad fragments: {0}")]
    Fragments(u64),
    /// A parity fragment is not what the data fragments make, although the checksums of all match.
    #[error("the parity of stripe {stripe} is not what its data makes")]
    Parity {
        /// The first such stripe.
        stripe: u64,
    },
    /// It could not be read to its end.
    #[error("it cannot be read: {0}")]
    Unread(String),
}
