//! The spool: bounded room for recalls, between drives that read at their speed and clients that take at theirs.
//!
//! An entry holds a range of a blob's payload. It is reserved, grows while the rack reads, and is then complete;
//! readers follow it while it grows. What nobody reads is evicted, least recently used first, when room is wanted for
//! something else.
//!
//! Invariants:
//! - the files on the disk never exceed the capacity: a new file is made only after the files it replaces are gone;
//! - an entry that grows or is read is never evicted;
//! - a writer never waits for a reader;
//! - at most [`ENTRIES_MAX`] entries; for each a few words, and 4 bytes for each MiB of it;
//! - nothing here outlives the process: everything is wiped at boot, so nothing is synced.
//!
//! When it is full of entries that are read or growing, [`Spool::reserve`] answers [`Full`]. The caller waits for
//! [`Spool::changes`] (or asks for less) and tries again. A caller that recalls in [`segments`] of
//! [`Spool::segment_bytes`] and drops the reader of a segment before it asks for the one after next never stops the
//! others for good.

use crate::block::{BLOCK_BYTES, charge, detached};
use crate::drain::{Drain, Full};
use crate::spool_file::{Recall, SpoolReader, SpoolWriter};
use disk::{Drive, DriveError, FileName};
use model::BlobId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The most entries at once. More recalls than that evict entries, though there may be room for their bytes.
pub const ENTRIES_MAX: usize = 65_536;
/// A segment is at most this part of the capacity, so that so many recalls can be under way at once.
const SEGMENTS_IN_CAPACITY: u64 = 8;

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// Everything is being read or written, or it is larger than the spool, or the disk itself is full.
    #[error(transparent)]
    Full(#[from] Full),
    /// The disk failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// How full the spool is, in bytes; everything is counted as what it takes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolUsage {
    /// How much it may hold.
    pub capacity_bytes: u64,
    /// How much it holds, or keeps for what is growing.
    pub used_bytes: u64,
    /// Of that, what could be evicted now.
    pub idle_bytes: u64,
    /// How many entries there are.
    pub entries: usize,
}

/// Cuts `range` into consecutive ranges of at most `segment_bytes`.
pub fn segments(range: Range<u64>, segment_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    assert!(segment_bytes > 0, "a segment has a length");
    let mut next = range.start;
    std::iter::from_fn(move || {
        let start = next;
        next = range.end.min(start.saturating_add(segment_bytes));
        (start < range.end).then_some(start..next)
    })
}

/// The spool of a workshop. Clones are handles to the same.
#[derive(Clone)]
pub struct Spool {
    inner: Arc<Inner>,
}

/// What all handles share.
pub(crate) struct Inner {
    pub(crate) drive: Arc<dyn Drive>,
    capacity_bytes: u64,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

struct State {
    used_bytes: u64,
    idle_bytes: u64,
    next: u64,
    entries: HashMap<u64, Entry>,
    /// Blob, start and number of every entry that can be found.
    places: BTreeSet<(BlobId, u64, u64)>,
    /// Entries that can be evicted, by when they were last used.
    idle: BTreeMap<u64, u64>,
    /// Entries whose files can be removed now, with what they count as.
    removable: Vec<(u64, u64)>,
    drain: Drain,
}

struct Entry {
    recall: Arc<Recall>,
    charged_bytes: u64,
    /// Its writer and its readers.
    holds: u32,
    /// Set when it can be found no more, and goes with its last hold.
    doomed: bool,
    /// Its place in `idle`, while it is there.
    idle_since: Option<u64>,
}

/// The name of the file of entry `number`.
pub(crate) fn spool_name(number: u64) -> FileName {
    FileName::new(format!("r-{number:016x}")).expect("`r-` and 16 hexadecimal digits are a file name")
}

impl Spool {
    /// A spool of `capacity_bytes` on `drive`. Call [`Spool::wipe`] before anything else.
    pub fn new(drive: Arc<dyn Drive>, capacity_bytes: u64) -> Self {
        let state = State {
            used_bytes: 0,
            idle_bytes: 0,
            next: 0,
            entries: HashMap::new(),
            places: BTreeSet::new(),
            idle: BTreeMap::new(),
            removable: Vec::new(),
            drain: Drain::new(),
        };
        let changes = watch::Sender::new(0);
        Self { inner: Arc::new(Inner { drive, capacity_bytes, state: Mutex::new(state), changes }) }
    }

    /// At boot, before anything else: removes what an earlier process left. Gives how many files that were.
    pub async fn wipe(&self) -> Result<u64, DriveError> {
        let mut removed = 0;
        for name in self.inner.drive.list().await? {
            if name.as_str().starts_with("r-") {
                self.inner.drive.remove(&name).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Room for payload bytes `range` of `blob`, and a writer for them. Evicts what nobody reads to make that room.
    ///
    /// A writer that is dropped before it is finished fails the recall.
    pub async fn reserve(&self, blob: BlobId, range: Range<u64>) -> Result<SpoolWriter, ReserveError> {
        let inner = Arc::clone(&self.inner);
        detached(async move { inner.reserve(blob, range).await }).await
    }

    /// A reader of the entry, complete or growing, that holds payload byte `offset` of `blob` and goes on longest.
    pub fn find(&self, blob: BlobId, offset: u64) -> Option<SpoolReader> {
        let mut state = self.inner.state.lock();
        let number = state.find(blob, offset)?;
        let recall = state.hold(number);
        drop(state);
        Some(SpoolReader::new(SpoolHold { inner: Arc::clone(&self.inner), number }, recall))
    }

    /// The most bytes that a recall should ask for at once: an eighth of the capacity, in whole blocks, and at least
    /// one.
    pub fn segment_bytes(&self) -> u64 {
        let block_bytes = BLOCK_BYTES as u64;
        (self.inner.capacity_bytes / SEGMENTS_IN_CAPACITY / block_bytes).max(1) * block_bytes
    }

    /// Changes whenever there may be more room than before. Subscribe first, then try to reserve, then wait.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// How full it is.
    pub fn usage(&self) -> SpoolUsage {
        let state = self.inner.state.lock();
        SpoolUsage {
            capacity_bytes: self.inner.capacity_bytes,
            used_bytes: state.used_bytes,
            idle_bytes: state.idle_bytes,
            entries: state.entries.len(),
        }
    }
}

impl State {
    /// The entry that holds byte `offset` of `blob` and goes on longest.
    fn find(&self, blob: BlobId, offset: u64) -> Option<u64> {
        let candidates = self.places.range((blob, 0, 0)..=(blob, offset, u64::MAX));
        let covering = candidates.filter_map(|&(_, _, number)| {
            let end = self.entries.get(&number)?.recall.range.end;
            (end > offset).then_some((end, number))
        });
        covering.max().map(|(_, number)| number)
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        self.entries.get_mut(&number).expect("what is held is not forgotten")
    }

    /// One more hold on the entry.
    fn hold(&mut self, number: u64) -> Arc<Recall> {
        let entry = self.entry(number);
        entry.holds += 1;
        let (recall, charged_bytes, since) = (Arc::clone(&entry.recall), entry.charged_bytes, entry.idle_since.take());
        if let Some(since) = since {
            self.idle.remove(&since);
            self.idle_bytes -= charged_bytes;
        }
        recall
    }

    /// One hold less. What nobody holds is idle, or goes.
    fn release(&mut self, number: u64) {
        let entry = self.entry(number);
        entry.holds -= 1;
        if entry.holds > 0 {
            return;
        }
        if entry.doomed {
            self.take_out(number);
        } else {
            let charged_bytes = entry.charged_bytes;
            let since = self.tick();
            self.entry(number).idle_since = Some(since);
            self.idle.insert(since, number);
            self.idle_bytes += charged_bytes;
        }
    }

    /// From now on the entry is not found. It goes with its last hold.
    fn doom(&mut self, number: u64) {
        let entry = self.entry(number);
        entry.doomed = true;
        let place = (entry.recall.blob, entry.recall.range.start, number);
        self.places.remove(&place);
    }

    /// Forgets an entry that nobody holds; its file can be removed.
    fn take_out(&mut self, number: u64) {
        let entry = self.entries.remove(&number).expect("it was there a moment ago");
        self.places.remove(&(entry.recall.blob, entry.recall.range.start, number));
        if let Some(since) = entry.idle_since {
            self.idle.remove(&since);
            self.idle_bytes -= entry.charged_bytes;
        }
        self.removable.push((number, entry.charged_bytes));
    }

    /// A number that was not used before, growing.
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes out idle entries, oldest first, until `wanted_bytes` more fit into `capacity_bytes` with all that is
    /// removable gone. `false`, and nothing taken out, if that cannot be.
    fn make_room(&mut self, wanted_bytes: u64, capacity_bytes: u64) -> bool {
        let removable_bytes: u64 = self.removable.iter().map(|(_, bytes)| bytes).sum();
        let mut used_bytes = self.used_bytes - removable_bytes;
        let must_stay_bytes = used_bytes - self.idle_bytes;
        let entry_fits = self.entries.len() < ENTRIES_MAX || !self.idle.is_empty();
        if must_stay_bytes.saturating_add(wanted_bytes) > capacity_bytes || !entry_fits {
            return false;
        }
        while used_bytes + wanted_bytes > capacity_bytes || self.entries.len() >= ENTRIES_MAX {
            let (_, number) = self.idle.pop_first().expect("the idle bytes are those of idle entries");
            self.take_out_idle(number, &mut used_bytes);
        }
        true
    }

    fn take_out_idle(&mut self, number: u64, used_bytes: &mut u64) {
        *used_bytes -= self.entry(number).charged_bytes;
        self.take_out(number);
    }
}

impl Inner {
    async fn reserve(self: Arc<Self>, blob: BlobId, range: Range<u64>) -> Result<SpoolWriter, ReserveError> {
        let file_bytes = range.end.saturating_sub(range.start);
        let charged_bytes = charge(file_bytes.max(1));
        let recall = Arc::new(Recall::new(blob, range));
        let (hold, in_the_way) = self.enter(&recall, charged_bytes)?;
        let made = match self.remove_files(in_the_way).await {
            Ok(()) => self.drive.create(&spool_name(hold.number), file_bytes).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => Ok(SpoolWriter::new(hold, recall)),
            Err(error) => {
                self.doom(hold.number);
                Err(match error {
                    DriveError::Full => ReserveError::Full(self.full(&self.state.lock(), charged_bytes)),
                    other => ReserveError::Drive(other),
                })
            }
        }
    }

    /// Makes the entry, not to be found yet, and says which files must go before its own is made.
    fn enter(self: &Arc<Self>, recall: &Arc<Recall>, bytes: u64) -> Result<(SpoolHold, Vec<(u64, u64)>), Full> {
        let mut state = self.state.lock();
        if !state.make_room(bytes, self.capacity_bytes) {
            return Err(self.full(&state, bytes));
        }
        let in_the_way = std::mem::take(&mut state.removable);
        let number = state.tick();
        let entry =
            Entry { recall: Arc::clone(recall), charged_bytes: bytes, holds: 1, doomed: false, idle_since: None };
        state.entries.insert(number, entry);
        state.places.insert((recall.blob, recall.range.start, number));
        state.used_bytes += bytes;
        Ok((SpoolHold { inner: Arc::clone(self), number }, in_the_way))
    }

    fn full(&self, state: &State, wanted_bytes: u64) -> Full {
        let held_bytes = state.used_bytes - state.idle_bytes;
        state.drain.full(wanted_bytes, self.capacity_bytes.saturating_sub(held_bytes), self.capacity_bytes)
    }

    /// From now on the entry is not found. It goes with its last hold.
    pub(crate) fn doom(&self, number: u64) {
        self.state.lock().doom(number);
    }

    /// Removes these files. Those that could not be removed are tried again later; the first error is given.
    async fn remove_files(&self, files: Vec<(u64, u64)>) -> Result<(), DriveError> {
        let mut result = Ok(());
        for (number, charged_bytes) in files {
            match self.drive.remove(&spool_name(number)).await {
                Ok(()) | Err(DriveError::NotFound(_)) => {
                    let mut state = self.state.lock();
                    state.used_bytes -= charged_bytes;
                    state.drain.note(charged_bytes);
                }
                Err(error) => {
                    self.state.lock().removable.push((number, charged_bytes));
                    result = result.and(Err(error));
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Removes what can go, without anybody waiting for it. Without a runtime it waits for the next reservation, or
    /// boot.
    fn remove_in_background(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let inner = Arc::clone(self);
        runtime.spawn(async move {
            let files = std::mem::take(&mut inner.state.lock().removable);
            if let Err(error) = inner.remove_files(files).await {
                tracing::warn!(%error, "a spool file could not be removed; it will be tried again");
            }
        });
    }
}

/// Keeps an entry from being evicted.
pub(crate) struct SpoolHold {
    pub(crate) inner: Arc<Inner>,
    pub(crate) number: u64,
}

impl Drop for SpoolHold {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        state.release(self.number);
        let removable = !state.removable.is_empty();
        drop(state);
        if removable {
            self.inner.remove_in_background();
        }
        self.inner.changes.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;
