//! Users, buckets and drives: small records, read as whole lists.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Bucket, DriveRecord, decode, encode};
use crate::store::{Batch, Check, KeyRange, Write};
use model::DriveId;

impl Catalog {
    /// Sets the secret of `access_key`.
    pub async fn user_put(&self, access_key: &str, secret: &str) -> Result<(), CatalogError> {
        self.put(key::user(access_key), encode(&secret)).await
    }

    /// The secret of `access_key`, if there is such a user.
    pub async fn user_secret(&self, access_key: &str) -> Result<Option<String>, CatalogError> {
        self.read(&key::user(access_key)).await
    }

    /// The access keys of all users, in order.
    pub async fn users(&self) -> Result<Vec<String>, CatalogError> {
        self.all_entries(&key::all(Tag::User), |entry| key::name(&entry.key)).await
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// [`CatalogError::BucketExists`] if there is one of that name, whoever owns it.
    pub async fn create_bucket(&self, bucket: &Bucket) -> Result<(), CatalogError> {
        let at = key::bucket(&bucket.name);
        let checks = vec![Check::Absent(at.clone())];
        let made = self.apply(Batch { checks, writes: vec![Write::Put(at, encode(bucket))] }).await?;
        if made { Ok(()) } else { Err(CatalogError::BucketExists) }
    }

    /// The bucket of that name.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn bucket(&self, name: &str) -> Result<Bucket, CatalogError> {
        self.read(&key::bucket(name)).await?.ok_or(CatalogError::NoSuchBucket)
    }

    /// All buckets, by name.
    pub async fn buckets(&self) -> Result<Vec<Bucket>, CatalogError> {
        self.all_entries(&key::all(Tag::Bucket), |entry| decode(&entry.key, &entry.value)).await
    }

    /// Removes a bucket that holds nothing. A PUT at the same time is either refused, or makes this answer "not empty".
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::BucketNotEmpty`].
    pub async fn delete_bucket(&self, name: &str) -> Result<(), CatalogError> {
        let at = key::bucket(name);
        let checks = vec![Check::Present(at.clone()), Check::Empty(KeyRange::prefix(&key::object(name, "")))];
        if self.apply(Batch { checks, writes: vec![Write::Delete(at)] }).await? {
            return Ok(());
        }
        self.bucket(name).await?;
        Err(CatalogError::BucketNotEmpty)
    }

    /// Remembers `record`, in the place of what was remembered of that drive.
    pub async fn drive_put(&self, record: &DriveRecord) -> Result<(), CatalogError> {
        self.put(key::drive(record.drive), encode(record)).await
    }

    /// What is remembered of `drive`.
    pub async fn drive(&self, drive: DriveId) -> Result<Option<DriveRecord>, CatalogError> {
        self.read(&key::drive(drive)).await
    }

    /// What is remembered of every drive, by id.
    pub async fn drives(&self) -> Result<Vec<DriveRecord>, CatalogError> {
        self.all_entries(&key::all(Tag::Drive), |entry| decode(&entry.key, &entry.value)).await
    }
}
