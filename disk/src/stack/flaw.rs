//! The ways in which one stack of a blob can be wrong.

use crate::drive::DriveError;
use crate::format::FormatError;

/// A flaw of a stack.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// Its drive cannot be used.
    #[error("its drive cannot be used")]
    NoDrive,
    /// The drive's error, most often a missing file.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// Its length is wrong.
    #[error("it has {bytes} bytes and should have {expected_bytes}")]
    Length {
        /// Its length.
        bytes: u64,
        /// The length for its code and payload.
        expected_bytes: u64,
    },
    /// Its footer cannot be read, so it was never finished, or is damaged.
    #[error("its footer: {0}")]
    Footer(FormatError),
    /// Its footer belongs to another stack.
    #[error("its footer is another stack's")]
    ForeignFooter,
    /// Its header cannot be read.
    #[error("its header: {0}")]
    Header(FormatError),
    /// Its header belongs to another stack.
    #[error("its header is another stack's")]
    ForeignHeader,
    /// Its header and its footer were not written together.
    #[error("its header is not the one that its footer names")]
    Unbound,
    /// The payload checksum in its footer differs from that of most stacks of the blob.
    #[error("the payload checksum in its footer differs from the others'")]
    OtherPayload,
    /// Its last checksum page is bad.
    #[error("its last checksum page is bad")]
    Page,
    /// This number of its fragments do not match their checksums, or have no readable ones.
    #[error("bad fragments: {0}")]
    Fragments(u64),
    /// A parity fragment does not fit the data fragments, although all checksums match.
    #[error("the parity of stripe {stripe} does not match its data")]
    Parity {
        /// The first stripe with this flaw.
        stripe: u64,
    },
    /// It could not be read to its end.
    #[error("it cannot be read: {0}")]
    Unread(String),
}
