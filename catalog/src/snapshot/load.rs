//! Loading a snapshot into a new file: first all records, then all batches, each with its original number.

use super::format::{End, Frame, FrameReader, SnapshotError};
use crate::committer::{Failure, Records, State};
use crate::error::{CatalogError, StoreError};
use crate::journal::each_batch;
use crate::key_digest::{ExpectedKeys, KeyDigest};
use crate::log_entry;
use crate::sqlite::SqliteStore;
use crate::store::Write;
use lineage::Sequence;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Writes per transaction.
const TRANSACTION_WRITES: usize = 16_384;

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
    /// Records that were left out because they were damaged when the snapshot was made.
    pub damaged: u64,
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
    records: &mut dyn Records,
    (mut end, mut loaded): (End, Loaded),
    watch: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, FillError> {
    let mut filling = Filling { records, keys: KeyDigest::default(), open: None };
    let (mut damaged, mut done) = (0, 0);
    read_to_end(from, |frame| {
        let Frame::Records(page) = frame else { return Ok(()) };
        done += page.len() as u64;
        watch(done, loaded.records);
        for (key, value) in page {
            match value.open(&key) {
                Ok((body, sequence)) => filling.write(&Write::Put(key.clone(), body.to_vec()), sequence)?,
                Err(_) => damaged += 1,
            }
        }
        Ok(())
    })?;
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
    loaded.batches = end.batches;
    (loaded.damaged, loaded.sequence) = (damaged, end.sequence);
    let missing = end.keys.minus(filling.keys);
    filling.finish(State { sequence: end.sequence, expected: ExpectedKeys { keys: end.keys, missing } })?;
    Ok(loaded)
}

/// Records that are being filled, several writes per transaction.
struct Filling<'a> {
    records: &'a mut dyn Records,
    keys: KeyDigest,
    /// Writes of the open transaction.
    open: Option<usize>,
}

impl Filling<'_> {
    fn write(&mut self, write: &Write, sequence: Sequence) -> Result<(), FillError> {
        if self.open.is_none() {
            self.records.begin()?;
        }
        self.records.write(write, sequence, &mut self.keys)?;
        let open = self.open.unwrap_or_default() + 1;
        self.open = Some(open);
        if open >= TRANSACTION_WRITES {
            self.records.commit()?;
            self.open = None;
        }
        Ok(())
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
