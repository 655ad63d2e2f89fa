//! Removes stacks that no longer count from a drive that failed and is back.
//!
//! While the drive was away its stacks were rebuilt elsewhere, and blobs were forgotten. At each mount all names on it
//! are listed, until nothing on it is lost any more. A stack that the catalog counts there, lost or not, stays: a
//! rebuild looks for it. A stack is removed if the catalog has it elsewhere, or has assigned its blob's number and no
//! longer knows the blob; its own header must show that it is that stack ([`stack::remove`]).
//!
//! Stacks that cannot be removed or looked up are retried at the next mount. A stack that a rebuild may be writing is
//! checked again when the last lost stack of the drive has its place.
//!
//! Invariants: nothing is removed under a catalog that is older than the rack, and nothing unknown to a catalog that
//! was recovered or was older once; nothing that a rebuild may be writing, and nothing of a blob that was written since
//! the drive came back.

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

/// Sweeps `device`, in the place of `drive`, if it came back and its sweeps are not complete.
pub(super) async fn sweep(context: Context, aiming: Arc<Mutex<()>>, drive: DriveId, device: Arc<dyn Drive>) {
    let blobs_end = match context.catalog.returned_drives().await {
        Ok(returned) => returned.get(&drive).copied(),
        Err(error) => {
            tracing::warn!(%drive, %error, "cannot find out if a drive came back; retrying");
            None
        }
    };
    let Some(blobs_end) = blobs_end.filter(|_| context.catalog_age.may_remove()) else { return };
    let found = Sweep { context: &context, aiming, drive, device, blobs_end };
    match found.run().await {
        Ok(removed) => {
            tracing::info!(%drive, removed, "searched a drive that is back for stacks that are not recorded");
        }
        Err(error) => tracing::warn!(%drive, error, "a drive that is back is searched again when it is mounted"),
    }
}

/// Called when a stack that was lost on `drive` has its place, there or elsewhere. If nothing is lost there any more,
/// sweeps the drive once more.
pub(super) async fn sweep_if_rebuilt(context: Context, aiming: Arc<Mutex<()>>, drive: DriveId, device: Arc<dyn Drive>) {
    let known = async {
        let is_back = context.catalog.returned_drives().await?.contains_key(&drive);
        Ok::<_, CatalogError>(is_back && context.catalog.lost_page(drive, None, 1).await?.blobs.is_empty())
    };
    match known.await {
        Ok(true) => sweep(context, aiming, drive, device).await,
        Ok(false) => {}
        Err(error) => tracing::warn!(%drive, %error, "a drive that is back is searched when it is mounted"),
    }
}

struct Sweep<'a> {
    context: &'a Context,
    aiming: Arc<Mutex<()>>,
    drive: DriveId,
    device: Arc<dyn Drive>,
    /// Blob numbers below this were assigned when the drive came back.
    blobs_end: u64,
}

impl Sweep<'_> {
    /// Returns the number of stacks removed.
    async fn run(&self) -> Result<u64, String> {
        // The blob of a stack that is looked for here may be forgotten right after its check, which leaves the stack
        // behind.
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
            return Err(format!("{left} stacks that are not recorded could not be removed, and {removed} were"));
        }
        if pending == 0 && !looked_for {
            self.end().await.map_err(text)?;
        }
        Ok(removed)
    }

    /// True if some stack on the drive is still lost: it may be rebuilt elsewhere.
    async fn is_something_lost(&self) -> Result<bool, CatalogError> {
        Ok(!self.context.catalog.lost_page(self.drive, None, 1).await?.blobs.is_empty())
    }

    /// Ends the sweeps of the drive, unless some stack on it is lost by now.
    async fn end(&self) -> Result<(), CatalogError> {
        if self.is_something_lost().await? { Ok(()) } else { self.context.catalog.forget_returned(self.drive).await }
    }

    /// True if a stack of a blob that the catalog does not know was not written under a newer catalog. An error if its
    /// header cannot be read.
    async fn is_forgotten(&self, blob: BlobId, index: u8) -> Result<bool, DriveError> {
        let name = stack::stack_name(blob, index);
        let newer = newer::newer_run(self.context, blob, &name, &*self.device).await;
        newer.map(|run| run.is_none())
    }

    /// Removes a stack that no longer counts, and returns the outcome: `None` for a stack that stays,
    /// [`StackOutcome::Unused`] for one that a rebuild may be writing.
    async fn look_at(&self, blob: BlobId, index: u8) -> Result<Option<StackOutcome>, String> {
        let _turn = self.aiming.lock().await;
        let catalog = &self.context.catalog;
        let mut is_left_over = false;
        // The blob may be forgotten between the two lookups of a pass; then the second pass finds it unknown.
        for _pass in 0..2 {
            is_left_over = is_left_over
                || match catalog.known_blobs(&[blob]).await.map_err(text)?.pop() {
                    Some(Known::Blob(_)) => catalog.note_left_over(blob, self.drive, index).await.map_err(text)?,
                    // It stays until its record can be read, perhaps at the next mount.
                    Some(Known::Damaged) => return Ok(Some(StackOutcome::Failed("its record is damaged".to_owned()))),
                    // A catalog that may lack records removes nothing that it does not know.
                    Some(Known::Nothing) if catalog.keeps_unknown().await.map_err(text)? => false,
                    Some(Known::Nothing) => match self.is_forgotten(blob, index).await {
                        Ok(is_forgotten) => is_forgotten,
                        // It stays, and the others are checked.
                        Err(error) => return Ok(Some(StackOutcome::Failed(error.to_string()))),
                    },
                    _ => false,
                };
        }
        let target = RebuildTarget { drive: self.drive, index, spare: false };
        if !is_left_over {
            // A rebuild may be writing it, or has left it: it may still turn out not to count.
            let may_be_left = catalog.rebuild_targets(blob).await.map_err(text)?.contains(&target);
            return Ok(may_be_left.then_some(StackOutcome::Unused));
        }
        let stack = [(index, Arc::clone(&self.device))];
        let outcome = stack::remove(self.context.rack_uuid, blob, &stack).await.pop();
        // The next check records again what is still there.
        catalog.forget_rebuild_targets(blob, &[target]).await.map_err(text)?;
        Ok(outcome)
    }
}
