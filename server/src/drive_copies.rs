//! Copies of the catalog on drives, for the case that the workshop is lost as well.
//!
//! `engine::snapshots` decides when a copy is due, and which of the old ones stay. A copy is put like an object, into a
//! bucket that no client can name (`catalog/src/copies.rs`), and the world writes it into its own pack. Once the
//! catalog has its place, older ones are removed, and their room is reclaimed like that of any object. One copy is
//! under way at a time. A copy that did not complete, for any reason, is removed and made again. A copy with data that
//! is known to be lost, by a scrub or with drives, does not count, so another is due; it is removed once the sound
//! copies lead as far.

use crate::backup::{BackupEnded, in_a_thread};
use crate::config::JournalConfig;
use crate::object_service::ObjectService;
use crate::world::WorldHandle;
use bytes::Bytes;
use catalog::{
    Acl, CATALOG_BUCKET, CatalogCopy, CatalogError, Checksum, ChecksumKind, CopyChain, CopyContent, Journal, Object,
    PartLengths, PutCondition, Sequence, SnapshotError, VersionId, chain_of,
};
use crc_fast::{CrcAlgorithm, Digest};
use disk::stack;
use engine::Rack;
use engine::snapshots::{Copies, Copy, OnDrives, oldest_kept};
use model::{GroupId, Time};
use s3::EtagDigest;
use s3::store::{ObjectStore, ServiceError};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a copy that are staged at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The reason that a copy was not made. It is retried.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("the catalog: {0}")]
    Catalog(#[from] CatalogError),
    #[error("the journal: {0}")]
    Journal(#[from] SnapshotError),
    #[error("the journal: {0}")]
    File(#[from] io::Error),
    #[error("it cannot be staged: {0:?}")]
    Staged(ServiceError),
    #[error("the journal does not reach the present catalog")]
    Gap,
    #[error("it could not be written to drives")]
    Unwritten,
}

impl From<BackupEnded> for CopyError {
    fn from(BackupEnded(error): BackupEnded) -> Self {
        Self::File(error)
    }
}

/// The copies of one catalog.
pub(crate) struct DriveCopies {
    store: Arc<ObjectService>,
    world: WorldHandle,
    journal: Arc<Journal>,
    policy: Copies,
    /// The time since when no copy has a known change.
    lacks_since: Option<Time>,
    /// The copy under way to drives.
    under_way: Option<VersionId>,
    /// True if segments do not follow the last copy.
    gap: bool,
}

impl DriveCopies {
    /// `anew` for a catalog that is used in place of a newer one: its first copy is complete, because the drives may
    /// have segments of the newer catalog, which continue differently from the same batch.
    pub(crate) fn new(
        store: Arc<ObjectService>,
        world: WorldHandle,
        journal: Arc<Journal>,
        config: &JournalConfig,
        anew: bool,
    ) -> Self {
        let policy = Copies::new(config.policy());
        Self { store, world, journal, policy, lacks_since: None, under_way: None, gap: anew }
    }

    /// Makes a copy if one is due. `now` is the time since the start. True if a copy is under way.
    pub(crate) async fn look(&mut self, now: Time) -> bool {
        if let Err(error) = self.step(now).await {
            self.policy.ended(now, false);
            self.note_overdue(true);
            tracing::warn!(%error, "could not store a copy of the catalog on drives; retrying");
        }
        self.under_way.is_some()
    }

    async fn step(&mut self, now: Time) -> Result<(), CopyError> {
        let copies = self.store.context.catalog.copies().await?;
        if let Some(version) = self.under_way {
            if self.world.is_migrating(version).await {
                let found = self.found(now, &copies, chain_of(&copies).as_ref()).await;
                self.note_overdue(self.policy.is_overdue(found));
                return Ok(());
            }
            self.ended(now, version).await?;
            return Ok(());
        }
        let chain = chain_of(&copies);
        self.journal.note_on_drives(chain.as_ref().map(|chain| chain.last));
        self.remove(superseded(&copies)).await?;
        let found = self.found(now, &copies, chain.as_ref()).await;
        self.note_overdue(self.policy.is_overdue(found));
        let (content, path, is_draft) = match self.policy.due(now, found) {
            None => return Ok(()),
            Some(Copy::Snapshot) => {
                let (number, path) = self.snapshot(chain.map(|chain| chain.snapshot)).await?;
                (CopyContent::Snapshot(number), path, false)
            }
            Some(Copy::Segment) => {
                let before = chain.map_or(Sequence(0), |chain| chain.last);
                let Some(since) = self.journal.write_since(before)? else {
                    self.gap = true;
                    return Err(CopyError::Gap);
                };
                (CopyContent::Segment(before, since.last), since.path, true)
            }
        };
        let staged = self.stage(content, path.clone()).await;
        if is_draft {
            drop(std::fs::remove_file(&path)); // otherwise the next start removes it
        }
        let (version, bytes) = staged?;
        self.under_way = Some(version);
        let avoided = self.groups_of(&copies).await?;
        self.world.write_copy(version, bytes, avoided);
        Ok(())
    }

    /// Records the end of the write of the copy `version`, successful or not.
    async fn ended(&mut self, now: Time, version: VersionId) -> Result<(), CopyError> {
        self.under_way = None;
        let copies = self.store.context.catalog.copies().await?;
        let Some(copy) = copies.iter().find(|copy| copy.version == version && copy.blob.is_some()) else {
            self.remove(copies.into_iter().filter(|copy| copy.version == version).collect()).await?;
            return Err(CopyError::Unwritten);
        };
        self.gap &= !matches!(copy.content, Some(CopyContent::Snapshot(_)));
        self.policy.ended(now, true);
        self.note_overdue(false);
        self.journal.note_on_drives(chain_of(&copies).map(|chain| chain.last));
        tracing::info!(copy = copy.key, bytes = copy.bytes, "stored a copy of the catalog on drives");
        Ok(())
    }

    fn note_overdue(&self, is_overdue: bool) {
        self.store.context.counters.are_copies_overdue.store(is_overdue, Ordering::Relaxed);
    }

    async fn found(&mut self, now: Time, copies: &[CatalogCopy], chain: Option<&CopyChain>) -> OnDrives {
        let status = self.journal.status();
        let lacks = chain.is_none_or(|chain| chain.last < status.changed);
        self.lacks_since = self.lacks_since.or(Some(now)).filter(|_| lacks);
        let wall_ms = (self.store.context.wall)();
        let age = |made_ms: u64| Duration::from_millis(wall_ms.saturating_sub(made_ms));
        let last_ms = copies.iter().filter(|copy| copy.is_sound()).map(|copy| copy.made_ms).max();
        // About as large as the next copy: this only checks that there is room at all.
        let bytes = status.snapshot_bytes.max(1);
        let is_awake =
            move |rack: &Rack, _| rack.awake_with_room(stack::stack_bytes(rack.spec().code, bytes), &[]).is_some();
        let awake = self.world.ask(is_awake).await;
        let leads_on = chain.is_some_and(|chain| status.snapshot.is_some_and(|snapshot| snapshot <= chain.last));
        let on_drives = chain.cloned().unwrap_or_default();
        OnDrives {
            leads_on: leads_on && status.broken.is_none() && !self.gap,
            snapshot_bytes: on_drives.snapshot_bytes,
            snapshot_age: age(on_drives.snapshot_made_ms),
            segments: on_drives.segments,
            batch_bytes: on_drives.segment_bytes.max(status.segment_bytes),
            since_last: last_ms.map_or(now.since(Time::ZERO), age),
            lacks_for: self.lacks_since.map(|since| now.since(since)),
            is_awake: awake.unwrap_or(false),
        }
    }

    /// A snapshot in the journal that is newer than the one on drives, which has the number `known`.
    async fn snapshot(&self, known: Option<Sequence>) -> Result<(Sequence, PathBuf), CopyError> {
        let is_newer = |number: Sequence| known.is_none_or(|known| number > known);
        let leads = self.journal.status().snapshot.filter(|number| is_newer(*number));
        let newest = self.journal.newest_snapshot()?;
        if let Some((number, path)) = newest.filter(|(number, _)| Some(*number) == leads) {
            return Ok((number, path));
        }
        let (catalog, journal) = (self.store.context.catalog.clone(), Arc::clone(&self.journal));
        let now_ms = (self.store.context.wall)();
        in_a_thread(async move { Ok::<_, CopyError>(journal.snapshot(&catalog, now_ms).await?) }).await?;
        self.journal.newest_snapshot()?.ok_or(CopyError::Gap)
    }

    /// Puts the file at `path` as a copy; returns its version and its bytes.
    async fn stage(&self, content: CopyContent, path: PathBuf) -> Result<(VersionId, u64), CopyError> {
        let store = Arc::clone(&self.store);
        in_a_thread(async move {
            let key = content.key();
            let bytes = put(&store, &key, &path).await?;
            let placed = store.context.catalog.placed_objects(&[(CATALOG_BUCKET, &key)]).await?;
            let placed = placed.into_iter().flatten().next().ok_or(CopyError::Unwritten)?;
            Ok((placed.object.version, bytes))
        })
        .await
    }

    /// The groups with snapshots: the next snapshot goes elsewhere, if possible.
    async fn groups_of(&self, copies: &[CatalogCopy]) -> Result<Vec<GroupId>, CopyError> {
        let mut groups = Vec::new();
        for copy in copies.iter().filter(|copy| matches!(copy.content, Some(CopyContent::Snapshot(_)))) {
            let Some(blob) = copy.blob else { continue };
            groups.extend(self.store.context.catalog.blob(blob).await?.map(|blob| blob.group));
        }
        Ok(groups)
    }

    async fn remove(&self, copies: Vec<CatalogCopy>) -> Result<(), CopyError> {
        for copy in copies {
            let displaced = self.store.context.catalog.delete_object(CATALOG_BUCKET, &copy.key).await?;
            self.store.displaced(displaced);
        }
        Ok(())
    }
}

/// Those of `copies` that no recovery needs: newer ones on drives cover them, or they were left in the workshop.
fn superseded(copies: &[CatalogCopy]) -> Vec<CatalogCopy> {
    let numbers = copies.iter().filter_map(|copy| match copy.content {
        Some(CopyContent::Snapshot(number)) if copy.is_sound() => Some(number.0),
        _ => None,
    });
    let chain = chain_of(copies);
    let leads_to = |number: Sequence| chain.as_ref().is_some_and(|chain| number <= chain.last);
    let kept = oldest_kept(&mut numbers.collect::<Vec<_>>());
    let is_superseded = |copy: &&CatalogCopy| match copy.content {
        _ if copy.blob.is_none() => true,
        Some(CopyContent::Snapshot(number) | CopyContent::Segment(_, number)) if copy.lost => leads_to(number),
        Some(CopyContent::Snapshot(number)) => kept.is_some_and(|kept| number.0 < kept),
        Some(CopyContent::Segment(_, last)) => kept.is_some_and(|kept| last.0 <= kept),
        // Of a newer Larder.
        None => false,
    };
    copies.iter().filter(is_superseded).cloned().collect()
}

/// Puts the file at `path` as the object `key` of the bucket of copies; returns its bytes.
async fn put(store: &ObjectService, key: &str, path: &Path) -> Result<u64, CopyError> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let bucket = store.context.catalog.copies_bucket((store.context.wall)()).await?;
    let begun = store.begin_put(&bucket, key, object(bytes), PutCondition::None).await;
    let mut sink = begun.map_err(CopyError::Staged)?;
    let (mut etag, mut crc) = (EtagDigest::default(), Digest::new(CrcAlgorithm::Crc64Nvme));
    let mut left = bytes;
    while left > 0 {
        let mut chunk = vec![0; left.min(CHUNK_BYTES as u64) as usize];
        file.read_exact(&mut chunk)?;
        left -= chunk.len() as u64;
        etag.update(&chunk);
        crc.update(&chunk);
        sink.write(Bytes::from(chunk)).await.map_err(CopyError::Staged)?;
    }
    let base64 = base64_simd::STANDARD.encode_to_string(crc.finalize().to_be_bytes());
    let checksum = Checksum { kind: ChecksumKind::Crc64Nvme, base64 };
    sink.commit(etag.finish(), vec![checksum]).await.map_err(CopyError::Staged)?;
    Ok(bytes)
}

/// The record of a copy of `bytes` bytes, as far as it is known before they are staged.
fn object(bytes: u64) -> Object {
    Object {
        version: VersionId(0),
        bytes,
        etag: String::new(),
        modified_ms: 0,
        created_ms: 0,
        headers: Vec::new(),
        metadata: Vec::new(),
        checksums: Vec::new(),
        acl: Acl::Private,
        tags: Vec::new(),
        parts: PartLengths::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::BlobId;

    fn copy(content: CopyContent, lost: bool) -> CatalogCopy {
        let key = content.key();
        let blob = Some(BlobId::new(1, catalog::copy_nonce(7)));
        CatalogCopy { content: Some(content), key, version: VersionId(1), bytes: 10, made_ms: 5, blob, lost }
    }

    #[test]
    fn a_lost_copy_stays_until_sound_ones_lead_as_far_and_keeps_no_older_one_from_staying() {
        let snapshot = |number| CopyContent::Snapshot(Sequence(number));
        let segment = |before, last| CopyContent::Segment(Sequence(before), Sequence(last));
        let removed = |copies: &[CatalogCopy]| superseded(copies).into_iter().map(|copy| copy.key).collect::<Vec<_>>();
        let lost = [copy(snapshot(10), false), copy(snapshot(20), true), copy(segment(20, 30), true)];
        assert!(removed(&lost).is_empty(), "nothing else leads as far");
        let anew = [&lost[..], &[copy(snapshot(25), false)]].concat();
        assert_eq!(removed(&anew), [snapshot(20).key()]);
        let all = [&anew[..], &[copy(segment(25, 40), false)]].concat();
        assert_eq!(removed(&all), [snapshot(20).key(), segment(20, 30).key()]);
    }
}
