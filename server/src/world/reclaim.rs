//! Reclaiming: listing what is doomed in a group, forgetting blobs whose stacks are gone, rescuing what still lives in
//! a blob that is doomed for the most part.

use super::{Message, World};
use crate::recall::Recalls;
use catalog::{Blob, Cursor, Place, VersionId};
use engine::{DoomedBlob, Event, Lane};
use futures::StreamExt;
use model::{Attempt, BlobId, GroupId, OpId};

/// What the catalog said of a group's doomed blobs.
pub(crate) struct DoomedPage {
    pub(crate) blobs: Vec<DoomedBlob>,
    pub(crate) next: Option<Cursor>,
}

/// Versions of a blob that are read at once while it is rescued.
const RESCUE_PAGE: usize = 256;

impl World {
    pub(super) fn list_doomed(&self, group: GroupId, attempt: Attempt, limit: u32, restart: bool) {
        let after = if restart { None } else { self.doomed_cursors.get(&group).cloned() };
        let (handle, catalog) = (self.handle.clone(), self.means.catalog.clone());
        self.start(async move {
            let page = match catalog.doomed_page(group, after.as_ref(), limit as usize).await {
                Ok(page) => DoomedPage { blobs: page.items.into_iter().map(doomed_blob).collect(), next: page.next },
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
        let stays = |doomed: &DoomedBlob| !doomed.living && self.means.holds.is_held(doomed.blob);
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

fn doomed_blob(doomed: catalog::Doomed) -> DoomedBlob {
    DoomedBlob {
        blob: doomed.blob.blob,
        drives: doomed.blob.drives,
        stack_bytes: doomed.blob.stack_bytes,
        bytes: doomed.blob.payload_bytes,
        doomed_bytes: doomed.doomed_bytes,
        living: doomed.living,
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
    async fn run(&self, id: BlobId) -> Result<u64, String> {
        let blob = self.means.catalog.blob(id).await.map_err(text)?.ok_or("the blob is gone")?;
        let mut rescued = 0;
        let mut after: Option<Cursor> = None;
        loop {
            let page = self.means.catalog.blob_members(id, after.as_ref(), RESCUE_PAGE).await.map_err(text)?;
            for member in page.items {
                rescued += u64::from(self.one(&blob, member.version, member.offset, member.bytes).await?);
            }
            after = page.next;
            if after.is_none() {
                return Ok(rescued);
            }
        }
    }

    /// Copies one version and moves it. False if it was gone by then.
    async fn one(&self, blob: &Blob, version: VersionId, offset: u64, bytes: u64) -> Result<bool, String> {
        let lies_here = |place| matches!(place, Place::Stored { blob: id, .. } if id == blob.blob);
        let found = self.means.catalog.version(version).await.map_err(text)?;
        if !found.is_some_and(|found| lies_here(found.place)) {
            return Ok(false);
        }
        let slot = self.means.catalog.next_slot().await.map_err(text)?;
        let room = self.means.staging.reserve(bytes).map_err(text)?;
        let mut writer = self.means.staging.create(slot, room).await.map_err(text)?;
        let mut stream = self.recalls.stream(blob.clone(), offset..offset + bytes, Lane::Background);
        while let Some(piece) = stream.next().await {
            writer.write(&piece.map_err(text)?).await.map_err(text)?;
        }
        writer.finish().await.map_err(text)?;
        let doomed = self.means.catalog.restage(version, blob.blob, slot).await.map_err(text)?;
        match &doomed {
            Some(doomed) => {
                self.handle.tell(Event::SpaceDoomed { group: doomed.group, bytes: doomed.bytes });
            }
            None => self.means.staging.free(slot).await.map_err(text)?,
        }
        Ok(doomed.is_some())
    }
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn text(error: impl ToString) -> String {
    error.to_string()
}
