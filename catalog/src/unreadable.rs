//! Versions whose bytes cannot be read at their place. They are in quarantine: not part of a pack, a copy or a job
//! until they can be read again, are rewritten or are deleted.
//!
//! The batch that moves or removes the version deletes its record. So no record outlives its version, and a version
//! that was read and moved is no longer in quarantine.

use crate::catalog::{Catalog, Cursor, Page};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Place, PlacedObject, Version, VersionId, encode, value};
use crate::store::{Batch, Check, Entry, Write};
use serde::{Deserialize, Serialize};

/// A version that cannot be read, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Its number.
    pub version: VersionId,
    /// The bucket of the object.
    pub bucket: String,
    /// The key of the object.
    pub key: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its place.
    pub place: Place,
    /// Time of the first failed read, in milliseconds of the Unix epoch.
    pub since_ms: u64,
    /// The reason, for people.
    pub reason: String,
}

impl Catalog {
    /// Records that `found` cannot be read at its place. False if it is gone or elsewhere by now; nothing is changed
    /// then. For a version that is already known to be unreadable the first reason stays.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Damaged`].
    pub async fn mark_unreadable(&self, found: &Version, since_ms: u64, reason: &str) -> Result<bool, CatalogError> {
        let (at, object_at) = (key::unreadable(found.version), key::object(&found.bucket, &found.key));
        let is_same = |now: &PlacedObject| (now.object.version, now.place) == (found.version, found.place);
        let now = self.read_raw::<PlacedObject>(&object_at).await?.filter(|(now, _)| is_same(now));
        let Some((_, raw)) = now else { return Ok(false) };
        let Version { version, bytes, place, .. } = *found;
        let (bucket, key, reason) = (found.bucket.clone(), found.key.clone(), reason.to_owned());
        let unreadable = Unreadable { version, bucket, key, bytes, place, since_ms, reason };
        let checks = vec![Check::Is(object_at, raw), Check::Absent(at.clone())];
        let put = Batch::new(checks, vec![Write::Put(at.clone(), encode(&unreadable))]);
        Ok(self.apply(put).await? || self.read::<Unreadable>(&at).await?.is_some())
    }

    /// Records that `version` can be read after all.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn clear_unreadable(&self, version: VersionId) -> Result<(), CatalogError> {
        self.write(vec![Write::Delete(key::unreadable(version))]).await
    }

    /// The record of `version`, if it is known to be unreadable.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Damaged`].
    pub async fn unreadable_of(&self, version: VersionId) -> Result<Option<Unreadable>, CatalogError> {
        self.read(&key::unreadable(version)).await
    }

    /// For each of `versions`, true if it is known to be unreadable. Takes a single short read if no version is.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn are_unreadable(&self, versions: &[VersionId]) -> Result<Vec<bool>, CatalogError> {
        if self.entries(&key::all(Tag::Unreadable), None, 1).await?.items.is_empty() {
            return Ok(vec![false; versions.len()]);
        }
        let keys = versions.iter().map(|version| key::unreadable(*version)).collect();
        Ok(self.store.get_many(keys).await?.iter().map(Option::is_some).collect())
    }

    /// The number of versions that are known to be unreadable, and their bytes. Reads all of their records.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Damaged`].
    pub async fn unreadable_usage(&self) -> Result<(u64, u64), CatalogError> {
        let all = key::all(Tag::Unreadable);
        let bytes_of = |entry: &Entry| value::<Unreadable>(entry).map(|found| found.bytes);
        let bytes = self.all_entries(&all, bytes_of).await?;
        Ok((bytes.len() as u64, bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))))
    }

    /// At most `limit` versions that are known to be unreadable, after `after`, by number.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Damaged`].
    pub async fn unreadable_page(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Unreadable>, CatalogError> {
        self.page(&key::all(Tag::Unreadable), after, limit, value).await
    }
}
