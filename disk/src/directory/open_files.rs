//! Files that stay open, for all drives of a server together.
//!
//! A process may have only a limited number of open files, and a rack has far more drives than are awake at once. So
//! drives share one cache: it holds the most recently used files of all drives, and closes the one that was unused the
//! longest.
//!
//! Each call that uses a file holds a *place* while it runs. There are as many places as files may be open, so for a
//! file that must be opened there is always an unused one that can be closed.
//!
//! Invariants:
//! - never more than `files_max` files are open, and never more calls than that run (each on a separate thread);
//! - the lock is never held while a file is opened or closed: a drive that does not answer blocks no other one.

use crate::FileName;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// Maximum number of descriptors per place: a file opened past the page cache and through it, and the directory that is
/// being synced.
pub const DESCRIPTORS_PER_FILE: u64 = 3;

/// A cache of open files. See the header of this file. Clones share it.
#[derive(Clone)]
pub struct OpenFiles(Arc<FileCache>);

struct FileCache {
    files_max: usize,
    places: Arc<Semaphore>,
    /// Open files, including those with reserved room.
    open_count: AtomicUsize,
    /// Most recently used last.
    cached: Mutex<VecDeque<(DriveKey, Arc<OpenFile>)>>,
    drives: AtomicU64,
}

/// The drive that a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriveKey(u64);

/// The right to have a file open during a call.
pub(super) struct CallPermit {
    _permit: OwnedSemaphorePermit,
}

/// The result of a call.
pub(super) type CallResult<T> = Result<T, JoinError>;

/// An open file. It is closed with its last user.
pub(super) struct OpenFile {
    pub(super) name: FileName,
    pub(super) bytes: u64,
    /// The handle past the page cache, if the file system supports it.
    pub(super) direct: Option<File>,
    /// The handle through the page cache; if there is another handle, it is opened on demand.
    pub(super) buffered: OnceLock<File>,
    counted: OpenCount,
}

/// A count of an open file, from before it is opened until it is closed.
pub(super) struct OpenCount(Arc<FileCache>);

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.open_count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl OpenFile {
    pub(super) fn new(name: FileName, bytes: u64, direct: Option<File>, buffered: Option<File>, of: OpenCount) -> Self {
        assert!(direct.is_some() || buffered.is_some(), "an open file has a handle");
        Self { name, bytes, direct, buffered: buffered.map_or_else(OnceLock::new, OnceLock::from), counted: of }
    }
}

impl OpenFiles {
    /// A cache of up to `files_max` open files, at least 1. Further calls wait.
    pub fn new(files_max: usize) -> Self {
        assert!(files_max > 0, "the file in use stays open");
        Self(Arc::new(FileCache {
            files_max,
            places: Arc::new(Semaphore::new(files_max)),
            open_count: AtomicUsize::new(0),
            cached: Mutex::default(),
            drives: AtomicU64::new(0),
        }))
    }

    /// The number of files that are open now.
    pub fn open_count(&self) -> usize {
        self.0.open_count.load(Ordering::Acquire)
    }

    /// A key for one more drive.
    pub(super) fn join(&self) -> DriveKey {
        DriveKey(self.0.drives.fetch_add(1, Ordering::Relaxed))
    }

    /// A place for a call, once there is one. Only running calls hold places: a caller waits in a separate task, so a
    /// caller that is not polled at the moment (a stream that opens files ahead) blocks no others.
    pub(super) async fn place_for<T: Send + 'static>(
        &self,
        call: impl FnOnce(CallPermit) -> T + Send + 'static,
    ) -> CallResult<T> {
        let places = Arc::clone(&self.0.places);
        if let Ok(permit) = Arc::clone(&places).try_acquire_owned() {
            return tokio::task::spawn_blocking(move || call(CallPermit { _permit: permit })).await;
        }
        let mut waiting = JoinSet::new(); // its task ends with it
        waiting.spawn(async move {
            let permit = places.acquire_owned().await.expect("places are given out as long as the cache is there");
            tokio::task::spawn_blocking(move || call(CallPermit { _permit: permit })).await
        });
        waiting.join_next().await.expect("one task was begun").and_then(|ended| ended)
    }

    fn cached(&self) -> MutexGuard<'_, VecDeque<(DriveKey, Arc<OpenFile>)>> {
        self.0.cached.lock()
    }

    /// The file `name` of `drive`, if it is open, for a caller with a place.
    pub(super) fn find(&self, drive: DriveKey, name: &FileName) -> Option<Arc<OpenFile>> {
        let mut cached = self.cached();
        let at = cached.iter().position(|(of, file)| *of == drive && file.name == *name)?;
        let found = cached.remove(at)?;
        let file = Arc::clone(&found.1);
        cached.push_back(found);
        Some(file)
    }

    /// The length of `name`, if it is open.
    pub(super) fn bytes_of(&self, drive: DriveKey, name: &FileName) -> Option<u64> {
        self.cached().iter().find(|(of, file)| *of == drive && file.name == *name).map(|(_, file)| file.bytes)
    }

    /// Makes room for one more file, for a caller with a place, by closing another one if necessary.
    pub(super) fn make_room(&self) -> OpenCount {
        let closing = {
            let mut cached = self.cached();
            // There are as many places as files, and this caller uses none yet: if all files are open, one of them is
            // not in use, or is being closed right now.
            let is_full = self.0.open_count.load(Ordering::Acquire) >= self.0.files_max;
            let unused = cached.iter().position(|(_, file)| Arc::strong_count(file) == 1).filter(|_| is_full);
            let closing = unused.and_then(|at| cached.remove(at));
            if closing.is_none() {
                self.0.open_count.fetch_add(1, Ordering::AcqRel);
            }
            closing
        };
        let Some((_, file)) = closing else { return OpenCount(Arc::clone(&self.0)) };
        let file = Arc::into_inner(file).expect("only the cache had it, and no caller could get it since");
        let OpenFile { counted, direct, buffered, .. } = file;
        drop((direct, buffered));
        counted
    }

    /// Caches `file`, unless its name belongs to another file by now: `is_current` is called while no file can be
    /// [closed](Self::close). If two callers opened the same file, the first one's is cached.
    pub(super) fn insert(&self, drive: DriveKey, file: OpenFile, is_current: impl FnOnce() -> bool) -> Arc<OpenFile> {
        let mut cached = self.cached();
        if !is_current() {
            return Arc::new(file);
        }
        let already = cached.iter().find(|(of, other)| *of == drive && other.name == file.name);
        if let Some((_, already)) = already {
            let already = Arc::clone(already);
            drop(cached);
            drop(file);
            return already;
        }
        let file = Arc::new(file);
        cached.push_back((drive, Arc::clone(&file)));
        assert!(cached.len() <= self.0.files_max, "the cache holds open files only");
        file
    }

    /// Closes the file `name` of `drive`, or all of its files, as soon as they are unused.
    pub(super) fn close(&self, drive: DriveKey, name: Option<&FileName>) {
        self.close_if(|of, file| of == drive && name.is_none_or(|name| file.name == *name));
    }

    /// Closes every unused file: the process or the system has no descriptor left.
    pub(super) fn close_unused(&self) {
        self.close_if(|_, file| Arc::strong_count(file) == 1);
    }

    fn close_if(&self, mut is_meant: impl FnMut(DriveKey, &Arc<OpenFile>) -> bool) {
        let mut cached = self.cached();
        let (closing, rest) = cached.drain(..).partition(|(of, file)| is_meant(*of, file));
        *cached = rest;
        drop(cached);
        let closing: VecDeque<(DriveKey, Arc<OpenFile>)> = closing;
        drop(closing);
    }
}
