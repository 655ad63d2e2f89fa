//! The guarantee of a full scrub. With all drives well, every stack of a living blob is as it was written, unless the
//! blob's data is lost or another's file is in the stack's place; both are recorded. Where blobs have lost more than r
//! stacks, a scrub ends although it has put off blobs, since some never have enough readable stacks; it names them, and
//! guarantees nothing about them.

use crate::faulty_drive::FaultyDrive;
use crate::journal::Rule;
use crate::overlay::blocks_that_show_whose;
use crate::plan::Plan;
use crate::site::Running;
use catalog::{Blob, ScrubFinding};
use disk::stack::{self, ChecksumPage, Footer, Header, Inspection, spare_of, stack_name};
use disk::{BLOCK_BYTES, Buffer, Drive, FileName};
use engine::Rack;
use model::{BlobId, DriveId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Checks the media as the drives show them.
pub(crate) async fn nothing_is_rotten(running: &Running, plan: &Plan) {
    let Ok(found) = running.context.catalog.scrub_findings(None, usize::MAX).await else { return };
    let known: BTreeMap<_, _> = found.items.into_iter().map(|found| (found.blob, found)).collect();
    let put_off = put_off(running, plan).await;
    for blob in living_blobs(running).await.into_iter().filter(|blob| !put_off.contains(&blob.blob)) {
        let (rack, id) = (running.context.rack_uuid, blob.blob);
        let described = stack::Blob { rack, id, code: blob.code(), payload_bytes: blob.payload_bytes };
        let drives: Vec<_> = blob.drives.iter().map(|drive| Some(seen(running, *drive))).collect();
        let inspected = stack::inspect_deeply(described, &drives, &mut Vec::new()).await;
        let (known, beyond) = (known.get(&id), plan.beyond);
        let lost = lost_of(running, &blob).await;
        let awaited = if beyond { lost.clone() } else { Vec::new() };
        // The rebuild knows the stacks that were lost with drives; any other damage that a scrub found is a finding.
        let damaged = known.map_or(0, |known| known.damaged.len());
        let is_beyond_repair = beyond && awaited.len() + damaged > usize::from(blob.code_parity);
        let inspected = Inspection { flaws: without(inspected.flaws, &awaited), ..inspected };
        let others = not_shown_as_its_own(&blob, &drives, &inspected).await;
        let is_right =
            is_beyond_repair || is_as_promised(running, &blob, &inspected, (known, beyond), (&lost, &others));
        running.journal.demand(is_right, Rule::Audit, || {
            format!("after a scrub {id} has {:?}, {:?}; known is {known:?}", inspected.flaws, inspected.payload)
        });
    }
    let left = spares(running);
    // Spares of a blob that died meanwhile are removed with it.
    let living: Vec<_> = living_blobs(running).await.into_iter().map(|blob| blob.blob).collect();
    let left: Vec<_> = left.iter().filter(|name| spare_of(name).is_some_and(|(id, _)| living.contains(&id))).collect();
    running.journal.demand(left.is_empty(), Rule::Audit, || format!("a scrub has left {left:?}"));
}

/// The blobs that the scrub names as not read. A scrub ends with unread blobs only where drives are lost beyond r.
async fn put_off(running: &Running, plan: &Plan) -> BTreeSet<BlobId> {
    let named = |rack: &Rack, _| rack.scrubs_put_off().map(|(_, blob)| blob).collect();
    if plan.beyond { running.world.ask(named).await.unwrap_or_default() } else { BTreeSet::new() }
}

/// The spares on drives in service.
fn spares(running: &Running) -> Vec<FileName> {
    let state = running.overlay.state();
    let in_service =
        (0..state.rack_drives()).filter(|drive| !state.drives[*drive].given_up && !state.drives[*drive].abandoned);
    let names = in_service.flat_map(|drive| state.medium(drive).names());
    names.filter(|name| spare_of(name).is_some()).collect()
}

/// The living blobs.
pub(crate) async fn living_blobs(running: &Running) -> Vec<Blob> {
    let (catalog, mut living, mut after) = (&running.context.catalog, Vec::new(), None);
    while let Ok(page) = catalog.blobs_page(after.as_ref(), usize::MAX).await {
        for blob in page.items {
            if catalog.is_blob_living(blob.blob).await.unwrap_or(false) {
                living.push(blob);
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    living
}

/// A drive with its faults, regardless of its power state.
fn seen(running: &Running, drive: DriveId) -> Arc<dyn Drive> {
    let (overlay, power) = (running.overlay.clone(), running.power.clone());
    Arc::new(FaultyDrive { number: drive.index(), overlay, power, journal: Arc::clone(&running.journal) })
}

/// The stacks of `blob` that were lost with drives. A rebuild must restore them; where drives are lost beyond r, a run
/// does not wait for that.
async fn lost_of(running: &Running, blob: &Blob) -> Vec<u8> {
    let mut lost = Vec::new();
    for (index, drive) in (0..).zip(&blob.drives) {
        if running.context.catalog.is_stack_lost(*drive, blob.blob).await.unwrap_or(false) {
            lost.push(index);
        }
    }
    lost
}

fn without<T>(flaws: Vec<(u8, T)>, awaited: &[u8]) -> Vec<(u8, T)> {
    flaws.into_iter().filter(|(index, _)| !awaited.contains(index)).collect()
}

fn is_as_promised(
    running: &Running,
    blob: &Blob,
    inspected: &Inspection,
    (known, beyond): (Option<&ScrubFinding>, bool),
    (lost, others): (&[u8], &[u8]),
) -> bool {
    if inspected.payload.is_err() {
        return beyond && known.is_some_and(|known| !known.lost.is_empty());
    }
    inspected.flaws.iter().all(|(index, _)| {
        let name = stack_name(blob.blob, *index);
        let state = running.overlay.state();
        let foreign = state.drives[blob.drives[usize::from(*index)].index()].faults_of(&name);
        // The rebuild reports another's file in the place of a stack that was lost with a drive.
        let is_damaged = known.is_some_and(|known| known.damaged.iter().any(|stack| stack.index == *index));
        (is_damaged || lost.contains(index)) && (others.contains(index) || foreign.is_some_and(|file| file.foreign))
    })
}

/// Indexes of the damaged stacks of `blob` whose files do not identify themselves as these stacks. They stay and are
/// reported. Some identify themselves as another's: a misdirected write has overwritten header and checksum page, and
/// the footer has rotted. In others two of these blocks cannot be read, so the owner is unknown
/// (`disk/src/stack/remove.rs`).
async fn not_shown_as_its_own(blob: &Blob, drives: &[Option<Arc<dyn Drive>>], inspected: &Inspection) -> Vec<u8> {
    let mut others = Vec::new();
    for (index, _) in &inspected.flaws {
        let Some(drive) = &drives[usize::from(*index)] else { continue };
        let shown = owners_of(&**drive, &stack_name(blob.blob, *index)).await;
        let is_another = !shown.owners.is_empty() && !shown.owners.contains(&(blob.blob, *index));
        if is_another || (shown.owners.is_empty() && shown.unread > 1) {
            others.push(*index);
        }
    }
    others
}

/// The identity that a file shows.
#[derive(Default)]
struct Shown {
    owners: Vec<(BlobId, u8)>,
    /// Identifying blocks that cannot be read.
    unread: usize,
}

/// The owners that the identifying blocks of a file name.
async fn owners_of(drive: &dyn Drive, name: &FileName) -> Shown {
    let mut shown = Shown::default();
    let Some(blocks) = drive.len(name).await.ok().and_then(blocks_that_show_whose) else { return shown };
    for at in blocks {
        let Ok(block) = drive.read_at(name, at, Buffer::zeroed(BLOCK_BYTES)).await else {
            shown.unread += 1;
            continue;
        };
        shown.owners.extend(Header::decode(&block).map(|header| (header.blob.id, header.index)));
        shown.owners.extend(ChecksumPage::decode(&block).map(|page| (page.id, page.index)));
        shown.owners.extend(Footer::decode(&block).map(|footer| (footer.blob.id, footer.index)));
    }
    shown
}
