//! The staged versions: in key order for packing, by number, and by slot for the sweep at boot. `reads.rs` has them by
//! age, for choosing the coldest.

use crate::catalog::{Catalog, Cursor, Page, STEP};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::object::{enter_workshop, mark_dead};
use crate::record::{IN_PARTS, Member, Owner, Place, PlacedObject, StagedMark, Version, VersionId, encode, value};
use crate::store::{Batch, Check, Entry, Payload, Write};
use bytes::Bytes;
use model::{BlobId, GroupId};

/// The staged versions in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedUsage {
    /// Payload bytes.
    pub bytes: u64,
    /// Versions.
    pub count: u64,
}

/// A file that the workshop must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedSlot {
    /// The slot.
    pub slot: u64,
    /// The bucket of the object whose version it is.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// The version in it.
    pub version: VersionId,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A filter of staged versions by their staging times, in milliseconds of the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedWhen {
    /// Includes versions staged at this time or before.
    pub until_ms: u64,
    /// Includes versions staged after this: in a future from which the clock has stepped back.
    pub beyond_ms: u64,
}

impl StagedWhen {
    /// The versions staged at `until_ms` or before.
    pub fn until(until_ms: u64) -> Self {
        Self { until_ms, beyond_ms: u64::MAX }
    }

    /// True if a version that was staged at `staged_ms` is included.
    pub fn includes(self, staged_ms: u64) -> bool {
        staged_ms <= self.until_ms || staged_ms > self.beyond_ms
    }
}

/// Bytes of a blob that a change made dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadBytes {
    /// The group of the blob.
    pub group: GroupId,
    /// The blob.
    pub blob: BlobId,
    /// The number of bytes.
    pub bytes: u64,
}

impl Catalog {
    /// At most `limit` staged versions after `after`, by bucket and key, that `when` includes.
    pub async fn staged_page(
        &self,
        after: Option<&Cursor>,
        when: StagedWhen,
        limit: usize,
    ) -> Result<Page<Version>, CatalogError> {
        assert!(limit > 0, "a page without entries leads nowhere");
        let mut items = Vec::new();
        let mut after = after.cloned();
        loop {
            let page = self.entries(&key::all(Tag::Staged), after.as_ref(), STEP).await?;
            for entry in &page.items {
                let Some(version) = self.sound_entries(std::slice::from_ref(entry), staged_version).pop() else {
                    continue;
                };
                if when.includes(version.staged_ms) {
                    items.push(version);
                }
                if items.len() == limit {
                    return Ok(Page { items, next: Some(Cursor(entry.key.clone())) });
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(Page { items, next: None });
            }
        }
    }

    /// A page of the staged versions in `bucket` whose keys begin with `prefix`, in the order of keys.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn staged_below(
        &self,
        (bucket, prefix): (&str, &str),
        after: Option<&Cursor>,
    ) -> Result<Page<Version>, CatalogError> {
        self.page(&key::staged(bucket, prefix), after, STEP, staged_version).await
    }

    /// For each of `versions` its bucket, its key and its record, if it is in the workshop and the records are sound.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn staged_records(
        &self,
        versions: &[VersionId],
    ) -> Result<Vec<Option<(String, String, PlacedObject)>>, CatalogError> {
        let owners = self.look_up::<Owner>(versions.iter().map(|version| key::version(*version)).collect()).await?;
        let at = |owner: &Option<Owner>| owner.as_ref().map_or_else(Vec::new, |of| key::object(&of.bucket, &of.key));
        let objects = self.look_up::<PlacedObject>(owners.iter().map(at).collect()).await?;
        let found = versions.iter().zip(owners).zip(objects).map(|((version, owner), placed)| {
            let (owner, placed) = (owner?, placed.filter(|placed| placed.is_staged_as(*version))?);
            Some((owner.bucket, owner.key, placed))
        });
        Ok(found.collect())
    }

    /// The staged versions in total. Reads the whole index; meant for boot.
    pub async fn staged_usage(&self) -> Result<StagedUsage, CatalogError> {
        let mut usage = StagedUsage::default();
        self.each_entry(&key::all(Tag::Aged), aged, |(_, bytes)| {
            usage.bytes = usage.bytes.saturating_add(bytes);
            usage.count += 1;
        })
        .await?;
        Ok(usage)
    }

    /// A page of the slots that each hold a living version; for slots of parts see [`Catalog::part_slots`]. A page
    /// before the last may have fewer than `limit`. Without versions whose record is damaged: see
    /// [`Catalog::quarantined`].
    pub async fn staged_slots(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<StagedSlot>, CatalogError> {
        let slot = |entry: &Entry| {
            let StagedMark { version, bytes, slot, .. } = value(entry)?;
            let (bucket, key) = key::bucket_and_key(&entry.key)?;
            Ok(StagedSlot { slot, bucket, key, version, bytes })
        };
        let mut page = self.page(&key::all(Tag::Staged), after, limit, slot).await?;
        page.items.retain(|staged| staged.slot != IN_PARTS);
        Ok(page)
    }

    /// Moves `version` of the object at `(bucket, key)`, whose bytes were copied to the workshop file of `slot`, out of
    /// `blob`, where they are dead from now on. `None` if it is no longer there; then the caller frees the slot. The
    /// time of its first staging stays, so it is among the first to migrate again.
    ///
    /// # Errors
    /// [`CatalogError::Conflict`].
    pub async fn restage(
        &self,
        at: (&str, &str),
        version: VersionId,
        blob: BlobId,
        slot: u64,
    ) -> Result<Option<DeadBytes>, CatalogError> {
        self.restage_with(at, version, blob, (slot, None)).await
    }

    /// As [`Catalog::restage`], with the bytes of the workshop file of `slot`, which become durable with the move, as
    /// in [`Catalog::put_logged_object`].
    ///
    /// # Errors
    /// As [`Catalog::restage`].
    ///
    /// # Panics
    /// If no log takes them ([`Catalog::takes_payloads`]).
    pub async fn restage_logged(
        &self,
        at: (&str, &str),
        version: VersionId,
        blob: BlobId,
        (slot, bytes): (u64, Bytes),
    ) -> Result<Option<DeadBytes>, CatalogError> {
        self.restage_with(at, version, blob, (slot, Some(Payload::of(at, slot, bytes)))).await
    }

    async fn restage_with(
        &self,
        (bucket, key): (&str, &str),
        version: VersionId,
        blob: BlobId,
        (slot, payload): (u64, Option<Payload>),
    ) -> Result<Option<DeadBytes>, CatalogError> {
        assert!(slot != IN_PARTS, "no file lies in the slot that stands for parts");
        let at = key::object(bucket, key);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let Some((mut placed, raw)) = self.read_raw::<PlacedObject>(&at).await? else { return Ok(None) };
            let Place::Stored { blob: home, offset } = placed.place else { return Ok(None) };
            if (home, placed.object.version) != (blob, version) {
                return Ok(None);
            }
            let Some(group) = self.group_of(blob, (bucket, key), &raw).await? else { continue };
            let mut batch = Batch::new(vec![Check::Is(at.clone(), raw)], Vec::new());
            batch.payload.clone_from(&payload);
            let bytes = placed.object.bytes;
            placed.place = Place::Staged { slot };
            batch.writes.push(Write::Put(at.clone(), encode(&placed)));
            enter_workshop(bucket, key, &placed, &mut batch);
            mark_dead(group, blob, Member { version, offset, bytes }, &mut batch);
            if self.apply(batch).await? {
                return Ok(Some(DeadBytes { group, blob, bytes }));
            }
        }
    }
}

/// The staging time and the length of the version in an entry of the index by age.
pub(crate) fn aged(entry: &Entry) -> Result<(u64, u64), CatalogError> {
    let [staged_ms, _] = key::numbers(&entry.key)?;
    Ok((staged_ms, value(entry)?))
}

/// The version in an entry of the index of staged versions.
fn staged_version(entry: &Entry) -> Result<Version, CatalogError> {
    let StagedMark { version, bytes, staged_ms, slot } = value(entry)?;
    let (bucket, key) = key::bucket_and_key(&entry.key)?;
    Ok(Version { version, bucket, key, bytes, staged_ms, place: Place::of_mark(slot) })
}
