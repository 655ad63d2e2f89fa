//! Loading a snapshot into a new file: first all records, then all batches, each with its original number. A record
//! that was damaged when the snapshot was made is taken from another snapshot, or from a batch, that has it whole.

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
use std::collections::BTreeMap;
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

/// The files from which a catalog is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadFrom<'a> {
    /// The snapshot.
    pub snapshot: &'a Path,
    /// Journal segments, in order. Batches that do not follow are skipped.
    pub segments: &'a [PathBuf],
    /// Other snapshots, in any order, which may have whole records that are damaged in this one.
    pub others: &'a [PathBuf],
}

impl<'a> LoadFrom<'a> {
    /// The snapshot and the segments after it alone.
    pub fn one(snapshot: &'a Path, segments: &'a [PathBuf]) -> Self {
        Self { snapshot, segments, others: &[] }
    }
}

/// The records of a new file that is filled from a snapshot.
pub(crate) trait LoadTarget: Records {
    /// Stores `value`, whose seal does not open under `key`, as it is, in the open transaction.
    fn put_damaged(&mut self, key: &[u8], value: &Sealed, keys: &mut KeyDigest) -> Result<(), Failure>;

    /// True if there is a record at `key`.
    fn has(&mut self, key: &[u8]) -> Result<bool, Failure>;
}

/// Loads the snapshot of `from` into a new catalog file at `to`, which must not exist, and then the batches of its
/// segments that follow, in order. After an error no catalog is there, but perhaps a file that the caller must remove.
/// From time to time `watch` receives the number of loaded records and their total in the snapshot.
///
/// # Errors
/// [`SnapshotError`]. Unusable segments and other snapshots are skipped and logged.
pub fn load_snapshot(from: LoadFrom<'_>, to: &Path, watch: &mut dyn FnMut(u64, u64)) -> Result<Loaded, SnapshotError> {
    if to.try_exists()? {
        return Err(SnapshotError::Io(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
    }
    // All of it is checked before the first record is used.
    let checked = read_to_end(from.snapshot)?;
    SqliteStore::fill(to, |records| load(from, records, checked, watch)).map_err(|error| match error {
        FillError::Snapshot(error) => error,
        FillError::Store(error) => CatalogError::from(error).into(),
    })
}

/// Checks all of the snapshot at `from`. Returns the number of its last batch, and its rack.
///
/// # Errors
/// [`SnapshotError`].
pub fn check_snapshot(from: &Path) -> Result<Loaded, SnapshotError> {
    read_to_end(from).map(|(_, found)| found)
}

/// True if the snapshot at `from` is whole, and no record was damaged when it was made.
pub(crate) fn has_no_damaged_record(from: &Path) -> bool {
    let read = each_frame(from, |frame| match frame {
        Frame::Records(page) if page.iter().any(|(key, value)| value.open(key).is_err()) => {
            Err(SnapshotError::Damaged("a record"))
        }
        _ => Ok(()),
    });
    read.is_ok()
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

/// Reads all of the snapshot at `from`.
fn read_to_end(from: &Path) -> Result<(End, Loaded), SnapshotError> {
    each_frame(from, |_| Ok::<(), SnapshotError>(()))
}

/// Passes to `take` every frame but the end, which is returned.
fn each_frame<E: From<SnapshotError>>(
    from: &Path,
    mut take: impl FnMut(Frame) -> Result<(), E>,
) -> Result<(End, Loaded), E> {
    let opened = File::open(from).map_err(SnapshotError::Io)?;
    let mut frames = FrameReader::begin(BufReader::with_capacity(1 << 20, opened))?;
    let mut loaded = Loaded { rack: frames.header.rack, made_ms: frames.header.made_ms, ..Loaded::default() };
    loop {
        match frames.next()? {
            Frame::End(end) => {
                (loaded.sequence, loaded.records) = (end.sequence, end.records);
                return Ok((end, loaded));
            }
            frame => take(frame)?,
        }
    }
}

/// Fills `records`, which are empty, from the complete snapshot of `from`.
fn load(
    LoadFrom { snapshot, segments, others }: LoadFrom<'_>,
    records: &mut dyn LoadTarget,
    (mut end, mut loaded): (End, Loaded),
    watch: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, FillError> {
    let mut filling =
        Filling { records, keys: KeyDigest::default(), open: None, damaged: BTreeMap::new(), moved: Vec::new() };
    let mut done = 0;
    each_frame(snapshot, |frame| {
        let Frame::Records(page) = frame else { return Ok(()) };
        done += page.len() as u64;
        watch(done, loaded.records);
        page.into_iter().try_for_each(|(key, value)| filling.record(key, &value))
    })?;
    filling.move_back()?;
    each_frame(snapshot, |frame| {
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
    filling.replace_damaged(&loaded.rack, others, segments)?;
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
    /// Damaged records that no later batch has replaced or deleted.
    damaged: BTreeMap<Vec<u8>, Sealed>,
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
        self.damaged.insert(key, value.clone());
        self.written()
    }

    /// Stores the records whose key was wrong, unless such a record was written again while it could not be found.
    fn move_back(&mut self) -> Result<(), FillError> {
        for (key, value) in core::mem::take(&mut self.moved) {
            if self.records.has(&key)? && !self.damaged.contains_key(&key) {
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
                self.damaged.retain(|key, _| *key < start || end.as_ref().is_some_and(|end| key >= end));
            }
        }
    }

    /// Takes damaged records from other snapshots and from the batches of `segments`, as the batch that wrote them has
    /// left them. No batch between is needed: an unchanged record keeps its number.
    fn replace_damaged(&mut self, rack: &[u8; 16], others: &[PathBuf], segments: &[PathBuf]) -> Result<(), FillError> {
        let files = others.iter().map(|path| (path, false)).chain(segments.iter().map(|path| (path, true)));
        for (path, is_segment) in files {
            if self.damaged.is_empty() {
                break;
            }
            let read = if is_segment {
                each_batch(path, rack, |entry| self.replace_from_batch(entry)).map(drop)
            } else {
                self.replace_from_snapshot(rack, path)
            };
            if let Err(FillError::Snapshot(error)) = &read {
                tracing::warn!(%error, path = %path.display(), "damaged records cannot be looked for in this file");
            } else {
                read?;
            }
        }
        Ok(())
    }

    fn replace_from_snapshot(&mut self, rack: &[u8; 16], path: &Path) -> Result<(), FillError> {
        if check_snapshot(path)?.rack != *rack {
            return Err(SnapshotError::Foreign.into());
        }
        each_frame(path, |frame| match frame {
            Frame::Records(page) => page.into_iter().try_for_each(|(key, value)| self.replace(&key, &value)),
            Frame::Batch(entry) => self.replace_from_batch(&entry),
            Frame::End(_) => Ok(()),
        })
        .map(drop)
    }

    fn replace_from_batch(&mut self, entry: &[u8]) -> Result<(), FillError> {
        let (link, writes) = log_entry::decode(entry).map_err(|_| SnapshotError::Damaged("a batch"))?;
        for write in writes {
            if let Write::Put(key, body) = write
                && self.damaged.contains_key(&key)
            {
                let sealed = Sealed::seal(&key, body, link.sequence);
                self.replace(&key, &sealed)?;
            }
        }
        Ok(())
    }

    /// Stores `whole` at `key` if the record there is damaged, and was `whole` before.
    fn replace(&mut self, key: &[u8], whole: &Sealed) -> Result<(), FillError> {
        let is_it = self.damaged.get(key).is_some_and(|damaged| damaged.is_damaged_copy_of(whole));
        match whole.open(key) {
            Ok((body, sequence)) if is_it => self.write(&Write::Put(key.to_vec(), body.to_vec()), sequence),
            _ => Ok(()),
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
        for key in self.damaged.keys().take(NAMED_MAX) {
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
