//! Turning a log into a shelf.
//!
//! 1. The log is read from front to back into memory.
//! 2. Of each key the newest version is written to a new shelf, unless it is masked; that it is gone is a version, too.
//! 3. The shelf is synced, read back, named, and the name synced.
//! 4. One change of the manifest names the shelf and gives up its sources: a crash on either side of this step leaves
//!    the same contents. The shelf says of itself what it replaces, too, for a pool whose manifest was lost.
//! 5. Readers get the new view. Only then are the sources removed.
//!
//! Memory: one log, and what building a shelf takes.

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
        read_past_bad_sectors(table.medium.as_ref(), part, (at * READ_BYTES) as u64)?;
        progress.step()?;
    }
    Ok(image)
}

/// A log that is to become a shelf.
pub(crate) struct Transform<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) cycle: &'a CycleShared,
    /// The log, which grows no more.
    pub(crate) table: &'a LogTable,
    /// The drive of the shelf.
    pub(crate) to: &'a Arc<Drive>,
    pub(crate) progress: &'a Progress,
}

impl Transform<'_> {
    /// Does it.
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
            // Another rotation may have given it back.
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

/// A record that was whole once cannot be read any more.
fn lose(shared: &Shared, cycle: &CycleShared, key: &[u8], sequence: Sequence) -> LostPart {
    shared.lose_unless_elsewhere(cycle, Loss::Version { key: key.to_vec(), sequence });
    let lost = LostPart { keys: Some((key.to_vec(), key.to_vec())), max: sequence };
    cycle.change(|view| view.without([lost.clone()]));
    lost
}

/// The dead files that a new shelf has to know.
pub(crate) fn superseded(cycle: &CycleShared, sources: &[FileId]) -> Vec<FileId> {
    cycle.undeleted.lock().iter().chain(sources).copied().collect()
}

/// A shelf that is complete, and has not its name yet.
pub(crate) struct Finished<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) drive: &'a Arc<Drive>,
    pub(crate) identity: Identity,
    pub(crate) access: Access,
}

impl Finished<'_> {
    /// Reads it back, gives it its name, and names it in the manifest, with what else `change` says: from then on it
    /// counts. `step` is called for each record.
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
            // A crash may show it as long as a slot may name it. Otherwise the next start takes it for a draft, too.
            if !shared.is_uncertain() {
                drive.directory.remove(&new).ok();
            }
            return Err(error.into());
        }
        Ok(shelf)
    }
}

/// Removes what a shelf that failed has left; if that fails as well, it is removed at the next start.
pub(crate) fn discard(drive: &Drive, file: FileId) {
    drive.directory.remove(&Name::Unfinished(file).to_string()).ok();
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
            cycle.removed.lock().push(file);
        }
        Err(error) => tracing::warn!(%error, %name, "a dead file cannot be removed"),
    }
}

/// Removes a dead shelf as background work; `false` if it is still there.
pub(crate) fn remove_shelf(cycle: &CycleShared, shelf: &Shelf) -> bool {
    remove_shelf_file(cycle, &shelf.drive, shelf.file)
}

/// The same for a shelf that cannot be read.
pub(crate) fn remove_shelf_file(cycle: &CycleShared, drive: &Drive, file: FileId) -> bool {
    cycle.undeleted.lock().insert(file);
    let removed = drive.background(|| {
        remove(cycle, drive, Name::Shelf(file));
        Ok(())
    });
    removed.is_ok()
}
