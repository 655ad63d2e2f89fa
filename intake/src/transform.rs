//! Turning a log into a shelf.
//!
//! 1. The log is read from front to back into memory.
//! 2. The newest version of each key is written to a new shelf, unless it is masked; a deletion is a version, too.
//! 3. The shelf is synced, read back, named, and the name synced.
//! 4. One change of the manifest names the shelf and gives up its sources: a crash on either side of this step leaves
//!    the same contents. The shelf itself also lists what it replaces, for a pool whose manifest was lost.
//! 5. Readers get the new view. Only then are the sources removed.
//!
//! Memory: one log, and the memory for building a shelf.

use crate::drive::Drive;
use crate::error::ReadError;
use crate::lost::{Loss, LostPart};
use crate::manifest::{Entry, Manifest};
use crate::medium::{is_full, read_past_bad_sectors};
use crate::names::{FileId, Identity, Name};
use crate::record::{Sequence, decode};
use crate::shared::{CycleShared, Shared, is_hidden};
use crate::shelf::access::Access;
use crate::shelf::build::ShelfBuilder;
use crate::shelf::read::Shelf;
use crate::table::LogTable;
use engine::shift::TransformOutcome;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// The progress of a thread that works for the writer, as the writer sees it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Grows as long as the thread makes progress.
    pub(crate) steps: AtomicU64,
    /// True once the source has been read and the target is being written.
    pub(crate) writes: AtomicBool,
    /// True if the writer has given up on it: its result must not be used.
    pub(crate) abandoned: AtomicBool,
}

impl Progress {
    /// Counts one step, unless the writer has given up.
    fn step(&self) -> io::Result<()> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if self.abandoned.load(Ordering::Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

/// Reads the durable part of the log of `table`.
fn image(table: &LogTable, progress: &Progress) -> io::Result<Vec<u8>> {
    let mut image = vec![0; table.index.read().bytes as usize];
    for (at, part) in image.chunks_mut(READ_BYTES).enumerate() {
        read_past_bad_sectors(table.medium.as_ref(), part, (at * READ_BYTES) as u64)?;
        progress.step()?;
    }
    Ok(image)
}

/// A log that becomes a shelf.
pub(crate) struct Transform<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) cycle: &'a CycleShared,
    /// The log, which no longer grows.
    pub(crate) table: &'a LogTable,
    /// The drive of the shelf.
    pub(crate) to: &'a Arc<Drive>,
    pub(crate) progress: &'a Progress,
}

impl Transform<'_> {
    /// Runs the transformation.
    pub(crate) fn run(&self) -> Result<(), TransformOutcome> {
        let Self { cycle, table, progress, .. } = self;
        let image = image(table, progress).map_err(|error| source_outcome(table, &error))?;
        progress.writes.store(true, Ordering::Relaxed);
        let shelf = self.write(&image).map_err(|error| target_outcome(&error))?;
        if progress.abandoned.load(Ordering::Relaxed) {
            return Err(TransformOutcome::Failed);
        }
        cycle.undeleted.lock().insert(table.file);
        cycle.change(|view| view.replaced(&[table.file], Some(shelf)));
        Ok(())
    }

    fn write(&self, image: &[u8]) -> Result<Arc<Shelf>, ReadError> {
        let Self { shared, cycle, table, to, progress } = self;
        let masks = cycle.view().all_masks();
        let index = table.index.read();
        let identity = shared.new_file(to.uuid);
        let write = || {
            let mut builder = ShelfBuilder::begin(to, identity, Access::Stage)?;
            for (key, slot) in &index.keys {
                if is_hidden(&masks, key, slot.head.sequence) {
                    continue;
                }
                match decode(&image[slot.offset as usize..], table.file.stamp()) {
                    Ok((head, record)) if head == slot.head => builder.add(&record, head.value_crc())?,
                    _ => builder.lose(lose(shared, cycle, key, slot.head.sequence)),
                }
                progress.step()?;
            }
            // Another rotation may have restored it.
            let still = cycle.view();
            index.lost.iter().filter(|part| still.has_lost(part)).for_each(|part| builder.lose(part.clone()));
            let superseded = superseded(cycle, &[table.file]);
            builder.finish(index.masks.clone(), superseded)?;
            let finished = Finished { shared, drive: to, identity, access: Access::Stage };
            finished.publish(|| progress.step(), |manifest| manifest.give_up(&[table.file]))
        };
        write().inspect_err(|_| discard(to, identity.file))
    }
}

/// The outcome of an error with a log.
fn source_outcome(table: &LogTable, error: &io::Error) -> TransformOutcome {
    if error.kind() == io::ErrorKind::Interrupted {
        return TransformOutcome::Failed;
    }
    tracing::error!(%error, log = %table.file, "a log cannot be read");
    TransformOutcome::SourceLost
}

/// The outcome of an error with the drive of a shelf.
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

/// Records the loss of a record that was whole once and can no longer be read.
fn lose(shared: &Shared, cycle: &CycleShared, key: &[u8], sequence: Sequence) -> LostPart {
    shared.lose_unless_elsewhere(cycle, Loss::Version { key: key.to_vec(), sequence });
    let lost = LostPart { keys: Some((key.to_vec(), key.to_vec())), max: sequence };
    cycle.change(|view| view.without([lost.clone()]));
    lost
}

/// The dead files that a new shelf must list.
pub(crate) fn superseded(cycle: &CycleShared, sources: &[FileId]) -> Vec<FileId> {
    cycle.undeleted.lock().iter().chain(sources).copied().collect()
}

/// A complete shelf that does not have its name yet.
pub(crate) struct Finished<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) drive: &'a Arc<Drive>,
    pub(crate) identity: Identity,
    pub(crate) access: Access,
}

impl Finished<'_> {
    /// Reads it back, gives it its name, and names it in the manifest, together with `change`: from then on it counts.
    /// `step` is called for each record.
    pub(crate) fn publish(
        &self,
        step: impl Fn() -> io::Result<()>,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Arc<Shelf>, ReadError> {
        let Self { shared, drive, identity, access } = *self;
        let shelf = Arc::new(Shelf::open_unfinished(drive, identity)?);
        shelf.verify(access, step)?;
        let (old, new) = (Name::Unfinished(identity.file).to_string(), Name::Shelf(identity.file).to_string());
        access.run(drive, || {
            drive.directory.rename(&old, &new)?;
            drive.sync_names()
        })?;
        let named = shared.note(|manifest| {
            manifest.name(Entry::of_shelf(&shelf));
            change(manifest);
        });
        if let Err(error) = named {
            // As long as a slot may name it, a crash may show it. Otherwise the next start treats it as a draft, too.
            if !shared.is_uncertain() {
                drive.directory.remove(&new).ok();
            }
            return Err(error.into());
        }
        Ok(shelf)
    }
}

/// Removes the remains of a failed shelf; if that also fails, they are removed at the next start.
pub(crate) fn discard(drive: &Drive, file: FileId) {
    drive.directory.remove(&Name::Unfinished(file).to_string()).ok();
}

/// Removes a dead file; if that fails, later shelves list it as dead.
pub(crate) fn remove(cycle: &CycleShared, drive: &Drive, name: Name) {
    let (Name::Log(file) | Name::Shelf(file) | Name::Unfinished(file)) = name;
    if drive.is_lost() {
        return;
    }
    match drive.directory.remove(&name.to_string()).and_then(|()| drive.sync_names()) {
        Ok(()) => {
            cycle.undeleted.lock().remove(&file);
            cycle.removed.lock().push(file);
        }
        Err(error) => tracing::warn!(%error, %name, "a dead file cannot be removed"),
    }
}

/// Removes a dead shelf as background work; `false` if it still exists.
pub(crate) fn remove_shelf(cycle: &CycleShared, shelf: &Shelf) -> bool {
    remove_shelf_file(cycle, &shelf.drive, shelf.file)
}

/// The same for an unreadable shelf.
pub(crate) fn remove_shelf_file(cycle: &CycleShared, drive: &Drive, file: FileId) -> bool {
    cycle.undeleted.lock().insert(file);
    let removed = drive.background(|| {
        remove(cycle, drive, Name::Shelf(file));
        Ok(())
    });
    removed.is_ok()
}
