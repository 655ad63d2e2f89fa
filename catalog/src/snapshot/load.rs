//! Loading a snapshot into a new file: first all records, then all batches, each with its original number.

use super::format::{End, Frame, FrameReader, SnapshotError};
use crate::committer::{Failure, Records, State};
use crate::error::{CatalogError, StoreError, readable};
use crate::journal::each_batch;
use crate::key_digest::{ExpectedKeys, KeyDigest};
use crate::log_entry;
use crate::seal::Sealed;
use crate::sqlite::{SqliteStore, corrected};
use crate::store::Write;
use lineage::Sequence;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Writes per transaction.
const TRANSACTION_WRITES: usize = 16_384;
/// Maximum number of damaged records that are named in the log.
const NAMED_MAX: usize = 20;

/// The loaded content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The number of the last batch.
    pub sequence: Sequence,
    /// The rack's UUID.
    pub rack: [u8; 16],
    /// Time of the snapshot, in milliseconds of the Unix epoch.
    pub made_ms: u64,
    /// Records.
    pub records: u64,
    /// Batches in the snapshot and after it.
    pub batches: u64,
    /// Records that were damaged when the snapshot was made, and that no later batch has replaced or deleted. They are
    /// damaged in the new catalog as well.
    pub damaged: u64,
}

/// The records of a new file that is filled from a snapshot.
pub(crate) trait LoadTarget: Records {
    /// Stores `value`, whose seal does not open under `key`, as it is, in the open transaction.
    fn put_damaged(&mut self, key: &[u8], value: &Sealed, keys: &mut KeyDigest) -> Result<(), Failure>;

    /// True if there is a record at `key`.
    fn has(&mut self, key: &[u8]) -> Result<bool, Failure>;
}

/// Loads the snapshot at `from` into a new catalog file at `to`, which must not exist, and then the batches of the
/// journal segments `segments` that follow it, in order. After an error no catalog is there, but perhaps a file that
/// the caller must remove. From time to time `watch` receives the number of loaded records and their total in the
/// snapshot.
///
/// # Errors
/// [`SnapshotError`]. Unusable segments are skipped and logged.
pub fn load_snapshot(
    from: &Path,
    segments: &[PathBuf],
    to: &Path,
    watch: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, SnapshotError> {
    if to.try_exists()? {
        return Err(SnapshotError::Io(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
    }
    // All of it is checked before the first record is used.
    let checked = read_to_end(from, |_| Ok(()))?;
    SqliteStore::fill(to, |records| load((from, segments), records, checked, watch)).map_err(|error| match error {
        FillError::Snapshot(error) => error,
        FillError::Store(error) => CatalogError::from(error).into(),
    })
}

/// Checks all of the snapshot at `from`. Returns the number of its last batch, and its rack.
///
/// # Errors
/// [`SnapshotError`].
pub fn check_snapshot(from: &Path) -> Result<Loaded, SnapshotError> {
    read_to_end(from, |_| Ok(())).map(|(_, found)| found)
}

/// The reason why a new file was not filled.
#[derive(Debug)]
pub(crate) enum FillError {
    /// An error of the snapshot.
    Snapshot(SnapshotError),
    /// An error of the new file.
    Store(StoreError),
}

impl From<SnapshotError> for FillError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl From<Failure> for FillError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Harmless(error) | Failure::Fatal(error) => Self::Store(error),
        }
    }
}

/// Passes to `take` every frame but the end, which is returned.
fn read_to_end(
    from: &Path,
    mut take: impl FnMut(Frame) -> Result<(), FillError>,
) -> Result<(End, Loaded), SnapshotError> {
    let mut frames = FrameReader::begin(BufReader::with_capacity(1 << 20, File::open(from)?))?;
    let mut loaded = Loaded { rack: frames.header.rack, made_ms: frames.header.made_ms, ..Loaded::default() };
    loop {
        match frames.next()? {
            Frame::End(end) => {
                (loaded.sequence, loaded.records) = (end.sequence, end.records);
                return Ok((end, loaded));
            }
            frame => take(frame).map_err(|error| match error {
                FillError::Snapshot(error) => error,
                FillError::Store(error) => CatalogError::from(error).into(),
            })?,
        }
    }
}

/// Fills `records`, which are empty, from the complete snapshot at `from`.
fn load(
    (from, segments): (&Path, &[PathBuf]),
    records: &mut dyn LoadTarget,
    (mut end, mut loaded): (End, Loaded),
    watch: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, FillError> {
    let mut filling =
        Filling { records, keys: KeyDigest::default(), open: None, damaged: BTreeSet::new(), moved: Vec::new() };
    let mut done = 0;
    read_to_end(from, |frame| {
        let Frame::Records(page) = frame else { return Ok(()) };
        done += page.len() as u64;
        watch(done, loaded.records);
        page.into_iter().try_for_each(|(key, value)| filling.record(key, &value))
    })?;
    filling.move_back()?;
    read_to_end(from, |frame| {
        let Frame::Batch(entry) = frame else { return Ok(()) };
        let (link, writes) = log_entry::decode(&entry).map_err(|_| SnapshotError::Damaged("a batch"))?;
        writes.iter().try_for_each(|write| filling.write(write, link.sequence))
    })?;
    for segment in segments {
        let batches = each_batch(segment, &loaded.rack, |entry| filling.follow_on(&mut end, entry));
        if let Err(FillError::Snapshot(error)) = &batches {
            tracing::warn!(%error, path = %segment.display(), "a segment of the journal cannot be used");
        } else {
            batches?;
        }
    }
    filling.name_damaged();
    loaded.batches = end.batches;
    (loaded.damaged, loaded.sequence) = (filling.damaged.len() as u64, end.sequence);
    let missing = end.keys.minus(filling.keys);
    filling.finish(State { sequence: end.sequence, expected: ExpectedKeys { keys: end.keys, missing } })?;
    Ok(loaded)
}

/// Records that are being filled, several writes per transaction.
struct Filling<'a> {
    records: &'a mut dyn LoadTarget,
    keys: KeyDigest,
    /// Writes of the open transaction.
    open: Option<usize>,
    /// The keys of damaged records that no later batch has replaced or deleted.
    damaged: BTreeSet<Vec<u8>>,
    /// Records whose key had a wrong bit, under the right key.
    moved: Vec<(Vec<u8>, Sealed)>,
}

impl Filling<'_> {
    /// Stores a record of the snapshot. A damaged one stays damaged. Without it, its object or bucket would count as
    /// deleted, and the only staged file of an object as left over.
    fn record(&mut self, key: Vec<u8>, value: &Sealed) -> Result<(), FillError> {
        if let Ok((body, sequence)) = value.open(&key) {
            return self.write(&Write::Put(key, body.to_vec()), sequence);
        }
        if let Some(key) = corrected(&key, value) {
            self.moved.push((key, value.clone()));
            return Ok(());
        }
        self.begin()?;
        self.records.put_damaged(&key, value, &mut self.keys)?;
        self.damaged.insert(key);
        self.written()
    }

    /// Stores the records whose key was wrong, unless such a record was written again while it could not be found.
    fn move_back(&mut self) -> Result<(), FillError> {
        for (key, value) in core::mem::take(&mut self.moved) {
            if self.records.has(&key)? && !self.damaged.contains(&key) {
                continue;
            }
            if let Ok((body, sequence)) = value.open(&key) {
                self.write(&Write::Put(key, body.to_vec()), sequence)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, write: &Write, sequence: Sequence) -> Result<(), FillError> {
        self.begin()?;
        self.records.write(write, sequence, &mut self.keys)?;
        if !self.damaged.is_empty() {
            self.replaced_by(write);
        }
        self.written()
    }

    /// The records that `write` replaces or deletes are damaged no more.
    fn replaced_by(&mut self, write: &Write) {
        match write {
            Write::Put(key, _) | Write::Delete(key) => drop(self.damaged.remove(key)),
            Write::DeleteRange(range) => {
                let (start, end) = range.clone().half_open();
                self.damaged.retain(|key| *key < start || end.as_ref().is_some_and(|end| key >= end));
            }
        }
    }

    /// Begins a transaction, unless one is open.
    fn begin(&mut self) -> Result<(), FillError> {
        if self.open.is_none() {
            self.records.begin()?;
            self.open = Some(0);
        }
        Ok(())
    }

    /// Counts a write of the open transaction, and commits a long transaction.
    fn written(&mut self) -> Result<(), FillError> {
        let open = self.open.unwrap_or_default() + 1;
        self.open = Some(open);
        if open >= TRANSACTION_WRITES {
            self.records.commit()?;
            self.open = None;
        }
        Ok(())
    }

    /// Names damaged records in the log.
    fn name_damaged(&self) {
        for key in self.damaged.iter().take(NAMED_MAX) {
            let record = readable(key);
            tracing::error!(record, "a record was damaged when the snapshot was made, and stays damaged");
        }
    }

    /// Writes the batch of `entry` if it follows `end`, which then moves to it.
    fn follow_on(&mut self, end: &mut End, entry: &[u8]) -> Result<(), FillError> {
        let (link, writes) = log_entry::decode(entry).map_err(|_| SnapshotError::Damaged("a batch"))?;
        if (link.before, link.keys_before) != (end.sequence, end.keys) {
            return Ok(());
        }
        writes.iter().try_for_each(|write| self.write(write, link.sequence))?;
        (end.sequence, end.keys) = (link.sequence, link.keys_after);
        end.batches += 1;
        Ok(())
    }

    fn finish(mut self, state: State) -> Result<(), FillError> {
        if self.open.take().is_none() {
            self.records.begin()?;
        }
        self.records.set_state(state)?;
        self.records.commit()?;
        Ok(self.records.make_durable()?)
    }
}
