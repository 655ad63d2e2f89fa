//! The common state of readers, the writer and its threads.

use crate::config::Config;
use crate::drive::Drive;
use crate::driver::{Handle, Tasks};
use crate::lost::Loss;
use crate::manifest::{Manifest, ManifestWriter, State};
use crate::mask::Mask;
use crate::names::{DriveUuid, FileId, Identity, PoolUuid};
use crate::queue::Queue;
use crate::record::Sequence;
use crate::status::CycleStatus;
use crate::view::View;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum number of losses that are held until they are taken; further ones are only counted.
const LOSSES_MAX: usize = 65_536;

/// The losses that no caller has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(crate) total: u64,
    pub(crate) latest: Vec<Loss>,
}

/// A wholly unreadable file with the name of a shelf.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) drive: Arc<Drive>,
    pub(crate) file: FileId,
    /// True if its content belongs to another file, or is of a later version: it stays.
    pub(crate) is_kept: bool,
}

/// The shared state of one rotation.
#[derive(Default)]
pub(crate) struct CycleShared {
    view: RwLock<Arc<View>>,
    /// Dead files whose removal is not known to be durable.
    pub(crate) undeleted: Mutex<BTreeSet<FileId>>,
    /// Damaged shelves that cannot be read to their end: they are not merged.
    pub(crate) damaged: Mutex<BTreeSet<FileId>>,
    /// Wholly unreadable files with the name of a shelf; dead once another rotation has restored their records.
    pub(crate) unreadable: Mutex<Vec<Unreadable>>,
    /// Held during the survey of a damaged shelf.
    pub(crate) surveying: Mutex<()>,
    /// Dead files that are durably gone: the next change of the manifest leaves them out.
    pub(crate) removed: Mutex<Vec<FileId>>,
    /// All its drives; `None` for a missing one.
    pub(crate) drives: OnceLock<Vec<(DriveUuid, Option<Arc<Drive>>)>>,
    pub(crate) status: Mutex<CycleStatus>,
    /// It has taken everything up to this number; what it has lost of that is known.
    pub(crate) had: AtomicU64,
    /// True if it may lack changes that were acknowledged. Unset only when it lacks none, durably.
    may_lag: AtomicBool,
}

impl CycleShared {
    /// All its drives, and those of them that work.
    pub(crate) fn members(&self) -> (Vec<DriveUuid>, Vec<DriveUuid>) {
        let drives = self.drives.get().map_or(&[][..], Vec::as_slice);
        let is_there = |drive: &Option<Arc<Drive>>| drive.as_ref().is_some_and(|drive| !drive.is_lost());
        let there = drives.iter().filter(|(_, drive)| is_there(drive)).map(|(uuid, _)| *uuid).collect();
        (drives.iter().map(|(uuid, _)| *uuid).collect(), there)
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Replaces the view with the result of `change`.
    pub(crate) fn change(&self, change: impl FnOnce(&View) -> View) {
        let mut view = self.view.write();
        *view = Arc::new(change(&view));
    }

    /// The last change that it has taken, with all before.
    pub(crate) fn had(&self) -> Sequence {
        Sequence(self.had.load(Ordering::Relaxed))
    }

    /// True if it may lack changes that were acknowledged. If not, it has all of them, or what it has lost is known.
    pub(crate) fn may_lag(&self) -> bool {
        self.may_lag.load(Ordering::Relaxed)
    }

    pub(crate) fn set_may_lag(&self, may_lag: bool) {
        self.may_lag.store(may_lag, Ordering::Relaxed);
    }

    /// It has taken everything up to `last`.
    pub(crate) fn has_taken(&self, last: Sequence) {
        self.had.fetch_max(last.0, Ordering::Relaxed);
    }
}

/// The state that all threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) pool: PoolUuid,
    pub(crate) queue: Queue,
    pub(crate) tasks: Tasks,
    pub(crate) cycles: Vec<CycleShared>,
    /// Set once all files were read, and before anything is written.
    pub(crate) keeper: OnceLock<Mutex<ManifestWriter>>,
    pub(crate) losses: Mutex<Losses>,
    /// The last number that was given.
    pub(crate) last: AtomicU64,
    /// The last change up to which the caller knows all.
    covered: AtomicU64,
    /// Logs with changes up to this one are retained, although the caller knows them.
    retained: AtomicU64,
    pub(crate) counts: Counts,
    next_file: AtomicU64,
}

/// Counts since the intake was opened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) accepted_bytes: AtomicU64,
    pub(crate) batches: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: Config, pool: PoolUuid, cycles: usize) -> Self {
        let queue = Queue::new(config.queue_bytes);
        let cycles = (0..cycles).map(|_| CycleShared::default()).collect();
        let (last, next_file) = (AtomicU64::new(0), AtomicU64::new(0));
        let covered = AtomicU64::new(config.covered.map_or(u64::MAX, |covered| covered.0));
        let (losses, counts, retained) = (Mutex::default(), Counts::default(), AtomicU64::new(0));
        let keeper = OnceLock::new();
        let tasks = Tasks::default();
        Self { config, pool, queue, tasks, cycles, keeper, losses, last, covered, retained, counts, next_file }
    }

    /// Starts a task for the writer.
    pub(crate) fn begin(&self, name: &str, task: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
        self.tasks.begin(self.config.driver, name, task)
    }

    /// The last change up to which the caller knows all.
    pub(crate) fn covered(&self) -> Sequence {
        Sequence(self.covered.load(Ordering::Relaxed))
    }

    /// The last change that is retained, although the caller may know it.
    pub(crate) fn retained(&self) -> Sequence {
        Sequence(self.retained.load(Ordering::Relaxed))
    }

    /// Retains everything that exists now.
    pub(crate) fn retain(&self) {
        self.retained.store(self.last.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn set_covered(&self, covered: Sequence) {
        self.covered.fetch_max(covered.0, Ordering::Relaxed);
    }

    /// The identity of a new file on `drive`.
    pub(crate) fn new_file(&self, drive: DriveUuid) -> Identity {
        let count = self.next_file.fetch_add(1, Ordering::Relaxed);
        Identity { pool: self.pool, drive, file: FileId { nonce: self.config.entropy as u64, count } }
    }

    pub(crate) fn lose(&self, loss: Loss) {
        tracing::error!("the intake lost {loss}");
        let mut losses = self.losses.lock();
        losses.total += 1;
        if losses.latest.len() < LOSSES_MAX {
            losses.latest.push(loss);
        }
    }
}

impl Shared {
    /// Writes to `manifest` what each rotation has taken.
    pub(crate) fn note_taken(&self, manifest: &mut Manifest) {
        manifest.had = self.cycles.iter().map(CycleShared::had).collect();
        manifest.lagging = self.cycles.iter().map(CycleShared::may_lag).collect();
    }

    /// Changes the manifest, durably.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], for any problem of the home: no drive of the pool is to blame, and the
    /// problem may be temporary.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Manifest)) -> io::Result<()> {
        let mut removed = Vec::new();
        self.cycles.iter().for_each(|cycle| removed.append(&mut cycle.removed.lock()));
        self.keeping(|keeper| {
            keeper.change(|manifest| {
                manifest.files.retain(|entry| entry.state != State::Dead || !removed.contains(&entry.file));
                self.note_taken(manifest);
                change(manifest);
            })
        })
    }

    /// Records the lengths of open logs.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub(crate) fn note_lengths(&self, change: impl FnOnce(&mut Manifest)) -> io::Result<()> {
        self.keeping(|keeper| {
            keeper.extend(|manifest| {
                self.note_taken(manifest);
                change(manifest);
            })
        })
    }

    /// True if a failed change of the manifest may last.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.keeper.get().is_some_and(|keeper| keeper.lock().is_uncertain())
    }

    fn keeping(&self, keep: impl FnOnce(&mut ManifestWriter) -> io::Result<()>) -> io::Result<()> {
        let keeper = self.keeper.get().ok_or(io::ErrorKind::StorageFull)?;
        keep(&mut keeper.lock()).map_err(|error| {
            io::Error::new(io::ErrorKind::StorageFull, format!("the manifest of the pool cannot be written: {error}"))
        })
    }

    /// Records that the rotation `of` cannot read something: a loss, unless another rotation has everything.
    pub(crate) fn lose_unless_elsewhere(&self, of: &CycleShared, loss: Loss) {
        if self.is_elsewhere(of) {
            tracing::warn!("damaged, and the other rotation has it: {loss}");
        } else {
            self.lose(loss);
        }
    }

    /// True if another rotation than `of` has everything.
    pub(crate) fn is_elsewhere(&self, of: &CycleShared) -> bool {
        self.cycles.iter().any(|other| !std::ptr::eq(other, of) && other.view().is_whole())
    }
}

/// True if any of `masks` hides this version.
pub(crate) fn is_hidden(masks: &[Mask], key: &[u8], sequence: Sequence) -> bool {
    masks.iter().any(|mask| mask.hides(key, sequence))
}
