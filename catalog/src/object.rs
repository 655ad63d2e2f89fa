//! Objects: putting, getting, deleting; and what becomes of the version that was there before.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{
    Acl, Blob, Bucket, IN_PARTS, Object, ObjectChange, Place, StagedMark, Version, VersionId, decode, encode,
};
use crate::store::{Batch, Check, KeyRange, Write};
use model::{BlobId, GroupId};

/// What must hold for a PUT or a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutCondition {
    /// Nothing.
    None,
    /// `If-Match: *`: there is such a key.
    IfMatchAny,
    /// `If-None-Match: *`: there is no such key yet.
    IfNoneMatchAny,
    /// `If-Match`: the key is there with this ETag (without quotes).
    IfMatch(String),
}

/// What an overwrite or a delete left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// Nothing: there was no such key.
    Nothing,
    /// Staged files that nobody refers to any more. The caller frees their slots.
    Staged {
        /// The version they held.
        version: VersionId,
        /// Their slots: one, or one for each part.
        slots: Vec<u64>,
        /// The version's length in bytes.
        bytes: u64,
    },
    /// Bytes in the rack that nobody refers to any more; they wait there as doomed.
    Doomed {
        /// The version that lay there.
        version: VersionId,
        /// The group of the blob.
        group: GroupId,
        /// The blob.
        blob: BlobId,
        /// How many bytes.
        bytes: u64,
    },
}

/// What an object is described as anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restated {
    /// The version that is meant.
    pub version: VersionId,
    /// Its system headers from now on.
    pub headers: Vec<(String, String)>,
    /// Its user metadata from now on.
    pub metadata: Vec<(String, String)>,
    /// Its ACL from now on.
    pub acl: Acl,
    /// Its tags from now on; as they are, if there are none here.
    pub tags: Option<Vec<(String, String)>>,
    /// When that was, in milliseconds of the Unix epoch.
    pub modified_ms: u64,
}

/// The living version of a key as it was read, with the bytes for checks.
pub(crate) struct Living {
    pub(crate) object: Object,
    object_raw: Vec<u8>,
    version: Version,
    version_raw: Vec<u8>,
}

impl Catalog {
    /// Makes `object`, whose bytes are safe in the workshop file of `slot`, the living version of `key`. Its
    /// `modified_ms` counts as the time it was staged. `bucket` is as it was when it was looked up; it may have been
    /// changed since, but not removed.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], also if another of that name was made instead;
    /// [`CatalogError::PreconditionFailed`] if the condition does not hold;
    /// [`CatalogError::NoSuchKey`] for `IfMatch` without such a key; [`CatalogError::Conflict`].
    pub async fn put_object(
        &self,
        bucket: &Bucket,
        key: &str,
        object: &Object,
        slot: u64,
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        let (name, at) = (bucket.name.as_str(), key::bucket(&bucket.name));
        let mut bucket_raw = encode(bucket);
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            let Ok(old) = self.living(name, key).await? else { continue };
            if let Err(refusal) = check_condition(condition, old.as_ref().map(|old| &old.object)) {
                self.same_bucket(bucket).await?;
                return Err(refusal);
            }
            let mut batch = Batch::default();
            batch.checks.push(Check::Is(at.clone(), bucket_raw.clone()));
            let Ok(displaced) = self.displace(name, key, old.as_ref(), &mut batch).await? else { continue };
            place_new(name, key, object, Place::Staged { slot }, &mut batch);
            if self.apply(batch).await? {
                return Ok(displaced);
            }
            // The bucket is looked at only where it may be what failed: a read for each PUT is saved.
            bucket_raw = self.same_bucket(bucket).await?;
        }
    }

    /// What S3 knows of the object at `key`. One read, in the rack's sleep as well.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchKey`].
    pub async fn head_object(&self, bucket: &str, key: &str) -> Result<Object, CatalogError> {
        if let Some(object) = self.read(&key::object(bucket, key)).await? {
            return Ok(object);
        }
        self.bucket(bucket).await?;
        Err(CatalogError::NoSuchKey)
    }

    /// The object at `key`, and where its bytes lie. The place may change at any time afterwards (a migration frees the
    /// staged file): whoever does not find the bytes there asks [`Catalog::version`] again.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchKey`]; [`CatalogError::Conflict`] if it was overwritten
    /// whenever it was looked at.
    pub async fn get_object(&self, bucket: &str, key: &str) -> Result<(Object, Place), CatalogError> {
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            match self.living(bucket, key).await? {
                Ok(Some(living)) => return Ok((living.object, living.version.place)),
                Ok(None) => {
                    self.bucket(bucket).await?;
                    return Err(CatalogError::NoSuchKey);
                }
                Err(Overtaken) => {}
            }
        }
    }

    /// Changes what S3 knows of the object at `key` but for its bytes, and answers what it is now. No new version, and
    /// no other place.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBucket`], [`CatalogError::NoSuchKey`]; [`CatalogError::Conflict`].
    pub async fn change_object(&self, bucket: &str, key: &str, change: &ObjectChange) -> Result<Object, CatalogError> {
        let at = key::object(bucket, key);
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            let Some((mut object, raw)) = self.read_raw::<Object>(&at).await? else {
                self.bucket(bucket).await?;
                return Err(CatalogError::NoSuchKey);
            };
            match change {
                ObjectChange::Acl(acl) => object.acl = *acl,
                ObjectChange::Tags(tags) => object.tags.clone_from(tags),
            }
            let writes = vec![Write::Put(at.clone(), encode(&object))];
            if self.apply(Batch { checks: vec![Check::Is(at.clone(), raw)], writes }).await? {
                return Ok(object);
            }
        }
    }

    /// Removes the object at `key`; it is no error if there is none.
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
    /// condition needs such a key; [`CatalogError::Conflict`].
    pub async fn delete_object_if(
        &self,
        bucket: &str,
        key: &str,
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            let Ok(old) = self.living(bucket, key).await? else { continue };
            if old.is_none() {
                self.bucket(bucket).await?;
            }
            check_condition(condition, old.as_ref().map(|old| &old.object))?;
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

    /// Describes the object at `key` anew, if it still is the version that `restated` names; its bytes stay where they
    /// are. The object as it is then; `None` if it is another version.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if the condition does not hold; [`CatalogError::NoSuchKey`] for `IfMatch`
    /// without such a key; [`CatalogError::Conflict`].
    pub async fn restate_object(
        &self,
        bucket: &str,
        key: &str,
        restated: &Restated,
        condition: &PutCondition,
    ) -> Result<Option<Object>, CatalogError> {
        let at = key::object(bucket, key);
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            let found = self.read_raw::<Object>(&at).await?;
            check_condition(condition, found.as_ref().map(|(found, _)| found))?;
            let Some((mut object, raw)) = found.filter(|(found, _)| found.version == restated.version) else {
                return Ok(None);
            };
            object.headers.clone_from(&restated.headers);
            object.metadata.clone_from(&restated.metadata);
            object.acl = restated.acl;
            if let Some(tags) = &restated.tags {
                object.tags.clone_from(tags);
            }
            object.modified_ms = restated.modified_ms;
            let writes = vec![Write::Put(at.clone(), encode(&object))];
            if self.apply(Batch { checks: vec![Check::Is(at.clone(), raw)], writes }).await? {
                return Ok(Some(object));
            }
        }
    }

    /// The version of that number, if it lives.
    pub async fn version(&self, version: VersionId) -> Result<Option<Version>, CatalogError> {
        self.read(&key::version(version)).await
    }

    /// The versions of those numbers, in that order; `None` for one that does not live.
    pub async fn versions(&self, versions: &[VersionId]) -> Result<Vec<Option<Version>>, CatalogError> {
        let raw = self.versions_raw(versions.iter().copied()).await?;
        Ok(raw.into_iter().map(|found| found.map(|(version, _)| version)).collect())
    }

    /// The version of that number and what S3 knows of it, if it lives.
    pub async fn object_of_version(&self, version: VersionId) -> Result<Option<(Version, Object)>, CatalogError> {
        let Some(found) = self.version(version).await? else { return Ok(None) };
        let object: Option<Object> = self.read(&key::object(&found.bucket, &found.key)).await?;
        Ok(object.filter(|object| object.version == version).map(|object| (found, object)))
    }

    /// The versions of those numbers with their bytes, in that order.
    pub(crate) async fn versions_raw(
        &self,
        versions: impl Iterator<Item = VersionId>,
    ) -> Result<Vec<Option<(Version, Vec<u8>)>>, CatalogError> {
        let keys: Vec<_> = versions.map(key::version).collect();
        let values = self.store.get_many(keys.clone()).await?;
        let decoded = keys.iter().zip(values).map(|(at, raw)| raw.map(|raw| Ok((decode(at, &raw)?, raw))).transpose());
        decoded.collect()
    }

    /// The living version of `key`, read in two steps; `Overtaken` if it was overwritten between them.
    pub(crate) async fn living(
        &self,
        bucket: &str,
        key: &str,
    ) -> Result<Result<Option<Living>, Overtaken>, CatalogError> {
        let Some((object, object_raw)) = self.read_raw::<Object>(&key::object(bucket, key)).await? else {
            return Ok(Ok(None));
        };
        let version = self.read_raw::<Version>(&key::version(object.version)).await?;
        let Some((version, version_raw)) = version else { return Ok(Err(Overtaken)) };
        Ok(Ok(Some(Living { object, object_raw, version, version_raw })))
    }

    /// Adds to `batch` what takes the living version `old` of a key away, or what makes sure that there is none.
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
        let Version { version, bytes, staged_ms, .. } = old.version;
        batch.checks.push(Check::Is(at, old.object_raw.clone()));
        batch.checks.push(Check::Is(key::version(version), old.version_raw.clone()));
        batch.writes.push(Write::Delete(key::version(version)));
        if !old.object.parts.is_empty() {
            batch.writes.push(Write::DeleteRange(KeyRange::prefix(&key::parts(version))));
        }
        match old.version.place {
            place @ (Place::Staged { .. } | Place::Parts) => {
                batch.writes.push(Write::Delete(key::staged(bucket, key)));
                batch.writes.push(Write::Delete(key::aged(staged_ms, version)));
                let slots = self.slots_of(version, place).await?;
                Ok(Ok(Displaced::Staged { version, slots, bytes }))
            }
            Place::Stored { blob, offset } => {
                let Some(group) = self.group_of(blob, version, &old.version_raw).await? else {
                    return Ok(Err(Overtaken));
                };
                doom(group, blob, offset, version, bytes, batch);
                Ok(Ok(Displaced::Doomed { version, group, blob, bytes }))
            }
        }
    }

    /// The group of the blob in which `version` lay when its record was `raw`; `None` if it has left since.
    pub(crate) async fn group_of(
        &self,
        blob: BlobId,
        version: VersionId,
        raw: &[u8],
    ) -> Result<Option<GroupId>, CatalogError> {
        let at = key::blob(blob);
        if let Some(found) = self.read::<Blob>(&at).await? {
            return Ok(Some(found.group));
        }
        // A blob is forgotten only when nothing lies in it. If the version lies there still, the blob was never there.
        if self.store.get(&key::version(version)).await?.as_deref() == Some(raw) {
            return Err(CatalogError::damaged(&at, "missing, though a version lies in it"));
        }
        Ok(None)
    }
}

/// The version was overwritten or deleted while it was looked at.
pub(crate) struct Overtaken;

/// Adds to `batch`: a member of a blob dies.
pub(crate) fn doom(group: GroupId, blob: BlobId, offset: u64, version: VersionId, bytes: u64, batch: &mut Batch) {
    batch.writes.push(Write::Delete(key::member(blob, offset, version)));
    batch.writes.push(Write::Put(key::tomb(group, blob, offset, version), encode(&bytes)));
}

/// Adds to `batch`: a version is in both indexes of what is staged.
pub(crate) fn index_staged(version: &Version, slot: u64, batch: &mut Batch) {
    let Version { version: number, bytes, staged_ms, .. } = *version;
    let mark = StagedMark { version: number, bytes, staged_ms, slot };
    batch.writes.push(Write::Put(key::staged(&version.bucket, &version.key), encode(&mark)));
    batch.writes.push(Write::Put(key::aged(staged_ms, number), encode(&bytes)));
}

/// Adds to `batch`: `object`, which is staged at `place`, is the living version of `key`.
pub(crate) fn place_new(bucket: &str, key: &str, object: &Object, place: Place, batch: &mut Batch) {
    let version = Version {
        version: object.version,
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        bytes: object.bytes,
        staged_ms: object.modified_ms,
        place,
    };
    let slot = if let Place::Staged { slot } = place { slot } else { IN_PARTS };
    batch.checks.push(Check::Absent(key::version(object.version)));
    batch.writes.push(Write::Put(key::object(bucket, key), encode(object)));
    batch.writes.push(Write::Put(key::version(object.version), encode(&version)));
    index_staged(&version, slot, batch);
}

pub(crate) fn check_condition(condition: &PutCondition, old: Option<&Object>) -> Result<(), CatalogError> {
    match (condition, old) {
        (PutCondition::None, _) | (PutCondition::IfNoneMatchAny, None) | (PutCondition::IfMatchAny, Some(_)) => Ok(()),
        (PutCondition::IfMatch(etag), Some(old)) if old.etag == *etag => Ok(()),
        (PutCondition::IfMatch(_) | PutCondition::IfMatchAny, None) => Err(CatalogError::NoSuchKey),
        _ => Err(CatalogError::PreconditionFailed),
    }
}
