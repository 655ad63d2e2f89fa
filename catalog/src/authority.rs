//! The right by which a change is made.
//!
//! The right is checked when a request is admitted, and may be gone when the request commits. A body may take hours;
//! meanwhile the bucket may be removed and created again by another user, or the keys that signed the request may be
//! rotated. So the right is part of every batch: either it holds when the batch gets its sequence number, or nothing of
//! the batch happens.

use crate::key;
use crate::record::{Bucket, encode};
use crate::store::Check;
use parking_lot::Mutex;

/// Conditions that must still hold when a change is committed.
#[derive(Clone, Debug, Default)]
pub struct Authority {
    /// The bucket that the change is made in, as it was when the request was admitted. It may have been changed since
    /// then, but not removed.
    pub bucket: Option<Bucket>,
    /// The access key that signed the request. It must still belong to a user.
    pub access_key: Option<String>,
}

/// An authority, with the bucket's record as it was last read.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) authority: Authority,
    bucket_raw: Mutex<Vec<u8>>,
}

impl Grant {
    pub(crate) fn new(authority: Authority) -> Self {
        let bucket_raw = Mutex::new(authority.bucket.as_ref().map(encode).unwrap_or_default());
        Self { authority, bucket_raw }
    }

    /// The bucket was changed; its record is now `raw`.
    pub(crate) fn bucket_changed(&self, raw: Vec<u8>) {
        assert!(self.authority.bucket.is_some(), "an authority without a bucket has no record to renew");
        *self.bucket_raw.lock() = raw;
    }

    /// The checks that make a batch fail once the right is gone.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let Authority { bucket, access_key } = &self.authority;
        let raw = || self.bucket_raw.lock().clone();
        let bucket = bucket.as_ref().map(|bucket| Check::Is(key::bucket(&bucket.name), raw()));
        let access_key = access_key.as_ref().map(|access_key| Check::Present(key::access_key(access_key)));
        bucket.into_iter().chain(access_key).collect()
    }
}
