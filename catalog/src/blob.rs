//! Blobs: from intent through commit to removal, and the dead bytes in them.

use crate::catalog::{Catalog, Cursor, Page};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::object::leave_workshop;
use crate::record::{Blob, Member, Owner, Place, PlacedObject, VersionId, decode, encode, value};
use crate::staging::DeadBytes;
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use model::{BlobId, DriveId, GroupId};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the record of [`Catalog::keep_intents`].
const KEPT_INTENTS: &str = "kept-intents";

/// The version in the tombstone of a whole blob. No version has this number.
pub(crate) const WHOLE: VersionId = VersionId(0);

/// The result of committing a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitBlob {
    /// The versions that are in it now, with the slots of their staged files, which the caller frees. A version has one
    /// slot, or one for each part.
    pub moved: Vec<(VersionId, u64)>,
    /// The members that were overwritten or deleted meanwhile. Their bytes in the blob are dead from the start.
    pub dead: Vec<VersionId>,
    /// The bytes of the dead members.
    pub dead_bytes: u64,
}

/// A blob with dead bytes, which no object refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadRecord {
    /// The blob.
    pub blob: Blob,
    /// Those of its drives that hold none of its data, since they replaced a failed drive.
    pub lost: Vec<DriveId>,
    /// Its dead payload bytes; all of them if no version lives in it.
    pub dead_bytes: u64,
    /// True if a version lives in it. If not, its stacks can be removed and the blob forgotten.
    pub living: bool,
}

/// A page of the blobs of a group with dead bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// The blobs, by number.
    pub items: Vec<DeadRecord>,
    /// Cursor of the next page; `None` if this is the last one.
    pub next: Option<Cursor>,
    /// Dead bytes of blobs that are left out because their records are damaged.
    pub damaged_bytes: u64,
}

impl Catalog {
    /// Records, before the first stack is created, the intent to write `blob` to these drives.
    ///
    /// # Errors
    /// [`CatalogError::PreconditionFailed`] if the number was used before.
    pub async fn begin_blob(&self, blob: &Blob) -> Result<(), CatalogError> {
        let drives: BTreeSet<_> = blob.drives.iter().collect();
        assert_eq!(drives.len(), blob.drives.len(), "no two stacks of a blob are on one drive");
        let at = key::intent(blob.blob);
        let checks = vec![Check::Absent(at.clone()), Check::Absent(key::blob(blob.blob))];
        let batch = Batch::new(checks, vec![Write::Put(at, encode(blob))]);
        self.apply_or(batch, CatalogError::PreconditionFailed).await
    }

    /// The blobs that were begun and neither committed nor aborted. Each is aborted at boot, unless it is among
    /// [`Catalog::kept_intents`].
    pub async fn pending_intents(&self) -> Result<Vec<Blob>, CatalogError> {
        self.all_entries(&key::all(Tag::Intent), value).await
    }

    /// Keeps the stacks of all pending intents until a recovery: a newer catalog may have these blobs complete, and may
    /// have freed the originals. A recovery looks at the stacks, and adopts or aborts each of them.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn keep_intents(&self) -> Result<(), CatalogError> {
        let begun: Vec<BlobId> = self.pending_intents().await?.into_iter().map(|intent| intent.blob).collect();
        let kept = self.kept_intents().await?;
        if begun.iter().all(|blob| kept.as_ref().is_none_or(|kept| kept.contains(blob))) {
            return Ok(());
        }
        self.put(key::meta(KEPT_INTENTS), encode(&begun)).await
    }

    /// The blobs of [`Catalog::keep_intents`]; some may be complete or gone now. `None` if their record is damaged: the
    /// blobs of all pending intents are then kept.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn kept_intents(&self) -> Result<Option<BTreeSet<BlobId>>, CatalogError> {
        let found = self.read_to_replace::<Vec<BlobId>>(&key::meta(KEPT_INTENTS)).await?;
        Ok(found.map_or_else(|| Some(BTreeSet::new()), |(kept, _)| kept.map(BTreeSet::from_iter)))
    }

    /// Makes the blob, whose stacks are synced and read back, the place of its members in one batch. A member that was
    /// overwritten or deleted meanwhile is dead at once.
    ///
    /// # Errors
    /// [`CatalogError::NoIntent`] if it was not begun, or was committed or aborted; [`CatalogError::Conflict`].
    ///
    /// # Panics
    /// If a member is named twice, reaches beyond the payload, or differs in length from its version: the payload was
    /// composed wrongly and must not become the only copy.
    pub async fn commit_blob(&self, blob: &Blob, members: &[Member]) -> Result<CommitBlob, CatalogError> {
        check_members(blob, members);
        assert!(!blob.drives.is_empty(), "a blob lies somewhere");
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let mut batch = commit_batch(blob);
            let mut outcome = CommitBlob::default();
            for (member, found) in members.iter().zip(self.staged_members(members).await?) {
                let Some(found) = found else {
                    bury_member(blob, member, &mut batch, &mut outcome);
                    continue;
                };
                let slots = self.slots_of(member.version, found.placed.place).await?;
                outcome.moved.extend(slots.into_iter().map(|slot| (member.version, slot)));
                move_member(blob, member, found, &mut batch);
            }
            let slotted: BTreeSet<_> = outcome.moved.iter().map(|(version, _)| *version).collect();
            assert!(outcome.dead.iter().all(|version| !slotted.contains(version)), "a member lives or is dead");
            assert!(outcome.dead.len() + slotted.len() <= members.len(), "what moves was named as a member");
            if self.apply(batch).await? {
                return Ok(outcome);
            }
            if self.store.get(&key::intent(blob.blob)).await?.is_none() {
                return Err(CatalogError::NoIntent(blob.blob));
            }
        }
    }

    /// Each of `members` as it is staged. `None` for a member that is no longer staged, or whose record is damaged: the
    /// latter stays in the workshop, and its packed copy is of no use.
    async fn staged_members(&self, members: &[Member]) -> Result<Vec<Option<StagedMember>>, CatalogError> {
        let owners = members.iter().map(|member| key::version(member.version)).collect();
        let owners: Vec<Option<Owner>> = self.look_up(owners).await?;
        let at: Vec<_> = owners.iter().flatten().map(|owner| key::object(&owner.bucket, &owner.key)).collect();
        let mut objects = at.iter().zip(self.store.get_many(at.clone()).await?);
        let mut found = Vec::with_capacity(members.len());
        for (member, owner) in members.iter().zip(owners) {
            let Some(owner) = owner else {
                found.push(None);
                continue;
            };
            let (at, value) = objects.next().expect("each owner has its key");
            let placed =
                value.as_ref().map(|value| (decode::<PlacedObject>(at, value), value.unproven_body().to_vec()));
            found.push(match placed {
                Some((Ok(placed), raw)) if placed.is_staged_as(member.version) => {
                    Some(StagedMember { owner, placed, raw })
                }
                Some((Err(error), _)) => {
                    self.quarantine(at, &error.to_string());
                    None
                }
                _ => None,
            });
        }
        Ok(found)
    }

    /// Aborts a blob that is being written: all its data is dead as a whole. `None` if it is not being written.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn abort_blob(&self, blob: BlobId) -> Result<Option<DeadBytes>, CatalogError> {
        let at = key::intent(blob);
        let Some((found, raw)) = self.read_raw::<Blob>(&at).await? else { return Ok(None) };
        let mut batch = commit_batch(&found);
        batch.checks.push(Check::Is(at, raw));
        let tomb = key::tomb(found.group, blob, 0, WHOLE);
        batch.writes.push(Write::Put(tomb, encode(&found.payload_bytes)));
        let aborted = self.apply(batch).await?;
        Ok(aborted.then_some(DeadBytes { group: found.group, blob, bytes: found.payload_bytes }))
    }

    /// The blob of that number, if it was committed (or aborted) and is not forgotten.
    pub async fn blob(&self, blob: BlobId) -> Result<Option<Blob>, CatalogError> {
        self.read(&key::blob(blob)).await
    }

    /// A page of the living versions in `blob`, by offset.
    pub async fn blob_members(
        &self,
        blob: BlobId,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Member>, CatalogError> {
        self.page(&key::members(blob), after, limit, member_of).await
    }

    /// A page of all blobs, by number.
    pub async fn blobs_page(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<Blob>, CatalogError> {
        self.page(&key::all(Tag::Blob), after, limit, value).await
    }

    /// A page of the blobs of `group` with dead bytes, by number.
    pub async fn dead_page(
        &self,
        group: GroupId,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<DeadPage, CatalogError> {
        let (mut items, mut damaged_bytes) = (Vec::new(), 0_u64);
        let mut range = match after {
            Some(Cursor(tomb)) => KeyRange::prefix_after(&key::tombs(group), tomb),
            None => KeyRange::prefix(&key::tombs(group)),
        };
        while items.len() < limit {
            let Some(first) = self.store.scan(range.clone(), 1).await?.pop() else {
                return Ok(DeadPage { items, next: None, damaged_bytes });
            };
            let [_, number, nonce, _, _] = key::numbers(&first.key)?;
            let id = BlobId::new(number, nonce);
            let tombs = KeyRange::prefix(&key::tombs_of(group, id));
            match self.dead_blob(group, id).await {
                // It may be forgotten between the two reads; then it is gone and no longer dead.
                Ok(dead) => items.extend(dead),
                Err(CatalogError::Damaged(_)) => {
                    damaged_bytes = damaged_bytes.saturating_add(self.dead_bytes_of(group, id).await?);
                }
                Err(error) => return Err(error),
            }
            range.start = match tombs.end {
                std::ops::Bound::Excluded(end) => std::ops::Bound::Included(end),
                other => other,
            };
        }
        let next = items
            .last()
            .map(|last: &DeadRecord| Cursor(key::tomb(group, last.blob.blob, u64::MAX, VersionId(u64::MAX))));
        Ok(DeadPage { items, next, damaged_bytes })
    }

    /// The dead bytes of every group that has any. Reads every tombstone; meant for boot.
    pub async fn dead_totals(&self) -> Result<Vec<(GroupId, u64)>, CatalogError> {
        let mut totals = BTreeMap::new();
        let tomb = |entry: &Entry| Ok((key::numbers::<5>(&entry.key)?, value::<u64>(entry)?));
        self.each_entry(&key::all(Tag::Tomb), tomb, |([group, ..], bytes)| {
            let total: &mut u64 = totals.entry(GroupId(group as u32)).or_default();
            *total = total.saturating_add(bytes);
        })
        .await?;
        Ok(totals.into_iter().collect())
    }

    /// Forgets a blob whose stacks were removed: its record, its stacks by drive and its tombstones. Repeating the call
    /// is no error.
    ///
    /// # Errors
    /// [`CatalogError::BlobInUse`] if it holds a version, or if a rebuild may have left a stack of it on its target;
    /// [`CatalogError::Conflict`]. In both cases nothing is changed.
    pub async fn forget_blob(&self, blob: BlobId) -> Result<(), CatalogError> {
        let at = key::blob(blob);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let Some((found, raw)) = self.read_raw::<Blob>(&at).await? else { return Ok(()) };
            let members = Check::Empty(KeyRange::prefix(&key::members(blob)));
            let checks = vec![Check::Is(at.clone(), raw), members, Self::no_rebuild_target(blob)];
            let mut writes = vec![Write::Delete(at.clone()), Write::Delete(key::scrub_finding(blob))];
            writes.extend(found.drives.iter().map(|&drive| Write::Delete(key::on_drive(drive, blob))));
            writes.push(Write::DeleteRange(KeyRange::prefix(&key::tombs_of(found.group, blob))));
            if self.apply(Batch::new(checks, writes)).await? {
                return Ok(());
            }
            // The reason for the failed check may be gone by now; then the batch is tried again.
            if self.is_blob_living(blob).await? || !self.rebuild_targets(blob).await?.is_empty() {
                return Err(CatalogError::BlobInUse(blob));
            }
        }
    }

    /// The blobs of those numbers, in that order.
    pub(crate) async fn blobs(&self, ids: &[BlobId]) -> Result<Vec<Option<Blob>>, CatalogError> {
        self.look_up(ids.iter().map(|&id| key::blob(id)).collect()).await
    }

    async fn dead_blob(&self, group: GroupId, blob: BlobId) -> Result<Option<DeadRecord>, CatalogError> {
        let Some(found) = self.read::<Blob>(&key::blob(blob)).await? else { return Ok(None) };
        let (living, lost) = (self.is_blob_living(blob).await?, self.lost_of(&found).await?);
        let dead_bytes = if living { self.dead_bytes_of(group, blob).await? } else { found.payload_bytes };
        Ok(Some(DeadRecord { blob: found, lost, dead_bytes, living }))
    }

    /// The sum of the bytes in the tombstones of `blob`.
    async fn dead_bytes_of(&self, group: GroupId, blob: BlobId) -> Result<u64, CatalogError> {
        let mut dead_bytes = 0_u64;
        let add = |bytes| dead_bytes = dead_bytes.saturating_add(bytes);
        self.each_entry(&key::tombs_of(group, blob), value::<u64>, add).await?;
        Ok(dead_bytes)
    }
}

/// # Panics If `members` cannot be the members of `blob`.
pub(crate) fn check_members(blob: &Blob, members: &[Member]) {
    let (mut seen, mut behind) = (BTreeSet::new(), 0);
    for member in members {
        let end = member.offset.checked_add(member.bytes);
        assert!(member.offset >= behind, "{member:?} shares bytes of {} with another member", blob.blob);
        behind = end.unwrap_or(u64::MAX);
        assert!(end.is_some_and(|end| end <= blob.payload_bytes), "{member:?} reaches beyond {}", blob.blob);
        assert!(member.version != WHOLE && seen.insert(member.version), "{member:?} is named twice in {}", blob.blob);
    }
}

/// The batch that turns an intent into a blob: its record and its stacks by drive.
pub(crate) fn commit_batch(blob: &Blob) -> Batch {
    let intent = key::intent(blob.blob);
    let checks = vec![Check::Present(intent.clone()), Check::Absent(key::blob(blob.blob))];
    let mut writes = vec![Write::Delete(intent), Write::Put(key::blob(blob.blob), encode(blob))];
    writes.extend(blob.drives.iter().map(|&drive| Write::Put(key::on_drive(drive, blob.blob), Vec::new())));
    Batch::new(checks, writes)
}

/// Adds to `batch`: `member`, which is no longer staged, is dead in `blob`.
fn bury_member(blob: &Blob, member: &Member, batch: &mut Batch, outcome: &mut CommitBlob) {
    let Member { version, offset, bytes } = *member;
    // A version never comes back, so this needs no check.
    batch.writes.push(Write::Put(key::tomb(blob.group, blob.blob, offset, version), encode(&bytes)));
    outcome.dead.push(version);
    outcome.dead_bytes += bytes;
}

/// A member of a blob that is being committed, as it is staged.
struct StagedMember {
    owner: Owner,
    placed: PlacedObject,
    raw: Vec<u8>,
}

/// Adds to `batch`: `member`, which is staged as `found`, moves into `blob`.
fn move_member(blob: &Blob, member: &Member, found: StagedMember, batch: &mut Batch) {
    let Member { version, offset, bytes } = *member;
    let StagedMember { owner: Owner { bucket, key, .. }, mut placed, raw } = found;
    assert_eq!(placed.object.bytes, bytes, "{version:?} is as long in {} as it was staged", blob.blob);
    assert!(placed.is_staged_as(version), "only a version of the workshop moves into a blob");
    let at = key::object(&bucket, &key);
    batch.checks.push(Check::Is(at.clone(), raw));
    leave_workshop(&bucket, &key, &placed, batch);
    batch.writes.push(Write::Put(key::member(blob.blob, offset, version), encode(&bytes)));
    placed.place = Place::Stored { blob: blob.blob, offset };
    batch.writes.push(Write::Put(at, encode(&placed)));
}

/// The member in an entry of the member index.
pub(crate) fn member_of(entry: &Entry) -> Result<Member, CatalogError> {
    let [_, _, offset, version] = key::numbers(&entry.key)?;
    Ok(Member { version: VersionId(version), offset, bytes: value(entry)? })
}
