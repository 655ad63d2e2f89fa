//! Evacuation of blobs that are dead for the most part: what still lives in one is copied back to the workshop.
//!
//! Each version leaves the blob only when its copy is durable, so that an evacuation may end anywhere. Its bytes come
//! from the drives through memory (`world/memory_read.rs`); the only file they are written to is the copy itself.

use super::memory_read::MemoryReads;
use super::quarantine::quarantine;
use super::state::World;
use super::state::WorldHandle;
use crate::context::{Context, usage_of};
use crate::error::text;
use catalog::{Blob, Place, PlacedObject, Version, VersionId};
use engine::{Event, PriorityClass, Rejection};
use futures::StreamExt;
use model::BlobId;
use std::ops::Range;
use workshop::{IndexEntry, PACK_FOOTER_BYTES, decode_footer, decode_index};

/// The longest index of a pack that is held in memory: a blob whose pack has a longer one is left as it is.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Members of a blob that are looked up at once.
const PAGE: usize = 256;

impl World {
    pub(super) fn evacuate(&mut self, blob: BlobId) {
        if !self.evacuating.insert(blob) {
            return;
        }
        self.start_with(move |handle, context| async move {
            let reads = MemoryReads::new(context.clone(), handle.clone());
            let evacuation = BlobEvacuation { context: context.clone(), reads, handle: handle.clone() };
            let ran = evacuation.run(blob).await;
            // The copies have to find their way back to the rack, however far this got.
            handle.report(Event::StagingChanged(usage_of(&context)));
            match ran {
                Ok(versions) => tracing::info!(%blob, versions, "evacuated what still lived in a mostly dead blob"),
                Err(error) => {
                    tracing::warn!(%blob, error, "evacuation given up; it is tried again at the group's next wake");
                }
            }
            handle.run(move |world| assert!(world.evacuating.remove(&blob), "an evacuation of {blob} ends once"));
        });
    }
}

/// Copies what lives in a blob back to the workshop, version by version, each of which leaves the blob only when its
/// copy is durable.
struct BlobEvacuation {
    context: Context,
    reads: MemoryReads,
    handle: WorldHandle,
}

impl BlobEvacuation {
    /// The index of the pack says whose each member is; the catalog, which of them still live there.
    async fn run(&self, id: BlobId) -> Result<u64, String> {
        let blob = self.context.catalog.blob(id).await.map_err(text)?.ok_or("the blob is gone")?;
        let index = self.index(&blob).await?;
        let mut copied = 0;
        for page in index.chunks(PAGE) {
            let at: Vec<_> = page.iter().map(|entry| (entry.bucket.as_str(), entry.key.as_str())).collect();
            let found = self.context.catalog.placed_objects(&at).await.map_err(text)?;
            let versions: Vec<VersionId> = page.iter().map(|entry| entry.object.version).collect();
            let quarantined = self.context.catalog.are_unreadable(&versions).await.map_err(text)?;
            for ((entry, found), quarantined) in page.iter().zip(found).zip(quarantined) {
                let place = Place::Stored { blob: id, offset: entry.offset };
                let lives_here =
                    |found: &PlacedObject| (found.place, found.object.version) == (place, entry.object.version);
                if let Some(found) = found.filter(lives_here).filter(|_| !quarantined) {
                    copied += u64::from(self.one(&blob, entry, found.staged_ms).await?);
                }
            }
        }
        Ok(copied)
    }

    async fn index(&self, blob: &Blob) -> Result<Vec<IndexEntry>, String> {
        let end = blob.payload_bytes;
        let footer_at = end.checked_sub(PACK_FOOTER_BYTES as u64).ok_or("it is too short for a pack")?;
        let footer = decode_footer(&self.bytes(blob, footer_at..end).await?).map_err(text)?;
        if footer.payload_bytes() != end {
            return Err("its index is not where it should be".to_owned());
        }
        if footer.index_bytes > INDEX_BYTES_MAX {
            return Err(format!("its index has {} bytes, too many to be held", footer.index_bytes));
        }
        let index = self.bytes(blob, footer.index_offset..footer_at).await?;
        decode_index(&footer, &index).map_err(text)
    }

    async fn bytes(&self, blob: &Blob, range: Range<u64>) -> Result<Vec<u8>, String> {
        let range_bytes = range.end - range.start;
        let mut bytes = Vec::with_capacity(range_bytes as usize);
        let mut stream = self.reads.stream(blob.clone(), range, PriorityClass::Background);
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece.map_err(text)?);
        }
        assert_eq!(bytes.len() as u64, range_bytes, "a stream gives all of its bytes");
        Ok(bytes)
    }

    /// Copies one member and moves it. False if it was gone by then.
    async fn one(&self, blob: &Blob, entry: &IndexEntry, staged_ms: u64) -> Result<bool, String> {
        let bytes = entry.object.bytes;
        let slot = self.context.catalog.next_slot().await.map_err(text)?;
        let room = self.context.staging.reserve(bytes).map_err(text)?;
        let mut writer = self.context.staging.create(slot, room).await.map_err(text)?;
        let range = entry.offset..entry.offset + bytes;
        let mut stream = self.reads.stream(blob.clone(), range, PriorityClass::Background);
        while let Some(piece) = stream.next().await {
            let piece = match piece {
                // Lost, and that is no reason to leave the others where they are.
                Err(reason @ Rejection::DataLost) => {
                    let (bucket, key, version) = (entry.bucket.clone(), entry.key.clone(), entry.object.version);
                    let place = Place::Stored { blob: blob.blob, offset: entry.offset };
                    let found = Version { version, bucket, key, bytes, staged_ms, place };
                    quarantine(&self.context, &found, reason.text()).await;
                    return Ok(false);
                }
                piece => piece.map_err(text)?,
            };
            writer.write(&piece).await.map_err(text)?;
        }
        let staged = writer.finish_for_version(entry.object.version.0).await.map_err(text)?;
        assert_eq!((staged.slot, staged.bytes), (slot, bytes), "the copy that is committed is all that was read");
        let at = (entry.bucket.as_str(), entry.key.as_str());
        let moved = self.context.catalog.restage(at, entry.object.version, blob.blob, slot).await.map_err(text)?;
        match &moved {
            Some(dead) => {
                self.handle.report(Event::SpaceDead { group: dead.group, bytes: dead.bytes });
            }
            None => self.context.staging.free(slot).await.map_err(text)?,
        }
        Ok(moved.is_some())
    }
}
