//! The errors of the catalog and of its stores.

use model::BlobId;
use std::fmt::Write as _;

/// The reason why a call of the catalog failed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// There is no such bucket.
    #[error("there is no such bucket")]
    NoSuchBucket,
    /// A bucket of that name is there already.
    #[error("the bucket exists already")]
    BucketExists,
    /// The bucket still holds objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// There is no object of that key.
    #[error("there is no such key")]
    NoSuchKey,
    /// There is no user of that name.
    #[error("there is no such user")]
    NoSuchUser,
    /// The access key is no user's any more: it was rotated, or its user was removed.
    #[error("there is no such access key any more")]
    NoSuchAccessKey,
    /// A user of that name is there already.
    #[error("the user exists already")]
    UserExists,
    /// There is no such upload: it was completed or aborted, or never begun.
    #[error("there is no such upload")]
    NoSuchUpload,
    /// An upload has no such part, or another one of that number.
    #[error("the upload has no such part {0}")]
    NoSuchPart(u32),
    /// The condition of the request does not hold.
    #[error("the condition of the request does not hold")]
    PreconditionFailed,
    /// Others changed the same records again and again; try again later.
    #[error("others changed the same records again and again")]
    Conflict,
    /// No intent stands for the blob: it was committed or aborted already, or never begun.
    #[error("blob {0} is not being written")]
    NoIntent(BlobId),
    /// A living version lies in the blob, so that it cannot be forgotten.
    #[error("a living version lies in blob {0}")]
    BlobInUse(BlobId),
    /// The store could not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record contradicts the format or another record.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
}

/// The reason why a call of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The check of that index did not hold; nothing was changed.
    #[error("precondition {0} of the batch does not hold")]
    CheckFailed(usize),
    /// The medium is full; nothing was changed.
    #[error("the catalog's disk is full; free some room on it")]
    Full,
    /// The file is not a catalog of this version.
    #[error("{0}")]
    Unusable(String),
    /// The file is damaged, or another's.
    #[error("{0}")]
    Damaged(String),
    /// Any other error.
    #[error("catalog: {0}")]
    Failed(String),
}

impl CatalogError {
    /// The record at `key` is not what it should be.
    pub(crate) fn damaged(key: &[u8], what: &str) -> Self {
        Self::Damaged(format!("record {}: {what}", readable(key)))
    }
}

/// `key` for people: printable ASCII as it is, other bytes in hexadecimal.
pub(crate) fn readable(key: &[u8]) -> String {
    key.iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_graphic() {
            text.push(byte as char);
        } else {
            let _ = write!(text, "\\{byte:02x}");
        }
        text
    })
}
