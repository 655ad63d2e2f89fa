//! The spool: bounded room for recalls, between drives and clients that transfer at different speeds.
//!
//! An entry holds a range of a blob's payload. It is reserved, grows while the rack reads, and is then complete;
//! readers follow it while it grows. Entries without a reader are evicted when room is needed: first those that were
//! taken, then those that were read ahead and not requested, then those for which a client is to come back; in each
//! group, the least recently used first. Reading ahead evicts only the first group.
//!
//! Invariants:
//! - the files on the disk never exceed the capacity: a new file is made only after the files it replaces are gone;
//! - an entry that grows or is read is never evicted;
//! - a writer never waits for a reader;
//! - at most [`ENTRIES_MAX`](crate::ENTRIES_MAX) entries; for each a few words, and 4 bytes for each MiB of it;
//! - nothing here outlives the process: everything is wiped at boot, so nothing is synced.
//!
//! When the spool is full of entries that are read or growing, [`Spool::reserve`] returns [`Full`]. The caller waits
//! for [`Spool::changes`] (or requests less) and retries. A caller that recalls in [`segments`] of
//! [`Spool::segment_bytes`] and drops the reader of a segment before it requests the one after next never stops the
//! others permanently.

use crate::block::{BLOCK_BYTES, charge, detached};
use crate::drain::Full;
use crate::names::spool_name;
use crate::purpose::{AheadBytes, Purpose};
use crate::recall::Recall;
use crate::spool_entries::{Entries, EntryTable, SpoolHold};
use crate::spool_file::{SpoolReader, SpoolWriter};
use disk::{Drive, DriveError};
use model::BlobId;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::watch;

/// A segment is at most the capacity divided by this, so that this number of recalls can be under way at once.
const SEGMENTS_IN_CAPACITY: u64 = 8;

/// The reason that nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// All entries are being read or written, or the range is larger than the spool, or the disk itself is full.
    #[error(transparent)]
    Full(#[from] Full),
    /// The disk failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// The use of the spool, in bytes; every entry counts as the room that it takes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolUsage {
    /// The most that it may hold.
    pub capacity_bytes: u64,
    /// The room of its entries, growing ones included.
    pub used_bytes: u64,
    /// Of that, the room of entries that could be evicted now.
    pub idle_bytes: u64,
    /// The number of entries.
    pub entries: usize,
    /// Room that reading ahead may take now: all room that is neither held nor waits to be taken.
    pub ahead_room_bytes: u64,
    /// The room of entries that were read ahead and not taken yet.
    pub ahead_unread_bytes: u64,
    /// Bytes that were read ahead since boot, and of these the bytes that were taken, and those evicted before.
    pub ahead: AheadBytes,
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
    entries: Arc<Entries>,
}

impl Spool {
    /// A spool of `capacity_bytes` on `drive`. Call [`Spool::wipe`] before anything else.
    pub fn new(drive: Arc<dyn Drive>, capacity_bytes: u64) -> Self {
        let (state, changes) = (Mutex::new(EntryTable::new()), watch::Sender::new(0));
        Self { entries: Arc::new(Entries { drive, capacity_bytes, state, changes }) }
    }

    /// Removes the files of an earlier process; at boot, before anything else. Returns their number.
    pub async fn wipe(&self) -> Result<u64, DriveError> {
        let mut removed = 0;
        for name in self.entries.drive.list().await? {
            if name.as_str().starts_with("r-") {
                self.entries.drive.remove(&name).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Reserves room for payload bytes `range` of `blob`, and returns a writer for them. Evicts entries without readers
    /// to make that room.
    ///
    /// A writer that is dropped before it is finished fails the recall.
    pub async fn reserve(&self, blob: BlobId, range: Range<u64>) -> Result<SpoolWriter, ReserveError> {
        let wanted_bytes = range.end.saturating_sub(range.start);
        self.reserve_for(blob, range, Purpose::Asked { wanted_bytes }).await
    }

    /// The same, for this purpose. Reading ahead takes no room from entries that wait to be taken.
    pub async fn reserve_for(
        &self,
        blob: BlobId,
        range: Range<u64>,
        purpose: Purpose,
    ) -> Result<SpoolWriter, ReserveError> {
        let entries = Arc::clone(&self.entries);
        detached(reserve(entries, blob, range, purpose)).await
    }

    /// True if an entry, complete or growing, holds payload byte `offset` of `blob`. This does not count as a use of
    /// it.
    pub fn holds(&self, blob: BlobId, offset: u64) -> bool {
        self.entries.state.lock().find(blob, offset).is_some()
    }

    /// A reader of the entry, complete or growing, that holds payload byte `offset` of `blob` and reaches furthest.
    pub fn find(&self, blob: BlobId, offset: u64) -> Option<SpoolReader> {
        let mut state = self.entries.state.lock();
        let number = state.find(blob, offset)?;
        let recall = state.hold(number);
        drop(state);
        Some(SpoolReader::new(SpoolHold { entries: Arc::clone(&self.entries), number }, recall))
    }

    /// The most bytes that a recall should request at once: an eighth of the capacity, in whole blocks, and at least
    /// one block.
    pub fn segment_bytes(&self) -> u64 {
        let block_bytes = BLOCK_BYTES as u64;
        (self.entries.capacity_bytes / SEGMENTS_IN_CAPACITY / block_bytes).max(1) * block_bytes
    }

    /// Changes whenever there may be more room than before. Subscribe first, then try to reserve, then wait.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.entries.changes.subscribe()
    }

    /// The current use of the spool.
    pub fn usage(&self) -> SpoolUsage {
        let mut state = self.entries.state.lock();
        SpoolUsage {
            capacity_bytes: self.entries.capacity_bytes,
            used_bytes: state.used_bytes,
            idle_bytes: state.idle_bytes(),
            entries: state.entries.len(),
            ahead_room_bytes: state.ahead_room_bytes(self.entries.capacity_bytes),
            ahead_unread_bytes: state.ahead_unread_bytes,
            ahead: state.ahead,
        }
    }
}

async fn reserve(
    entries: Arc<Entries>,
    blob: BlobId,
    range: Range<u64>,
    purpose: Purpose,
) -> Result<SpoolWriter, ReserveError> {
    let file_bytes = range.end.saturating_sub(range.start);
    let charged_bytes = charge(file_bytes.max(1));
    let recall = Arc::new(Recall::new(blob, range));
    let (hold, in_the_way) = entries.enter(&recall, charged_bytes, purpose)?;
    let made = match entries.remove_files(in_the_way).await {
        Ok(()) => entries.drive.create(&spool_name(hold.number), file_bytes).await,
        Err(error) => {
            entries.is_not_made(hold.number);
            Err(error)
        }
    };
    match made {
        Ok(()) => Ok(SpoolWriter::new(hold, recall)),
        Err(error) => {
            entries.mark_dead(hold.number);
            Err(match error {
                DriveError::Full => ReserveError::Full(entries.full(&entries.state.lock(), charged_bytes)),
                other => ReserveError::Drive(other),
            })
        }
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "spool_ahead_tests.rs"]
mod ahead_tests;
