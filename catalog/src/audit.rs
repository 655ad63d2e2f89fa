//! The audit: compares every record with every other record about the same thing.
//!
//! It reads pages and looks up what each entry refers to, so it needs little memory for any amount of data, except for
//! the slots: one number for each staged file. Changes while it runs may look like contradictions.

use crate::blob::{WHOLE, member_of};
use crate::catalog::{Catalog, Cursor, STEP};
use crate::error::{CatalogError, readable};
use crate::job::Job;
use crate::key::{self, Tag};
use crate::reads::Reads;
use crate::rebuild::target_of;
use crate::record::{
    Blob, Bucket, Decode, DriveRecord, IN_PARTS, Member, Object, Owner, Place, PlacedObject, StagedMark, Upload, User,
    VersionId, value,
};
use crate::scrub::ScrubFinding;
use crate::store::{Entry, KeyRange};
use crate::unreadable::Unreadable;
use crate::upload::{fits, part_of};
use model::{BlobId, DriveId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Contradictions that are described; more are only counted.
const REPORTED_MAX: usize = 1_000;

/// The findings of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Objects.
    pub objects: u64,
    /// Versions in the workshop.
    pub staged: u64,
    /// Their payload bytes.
    pub staged_bytes: u64,
    /// Versions in the rack.
    pub stored: u64,
    /// Their payload bytes.
    pub stored_bytes: u64,
    /// Uploads in parts that are neither completed nor aborted.
    pub uploads: u64,
    /// Their bytes.
    pub upload_bytes: u64,
    /// Blobs, including those without living versions.
    pub blobs: u64,
    /// Blobs that are being written.
    #[serde(skip)]
    pub intents: u64,
    /// Payload bytes in the rack that no object refers to.
    pub dead_bytes: u64,
    /// Member records, and part records that objects have. Each total must match a second count; a difference shows
    /// records that no object has.
    #[serde(skip)]
    members: u64,
    #[serde(skip)]
    parts_of_objects: u64,
    /// Number of contradictions. None in a sound catalog.
    #[serde(skip)]
    pub contradictions: u64,
    /// The first of them in words.
    #[serde(skip)]
    pub findings: Vec<String>,
}

impl Audit {
    fn demand(&mut self, holds: bool, entry: &Entry, what: &str) {
        if holds {
            return;
        }
        self.contradictions += 1;
        if self.findings.len() < REPORTED_MAX {
            self.findings.push(format!("{}: {what}", readable(&entry.key)));
        }
    }

    /// The indexes must have `placed` at its place. (Every index entry is also checked against its object, which finds
    /// an entry with another place.)
    fn place(&mut self, entry: &Entry, placed: &PlacedObject, found: &Indexes) {
        let bytes = placed.object.bytes;
        match placed.place {
            Place::Staged { .. } | Place::Parts => {
                self.staged += 1;
                self.staged_bytes = self.staged_bytes.saturating_add(bytes);
                let known = found.mark == Some(placed.mark()) && found.aged == Some(bytes) && found.owned;
                self.demand(known, entry, "staged, but not in the indexes of staged objects");
            }
            Place::Stored { .. } => {
                self.stored += 1;
                self.stored_bytes = self.stored_bytes.saturating_add(bytes);
                self.demand(found.member == Some(bytes), entry, "stored, but not a member of its blob");
                let gone = !found.owned && found.mark.is_none() && found.aged.is_none();
                self.demand(gone, entry, "stored, but still in the indexes of staged objects");
            }
        }
    }
}

/// The entries of the indexes for an object.
struct Indexes {
    mark: Option<StagedMark>,
    aged: Option<u64>,
    owned: bool,
    member: Option<u64>,
}

impl Catalog {
    /// Reads everything and reports contradictions, including damaged records.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn audit(&self) -> Result<Audit, CatalogError> {
        let mut audit = Audit::default();
        self.audit_objects(&mut audit).await?;
        self.audit_owners(&mut audit).await?;
        self.audit_staged(&mut audit).await?;
        self.audit_aged(&mut audit).await?;
        self.audit_blobs(&mut audit).await?;
        self.audit_stacks(&mut audit).await?;
        self.audit_rebuild_targets(&mut audit).await?;
        self.audit_scrub_findings(&mut audit).await?;
        self.audit_members(&mut audit).await?;
        self.audit_tombs(&mut audit).await?;
        self.audit_intents(&mut audit).await?;
        self.audit_uploads(&mut audit).await?;
        self.audit_small(&mut audit).await?;
        self.audit_strays(&mut audit).await?;
        Ok(audit)
    }

    /// The next entries of a walk that can be parsed, with their parsed form. The others are contradictions.
    async fn step<T>(
        &self,
        audit: &mut Audit,
        walk: &mut Steps,
        parse: impl Fn(&Entry) -> Result<T, CatalogError>,
    ) -> Result<Option<Vec<(Entry, T)>>, CatalogError> {
        if walk.over {
            return Ok(None);
        }
        let page = self.entries(&walk.prefix, walk.after.as_ref(), STEP).await?;
        (walk.over, walk.after) = (page.next.is_none(), page.next);
        let mut good = Vec::with_capacity(page.items.len());
        for entry in page.items {
            match parse(&entry) {
                Ok(said) => good.push((entry, said)),
                Err(error) => audit.demand(false, &entry, &error.to_string()),
            }
        }
        Ok(Some(good))
    }

    /// Passes to `check` every record of a kind that can be parsed.
    async fn each<T>(
        &self,
        audit: &mut Audit,
        tag: Tag,
        parse: impl Fn(&Entry) -> Result<T, CatalogError>,
        mut check: impl FnMut(&mut Audit, &Entry, T),
    ) -> Result<(), CatalogError> {
        let mut walk = Steps::over(tag);
        while let Some(entries) = self.step(audit, &mut walk, &parse).await? {
            for (entry, said) in entries {
                check(audit, &entry, said);
            }
        }
        Ok(())
    }

    async fn audit_objects(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::Object);
        while let Some(objects) = self.step(audit, &mut walk, named::<PlacedObject>).await? {
            let placed = |of: fn(&PlacedObject) -> Vec<u8>| objects.iter().map(|(_, (_, placed))| of(placed)).collect();
            let buckets = objects.iter().map(|(_, ((bucket, _), _))| key::bucket(bucket)).collect();
            let buckets = self.look_up::<Bucket>(buckets).await?;
            let marks = objects.iter().map(|(_, ((bucket, key), _))| key::staged(bucket, key)).collect();
            let marks = self.look_up::<StagedMark>(marks).await?;
            let ages = self.look_up::<u64>(placed(|of| key::aged(of.staged_ms, of.object.version))).await?;
            let owners = self.look_up::<Owner>(placed(|of| key::version(of.object.version))).await?;
            let members = self.look_up::<u64>(placed(member_key)).await?;
            for (index, (entry, ((bucket, key), placed))) in objects.iter().enumerate() {
                audit.objects += 1;
                audit.demand(buckets[index].is_some(), entry, "its bucket is missing");
                let owned = owners[index].as_ref();
                let in_parts = placed.place == Place::Parts;
                let is_own = owned
                    .is_none_or(|owner| owner.bucket == *bucket && owner.key == *key && owner.in_parts == in_parts);
                audit.demand(is_own, entry, "its version is another object's");
                let owned = owned.is_some();
                let indexes = Indexes { mark: marks[index], aged: ages[index], owned, member: members[index] };
                audit.place(entry, placed, &indexes);
                if !placed.object.parts.is_empty() || placed.place == Place::Parts {
                    self.audit_parts_of(audit, entry, &placed.object).await?;
                }
            }
        }
        Ok(())
    }

    /// The owner of a number in the workshop must be a staged object or an open upload.
    async fn audit_owners(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::Version);
        while let Some(owners) = self.step(audit, &mut walk, numbered::<1, Owner>).await? {
            let at = owners.iter().map(|(_, (_, owner))| key::object(&owner.bucket, &owner.key)).collect();
            let objects = self.look_up::<PlacedObject>(at).await?;
            let upload =
                |([number], owner): &([u64; 1], Owner)| key::upload(&owner.bucket, &owner.key, VersionId(*number));
            let uploads = owners.iter().map(|(_, said)| upload(said)).collect();
            let uploads = self.store.get_many(uploads).await?;
            for (index, (entry, ([number], _))) in owners.iter().enumerate() {
                let staged = objects[index].as_ref().is_some_and(|placed| placed.is_staged_as(VersionId(*number)));
                audit.demand(staged != uploads[index].is_some(), entry, "neither one staged object nor one upload");
            }
        }
        Ok(())
    }

    async fn audit_staged(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut slots = BTreeSet::new();
        let mut walk = Steps::over(Tag::Staged);
        while let Some(marks) = self.step(audit, &mut walk, named::<StagedMark>).await? {
            let at = marks.iter().map(|(_, ((bucket, key), _))| key::object(bucket, key)).collect();
            let objects = self.look_up::<PlacedObject>(at).await?;
            for ((entry, (_, mark)), placed) in marks.iter().zip(objects) {
                let alone = mark.slot == IN_PARTS || slots.insert(mark.slot);
                audit.demand(alone, entry, "its slot is another version's as well");
                let fits = |placed: &PlacedObject| {
                    placed.object.version == mark.version && placed.place == Place::of_mark(mark.slot)
                };
                audit.demand(placed.as_ref().is_some_and(fits), entry, "its version is not there");
            }
        }
        Ok(())
    }

    async fn audit_aged(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::Aged);
        while let Some(ages) = self.step(audit, &mut walk, numbered::<2, u64>).await? {
            let owners = ages.iter().map(|(_, ([_, version], _))| key::version(VersionId(*version))).collect();
            let owners = self.look_up::<Owner>(owners).await?;
            let at = |owner: &Owner| key::object(&owner.bucket, &owner.key);
            let at = owners.iter().map(|owner| owner.as_ref().map_or_else(Vec::new, at)).collect();
            let objects = self.look_up::<PlacedObject>(at).await?;
            for ((entry, ([staged_ms, version], bytes)), placed) in ages.iter().zip(objects) {
                let fits = placed.is_some_and(|placed| {
                    let staged = placed.is_staged_as(VersionId(*version));
                    staged && placed.staged_ms == *staged_ms && placed.object.bytes == *bytes
                });
                audit.demand(fits, entry, "its version is not staged, or of another age or length");
            }
        }
        Ok(())
    }

    async fn audit_blobs(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::Blob);
        while let Some(blobs) = self.step(audit, &mut walk, value::<Blob>).await? {
            for (entry, blob) in blobs {
                audit.blobs += 1;
                audit.demand(key::blob(blob.blob) == entry.key, &entry, "it has another number");
                let stacks = blob.drives.iter().map(|&drive| key::on_drive(drive, blob.blob)).collect();
                let known = self.store.get_many(stacks).await?.iter().all(Option::is_some);
                audit.demand(known, &entry, "a stack of it is missing in the index by drive");
                let intent = self.store.get(&key::intent(blob.blob)).await?;
                audit.demand(intent.is_none(), &entry, "it is still being written");
                self.audit_extents(audit, &entry, &blob).await?;
            }
        }
        Ok(())
    }

    /// The living members and tombstones of a blob together are its members, side by side; or it is dead as a whole.
    async fn audit_extents(&self, audit: &mut Audit, entry: &Entry, blob: &Blob) -> Result<(), CatalogError> {
        let mut extents = self.all_entries(&key::members(blob.blob), member_of).await?;
        let dead = self.all_entries(&key::tombs_of(blob.group, blob.blob), dead_of).await?;
        if dead.iter().any(|member| member.version == WHOLE) {
            audit.demand(extents.is_empty() && dead.len() == 1, entry, "dead both as a whole and in parts");
            return Ok(());
        }
        extents.extend(dead);
        audit.demand(extents.len() == blob.members as usize, entry, "members are neither live nor dead in it");
        extents.sort_by_key(|member| (member.offset, end_of(member)));
        let apart = extents.windows(2).all(|two| end_of(&two[0]) <= two[1].offset);
        audit.demand(apart, entry, "two members of it share bytes");
        let within = extents.iter().all(|member| end_of(member) <= blob.payload_bytes);
        audit.demand(within, entry, "a member reaches beyond its payload");
        Ok(())
    }

    async fn audit_stacks(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::OnDrive);
        while let Some(stacks) = self.step(audit, &mut walk, |entry| key::numbers::<3>(&entry.key)).await? {
            let blobs = stacks.iter().map(|(_, [_, number, nonce])| key::blob(BlobId::new(*number, *nonce))).collect();
            for ((entry, [drive, _, _]), blob) in stacks.iter().zip(self.look_up::<Blob>(blobs).await?) {
                let fits = blob.is_some_and(|blob| blob.drives.contains(&DriveId(*drive as u32)));
                audit.demand(fits, entry, "no such blob is on this drive");
            }
        }
        Ok(())
    }

    /// The target of a rebuild must be a drive on which the blob does not count that stack, or has lost it.
    async fn audit_rebuild_targets(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::RebuildTarget);
        while let Some(targets) = self.step(audit, &mut walk, target_of).await? {
            let blobs = targets.iter().map(|(_, (blob, _))| key::blob(*blob)).collect();
            for ((entry, (id, target)), blob) in targets.iter().zip(self.look_up::<Blob>(blobs).await?) {
                let counted = blob.and_then(|blob| blob.drives.get(usize::from(target.index)).copied());
                // A spare target may remain at the old place of a stack that was rebuilt elsewhere.
                let fits = match counted {
                    Some(counted) if counted == target.drive && !target.spare => {
                        self.is_stack_lost(counted, *id).await?
                    }
                    counted => counted.is_some(),
                };
                audit.demand(fits, entry, "no such stack of its blob can be there without a record");
            }
        }
        Ok(())
    }

    async fn audit_scrub_findings(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::ScrubFinding);
        while let Some(found) = self.step(audit, &mut walk, value::<ScrubFinding>).await? {
            let blobs = found.iter().map(|(_, finding)| key::blob(finding.blob)).collect();
            for ((entry, _), blob) in found.iter().zip(self.look_up::<Blob>(blobs).await?) {
                audit.demand(blob.is_some(), entry, "the finding of a scrub is about an unknown blob");
            }
        }
        Ok(())
    }

    async fn audit_members(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::Member);
        while let Some(members) =
            self.step(audit, &mut walk, |entry| Ok((key::numbers::<4>(&entry.key)?, member_of(entry)?))).await?
        {
            let blobs =
                members.iter().map(|(_, ([number, nonce, ..], _))| key::blob(BlobId::new(*number, *nonce))).collect();
            let blobs = self.look_up::<Blob>(blobs).await?;
            for (index, (entry, _)) in members.iter().enumerate() {
                audit.members += 1;
                audit.demand(blobs[index].is_some(), entry, "its blob is missing");
            }
        }
        // Each stored object has its member, so the count shows a member that no object has.
        if audit.members != audit.stored {
            audit.contradictions += 1;
            let (members, stored) = (audit.members, audit.stored);
            audit.findings.push(format!("{members} members are live in blobs, and {stored} objects are stored there"));
        }
        Ok(())
    }

    async fn audit_tombs(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::over(Tag::Tomb);
        while let Some(tombs) =
            self.step(audit, &mut walk, |entry| Ok((key::numbers::<5>(&entry.key)?, dead_of(entry)?))).await?
        {
            let blobs =
                tombs.iter().map(|(_, ([_, number, nonce, ..], _))| key::blob(BlobId::new(*number, *nonce))).collect();
            let blobs = self.look_up::<Blob>(blobs).await?;
            let alive = |([_, number, nonce, ..], dead): &([u64; 5], Member)| {
                key::member(BlobId::new(*number, *nonce), dead.offset, dead.version)
            };
            let alive = self.store.get_many(tombs.iter().map(|(_, said)| alive(said)).collect()).await?;
            for (index, (entry, ([group, ..], dead))) in tombs.iter().enumerate() {
                audit.dead_bytes = audit.dead_bytes.saturating_add(dead.bytes);
                let fits = |found: &Blob| u64::from(found.group.0) == *group;
                audit.demand(blobs[index].as_ref().is_some_and(fits), entry, "no such blob is in this group");
                audit.demand(alive[index].is_none(), entry, "dead, but also live there");
            }
        }
        Ok(())
    }

    async fn audit_intents(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        self.each(audit, Tag::Intent, value::<Blob>, |audit, entry, blob| {
            audit.intents += 1;
            audit.demand(key::intent(blob.blob) == entry.key, entry, "it has another number");
        })
        .await
    }

    /// Kinds that no other record refers to: each record must agree with its own key.
    async fn audit_small(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        self.each(audit, Tag::Bucket, value::<Bucket>, |audit, entry, bucket| {
            audit.demand(key::bucket(&bucket.name) == entry.key, entry, "it has another name");
        })
        .await?;
        self.each(audit, Tag::User, value::<User>, |audit, entry, user| {
            audit.demand(key::user(&user.name) == entry.key, entry, "it has another name");
        })
        .await?;
        self.each(audit, Tag::Drive, value::<DriveRecord>, |audit, entry, record| {
            audit.demand(key::drive(record.drive) == entry.key, entry, "it has another number");
            let fits = u64::from(record.starts) <= record.starts_total;
            audit.demand(fits, entry, "more starts in a day than ever");
        })
        .await?;
        let mut walk = Steps::over(Tag::Reads);
        while let Some(reads) = self.step(audit, &mut walk, numbered::<2, Reads>).await? {
            let ages = reads.iter().map(|(_, ([staged_ms, version], _))| key::aged(*staged_ms, VersionId(*version)));
            for ((entry, _), staged) in reads.iter().zip(self.store.get_many(ages.collect()).await?) {
                audit.demand(staged.is_some(), entry, "its version is not staged");
            }
        }
        let mut walk = Steps::over(Tag::Unreadable);
        while let Some(marks) = self.step(audit, &mut walk, value::<Unreadable>).await? {
            for (entry, said) in marks {
                let at = key::object(&said.bucket, &said.key);
                let living = self.look_up_one::<PlacedObject>(&at).await?;
                let lives = living.is_some_and(|living| key::unreadable(living.object.version) == entry.key);
                audit.demand(lives, &entry, "its version is not live");
            }
        }
        self.audit_jobs(audit).await?;
        for (name, tag) in
            [("version", Tag::Version), ("version", Tag::Part), ("blob", Tag::Blob), ("blob", Tag::Intent)]
        {
            self.audit_counter(audit, name, tag).await?;
        }
        Ok(())
    }

    /// The inputs and the checkpoint of a job must belong to a job that exists.
    async fn audit_jobs(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut jobs = BTreeSet::new();
        self.each(audit, Tag::Job, value::<Job>, |audit, entry, job| {
            audit.demand(key::job(job.job) == entry.key, entry, "it has another number");
            jobs.insert(job.job);
        })
        .await?;
        let parse = |entry: &Entry| key::numbers::<2>(&entry.key);
        self.each(audit, Tag::JobInput, parse, |audit, entry, [job, _]| {
            audit.demand(jobs.contains(&job), entry, "its job is missing");
        })
        .await?;
        let parse =
            |entry: &Entry| key::numbers::<1>(&entry.key).or_else(|_| key::numbers::<3>(&entry.key).map(|of| [of[0]]));
        self.each(audit, Tag::Checkpoint, parse, |audit, entry, [job]| {
            audit.demand(jobs.contains(&job), entry, "its job is missing");
        })
        .await
    }

    /// No number may be in use that the counter `name` has not given out.
    async fn audit_counter(&self, audit: &mut Audit, name: &str, tag: Tag) -> Result<(), CatalogError> {
        let mut ends = Vec::new();
        for copy in crate::ids::COPIES {
            let at = key::counter(name, copy);
            let Some(said) = self.store.get(&at).await? else { continue };
            let counter = Entry { key: at, value: said };
            let end = value::<u64>(&counter);
            audit.demand(end.is_ok(), &counter, "it is no number");
            ends.extend(end.ok().map(|end| (end, counter)));
        }
        let Some((end, counter)) = ends.into_iter().max_by_key(|(end, _)| *end) else { return Ok(()) };
        let mut beyond = key::all(tag);
        beyond.extend_from_slice(&end.to_be_bytes());
        let mut range = KeyRange::prefix(&key::all(tag));
        range.start = Bound::Included(beyond);
        let used = self.store.scan(range, 1).await?;
        audit.demand(used.is_empty(), &counter, "a number is in use that was never assigned");
        Ok(())
    }

    /// Every key must begin with a tag from the table of keys.
    async fn audit_strays(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut start = Bound::Unbounded;
        for tag in key::TAGS.iter().copied().map(Some).chain([None]) {
            let end = tag.map_or(Bound::Unbounded, |tag| Bound::Excluded(vec![tag]));
            for stray in self.store.scan(KeyRange { start, end }, STEP).await? {
                audit.demand(false, &stray, "no record has such a key");
            }
            start = tag.map_or(Bound::Unbounded, |tag| Bound::Included(vec![tag + 1]));
        }
        Ok(())
    }
}

impl Catalog {
    async fn audit_uploads(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut open = BTreeSet::new();
        let mut walk = Steps::over(Tag::Upload);
        while let Some(uploads) =
            self.step(audit, &mut walk, |entry| Ok((key::upload_at(&entry.key)?, value::<Upload>(entry)?))).await?
        {
            let buckets = uploads.iter().map(|(_, ((bucket, ..), _))| key::bucket(bucket)).collect();
            let buckets = self.look_up::<Bucket>(buckets).await?;
            let owners = uploads.iter().map(|(_, ((.., number), _))| key::version(*number)).collect();
            let owners = self.look_up::<Owner>(owners).await?;
            for (index, (entry, ((bucket, key, number), upload))) in uploads.iter().enumerate() {
                audit.uploads += 1;
                open.insert(*number);
                audit.demand(upload.version == *number, entry, "it has another number");
                audit.demand(buckets[index].is_some(), entry, "its bucket is missing");
                let is_own = |owner: &Owner| owner.bucket == *bucket && owner.key == *key;
                audit.demand(owners[index].as_ref().is_some_and(is_own), entry, "its number is not its own");
            }
        }
        self.audit_parts(audit, &open).await
    }

    /// A part must belong to an open upload, or to an object that has it.
    async fn audit_parts(&self, audit: &mut Audit, open: &BTreeSet<VersionId>) -> Result<(), CatalogError> {
        let (mut slots, mut of_objects) = (BTreeSet::new(), 0);
        let mut walk = Steps::over(Tag::Part);
        while let Some(parts) =
            self.step(audit, &mut walk, |entry| Ok((key::numbers::<2>(&entry.key)?, part_of(entry)?))).await?
        {
            let owners = parts.iter().map(|(_, ([owner, _], _))| key::version(VersionId(*owner))).collect();
            let owners = self.look_up::<Owner>(owners).await?;
            for (index, (entry, ([owner, number], part))) in parts.iter().enumerate() {
                audit.demand(u64::from(part.number) == *number, entry, "it has another number");
                if open.contains(&VersionId(*owner)) {
                    audit.upload_bytes = audit.upload_bytes.saturating_add(part.bytes);
                } else {
                    of_objects += 1;
                }
                if owners[index].as_ref().is_some_and(|owner| owner.in_parts) {
                    audit.demand(slots.insert(part.slot), entry, "its slot is another part's as well");
                }
            }
        }
        if of_objects != audit.parts_of_objects {
            audit.contradictions += 1;
            let known = audit.parts_of_objects;
            audit.findings.push(format!("{of_objects} parts belong to no upload, and objects name {known}"));
        }
        Ok(())
    }

    /// An object that was uploaded in parts must have all of them.
    async fn audit_parts_of(&self, audit: &mut Audit, entry: &Entry, object: &Object) -> Result<(), CatalogError> {
        let mut count = 0_u32;
        let is_its = |entry: &Entry| Ok(part_of(entry).is_ok_and(|part| fits(&part, object)));
        let add = |is_its| {
            audit.parts_of_objects += 1;
            count += u32::from(is_its);
        };
        self.each_entry(&key::parts(object.version), is_its, add).await?;
        audit.demand(count > 0 && count == object.parts.count(), entry, "some of its parts are missing");
        Ok(())
    }
}

/// A walk over the records of one kind.
struct Steps {
    prefix: Vec<u8>,
    after: Option<Cursor>,
    over: bool,
}

impl Steps {
    fn over(tag: Tag) -> Self {
        Self { prefix: key::all(tag), after: None, over: false }
    }
}

/// The numbers of a key, and the record.
fn numbered<const N: usize, T: Decode>(entry: &Entry) -> Result<([u64; N], T), CatalogError> {
    Ok((key::numbers(&entry.key)?, value(entry)?))
}

/// Bucket and key of a store key, and the record.
fn named<T: Decode>(entry: &Entry) -> Result<((String, String), T), CatalogError> {
    Ok((key::bucket_and_key(&entry.key)?, value(entry)?))
}

/// The dead member, or the whole dead blob, of a tombstone.
fn dead_of(entry: &Entry) -> Result<Member, CatalogError> {
    let [_, _, _, offset, version] = key::numbers(&entry.key)?;
    Ok(Member { version: VersionId(version), offset, bytes: value(entry)? })
}

/// End of `member`; saturating, since a damaged record may have any numbers.
fn end_of(member: &Member) -> u64 {
    member.offset.saturating_add(member.bytes)
}

/// Key of the member record of a stored object; meaningless for one that is not stored.
fn member_key(placed: &PlacedObject) -> Vec<u8> {
    match placed.place {
        Place::Stored { blob, offset } => key::member(blob, offset, placed.object.version),
        Place::Staged { .. } | Place::Parts => key::member(BlobId::NONE, 0, placed.object.version),
    }
}
