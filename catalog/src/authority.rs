//! By whose right a change is made. What was true when a request was let in need not be true when it is committed: a
//! body may take hours, and meanwhile the bucket is removed and made anew by somebody else, or the keys that signed the
//! request are rotated. So the right is part of every batch, and holds at the very moment at which the batch gets its
//! sequence number, or nothing of it happens.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{Bucket, encode};
use crate::store::{Batch, Check, StoreError};
use std::sync::{Arc, Mutex, PoisonError};

/// Times that a bucket may have been changed while a batch waits; a bucket is seldom changed at all.
const TRIES: u32 = 16;

/// What must still be so when a change is committed.
#[derive(Clone, Debug, Default)]
pub struct Authority {
    /// The bucket that the change is made in, as it was when the request was let in. It may have been changed since,
    /// but not removed.
    pub bucket: Option<Bucket>,
    /// The access key that signed the request. It must still be somebody's.
    pub access_key: Option<String>,
}

/// An authority, and how the bucket's record looked last.
#[derive(Debug)]
pub(crate) struct Bound {
    authority: Authority,
    bucket_raw: Mutex<Vec<u8>>,
}

impl Catalog {
    /// The same catalog, for changes by the right of `authority` alone: each of them answers
    /// [`CatalogError::NoSuchBucket`] or [`CatalogError::NoSuchAccessKey`], and does nothing, once that right is gone.
    #[must_use]
    pub fn authorised(&self, authority: Authority) -> Self {
        let bucket_raw = Mutex::new(authority.bucket.as_ref().map(encode).unwrap_or_default());
        let mut by = self.clone();
        by.authority = Some(Arc::new(Bound { authority, bucket_raw }));
        by
    }

    /// Commits `batch` if the right to it still holds; whether its own checks did.
    pub(crate) async fn apply_by(&self, bound: &Bound, batch: &Batch) -> Result<bool, CatalogError> {
        for _ in 0..TRIES {
            // The right comes first: who has none is not even told what else would be in the way.
            let mut checks = bound.checks();
            let rights = checks.len();
            checks.extend_from_slice(&batch.checks);
            match self.store.commit(Batch { checks, writes: batch.writes.clone() }).await {
                Ok(()) => return Ok(true),
                Err(StoreError::CheckFailed(index)) if index >= rights => return Ok(false),
                Err(StoreError::CheckFailed(_)) => self.renew(bound).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Looks once more whether the right holds, and how the bucket looks now.
    async fn renew(&self, bound: &Bound) -> Result<(), CatalogError> {
        let Authority { bucket, access_key } = &bound.authority;
        if let Some(access_key) = access_key
            && self.store.get(&key::access_key(access_key)).await?.is_none()
        {
            return Err(CatalogError::NoSuchAccessKey);
        }
        if let Some(bucket) = bucket {
            let raw = self.same_bucket(bucket).await?;
            *bound.bucket_raw.lock().unwrap_or_else(PoisonError::into_inner) = raw;
        }
        Ok(())
    }
}

impl Bound {
    fn checks(&self) -> Vec<Check> {
        let Authority { bucket, access_key } = &self.authority;
        let raw = || self.bucket_raw.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bucket = bucket.as_ref().map(|bucket| Check::Is(key::bucket(&bucket.name), raw()));
        let access_key = access_key.as_ref().map(|access_key| Check::Present(key::access_key(access_key)));
        bucket.into_iter().chain(access_key).collect()
    }
}
