//! The sweep of the workshop: removes what nobody can ever want.
//!
//! 1. At boot, before all else, the files: what was never finished, and what [`lineage::is_garbage`] knows to be so. To
//!    a catalog that was restored from a backup, or lost its log, what was staged since looks like what a crash has
//!    left, and may be the only copy.
//! 2. Behind the boot, page by page, the records of small objects, of which there may be millions: so a start takes no
//!    time for each. Until then they count as the catalog has them. A record that this catalog did not know when it
//!    started, and whose slot was given out before, is known to nobody: nothing that happens meanwhile changes that.
//!
//! Memory: a set of the slots that the catalog knows, a bit each where they follow on one another.

use crate::context::{Context, usage_of};
use crate::error::ServerError;
use crate::lineage;
use crate::world::WorldHandle;
use catalog::{Catalog, CatalogError};
use engine::Event;
use roaring::RoaringTreemap;
use std::sync::atomic::Ordering;
use workshop::{NamedSlot, UnknownFile};

/// Records of the catalog that are read at once.
const PAGE: usize = 1024;

/// What is left to be looked at once the server serves.
pub(crate) struct Records {
    /// Those that the catalog knew at the start.
    known: RoaringTreemap,
    /// The catalog's runs before this one.
    runs: Vec<u64>,
    /// What the catalog does not know is known to nobody.
    is_certain: bool,
}

/// What became of files that the catalog does not know.
#[derive(Default)]
struct Judged {
    removed: u64,
    /// They are of the last run: this one keeps them, and the next one removes them.
    own: u64,
    /// They may be a newer catalog's.
    foreign: u64,
}

/// Sweeps the files, and counts the records as the catalog has them. `runs` are the catalog's before this one.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn files(context: &Context, runs: Vec<u64>) -> Result<Records, ServerError> {
    let Context { catalog, staging, .. } = context;
    // Another catalog may have given out slots that this one has not.
    catalog.skip_slots(context.lineage.slots_end()).await?;
    let there = staging.file_slots().await?;
    let (mut known, mut records, mut bytes) = (RoaringTreemap::new(), RoaringTreemap::new(), 0);
    let look = |slot, data_bytes| {
        if there.contains(&slot) {
            known.insert(slot);
        } else {
            records.insert(slot);
            bytes += workshop::charged_for(data_bytes);
        }
    };
    each_known(catalog, look).await?;
    // A damaged record may be what names a file that nothing else does.
    let damaged = catalog.quarantined();
    if !damaged.is_empty() {
        let records = damaged.len();
        tracing::error!(records, "records of the catalog are damaged; nothing is removed from the workshop");
    }
    let is_certain = damaged.is_empty() && catalog.incomplete().is_none();
    let swept = staging.sweep(|slot| !is_certain || known.contains(slot)).await?;
    staging.count_records(bytes);
    assert!(is_certain || swept.unknown.is_empty(), "nothing is garbage to a catalog of which something is missing");
    let judged = judge(context, &runs, swept.unknown).await?;
    note(context, &Judged { removed: judged.removed + swept.removed, ..judged });
    Ok(Records { known: records, runs, is_certain })
}

/// Sweeps the records, while the server serves. What fails is left to the next start.
pub(crate) async fn records(context: Context, world: WorldHandle, left: Records) {
    if let Err(error) = sweep_records(&context, &world, left).await {
        tracing::warn!(%error, "the records of small objects were not swept; the next start does it");
    }
}

async fn sweep_records(context: &Context, world: &WorldHandle, left: Records) -> Result<(), ServerError> {
    let (slots_end, mut unseen) = (context.lineage.slots_end(), left.known);
    let (mut from, mut judged) = (NamedSlot::default(), Judged::default());
    loop {
        let page = context.staging.records(&from).await?;
        let Some(last) = page.last() else { break };
        from = last.at.successor();
        let is_unknown = |at: &NamedSlot| at.slot() < slots_end && !unseen.remove(at.slot());
        let unknown: Vec<NamedSlot> = page.into_iter().map(|record| record.at).filter(is_unknown).collect();
        let mut found = Vec::new();
        for at in unknown {
            found.extend(context.staging.count_unknown(at).await?);
        }
        if found.is_empty() {
            continue;
        }
        if left.is_certain {
            let more = judge(context, &left.runs, found).await?;
            judged.removed += more.removed;
            judged.own += more.own;
            judged.foreign += more.foreign;
        }
        world.report(Event::StagingChanged(usage_of(context)));
    }
    note(context, &judged);
    report_missing(context, &unseen).await?;
    Ok(())
}

/// Removes those of `unknown` that are garbage, and takes notice of what was written under a newer catalog.
async fn judge(context: &Context, runs: &[u64], unknown: Vec<UnknownFile>) -> Result<Judged, ServerError> {
    let Context { lineage, catalog, staging, .. } = context;
    let newer =
        |file: &&UnknownFile| file.stamp.is_some_and(|stamp| lineage::is_newer(lineage, stamp.run, stamp.sequence));
    if let Some((slot, stamp)) = unknown.iter().find(newer).and_then(|file| Some((file.at.slot(), file.stamp?))) {
        let why = format!("the staged file of slot {slot} was written under a newer one");
        lineage::found_newer(lineage, catalog, staging, stamp.run, why).await;
    }
    let (garbage, kept): (Vec<UnknownFile>, Vec<UnknownFile>) =
        unknown.into_iter().partition(|file| lineage::is_garbage(lineage, file, runs));
    let garbage: Vec<NamedSlot> = garbage.into_iter().map(|file| file.at).collect();
    staging.free_all(&garbage).await?;
    let of_last_run = |file: &&UnknownFile| file.stamp.is_some_and(|stamp| Some(&stamp.run) == runs.last());
    let own = kept.iter().filter(of_last_run).count() as u64;
    Ok(Judged { removed: garbage.len() as u64, own, foreign: kept.len() as u64 - own })
}

/// Counts and logs what was found.
fn note(context: &Context, judged: &Judged) {
    let Judged { removed, own, foreign } = *judged;
    context.counters.unknown_staged.fetch_add(foreign, Ordering::Relaxed);
    context.counters.left_staged.fetch_add(own, Ordering::Relaxed);
    if removed + own > 0 {
        tracing::info!(removed, kept = own, "staged files of the last run that no object refers to");
    }
    if foreign > 0 {
        tracing::warn!(foreign, "staged files that this catalog does not know are kept: they may be a newer catalog's");
    }
}

/// Those of `unseen` that the catalog still knows are missing: neither a file nor a record. They take no room.
async fn report_missing(context: &Context, unseen: &RoaringTreemap) -> Result<(), CatalogError> {
    if unseen.is_empty() {
        return Ok(());
    }
    let (mut missing, mut missing_bytes) = (0, 0);
    let still = |slot, data_bytes| {
        if unseen.contains(slot) {
            missing += 1;
            missing_bytes += workshop::charged_for(data_bytes);
        }
    };
    each_known(&context.catalog, still).await?;
    if missing > 0 {
        tracing::error!(missing, "staged files are missing; GETs of them will fail");
        context.staging.discount_records(missing_bytes);
    }
    Ok(())
}

/// Calls `each` with every slot that the catalog knows, and with the bytes of data in it: 0 for a part, which is never
/// a record.
async fn each_known(catalog: &Catalog, mut each: impl FnMut(u64, u64)) -> Result<(), CatalogError> {
    let mut after = None;
    loop {
        let page = catalog.staged_slots(after.as_ref(), PAGE).await?;
        page.items.iter().for_each(|staged| each(staged.slot, staged.bytes));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    loop {
        let page = catalog.part_slots(after.as_ref()).await?;
        page.items.into_iter().for_each(|slot| each(slot, 0));
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
