//! Objects: putting, getting and deleting them, and releasing the version that they replace.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{
    Acl, Blob, Bucket, IN_PARTS, Member, Object, ObjectChange, Owner, Place, PlacedObject, Version, VersionId,
    decode_at, encode,
};
use crate::store::{Batch, Check, KeyRange, Payload, Write};
use bytes::Bytes;
use lineage::Sequence;
use model::{BlobId, GroupId};

/// The precondition of a PUT or a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutCondition {
    /// No precondition.
    None,
    /// `If-Match: *`: the key exists.
    IfMatchAny,
    /// `If-None-Match: *`: the key does not exist yet.
    IfNoneMatchAny,
    /// `If-Match`: the key exists with this ETag (without quotes).
    IfMatch(String),
}

/// The bytes of the version that an overwrite or a delete replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// Nothing: the key did not exist.
    Nothing,
    /// Staged files that are unreferenced now. The caller frees their slots.
    Staged {
        /// The bucket of the object whose version they held.
        bucket: String,
        /// Its key.
        key: String,
        /// The version they held.
        version: VersionId,
        /// Their slots: one, or one for each part.
        slots: Vec<u64>,
        /// The version's length in bytes.
        bytes: u64,
    },
    /// Bytes in the rack that are unreferenced now; they stay there as dead bytes until they are reclaimed.
    Dead {
        /// The version that was stored there.
        version: VersionId,
        /// The group of the blob.
        group: GroupId,
        /// The blob.
        blob: BlobId,
        /// The number of bytes.
        bytes: u64,
    },
}

/// New metadata for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataChange {
    /// The version to change.
    pub version: VersionId,
    /// Its system headers from now on.
    pub headers: Vec<(String, String)>,
    /// Its user metadata from now on.
    pub metadata: Vec<(String, String)>,
    /// Its ACL from now on.
    pub acl: Acl,
    /// Its tags from now on; `None` leaves them unchanged.
    pub tags: Option<Vec<(String, String)>>,
    /// Time of the change, in milliseconds of the Unix epoch.
    pub modified_ms: u64,
}

/// The record of a key as it was read, with its bytes for a check.
pub(crate) struct Living {
    /// `None` if the record is damaged: then it can only be replaced or removed.
    pub(crate) placed: Option<PlacedObject>,
    pub(crate) raw: Vec<u8>,
}

impl Living {
    /// Its S3 record.
    ///
    /// # Errors
    /// [`CatalogError::Damaged`].
    fn object(&self) -> Result<&Object, CatalogError> {
        let damaged = || CatalogError::Damaged("the record of the object that is there".into());
        self.placed.as_ref().map(|placed| &placed.object).ok_or_else(damaged)
    }
}

impl Catalog {
    /// Makes `object`, whose bytes are durable in the workshop file of `slot`, the living version of `key`. Its
    /// `modified_ms` counts as the time it was staged. `bucket` is the record that was looked up; the bucket may have
    /// been changed since, but not removed.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], also if another bucket of that name was created instead;
    /// [`CatalogError::PreconditionFailed`] if the condition does not hold;
    /// [`CatalogError::NoSuchKey`] for `IfMatch` if the key does not exist; [`CatalogError::Conflict`].
    pub async fn put_object(
        &self,
        (bucket, key): (&Bucket, &str),
        object: &Object,
        slot: u64,
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        self.put_new((bucket, key), object, (slot, None), condition).await
    }

    /// As [`Catalog::put_object`], with the bytes of the workshop file of `slot`, which become durable with the
    /// object's record in the log in front of the store. Until this returns, none of them can be read there; if it
    /// returns an error other than `Store`, they never can.
    ///
    /// # Errors
    /// As [`Catalog::put_object`].
    ///
    /// # Panics
    /// If no log takes them ([`Catalog::takes_payloads`]).
    pub async fn put_logged_object(
        &self,
        at: (&Bucket, &str),
        object: &Object,
        (slot, bytes): (u64, Bytes),
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        let payload = Payload::of((&at.0.name, at.1), slot, bytes);
        self.put_new(at, object, (slot, Some(payload)), condition).await
    }

    async fn put_new(
        &self,
        (bucket, key): (&Bucket, &str),
        object: &Object,
        (slot, payload): (u64, Option<Payload>),
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        assert!(slot != IN_PARTS, "no file lies in the slot that stands for parts");
        let (name, at) = (bucket.name.as_str(), key::bucket(&bucket.name));
        let mut bucket_raw = encode(bucket);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let old = self.living(name, key).await?;
            if let Err(refusal) = check_condition(condition, old.as_ref()) {
                self.same_bucket(bucket).await?;
                return Err(refusal);
            }
            let mut batch = Batch::default();
            batch.checks.push(Check::Is(at.clone(), bucket_raw.clone()));
            let Ok(displaced) = self.displace(name, key, old.as_ref(), &mut batch).await? else { continue };
            batch.checks.push(Check::Absent(key::version(object.version)));
            place_new(name, key, object, Place::Staged { slot }, &mut batch);
            batch.payload.clone_from(&payload);
            if self.apply(batch).await? {
                return Ok(displaced);
            }
            // The bucket is read only if it may be the failed check, which saves a read for each PUT.
            bucket_raw = self.same_bucket(bucket).await?;
        }
    }

    /// The S3 record of the object at `key`. Takes one read, and no drive of the rack.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchKey`].
    pub async fn head_object(&self, bucket: &str, key: &str) -> Result<Object, CatalogError> {
        self.get_object(bucket, key).await.map(|(object, _)| object)
    }

    /// The object at `key` and its place. The place may change at any time afterwards (a migration frees the staged
    /// file): a caller that does not find the bytes there looks the object up again.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchKey`].
    pub async fn get_object(&self, bucket: &str, key: &str) -> Result<(Object, Place), CatalogError> {
        if let Some(PlacedObject { object, place, .. }) = self.read(&key::object(bucket, key)).await? {
            return Ok((object, place));
        }
        self.bucket(bucket).await?;
        Err(self.not_there(CatalogError::NoSuchKey))
    }

    /// The objects at these buckets and keys, in that order, with their places. `None` for an object that does not
    /// exist or has a damaged record.
    pub async fn placed_objects(&self, at: &[(&str, &str)]) -> Result<Vec<Option<PlacedObject>>, CatalogError> {
        self.look_up(at.iter().map(|(bucket, key)| key::object(bucket, key)).collect()).await
    }

    /// Changes the S3 record of the object at `key` and returns the new record. Its version and place stay.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchKey`]; [`CatalogError::Conflict`].
    pub async fn change_object(&self, bucket: &str, key: &str, change: &ObjectChange) -> Result<Object, CatalogError> {
        let changed =
            self.change::<PlacedObject>(key::object(bucket, key), |PlacedObject { object, .. }| match change {
                ObjectChange::Acl(acl) => object.acl = *acl,
                ObjectChange::Tags(tags) => object.tags.clone_from(tags),
            });
        if let Some(changed) = changed.await? {
            return Ok(changed.object);
        }
        self.bucket(bucket).await?;
        Err(self.not_there(CatalogError::NoSuchKey))
    }

    /// Removes the object at `key`. No error if it does not exist.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`]; [`CatalogError::Conflict`].
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<Displaced, CatalogError> {
        self.delete_object_if(bucket, key, &PutCondition::None).await
    }

    /// Removes the object at `key` if `condition` holds.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`]; [`CatalogError::PreconditionFailed`]; [`CatalogError::NoSuchKey`] if the
    /// condition needs the key to exist; [`CatalogError::Conflict`].
    pub async fn delete_object_if(
        &self,
        bucket: &str,
        key: &str,
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let old = self.living(bucket, key).await?;
            if old.is_none() {
                self.bucket(bucket).await?;
            }
            check_condition(condition, old.as_ref())?;
            if old.is_none() {
                return Ok(Displaced::Nothing);
            }
            let mut batch = Batch::default();
            let Ok(displaced) = self.displace(bucket, key, old.as_ref(), &mut batch).await? else { continue };
            batch.writes.push(Write::Delete(key::object(bucket, key)));
            if self.apply(batch).await? {
                return Ok(displaced);
            }
        }
    }

    /// Replaces the metadata of the object at `key`, if it still is the version in `replacement`; its bytes stay in
    /// place. Returns the changed object; `None` if it is another version.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if the condition does not hold; [`CatalogError::NoSuchKey`] for `IfMatch`
    /// if the key does not exist; [`CatalogError::Conflict`].
    pub async fn replace_metadata(
        &self,
        bucket: &str,
        key: &str,
        replacement: &MetadataChange,
        condition: &PutCondition,
    ) -> Result<Option<Object>, CatalogError> {
        let at = key::object(bucket, key);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let found = self.living(bucket, key).await?;
            check_condition(condition, found.as_ref())?;
            let Some(Living { placed: Some(mut placed), raw }) = found else { return Ok(None) };
            let object = &mut placed.object;
            if object.version != replacement.version {
                return Ok(None);
            }
            object.headers.clone_from(&replacement.headers);
            object.metadata.clone_from(&replacement.metadata);
            object.acl = replacement.acl;
            if let Some(tags) = &replacement.tags {
                object.tags.clone_from(tags);
            }
            object.modified_ms = replacement.modified_ms;
            let writes = vec![Write::Put(at.clone(), encode(&placed))];
            if self.apply(Batch::new(vec![Check::Is(at.clone(), raw)], writes)).await? {
                return Ok(Some(placed.object));
            }
        }
    }

    /// The key of a version in the workshop, and its object; `None` if it is no longer there, or its record is damaged.
    pub async fn staged_object(&self, version: VersionId) -> Result<Option<StagedObject>, CatalogError> {
        let Some(Owner { bucket, key, .. }) = self.look_up_one(&key::version(version)).await? else { return Ok(None) };
        let at = key::object(&bucket, &key);
        let Some(value) = self.store.get(&at).await? else { return Ok(None) };
        let Ok((placed, sequence)) = decode_at::<PlacedObject>(&at, &value) else {
            self.quarantine(&at, "the object stays in the workshop as it is");
            return Ok(None);
        };
        let here = placed.is_staged_as(version);
        Ok(here.then_some(StagedObject { bucket, key, placed, sequence }))
    }

    /// The version of that number, if it is in the workshop and its record is sound.
    pub async fn staged_version(&self, version: VersionId) -> Result<Option<Version>, CatalogError> {
        let found = self.staged_object(version).await?;
        Ok(found.map(|StagedObject { bucket, key, placed, .. }| placed.version(&bucket, &key)))
    }

    /// The key of the version or open upload of that number in the workshop, for people.
    pub async fn staged_key_of(&self, version: VersionId) -> Result<Option<(String, String)>, CatalogError> {
        let owner: Option<Owner> = self.look_up_one(&key::version(version)).await?;
        Ok(owner.map(|Owner { bucket, key, .. }| (bucket, key)))
    }

    /// The record of `key`, even if damaged.
    pub(crate) async fn living(&self, bucket: &str, key: &str) -> Result<Option<Living>, CatalogError> {
        let found = self.read_to_replace(&key::object(bucket, key)).await?;
        Ok(found.map(|(placed, raw)| Living { placed, raw }))
    }

    /// Adds to `batch` the removal of the living version `old` of a key, or a check that the key has none.
    pub(crate) async fn displace(
        &self,
        bucket: &str,
        key: &str,
        old: Option<&Living>,
        batch: &mut Batch,
    ) -> Result<Result<Displaced, Overtaken>, CatalogError> {
        let at = key::object(bucket, key);
        let Some(old) = old else {
            batch.checks.push(Check::Absent(at));
            return Ok(Ok(Displaced::Nothing));
        };
        batch.checks.push(Check::Is(at, old.raw.clone()));
        let Some(placed) = &old.placed else { return Ok(Ok(Displaced::Nothing)) };
        let PlacedObject { object, place, .. } = placed;
        let (version, bytes) = (object.version, object.bytes);
        if !object.parts.is_empty() {
            batch.writes.push(Write::DeleteRange(KeyRange::prefix(&key::parts(version))));
        }
        match *place {
            place @ (Place::Staged { .. } | Place::Parts) => {
                leave_workshop(bucket, key, placed, batch);
                let slots = self.slots_of(version, place).await?;
                let (bucket, key) = (bucket.to_owned(), key.to_owned());
                Ok(Ok(Displaced::Staged { bucket, key, version, slots, bytes }))
            }
            Place::Stored { blob, offset } => {
                let Some(group) = self.group_of(blob, (bucket, key), &old.raw).await? else {
                    return Ok(Err(Overtaken));
                };
                mark_dead(group, blob, Member { version, offset, bytes }, batch);
                Ok(Ok(Displaced::Dead { version, group, blob, bytes }))
            }
        }
    }

    /// The group of the blob that stored the object at `(bucket, key)` when its record was `raw`; `None` if the object
    /// has left it since.
    pub(crate) async fn group_of(
        &self,
        blob: BlobId,
        (bucket, key): (&str, &str),
        raw: &[u8],
    ) -> Result<Option<GroupId>, CatalogError> {
        let at = key::blob(blob);
        if let Some(found) = self.read::<Blob>(&at).await? {
            return Ok(Some(found.group));
        }
        // A blob is forgotten only when no object is in it. If the object is still there, the blob's record was lost.
        let now = self.store.get(&key::object(bucket, key)).await?;
        if now.is_some_and(|value| value.has_body(raw)) {
            return Err(CatalogError::damaged(&at, "missing, although an object is stored in it"));
        }
        Ok(None)
    }
}

/// An object whose bytes are in the workshop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedObject {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its record, whose place is in the workshop.
    pub placed: PlacedObject,
    /// The batch that wrote its record last.
    pub sequence: Sequence,
}

/// The object was overwritten or deleted while it was examined.
pub(crate) struct Overtaken;

/// Adds to `batch`: a member of a blob dies, and its mark as unreadable there is removed.
pub(crate) fn mark_dead(group: GroupId, blob: BlobId, member: Member, batch: &mut Batch) {
    let Member { version, offset, bytes } = member;
    batch.writes.push(Write::Delete(key::unreadable(version)));
    batch.writes.push(Write::Delete(key::member(blob, offset, version)));
    batch.writes.push(Write::Put(key::tomb(group, blob, offset, version), encode(&bytes)));
}

/// Adds to `batch`: a version enters the workshop's indexes by number, by key and by age.
pub(crate) fn enter_workshop(bucket: &str, key: &str, placed: &PlacedObject, batch: &mut Batch) {
    let PlacedObject { object: Object { version, bytes, .. }, place, staged_ms } = placed;
    assert!(!matches!(place, Place::Stored { .. }), "a version in the rack is in no index of the workshop");
    assert!(version.0 > 0, "versions are numbered from 1");
    let owner = Owner { bucket: bucket.to_owned(), key: key.to_owned(), in_parts: *place == Place::Parts };
    batch.writes.push(Write::Put(key::staged(bucket, key), encode(&placed.mark())));
    batch.writes.push(Write::Put(key::aged(*staged_ms, *version), encode(bytes)));
    batch.writes.push(Write::Put(key::version(*version), encode(&owner)));
}

/// Adds to `batch`: a version leaves the workshop's indexes, and its mark as unreadable there is removed.
pub(crate) fn leave_workshop(bucket: &str, key: &str, placed: &PlacedObject, batch: &mut Batch) {
    let version = placed.object.version;
    batch.writes.push(Write::Delete(key::unreadable(version)));
    batch.writes.push(Write::Delete(key::staged(bucket, key)));
    batch.writes.push(Write::Delete(key::aged(placed.staged_ms, version)));
    batch.writes.push(Write::Delete(key::reads(placed.staged_ms, version)));
    batch.writes.push(Write::Delete(key::version(version)));
}

/// Adds to `batch`: `object`, which is staged at `place`, becomes the living version of `key`.
pub(crate) fn place_new(bucket: &str, key: &str, object: &Object, place: Place, batch: &mut Batch) {
    let placed = PlacedObject { object: object.clone(), place, staged_ms: object.modified_ms };
    batch.writes.push(Write::Put(key::object(bucket, key), encode(&placed)));
    enter_workshop(bucket, key, &placed, batch);
}

/// Checks that `condition` holds for the present object.
///
/// # Errors
/// The answer for the client if it does not hold; [`CatalogError::Damaged`] if this is unknown.
pub(crate) fn check_condition(condition: &PutCondition, old: Option<&Living>) -> Result<(), CatalogError> {
    match (condition, old) {
        (PutCondition::None, _) | (PutCondition::IfNoneMatchAny, None) | (PutCondition::IfMatchAny, Some(_)) => Ok(()),
        (PutCondition::IfMatch(etag), Some(old)) if old.object()?.etag == *etag => Ok(()),
        (PutCondition::IfMatch(_) | PutCondition::IfMatchAny, None) => Err(CatalogError::NoSuchKey),
        _ => Err(CatalogError::PreconditionFailed),
    }
}
