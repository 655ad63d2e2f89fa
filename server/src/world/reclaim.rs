//! Reclaiming: listing the dead bytes of a group, and forgetting blobs whose stacks are gone.

use super::{Message, World};
use catalog::{Catalog, Cursor, VersionId};
use engine::{DoomedBlob, Event};
use model::{Attempt, BlobId, GroupId, OpId};

/// What the catalog said of a group's doomed blobs.
pub(crate) struct DoomedPage {
    pub(crate) blobs: Vec<DoomedBlob>,
    pub(crate) next: Option<Cursor>,
}

/// Members of a blob that are looked up to tell whether any of them can be read.
const MEMBERS_LOOKED_AT: usize = 256;

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
        // A hold keeps stacks from being removed. It is no reason against an evacuation: who woke the group reads
        // what still lives.
        // Nothing is removed for a catalog that is older than the rack: what is dead to it may live in the newer one.
        let may_remove = self.means.lineage.may_remove();
        let stays = |doomed: &DoomedBlob| !may_remove || (!doomed.living && self.means.holds.is_held(doomed.blob));
        let (held, blobs): (Vec<_>, Vec<_>) =
            page.blobs.into_iter().partition(|doomed| stays(doomed) || self.evacuating.contains(&doomed.blob));
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
}

/// Whether anything that lives in a blob can be read, as far as is known. In doubt, it is tried.
async fn is_readable(catalog: &Catalog, blob: BlobId) -> bool {
    let Ok(page) = catalog.blob_members(blob, None, MEMBERS_LOOKED_AT).await else { return true };
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
