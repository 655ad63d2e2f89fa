//! The errors of the catalog and of its stores.

use model::BlobId;
use std::fmt::Write as _;

/// The reason why a call of the catalog failed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// There is no such bucket.
    #[error("there is no such bucket")]
    NoSuchBucket,
    /// A bucket of that name exists already.
    #[error("the bucket exists already")]
    BucketExists,
    /// The bucket still holds objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// No object has that key.
    #[error("there is no such key")]
    NoSuchKey,
    /// No user has that name.
    #[error("there is no such user")]
    NoSuchUser,
    /// The access key no longer belongs to a user: it was rotated, or its user was removed.
    #[error("the access key no longer exists")]
    NoSuchAccessKey,
    /// A user of that name exists already.
    #[error("the user exists already")]
    UserExists,
    /// The upload does not exist: it was completed or aborted, or never begun.
    #[error("there is no such upload")]
    NoSuchUpload,
    /// An upload has no part of that number, or a different one.
    #[error("the upload has no such part {0}")]
    NoSuchPart(u32),
    /// The condition of the request does not hold.
    #[error("the condition of the request does not hold")]
    PreconditionFailed,
    /// Other changes of the same records interfered again and again; try again later.
    #[error("other requests kept changing the same records; try again")]
    Conflict,
    /// The blob has no intent: it was already committed or aborted, or never begun.
    #[error("blob {0} is not being written")]
    NoIntent(BlobId),
    /// A living version is in the blob, so it cannot be forgotten.
    #[error("a live version is stored in blob {0}")]
    BlobInUse(BlobId),
    /// A call of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record contradicts the format or another record.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
}

/// The reason why a call of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The check with that index did not hold; nothing was changed.
    #[error("precondition {0} of the batch does not hold")]
    CheckFailed(usize),
    /// The medium is full; nothing was changed.
    #[error("the catalog's disk is full; free some space on it")]
    Full,
    /// The file is not a catalog of this version.
    #[error("{0}")]
    Unusable(String),
    /// The file is damaged, or belongs to another program.
    #[error("{0}")]
    Damaged(String),
    /// Any other error.
    #[error("catalog: {0}")]
    Failed(String),
}

impl CatalogError {
    /// The record at `key` contradicts its format or another record.
    pub(crate) fn damaged(key: &[u8], what: &str) -> Self {
        Self::Damaged(format!("record {}: {what}", readable(key)))
    }
}

/// `key` in readable form: printable ASCII unchanged, other bytes in hexadecimal.
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
