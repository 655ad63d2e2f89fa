//! Merging shelves, and removing empty ones: background work, which uses a drive only while the drive has no stage of
//! the rotation.
//!
//! 1. `engine::merge` chooses shelves. Cursors read them in key order.
//! 2. The newest version of each key is written to a new shelf, unless it is masked. A deletion is written as long as
//!    an older version may be elsewhere, perhaps on a missing drive; masks stay as long.
//! 3. The new shelf is published like that of a log ([`crate::transform`]), and its sources are removed.
//!
//! A rotation that lost something is healed first ([`crate::healing`]), if the other one has everything.
//!
//! A damaged shelf is surveyed when the damage is found ([`crate::repairing`]). Its losses are restored by the other
//! rotation, or go with it into the shelf that it is merged into. As long as the age of a loss is unknown, deletions
//! are not dropped.

use crate::drive::Drive;
use crate::error::ReadError;
use crate::healing::heal;
use crate::lost::LostPart;
use crate::mask::Mask;
use crate::names::FileId;
use crate::record::{Kind, Sequence};
use crate::repairing::{is_lossy, survey, suspects, worn};
use crate::shared::{CycleShared, Shared, is_hidden};
use crate::shelf::access::Access;
use crate::shelf::build::ShelfBuilder;
use crate::shelf::read::{Cursor, Shelf};
use crate::transform::{Finished, discard, remove_shelf, superseded};
use crate::view::View;
use engine::merge::{Choice, MergePolicy, ShelfFacts, TargetFacts, choose, target};
use std::sync::Arc;

/// A drive, and true if it takes writes.
pub(crate) type Target = (Arc<Drive>, bool);

/// Maximum number of times that a run starts over because a merge found damage.
const ROUNDS: usize = 4;

/// Repairs, heals, merges and removes until nothing is left to do.
pub(crate) fn run(shared: &Shared, cycle: &CycleShared, drives: &[Target]) {
    for _ in 0..ROUNDS {
        survey(shared, cycle, Access::Background, u64::MAX);
        heal_if_needed(shared, cycle, drives);
        repair(shared, cycle, drives);
        while step(shared, cycle, drives) {}
        if suspects(cycle).next().is_none() {
            break;
        }
    }
}

/// Rewrites damaged shelves.
fn repair(shared: &Shared, cycle: &CycleShared, drives: &[Target]) {
    let view = cycle.view();
    for shelf in worn(shared, cycle, &view) {
        let Some(to) = target_of(&view, &[Arc::clone(&shelf)], drives) else { continue };
        match merge(shared, cycle, &[Arc::clone(&shelf)], &to) {
            Ok(()) => tracing::info!(shelf = %shelf.file, "a damaged shelf was written anew"),
            Err(error) => tracing::warn!(%error, shelf = %shelf.file, "a damaged shelf was not written anew"),
        }
    }
}

fn heal_if_needed(shared: &Shared, cycle: &CycleShared, drives: &[Target]) {
    let view = cycle.view();
    let whole = shared.cycles.iter().map(CycleShared::view).find(|view| view.is_whole());
    // One that is behind is made level first.
    if let Some(whole) = whole.filter(|_| view.has_losses() && !view.behind)
        && let Some(to) = target_of(&view, &[], drives)
        && let Err(error) = heal(shared, cycle, &whole, &to)
    {
        tracing::warn!(%error, "a rotation is not complete yet");
    }
}

/// Executes one step; `false` if nothing was left to do, or it failed.
fn step(shared: &Shared, cycle: &CycleShared, drives: &[Target]) -> bool {
    let view = cycle.view();
    let damaged = cycle.damaged.lock().clone();
    // Oldest first.
    let shelves: Vec<_> = view.shelves.iter().rev().filter(|shelf| !damaged.contains(&shelf.file)).collect();
    let Ok(facts) = shelves.iter().map(|shelf| facts(shared, cycle, &view, shelf)).collect::<Result<Vec<_>, _>>()
    else {
        return false;
    };
    let policy = MergePolicy { log_bytes: shared.config.log_bytes, fan_in: shared.config.fan_in };
    match choose(policy, &facts) {
        None => false,
        Some(Choice::Remove(at)) => {
            let file = shelves[at].file;
            if let Err(error) = shared.note(|manifest| manifest.bury(&[file])) {
                tracing::warn!(%error, "a shelf was not removed");
                return false;
            }
            cycle.change(|view| view.replaced(&[file], None));
            remove_shelf(cycle, shelves[at])
        }
        Some(Choice::Merge(inputs)) => {
            let inputs: Vec<_> = inputs.into_iter().map(|at| Arc::clone(shelves[at])).collect();
            let Some(to) = target_of(&view, &inputs, drives) else { return false };
            merge(shared, cycle, &inputs, &to)
                .inspect_err(|error| tracing::warn!(%error, "shelves were not merged"))
                .is_ok()
        }
    }
}

/// The facts about a shelf that the choice needs.
fn facts(shared: &Shared, cycle: &CycleShared, view: &View, shelf: &Arc<Shelf>) -> Result<ShelfFacts, ReadError> {
    let masks = view.all_masks();
    let (_, max) = shelf.sequences();
    let is_hidden = shelf.keys().is_none_or(|keys| masks.iter().any(|mask| mask.hides_all(keys, max)));
    let mut forgotten_bytes = 0;
    if is_hidden && shelf.records() > 0 {
        forgotten_bytes = shelf.bytes;
    } else if let Some(keys) = shelf.keys() {
        // If newer versions may be among them, the hidden amount is unknown.
        for mask in masks.iter().filter(|mask| mask.up_to >= max && mask.may_hide(keys, max)) {
            forgotten_bytes += shelf.bytes_in(mask)?;
        }
    }
    let rest = Rest::of(shared, view, &[shelf.file]);
    let undeleted = cycle.undeleted.lock();
    let is_needed = shelf.masks().iter().any(|mask| rest.may_need(mask))
        || shelf.superseded().iter().any(|file| undeleted.contains(file));
    Ok(ShelfFacts { bytes: shelf.bytes, forgotten_bytes, removable: is_hidden && !is_needed && !is_lossy(shelf) })
}

fn target_of(view: &View, inputs: &[Arc<Shelf>], drives: &[Target]) -> Option<Arc<Drive>> {
    let facts = drives.iter().map(|(drive, writable)| {
        let is_on_it = |shelf: &&Arc<Shelf>| shelf.drive.uuid == drive.uuid;
        let bytes = view.shelves.iter().filter(is_on_it).map(|shelf| shelf.bytes).sum();
        let writable = *writable && !drive.is_lost();
        TargetFacts { writable, is_read: inputs.iter().any(|shelf| is_on_it(&shelf)), bytes }
    });
    let chosen = target(&facts.collect::<Vec<_>>())?;
    Some(Arc::clone(&drives[chosen.0 as usize].0))
}

fn merge(shared: &Shared, cycle: &CycleShared, inputs: &[Arc<Shelf>], to: &Arc<Drive>) -> Result<(), ReadError> {
    let files: Vec<FileId> = inputs.iter().map(|shelf| shelf.file).collect();
    let view = cycle.view();
    let rest = Rest::of(shared, &view, &files);
    let identity = shared.new_file(to.uuid);
    let access = Access::Background;
    let write = || {
        let mut builder = ShelfBuilder::begin(to, identity, access)?;
        let mut cursors = inputs.iter().map(|shelf| shelf.cursor(&[], access)).collect::<Result<Vec<_>, _>>()?;
        let masks = view.all_masks();
        let mut lost: Vec<_> = inputs.iter().flat_map(|shelf| shelf.lost()).collect();
        while let Some(newest) = newest(&cursors)? {
            add_newest(&mut builder, &mut cursors, newest, (&masks, &mut lost), &rest)?;
        }
        lost.into_iter().filter(|part| !part.is_hidden(&masks)).for_each(|part| builder.lose(part));
        let mut needed: Vec<Mask> = inputs.iter().flat_map(|shelf| shelf.masks()).cloned().collect();
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|mask| rest.may_need(mask));
        builder.finish(needed, superseded(cycle, &files))?;
        Finished { shared, drive: to, identity, access }.publish(|| Ok(()), |manifest| manifest.give_up(&files))
    };
    let shelf = write().inspect_err(|_| discard(to, identity.file))?;
    // A source on a drive that is lost before the removal must not come back.
    cycle.undeleted.lock().extend(&files);
    cycle.change(|view| view.replaced(&files, Some(shelf)));
    for shelf in inputs {
        remove_shelf(cycle, shelf);
    }
    Ok(())
}

/// The cursor with the newest version of the least key.
fn newest(cursors: &[Cursor]) -> Result<Option<usize>, ReadError> {
    let mut best: Option<(usize, &[u8], Sequence)> = None;
    for (at, cursor) in cursors.iter().enumerate() {
        let Some(record) = cursor.record()? else { continue };
        let is_better =
            best.is_none_or(|(_, key, sequence)| record.key < key || (record.key == key && record.sequence > sequence));
        if is_better {
            best = Some((at, record.key, record.sequence));
        }
    }
    Ok(best.map(|(at, ..)| at))
}

/// Adds the remaining version of the key at cursor `newest`, and moves all cursors past the key.
fn add_newest(
    builder: &mut ShelfBuilder<'_>,
    cursors: &mut [Cursor],
    newest: usize,
    (masks, lost): (&[Mask], &mut Vec<LostPart>),
    rest: &Rest,
) -> Result<(), ReadError> {
    let Some((head, record)) = cursors[newest].head_and_record()? else { return Ok(()) };
    let is_gone = record.kind == Kind::Delete && !rest.may_have_older();
    if !is_gone && !is_hidden(masks, record.key, record.sequence) {
        builder.add(&record, head.value_crc())?;
    }
    let key = record.key.to_vec();
    lost.retain(|part| !part.is_answered_by(&key, record.sequence));
    for cursor in cursors {
        if cursor.record()?.is_some_and(|record| record.key == key) {
            cursor.advance()?;
        }
    }
    Ok(())
}

/// The records outside of a merge, as far as they decide what may be dropped.
struct Rest {
    /// A missing drive may hold anything; or something of unknown age was lost, and may exist again; or the other
    /// rotation will need changes that it did not take.
    missing: bool,
    /// The smallest number outside.
    min: Option<Sequence>,
    /// The largest number inside.
    max: Sequence,
}

impl Rest {
    fn of(shared: &Shared, view: &View, inputs: &[FileId]) -> Self {
        let is_input = |shelf: &&Arc<Shelf>| inputs.contains(&shelf.file);
        let max = view.shelves.iter().filter(is_input).map(|shelf| shelf.sequences().1).max().unwrap_or_default();
        let outside = view.shelves.iter().filter(|shelf| !is_input(shelf) && shelf.records() > 0);
        let shelves = outside.map(|shelf| shelf.sequences().0);
        let min = shelves.chain(view.logs.iter().map(|log| log.first)).min();
        let may_need = |cycle: &CycleShared| {
            let view = cycle.view();
            view.missing || view.behind || view.has_losses() || view.shelves.iter().any(|shelf| is_lossy(shelf))
        };
        Self { missing: shared.cycles.iter().any(may_need), min, max }
    }

    /// True if there may be versions outside that are older than some inside.
    fn may_have_older(&self) -> bool {
        self.missing || self.min.is_some_and(|min| min < self.max)
    }

    /// True if `mask` may hide something outside.
    fn may_need(&self, mask: &Mask) -> bool {
        self.missing || self.min.is_some_and(|min| min <= mask.up_to)
    }
}
