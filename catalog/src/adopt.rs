//! Adoption of blobs: a catalog that was lost, and remade as far as its journal reaches, learns what else the rack
//! stores.
//!
//! For each member, the index of a pack records its state when it was packed, with the commit sequence number of its
//! record. The catalog is complete up to the number `known_until`. A member with a lower number was deleted or replaced
//! after it was packed, unless it lives where the catalog says. A member with a higher number is newer than everything
//! in the catalog. Of two adopted members, the one with the higher number is newer; of two copies of one version, the
//! copy in the blob that was started later. An object that was deleted or changed after `known_until` comes back as it
//! was packed: only the catalog knew better.
//!
//! The catalog's records have no locks, and deletion does not check for one. So a blob in which an object is under a
//! legal hold or retained is not adopted at all: a lock must not be forgotten unless it is known to have ended.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::job::HIDDEN_BUCKET;
use crate::key;
use crate::object::{Living, leave_workshop, mark_dead};
use crate::record::{Blob, Bucket, Member, Object, Part, Place, PlacedObject, encode};
use crate::store::{Batch, Check, KeyRange, Store, Write};
use lineage::Sequence;
use model::BlobId;
use model::sabotage::{Sabotage, is_on};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Members of a batch.
const BATCH_MEMBERS: usize = 1_000;

/// A member of a pack that was found in the rack.
#[derive(Clone, Debug)]
pub struct FoundMember {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Offset of its first byte in the payload.
    pub offset: u64,
    /// Its S3 record when it was packed.
    pub object: Object,
    /// The number of that record; 0 if unknown.
    pub sequence: Sequence,
    /// Creation time of its bucket, in milliseconds of the Unix epoch; 0 if unknown.
    pub bucket_created_ms: u64,
    /// Owner of the bucket; empty if unknown.
    pub owner: String,
    /// Its parts, if it was uploaded in parts.
    pub parts: Vec<Part>,
    /// True if it was under a legal hold or retained when it was packed.
    pub locked: bool,
}

/// The reason why a blob was not adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// A call of the catalog failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Objects in it are locked, and the catalog would forget that.
    #[error(
        "blob {blob} holds {locked} objects under a legal hold or retention, {first} first. This Larder does not know \
         locks and would allow their deletion; recover with the newer Larder that has locked them"
    )]
    Locked {
        /// The blob.
        blob: BlobId,
        /// Number of locked objects.
        locked: usize,
        /// The first of them, as `s3://bucket/key`.
        first: String,
    },
}

/// Totals over the members of adopted blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Objects that live there now.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Members that are dead.
    pub dead: u64,
    /// Buckets that were made for objects in them.
    pub buckets: u64,
}

/// The adoption of blobs into a catalog.
pub struct Adoption {
    catalog: Catalog,
    /// For each adopted object, by its key: the numbers of its record and of its blob.
    order: Arc<dyn Store>,
    known_until: Sequence,
    /// The totals so far.
    pub totals: Adopted,
}

/// The two numbers that decide which of two members lives: the member's and its blob's.
type Age = (u64, u64);

impl Adoption {
    /// An adoption into `catalog`, which has every batch up to `known_until` and none after it. `order` is an empty
    /// store that only this adoption uses.
    pub fn new(catalog: Catalog, order: Arc<dyn Store>, known_until: Sequence) -> Self {
        Self { catalog, order, known_until, totals: Adopted::default() }
    }

    /// True if the catalog may lack the record with the number `sequence`, of an object or of the start of a blob. A
    /// record that is missing for this reason was not removed.
    pub fn may_lack(&self, sequence: Sequence) -> bool {
        self.known_until == Sequence(0) || sequence > self.known_until
    }

    /// Adopts `blob`, which was started at `begun`. The catalog does not have it, or has only its intent.
    ///
    /// # Errors
    /// [`AdoptError`]. If objects are locked, nothing is changed.
    pub async fn adopt(&mut self, blob: &Blob, begun: Sequence, members: Vec<FoundMember>) -> Result<(), AdoptError> {
        refuse_locked(blob, &members)?;
        self.enter(blob).await?;
        self.skip_numbers(blob, &members).await?;
        let mut newest: BTreeMap<(String, String), FoundMember> = BTreeMap::new();
        let mut dead = Vec::new();
        for member in members {
            let at = (member.bucket.clone(), member.key.clone());
            match newest.remove(&at) {
                Some(other) if other.sequence > member.sequence => {
                    dead.push(member);
                    newest.insert(at, other);
                }
                other => {
                    dead.extend(other);
                    newest.insert(at, member);
                }
            }
        }
        self.bury(blob, &dead).await?;
        let mut living = newest.into_values();
        loop {
            let page: Vec<_> = living.by_ref().take(BATCH_MEMBERS).collect();
            if page.is_empty() {
                return Ok(());
            }
            self.place(blob, begun, page).await?;
        }
    }

    /// Adds the record of the blob and removes its intent, if it has one.
    async fn enter(&self, blob: &Blob) -> Result<(), CatalogError> {
        let (at, intent) = (key::blob(blob.blob), key::intent(blob.blob));
        let mut batch = Batch::new(vec![Check::Absent(at.clone())], vec![Write::Put(at, encode(blob))]);
        if self.catalog.store.get(&intent).await?.is_some() {
            batch.checks.push(Check::Present(intent.clone()));
            batch.writes.push(Write::Delete(intent));
        }
        batch.writes.extend(blob.drives.iter().map(|drive| Write::Put(key::on_drive(*drive, blob.blob), Vec::new())));
        self.catalog.apply_or(batch, CatalogError::Conflict).await
    }

    async fn skip_numbers(&self, blob: &Blob, members: &[FoundMember]) -> Result<(), CatalogError> {
        let versions = members.iter().map(|member| member.object.version.0).max().unwrap_or_default();
        self.catalog.skip_versions(versions + 1).await?;
        self.catalog.skip_blobs(blob.blob.number + 1).await
    }

    async fn bury(&mut self, blob: &Blob, dead: &[FoundMember]) -> Result<(), CatalogError> {
        for members in dead.chunks(BATCH_MEMBERS) {
            let mut batch = Batch::default();
            for member in members {
                self.end_upload(member, &mut batch).await?;
                self.bury_one(blob, member, &mut batch);
            }
            self.catalog.write(batch.writes).await?;
        }
        Ok(())
    }

    fn bury_one(&mut self, blob: &Blob, member: &FoundMember, batch: &mut Batch) {
        let (version, bytes) = (member.object.version, member.object.bytes);
        batch.writes.push(Write::Put(key::tomb(blob.group, blob.blob, member.offset, version), encode(&bytes)));
        self.totals.dead += 1;
    }

    /// Decides for each of `members`, whose keys all differ, and places the living ones.
    async fn place(&mut self, blob: &Blob, begun: Sequence, members: Vec<FoundMember>) -> Result<(), CatalogError> {
        let (mut batch, mut order) = (Batch::default(), Batch::default());
        for member in members {
            self.end_upload(&member, &mut batch).await?;
            let at = key::object(&member.bucket, &member.key);
            let old = self.catalog.living(&member.bucket, &member.key).await?;
            let age = (member.sequence.0, begun.0);
            let before = self.order.get(&at).await?.map(|value| age_of(&at, &value)).transpose()?;
            if member.bucket == HIDDEN_BUCKET || !self.lives(&member, age, old.as_ref(), before) {
                self.bury_one(blob, &member, &mut batch);
                continue;
            }
            self.ensure_bucket(&member).await?;
            self.revive(blob, member, old, &mut batch).await?;
            order.writes.push(Write::Put(at, [age.0.to_le_bytes(), age.1.to_le_bytes()].concat()));
        }
        self.catalog.apply_or(batch, CatalogError::Conflict).await?;
        Ok(self.order.commit(order).await?)
    }

    /// Adds to `batch` the end of the upload that became `member`, if the catalog still has it as open. An object has
    /// the number of its upload, so completing or aborting that upload again would remove the object's records. Files
    /// of the upload that still exist are orphans.
    async fn end_upload(&self, member: &FoundMember, batch: &mut Batch) -> Result<(), CatalogError> {
        let version = member.object.version;
        let at = key::upload(&member.bucket, &member.key, version);
        if !member.object.parts.is_empty() && self.catalog.store.get(&at).await?.is_some() {
            let parts = KeyRange::prefix(&key::parts(version));
            batch.writes.extend([Write::Delete(at), Write::Delete(key::version(version)), Write::DeleteRange(parts)]);
        }
        Ok(())
    }

    /// True if `member`, which has this age, lives. The catalog has `old` there, which has the age `before` if it was
    /// adopted.
    fn lives(&self, member: &FoundMember, age: Age, old: Option<&Living>, before: Option<Age>) -> bool {
        let placed = old.and_then(|old| old.placed.as_ref());
        match (placed, before) {
            // A copy of the same bytes, in a blob that the catalog did not know: the version has left its old place.
            (Some(placed), None) if is_same(&placed.object, &member.object) => true,
            (Some(placed), Some(before)) if is_same(&placed.object, &member.object) => age.1 > before.1,
            (_, Some(before)) => age > before || is_on(Sabotage::RecoverTakesTheLast),
            (_, None) => self.may_lack(member.sequence),
        }
    }

    /// Makes the bucket of `member` if it does not exist.
    async fn ensure_bucket(&mut self, member: &FoundMember) -> Result<(), CatalogError> {
        let at = key::bucket(&member.bucket);
        if self.catalog.store.get(&at).await?.is_some() {
            return Ok(());
        }
        let bucket = Bucket::new(&member.bucket, member.bucket_created_ms, &member.owner);
        let batch = Batch::new(vec![Check::Absent(at.clone())], vec![Write::Put(at, encode(&bucket))]);
        self.catalog.apply_or(batch, CatalogError::Conflict).await?;
        self.totals.buckets += 1;
        Ok(())
    }

    /// Adds to `batch`: `member` of `blob` becomes the living version of its key, in place of `old`.
    async fn revive(
        &mut self,
        blob: &Blob,
        member: FoundMember,
        old: Option<Living>,
        batch: &mut Batch,
    ) -> Result<(), CatalogError> {
        let (bucket, name) = (member.bucket.as_str(), member.key.as_str());
        let at = key::object(bucket, name);
        let place = Place::Stored { blob: blob.blob, offset: member.offset };
        let (version, bytes) = (member.object.version, member.object.bytes);
        let same = old.as_ref().and_then(|old| old.placed.clone());
        let same = same.filter(|placed| is_same(&placed.object, &member.object));
        let placed = if let Some(placed) = same {
            let raw = old.map(|old| old.raw).unwrap_or_default();
            batch.checks.push(Check::Is(at.clone(), raw));
            match placed.place {
                Place::Stored { blob, offset } => {
                    let known: Option<Blob> = self.catalog.look_up_one(&key::blob(blob)).await?;
                    let group = known.map_or(model::GroupId(0), |blob| blob.group);
                    mark_dead(group, blob, Member { version, offset, bytes }, batch);
                }
                Place::Staged { .. } | Place::Parts => leave_workshop(bucket, name, &placed, batch),
            }
            PlacedObject { place, ..placed }
        } else {
            if self.catalog.displace(bucket, name, old.as_ref(), batch).await?.is_err() {
                return Err(CatalogError::Conflict);
            }
            let parts = member.parts.iter().map(|part| (key::part(version, part.number), encode(part)));
            batch.writes.extend(parts.map(|(at, part)| Write::Put(at, part)));
            PlacedObject { staged_ms: member.object.modified_ms, place, object: member.object }
        };
        batch.writes.push(Write::Put(key::member(blob.blob, member.offset, version), encode(&bytes)));
        batch.writes.push(Write::Put(at, encode(&placed)));
        self.totals.objects += 1;
        self.totals.bytes += bytes;
        Ok(())
    }
}

/// True if both are the same bytes. The number of a version alone does not show it: a catalog that was restored from a
/// backup assigns the numbers again that the newer one has assigned.
fn is_same(one: &Object, other: &Object) -> bool {
    (one.version, one.bytes, &one.etag) == (other.version, other.bytes, &other.etag)
}

fn refuse_locked(blob: &Blob, members: &[FoundMember]) -> Result<(), AdoptError> {
    let mut locked = members.iter().filter(|member| member.locked);
    let Some(first) = locked.next() else { return Ok(()) };
    let name = format!("s3://{}/{}", first.bucket, first.key);
    Err(AdoptError::Locked { blob: blob.blob, locked: 1 + locked.count(), first: name })
}

fn age_of(at: &[u8], value: &crate::seal::Sealed) -> Result<Age, CatalogError> {
    let (body, _) = value.open(at)?;
    let read = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    let age = body.split_at_checked(8).and_then(|(member, blob)| read(member).zip(read(blob)));
    age.ok_or_else(|| CatalogError::damaged(at, "its age is cut off"))
}
