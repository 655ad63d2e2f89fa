//! The audit: every record against every other that speaks of the same thing.
//!
//! It reads in pages and looks up what each entry points at, so it needs little memory however much is stored (but for
//! the slots, of which there are as many as staged files). Changes while it runs may look like contradictions.

use crate::blob::{WHOLE, member_of};
use crate::catalog::{Catalog, Cursor, STEP};
use crate::error::{CatalogError, readable};
use crate::job::Job;
use crate::key::{self, Tag};
use crate::record::{
    Blob, Bucket, DriveRecord, IN_PARTS, Member, Object, Place, StagedMark, Upload, User, Version, VersionId, decode,
};
use crate::store::{Entry, KeyRange};
use crate::upload::{fits, part_of};
use model::{BlobId, DriveId};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Contradictions that are told in words; more are only counted.
const TOLD_MAX: usize = 1_000;

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Blobs, those without living versions included.
    pub blobs: u64,
    /// Blobs that are being written.
    pub intents: u64,
    /// Payload bytes in the rack that nobody refers to.
    pub doomed_bytes: u64,
    /// How many contradictions there are. None in a sound catalog.
    pub contradictions: u64,
    /// The first of them in words.
    pub told: Vec<String>,
}

impl Audit {
    fn demand(&mut self, holds: bool, entry: &Entry, what: &str) {
        if holds {
            return;
        }
        self.contradictions += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(format!("{}: {what}", readable(&entry.key)));
        }
    }

    /// The indexes must know `version` where it lies. (Every entry of an index is held against its version as well, so
    /// that one which knows it elsewhere is found there.)
    fn place(&mut self, entry: &Entry, version: &Version, mark: Option<StagedMark>, aged: bool, member: bool) {
        let Version { version: number, bytes, staged_ms, .. } = *version;
        match version.place {
            Place::Staged { .. } | Place::Parts => {
                let slot = if let Place::Staged { slot } = version.place { slot } else { IN_PARTS };
                self.staged += 1;
                self.staged_bytes = self.staged_bytes.saturating_add(bytes);
                let fits = mark == Some(StagedMark { version: number, bytes, staged_ms, slot });
                self.demand(fits && aged, entry, "staged, but not in the indexes of what is staged");
            }
            Place::Stored { .. } => {
                self.stored += 1;
                self.stored_bytes = self.stored_bytes.saturating_add(bytes);
                self.demand(member, entry, "stored, but not a member of its blob");
            }
        }
    }
}

impl Catalog {
    /// Walks everything and reports what contradicts what, damaged records included.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn audit(&self) -> Result<Audit, CatalogError> {
        let mut audit = Audit::default();
        self.audit_objects(&mut audit).await?;
        self.audit_versions(&mut audit).await?;
        self.audit_staged(&mut audit).await?;
        self.audit_aged(&mut audit).await?;
        self.audit_blobs(&mut audit).await?;
        self.audit_stacks(&mut audit).await?;
        self.audit_members(&mut audit).await?;
        self.audit_tombs(&mut audit).await?;
        self.audit_intents(&mut audit).await?;
        self.audit_uploads(&mut audit).await?;
        self.audit_small(&mut audit).await?;
        self.audit_strays(&mut audit).await?;
        Ok(audit)
    }

    /// The next page of the walk over everything that begins with `prefix`.
    async fn step(&self, prefix: &[u8], walk: &mut Steps) -> Result<Option<Vec<Entry>>, CatalogError> {
        if walk.over {
            return Ok(None);
        }
        let page = self.entries(prefix, walk.after.as_ref(), STEP).await?;
        walk.over = page.next.is_none();
        walk.after = page.next;
        Ok(Some(page.items))
    }

    /// The records at `keys`. A damaged one counts as missing here; the walk over its kind tells of the damage.
    pub(crate) async fn look_up<T: DeserializeOwned>(
        &self,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<T>>, CatalogError> {
        let values = self.store.get_many(keys.clone()).await?;
        Ok(keys.iter().zip(values).map(|(at, raw)| decode(at, &raw?).ok()).collect())
    }

    async fn audit_objects(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Object), &mut walk).await? {
            let objects =
                parsed(entries, audit, |entry| Ok((key::bucket_and_key(&entry.key)?, value::<Object>(entry)?)));
            let versions = objects.iter().map(|(_, (_, object))| key::version(object.version)).collect();
            let versions = self.look_up::<Version>(versions).await?;
            let buckets = objects.iter().map(|(_, ((bucket, _), _))| key::bucket(bucket)).collect();
            let buckets = self.look_up::<Bucket>(buckets).await?;
            for (index, (entry, ((bucket, key), object))) in objects.iter().enumerate() {
                audit.objects += 1;
                audit.demand(buckets[index].is_some(), entry, "its bucket is missing");
                let fits = |v: &Version| v.bucket == *bucket && v.key == *key && v.bytes == object.bytes;
                let fits = versions[index].as_ref().is_some_and(fits);
                audit.demand(fits, entry, "its version is missing or of another object");
            }
        }
        Ok(())
    }

    async fn audit_versions(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Version), &mut walk).await? {
            let versions = parsed(entries, audit, value::<Version>);
            let keys = |key: fn(&Version) -> Vec<u8>| versions.iter().map(|(_, version)| key(version)).collect();
            let objects = self.look_up::<Object>(keys(|v| key::object(&v.bucket, &v.key))).await?;
            let marks = self.look_up::<StagedMark>(keys(|v| key::staged(&v.bucket, &v.key))).await?;
            let ages = self.look_up::<u64>(keys(|v| key::aged(v.staged_ms, v.version))).await?;
            let members = self.look_up::<u64>(keys(member_key)).await?;
            for (index, (entry, version)) in versions.iter().enumerate() {
                audit.demand(key::version(version.version) == entry.key, entry, "it has another number");
                let known = objects[index].as_ref().is_some_and(|object| object.version == version.version);
                audit.demand(known, entry, "no object has this version");
                audit.place(entry, version, marks[index], ages[index].is_some(), members[index].is_some());
                if version.place == Place::Parts {
                    self.audit_in_parts(audit, entry, version).await?;
                }
            }
        }
        Ok(())
    }

    async fn audit_staged(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut slots = BTreeSet::new();
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Staged), &mut walk).await? {
            let marks =
                parsed(entries, audit, |entry| Ok((key::bucket_and_key(&entry.key)?, value::<StagedMark>(entry)?)));
            let versions = marks.iter().map(|(_, (_, mark))| key::version(mark.version)).collect();
            let versions = self.look_up::<Version>(versions).await?;
            for ((entry, ((bucket, key), mark)), version) in marks.iter().zip(versions) {
                let alone = mark.slot == IN_PARTS || slots.insert(mark.slot);
                audit.demand(alone, entry, "its slot is another version's as well");
                let place = Place::of_mark(mark.slot);
                let fits = |v: &Version| v.bucket == *bucket && v.key == *key && v.place == place;
                audit.demand(version.as_ref().is_some_and(fits), entry, "its version does not lie there");
            }
        }
        Ok(())
    }

    async fn audit_aged(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Aged), &mut walk).await? {
            let ages = parsed(entries, audit, |entry| Ok((key::numbers::<2>(&entry.key)?, value::<u64>(entry)?)));
            let versions = ages.iter().map(|(_, ([_, version], _))| key::version(VersionId(*version))).collect();
            let versions = self.look_up::<Version>(versions).await?;
            for ((entry, ([staged_ms, _], bytes)), version) in ages.iter().zip(versions) {
                let fits = version.is_some_and(|v| {
                    let staged = !matches!(v.place, Place::Stored { .. });
                    staged && v.staged_ms == *staged_ms && v.bytes == *bytes
                });
                audit.demand(fits, entry, "its version is not staged, or of another age or length");
            }
        }
        Ok(())
    }

    async fn audit_blobs(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Blob), &mut walk).await? {
            for (entry, blob) in parsed(entries, audit, value::<Blob>) {
                audit.blobs += 1;
                audit.demand(key::blob(blob.blob) == entry.key, &entry, "it has another number");
                let stacks = blob.drives.iter().map(|&drive| key::on_drive(drive, blob.blob)).collect();
                let known = self.store.get_many(stacks).await?.iter().all(Option::is_some);
                audit.demand(known, &entry, "a stack of it is missing by drive");
                let intent = self.store.get(&key::intent(blob.blob)).await?;
                audit.demand(intent.is_none(), &entry, "it is still being written");
                self.audit_extents(audit, &entry, &blob).await?;
            }
        }
        Ok(())
    }

    /// Living members and tombstones of a blob together are its members, side by side; or it is doomed as a whole.
    async fn audit_extents(&self, audit: &mut Audit, entry: &Entry, blob: &Blob) -> Result<(), CatalogError> {
        let mut extents = self.extents(&key::members(blob.blob), member_of).await?;
        let dead = self.extents(&key::tombs_of(blob.group, blob.blob), dead_of).await?;
        if dead.iter().any(|member| member.version == WHOLE) {
            audit.demand(extents.is_empty() && dead.len() == 1, entry, "doomed as a whole, and yet in parts");
            return Ok(());
        }
        extents.extend(dead);
        audit.demand(extents.len() == blob.members as usize, entry, "members neither live in it nor are doomed there");
        extents.sort_by_key(|member| (member.offset, end_of(member)));
        let apart = extents.windows(2).all(|two| end_of(&two[0]) <= two[1].offset);
        audit.demand(apart, entry, "two members of it share bytes");
        let within = extents.iter().all(|member| end_of(member) <= blob.payload_bytes);
        audit.demand(within, entry, "a member reaches beyond its payload");
        Ok(())
    }

    async fn extents(
        &self,
        prefix: &[u8],
        parse: fn(&Entry) -> Result<Member, CatalogError>,
    ) -> Result<Vec<Member>, CatalogError> {
        let (mut extents, mut walk) = (Vec::new(), Steps::default());
        while let Some(entries) = self.step(prefix, &mut walk).await? {
            extents.extend(entries.iter().filter_map(|entry| parse(entry).ok()));
        }
        Ok(extents)
    }

    async fn audit_stacks(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::OnDrive), &mut walk).await? {
            let stacks = parsed(entries, audit, |entry| key::numbers::<3>(&entry.key));
            let blobs = stacks.iter().map(|(_, [_, number, nonce])| key::blob(BlobId::new(*number, *nonce))).collect();
            for ((entry, [drive, _, _]), blob) in stacks.iter().zip(self.look_up::<Blob>(blobs).await?) {
                let fits = blob.is_some_and(|blob| blob.drives.contains(&DriveId(*drive as u32)));
                audit.demand(fits, entry, "no such blob lies on this drive");
            }
        }
        Ok(())
    }

    async fn audit_members(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Member), &mut walk).await? {
            let members = parsed(entries, audit, |entry| Ok((key::numbers::<4>(&entry.key)?, member_of(entry)?)));
            let blobs =
                members.iter().map(|(_, ([number, nonce, ..], _))| key::blob(BlobId::new(*number, *nonce))).collect();
            let blobs = self.look_up::<Blob>(blobs).await?;
            let versions = members.iter().map(|(_, (_, member))| key::version(member.version)).collect();
            let versions = self.look_up::<Version>(versions).await?;
            for (index, (entry, ([number, nonce, ..], member))) in members.iter().enumerate() {
                audit.demand(blobs[index].is_some(), entry, "its blob is missing");
                let place = Place::Stored { blob: BlobId::new(*number, *nonce), offset: member.offset };
                let fits = |v: &Version| v.place == place && v.bytes == member.bytes;
                audit.demand(versions[index].as_ref().is_some_and(fits), entry, "its version does not lie there");
            }
        }
        Ok(())
    }

    async fn audit_tombs(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Tomb), &mut walk).await? {
            let tombs = parsed(entries, audit, |entry| Ok((key::numbers::<5>(&entry.key)?, dead_of(entry)?)));
            let blobs =
                tombs.iter().map(|(_, ([_, number, nonce, ..], _))| key::blob(BlobId::new(*number, *nonce))).collect();
            let blobs = self.look_up::<Blob>(blobs).await?;
            let versions = tombs.iter().map(|(_, (_, dead))| key::version(dead.version)).collect();
            let versions = self.look_up::<Version>(versions).await?;
            for (index, (entry, ([group, number, nonce, ..], dead))) in tombs.iter().enumerate() {
                audit.doomed_bytes = audit.doomed_bytes.saturating_add(dead.bytes);
                let fits = |found: &Blob| u64::from(found.group.0) == *group;
                audit.demand(blobs[index].as_ref().is_some_and(fits), entry, "no such blob lies in this group");
                let lives_here = |v: &Version| matches!(v.place, Place::Stored { blob: home, .. } if home == BlobId::new(*number, *nonce));
                audit.demand(
                    !versions[index].as_ref().is_some_and(lives_here),
                    entry,
                    "doomed, and yet it lives there",
                );
            }
        }
        Ok(())
    }

    async fn audit_intents(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Intent), &mut walk).await? {
            for (entry, blob) in parsed(entries, audit, value::<Blob>) {
                audit.intents += 1;
                audit.demand(key::intent(blob.blob) == entry.key, &entry, "it has another number");
            }
        }
        Ok(())
    }

    /// The kinds that nothing else speaks of: each record must say what its key says.
    async fn audit_small(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Bucket), &mut walk).await? {
            for (entry, bucket) in parsed(entries, audit, value::<Bucket>) {
                audit.demand(key::bucket(&bucket.name) == entry.key, &entry, "it has another name");
            }
        }
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::User), &mut walk).await? {
            for (entry, user) in parsed(entries, audit, value::<User>) {
                audit.demand(key::user(&user.name) == entry.key, &entry, "it has another name");
            }
        }
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Drive), &mut walk).await? {
            for (entry, record) in parsed(entries, audit, value::<DriveRecord>) {
                audit.demand(key::drive(record.drive) == entry.key, &entry, "it has another number");
                let fits = u64::from(record.starts) <= record.starts_total;
                audit.demand(fits, &entry, "more starts in a day than ever");
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

    /// What a job has read is remembered of a job that is.
    async fn audit_jobs(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut jobs = BTreeSet::new();
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Job), &mut walk).await? {
            for (entry, job) in parsed(entries, audit, value::<Job>) {
                audit.demand(key::job(job.job) == entry.key, &entry, "it has another number");
                jobs.insert(job.job);
            }
        }
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::JobInput), &mut walk).await? {
            for (entry, [job, _]) in parsed(entries, audit, |entry| key::numbers::<2>(&entry.key)) {
                audit.demand(jobs.contains(&job), &entry, "its job is missing");
            }
        }
        Ok(())
    }

    /// No number is in use that the counter `name` has not given out.
    async fn audit_counter(&self, audit: &mut Audit, name: &str, tag: Tag) -> Result<(), CatalogError> {
        let at = key::counter(name);
        let Some(raw) = self.store.get(&at).await? else { return Ok(()) };
        let counter = Entry { key: at, value: raw };
        let Ok(end) = value::<u64>(&counter) else {
            audit.demand(false, &counter, "it is no number");
            return Ok(());
        };
        let mut beyond = key::all(tag);
        beyond.extend_from_slice(&end.to_be_bytes());
        let mut range = KeyRange::prefix(&key::all(tag));
        range.start = Bound::Included(beyond);
        let used = self.store.scan(range, 1).await?;
        audit.demand(used.is_empty(), &counter, "a number is in use that was never given out");
        Ok(())
    }

    /// Every key begins with a tag of the table of keys.
    async fn audit_strays(&self, audit: &mut Audit) -> Result<(), CatalogError> {
        let mut tags = Tag::ALL.map(|tag| tag as u8);
        tags.sort_unstable();
        let mut start = Bound::Unbounded;
        for tag in tags.into_iter().map(Some).chain([None]) {
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
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Upload), &mut walk).await? {
            let uploads = parsed(entries, audit, |entry| Ok((key::upload_at(&entry.key)?, value::<Upload>(entry)?)));
            let buckets = uploads.iter().map(|(_, ((bucket, ..), _))| key::bucket(bucket)).collect();
            let buckets = self.look_up::<Bucket>(buckets).await?;
            let versions = uploads.iter().map(|(_, ((.., number), _))| key::version(*number)).collect();
            let versions = self.look_up::<Version>(versions).await?;
            for (index, (entry, ((.., number), upload))) in uploads.iter().enumerate() {
                audit.uploads += 1;
                open.insert(*number);
                audit.demand(upload.version == *number, entry, "it has another number");
                audit.demand(buckets[index].is_some(), entry, "its bucket is missing");
                audit.demand(versions[index].is_none(), entry, "open, and yet an object");
            }
        }
        self.audit_parts(audit, &open).await
    }

    /// A part is one of an open upload, or of an object that knows of it.
    async fn audit_parts(&self, audit: &mut Audit, open: &BTreeSet<VersionId>) -> Result<(), CatalogError> {
        let mut slots = BTreeSet::new();
        let mut walk = Steps::default();
        while let Some(entries) = self.step(&key::all(Tag::Part), &mut walk).await? {
            let parts = parsed(entries, audit, |entry| Ok((key::numbers::<2>(&entry.key)?, part_of(entry)?)));
            let versions = parts.iter().map(|(_, ([owner, _], _))| key::version(VersionId(*owner))).collect();
            let versions = self.look_up::<Version>(versions).await?;
            let at = |version: &Version| key::object(&version.bucket, &version.key);
            let objects = versions.iter().map(|version| version.as_ref().map_or_else(Vec::new, at)).collect();
            let objects = self.look_up::<Object>(objects).await?;
            for (index, (entry, ([owner, number], part))) in parts.iter().enumerate() {
                audit.demand(u64::from(part.number) == *number, entry, "it has another number");
                match &versions[index] {
                    None => {
                        audit.upload_bytes = audit.upload_bytes.saturating_add(part.bytes);
                        audit.demand(open.contains(&VersionId(*owner)), entry, "its upload is missing");
                    }
                    Some(version) => {
                        audit.demand(
                            fits(part, version, objects[index].as_ref()),
                            entry,
                            "its object does not know it",
                        );
                    }
                }
                if versions[index].as_ref().is_none_or(|version| version.place == Place::Parts) {
                    audit.demand(slots.insert(part.slot), entry, "its slot is another part's as well");
                }
            }
        }
        Ok(())
    }

    /// A version that lies in its parts has all of them.
    async fn audit_in_parts(&self, audit: &mut Audit, entry: &Entry, version: &Version) -> Result<(), CatalogError> {
        let (mut count, mut bytes, mut walk) = (0_u64, 0_u64, Steps::default());
        while let Some(entries) = self.step(&key::parts(version.version), &mut walk).await? {
            for part in entries.iter().filter_map(|entry| part_of(entry).ok()) {
                count += 1;
                bytes = bytes.saturating_add(part.bytes);
            }
        }
        audit.demand(count > 0 && bytes == version.bytes, entry, "its parts are not all there");
        Ok(())
    }
}

/// Where a walk is.
#[derive(Default)]
struct Steps {
    after: Option<Cursor>,
    over: bool,
}

/// The record that `entry` holds.
fn value<T: DeserializeOwned>(entry: &Entry) -> Result<T, CatalogError> {
    decode(&entry.key, &entry.value)
}

/// Those of `entries` that can be parsed, with what they say; the others are contradictions.
fn parsed<T>(
    entries: Vec<Entry>,
    audit: &mut Audit,
    parse: impl Fn(&Entry) -> Result<T, CatalogError>,
) -> Vec<(Entry, T)> {
    let mut good = Vec::with_capacity(entries.len());
    for entry in entries {
        match parse(&entry) {
            Ok(said) => good.push((entry, said)),
            Err(error) => audit.demand(false, &entry, &error.to_string()),
        }
    }
    good
}

/// The dead member, or the whole dead blob, that a tombstone tells of.
fn dead_of(entry: &Entry) -> Result<Member, CatalogError> {
    let [_, _, _, offset, version] = key::numbers(&entry.key)?;
    Ok(Member { version: VersionId(version), offset, bytes: value(entry)? })
}

/// Where `member` ends; saturating, since a damaged record may say anything.
fn end_of(member: &Member) -> u64 {
    member.offset.saturating_add(member.bytes)
}

/// The key of the entry that confirms a stored version; of none for a staged one, since no blob has number 0.
fn member_key(version: &Version) -> Vec<u8> {
    match version.place {
        Place::Staged { .. } | Place::Parts => key::member(BlobId::NONE, 0, version.version),
        Place::Stored { blob, offset } => key::member(blob, offset, version.version),
    }
}
