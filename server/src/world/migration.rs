//! Migration: composes packs of listed versions (`listing.rs`), and after the write of a blob commits it and frees
//! them.
//!
//! The order is the guarantee: intent, stacks, sync, read back, commit, free. A failure before the commit leaves the
//! staged files unchanged and the stacks dead. A failure after it leaves at worst a file that nothing refers to, which
//! the next start removes.

use super::freeing::free_moved;
use super::listing::{StagedScan, list};
use super::operation::{InMemory, Operation, Origin, StagedCursor, WrittenBlob};
use super::outcome::give_up;
use super::packed;
use super::quarantine::{missing, quarantine, survey};
use super::state::World;
use super::state::WorldHandle;
use crate::context::{Context, usage_of};
use catalog::{Blob, Member, VersionId};
use disk::stack;
use engine::{Event, Outcome, PinnedTo, StagedEntry};
use model::{Attempt, GroupId, OpId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use workshop::{HeldPack, NamedSlot, PackError, PackMember, PackPlan};

/// More than the index and the footer of a pack with one member without metadata take.
const INDEX_BYTES: u64 = 4096;

impl World {
    pub(super) fn list_staged(&mut self, attempt: Attempt, query: StagedScan, restart: bool) {
        let go_on = if restart { None } else { self.staged_cursor.take() };
        let thermometer = Arc::clone(&self.thermometer);
        self.start_with(move |handle, context| async move {
            let listed = list(&context, thermometer, query, go_on).await;
            let (entries, next) = listed.unwrap_or_else(|error| {
                tracing::error!(%error, "staged versions could not be listed; migration waits for the next scan");
                (Vec::new(), None)
            });
            handle.run(move |world| world.staged_page(attempt, entries, next));
        });
    }

    fn staged_page(&mut self, attempt: Attempt, entries: Vec<StagedEntry>, next: Option<StagedCursor>) {
        let more = next.is_some();
        self.staged_cursor = next;
        let free = |entry: &StagedEntry| !self.migrating.contains(&VersionId(entry.version));
        let entries = entries.into_iter().filter(free).collect();
        self.apply(Event::StagedPage { attempt, entries, more });
    }

    /// Composes a pack and writes it: as the migrator's write `op`, or else as one of the world's own.
    pub(super) fn compose(&mut self, op: Option<OpId>, versions: Vec<u64>, pin: PinnedTo) {
        let versions: Vec<VersionId> = versions.into_iter().map(VersionId).collect();
        assert!(!versions.is_empty(), "a pack is made of something");
        self.migrating.extend(&versions);
        let in_memory: InMemory = versions.iter().filter_map(|version| self.in_memory.remove_entry(version)).collect();
        self.start_with(move |handle, context| async move {
            let pack = gather(&context, &versions, &in_memory).await.unwrap_or_else(|error| {
                tracing::error!(%error, "a pack could not be composed; its versions stay in the workshop");
                None
            });
            handle.run(move |world| world.composed(op, versions, pack, pin));
        });
    }

    /// Writes a copy of the catalog, without the migrator; `engine::snapshots` has decided on it.
    pub(super) fn write_copy(&mut self, version: VersionId, bytes: u64, avoided: &[GroupId]) {
        if self.migrating.contains(&version) {
            return;
        }
        let stack_bytes = stack::stack_bytes(self.rack.spec().code, bytes.saturating_add(INDEX_BYTES));
        let awake = self.rack.awake_with_room(stack_bytes, avoided);
        self.compose(None, vec![version.0], awake.map_or(PinnedTo::Anywhere, PinnedTo::Group));
    }

    /// Moves the versions of the write `of`, which is about to end, to the write `op`.
    pub(super) fn recompose(&mut self, op: OpId, of: OpId, pin: PinnedTo) {
        let versions = match self.operations.get_mut(&of) {
            Some(Operation::Write { of: Origin::Workshop(versions), .. }) => std::mem::take(versions),
            _ => Vec::new(),
        };
        self.start_with(move |handle, context| async move {
            let pack = match survey(&context, &versions).await {
                Ok(left) => gather(&context, &left, &InMemory::new()).await,
                Err(error) => Err(error.to_string()),
            };
            let pack = pack.unwrap_or_else(|error| {
                tracing::error!(%error, "a pack could not be composed again; its versions stay in the workshop");
                None
            });
            handle.run(move |world| world.composed(Some(op), versions, pack, pin));
        });
    }

    fn composed(&mut self, op: Option<OpId>, versions: Vec<VersionId>, pack: Option<HeldPack>, pin: PinnedTo) {
        let Some(pack) = pack.map(Arc::new) else {
            self.release_versions(&versions);
            if let Some(op) = op {
                self.apply(Event::Cancelled { op });
            }
            return;
        };
        self.submit_write(op, pack, Origin::Workshop(versions), pin);
    }

    /// Ends a write. If it succeeded, commits its blob and frees the versions in it.
    pub(super) fn write_ended(
        &mut self,
        pack: Arc<HeldPack>,
        versions: Vec<VersionId>,
        written: Option<WrittenBlob>,
        outcome: &Outcome,
    ) {
        match (outcome, written) {
            (Outcome::Written { group, drives }, Some(written)) => {
                let blob = written.into_committed(*group, drives);
                self.committing += 1;
                self.start_with(move |handle, context| async move {
                    let moved = commit(&context, &handle, &pack, &blob).await;
                    drop(pack); // its files can go now
                    free_moved(&context, moved).await;
                    handle.report(Event::StagingChanged(usage_of(&context)));
                    handle.run(move |world| world.committed(&versions));
                });
            }
            (outcome, _) => {
                // A write without versions has passed its members on to another write.
                let handed_on = versions.is_empty();
                if let Outcome::Failed(reason) = outcome
                    && !handed_on
                {
                    tracing::warn!(
                        ?reason,
                        bytes = pack.plan().payload_bytes(),
                        "migration of a pack failed; it stays in the workshop"
                    );
                }
                self.release_versions(&versions);
            }
        }
    }

    pub(super) fn committed(&mut self, versions: &[VersionId]) {
        assert!(self.committing > 0, "a commit that ends was begun");
        self.committing -= 1;
        self.release_versions(versions);
    }

    fn release_versions(&mut self, versions: &[VersionId]) {
        for version in versions {
            self.migrating.remove(version);
        }
    }
}

/// Number of attempts to gather a pack, since a member may be deleted or overwritten meanwhile.
const GATHER_TRIES: u32 = 8;

/// The pack of those `versions` that are left, whose files are held; `None` if all were overwritten or deleted, or are
/// in quarantine. A member that makes a pack impossible is quarantined, and the pack is made of the others. Members in
/// memory are not read again.
async fn gather(context: &Context, versions: &[VersionId], in_memory: &InMemory) -> Result<Option<HeldPack>, String> {
    let checked = |version| in_memory.get(&VersionId(version)).cloned();
    for _ in 0..GATHER_TRIES {
        let members = members(context, versions).await.map_err(|error| error.to_string())?;
        if members.is_empty() {
            return Ok(None);
        }
        let slots: Vec<Vec<u64>> = members.iter().map(|member| member.slots.clone()).collect();
        let numbers: Vec<VersionId> = members.iter().map(|member| member.object.version).collect();
        match PackPlan::new(members).and_then(|plan| plan.hold_with(&context.staging, checked)) {
            Err(PackError::MemberGone { .. }) => {}
            Err(error) => {
                let bad = error.bad_slot().and_then(|slot| slots.iter().position(|slots| slots.contains(&slot)));
                let Some(bad) = bad else { return Err(error.to_string()) };
                let found = context.catalog.staged_version(numbers[bad]).await.map_err(|error| error.to_string())?;
                if let Some(found) = found {
                    quarantine(context, &found, &error.to_string()).await;
                }
            }
            Ok(held) => return Ok(Some(held)),
        }
    }
    Err("its members keep changing".into())
}

async fn members(context: &Context, versions: &[VersionId]) -> Result<Vec<PackMember>, catalog::CatalogError> {
    let mut members = Vec::with_capacity(versions.len());
    let mut buckets = packed::Buckets::default();
    let quarantined = context.catalog.are_unreadable(versions).await?;
    for (version, _) in versions.iter().zip(quarantined).filter(|(_, quarantined)| !quarantined) {
        let Some(found) = context.catalog.staged_object(*version).await? else { continue };
        let slots = context.catalog.slots_of(*version, found.placed.place).await?;
        // An overwrite between the reads of two parts leaves only the first of them: this version is no longer a
        // member. Once in the rack, it has no slots at all.
        let object = &found.placed.object;
        let files = if found.placed.place == catalog::Place::Parts { object.parts.count() as usize } else { 1 };
        if slots.len() != files {
            continue;
        }
        let part = |number| object.parts.range(number).filter(|_| files > 1);
        let bytes = (1..).take(files).map(|number| part(number).map_or(object.bytes, |part| part.end - part.start));
        let at = (found.bucket.as_str(), found.key.as_str());
        if let Some(reason) = missing(context, at, &slots, &bytes.collect::<Vec<_>>()).await {
            quarantine(context, &found.placed.version(&found.bucket, &found.key), &reason).await;
            continue;
        }
        let attributes = packed::attributes(context, &mut buckets, &found.bucket, object, found.sequence).await?;
        members.push(PackMember {
            bucket: found.bucket,
            key: found.key,
            object: found.placed.object,
            attributes,
            slots,
        });
    }
    Ok(members)
}

/// Commits `blob`; returns the slots of the versions that moved into it.
async fn commit(context: &Context, handle: &WorldHandle, pack: &HeldPack, blob: &Blob) -> Vec<NamedSlot> {
    let plan = pack.plan();
    let placed = plan.members().iter().zip(plan.offsets());
    let members: Vec<Member> = placed
        .map(|(member, offset)| Member { version: member.object.version, offset: *offset, bytes: member.object.bytes })
        .collect();
    assert_eq!(members.len(), plan.members().len(), "each member of {} has its place", blob.blob);
    let within = members.iter().all(|member| member.offset + member.bytes <= blob.payload_bytes);
    assert!(within, "the members of {} lie in its payload", blob.blob);
    match context.catalog.commit_blob(blob, &members).await {
        Ok(done) => {
            let (objects, bytes) = pack.checked();
            context.counters.saved_reads.fetch_add(objects, Ordering::Relaxed);
            context.counters.saved_read_bytes.fetch_add(bytes, Ordering::Relaxed);
            let committed: BTreeSet<VersionId> = members.iter().map(|member| member.version).collect();
            let is_committed = |(version, _): &(VersionId, u64)| committed.contains(version);
            assert!(done.moved.iter().all(is_committed), "only what was committed is freed");
            if done.dead_bytes > 0 {
                handle.report(Event::SpaceDead { group: blob.group, bytes: done.dead_bytes });
            }
            let moved: BTreeSet<u64> = done.moved.into_iter().map(|(_, slot)| slot).collect();
            let named = |member: &PackMember| {
                let at = |slot: &u64| NamedSlot::of(*slot, &member.bucket, &member.key);
                member.slots.iter().filter(|slot| moved.contains(slot)).map(at).collect::<Vec<_>>()
            };
            context.catalog_age.removable(plan.members().iter().flat_map(named).collect())
        }
        Err(error) => {
            tracing::error!(
                blob = %blob.blob, %error,
                "a written blob could not be committed; its objects stay in the workshop"
            );
            give_up(context, handle, blob).await;
            Vec::new()
        }
    }
}
