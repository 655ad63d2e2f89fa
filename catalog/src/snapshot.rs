//! Snapshots: all records of a catalog at one moment, in a separate file that is written while the catalog is in use.
//!
//! A snapshot is fuzzy while it is made: pages of records are read while batches continue, and each batch that is
//! committed meanwhile is written between them, as it is logged. A batch writes absolute values, so all records and
//! then all batches give the state after the last batch, even if a page already shows some of them. The end has the
//! digest of the keys at that point. A page can show a batch before the followers are notified of it, so the snapshot
//! waits for these notifications before it writes the end.
//!
//! ```text
//! | header, 72 bytes | frames | end frame |
//! header  | "LARDSNAP" | version 1, u32 | zero, u32 | rack's UUID, 16 | number before, u64 | keys then, 16 |
//!         | made, milliseconds of the Unix epoch, u64 | zero, u32 | CRC-32C of the 68 bytes before, u32 |
//! frame   | kind, u8 | length, u32 | payload, length bytes | CRC-32C of all before in this frame, u32 |
//! 1       records: for each | key length, u32 | value length, u32 | key | value with its seal |
//! 2       a batch, as it is logged (`log_entry.rs`)
//! 3       the end: | number after, u64 | keys then, 16 | records, u64 | batches, u64 | CRC-64/NVME of all before it |
//! ```
//! All little-endian. Records are in key order, with the batches between them in commit order. A file without its end
//! is not a snapshot. A record whose seal does not open in the catalog is written as it is, and is damaged in a catalog
//! that is rebuilt from the snapshot as well: a record that is left out would count as deleted.

mod format;
mod load;

pub use format::SnapshotError;
pub(crate) use format::{FrameReader, Header, batch_frame};
pub(crate) use load::has_no_damaged_record;
pub(crate) use load::{FillError, LoadTarget};
pub use load::{LoadFrom, Loaded, check_snapshot, load_snapshot};

use crate::catalog::{Catalog, STEP};
use crate::error::CatalogError;
use crate::follower::Follower;
use crate::store::{Batch, Check, Entry, KeyRange};
use format::{End, FrameWriter};
use lineage::Sequence;
use parking_lot::Mutex;
use std::io::Write;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of batches that may wait while records are read: a faster store is not worth waiting for.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A key that no record has: every key begins with a letter.
const NO_KEY: &[u8] = b"\0";

/// The content of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotTotals {
    /// The number of the last batch in it.
    pub sequence: Sequence,
    /// Records that were read.
    pub records: u64,
    /// Batches that were committed meanwhile.
    pub batches: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Records that were damaged in the catalog.
    pub damaged: u64,
}

/// The batches that are committed while records are read.
#[derive(Default)]
struct Meanwhile(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    entries: Vec<(Sequence, Vec<u8>)>,
    bytes: usize,
    /// Some were left out, since too many bytes waited.
    overflowed: bool,
}

impl Follower for Meanwhile {
    fn committed(&self, sequence: Sequence, entry: &[u8]) {
        let mut waiting = self.0.lock();
        waiting.bytes += entry.len();
        waiting.overflowed |= waiting.bytes > WAITING_BYTES_MAX;
        if !waiting.overflowed {
            waiting.entries.push((sequence, entry.to_vec()));
        }
    }
}

impl Meanwhile {
    fn take(&self) -> Result<Vec<(Sequence, Vec<u8>)>, SnapshotError> {
        let mut waiting = self.0.lock();
        waiting.bytes = 0;
        if waiting.overflowed { Err(SnapshotError::TooFast) } else { Ok(std::mem::take(&mut waiting.entries)) }
    }
}

impl Catalog {
    /// Writes a snapshot into `to`, which the caller syncs, for the rack `rack`. Each write takes at most a page of
    /// records or a batch, and is made in the thread of the caller.
    ///
    /// # Errors
    /// [`SnapshotError`]; the written bytes are then not a snapshot.
    pub async fn snapshot(
        &self,
        rack: [u8; 16],
        made_ms: u64,
        to: &mut (dyn Write + Send),
    ) -> Result<SnapshotTotals, SnapshotError> {
        let meanwhile = Arc::new(Meanwhile::default());
        let follower = Arc::clone(&meanwhile) as Arc<dyn Follower>;
        let from = self.store.follow(&follower).ok_or(SnapshotError::ReadOnly)?;
        let header = Header { rack, before: from.sequence, keys: from.keys, made_ms };
        let mut out = FrameWriter::begin(to, &header)?;
        let mut end = End { sequence: from.sequence, keys: from.keys, ..End::default() };
        let (mut range, mut damaged) = (KeyRange::all(), 0);
        loop {
            let page = self.store.scan(range.clone(), STEP).await.map_err(CatalogError::from)?;
            if page.is_empty() {
                self.wait_for_followers().await;
            }
            end.records += page.len() as u64;
            damaged += page.iter().filter(|entry| entry.value.open(&entry.key).is_err()).count() as u64;
            out.records(&page)?;
            out.batches(&meanwhile.take()?, &mut end)?;
            let Some(Entry { key, .. }) = page.into_iter().last() else { break };
            range.start = Bound::Excluded(key);
        }
        let bytes = out.end(&end)?;
        Ok(SnapshotTotals { sequence: end.sequence, records: end.records, batches: end.batches, bytes, damaged })
    }

    /// Waits until the followers were notified of every batch that an earlier page can have shown. The store commits
    /// in order, so its answer to a batch that fails its check, and changes nothing, comes after these notifications.
    async fn wait_for_followers(&self) {
        let fails = Batch::new(vec![Check::Present(NO_KEY.to_vec())], Vec::new());
        // Any answer is sufficient.
        let _ = self.store.commit(fails).await;
    }
}
