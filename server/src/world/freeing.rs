//! Frees the slots of versions that moved to the rack: the records of a pack's members leave the log by ranges of
//! names, their files many at a time, with one sync of their directory.
//!
//! [`engine::forget`] chooses the ranges; this code lists the records between the first and the last member page by
//! page. Other records found there stay: they are too young, or are being read, or are dead and removed otherwise.
//! Records added during the listing have numbers above all that moved. None of this needs to be durable: a record that
//! reappears after a crash is swept like the other leftovers of a crash.

use crate::context::{Context, SmallObjects};
use engine::forget::{Joins, Ranges};
use std::collections::HashMap;
use std::io;
use workshop::{Leaving, NamedSlot, Removal, SmallRecord, SmallRecords};

/// Records listed at once.
const PAGE: usize = 1024;

/// Frees the slots of versions that moved; their new place is durable.
pub(super) async fn free_moved(context: &Context, moved: Vec<NamedSlot>) {
    let mut leaving = context.staging.leaving(&moved);
    if let Some(SmallObjects { files, .. }) = &context.small
        && let Err(error) = forget(&**files.records(), &mut leaving).await
    {
        tracing::warn!(%error, "cannot remove the records of moved objects together; removing them one by one");
    }
    if let Err(error) = leaving.remove_rest().await {
        tracing::warn!(%error, "a migrated file could not be removed yet");
    }
}

/// Removes the records in `leaving`.
async fn forget(records: &dyn SmallRecords, leaving: &mut Leaving) -> io::Result<()> {
    let Some(first) = first_record(records, leaving.slots()).await?.filter(|_| records.are_all_known()) else {
        return Ok(());
    };
    let mut forgetting = Forgetting::new(&leaving.slots()[first..]);
    let mut from = leaving.slots()[first].clone();
    loop {
        let page = records.page(&from, PAGE).await?;
        let Some(last) = page.last() else { break };
        from = last.at.successor();
        if page.into_iter().any(|record| !forgetting.pass(record)) {
            break;
        }
    }
    let (removals, gone) = forgetting.end();
    // A drive may have failed meanwhile, so its records were not listed.
    if !records.are_all_known() {
        return Ok(());
    }
    records.remove(removals).await?;
    leaving.removed(&gone);
    Ok(())
}

/// The position of the first record in `slots`.
async fn first_record(records: &dyn SmallRecords, slots: &[NamedSlot]) -> io::Result<Option<usize>> {
    for (position, at) in slots.iter().enumerate() {
        if records.bytes(at).await?.is_some() {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

/// Finds the records of a pack among others.
struct Forgetting<'s> {
    /// Those that were not passed yet, in ascending order.
    slots: &'s [NamedSlot],
    ranges: Ranges,
    /// The open ranges: the first and the last record of each.
    open: Vec<(NamedSlot, NamedSlot)>,
    removals: Vec<Removal>,
    /// Lengths in bytes of the records to remove, by slot.
    gone: HashMap<u64, u64>,
}

impl<'s> Forgetting<'s> {
    fn new(slots: &'s [NamedSlot]) -> Self {
        let ranges = Ranges::new(slots.len() as u64);
        Self { slots, ranges, open: Vec::new(), removals: Vec::new(), gone: HashMap::new() }
    }

    /// Takes the next record in order. False if the scan may stop.
    fn pass(&mut self, SmallRecord { at, number, bytes }: SmallRecord) -> bool {
        let before = self.slots.partition_point(|slot| *slot < at);
        self.slots = &self.slots[before..];
        let Some(next) = self.slots.first() else { return false };
        if *next != at {
            return self.ranges.stays(number);
        }
        self.gone.insert(at.slot(), bytes);
        match self.ranges.goes(number) {
            Joins::Open(range) => self.open[range].1 = at,
            Joins::New { completed: None, .. } => self.open.push((at.clone(), at)),
            Joins::New { range, completed: Some(up_to) } => {
                let complete = std::mem::replace(&mut self.open[range], (at.clone(), at));
                self.removals.push(removal(complete, up_to));
            }
        }
        true
    }

    fn end(mut self) -> (Vec<Removal>, HashMap<u64, u64>) {
        let ranges = self.ranges;
        let open = self.open.into_iter().enumerate();
        self.removals.extend(open.map(|(range, ends)| removal(ends, ranges.up_to(range))));
        (self.removals, self.gone)
    }
}

/// A single record is not removed as a range: readers check every range that was forgotten.
fn removal((first, last): (NamedSlot, NamedSlot), up_to: u64) -> Removal {
    if first == last { Removal::One(first) } else { Removal::Range { first, last, up_to } }
}
