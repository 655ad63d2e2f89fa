//! The journal: files next to the catalog from which a lost catalog is remade.
//!
//! A directory with **snapshots** (`snapshot.rs`) and **segments**, which have the batches since, as they are logged:
//!
//! | name | content |
//! |---|---|
//! | `<number, 16 hexadecimal digits>.snapshot` | the catalog after that batch |
//! | `<number>-<nonce, 16>.journal` | the batches after that one: header (`LARDJRNL`) and batches as in a snapshot |
//! | `*.new` | an unfinished file, or one that was to be copied: removed at the next start |
//!
//! A segment that reaches a set size is followed by a new one. So each segment but the last ends where the next one
//! begins, and the last one ends at its first torn frame. A segment is synced before the log in front of the catalog
//! forgets its batches; without a log a power loss may destroy its end. If the last segment does not end in exactly the
//! state of the opened catalog, a snapshot is due, and nothing is removed until it exists. Files with higher numbers
//! than the catalog are never removed, since they belong to a newer catalog. If batches are missing before a segment,
//! its header has a mark, and it continues only from a later snapshot.
//!
//! The two newest snapshots stay, and the segments since the older one: if the newest is damaged, the one before leads
//! to the same end. While a record of the catalog is damaged, new snapshots have the damage as well. So the oldest one
//! and the newest one without damage stay besides until a snapshot without damage is made: a load takes from them the
//! records that have not changed since. The segments since the oldest one stay, too, until they take too much room or
//! the journal has a gap, as after a kill.
//! [`Journal::check`] reads the files that lead to the catalog, and makes a snapshot due if one is damaged.
//!
//! Commits wait only for the journal's writes, and do not fail with them: after an error a snapshot is due.

use crate::catalog::Catalog;
use crate::copies;
use crate::follower::{FollowedFrom, Follower};
use crate::log_entry;
use crate::snapshot::{
    FrameReader, Header, SnapshotError, SnapshotTotals, batch_frame, check_snapshot, has_no_damaged_record,
};
use lineage::Sequence;
use parking_lot::Mutex;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size at which a segment is followed by a new one.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Bytes of segments that a snapshot from before a damage may keep, or as many as the newest snapshot has.
const OLD_SEGMENTS_BYTES: u64 = 256 << 20;
/// Bytes of frames that wait for a write.
const WAITING_BYTES: usize = 256 << 10;
/// Only the owner may read: a catalog has the secrets of users.
const OWNER_ONLY: u32 = 0o600;
const DIRECTORY_OWNER_ONLY: u32 = 0o700;
const SNAPSHOT: &str = "snapshot";
const SEGMENT: &str = "journal";
const DRAFT: &str = "new";
/// Stored in place of a time in the header of a segment if the journal lacks batches before it.
const AFTER_GAP: u64 = 1;

/// The journal of an open catalog.
pub struct Journal {
    dir: PathBuf,
    rack: [u8; 16],
    nonce: u64,
    state: Mutex<State>,
}

/// The state of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStatus {
    /// The number of the last batch of the newest snapshot from which the segments continue; `None` if no snapshot
    /// does.
    pub snapshot: Option<Sequence>,
    /// Its bytes.
    pub snapshot_bytes: u64,
    /// Bytes of the segments since.
    pub segment_bytes: u64,
    /// The reason why a snapshot is due regardless of its age, if it is.
    pub broken: Option<String>,
    /// The last batch that may have changed what drives do not show by themselves (`copies.rs`).
    pub changed: Sequence,
    /// The last batch with a copy on drives; `None` if there is no copy, or it is not known yet.
    pub on_drives: Option<Sequence>,
}

/// A segment file with the batches after a given one.
#[derive(Debug)]
pub struct Since {
    /// Path of the file, which the caller removes.
    pub path: PathBuf,
    /// The last batch in it.
    pub last: Sequence,
}

#[derive(Default)]
struct State {
    /// The segment that is written.
    segment: Option<Segment>,
    /// The last batch that was received, and the keys after it.
    last: FollowedFrom,
    status: JournalStatus,
}

struct Segment {
    file: File,
    /// The batch before its first one.
    before: Sequence,
    waiting: Vec<u8>,
    bytes: u64,
}

/// The files of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalFiles {
    /// Snapshots, by the number of their last batch.
    pub snapshots: Vec<(Sequence, PathBuf)>,
    /// Segments, by the number of the batch before them. Of those with the same number, one continues.
    pub segments: Vec<(Sequence, PathBuf)>,
    drafts: Vec<PathBuf>,
}

impl JournalFiles {
    /// The files in the directory `dir`; none if it does not exist.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn list(dir: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        let listed = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            listed => listed?,
        };
        for entry in listed {
            let path = entry?.path();
            let (Some(stem), Some(kind)) = (path.file_stem(), path.extension()) else { continue };
            let number = stem.to_str().and_then(|stem| stem.get(..16)).map(|digits| u64::from_str_radix(digits, 16));
            match (kind.to_str(), number) {
                (Some(DRAFT), _) => files.drafts.push(path),
                (Some(SNAPSHOT), Some(Ok(number))) => files.snapshots.push((Sequence(number), path)),
                (Some(SEGMENT), Some(Ok(number))) => files.segments.push((Sequence(number), path)),
                _ => {}
            }
        }
        files.snapshots.sort();
        files.segments.sort();
        Ok(files)
    }
}

impl Journal {
    /// Writes everything that was received to the files.
    #[cfg(test)]
    pub(crate) fn sync_for_test(&self) {
        self.sync();
    }

    /// Writes to the segment fail from now on.
    #[cfg(test)]
    pub(crate) fn fail_for_test(&self) {
        let mut state = self.state.lock();
        let segment = state.segment.as_mut().expect("a segment is being written");
        segment.file = File::open(&self.dir).expect("the directory can be opened to be read");
    }

    /// Goes on with the journal in `dir`, which is made, for `catalog` of the rack `rack`; `nonce` is random. From now
    /// on every batch is in it.
    ///
    /// # Errors
    /// If the directory cannot be used. Any other fault makes a snapshot due.
    pub fn begin(dir: PathBuf, rack: [u8; 16], nonce: u64, catalog: &Catalog) -> io::Result<Arc<Self>> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_OWNER_ONLY).create(&dir)?;
        let files = JournalFiles::list(&dir)?;
        for draft in &files.drafts {
            remove(draft, &rack)?;
        }
        let journal = Arc::new(Self { dir, rack, nonce, state: Mutex::default() });
        let follower = Arc::clone(&journal) as Arc<dyn Follower>;
        let mut state = journal.state.lock();
        state.last = catalog.store.follow(&follower).unwrap_or_default();
        let found = journal.found(&files, &state.last);
        state.status = found.unwrap_or_else(|why| JournalStatus { broken: Some(why), ..JournalStatus::default() });
        state.status.changed = state.last.sequence;
        drop(state);
        Ok(journal)
    }

    /// The state of a journal with these files, if it ends where the catalog is.
    fn found(&self, files: &JournalFiles, at: &FollowedFrom) -> Result<JournalStatus, String> {
        let own = |(number, _): &&(Sequence, PathBuf)| *number <= at.sequence;
        let Some((snapshot, path)) = files.snapshots.iter().rfind(own) else {
            return Err("there is no snapshot yet".into());
        };
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let first = first_needed(&files.segments, *snapshot);
        let segments: Vec<_> = files.segments.iter().filter(own).filter(|(number, _)| *number >= first).collect();
        let (mut ends, begun) = (*snapshot, segments.last().map(|(number, _)| *number));
        for (number, path) in &segments {
            let say = |error: SnapshotError| format!("{}: {error}", path.display());
            if number > snapshot && header_of(path).map_err(say)?.made_ms == AFTER_GAP {
                return Err(format!("batches before number {} are missing", number.0));
            }
            if Some(*number) == begun {
                // A killed server has not synced it.
                File::open(path).and_then(|file| file.sync_all()).map_err(|error| say(error.into()))?;
                ends = ends.max(end_of(path, &self.rack).map_err(say)?);
            }
        }
        if ends != at.sequence {
            return Err(format!("it ends with batch {}, and the catalog with {}", ends.0, at.sequence.0));
        }
        Ok(JournalStatus {
            snapshot: Some(*snapshot),
            snapshot_bytes: bytes(path),
            segment_bytes: segments.iter().map(|(_, path)| bytes(path)).sum(),
            broken: None,
            ..JournalStatus::default()
        })
    }

    /// The state of the journal.
    pub fn status(&self) -> JournalStatus {
        self.state.lock().status.clone()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a snapshot of `catalog`, which the journal follows, and removes the files before the previous snapshot. If
    /// the segments do not continue from the previous one, removes all files before the new one. If records of the
    /// catalog are damaged, the oldest snapshot and the newest one without damage stay, which may have them whole. The
    /// segments since the oldest stay with it, as long as they continue from it and take at most the room of the new
    /// snapshot, or 256 MiB.
    ///
    /// # Errors
    /// [`SnapshotError`]; the journal is then unchanged.
    pub async fn snapshot(&self, catalog: &Catalog, made_ms: u64) -> Result<SnapshotTotals, SnapshotError> {
        let files = JournalFiles::list(&self.dir)?;
        let leads_on = self.state.lock().status.broken.is_none();
        // Files that this catalog has written are replaced; files with higher numbers belong to a newer catalog.
        let before = self.begin_segment()?;
        let draft = self.dir.join(format!("{:016x}.{DRAFT}", self.nonce));
        let totals = self.write(catalog, made_ms, &draft).await.inspect_err(|_| drop(fs::remove_file(&draft)))?;
        fs::rename(&draft, self.dir.join(format!("{:016x}.{SNAPSHOT}", totals.sequence.0)))?;
        File::open(&self.dir)?.sync_all()?;
        let last = files.snapshots.iter().rev().map(|(number, _)| *number).find(|number| *number < before);
        let kept = last.filter(|_| leads_on).unwrap_or(before);
        let older = files.snapshots.iter().filter(|(number, _)| totals.damaged > 0 && *number < kept);
        let oldest = older.clone().next().map(|(number, _)| *number);
        let whole = older.rev().find(|(_, path)| has_no_damaged_record(path)).map(|(number, _)| *number);
        let bytes: u64 = files.segments.iter().map(|(_, path)| fs::metadata(path).map_or(0, |file| file.len())).sum();
        let has_room = bytes <= totals.bytes.max(OLD_SEGMENTS_BYTES);
        let since = oldest.filter(|_| leads_on && has_room).unwrap_or(kept);
        let first = first_needed(&files.segments, since).min(before);
        let stays = |number| number >= kept || [oldest, whole].contains(&Some(number));
        let snapshots = files.snapshots.iter().filter(|(number, _)| !stays(*number));
        for (_, path) in snapshots.chain(files.segments.iter().filter(|(number, _)| *number < first)) {
            remove(path, &self.rack)?;
        }
        let mut state = self.state.lock();
        let segment_bytes = state.segment.as_ref().map_or(0, |segment| segment.bytes);
        let broken = state.status.broken.take().filter(|_| state.segment.is_none());
        let (snapshot, snapshot_bytes) = (Some(totals.sequence), totals.bytes);
        let before = std::mem::take(&mut state.status);
        state.status = JournalStatus { snapshot, snapshot_bytes, segment_bytes, broken, ..before };
        Ok(totals)
    }

    /// Reads the newest snapshot and the segments since. Returns what is wrong if they do not lead to the state of the
    /// catalog at the start of this call; then a snapshot is due.
    pub fn check(&self) -> Option<String> {
        let until = {
            let mut state = self.state.lock();
            if state.flush().is_err() || state.status.broken.is_some() {
                return None; // it is due
            }
            state.last.sequence
        };
        let flaw = match self.leads_to(until) {
            Ok(last) if last >= until => return None,
            Ok(last) => format!("batches after number {} are missing or damaged", last.0),
            Err(error) => error,
        };
        self.state.lock().status.broken.get_or_insert(flaw.clone());
        Some(flaw)
    }

    /// The last batch that the newest snapshot up to `until` and its segments lead to.
    fn leads_to(&self, until: Sequence) -> Result<Sequence, String> {
        let say = |path: &Path, error: SnapshotError| format!("{}: {error}", path.display());
        let files = JournalFiles::list(&self.dir).map_err(|error| say(&self.dir, error.into()))?;
        let newest = files.snapshots.iter().rfind(|(number, _)| *number <= until);
        let (number, snapshot) = newest.ok_or("there is no snapshot")?;
        let mut at = check_snapshot(snapshot).map_err(|error| say(snapshot, error))?.sequence;
        let first = first_needed(&files.segments, *number);
        for (_, segment) in files.segments.iter().filter(|(number, _)| (first..=until).contains(number)) {
            each_batch(segment, &self.rack, |entry| -> Result<(), SnapshotError> {
                let (link, _) = log_entry::decode(entry).map_err(|_| SnapshotError::Damaged("a batch"))?;
                at = if link.before == at { link.sequence } else { at };
                Ok(())
            })
            .map_err(|error| say(segment, error))?;
        }
        Ok(at)
    }

    /// Records the last batch that the copies on drives lead to, for the status.
    pub fn note_on_drives(&self, last: Option<Sequence>) {
        self.state.lock().status.on_drives = last;
    }

    /// The newest snapshot: its last batch and its file.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn newest_snapshot(&self) -> io::Result<Option<(Sequence, PathBuf)>> {
        Ok(JournalFiles::list(&self.dir)?.snapshots.pop())
    }

    /// Writes the batches after number `before` that were received so far into a separate segment. `None` if there are
    /// none, or the segments do not continue from `before`.
    ///
    /// # Errors
    /// [`SnapshotError`]; no file is left then.
    pub fn write_since(&self, before: Sequence) -> Result<Option<Since>, SnapshotError> {
        let until = {
            let mut state = self.state.lock();
            state.flush()?;
            state.last.sequence
        };
        let path = self.dir.join(format!("{:016x}-since.{DRAFT}", self.nonce));
        remove_if_there(&path)?;
        let written = self.write_batches(before, &path);
        let is_whole = written.as_ref().is_ok_and(|last| *last > before && *last >= until);
        if !is_whole {
            remove_if_there(&path)?;
        }
        written.map(|last| is_whole.then_some(Since { path, last }))
    }

    /// Writes the batches that follow `before` to `path`, and returns the last one.
    fn write_batches(&self, before: Sequence, path: &Path) -> Result<Sequence, SnapshotError> {
        let mut out: Option<BufWriter<File>> = None;
        let mut at = FollowedFrom { sequence: before, ..FollowedFrom::default() };
        for (_, segment) in JournalFiles::list(&self.dir)?.segments {
            let mut take = |entry: &[u8]| -> Result<(), SnapshotError> {
                let (link, _) = log_entry::decode(entry).map_err(|_| SnapshotError::Damaged("a batch"))?;
                if link.before != at.sequence || out.is_some() && link.keys_before != at.keys {
                    return Ok(());
                }
                if out.is_none() {
                    let header = Header { rack: self.rack, before, keys: link.keys_before, made_ms: 0 };
                    let mut file = BufWriter::with_capacity(WAITING_BYTES, make(path)?);
                    file.write_all(&header.encode_segment())?;
                    out = Some(file);
                }
                at = FollowedFrom { sequence: link.sequence, keys: link.keys_after };
                out.iter_mut().try_for_each(|file| file.write_all(&batch_frame(entry)))?;
                Ok(())
            };
            match each_batch(&segment, &self.rack, &mut take) {
                Err(SnapshotError::Io(error)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, path = %segment.display(), "a segment of the journal cannot be used");
                }
                Ok(_) => {}
            }
        }
        out.iter_mut().try_for_each(BufWriter::flush)?;
        Ok(at.sequence)
    }

    async fn write(&self, catalog: &Catalog, made_ms: u64, draft: &Path) -> Result<SnapshotTotals, SnapshotError> {
        let mut file = make(draft)?;
        let mut totals = catalog.snapshot(self.rack, made_ms, &mut file).await?;
        file.sync_all()?;
        // Segments that begin before the snapshot still continue from it: batches that it includes are skipped.
        totals.bytes = file.metadata()?.len();
        Ok(totals)
    }

    /// Replaces the current segment with a new one. Returns the number of the last batch before the new segment.
    fn begin_segment(&self) -> io::Result<Sequence> {
        let mut state = self.state.lock();
        let at = state.last;
        if state.segment.as_ref().is_some_and(|segment| segment.before == at.sequence) {
            return Ok(at.sequence);
        }
        let left = state.segment.take().map_or(Ok(()), Segment::leave);
        state.note(left)?;
        let is_after_gap = state.status.broken.is_some();
        let begun = self.segment_at(&at, is_after_gap);
        state.segment = Some(state.note(begun)?);
        Ok(at.sequence)
    }

    fn segment_at(&self, at: &FollowedFrom, is_after_gap: bool) -> io::Result<Segment> {
        let path = self.dir.join(format!("{:016x}-{:016x}.{SEGMENT}", at.sequence.0, self.nonce));
        let made_ms = if is_after_gap { AFTER_GAP } else { 0 };
        let header = Header { rack: self.rack, before: at.sequence, keys: at.keys, made_ms };
        // One of this run that begins with the same batch failed before it had any.
        remove_if_there(&path)?;
        let mut file = make(&path)?;
        let header = header.encode_segment();
        let begun = file.write_all(&header).and_then(|()| File::open(&self.dir)?.sync_all());
        begun.inspect_err(|_| drop(fs::remove_file(&path)))?;
        Ok(Segment { file, before: at.sequence, waiting: Vec::new(), bytes: header.len() as u64 })
    }

    /// Adds a batch to the segment.
    fn add(&self, state: &mut State, sequence: Sequence, entry: &[u8]) -> io::Result<()> {
        let before = state.last;
        let decoded = log_entry::decode(entry);
        let keys = decoded.as_ref().map_or(before.keys, |(link, _)| link.keys_after);
        state.last = FollowedFrom { sequence, keys };
        if decoded.is_ok_and(|(_, writes)| copies::matters(&writes)) {
            state.status.changed = sequence;
        }
        if state.status.broken.is_some() && state.segment.is_none() {
            return Ok(());
        }
        if state.segment.as_ref().is_some_and(|segment| segment.bytes >= SEGMENT_BYTES)
            && let Some(left) = state.segment.take()
        {
            left.leave()?;
        }
        if state.segment.is_none() {
            state.segment = Some(self.segment_at(&before, false)?);
        }
        let Some(segment) = &mut state.segment else { return Ok(()) };
        let frame = batch_frame(entry);
        segment.bytes += frame.len() as u64;
        state.status.segment_bytes += frame.len() as u64;
        segment.waiting.extend_from_slice(&frame);
        if segment.waiting.len() >= WAITING_BYTES { segment.flush() } else { Ok(()) }
    }

    fn unless_broken(&self, done: impl FnOnce(&mut State) -> io::Result<()>) {
        let mut state = self.state.lock();
        let done = done(&mut state);
        state.note(done).ok();
    }
}

impl State {
    /// After an error the segment may end within a batch: it is left, and a snapshot is due.
    fn note<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            tracing::warn!(%error, "the journal of the catalog cannot be written; a new snapshot is due");
            self.segment = None;
            self.status.broken = Some(error.to_string());
        })
    }

    /// Writes the batches that wait.
    fn flush(&mut self) -> io::Result<()> {
        let done = self.segment.as_mut().map_or(Ok(()), Segment::flush);
        self.note(done)
    }
}

impl Segment {
    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    /// Ends it, durably.
    fn leave(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }
}

impl Follower for Journal {
    fn committed(&self, sequence: Sequence, entry: &[u8]) {
        self.unless_broken(|state| self.add(state, sequence, entry));
    }

    fn sync(&self) {
        self.unless_broken(|state| {
            let Some(segment) = &mut state.segment else { return Ok(()) };
            segment.flush()?;
            segment.file.sync_data()
        });
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.sync();
    }
}

/// The number of the first of `segments` that is needed to continue from `snapshot`.
fn first_needed(segments: &[(Sequence, PathBuf)], snapshot: Sequence) -> Sequence {
    segments.iter().rev().map(|(number, _)| *number).find(|number| *number <= snapshot).unwrap_or(snapshot)
}

fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)
}

/// The number of the last batch in the segment at `path`, which ends at its first torn frame.
fn end_of(path: &Path, rack: &[u8; 16]) -> Result<Sequence, SnapshotError> {
    let mut last = None;
    let begun = each_batch(path, rack, |entry| -> Result<(), SnapshotError> {
        let link = log_entry::decode(entry).map(|(link, _)| link).map_err(|_| SnapshotError::Damaged("a batch"))?;
        last = Some(link.sequence);
        Ok(())
    })?;
    Ok(last.unwrap_or(begun))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the file at `path` if it belongs to a journal of this rack.
fn remove(path: &Path, rack: &[u8; 16]) -> io::Result<()> {
    match header_of(path) {
        Ok(header) if header.rack == *rack => fs::remove_file(path),
        // A file that was cut off before the end of its header has no content.
        Err(SnapshotError::CutOff) => fs::remove_file(path),
        Ok(_) | Err(_) => {
            tracing::warn!(path = %path.display(), "a file next to the journal does not belong to it, and is kept");
            Ok(())
        }
    }
}

/// The header of a snapshot or a segment.
fn header_of(path: &Path) -> Result<Header, SnapshotError> {
    match FrameReader::of_segment(File::open(path)?) {
        Err(SnapshotError::Foreign) => FrameReader::begin(File::open(path)?).map(|frames| frames.header),
        found => found.map(|frames| frames.header),
    }
}

/// Passes to `take` the batches of the segment at `path`, up to its first torn frame. Returns the batch before them.
///
/// # Errors
/// [`SnapshotError`] if it is not a segment of this rack; the errors of `take`.
pub(crate) fn each_batch<E: From<SnapshotError>>(
    path: &Path,
    rack: &[u8; 16],
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Sequence, E> {
    let opened = File::open(path).map_err(SnapshotError::Io)?;
    let mut frames = FrameReader::of_segment(BufReader::with_capacity(1 << 20, opened))?;
    if frames.header.rack != *rack {
        return Err(SnapshotError::Foreign.into());
    }
    loop {
        match frames.next_batch() {
            Ok(entry) => take(&entry)?,
            Err(SnapshotError::CutOff | SnapshotError::Damaged(_)) => return Ok(frames.header.before),
            Err(error) => return Err(error.into()),
        }
    }
}
