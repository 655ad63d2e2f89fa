//! Objects together with the other records that a reader needs, each in one read of the store.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{Blob, Bucket, PlacedObject};
use model::BlobId;

/// An object together with its bucket.
#[derive(Debug)]
pub struct Located {
    /// The bucket.
    pub bucket: Bucket,
    /// The object and its place; [`CatalogError::NoSuchKey`] if it does not exist.
    pub object: Result<PlacedObject, CatalogError>,
}

impl Catalog {
    /// The bucket and the object at `key` in it. The place may change at any time afterwards.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn locate(&self, bucket: &str, key: &str) -> Result<Located, CatalogError> {
        let keys = [key::bucket(bucket), key::object(bucket, key)];
        let values = self.store.get_many(keys.to_vec()).await?;
        let [bucket, object] = values.as_slice() else { unreachable!("a value for each key") };
        let bucket = bucket.as_ref().ok_or_else(|| self.not_there(CatalogError::NoSuchBucket))?;
        let bucket = self.opened(&keys[0], bucket)?;
        let object = object.as_ref().ok_or_else(|| self.not_there(CatalogError::NoSuchKey));
        Ok(Located { bucket, object: object.and_then(|object| self.opened(&keys[1], object)) })
    }

    /// The object at `key`, if it exists, and `blob`, if it is known. The caller holds `blob`, so an object that is in
    /// it at this moment can be read there.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Damaged`].
    pub async fn object_and_blob(
        &self,
        bucket: &str,
        key: &str,
        blob: BlobId,
    ) -> Result<(Option<PlacedObject>, Option<Blob>), CatalogError> {
        let keys = [key::object(bucket, key), key::blob(blob)];
        let values = self.store.get_many(keys.to_vec()).await?;
        let [object, blob] = values.as_slice() else { unreachable!("a value for each key") };
        let object = object.as_ref().map(|object| self.opened(&keys[0], object)).transpose()?;
        Ok((object, blob.as_ref().map(|blob| self.opened(&keys[1], blob)).transpose()?))
    }
}
