//! Uploads in parts: their start, their parts, and their completion or abort.
//!
//! Each part is a separate staged file. Completing moves no bytes: one batch deletes the upload's record and creates a
//! version whose place is its parts. The records of the parts stay as long as the version does, since S3 lists them;
//! their slots count while the upload is open or the version is stored in parts.
//!
//! A part that is put while its upload is completed or aborted is either included in that or refused: both check all
//! parts that they have seen, and that no others exist.

use crate::catalog::{Catalog, Cursor, Page, STEP};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::list::{ListWalk, behind};
use crate::object::{Displaced, PutCondition, check_condition, place_new};
use crate::parts::PARTS_MAX;
use crate::record::{IN_PARTS, Object, Owner, Part, Place, Upload, VersionId, decode, encode, value};
use crate::seal::Sealed;
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A part that a client wants its object to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPart {
    /// Its number in the upload.
    pub number: u32,
    /// The ETag it must have.
    pub etag: String,
}

/// The result of completing an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The version that was replaced.
    pub displaced: Displaced,
    /// The parts that were not chosen; the caller frees their slots.
    pub unused: Vec<Part>,
}

/// A request for a page of the uploads of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadListRequest {
    /// Only uploads to keys with this prefix.
    pub prefix: String,
    /// Keys are rolled up to the first occurrence of this after the prefix. `None` or empty: no rolling up.
    pub delimiter: Option<String>,
    /// Only uploads to keys after this one, or to this key and after that upload. A common prefix of this listing
    /// leaves out all keys that begin with it.
    pub after: Option<(String, Option<VersionId>)>,
    /// Maximum number of uploads and common prefixes together.
    pub max_uploads: usize,
}

/// A page of uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadListing {
    /// The uploads with their keys, by key and then by age, oldest first.
    pub uploads: Vec<(String, Upload)>,
    /// The common prefixes, in order.
    pub common_prefixes: Vec<String>,
    /// True if more entries follow the last of this page.
    pub truncated: bool,
}

/// The open uploads in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadUsage {
    /// Uploads that are neither completed nor aborted.
    pub uploads: u64,
    /// Their parts.
    pub parts: u64,
    /// The bytes of these parts.
    pub bytes: u64,
}

impl Catalog {
    /// Begins an upload to `key`.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn create_upload(&self, bucket: &str, key: &str, upload: &Upload) -> Result<(), CatalogError> {
        let at = key::upload(bucket, key, upload.version);
        let owner = Owner { bucket: bucket.to_owned(), key: key.to_owned(), in_parts: true };
        let owner_at = key::version(upload.version);
        let checks = vec![Check::Present(key::bucket(bucket)), Check::Absent(owner_at.clone())];
        let writes = vec![Write::Put(at, encode(upload)), Write::Put(owner_at, encode(&owner))];
        self.apply_or(Batch::new(checks, writes), CatalogError::NoSuchBucket).await
    }

    /// The upload of that number to `key`.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchUpload`].
    pub async fn upload(&self, bucket: &str, key: &str, number: VersionId) -> Result<Upload, CatalogError> {
        if let Some(upload) = self.read(&key::upload(bucket, key, number)).await? {
            return Ok(upload);
        }
        self.bucket(bucket).await?;
        Err(self.not_there(CatalogError::NoSuchUpload))
    }

    /// Adds a part, which is durable in its slot, to an upload, in place of the one with the same number. Returns the
    /// replaced part, whose slot the caller frees.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchUpload`], [`CatalogError::Conflict`].
    ///
    /// # Panics
    /// If the part's number is not one of 1 to [`PARTS_MAX`].
    pub async fn put_part(
        &self,
        bucket: &str,
        key: &str,
        number: VersionId,
        part: &Part,
    ) -> Result<Option<Part>, CatalogError> {
        assert!((1..=PARTS_MAX).contains(&part.number), "a part has a number from 1 to {PARTS_MAX}");
        assert!(part.slot != IN_PARTS, "no file lies in the slot that stands for parts");
        let at = key::part(number, part.number);
        let upload_at = key::upload(bucket, key, number);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let (old, raw) = self.read_to_replace::<Part>(&at).await?.unzip();
            let unchanged = raw.map_or_else(|| Check::Absent(at.clone()), |raw| Check::Is(at.clone(), raw));
            let checks = vec![Check::Present(upload_at.clone()), unchanged];
            if self.apply(Batch::new(checks, vec![Write::Put(at.clone(), encode(part))])).await? {
                return Ok(old.flatten());
            }
            self.upload(bucket, key, number).await?;
        }
    }

    /// At most `limit` parts with numbers above `after`, of an upload or of the version that was made of it.
    pub async fn parts_page(&self, number: VersionId, after: u32, limit: usize) -> Result<Vec<Part>, CatalogError> {
        let range = KeyRange::prefix_after(&key::parts(number), &key::part(number, after));
        self.store.scan(range, limit).await?.iter().map(part_of).collect()
    }

    /// Turns an upload into the object that `object` describes, of the parts `chosen`, in one batch. Renumbers the
    /// parts from 1 on without gaps. `object.modified_ms` counts as the time it was staged.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchUpload`]; [`CatalogError::NoSuchPart`] if a part does not
    /// exist, has another ETag or differs in length from `object`; [`CatalogError::PreconditionFailed`] if the
    /// condition does not hold; [`CatalogError::NoSuchKey`] for `IfMatch` if the key does not exist;
    /// [`CatalogError::Conflict`].
    ///
    /// # Panics
    /// If `chosen` is not in ascending order of numbers, or not as long as `object.parts`.
    pub async fn complete_upload(
        &self,
        (bucket, key): (&str, &str),
        object: &Object,
        chosen: &[ChosenPart],
        condition: &PutCondition,
    ) -> Result<Completed, CatalogError> {
        assert!(chosen.windows(2).all(|two| two[0].number < two[1].number), "parts are chosen in order");
        assert_eq!(chosen.len(), object.parts.count() as usize, "an object knows its parts");
        let end = object.parts.range(object.parts.count()).map_or(0, |last| last.end);
        assert_eq!(end, object.bytes, "an object is as long as its parts together");
        let at = key::upload(bucket, key, object.version);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            if self.store.get(&at).await?.is_none() {
                self.bucket(bucket).await?;
                return Err(self.not_there(CatalogError::NoSuchUpload));
            }
            let old = self.living(bucket, key).await?;
            check_condition(condition, old.as_ref())?;
            let mut batch = Batch::default();
            batch.checks.push(Check::Present(key::bucket(bucket)));
            batch.checks.push(Check::Present(at.clone()));
            let seen = self.all_parts(object.version, &mut batch).await?;
            let unused = match choose(object, chosen, seen, &mut batch) {
                Ok(unused) => unused,
                // The parts were removed with the upload after it was looked up.
                Err(_) if self.store.get(&at).await?.is_none() => continue,
                Err(error) => return Err(error),
            };
            let Ok(displaced) = self.displace(bucket, key, old.as_ref(), &mut batch).await? else { continue };
            batch.writes.push(Write::Delete(at.clone()));
            place_new(bucket, key, object, Place::Parts, &mut batch);
            if self.apply(batch).await? {
                return Ok(Completed { displaced, unused });
            }
        }
    }

    /// Aborts an upload. Returns its parts, whose slots the caller frees.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchUpload`], [`CatalogError::Conflict`].
    pub async fn abort_upload(&self, bucket: &str, key: &str, number: VersionId) -> Result<Vec<Part>, CatalogError> {
        let at = key::upload(bucket, key, number);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            self.upload(bucket, key, number).await?;
            let writes = vec![Write::Delete(at.clone()), Write::Delete(key::version(number))];
            let mut batch = Batch::new(vec![Check::Present(at.clone())], writes);
            let parts = self.all_parts(number, &mut batch).await?;
            batch.writes.push(Write::DeleteRange(KeyRange::prefix(&key::parts(number))));
            if self.apply(batch).await? {
                return Ok(parts);
            }
        }
    }

    /// A page of the uploads of `bucket`, by key and age.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`].
    pub async fn list_uploads(&self, bucket: &str, request: &UploadListRequest) -> Result<UploadListing, CatalogError> {
        self.bucket(bucket).await?;
        let walk = ListWalk {
            prefix: &request.prefix,
            delimiter: request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            entries_max: request.max_uploads,
            store_prefix: &|prefix| key::uploads(bucket, prefix),
            key: &|entry| key::upload_at(&entry.key).map(|(_, key, _)| key),
            item: value::<Upload>,
        };
        let from = match &request.after {
            None => Bound::Unbounded,
            Some((key, Some(upload))) => Bound::Excluded(key::upload(bucket, key, *upload)),
            Some((key, None)) if walk.is_common(key) => behind(&key::uploads(bucket, key)),
            Some((key, None)) => behind(&key::uploads_to(bucket, key)),
        };
        let (uploads, common_prefixes, truncated) = walk.run(self, from).await?;
        Ok(UploadListing { uploads, common_prefixes, truncated })
    }

    /// A page of the uploads of all buckets, each with its bucket and key.
    pub async fn uploads_page(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<(String, String, Upload)>, CatalogError> {
        let upload = |entry: &Entry| {
            let (bucket, key, _) = key::upload_at(&entry.key)?;
            Ok((bucket, key, value(entry)?))
        };
        self.page(&key::all(Tag::Upload), after, limit, upload).await
    }

    /// The open uploads in total. Reads all of them; meant for status.
    pub async fn upload_usage(&self) -> Result<UploadUsage, CatalogError> {
        let mut usage = UploadUsage::default();
        let begun = |entry: &Entry| Ok(value::<Upload>(entry)?.version);
        for version in self.all_entries(&key::all(Tag::Upload), begun).await? {
            usage.uploads += 1;
            let add = |part: Part| {
                usage.parts += 1;
                usage.bytes = usage.bytes.saturating_add(part.bytes);
            };
            self.each_entry(&key::parts(version), part_of, add).await?;
        }
        Ok(usage)
    }

    /// The slots of parts that the workshop must have, with their lengths in bytes: those of open uploads and of
    /// versions that are stored in parts. Returns the slots after `after` that one read yields. At boot, a file in none
    /// of them (or of [`Catalog::staged_slots`]) is an orphan, unless records are damaged: see
    /// [`Catalog::quarantined`].
    pub async fn part_slots(&self, after: Option<&Cursor>) -> Result<Page<(u64, u64)>, CatalogError> {
        let page = self.entries(&key::all(Tag::Part), after, STEP).await?;
        let parts = self.sound_entries(&page.items, |entry| Ok((key::numbers::<2>(&entry.key)?[0], part_of(entry)?)));
        let owners: BTreeSet<u64> = parts.iter().map(|(owner, _)| *owner).collect();
        let keys: Vec<_> = owners.iter().map(|owner| key::version(VersionId(*owner))).collect();
        let found = keys.iter().zip(self.store.get_many(keys.clone()).await?);
        // A version in the rack no longer has an owner record; a damaged record may belong to parts.
        let elsewhere = |(at, value): (&Vec<u8>, Option<Sealed>)| {
            value.is_none_or(|value| decode::<Owner>(at, &value).is_ok_and(|owner| !owner.in_parts))
        };
        let stored: BTreeSet<u64> =
            owners.into_iter().zip(found).filter_map(|(owner, found)| elsewhere(found).then_some(owner)).collect();
        let last = parts.last().map(|(owner, _)| *owner);
        let here = parts.into_iter().filter(|(owner, _)| !stored.contains(owner));
        let slots = here.map(|(_, part)| (part.slot, part.bytes)).collect();
        // A version in the rack may have ten thousand parts; they are skipped in one step.
        let next = match (page.next, last) {
            (Some(_), Some(last)) if stored.contains(&last) => Some(Cursor(key::part(VersionId(last), u32::MAX))),
            (next, _) => next,
        };
        Ok(Page { items: slots, next })
    }

    /// The slots of the staged version `version`; none for a version in the rack.
    pub async fn slots_of(&self, version: VersionId, place: Place) -> Result<Vec<u64>, CatalogError> {
        match place {
            Place::Staged { slot } => Ok(vec![slot]),
            Place::Stored { .. } => Ok(Vec::new()),
            Place::Parts => {
                let parts = self.all_entries(&key::parts(version), part_of).await?;
                Ok(parts.into_iter().map(|part| part.slot).collect())
            }
        }
    }

    /// All parts of an upload. Adds checks to `batch` that the upload has exactly these.
    async fn all_parts(&self, number: VersionId, batch: &mut Batch) -> Result<Vec<Part>, CatalogError> {
        let mut seen = Vec::new();
        let mut last = None;
        let KeyRange { mut start, end } = KeyRange::prefix(&key::parts(number));
        loop {
            let entries = self.store.scan(KeyRange { start: start.clone(), end: end.clone() }, STEP).await?;
            for entry in &entries {
                let [_, part_number] = key::numbers(&entry.key)?;
                if part_number != last.map_or(1, |last| last + 1) {
                    let gap = KeyRange { start: start.clone(), end: Bound::Excluded(entry.key.clone()) };
                    batch.checks.push(Check::Empty(gap));
                }
                last = Some(part_number);
                start = Bound::Excluded(entry.key.clone());
                batch.checks.push(Check::Is(entry.key.clone(), entry.value.unproven_body().to_vec()));
                // A damaged record is left out: the part cannot be chosen, and its file stays.
                seen.extend(self.sound_entries(std::slice::from_ref(entry), part_of));
            }
            if entries.len() < STEP {
                batch.checks.push(Check::Empty(KeyRange { start, end }));
                return Ok(seen);
            }
        }
    }
}

/// Adds to `batch` the changes that make parts in `seen` the parts of `object`. Returns the other parts.
fn choose(
    object: &Object,
    chosen: &[ChosenPart],
    seen: Vec<Part>,
    batch: &mut Batch,
) -> Result<Vec<Part>, CatalogError> {
    let mut seen: BTreeMap<u32, Part> = seen.into_iter().map(|part| (part.number, part)).collect();
    let numbers: Vec<u32> = seen.keys().copied().collect();
    let mut puts = Vec::new();
    for (ordinal, wanted) in (1..).zip(chosen) {
        let missing = CatalogError::NoSuchPart(wanted.number);
        let Some(part) = seen.remove(&wanted.number) else { return Err(missing) };
        let bytes = object.parts.range(ordinal).map(|range| range.end - range.start);
        if part.etag != wanted.etag || bytes != Some(part.bytes) {
            return Err(missing);
        }
        if ordinal != wanted.number {
            puts.push(Write::Put(key::part(object.version, ordinal), encode(&Part { number: ordinal, ..part })));
        }
    }
    let count = chosen.len() as u32;
    assert!(puts.len() + seen.len() <= numbers.len(), "a part of the object was a part of the upload");
    let beyond = numbers.into_iter().filter(|number| *number > count);
    batch.writes.extend(beyond.map(|number| Write::Delete(key::part(object.version, number))));
    batch.writes.extend(puts);
    Ok(seen.into_values().collect())
}

/// The part in an entry.
pub(crate) fn part_of(entry: &Entry) -> Result<Part, CatalogError> {
    value(entry)
}

/// True if `part` can be one of `object`, whose parts have known lengths.
pub(crate) fn fits(part: &Part, object: &Object) -> bool {
    object.parts.range(part.number).is_some_and(|range| range.end - range.start == part.bytes)
}
