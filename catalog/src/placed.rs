//! Objects of a bucket with their places, by pages, in the order of their keys.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::list::ListWalk;
use crate::record::{PlacedObject, value};
use std::ops::Bound;

/// A page of objects with their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacedPage {
    /// The objects, by key.
    pub objects: Vec<(String, PlacedObject)>,
    /// True if more objects follow the last of this page.
    pub truncated: bool,
}

impl Catalog {
    /// Up to `limit` objects of `bucket` whose keys begin with `prefix` and follow `after`, in the byte order of their
    /// keys, without those whose record is damaged. Empty for a bucket that does not exist.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn placed_page(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<PlacedPage, CatalogError> {
        let bucket_bytes = key::object(bucket, "").len();
        let walk = ListWalk {
            prefix,
            delimiter: None,
            entries_max: limit,
            store_prefix: &|prefix| key::object(bucket, prefix),
            key: &|entry| key::behind_bucket(&entry.key, bucket_bytes),
            item: value::<PlacedObject>,
        };
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(key::object(bucket, after)));
        let (objects, _, truncated) = walk.run(self, from).await?;
        Ok(PlacedPage { objects, truncated })
    }
}
