//! Reclaiming: listing what is doomed in a group, forgetting blobs whose stacks are gone, rescuing what still lives in
//! a blob that is doomed for the most part.

use super::quarantine::quarantine;
use super::{Message, World};
use crate::recall::{RecallError, Recalls};
use catalog::{Blob, Catalog, Cursor, Place, PlacedObject, Version, VersionId};
use engine::{DoomedBlob, Event, Lane, Rejection};
use futures::StreamExt;
use model::{Attempt, BlobId, GroupId, OpId};
use std::ops::Range;
use workshop::{IndexEntry, PACK_FOOTER_BYTES, decode_footer, decode_index};

/// What the catalog said of a group's doomed blobs.
pub(crate) struct DoomedPage {
    pub(crate) blobs: Vec<DoomedBlob>,
    pub(crate) next: Option<Cursor>,
}

/// The longest index of a pack that is held in memory: a blob whose pack has a longer one is left as it is.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Members of a blob that are looked up at once while it is rescued.
const RESCUE_PAGE: usize = 256;

impl World {
    pub(super) fn list_doomed(&self, group: GroupId, attempt: Attempt, limit: u32, restart: bool) {
        let after = if restart { None } else { self.doomed_cursors.get(&group).cloned() };
        let (handle, catalog) = (self.handle.clone(), self.means.catalog.clone());
        self.start(async move {
            let page = match catalog.doomed_page(group, after.as_ref(), limit as usize).await {
                Ok(page) => {
                    let mut blobs = Vec::with_capacity(page.items.len());
                    for doomed in page.items {
                        let readable = !doomed.living || is_readable(&catalog, doomed.blob.blob).await;
                        blobs.push(doomed_blob(doomed, readable));
                    }
                    DoomedPage { blobs, next: page.next }
                }
                Err(error) => {
                    tracing::error!(%group, %error, "doomed blobs could not be listed; they wait for the next wake");
                    DoomedPage { blobs: Vec::new(), next: None }
                }
            };
            handle.send(Message::Doomed { group, attempt, page });
        });
    }

    pub(super) fn doomed_page(&mut self, group: GroupId, attempt: Attempt, page: DoomedPage) {
        let more = page.next.is_some();
        match page.next {
            Some(cursor) => self.doomed_cursors.insert(group, cursor),
            None => self.doomed_cursors.remove(&group),
        };
        // A hold keeps stacks from being removed. It is no reason against a rescue: who woke the group reads what still
        // lives.
        // Nothing is removed for a catalog that is older than the rack: what is dead to it may live in the newer one.
        let may_remove = self.means.lineage.may_remove();
        let stays = |doomed: &DoomedBlob| !may_remove || (!doomed.living && self.means.holds.is_held(doomed.blob));
        let (held, blobs): (Vec<_>, Vec<_>) =
            page.blobs.into_iter().partition(|doomed| stays(doomed) || self.rescuing.contains(&doomed.blob));
        let held_bytes = held.iter().map(|doomed| doomed.doomed_bytes).sum();
        self.apply(Event::DoomedPage { group, attempt, blobs, held_bytes, more });
    }

    /// The stacks of a blob are gone: the catalog forgets it.
    pub(super) fn blob_deleted(&mut self, op: OpId) {
        let Some(blob) = self.deleting.remove(&op) else { return };
        let catalog = self.means.catalog.clone();
        self.start(async move {
            if let Err(error) = catalog.forget_blob(blob).await {
                tracing::error!(
                    %blob, %error,
                    "a reclaimed blob could not be forgotten; it is tried again at the group's next wake"
                );
            }
        });
    }

    pub(super) fn rescue(&mut self, blob: BlobId) {
        if !self.rescuing.insert(blob) {
            return;
        }
        let (handle, means) = (self.handle.clone(), self.means.clone());
        self.start(async move {
            let recalls = Recalls::new(means.clone(), handle.clone());
            let rescue = Rescue { means: means.clone(), recalls, handle: handle.clone() };
            let ran = rescue.run(blob).await;
            // What was copied has to find its way back to the rack, however far this got.
            handle.tell(Event::StagingChanged(super::usage_of(&means)));
            match ran {
                Ok(versions) => tracing::info!(%blob, versions, "rescued what still lived in a mostly doomed blob"),
                Err(error) => {
                    tracing::warn!(%blob, error, "rescue given up; it is tried again at the group's next wake");
                }
            }
            handle.send(Message::Rescued(blob));
        });
    }
}

/// Whether anything that lives in a blob can be read, as far as is known. In doubt, it is tried.
async fn is_readable(catalog: &Catalog, blob: BlobId) -> bool {
    let Ok(page) = catalog.blob_members(blob, None, RESCUE_PAGE).await else { return true };
    let versions: Vec<VersionId> = page.items.iter().map(|member| member.version).collect();
    let quarantined = catalog.are_unreadable(&versions).await;
    page.next.is_some() || quarantined.map_or(true, |quarantined| quarantined.contains(&false))
}

fn doomed_blob(doomed: catalog::Doomed, readable: bool) -> DoomedBlob {
    DoomedBlob {
        blob: doomed.blob.blob,
        drives: doomed.blob.drives,
        lost: doomed.lost,
        stack_bytes: doomed.blob.stack_bytes,
        bytes: doomed.blob.payload_bytes,
        doomed_bytes: doomed.doomed_bytes,
        living: doomed.living,
        readable,
    }
}

/// Copies what lives in a blob back to the workshop, version by version, each of which leaves the blob only when its
/// copy is durable.
struct Rescue {
    means: super::Means,
    recalls: Recalls,
    handle: super::WorldHandle,
}

impl Rescue {
    /// The index of the pack says whose each member is; the catalog, which of them still live there.
    async fn run(&self, id: BlobId) -> Result<u64, String> {
        let blob = self.means.catalog.blob(id).await.map_err(text)?.ok_or("the blob is gone")?;
        let index = self.index(&blob).await?;
        let mut rescued = 0;
        for page in index.chunks(RESCUE_PAGE) {
            let at: Vec<_> = page.iter().map(|entry| (entry.bucket.as_str(), entry.key.as_str())).collect();
            let found = self.means.catalog.placed_objects(&at).await.map_err(text)?;
            let versions: Vec<VersionId> = page.iter().map(|entry| entry.object.version).collect();
            let quarantined = self.means.catalog.are_unreadable(&versions).await.map_err(text)?;
            for ((entry, found), quarantined) in page.iter().zip(found).zip(quarantined) {
                let place = Place::Stored { blob: id, offset: entry.offset };
                let lives_here =
                    |found: &PlacedObject| (found.place, found.object.version) == (place, entry.object.version);
                if let Some(found) = found.filter(lives_here).filter(|_| !quarantined) {
                    rescued += u64::from(self.one(&blob, entry, found.staged_ms).await?);
                }
            }
        }
        Ok(rescued)
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
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut stream = self.recalls.stream(blob.clone(), range, Lane::Background);
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece.map_err(text)?);
        }
        Ok(bytes)
    }

    /// Copies one member and moves it. False if it was gone by then.
    async fn one(&self, blob: &Blob, entry: &IndexEntry, staged_ms: u64) -> Result<bool, String> {
        let bytes = entry.object.bytes;
        let slot = self.means.catalog.next_slot().await.map_err(text)?;
        let room = self.means.staging.reserve(bytes).map_err(text)?;
        let mut writer = self.means.staging.create(slot, room).await.map_err(text)?;
        let range = entry.offset..entry.offset + bytes;
        let mut stream = self.recalls.stream(blob.clone(), range, Lane::Background);
        while let Some(piece) = stream.next().await {
            let piece = match piece {
                // Lost, and that is no reason to leave the others where they are.
                Err(RecallError::Refused(Rejection::DataLost)) => {
                    let (bucket, key, version) = (entry.bucket.clone(), entry.key.clone(), entry.object.version);
                    let place = Place::Stored { blob: blob.blob, offset: entry.offset };
                    let found = Version { version, bucket, key, bytes, staged_ms, place };
                    quarantine(&self.means, &found, crate::recall::told(Rejection::DataLost)).await;
                    return Ok(false);
                }
                piece => piece.map_err(text)?,
            };
            writer.write(&piece).await.map_err(text)?;
        }
        writer.finish_for_version(entry.object.version.0).await.map_err(text)?;
        let at = (entry.bucket.as_str(), entry.key.as_str());
        let moved = self.means.catalog.restage(at, entry.object.version, blob.blob, slot).await.map_err(text)?;
        match &moved {
            Some(doomed) => {
                self.handle.tell(Event::SpaceDoomed { group: doomed.group, bytes: doomed.bytes });
            }
            None => self.means.staging.free(slot).await.map_err(text)?,
        }
        Ok(moved.is_some())
    }
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn text(error: impl ToString) -> String {
    error.to_string()
}
