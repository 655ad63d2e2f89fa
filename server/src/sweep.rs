//! The sweep of the workshop: removes files that can never be wanted.
//!
//! 1. At boot, staged data counts as the catalog has it. No file is looked at, because there may be millions.
//! 2. After the boot, while the server serves: the names of the files, and page by page the records of small objects. A
//!    file or record that this catalog did not know when it started, and whose slot was issued before, is unknown:
//!    nothing that happens meanwhile changes that. It is opened; it is removed if it was never finished, or if it is
//!    garbage by its lineage ([`lineage::Lineage::is_garbage`]). To a catalog that was restored from a backup, or lost
//!    its log, a file staged since looks like one that a crash has left, and may be the only copy.
//! 3. A slot that the catalog knows and that has neither a file nor a record is missing: it is reported, and takes no
//!    room.
//!
//! Memory: two sets of slots, those that the catalog knows and those that have a file, a bit each where they are
//! consecutive; a page of unknown files.

use crate::catalog_age;
use crate::context::{Context, usage_of};
use crate::error::ServerError;
use crate::world::WorldHandle;
use catalog::{Catalog, CatalogError};
use engine::Event;
use lineage::RunStamp;
use roaring::RoaringTreemap;
use std::sync::atomic::Ordering;
use workshop::{NamedSlot, UnknownFile};

/// Records of the catalog per read.
const PAGE: usize = 1024;

/// The input of the sweep.
pub(crate) struct Known {
    /// The slots that the catalog knew at the start.
    slots: RoaringTreemap,
    /// The catalog's runs before this one.
    runs: Vec<u64>,
    /// True if a file that the catalog does not know is certainly unknown.
    is_certain: bool,
}

/// Counts of files that the catalog does not know, by their treatment.
#[derive(Clone, Copy, Default)]
struct Judged {
    removed: u64,
    /// Files of the last run: this one keeps them, and the next one removes them.
    own: u64,
    /// Files that may belong to a newer catalog.
    foreign: u64,
}

impl Judged {
    fn add(&mut self, more: Self) {
        self.removed += more.removed;
        self.own += more.own;
        self.foreign += more.foreign;
    }
}

/// Counts staged data as the catalog has it. `runs` are the catalog's runs before this one.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn count(context: &Context, runs: Vec<u64>) -> Result<Known, ServerError> {
    let Context { catalog, staging, .. } = context;
    // Another catalog may have issued slots that this one has not.
    catalog.skip_slots(context.catalog_age.start().slots_end).await?;
    let (mut slots, mut bytes) = (RoaringTreemap::new(), 0_u64);
    each_known(catalog, |slot, data_bytes| {
        slots.insert(slot);
        bytes = bytes.saturating_add(workshop::charged_for(data_bytes));
    })
    .await?;
    staging.count_known(bytes);
    // A damaged record may be the only one that names a file.
    let damaged = catalog.quarantined();
    if !damaged.is_empty() {
        let records = damaged.len();
        tracing::error!(records, "records of the catalog are damaged; nothing is removed from the workshop");
    }
    Ok(Known { slots, runs, is_certain: damaged.is_empty() && catalog.incomplete().is_none() })
}

/// Sweeps while the server serves. A failure leaves the rest to the next start.
pub(crate) async fn sweep(context: Context, world: WorldHandle, known: Known) {
    let Known { mut slots, runs, is_certain } = known;
    let sweeping = Sweeping { context, world, runs, is_certain };
    let swept = async {
        sweeping.files(&mut slots).await?;
        sweeping.records(&mut slots).await?;
        report_missing(&sweeping.context, &slots).await.map_err(ServerError::from)
    };
    if let Err(error) = swept.await {
        tracing::warn!(%error, "part of the workshop was not swept; the next start sweeps it");
    }
}

/// A sweep under way.
struct Sweeping {
    context: Context,
    world: WorldHandle,
    runs: Vec<u64>,
    is_certain: bool,
}

/// A file that cannot be looked at does not stop the sweep of the others; the next start looks again.
fn unread(error: &disk::DriveError) {
    tracing::warn!(%error, "cannot examine an unknown file in the workshop");
}

impl Sweeping {
    /// Sweeps the files, and removes those that are there from `unseen`.
    async fn files(&self, unseen: &mut RoaringTreemap) -> Result<(), ServerError> {
        let slots_end = self.context.catalog_age.start().slots_end;
        let mut there = RoaringTreemap::new();
        let look = |slot| {
            if slot < slots_end {
                there.insert(slot);
            }
        };
        self.context.staging.each_file(look).await?;
        let unknown = &there - &*unseen;
        *unseen -= there;
        let (mut judged, mut unknown) = (Judged::default(), unknown.into_iter());
        loop {
            let some: Vec<NamedSlot> = unknown.by_ref().take(PAGE).map(NamedSlot::from).collect();
            if some.is_empty() {
                break;
            }
            judged.add(self.unknown(some).await?);
        }
        note(&self.context, &judged);
        Ok(())
    }

    /// Sweeps the records, and removes those that are there from `unseen`.
    async fn records(&self, unseen: &mut RoaringTreemap) -> Result<(), ServerError> {
        let slots_end = self.context.catalog_age.start().slots_end;
        let (mut from, mut judged) = (NamedSlot::default(), Judged::default());
        loop {
            let page = self.context.staging.records(&from).await?;
            let Some(last) = page.last() else { break };
            from = last.at.successor();
            let is_unknown = |at: &NamedSlot| at.slot() < slots_end && !unseen.remove(at.slot());
            judged.add(self.unknown(page.into_iter().map(|record| record.at).filter(is_unknown).collect()).await?);
        }
        note(&self.context, &judged);
        Ok(())
    }

    /// Counts files that the catalog does not know, and judges them if it is certain that they are unknown.
    async fn unknown(&self, slots: Vec<NamedSlot>) -> Result<Judged, ServerError> {
        if slots.is_empty() {
            return Ok(Judged::default());
        }
        let (mut found, mut judged) = (Vec::new(), Judged::default());
        for at in slots {
            if !self.is_certain {
                self.context.staging.count_kept(at).await.unwrap_or_else(|error| unread(&error));
                continue;
            }
            match self.context.staging.count_unknown(at).await {
                Ok(Some(file)) => found.push(file),
                Ok(None) => judged.removed += 1,
                Err(error) => unread(&error),
            }
        }
        judged.add(judge(&self.context, &self.runs, found).await?);
        self.world.report(Event::StagingChanged(usage_of(&self.context)));
        Ok(judged)
    }
}

/// Removes those of `unknown` that are garbage, and records a file that was written under a newer catalog.
async fn judge(context: &Context, runs: &[u64], unknown: Vec<UnknownFile>) -> Result<Judged, ServerError> {
    let Context { catalog_age, catalog, staging, .. } = context;
    let stamped = unknown.iter().filter_map(|file| Some((file.at.slot(), file.stamp?)));
    let mut stamped = stamped.map(|(slot, stamp)| (slot, RunStamp::from_bits(stamp.run), stamp.sequence));
    if let Some((slot, stamp, _)) = stamped.find(|(_, stamp, sequence)| catalog_age.is_newer(*stamp, *sequence)) {
        let why = format!("the staged file of slot {slot} was written under a newer one");
        catalog_age::found_newer(catalog_age, (catalog, staging), stamp, why).await;
    }
    let (garbage, kept): (Vec<UnknownFile>, Vec<UnknownFile>) =
        unknown.into_iter().partition(|file| catalog_age.is_garbage(file, runs));
    let garbage: Vec<NamedSlot> = garbage.into_iter().map(|file| file.at).collect();
    staging.free_all(&garbage).await?;
    let of_last_run = |file: &&UnknownFile| file.stamp.is_some_and(|stamp| Some(&stamp.run) == runs.last());
    let own = kept.iter().filter(of_last_run).count() as u64;
    Ok(Judged { removed: garbage.len() as u64, own, foreign: kept.len() as u64 - own })
}

/// Counts and logs the findings.
fn note(context: &Context, judged: &Judged) {
    let Judged { removed, own, foreign } = *judged;
    context.counters.unknown_staged.fetch_add(foreign, Ordering::Relaxed);
    context.counters.left_staged.fetch_add(own, Ordering::Relaxed);
    if removed + own > 0 {
        tracing::info!(removed, kept = own, "found staged files of the last run that belong to no object");
    }
    if foreign > 0 {
        tracing::warn!(foreign, "staged files that this catalog does not know are kept: they may be a newer catalog's");
    }
}

/// Reports those of `unseen` that the catalog still knows: they are missing, neither files nor records. They take no
/// room.
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
        context.counters.missing_staged.store(missing, Ordering::Relaxed);
        context.staging.discount_missing(missing_bytes);
    }
    Ok(())
}

/// Calls `each` with every slot that the catalog knows, and with the bytes of data in it.
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
        page.items.into_iter().for_each(|(slot, bytes)| each(slot, bytes));
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
