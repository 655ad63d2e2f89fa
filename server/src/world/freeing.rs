//! Freeing what has moved to the rack: the records of a pack's members leave the log by ranges of names, their files
//! many at a time, with one sync of their directory.
//!
//! [`engine::forget`] decides which ranges; here the records between the first and the last member are listed page by
//! page. Whatever is found there and did not move stays: it is too young, or somebody reads it, or it is dead and goes
//! otherwise. What comes while the listing goes on has a number above all that moved. Nothing of this need be
//! durable: what is there again after a crash is swept like what any crash has left.

use crate::context::{Context, SmallObjects};
use engine::forget::{Joins, Ranges};
use std::collections::HashMap;
use std::io;
use workshop::{Leaving, NamedSlot, Removal, SmallRecord, SmallRecords};

/// Records that are listed at once.
const PAGE: usize = 1024;

/// Frees the slots of what moved, whose new place is durable.
pub(super) async fn free_moved(context: &Context, moved: Vec<NamedSlot>) {
    let mut leaving = context.staging.leaving(&moved);
    if let Some(SmallObjects { files, .. }) = &context.small
        && let Err(error) = forget(&**files.records(), &mut leaving).await
    {
        tracing::warn!(%error, "records that have moved could not be forgotten at once; they go one by one");
    }
    if let Err(error) = leaving.remove_rest().await {
        tracing::warn!(%error, "a migrated file could not be removed yet");
    }
}

/// Removes those of `leaving` that are records.
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
    // A drive may have failed meanwhile, and what it had was not listed.
    if !records.are_all_known() {
        return Ok(());
    }
    records.remove(removals).await?;
    leaving.removed(&gone);
    Ok(())
}

/// The position of the first of `slots` that is a record.
async fn first_record(records: &dyn SmallRecords, slots: &[NamedSlot]) -> io::Result<Option<usize>> {
    for (position, at) in slots.iter().enumerate() {
        if records.bytes(at).await?.is_some() {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

/// The records of a pack, as they are found among others.
struct Forgetting<'s> {
    /// Those that were not passed yet, in ascending order.
    slots: &'s [NamedSlot],
    ranges: Ranges,
    /// The open ranges: the first and the last record of each.
    open: Vec<(NamedSlot, NamedSlot)>,
    removals: Vec<Removal>,
    /// The records that go, by slot, with their lengths in bytes.
    gone: HashMap<u64, u64>,
}

impl<'s> Forgetting<'s> {
    fn new(slots: &'s [NamedSlot]) -> Self {
        let ranges = Ranges::new(slots.len() as u64);
        Self { slots, ranges, open: Vec::new(), removals: Vec::new(), gone: HashMap::new() }
    }

    /// The next record in order. False if there is no reason to go on.
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

/// A range of one record is no range: readers look at every range that was forgotten.
fn removal((first, last): (NamedSlot, NamedSlot), up_to: u64) -> Removal {
    if first == last { Removal::One(first) } else { Removal::Range { first, last, up_to } }
}
