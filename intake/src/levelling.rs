//! Levelling: brings a rotation up to the other one.
//!
//! A batch goes to both rotations at once, so after a crash one may have a batch, or the beginning of one, that the
//! other one lacks. And a rotation that found no room, or whose drives had all failed, lacks everything since then.
//!
//! **Invariant**: a rotation has all acknowledged changes up to its last number, unless it is known to have lost some.
//! For that,
//! - a log becomes a shelf only with records that the other rotation also has, or was found not to take;
//! - a rotation that did not take an acknowledged batch takes no other before it is level ([`View::behind`]), and the
//!   manifest says so before the batch is acknowledged;
//! - at a start a rotation that is behind is made level, durably, before the other one transforms or merges anything.
//!
//! So a rotation lacks exactly the changes above its last number. They are copied from the other one's logs and
//! appended to a log, since a follower of the log may need them; changes that the other one has only in shelves are
//! written to a shelf. Both steps can be repeated: after a crash in between they are.
//!
//! Memory: the records of one rotation's logs.

use crate::accepted::Accepted;
use crate::bytes::crc32c;
use crate::drive::Drive;
use crate::error::ReadError;
use crate::log::{self, Known};
use crate::lost::LostPart;
use crate::opening::image;
use crate::record::{Record, Sequence};
use crate::shared::{CycleShared, Shared};
use crate::shelf::access::Access;
use crate::shelf::build::ShelfBuilder;
use crate::shelf::read::Shelf;
use crate::table::LogTable;
use crate::transform::{Finished, discard, superseded};
use crate::view::{View, Want};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Keys per page.
const PAGE: usize = 256;

/// The changes that a rotation lacks, compared with another one.
pub(crate) struct Lacking {
    /// The last number that it has.
    pub(crate) known: Sequence,
    /// The changes in logs, in the order of numbers.
    pub(crate) records: Vec<Accepted>,
    /// The rotation to copy from, if some changes are in shelves.
    pub(crate) source: Option<View>,
    /// Lost parts of the other rotation among these changes, which cannot be restored.
    pub(crate) lost: Vec<LostPart>,
}

impl Lacking {
    /// The changes that each rotation lacks, in their order. A rotation with a missing drive may lack more, and is left
    /// to [`crate::healing`].
    pub(crate) fn of_all(shared: &Shared) -> Result<Vec<Self>, ReadError> {
        (0..shared.cycles.len()).map(|number| Self::of(shared, number)).collect()
    }

    /// Everything up to the last number that was given counts as lost.
    pub(crate) fn all_lost(shared: &Shared, number: usize) -> Self {
        let all = LostPart { keys: None, max: Sequence(shared.last.load(Ordering::Relaxed)) };
        let known = shared.cycles[number].view().last();
        Self { known, records: Vec::new(), source: None, lost: vec![all] }
    }

    /// The changes that the rotation `number` lacks.
    pub(crate) fn of(shared: &Shared, number: usize) -> Result<Self, ReadError> {
        let view = shared.cycles[number].view();
        let (known, mut records, mut source, mut lost) = (view.last(), BTreeMap::new(), None, Vec::new());
        let had = shared.cycles[number].had();
        if view.missing && shared.cycles.iter().any(|other| other.had() > had) {
            return Ok(Self::all_lost(shared, number));
        }
        let others = shared.cycles.iter().enumerate().filter(|(other, _)| *other != number && !view.missing);
        for (_, other) in others {
            let lags = other.had() > had;
            let mut other = View::clone(&other.view());
            let may_lag = shared.cycles[number].may_lag();
            lost.extend(other.lost[0].iter().filter(|part| may_lag && part.max > had).cloned());
            for table in &other.logs {
                for change in records_after(table, known)? {
                    records.insert(change.sequence, change);
                }
            }
            // A change that forgets leaves a mask in a shelf, and no record.
            let has_more = |shelf: &Arc<Shelf>| shelf.sequences().1 > known || (lags && !shelf.masks().is_empty());
            if other.shelves.iter().any(has_more) {
                other.retain_after(known);
                source = Some(other);
            }
        }
        Ok(Self { known, records: records.into_values().collect(), source, lost })
    }

    /// True if nothing is lacking.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.source.is_none() && self.lost.is_empty()
    }
}

/// The records of a log with numbers above `known`.
fn records_after(table: &LogTable, known: Sequence) -> Result<Vec<Accepted>, ReadError> {
    if table.index.read().last <= known {
        return Ok(Vec::new());
    }
    let image = image(table.medium.as_ref())?;
    let contents = log::read(&image, table.file.stamp(), Known::sealed(table.index.read().bytes), 0);
    let after = contents.records.into_iter().filter(|(_, head)| head.sequence > known);
    after.map(|(offset, head)| Ok(Accepted::again(&table.record(&image[offset as usize..])?, head))).collect()
}

/// Writes the records that `lacking` takes from shelves to a shelf of `cycle` on `to`, with the lost parts, without
/// waiting for a turn.
pub(crate) fn write_shelf(
    shared: &Shared,
    cycle: &CycleShared,
    lacking: &Lacking,
    to: &Arc<Drive>,
) -> Result<(), ReadError> {
    let (known, nothing) = (lacking.known, View::default());
    let source = lacking.source.as_ref().unwrap_or(&nothing);
    let identity = shared.new_file(to.uuid);
    let write = || {
        let mut builder = ShelfBuilder::begin(to, identity, Access::Stage)?;
        let mut next = Some(Vec::new());
        while let Some(from) = next.take() {
            let page = source.page(&from, None, PAGE, Want::Raw)?;
            for (key, version) in page.items.iter().filter(|(_, version)| version.stored.sequence > known) {
                let stored = &version.stored;
                let (kind, sequence) = (version.kind, stored.sequence);
                let record = Record { kind, sequence, key, entry: &stored.entry, value: &stored.value };
                builder.add(&record, crc32c(&stored.value))?;
            }
            next = page.next;
        }
        let records = builder.records();
        lacking.lost.iter().for_each(|part| builder.lose(part.clone()));
        builder.finish(source.all_masks(), superseded(cycle, &[]))?;
        let shelf = Finished { shared, drive: to, identity, access: Access::Stage }.publish(|| Ok(()), |_| ())?;
        tracing::info!(records, shelf = %identity.file, "a rotation has the records that only the other one had");
        Ok::<_, ReadError>(shelf)
    };
    let shelf = write().inspect_err(|_| discard(to, identity.file))?;
    cycle.change(|view| view.replaced(&[], Some(shelf)));
    Ok(())
}
