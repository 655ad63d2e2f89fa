//! The drives: every blob that the catalog should know and does not is adopted. Stacks on other drives than it knows
//! are counted where they are. Stacks missing from a readable drive are marked as lost, and the server rebuilds them at
//! its start. Blobs that were removed since are forgotten. The pass goes group after group, so that each is awake once;
//! memory holds the names on the drives of one group, and the index of one pack.

use super::group::{Based, GroupDrives, Rack, Stacks};
use super::moved_back::CopiesInWorkshop;
use super::report::{Pass, Report, Step};
use crate::error::ServerError;
use crate::offline_rack::OfflineRack;
use crate::pack_index::read_index;
use catalog::{
    AdoptError, Adoption, Blob, CATALOG_BUCKET, Catalog, CopyContent, FoundMember, Known, Part, Place, Sequence,
};
use disk::stack::{self, Flaw, Header};
use disk::{DriveError, RackUuid};
use engine::layout::synthesise;
use model::{BlobId, DriveId};
use std::collections::{BTreeMap, BTreeSet};
use workshop::IndexEntry;

/// Blobs and objects looked up at once.
const PAGE: usize = 1_024;
/// The slot of a part that is in the rack.
const NO_SLOT: u64 = 0;

/// Adopts the blobs on the drives of `rack` that the catalog lacks and should know. With `may_be_older`, the catalog
/// may lack the last changes, and a blob that is gone from all its drives was removed after its last batch.
pub(super) async fn adopt_all(
    Rack { spec, uuid, drives: rack }: Rack<'_>,
    &Based { catalog, may_be_older, staging, .. }: &Based<'_>,
    adoption: &mut Adoption,
    report: &mut Report,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<(), ServerError> {
    let order = OfflineRack::order(&synthesise(spec)?);
    watch(Step::Groups(order.len() as u64));
    let (unusable, removed, pass) = (BTreeSet::new(), BTreeSet::new(), Pass::of(order.len()));
    let mut recovery = Recovery { uuid, rack, catalog, adoption, report, watch, may_be_older, unusable, removed, pass };
    for group in &order {
        recovery.group(group).await?;
    }
    recovery.report.drives_unusable = recovery.unusable.len() as u64;
    recovery.forget_removed(CopiesInWorkshop::new(staging)).await
}

struct Recovery<'a> {
    uuid: RackUuid,
    rack: &'a mut OfflineRack,
    catalog: &'a Catalog,
    adoption: &'a mut Adoption,
    report: &'a mut Report,
    watch: &'a (dyn Fn(Step<'_>) + Sync),
    may_be_older: bool,
    unusable: BTreeSet<DriveId>,
    /// Blobs that the catalog counts on, and that have no stack on any drive.
    removed: BTreeSet<BlobId>,
    pass: Pass,
}

impl Recovery<'_> {
    async fn group(&mut self, ids: &[DriveId]) -> Result<(), ServerError> {
        let rack = (&mut *self.rack, self.uuid);
        let mut drives = GroupDrives::wake(rack, ids, &mut self.unusable, self.watch).await;
        self.blobs(&mut drives, ids).await?;
        self.pass.group(drives.drives.len());
        drives.rest(self.rack, self.watch).await;
        (self.watch)(Step::Group(self.pass));
        Ok(())
    }

    /// Processes the blobs on `drives`, the usable ones of `ids`.
    async fn blobs(&mut self, drives: &mut GroupDrives, ids: &[DriveId]) -> Result<(), ServerError> {
        let found = drives.stacks(&mut self.unusable, self.watch).await;
        let drives = &*drives;
        if self.may_be_older {
            self.note_removed(drives, &found).await?;
        }
        let blobs: Vec<(BlobId, Stacks)> = found.into_iter().collect();
        for page in blobs.chunks(PAGE) {
            let ids_of: Vec<BlobId> = page.iter().map(|(blob, _)| *blob).collect();
            let known = self.catalog.known_blobs(&ids_of).await?;
            for ((blob, stacks), known) in page.iter().zip(known) {
                self.report.blobs += 1;
                let payload_bytes = match known {
                    // A blob that was started when the catalog was lost may have been completed since.
                    Known::Nothing => self.blob(*blob, stacks, false, (drives, ids)).await?,
                    Known::Begun(_) => self.blob(*blob, stacks, true, (drives, ids)).await?,
                    Known::Blob(record) => {
                        let places = self.locate(&record, stacks, drives).await?;
                        self.note_missing(record.blob, &places, stacks, drives).await?;
                        record.payload_bytes
                    }
                    Known::Damaged => 0,
                };
                self.pass.blob(payload_bytes, self.watch);
            }
        }
        self.abort_unwritten(drives, &blobs).await
    }

    /// Aborts the blobs that the catalog records as begun and that were never complete: all of their drives are among
    /// `drives`, and each stack among `found`, which are in the order of their numbers, ends without a footer. A blob
    /// is committed only after all of its stacks were read back, so no copy of the catalog records it as complete.
    async fn abort_unwritten(&mut self, drives: &GroupDrives, found: &[(BlobId, Stacks)]) -> Result<(), ServerError> {
        for intent in self.catalog.pending_intents().await? {
            if !intent.drives.iter().all(|drive| drives.drives.contains_key(drive)) {
                continue;
            }
            let at = found.binary_search_by_key(&intent.blob, |(blob, _)| *blob);
            let stacks = at.map_or(&[][..], |at| &found[at].1);
            if !self.may_be_complete(drives, &intent, stacks).await {
                self.catalog.abort_blob(intent.blob).await?;
            }
        }
        Ok(())
    }

    /// False if each of `stacks`, those of `intent`, was not written to its end. A failed read shows nothing.
    async fn may_be_complete(&self, drives: &GroupDrives, intent: &Blob, stacks: &[(u8, DriveId)]) -> bool {
        // A stack may be on two drives.
        for (index, drive) in stacks {
            let mut places = vec![None; intent.drives.len()];
            let Some(place) = places.get_mut(usize::from(*index)) else { continue };
            *place = drives.drives.get(drive).cloned();
            let flaws = stack::inspect(described(self.uuid, intent), &places).await.flaws;
            let flaw = flaws.into_iter().find(|(of, _)| of == index).map(|(_, flaw)| flaw);
            let is_unwritten = matches!(
                flaw,
                Some(
                    Flaw::Length { .. } | Flaw::Footer(_) | Flaw::Drive(DriveError::NotFound(_) | DriveError::Short(_))
                )
            );
            if !is_unwritten {
                return true;
            }
        }
        false
    }

    /// Records the living blobs without any stack found, if all of their drives are among `drives`.
    async fn note_removed(
        &mut self,
        drives: &GroupDrives,
        found: &BTreeMap<BlobId, Stacks>,
    ) -> Result<(), ServerError> {
        for id in drives.drives.keys() {
            let mut after = None;
            loop {
                let page = self.catalog.sound_blobs(Some(*id), after.as_ref(), PAGE).await?;
                for blob in page.items {
                    let is_first = blob.drives.first() == Some(id);
                    let is_gone = is_first && !found.contains_key(&blob.blob);
                    let are_there = blob.drives.iter().all(|drive| drives.drives.contains_key(drive));
                    if is_gone && are_there && self.catalog.is_blob_living(blob.blob).await? {
                        self.removed.insert(blob.blob);
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Forgets the objects in blobs that were removed: their stacks go only when nothing lives in them any more. An
    /// object that was moved back to the workshop before is there.
    async fn forget_removed(&mut self, mut moved_back: CopiesInWorkshop<'_>) -> Result<(), ServerError> {
        if self.removed.is_empty() {
            return Ok(());
        }
        for bucket in self.catalog.buckets().await? {
            let mut after: Option<String> = None;
            loop {
                let page = self.catalog.placed_page(&bucket.name, "", after.as_deref(), PAGE).await?;
                for (key, placed) in &page.objects {
                    let Place::Stored { blob, .. } = placed.place else { continue };
                    if !self.removed.contains(&blob) {
                        continue;
                    }
                    let at = (bucket.name.as_str(), key.as_str());
                    if let Some(slot) = moved_back.slot_of(at, &placed.object).await? {
                        self.catalog.restage(at, placed.object.version, blob, slot).await?;
                        self.report.moved_back += 1;
                    } else {
                        self.catalog.delete_object(at.0, at.1).await?;
                        self.report.removed += 1;
                    }
                }
                after = page.objects.into_iter().last().map(|(key, _)| key);
                if !page.truncated || after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Marks as lost the stacks of `blob` that its record places on a readable drive and that were not found there.
    async fn note_missing(
        &mut self,
        blob: BlobId,
        places: &[DriveId],
        found: &Stacks,
        drives: &GroupDrives,
    ) -> Result<(), ServerError> {
        let mut missing = Vec::new();
        for (index, place) in
            places.iter().enumerate().filter(|(index, place)| !found.contains(&(*index as u8, **place)))
        {
            let Some(uuid) = drives.uuid(*place).await else { continue };
            (self.watch)(Step::Unusable(&format!("blob {blob}: its stack {index} is not on drive {place}")));
            missing.push((*place, uuid.0));
        }
        if !missing.is_empty() {
            self.catalog.note_missing(blob, &missing).await?;
            self.report.missing += missing.len() as u64;
        }
        Ok(())
    }

    /// Corrects the record for whole stacks found on other drives. Returns the drives of all stacks.
    async fn locate(
        &mut self,
        record: &Blob,
        stacks: &Stacks,
        drives: &GroupDrives,
    ) -> Result<Vec<DriveId>, ServerError> {
        let is_there = |index: usize, drive: DriveId| stacks.contains(&(index as u8, drive));
        let mut places = record.drives.clone();
        for (index, place) in places.iter_mut().enumerate() {
            if !is_there(index, *place) {
                let elsewhere = stacks.iter().find(|(of, _)| usize::from(*of) == index);
                *place = elsewhere.map_or(*place, |(_, drive)| *drive);
            }
        }
        let distinct: BTreeSet<DriveId> = places.iter().copied().collect();
        if places == record.drives || distinct.len() != places.len() {
            return Ok(record.drives.clone());
        }
        let devices: Vec<_> = places.iter().map(|drive| drives.drives.get(drive).cloned()).collect();
        let flaws = stack::inspect(described(self.uuid, record), &devices).await.flaws;
        for (index, _) in flaws {
            // A stack that a rebuild had not completed counts where it was.
            places[usize::from(index)] = record.drives[usize::from(index)];
        }
        for (index, place) in places.iter_mut().enumerate() {
            let was = record.drives[index];
            // A rebuild that was killed may not have synced it.
            if *place != was && !drives.is_synced(*place, record.blob, index as u8).await {
                *place = was;
            }
        }
        let distinct: BTreeSet<DriveId> = places.iter().copied().collect();
        let moved = places.iter().zip(&record.drives).filter(|(is, was)| is != was).count();
        if moved == 0 || distinct.len() != places.len() {
            return Ok(record.drives.clone());
        }
        self.catalog.relocate(record, places.clone()).await?;
        self.report.moved += moved as u64;
        Ok(places)
    }

    /// Adopts a blob that the catalog does not know, or only as begun. Returns the bytes of its payload; 0 if unknown.
    async fn blob(
        &mut self,
        id: BlobId,
        stacks: &Stacks,
        was_begun: bool,
        (drives, group): (&GroupDrives, &[DriveId]),
    ) -> Result<u64, ServerError> {
        let Some(header) = drives.header(id, stacks).await else {
            // Without a readable header it was never completed, unless all of its headers are damaged.
            return Ok(0);
        };
        let (begun, payload_bytes) = (Sequence(header.provenance.sequence), header.blob.payload_bytes);
        if !was_begun && !self.adoption.may_lack(begun) {
            return Ok(payload_bytes);
        }
        let index = match read_index(header.blob, drives.with_drives(stacks), u64::MAX).await {
            Ok(index) => index.unwrap_or_default(),
            Err(why) => {
                self.report.unreadable += 1;
                (self.watch)(Step::Unusable(&format!("blob {id}: {why}")));
                return Ok(payload_bytes);
            }
        };
        if let Err(why) = drives.sync(header.blob, stacks).await {
            self.report.unreadable += 1;
            (self.watch)(Step::Unusable(&format!("blob {id}: {why}")));
            return Ok(payload_bytes);
        }
        self.note_copies(&index);
        let record = record(&header, stacks, group, index.len());
        let members = index.into_iter().map(member).collect();
        self.adoption.adopt(&record, begun, members).await.map_err(|error| match error {
            AdoptError::Catalog(error) => error.into(),
            locked @ AdoptError::Locked { .. } => ServerError::Refused(format!("{locked}: nothing was changed")),
        })?;
        self.report.adopted += 1;
        self.note_missing(id, &record.drives, stacks, drives).await?;
        Ok(payload_bytes)
    }

    /// Notes the last batch of the copies of the catalog in the pack with this index, which the catalog lacks.
    fn note_copies(&mut self, index: &[IndexEntry]) {
        let copies = index.iter().filter(|entry| entry.bucket == CATALOG_BUCKET);
        let last = copies.filter_map(|entry| CopyContent::of(&entry.key)).map(CopyContent::last).max();
        self.report.newest_copy = self.report.newest_copy.max(last);
    }
}

/// The blob of `record`, as its stacks describe it.
fn described(rack: RackUuid, record: &Blob) -> stack::Blob {
    stack::Blob { rack, id: record.blob, code: record.code(), payload_bytes: record.payload_bytes }
}

/// The record of the blob with this header, whose `stacks` were found, in the group of `drives`.
fn record(header: &Header, stacks: &Stacks, drives: &[DriveId], members: usize) -> Blob {
    let (blob, from) = (header.blob, header.provenance);
    let found: BTreeMap<u8, DriveId> = stacks.iter().copied().collect();
    let mut places: Vec<Option<DriveId>> =
        (0..header.drives.len()).map(|index| found.get(&(index as u8)).copied()).collect();
    for index in 0..places.len() {
        if places[index].is_none() {
            // The drive it was on when the others were written; if that has another stack by now, one without any.
            let mut free = [header.drives[index]].into_iter().chain(drives.iter().copied());
            places[index] = free.find(|drive| !places.contains(&Some(*drive)));
        }
    }
    Blob {
        blob: blob.id,
        group: from.group,
        class: from.class,
        drives: places.into_iter().zip(&header.drives).map(|(found, was)| found.unwrap_or(*was)).collect(),
        code_data: blob.code.data,
        code_parity: blob.code.parity,
        fragment_bytes: blob.code.fragment_bytes,
        payload_bytes: blob.payload_bytes,
        stack_bytes: stack::stack_bytes(blob.code, blob.payload_bytes),
        members: members as u32,
        written_ms: from.written_ms,
    }
}

fn member(entry: IndexEntry) -> FoundMember {
    let IndexEntry { bucket, key, offset, object, attributes, .. } = entry;
    let lengths = object.parts.runs().iter().flat_map(|(count, bytes)| std::iter::repeat_n(*bytes, *count as usize));
    let parts = attributes.parts.into_iter().zip(lengths).zip(1..);
    let parts = parts.map(|((digests, bytes), number)| Part {
        number,
        slot: NO_SLOT,
        bytes,
        etag: hex(digests.md5),
        checksum: digests.checksum,
        modified_ms: object.modified_ms,
    });
    FoundMember {
        parts: parts.collect(),
        bucket,
        key,
        offset,
        sequence: Sequence(attributes.sequence),
        bucket_created_ms: attributes.bucket_created_ms,
        owner: attributes.owner,
        locked: attributes.legal_hold || attributes.retention.is_some(),
        object,
    }
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use catalog::{MemoryStore, Object, VersionId};
    use model::{ClassId, GroupId};
    use std::sync::Arc;
    use workshop::{MemberAttributes, Retention, RetentionMode};

    fn entry(key: &str, attributes: MemberAttributes) -> IndexEntry {
        let object = Object { version: VersionId(7), bytes: 5, etag: "e".into(), ..Object::default() };
        let attributes = MemberAttributes { sequence: 9, ..attributes };
        IndexEntry { bucket: "b".into(), key: key.into(), offset: 0, object, attributes, checksum: 1 }
    }

    fn blob() -> Blob {
        let blob = BlobId { number: 3, nonce: 4 };
        Blob {
            blob,
            group: GroupId(0),
            class: ClassId(0),
            drives: vec![DriveId(0), DriveId(1)],
            code_data: 1,
            code_parity: 1,
            fragment_bytes: 4096,
            payload_bytes: 100,
            stack_bytes: 20_480,
            members: 1,
            written_ms: 1,
        }
    }

    #[tokio::test]
    async fn a_number_that_two_catalogs_assigned_is_not_one_version() {
        let (catalog, done) = adopted(vec![entry("k", MemberAttributes::default())]).await;
        done.unwrap();
        // A server on an older catalog has assigned version 7 again, to other bytes of the same key.
        let other = Blob { blob: BlobId { number: 4, nonce: 5 }, ..blob() };
        let mut later = entry("k", MemberAttributes::default());
        (later.object.etag, later.attributes.sequence) = ("later".into(), 30);
        let mut adoption = Adoption::new(catalog.clone(), Arc::new(MemoryStore::new()), Sequence(20));
        adoption.adopt(&other, Sequence(29), vec![member(later)]).await.unwrap();
        let (object, place) = catalog.get_object("b", "k").await.unwrap();
        let place_of_later = Place::Stored { blob: other.blob, offset: 0 };
        assert_eq!((object.etag.as_str(), place), ("later", place_of_later), "the record is that of the bytes");
    }

    /// Adopts a pack with this index into an empty catalog.
    async fn adopted(index: Vec<IndexEntry>) -> (Catalog, Result<(), AdoptError>) {
        let catalog = Catalog::open(Arc::new(MemoryStore::new())).await.unwrap();
        let mut adoption = Adoption::new(catalog.clone(), Arc::new(MemoryStore::new()), Sequence(0));
        let done = adoption.adopt(&blob(), Sequence(8), index.into_iter().map(member).collect()).await;
        (catalog, done)
    }

    #[tokio::test]
    async fn a_pack_with_a_locked_object_is_refused_and_leaves_nothing_behind() {
        let until = |mode| Some(Retention { mode, until_ms: 1 });
        let free = entry("free", MemberAttributes::default());
        for lock in [
            MemberAttributes { legal_hold: true, ..MemberAttributes::default() },
            // Only a clock could show if the time has passed.
            MemberAttributes { retention: until(RetentionMode::Governance), ..MemberAttributes::default() },
            MemberAttributes { retention: until(RetentionMode::Compliance), ..MemberAttributes::default() },
        ] {
            let index = vec![free.clone(), entry("held", lock.clone()), entry("too", lock)];
            let (catalog, done) = adopted(index).await;
            let why = done.unwrap_err().to_string();
            assert!(why.contains("holds 2 objects under a legal hold or retention, s3://b/held first"), "{why}");
            assert!(catalog.blob(blob().blob).await.unwrap().is_none(), "nothing of it is known");
            assert!(catalog.buckets().await.unwrap().is_empty());
        }
        let (catalog, done) = adopted(vec![free]).await;
        done.unwrap();
        assert!(catalog.blob(blob().blob).await.unwrap().is_some());
    }
}
