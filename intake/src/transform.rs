//! Turning a log into a shelf, and several shelves into one.
//!
//! 1. The source is read: a log from front to back into memory, shelves by cursors in key order.
//! 2. Of each key the newest version is written to a new shelf, unless it is masked. That a key is gone is written as
//!    long as an older version may lie elsewhere, be it on a drive that is missing; masks stay as long.
//! 3. The shelf is synced, read back, named, and the name synced. From now on the sources are dead, and the shelf says
//!    so itself: a crash on either side of this step leaves the same contents.
//! 4. Readers get the new view. Only then are the sources removed.
//!
//! Memory: one log, and what building a shelf takes; or a leaf of each source, and the same.

use crate::drive::Drive;
use crate::error::ReadError;
use crate::mask::Mask;
use crate::medium::is_full;
use crate::names::{FileId, Name};
use crate::record::{Kind, Sequence, decode};
use crate::shared::{CycleShared, Loss, Shared, is_hidden};
use crate::shelf::build::ShelfBuilder;
use crate::shelf::read::{Cursor, Shelf};
use crate::table::LogTable;
use crate::view::View;
use engine::shift::TransformOutcome;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// What the writer knows of a thread that works for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Grows as long as the thread gets on.
    pub(crate) steps: AtomicU64,
    /// The source has been read, the target is written.
    pub(crate) writes: AtomicBool,
    /// The writer has given up on it: what it makes is not to be used.
    pub(crate) abandoned: AtomicBool,
}

impl Progress {
    /// One step further, unless the writer has given up.
    fn step(&self) -> io::Result<()> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if self.abandoned.load(Ordering::Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

/// Reads the log of `table` as far as it is durable.
fn image(table: &LogTable, progress: &Progress) -> io::Result<Vec<u8>> {
    let mut image = vec![0; table.index.read().bytes as usize];
    for (at, part) in image.chunks_mut(READ_BYTES).enumerate() {
        table.medium.read_at(part, (at * READ_BYTES) as u64)?;
        progress.step()?;
    }
    Ok(image)
}

/// Turns the log of `table`, which grows no more, into a shelf on `to`.
pub(crate) fn transform(
    shared: &Shared,
    cycle: &CycleShared,
    table: &LogTable,
    to: &Arc<Drive>,
    progress: &Progress,
) -> Result<(), TransformOutcome> {
    let image = image(table, progress).map_err(|error| source_outcome(table, &error))?;
    progress.writes.store(true, Ordering::Relaxed);
    let shelf = write_log(shared, cycle, table, &image, to, progress).map_err(|error| target_outcome(&error))?;
    if progress.abandoned.load(Ordering::Relaxed) {
        return Err(TransformOutcome::Failed);
    }
    cycle.undeleted.lock().insert(table.file);
    cycle.change(|view| view.replaced(&[table.file], Some(shelf)));
    Ok(())
}

/// What an error means for a log.
fn source_outcome(table: &LogTable, error: &io::Error) -> TransformOutcome {
    if error.kind() == io::ErrorKind::Interrupted {
        return TransformOutcome::Failed;
    }
    tracing::error!(%error, log = %table.file, "a log cannot be read");
    TransformOutcome::SourceLost
}

/// What an error means for the drive of a shelf.
fn target_outcome(error: &ReadError) -> TransformOutcome {
    if let ReadError::Drive(error) = error
        && error.kind() == io::ErrorKind::Interrupted
    {
        return TransformOutcome::Failed;
    }
    tracing::error!(%error, "a shelf cannot be written");
    match error {
        ReadError::Drive(error) if is_full(error) => TransformOutcome::TargetFull,
        _ => TransformOutcome::TargetLost,
    }
}

fn write_log(
    shared: &Shared,
    cycle: &CycleShared,
    table: &LogTable,
    image: &[u8],
    to: &Arc<Drive>,
    progress: &Progress,
) -> Result<Arc<Shelf>, ReadError> {
    let masks = cycle.view().all_masks();
    let index = table.index.read();
    let identity = shared.new_file(to.uuid);
    let write = || {
        let mut builder = ShelfBuilder::begin(to, identity)?;
        for (key, slot) in &index.keys {
            if is_hidden(&masks, key, slot.head.sequence) {
                continue;
            }
            match decode(&image[slot.offset as usize..], table.file.stamp()) {
                Ok((head, record)) if head == slot.head => builder.add(&record, head.value_crc())?,
                _ => shared.lose(Loss::Version { key: key.to_vec(), sequence: slot.head.sequence }),
            }
            progress.step()?;
        }
        let superseded = superseded(cycle, &[table.file]);
        builder.finish(index.masks.clone(), superseded)?;
        publish(to, identity.file, || Shelf::open_unfinished(to, identity), progress)
    };
    write().inspect_err(|_| discard(to, identity.file))
}

/// The dead files that a new shelf has to know.
fn superseded(cycle: &CycleShared, sources: &[FileId]) -> Vec<FileId> {
    cycle.undeleted.lock().iter().chain(sources).copied().collect()
}

/// Reads a shelf back, and gives it its name.
fn publish(
    drive: &Drive,
    file: FileId,
    open: impl FnOnce() -> Result<Shelf, ReadError>,
    progress: &Progress,
) -> Result<Arc<Shelf>, ReadError> {
    let shelf = Arc::new(open()?);
    shelf.verify(|| progress.step())?;
    drive.directory.rename(&Name::Unfinished(file).to_string(), &Name::Shelf(file).to_string())?;
    drive.sync_names()?;
    Ok(shelf)
}

/// Removes what a shelf that failed has left; if that fails as well, it is removed at the next start.
fn discard(drive: &Drive, file: FileId) {
    drive.directory.remove(&Name::Unfinished(file).to_string()).ok();
}

/// Shelves that are to become one.
pub(crate) struct Merge {
    pub(crate) inputs: Vec<Arc<Shelf>>,
    pub(crate) to: Arc<Drive>,
}

/// Merges shelves. `step` is called before each piece of work, and waits or fails as the caller likes.
pub(crate) fn merge(
    shared: &Shared,
    cycle: &CycleShared,
    merge: &Merge,
    step: impl Fn() -> io::Result<()>,
) -> Result<(), ReadError> {
    let files: Vec<FileId> = merge.inputs.iter().map(|shelf| shelf.file).collect();
    let view = cycle.view();
    let rest = Rest::of(&view, &files);
    let identity = shared.new_file(merge.to.uuid);
    let progress = Progress::default();
    let write = || {
        let mut builder = ShelfBuilder::begin(&merge.to, identity)?;
        let mut cursors = merge.inputs.iter().map(|shelf| shelf.from(&[])).collect::<Result<Vec<_>, _>>()?;
        let masks = view.all_masks();
        while let Some(newest) = newest(&cursors)? {
            step()?;
            add_newest(&mut builder, &mut cursors, newest, &masks, &rest)?;
        }
        let mut kept: Vec<Mask> = merge.inputs.iter().flat_map(|shelf| shelf.masks()).cloned().collect();
        kept.sort_unstable();
        kept.dedup();
        kept.retain(|mask| rest.may_need(mask));
        builder.finish(kept, superseded(cycle, &files))?;
        step()?;
        publish(&merge.to, identity.file, || Shelf::open_unfinished(&merge.to, identity), &progress)
    };
    let shelf = write().inspect_err(|_| discard(&merge.to, identity.file))?;
    // A shelf that was lost meanwhile is not to come back with what was merged before.
    cycle.undeleted.lock().extend(&files);
    cycle.change(|view| view.replaced(&files, Some(shelf)));
    for shelf in &merge.inputs {
        remove(cycle, &shelf.drive, Name::Shelf(shelf.file));
    }
    Ok(())
}

/// Where the newest version of the least key is.
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

/// Adds what is left of the key at cursor `newest`, and leaves the key with all cursors.
fn add_newest(
    builder: &mut ShelfBuilder<'_>,
    cursors: &mut [Cursor],
    newest: usize,
    masks: &[Mask],
    rest: &Rest,
) -> Result<(), ReadError> {
    let Some((head, record)) = cursors[newest].head_and_record()? else { return Ok(()) };
    let is_gone = record.kind == Kind::Delete && !rest.may_have_older();
    if !is_gone && !is_hidden(masks, record.key, record.sequence) {
        builder.add(&record, head.value_crc())?;
    }
    let key = record.key.to_vec();
    for cursor in cursors {
        if cursor.record()?.is_some_and(|record| record.key == key) {
            cursor.advance()?;
        }
    }
    Ok(())
}

/// What lies outside of a merge, as far as it matters for what may be dropped.
struct Rest {
    /// A drive is missing that may hold anything.
    incomplete: bool,
    /// The smallest number outside.
    min: Option<Sequence>,
    /// The largest number inside.
    max: Sequence,
}

impl Rest {
    fn of(view: &View, inputs: &[FileId]) -> Self {
        let is_input = |shelf: &&Arc<Shelf>| inputs.contains(&shelf.file);
        let max = view.shelves.iter().filter(is_input).map(|shelf| shelf.sequences().1).max().unwrap_or_default();
        let outside = view.shelves.iter().filter(|shelf| !is_input(shelf) && shelf.records() > 0);
        let shelves = outside.map(|shelf| shelf.sequences().0);
        let min = shelves.chain(view.logs.iter().map(|log| log.first)).min();
        Self { incomplete: view.incomplete, min, max }
    }

    /// Whether there may be versions outside that are older than some inside.
    fn may_have_older(&self) -> bool {
        self.incomplete || self.min.is_some_and(|min| min < self.max)
    }

    /// Whether there may be something outside that `mask` hides.
    fn may_need(&self, mask: &Mask) -> bool {
        self.incomplete || self.min.is_some_and(|min| min <= mask.up_to)
    }
}

/// Removes a dead file; if that fails, shelves to come remember that it is dead.
pub(crate) fn remove(cycle: &CycleShared, drive: &Drive, name: Name) {
    let (Name::Log(file) | Name::Shelf(file) | Name::Unfinished(file)) = name;
    if drive.is_lost() {
        return;
    }
    match drive.directory.remove(&name.to_string()).and_then(|()| drive.sync_names()) {
        Ok(()) => {
            cycle.undeleted.lock().remove(&file);
        }
        Err(error) => tracing::warn!(%error, %name, "a dead file cannot be removed"),
    }
}
