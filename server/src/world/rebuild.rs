//! Rebuilding the stacks of a failed drive: lists them, regenerates one stack at a time, and records its new place in
//! the catalog.
//!
//! A stack that a scrub found damaged is regenerated as a *spare* beside it. Once it was read back, the spare replaces
//! the stack in one step of the file system, so at no moment is there less data than before. A stack on a good drive
//! that is retired is copied; a stack on a drive that came back is first looked for where it was.
//!
//! Before a stack is written, the catalog records its target. A stack that a crash, or a failed write of the catalog,
//! left there is removed before the next rebuild of the blob, or along with the blob.

use super::operation::{Operation, Rebuild};
use super::outcome::{described, drive_outcomes, policy_of};
use super::returned;
use super::state::World;
use crate::context::Context;
use catalog::{Blob, Catalog, CatalogError, RebuildTarget};
use disk::Drive;
use disk::stack::{self, Lost, StackOutcome};
use engine::{BlobOnDrive, Event, Transfer};
use model::{Attempt, BlobId, DriveId, OpId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl World {
    pub(super) fn list_on_drive(&self, drive: DriveId, attempt: Attempt, after: Option<BlobId>, limit: u32) {
        let (handle, catalog) = (self.handle.clone(), self.context.catalog.clone());
        self.start(async move {
            handle.report(match page_on_drive(&catalog, drive, after, limit).await {
                Ok((blobs, next)) => Event::OnDrivePage { drive, attempt, blobs, next },
                Err(error) => {
                    tracing::error!(%drive, %error, "could not list the data of a failed drive; retrying");
                    Event::OnDriveUnlisted { drive, attempt }
                }
            });
        });
    }

    pub(super) fn regenerate(&mut self, op: OpId, attempt: Attempt, transfer: Transfer) {
        let itself = transfer.itself();
        let Transfer::Rebuild { blob, drives, lost, stacks, policy, target, spare, .. } = transfer else { return };
        let returns = !spare && drives[usize::from(lost)] == target;
        let rebuild = Rebuild { index: lost, in_place: spare, returns, written: None };
        self.operations.insert(op, Operation::Rebuild(rebuild));
        let is_source = |(index, drive): &(u8, DriveId)| *index != lost && *drive != target;
        assert!(itself.is_some() || stacks.iter().all(is_source), "what is lost is no source");
        let mut sources = self.with_drives(&stacks);
        let in_service = self.in_service();
        let device = self.drive(target);
        let (handle, context, aiming) = (self.handle.clone(), self.context.clone(), Arc::clone(&self.aiming));
        let asked: Vec<DriveId> = stacks.iter().map(|(_, drive)| *drive).chain([target]).collect();
        self.start(async move {
            let how = Aim { index: lost, target, spare, looks: itself == Some(target) };
            let turn = aiming.lock().await;
            let aimed = aim(&context, &in_service, (blob, &drives), how).await;
            drop(turn);
            let aimed = match aimed {
                Ok(found) => found,
                Err(error) => {
                    tracing::error!(%blob, %error, "the catalog cannot record where a blob's stack is rebuilt");
                    None
                }
            };
            let Some(mut found) = aimed else {
                // The blob is gone, or stored elsewhere: no drive was asked to read or to write.
                let event = Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() };
                handle.report(event);
                return;
            };
            found.drives[usize::from(lost)] = target;
            assert!(
                found.drives.iter().filter(|drive| **drive == target).count() == 1,
                "a drive holds one of its stacks"
            );
            // Under a newer catalog it may be there already, and count.
            let replaces = context.catalog_age.may_remove();
            let described = described(&context, &found);
            let order = Lost { index: lost, drives: found.drives.clone(), target: device, replaces, beside: spare };
            let report = match (itself, sources.pop()) {
                (Some(drive), _) if drive == target => stack::look(described, lost, &order.target).await,
                (Some(_), Some((_, source))) => stack::copy(described, source, order).await,
                (_, last) => {
                    sources.extend(last);
                    stack::rebuild(described, sources, policy_of(policy), order).await
                }
            };
            let outcomes = drive_outcomes(&context, &asked, report.outcomes);
            let written = match report.result {
                Ok(written) => Some((found, written.payload_crc64)),
                Err(error) => {
                    tracing::warn!(%blob, %error, "a stack could not be rebuilt");
                    None
                }
            };
            let event = Event::TransferEnded { op, attempt, done: written.is_some(), outcomes };
            handle.run(move |world| world.rebuilt(op, written, event));
        });
    }

    /// Records the result of a rebuild: the blob with the stack's new place, and the checksum of its payload, if it
    /// succeeded.
    fn rebuilt(&mut self, op: OpId, written: Option<(Blob, u64)>, event: Event) {
        if let Some(Operation::Rebuild(rebuild)) = self.operations.get_mut(&op) {
            rebuild.written = written;
        }
        self.apply(event);
    }

    /// Reads back the stack that a rebuild wrote, and removes it if that fails. A stack that returns to its own place
    /// is removed only if it is wrong: it may be the last one that its blob has left by now, and it is looked for
    /// before it is written again.
    pub(super) fn verify_rebuilt(&self, op: OpId, attempt: Attempt, rebuild: &Rebuild, target: DriveId) {
        let Rebuild { index, in_place, returns, written: Some((blob, payload_crc64)) } = rebuild.clone() else {
            panic!("{op} is read back, and was not rebuilt");
        };
        let device = self.drive(target);
        self.start_with(move |handle, context| async move {
            let described = described(&context, &blob);
            let outcome = if in_place {
                stack::verify_spare(described, index, &device, payload_crc64).await
            } else {
                stack::verify_stack(described, index, &device, payload_crc64).await
            };
            let done = outcome == StackOutcome::Fine;
            let stays = returns && outcome != StackOutcome::StackBad;
            if !done {
                tracing::error!(blob = %blob.blob, drive = %target, stays, "a rebuilt stack reads back differently");
            }
            if !done && !stays {
                if in_place {
                    stack::remove_spare(context.rack_uuid, blob.blob, index, &*device).await;
                } else {
                    stack::remove(context.rack_uuid, blob.blob, &[(index, device)]).await;
                }
            }
            let outcomes = drive_outcomes(&context, &[target], vec![outcome]);
            handle.report(Event::TransferEnded { op, attempt, done, outcomes });
        });
    }

    pub(super) fn move_stack(
        &self,
        (op, attempt): (OpId, Attempt),
        (blob, index): (BlobId, u8),
        [from, to]: [DriveId; 2],
        removes: bool,
    ) {
        let Some(Operation::Rebuild(rebuild)) = self.operations.get(&op) else {
            panic!("{op} is counted, and was not rebuilt")
        };
        let Rebuild { in_place, written: Some((written, _)), .. } = rebuild else {
            panic!("{op} is counted, and was not rebuilt");
        };
        let lies = (written.blob, written.drives.get(usize::from(index)));
        assert_eq!(lies, (blob, Some(&to)), "the stack that is counted is the one that was written");
        let device = self.drive(to);
        if *in_place {
            return self.put_in_place((op, attempt), (written.clone(), index), device);
        }
        let (handle, context, in_service) = (self.handle.clone(), self.context.clone(), self.in_service());
        let (aiming, back) = (Arc::clone(&self.aiming), self.drive(from));
        self.start(async move {
            let counted = count_moved(&context, (blob, index), [from, to]).await;
            let done = match counted {
                Ok(true) => {
                    // A drive that is back may still have the stack, though it was not found there.
                    if removes || (from != to && !in_service.has_failed(from)) {
                        remove_moved(&context, &in_service, blob).await;
                    }
                    true
                }
                Ok(false) => {
                    tracing::info!(%blob, "a blob was removed while a stack of it was rebuilt");
                    stack::remove(context.rack_uuid, blob, &[(index, device)]).await;
                    false
                }
                // The move may have taken effect or not. A stack that the catalog counts must stay; one that it does
                // not count is recorded as left there.
                Err(error) => {
                    tracing::error!(%blob, %error, "could not record a rebuilt stack; it is rebuilt again");
                    false
                }
            };
            handle.report(Event::StackMoved { op, attempt, done });
            if done && !in_service.has_failed(from) {
                returned::sweep_if_rebuilt(context, aiming, from, back).await;
            }
        });
    }
}

/// Counts stack `index` of `blob`, which was on `from`, on `to`. False if the blob is gone or stored elsewhere.
///
/// # Errors
/// The catalog's, unless it shows the stack on `to`: then the failed commit took effect, and the engine must count what
/// the catalog counts.
async fn count_moved(
    context: &Context,
    (blob, index): (BlobId, u8),
    [from, to]: [DriveId; 2],
) -> Result<bool, CatalogError> {
    let counted = if from == to {
        context.catalog.count_returned(blob, index, to).await
    } else {
        context.catalog.move_stack(blob, index, [from, to]).await
    };
    let Err(error) = &counted else { return counted };
    if !lies_on(context, blob, index, to).await {
        return counted;
    }
    tracing::warn!(%blob, %error, "a rebuilt stack is recorded, although the catalog answered with an error");
    Ok(true)
}

/// True if the catalog shows stack `index` of `blob` on `drive`, and counts it there.
async fn lies_on(context: &Context, blob: BlobId, index: u8, drive: DriveId) -> bool {
    let found = context.catalog.blob(blob).await.ok().flatten();
    let lies = found.is_some_and(|found| found.drives.get(usize::from(index)) == Some(&drive));
    lies && matches!(context.catalog.is_stack_lost(drive, blob).await, Ok(false))
}

impl World {
    /// Records that `drive` failed permanently, and then reports that. If it cannot be recorded, the engine asks again.
    pub(super) fn give_up_drive(&self, drive: DriveId, retired: bool) {
        self.start_with(move |handle, context| async move {
            let now_ms = (context.wall)();
            let remembered = if retired {
                context.catalog.fail_drive(drive, now_ms).await.map(drop)
            } else {
                context.catalog.give_up_drive(drive, now_ms).await
            };
            if let Err(error) = remembered {
                tracing::error!(%drive, %error, "cannot record that a drive is given up");
                return;
            }
            if retired {
                tracing::info!(%drive, "a drive that was retired is empty, and may be pulled");
            } else {
                tracing::warn!(%drive, "a drive was away for too long, and is given up; its data is rebuilt");
            }
            context.counters.absences.note(drive, None);
            handle.report(Event::DriveFailed { drive, pulled: false });
        });
    }
}

impl World {
    /// Records that `drive`, which was given up and has just shown its label, is back, and then reports that.
    pub(super) fn take_back_drive(&self, drive: DriveId) {
        let Some(uuid) = self.recognised.lock().get(&drive).copied() else {
            return tracing::error!(%drive, "a drive is to be taken back, but has shown no label");
        };
        self.start_with(move |handle, context| async move {
            match context.catalog.take_back_drive(drive, uuid.0).await {
                Ok(Some(lost_bytes)) => {
                    tracing::info!(%drive, "a drive that was given up is back; searching it for stacks still needed");
                    context.counters.absences.note(drive, None);
                    handle.report(Event::DriveReturned { drive, lost_bytes });
                }
                Ok(None) => tracing::info!(%drive, "a drive that is back no longer counts as failed"),
                Err(error) => tracing::error!(%drive, %error, "cannot record that a drive is back"),
            }
        });
    }
}

/// Removes the old stack of `blob` from the good drive that it has left. A stack that cannot be removed now goes with
/// the next rebuild of the blob, or along with the blob.
async fn remove_moved(context: &Context, in_service: &InService, blob: BlobId) {
    if !context.catalog_age.may_remove() {
        return;
    }
    if let Err(error) = remove_left_over(context, in_service, blob, None).await {
        tracing::warn!(%blob, %error, "could not remove a moved stack from its old place; retrying");
    }
}

/// The drives of the rack that have not failed.
pub(super) struct InService {
    drives: Arc<[Arc<dyn Drive>]>,
    failed: BTreeSet<DriveId>,
}

impl InService {
    /// Stack `index` on `drive`; `None` if the drive failed.
    fn stack(&self, index: u8, drive: DriveId) -> Option<(u8, Arc<dyn Drive>)> {
        (!self.has_failed(drive)).then(|| (index, Arc::clone(&self.drives[drive.index()])))
    }

    pub(super) fn has_failed(&self, drive: DriveId) -> bool {
        self.failed.contains(&drive)
    }
}

impl World {
    pub(super) fn in_service(&self) -> InService {
        let all = self.rack.spec().drives.iter().map(|drive| drive.id);
        let failed = all.filter(|drive| self.rack.has_failed(*drive)).collect();
        InService { drives: Arc::clone(&self.drives), failed }
    }
}

/// Where and how a rebuild writes its stack.
#[derive(Clone, Copy)]
struct Aim {
    index: u8,
    target: DriveId,
    /// True if it is written beside the damaged stack.
    spare: bool,
    /// True if the stack may still be there unchanged.
    looks: bool,
}

/// Records where stack `index` of the blob is written next, and removes what earlier rebuilds of it have left. Returns
/// the blob; `None` if it is not on `drives` any more.
///
/// The order matters: a commit that was not answered may have counted a stack, and show up after a crash. A commit that
/// is made after it, and finds the blob where it was, proves that it did not.
async fn aim(
    context: &Context,
    in_service: &InService,
    (blob, drives): (BlobId, &[DriveId]),
    Aim { index, target, spare, looks }: Aim,
) -> Result<Option<Blob>, CatalogError> {
    let Some(found) = context.catalog.blob(blob).await?.filter(|found| found.drives == drives) else { return Ok(None) };
    if spare {
        return aim_beside(context, in_service, found, index).await;
    }
    let noted = if found.drives[usize::from(index)] == target {
        context.catalog.begin_return(&found, index).await?
    } else {
        context.catalog.begin_rebuild(&found, index, target).await?
    };
    if !noted {
        return Ok(None);
    }
    // Under a newer catalog the lost stack may have been rebuilt already; then it must stay.
    if context.catalog_age.may_remove() {
        let aimed_at = RebuildTarget { drive: target, index, spare: false };
        remove_left_over(context, in_service, blob, Some(aimed_at)).await?;
        let there = in_service.stack(index, target).filter(|_| !looks);
        stack::remove(context.rack_uuid, blob, there.as_slice()).await;
    }
    Ok(Some(found))
}

/// The same for stack `index`, which is damaged and is written beside itself. Also `None` for a catalog that is older
/// than the rack: a stack that it finds damaged may be rebuilt elsewhere.
async fn aim_beside(
    context: &Context,
    in_service: &InService,
    found: Blob,
    index: u8,
) -> Result<Option<Blob>, CatalogError> {
    if !context.catalog_age.may_remove() || !context.catalog.begin_repair(&found, index).await? {
        return Ok(None);
    }
    let aimed_at = RebuildTarget { drive: found.drives[usize::from(index)], index, spare: true };
    remove_left_over(context, in_service, found.blob, Some(aimed_at)).await?;
    Ok(Some(found))
}

/// Removes stacks of `blob` that its rebuilds have left where the catalog does not count them, except for `aimed_at`,
/// the target of the next rebuild, and for stacks that a living blob has lost in their own place. True if none is left
/// on any drive in service; stacks on a failed drive are lost with it.
pub(super) async fn remove_left_over(
    context: &Context,
    in_service: &InService,
    blob: BlobId,
    aimed_at: Option<RebuildTarget>,
) -> Result<bool, CatalogError> {
    let mut targets = context.catalog.rebuild_targets(blob).await?;
    targets.retain(|target| Some(*target) != aimed_at);
    if targets.is_empty() {
        return Ok(true);
    }
    if let Some(found) = context.catalog.blob(blob).await?
        && context.catalog.is_blob_living(blob).await?
    {
        // A stack lost with a drive that is back may be there and good, until it has been looked for.
        targets.retain(|target| target.spare || found.drives.get(usize::from(target.index)) != Some(&target.drive));
        if !targets.is_empty() && !context.catalog.confirm_left_over(&found, &targets).await? {
            return Ok(false);
        }
    }
    let mut gone = Vec::new();
    for target in &targets {
        let left = in_service.stack(target.index, target.drive);
        let outcomes = match &left {
            Some((index, drive)) if target.spare => {
                vec![stack::remove_spare(context.rack_uuid, blob, *index, &**drive).await]
            }
            _ => stack::remove(context.rack_uuid, blob, left.as_slice()).await,
        };
        if outcomes.iter().all(|outcome| *outcome == StackOutcome::Fine) {
            gone.push(*target);
        }
    }
    if !gone.is_empty() {
        context.catalog.forget_rebuild_targets(blob, &gone).await?;
    }
    Ok(gone.len() == targets.len())
}

/// A page of the blobs whose stack on `drive` is lost or is to move away, and the blob after which the next page
/// begins.
async fn page_on_drive(
    catalog: &Catalog,
    drive: DriveId,
    after: Option<BlobId>,
    limit: u32,
) -> Result<(Vec<BlobOnDrive>, Option<BlobId>), CatalogError> {
    let page = catalog.leaving_page(drive, after, limit as usize).await?;
    let mut blobs = Vec::with_capacity(page.blobs.len());
    for (blob, living) in page.blobs {
        let lost = catalog.lost_of(&blob).await?;
        let left_there = lost.contains(&drive) && is_left_there(catalog, &blob, drive).await?;
        blobs.push(on_drive(blob, lost, (living, left_there)));
    }
    Ok((blobs, page.next))
}

/// True if an earlier rebuild may have left the stack that `blob` lost on `drive` there.
async fn is_left_there(catalog: &Catalog, blob: &Blob, drive: DriveId) -> Result<bool, CatalogError> {
    let index = blob.drives.iter().position(|other| *other == drive);
    let in_place = index.map(|index| RebuildTarget { drive, index: index as u8, spare: false });
    Ok(catalog.rebuild_targets(blob.blob).await?.into_iter().any(|target| Some(target) == in_place))
}

fn on_drive(blob: Blob, lost: Vec<DriveId>, (living, left_there): (bool, bool)) -> BlobOnDrive {
    BlobOnDrive {
        blob: blob.blob,
        drives: blob.drives,
        lost,
        stack_bytes: blob.stack_bytes,
        bytes: blob.payload_bytes,
        living,
        left_there,
    }
}
