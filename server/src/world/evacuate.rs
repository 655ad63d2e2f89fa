//! Evacuation of blobs that are mostly dead: their living members are copied back to the workshop.
//!
//! 1. The index of the pack names each member; the catalog knows which of them still live there.
//! 2. Adjacent members are read by one operation, since a group reads whole stripes anyway.
//! 3. Each version leaves the blob only when its copy is durable, so an evacuation may end at any point. Small copies
//!    are made several at a time, which the catalog makes durable with one sync.
//!
//! Their bytes come from the drives through memory (`world/memory_read.rs`); the copy itself is the only file written.
//! None of these reads wakes a group: if it goes to sleep before everything is copied, its next wake continues.

use super::memory_read::MemoryReads;
use super::quarantine::quarantine;
use super::state::World;
use super::state::WorldHandle;
use crate::context::{Context, is_refusal, usage_of};
use bytes::Bytes;
use catalog::{Blob, Place, PlacedObject, Version, VersionId};
use engine::{Event, PriorityClass, Rejection};
use futures::StreamExt;
use futures::future::BoxFuture;
use model::BlobId;
use std::ops::Range;
use workshop::{IndexEntry, PACK_FOOTER_BYTES, StagedWriter, decode_footer, decode_index};

/// The longest pack index that is held in memory: a blob with a longer one is not evacuated.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The bytes of members that are read at once, with the gaps between them.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// Copies of one run that are made durable at once.
const COPIES_AT_ONCE: usize = 32;

/// Members of a blob that are looked up at once.
const PAGE: usize = 256;

impl World {
    pub(super) fn evacuate(&mut self, blob: BlobId) {
        if !self.evacuating.insert(blob) {
            return;
        }
        self.start_with(move |handle, context| async move {
            let reads = MemoryReads::new(context.clone(), handle.clone()).while_awake();
            let evacuation = BlobEvacuation { context: context.clone(), reads, handle: handle.clone() };
            let ran = evacuation.run(blob).await;
            // Even after a partial evacuation the copies must be migrated to the rack again.
            handle.report(Event::StagingChanged(usage_of(&context)));
            match ran {
                Ok(versions) => tracing::info!(%blob, versions, "evacuated the live objects of a mostly dead blob"),
                Err(Ended::Refused(Rejection::Asleep)) => {
                    tracing::info!(%blob, "the live objects of a mostly dead blob are evacuated at the next wake");
                }
                Err(error) => {
                    tracing::warn!(%blob, %error, "evacuation failed; retrying at the group's next wake");
                }
            }
            handle.run(move |world| assert!(world.evacuating.remove(&blob), "an evacuation of {blob} ends once"));
        });
    }
}

/// Copies the living members of a blob back to the workshop.
struct BlobEvacuation {
    context: Context,
    reads: MemoryReads,
    handle: WorldHandle,
}

/// A living member, and when it was first staged, in milliseconds of the Unix epoch.
type Living<'i> = (&'i IndexEntry, u64);

/// Why an evacuation ended early.
#[derive(Debug, thiserror::Error)]
enum Ended {
    /// The group's next wake continues.
    #[error("{}", .0.text())]
    Refused(Rejection),
    #[error("{0}")]
    Failed(String),
}

/// An error that has nothing but its text.
fn failed(error: impl std::fmt::Display) -> Ended {
    Ended::Failed(error.to_string())
}

/// Adjacent members that are read at once: with gaps of at most `gap_bytes`, and [`RUN_BYTES_MAX`] in all.
fn runs<'r, 'i>(living: &'r [Living<'i>], gap_bytes: u64) -> Vec<&'r [Living<'i>]> {
    let mut runs = Vec::new();
    let (mut rest, mut length) = (living, 0);
    while let Some((first, _)) = rest.first() {
        while let Some((next, _)) = rest.get(length)
            && (length == 0 || next.offset - end_of(rest[length - 1].0) <= gap_bytes)
            && (length == 0 || end_of(next) - first.offset <= RUN_BYTES_MAX)
        {
            length += 1;
        }
        let (run, behind) = rest.split_at(length);
        runs.push(run);
        (rest, length) = (behind, 0);
    }
    runs
}

/// The end of a member in its payload.
fn end_of(entry: &IndexEntry) -> u64 {
    entry.offset + entry.object.bytes
}

impl BlobEvacuation {
    /// Copies all living members of the blob; returns the number of versions copied.
    async fn run(&self, id: BlobId) -> Result<u64, Ended> {
        let blob = self.context.catalog.blob(id).await.map_err(failed)?;
        let blob = blob.ok_or_else(|| failed("the blob is gone"))?;
        let index = self.index(&blob).await?;
        let mut copied = 0;
        for page in index.chunks(PAGE) {
            let living = self.living(&blob, page).await?;
            for run in runs(&living, blob.code().stripe_bytes()) {
                copied += self.copy(&blob, run).await?;
            }
        }
        Ok(copied)
    }

    /// The members in `page` that live in the blob and can be read, as far as is known.
    async fn living<'i>(&self, blob: &Blob, page: &'i [IndexEntry]) -> Result<Vec<Living<'i>>, Ended> {
        let at: Vec<_> = page.iter().map(|entry| (entry.bucket.as_str(), entry.key.as_str())).collect();
        let found = self.context.catalog.placed_objects(&at).await.map_err(failed)?;
        let versions: Vec<VersionId> = page.iter().map(|entry| entry.object.version).collect();
        let quarantined = self.context.catalog.are_unreadable(&versions).await.map_err(failed)?;
        let living = page.iter().zip(found).zip(quarantined).filter_map(|((entry, found), quarantined)| {
            let place = Place::Stored { blob: blob.blob, offset: entry.offset };
            let lives_here =
                |found: &PlacedObject| (found.place, found.object.version) == (place, entry.object.version);
            Some((entry, found.filter(lives_here).filter(|_| !quarantined)?.staged_ms))
        });
        Ok(living.collect())
    }

    async fn index(&self, blob: &Blob) -> Result<Vec<IndexEntry>, Ended> {
        let end = blob.payload_bytes;
        let footer_at =
            end.checked_sub(PACK_FOOTER_BYTES as u64).ok_or_else(|| failed("it is too short for a pack"))?;
        let footer = decode_footer(&self.bytes(blob, footer_at..end).await?).map_err(failed)?;
        if footer.payload_bytes() != end {
            return Err(failed("its index is not where it should be"));
        }
        if footer.index_bytes > INDEX_BYTES_MAX {
            return Err(failed(format_args!("its index has {} bytes, too many for the memory", footer.index_bytes)));
        }
        let index = self.bytes(blob, footer.index_offset..footer_at).await?;
        decode_index(&footer, &index).map_err(failed)
    }

    async fn bytes(&self, blob: &Blob, range: Range<u64>) -> Result<Vec<u8>, Ended> {
        let range_bytes = range.end - range.start;
        let mut bytes = Vec::with_capacity(range_bytes as usize);
        let mut stream = self.reads.stream(blob.clone(), range, PriorityClass::Background);
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece.map_err(Ended::Refused)?);
        }
        assert_eq!(bytes.len() as u64, range_bytes, "a stream gives all of its bytes");
        Ok(bytes)
    }

    /// Copies the members of a run and moves them; returns the number that had not gone elsewhere meanwhile.
    async fn copy(&self, blob: &Blob, run: &[Living<'_>]) -> Result<u64, Ended> {
        if let [(only, staged_ms)] = run {
            return Ok(u64::from(self.one(blob, only, *staged_ms).await?));
        }
        let range = run[0].0.offset..run.iter().map(|(entry, _)| end_of(entry)).max().unwrap_or(0);
        let mut copied = 0;
        let begin = range.start;
        let bytes = match self.bytes(blob, range).await {
            Ok(bytes) => Bytes::from(bytes),
            // Some data is lost; copy the other members one by one.
            Err(Ended::Refused(Rejection::DataLost)) => {
                for (entry, staged_ms) in run {
                    copied += u64::from(self.one(blob, entry, *staged_ms).await?);
                }
                return Ok(copied);
            }
            Err(error) => return Err(error),
        };
        let mut copies: Vec<BoxFuture<'_, Result<bool, Ended>>> = Vec::with_capacity(run.len());
        for (entry, _) in run {
            let of_it = bytes.slice((entry.offset - begin) as usize..(end_of(entry) - begin) as usize);
            copies.push(Box::pin(self.of_memory(blob, entry, of_it)));
        }
        // All copies finish, even if one of them fails.
        let copies = futures::stream::iter(copies).buffer_unordered(COPIES_AT_ONCE);
        let moved: Vec<Result<bool, Ended>> = copies.collect().await;
        for moved in moved {
            copied += u64::from(moved?);
        }
        Ok(copied)
    }

    /// Copies one member from `bytes` and moves it. False if it was gone by then.
    async fn of_memory(&self, blob: &Blob, entry: &IndexEntry, bytes: Bytes) -> Result<bool, Ended> {
        let (slot, mut writer) = self.begin_copy(entry).await?;
        writer.write(&bytes).await.map_err(failed)?;
        self.end_copy(blob, entry, slot, writer).await
    }

    /// Copies one member and moves it. False if it was gone by then.
    async fn one(&self, blob: &Blob, entry: &IndexEntry, staged_ms: u64) -> Result<bool, Ended> {
        let (slot, mut writer) = self.begin_copy(entry).await?;
        let mut stream = self.reads.stream(blob.clone(), entry.offset..end_of(entry), PriorityClass::Background);
        while let Some(piece) = stream.next().await {
            let piece = match piece {
                Err(reason @ Rejection::DataLost) => {
                    let (bucket, key, version) = (entry.bucket.clone(), entry.key.clone(), entry.object.version);
                    let place = Place::Stored { blob: blob.blob, offset: entry.offset };
                    let found = Version { version, bucket, key, bytes: entry.object.bytes, staged_ms, place };
                    quarantine(&self.context, &found, reason.text()).await;
                    return Ok(false);
                }
                piece => piece.map_err(Ended::Refused)?,
            };
            writer.write(&piece).await.map_err(failed)?;
        }
        self.end_copy(blob, entry, slot, writer).await
    }

    /// The slot of a member's copy, and its writer. A writer that is dropped leaves nothing.
    async fn begin_copy(&self, entry: &IndexEntry) -> Result<(u64, StagedWriter), Ended> {
        let Context { catalog, staging, small, .. } = &self.context;
        let room = staging.reserve(entry.object.bytes).map_err(failed)?;
        let slot = catalog.next_slot().await.map_err(failed)?;
        if let Some(small) = small {
            small.admit(catalog, slot, entry.object.bytes);
        }
        let created = staging.create(slot, room).await;
        if let Some(small) = small.as_ref().filter(|_| created.is_err()) {
            small.files.settled(slot);
        }
        Ok((slot, created.map_err(failed)?))
    }

    /// Makes a copy durable, and moves the member there. False if it was gone by then.
    async fn end_copy(&self, blob: &Blob, entry: &IndexEntry, slot: u64, writer: StagedWriter) -> Result<bool, Ended> {
        let Context { catalog, staging, small, .. } = &self.context;
        let (at, version) = ((entry.bucket.as_str(), entry.key.as_str()), entry.object.version);
        let staged = writer.finish_for_version(version.0).await.map_err(failed)?;
        assert_eq!((staged.slot, staged.bytes), (slot, entry.object.bytes), "what is committed is all that was read");
        let moved = match small.as_ref().and_then(|small| Some((small, small.files.payload(slot)?))) {
            Some((small, bytes)) => {
                let moved = catalog.restage_logged(at, version, blob.blob, (slot, bytes)).await;
                if !matches!(moved, Ok(None)) {
                    small.settle(slot, &moved);
                }
                moved
            }
            None => catalog.restage(at, version, blob.blob, slot).await,
        };
        match &moved {
            Ok(Some(dead)) => self.handle.report(Event::SpaceDead { group: dead.group, bytes: dead.bytes }),
            // Gone by then, or certainly not moved. After any other error it may have moved, so the copy stays.
            Ok(None) => staging.free(slot).await.map_err(failed)?,
            Err(error) if is_refusal(error) => staging.free(slot).await.map_err(failed)?,
            Err(_) => {}
        }
        Ok(moved.map_err(failed)?.is_some())
    }
}
