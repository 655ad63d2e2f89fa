//! What lies on a drive that failed and is back, and that nobody counts any more.
//!
//! While it was away its stacks were rebuilt elsewhere, and blobs were forgotten. When it is mounted, all names on it
//! are listed, until nothing on it is lost any more; what the catalog counts there, lost or not, stays: a rebuild looks
//! for it. A stack of a blob that the catalog has elsewhere, or has given a number and knows no more, is removed, if
//! its own header shows that it is that one ([`stack::remove`]).
//!
//! What cannot be removed, or looked up, is tried again at the next mount. What a rebuild may be writing is looked at
//! again when the last stack that was lost there has its place.
//!
//! Invariants: nothing is removed under a catalog that is older than the rack, and nothing that is unknown to one that
//! was recovered or was older once; nothing that a rebuild may be writing,
//! and nothing of a blob that was written since the drive came back.

use super::newer;
use crate::context::Context;
use crate::error::text;
use catalog::{CatalogError, Known, RebuildTarget};
use disk::stack::{self, StackOutcome};
use disk::{Drive, DriveError};
use model::sabotage::{Sabotage, is_on};
use model::{BlobId, DriveId};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Looks through `device`, in the place of `drive`, if it came back and was not looked through.
pub(super) async fn sweep(context: Context, aiming: Arc<Mutex<()>>, drive: DriveId, device: Arc<dyn Drive>) {
    let blobs_end = match context.catalog.returned_drives().await {
        Ok(returned) => returned.get(&drive).copied(),
        Err(error) => {
            tracing::warn!(%drive, %error, "it is not known whether a drive came back; it is looked up again");
            None
        }
    };
    let Some(blobs_end) = blobs_end.filter(|_| context.catalog_age.may_remove()) else { return };
    let found = Sweep { context: &context, aiming, drive, device, blobs_end };
    match found.run().await {
        Ok(removed) => {
            tracing::info!(%drive, removed, "a drive that is back was looked through for what nobody counts");
        }
        Err(error) => tracing::warn!(%drive, error, "a drive that is back is looked through again when it is mounted"),
    }
}

/// A stack that was lost on `drive` has its place, there or elsewhere: if nothing is lost there any more, the drive is
/// looked through once more.
pub(super) async fn sweep_if_rebuilt(context: Context, aiming: Arc<Mutex<()>>, drive: DriveId, device: Arc<dyn Drive>) {
    let known = async {
        let is_back = context.catalog.returned_drives().await?.contains_key(&drive);
        Ok::<_, CatalogError>(is_back && context.catalog.lost_page(drive, None, 1).await?.blobs.is_empty())
    };
    match known.await {
        Ok(true) => sweep(context, aiming, drive, device).await,
        Ok(false) => {}
        Err(error) => tracing::warn!(%drive, %error, "a drive that is back is looked through when it is mounted"),
    }
}

struct Sweep<'a> {
    context: &'a Context,
    aiming: Arc<Mutex<()>>,
    drive: DriveId,
    device: Arc<dyn Drive>,
    /// Numbers of blobs below this were given out when it came back.
    blobs_end: u64,
}

impl Sweep<'_> {
    /// How many stacks were removed.
    async fn run(&self) -> Result<u64, String> {
        // A blob whose stack is looked for here may be forgotten right after it was looked at, with that left behind.
        let looked_for = self.is_something_lost().await.map_err(text)?;
        let names = self.device.list().await.map_err(text)?;
        let (mut removed, mut left, mut pending) = (0, 0, 0);
        for (blob, index) in names.iter().filter_map(stack::stack_of) {
            if blob.number >= self.blobs_end || is_on(Sabotage::LeftOversForgotten) {
                continue;
            }
            match self.look_at(blob, index).await? {
                None => {}
                Some(StackOutcome::Unused) => pending += 1,
                Some(StackOutcome::Fine) => removed += 1,
                Some(_) => left += 1,
            }
        }
        if left > 0 {
            return Err(format!("{left} stacks that nobody counts could not be removed, and {removed} were"));
        }
        if pending == 0 && !looked_for {
            self.end().await.map_err(text)?;
        }
        Ok(removed)
    }

    /// True if something on it is still to be looked for: that may be rebuilt elsewhere.
    async fn is_something_lost(&self) -> Result<bool, CatalogError> {
        Ok(!self.context.catalog.lost_page(self.drive, None, 1).await?.blobs.is_empty())
    }

    /// It is looked through no more, unless something on it is lost by now.
    async fn end(&self) -> Result<(), CatalogError> {
        if self.is_something_lost().await? { Ok(()) } else { self.context.catalog.forget_returned(self.drive).await }
    }

    /// Whether a stack of a blob that the catalog does not know was not written under another catalog. An error if its
    /// header cannot be read, which says so.
    async fn is_forgotten(&self, blob: BlobId, index: u8) -> Result<bool, DriveError> {
        let name = stack::stack_name(blob, index);
        let newer = newer::newer_run(self.context, blob, &name, &*self.device).await;
        newer.map(|run| run.is_none())
    }

    /// Removes a stack that nobody counts, and says how that went. None of one that stays.
    async fn look_at(&self, blob: BlobId, index: u8) -> Result<Option<StackOutcome>, String> {
        let _turn = self.aiming.lock().await;
        let catalog = &self.context.catalog;
        let mut is_left_over = false;
        // The blob may be forgotten between the two looks at it: then the second pass finds nothing.
        for _pass in 0..2 {
            is_left_over = is_left_over
                || match catalog.known_blobs(&[blob]).await.map_err(text)?.pop() {
                    Some(Known::Blob(_)) => catalog.note_left_over(blob, self.drive, index).await.map_err(text)?,
                    // It stays until its record can be read, which may be at the next mount.
                    Some(Known::Damaged) => return Ok(Some(StackOutcome::Failed("its record is damaged".to_owned()))),
                    // A catalog that may lack something removes nothing that it does not know.
                    Some(Known::Nothing) if catalog.keeps_unknown().await.map_err(text)? => false,
                    Some(Known::Nothing) => match self.is_forgotten(blob, index).await {
                        Ok(is_forgotten) => is_forgotten,
                        // It stays, and the others are looked at.
                        Err(error) => return Ok(Some(StackOutcome::Failed(error.to_string()))),
                    },
                    _ => false,
                };
        }
        let target = RebuildTarget { drive: self.drive, index, spare: false };
        if !is_left_over {
            // A rebuild may be writing it, or has left it: that may still come to nothing.
            let may_be_left = catalog.rebuild_targets(blob).await.map_err(text)?.contains(&target);
            return Ok(may_be_left.then_some(StackOutcome::Unused));
        }
        let stack = [(index, Arc::clone(&self.device))];
        let outcome = stack::remove(self.context.rack_uuid, blob, &stack).await.pop();
        // What is still there is noted anew by the next look.
        catalog.forget_rebuild_targets(blob, &[target]).await.map_err(text)?;
        Ok(outcome)
    }
}
