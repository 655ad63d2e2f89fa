//! Reclaiming: lists the dead bytes of a group, and forgets blobs whose stacks are gone.

use super::state::World;
use catalog::{Blob, Catalog, Cursor, VersionId};
use engine::{BlobWithDead, Event};
use model::sabotage::{Sabotage, is_on};
use model::{Attempt, BlobId, GroupId, OpId};

/// Members of a blob that are looked up to find out if any of them can be read.
const MEMBERS_LOOKED_AT: usize = 256;

impl World {
    pub(super) fn list_dead(&self, group: GroupId, attempt: Attempt, limit: u32, restart: bool) {
        let after = if restart { None } else { self.dead_cursors.get(&group).cloned() };
        let (handle, catalog) = (self.handle.clone(), self.context.catalog.clone());
        self.start(async move {
            let page = match catalog.dead_page(group, after.as_ref(), limit as usize).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(%group, %error, "dead blobs could not be listed; they wait for the next wake");
                    return handle.report(Event::DeadUnlisted { group, attempt });
                }
            };
            let mut blobs = Vec::with_capacity(page.items.len());
            for dead in page.items {
                let readable = !dead.living || is_readable(&catalog, dead.blob.blob).await;
                blobs.push(dead_blob(dead, readable));
            }
            handle.run(move |world| world.dead_page((group, attempt), blobs, page.damaged_bytes, page.next));
        });
    }

    fn dead_page(
        &mut self,
        (group, attempt): (GroupId, Attempt),
        blobs: Vec<BlobWithDead>,
        damaged_bytes: u64,
        next: Option<Cursor>,
    ) {
        let more = next.is_some();
        match next {
            Some(cursor) => self.dead_cursors.insert(group, cursor),
            None => self.dead_cursors.remove(&group),
        };
        // A hold keeps stacks from being removed. It does not prevent an evacuation: the read that woke the group may
        // hold a blob for its living objects. For a catalog that is older than the rack nothing is removed: data that
        // is dead to it may live in the newer one.
        let may_remove = self.context.catalog_age.may_remove();
        let stays = |dead: &BlobWithDead| !may_remove || (!dead.living && self.is_read(dead.blob));
        let (held, blobs): (Vec<_>, Vec<_>) =
            blobs.into_iter().partition(|dead| stays(dead) || self.evacuating.contains(&dead.blob));
        let held_bytes = held.iter().fold(damaged_bytes, |sum, dead| sum.saturating_add(dead.dead_bytes));
        self.apply(Event::DeadPage { group, attempt, blobs, held_bytes, more });
    }

    fn is_read(&self, blob: BlobId) -> bool {
        self.context.holds.is_held(blob) && !is_on(Sabotage::HoldIgnored)
    }

    /// Forgets a blob in the catalog after its stacks were removed.
    pub(super) fn blob_deleted(&mut self, op: OpId) {
        let Some(blob) = self.deleting.remove(&op) else { return };
        let (handle, catalog) = (self.handle.clone(), self.context.catalog.clone());
        self.start(async move {
            let Err(error) = catalog.forget_blob(blob).await else { return };
            tracing::error!(
                %blob, %error,
                "could not remove the record of a reclaimed blob; retrying at the group's next wake"
            );
            // For the engine it is gone and uses no room, so it is reported again.
            if let Ok(Some(kept)) = catalog.blob(blob).await {
                let lost = catalog.lost_of(&kept).await.unwrap_or_default();
                let Blob { group, drives, stack_bytes, payload_bytes: bytes, .. } = kept;
                handle.report(Event::DeadStacks { drives, lost, stack_bytes });
                handle.report(Event::DeadKept { group, bytes });
            }
        });
    }
}

/// True if anything that lives in a blob may be readable; also in doubt.
async fn is_readable(catalog: &Catalog, blob: BlobId) -> bool {
    let Ok(page) = catalog.blob_members(blob, None, MEMBERS_LOOKED_AT).await else { return true };
    let versions: Vec<VersionId> = page.items.iter().map(|member| member.version).collect();
    let quarantined = catalog.are_unreadable(&versions).await;
    page.next.is_some() || quarantined.map_or(true, |quarantined| quarantined.contains(&false))
}

fn dead_blob(dead: catalog::DeadRecord, readable: bool) -> BlobWithDead {
    BlobWithDead {
        blob: dead.blob.blob,
        drives: dead.blob.drives,
        lost: dead.lost,
        stack_bytes: dead.blob.stack_bytes,
        bytes: dead.blob.payload_bytes,
        dead_bytes: dead.dead_bytes,
        living: dead.living,
        readable,
    }
}
