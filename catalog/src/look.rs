//! Reading a catalog, damaged or not, without changing it, to compare it with the media.
//!
//! Records that cannot be parsed are left out here; [`Catalog::audit`](crate::Catalog::audit) reports them.

use crate::catalog::{Catalog, Cursor, Page};
use crate::error::{CatalogError, StoreError};
use crate::key::{self, Tag};
use crate::record::{Blob, IN_PARTS, Owner, Part, PlacedObject, StagedMark, VersionId, decode};
use crate::seal::Sealed;
use crate::staging::StagedSlot;
use crate::store::{KeyRange, Store};
use crate::upload::part_of;
use model::{BlobId, DriveId};
use std::sync::Arc;

/// The state of a blob's number in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// No record: the number was never given to a blob, or the blob is forgotten.
    Nothing,
    /// Its record cannot be read.
    Damaged,
    /// It is being written.
    Begun(Blob),
    /// It was committed or aborted, and is not forgotten.
    Blob(Blob),
}

impl Catalog {
    /// The catalog in `store`, unchanged; nothing is written, not even into an empty store.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the records have another format.
    pub async fn open_read_only(store: Arc<dyn Store>) -> Result<Self, CatalogError> {
        if store.scan(KeyRange::all(), 1).await?.is_empty() {
            return Ok(Self::over(store));
        }
        Self::open(store).await
    }

    /// The catalog after the last batch, read-only and unaffected by later writes. For short use ([`Store::view`]).
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn view(&self) -> Result<Self, CatalogError> {
        Ok(Self::over(self.store.view().await?))
    }

    /// The faults of the catalog's medium ([`Store::check_pages`]).
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn check_pages(&self) -> Result<Vec<String>, CatalogError> {
        Ok(self.store.check_pages().await?)
    }

    /// A page of the readable blobs, by number; only those with a stack on `drive`, if it is given. A page before the
    /// last may have fewer than `limit`.
    pub async fn sound_blobs(
        &self,
        drive: Option<DriveId>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Blob>, CatalogError> {
        let Some(drive) = drive else {
            let page = self.entries(&key::all(Tag::Blob), after, limit).await?;
            let items = page.items.iter().filter_map(|entry| decode(&entry.key, &entry.value).ok()).collect();
            return Ok(Page { items, next: page.next });
        };
        let page = self.entries(&key::all_on_drive(drive), after, limit).await?;
        let ids = page.items.iter().filter_map(|entry| key::numbers(&entry.key).ok());
        let blobs = self
            .look_up::<Blob>(ids.map(|[_, number, nonce]: [u64; 3]| key::blob(BlobId::new(number, nonce))).collect())
            .await?;
        Ok(Page { items: blobs.into_iter().flatten().collect(), next: page.next })
    }

    /// As [`Catalog::staged_slots`], without unreadable ones.
    pub async fn sound_slots(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<StagedSlot>, CatalogError> {
        let page = self.entries(&key::all(Tag::Staged), after, limit).await?;
        let alone = page.items.iter().filter_map(|entry| {
            let StagedMark { version, bytes, slot, .. } = decode(&entry.key, &entry.value).ok()?;
            let (bucket, key) = key::bucket_and_key(&entry.key).ok()?;
            (slot != IN_PARTS).then_some(StagedSlot { slot, bucket, key, version, bytes })
        });
        let items = alone.collect();
        Ok(Page { items, next: page.next })
    }

    /// A page of the slots that hold a part of an open upload or of a version stored in parts, each with the number of
    /// that upload or version. Without unreadable ones; a page before the last may have fewer than `limit`.
    pub async fn sound_part_slots(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<StagedSlot>, CatalogError> {
        let page = self.entries(&key::all(Tag::Part), after, limit).await?;
        let parts = page.items.iter().filter_map(|entry| {
            let [owner, _] = key::numbers(&entry.key).ok()?;
            let Part { slot, bytes, .. } = part_of(entry).ok()?;
            Some((slot, VersionId(owner), bytes))
        });
        let parts: Vec<(u64, VersionId, u64)> = parts.collect();
        let owners = self.look_up::<Owner>(parts.iter().map(|(_, owner, _)| key::version(*owner)).collect()).await?;
        let of_owner = |((slot, version, bytes), owner): ((u64, VersionId, u64), Option<Owner>)| {
            let Owner { bucket, key, .. } = owner.filter(|owner| owner.in_parts)?;
            Some(StagedSlot { slot, bucket, key, version, bytes })
        };
        let items = parts.into_iter().zip(owners).filter_map(of_owner).collect();
        Ok(Page { items, next: page.next })
    }

    /// A page of all objects, each with bucket and key, in that order. A page before the last may have fewer than
    /// `limit`.
    pub async fn sound_objects(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<(String, String, PlacedObject)>, CatalogError> {
        let page = self.entries(&key::all(Tag::Object), after, limit).await?;
        let items = page.items.iter().filter_map(|entry| {
            let (bucket, key) = key::bucket_and_key(&entry.key).ok()?;
            Some((bucket, key, decode(&entry.key, &entry.value).ok()?))
        });
        Ok(Page { items: items.collect(), next: page.next })
    }

    /// The state of each of `ids`, in their order.
    pub async fn known_blobs(&self, ids: &[BlobId]) -> Result<Vec<Known>, CatalogError> {
        let keys: Vec<_> = ids.iter().flat_map(|&id| [key::blob(id), key::intent(id)]).collect();
        let values = self.store.get_many(keys.clone()).await?;
        let (keys, _) = keys.as_chunks::<2>();
        let (values, _) = values.as_chunks::<2>();
        let known = |([blob_at, intent_at], [blob, intent]): (&[Vec<u8>; 2], &[Option<Sealed>; 2])| match (blob, intent)
        {
            (None, None) => Known::Nothing,
            (Some(raw), _) => decode(blob_at, raw).map_or(Known::Damaged, Known::Blob),
            (None, Some(raw)) => decode(intent_at, raw).map_or(Known::Damaged, Known::Begun),
        };
        Ok(keys.iter().zip(values).map(known).collect())
    }

    /// True if a version lives in `blob`. A blob without one may be partly removed.
    pub async fn is_blob_living(&self, blob: BlobId) -> Result<bool, CatalogError> {
        Ok(!self.store.scan(KeyRange::prefix(&key::members(blob)), 1).await?.is_empty())
    }
}

/// The answer to a commit from a store that is opened read-only.
pub(crate) fn read_only() -> StoreError {
    StoreError::Failed("the catalog is opened read-only".into())
}
