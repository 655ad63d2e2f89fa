//! The intake as the log in front of the catalog, and as the place of small objects.
//!
//! A batch of the catalog with a payload is a record whose key is the payload's slot, whose value is the payload, and
//! whose entry is the catalog's. One without is the removal of a key that never exists, with such an entry. What is
//! longer than an entry may be is in several records, one behind the other. An entry begins with:
//!
//! ```text
//! | version 1, u8 | commit sequence number, u64 LE | this part, u32 LE | how many parts there are, u32 LE |
//! ```
//!
//! The intake gives numbers of its own; which of them the catalog has covered is remembered while it is not covered.

use crate::data_dir::DataDir;
use crate::error::ServerError;
use catalog::{CommitLog, LogError, LogRecord, Sequence};
use futures::future::BoxFuture;
use intake::medium::Directory;
use intake::medium::files::DirectoryOfFiles;
use intake::medium::overlay::Overlay;
use intake::{Ack, Change, Config, ENTRY_BYTES_MAX, Intake, Kind, Opened, PutError, ReadError, Replay, Stored};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use workshop::{RecordEnd, SmallRecords};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 8 + 4 + 4;
/// Bytes that are written with one sync: above what the catalog commits at once.
const BATCH_BYTES: usize = 32 << 20;
/// Shelves that are merged into one. Many: slots grow, so that shelves hardly overlap, and a read asks one of them; and
/// much of what would be merged has moved to the rack before. Each costs an open file: 60 up to 100 GB.
const FAN_IN: usize = 16;
/// The first byte of the keys of payloads; the slot follows, big-endian.
const PAYLOAD: u8 = b's';
/// The key of batches without a payload.
const NO_PAYLOAD: &[u8] = b"c";

/// The log in front of a catalog.
pub(crate) struct IntakeLog {
    intake: Arc<Intake>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was found when it was opened; taken by the replay.
    found: Option<Replay>,
    /// The last number of the intake by each of the catalog's, of what is not covered.
    uncovered: VecDeque<(Sequence, intake::Sequence)>,
}

/// A part of a batch.
struct Part<'a> {
    sequence: Sequence,
    index: u32,
    count: u32,
    bytes: &'a [u8],
}

impl IntakeLog {
    /// The intake of `dir`: `None` if there is none, and it is not to be made.
    ///
    /// # Errors
    /// [`ServerError::Io`].
    pub(crate) fn of(dir: &DataDir, make: bool) -> Result<Option<Arc<Self>>, ServerError> {
        if make || dir.intake().exists() { Self::at(dir, Self::open).map(Some) } else { Ok(None) }
    }

    /// The intake of `dir`, if it has one, to look at it: nothing of it is changed.
    ///
    /// # Errors
    /// [`ServerError::Io`].
    pub(crate) fn look_at(dir: &DataDir) -> Result<Option<Arc<Self>>, ServerError> {
        if dir.intake().exists() { Self::at(dir, Self::look).map(Some) } else { Ok(None) }
    }

    fn at(dir: &DataDir, open: impl Fn(&Path, u128) -> io::Result<Self>) -> Result<Arc<Self>, ServerError> {
        let mut entropy = [0; 16];
        getrandom::fill(&mut entropy)
            .map_err(|error| ServerError::Io("drawing random bytes".into(), io::Error::other(error.to_string())))?;
        let opened = open(&dir.intake(), u128::from_le_bytes(entropy));
        let failed = |source| ServerError::Io(format!("opening the intake {}", dir.intake().display()), source);
        opened.map(Arc::new).map_err(failed)
    }

    /// Opens the intake in the directory at `path`, or makes it. `entropy` are random bits.
    ///
    /// # Errors
    /// If it cannot be used; the message says why.
    fn open(path: &Path, entropy: u128) -> io::Result<Self> {
        Self::open_in(Box::new(DirectoryOfFiles::open(path)?), entropy, false)
    }

    /// The same, to look at it: nothing in the directory changes.
    ///
    /// # Errors
    /// The same.
    fn look(path: &Path, entropy: u128) -> io::Result<Self> {
        Self::open_in(Box::new(Overlay::over(Box::new(DirectoryOfFiles::open(path)?))), entropy, true)
    }

    fn open_in(directory: Box<dyn Directory>, entropy: u128, is_look: bool) -> io::Result<Self> {
        let clock = || model::Time::ZERO + disk::clock::monotonic().saturating_duration_since(epoch());
        let mut config = Config::new(entropy, clock);
        config.batch_bytes = BATCH_BYTES;
        config.fan_in = FAN_IN;
        // The catalog says by its own number what it has: everything that is still in logs is shown to it.
        config.covered = Some(intake::Sequence(0));
        config.is_look = is_look;
        let opened = Intake::open(vec![directory], config);
        let (intake, Opened { replay, torn_bytes, .. }) = opened.map_err(io::Error::other)?;
        if torn_bytes > 0 {
            tracing::warn!(
                torn_bytes,
                "the end of the intake's log was torn off by a crash; nobody was answered for it"
            );
        }
        let state = State { found: Some(replay), ..State::default() };
        Ok(Self { intake: Arc::new(intake), state: Mutex::new(state) })
    }

    /// Runs `read`, which may wait for the disk, where that is no harm.
    async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Intake) -> Result<T, ReadError> + Send + 'static,
    ) -> io::Result<T> {
        let intake = Arc::clone(&self.intake);
        let done = tokio::task::spawn_blocking(move || read(&intake)).await;
        done.map_err(io::Error::other)?.map_err(|error| match error {
            ReadError::Drive(error) => error,
            other => io::Error::other(other),
        })
    }
}

impl CommitLog for IntakeLog {
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError> {
        let changes: Vec<Change> = records.iter().flat_map(changes).collect();
        let failed = |error: PutError| LogError::Failed(error.to_string());
        let acks = self.intake.submit_all(changes).map_err(failed)?;
        let answers: Vec<_> = acks.into_iter().map(Ack::wait).collect();
        if answers.iter().all(|answer| matches!(answer, Err(PutError::NoSpace))) {
            return Err(LogError::Full);
        }
        let mut last = intake::Sequence(0);
        for answer in answers {
            last = answer.map_err(failed)?;
        }
        let sequence = records.last().map(|record| record.sequence).unwrap_or_default();
        self.state.lock().uncovered.push_back((sequence, last));
        Ok(())
    }

    fn covered(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        let mut covered = None;
        while let Some((of_catalog, of_intake)) = state.uncovered.front().copied()
            && of_catalog <= sequence
        {
            covered = Some(of_intake);
            state.uncovered.pop_front();
        }
        if let Some(covered) = covered {
            self.intake.covered(covered);
        }
    }

    fn replay(&self, after: Sequence, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        let Some(found) = self.state.lock().found.take() else {
            return Err(LogError::Failed("it was replayed already".into()));
        };
        let mut entry = Vec::new();
        let mut next = (Sequence::default(), 0);
        for change in found {
            let change = change.map_err(|error| LogError::Failed(error.to_string()))?;
            if change.kind == Kind::Forget || change.entry.is_empty() {
                continue;
            }
            let Some(Part { sequence, index, count, bytes }) = Part::decode(&change.entry) else {
                return Err(LogError::Failed("a record is of a version that this Larder does not know".into()));
            };
            if index == 0 {
                entry.clear();
                next = (sequence, 0);
            }
            if next != (sequence, index) {
                continue;
            }
            entry.extend_from_slice(bytes);
            next.1 += 1;
            if next.1 < count {
                continue;
            }
            self.state.lock().uncovered.push_back((sequence, change.sequence));
            if sequence > after && each(&entry).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl SmallRecords for IntakeLog {
    fn bytes(&self, slot: u64) -> BoxFuture<'_, io::Result<Option<u64>>> {
        let head = move |intake: &Intake| Ok(intake.head(&key(slot))?.map(|stored| stored.value_bytes));
        Box::pin(self.reading(head))
    }

    fn read(&self, slot: u64, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        let read = move |intake: &Intake| Ok(intake.get_range(&key(slot), range)?.map(|stored| stored.value));
        Box::pin(self.reading(read))
    }

    fn read_end(&self, slot: u64, bytes: u64) -> BoxFuture<'_, io::Result<Option<RecordEnd>>> {
        let read = move |intake: &Intake| Ok(intake.get(&key(slot))?.map(|stored| ending(stored, bytes)));
        Box::pin(self.reading(read))
    }

    fn remove(&self, slot: u64) -> BoxFuture<'_, io::Result<()>> {
        let removed = self.intake.submit_all(vec![Change::Delete { key: key(slot), entry: Vec::new() }]);
        // It need not be durable: what is there again after a crash is known to nobody, and swept.
        Box::pin(std::future::ready(removed.map(drop).map_err(io::Error::other)))
    }

    fn slots(&self) -> BoxFuture<'_, io::Result<Vec<u64>>> {
        let all = |intake: &Intake| {
            let scan = intake.scan_entries(&[PAYLOAD], Some(&[PAYLOAD + 1]));
            let slots = scan.map(|item| item.map(|(key, _)| slot_of(&key)));
            slots.filter_map(Result::transpose).collect()
        };
        Box::pin(self.reading(all))
    }
}

impl<'a> Part<'a> {
    fn decode(entry: &'a [u8]) -> Option<Self> {
        let (version, rest) = entry.split_first()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (count, bytes) = rest.split_first_chunk()?;
        let sequence = Sequence(u64::from_le_bytes(*sequence));
        let (index, count) = (u32::from_le_bytes(*index), u32::from_le_bytes(*count));
        (*version == VERSION).then_some(Self { sequence, index, count, bytes })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.bytes.len());
        out.push(VERSION);
        out.extend_from_slice(&self.sequence.0.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(self.bytes);
        out
    }
}

/// The changes that `record` is, the one with its payload last.
fn changes(record: &LogRecord) -> Vec<Change> {
    let pieces = record.entry.chunks(ENTRY_BYTES_MAX - HEAD_BYTES);
    let count = pieces.len() as u32;
    let part = |(index, bytes)| Part { sequence: record.sequence, index: index as u32, count, bytes }.encode();
    let mut entries: Vec<Vec<u8>> = pieces.enumerate().map(part).collect();
    let last = record.payload.as_ref().and_then(|payload| Some((payload, entries.pop()?)));
    let without = |entry| Change::Delete { key: NO_PAYLOAD.to_vec(), entry };
    let mut changes: Vec<Change> = entries.into_iter().map(without).collect();
    changes.extend(last.map(|(payload, entry)| Change::Put {
        key: key(payload.slot),
        entry,
        value: payload.bytes.clone(),
    }));
    changes
}

/// The length of what is `stored`, and its last `bytes` bytes.
fn ending(stored: Stored, bytes: u64) -> RecordEnd {
    let mut value = stored.value;
    value.drain(..value.len() - value.len().min(bytes as usize));
    (stored.value_bytes, value)
}

fn key(slot: u64) -> Vec<u8> {
    [&[PAYLOAD][..], &slot.to_be_bytes()].concat()
}

fn slot_of(key: &[u8]) -> Option<u64> {
    let (kind, slot) = key.split_first()?;
    (*kind == PAYLOAD).then(|| slot.try_into().ok().map(u64::from_be_bytes))?
}

/// The moment from which the intake counts its time.
fn epoch() -> tokio::time::Instant {
    static EPOCH: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(disk::clock::monotonic)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use catalog::{Batch, KeyRange, Payload, SqliteOptions, SqliteStore, Store, Write};

    fn put(key: &str, body: Vec<u8>) -> Batch {
        Batch::new(Vec::new(), vec![Write::Put(key.into(), body)])
    }

    fn with_payload(slot: u64, bytes: Vec<u8>) -> Batch {
        let payload = Payload { slot, name: Vec::new(), bytes: bytes.into() };
        Batch { payload: Some(payload), ..put("slot", slot.to_string().into()) }
    }

    /// The directory `from`, as a process that dies now leaves it, in `to`.
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    fn open(dir: &Path) -> (SqliteStore, Arc<IntakeLog>) {
        let log = Arc::new(IntakeLog::open(&dir.join("intake"), u128::from(getrandom::u64().unwrap())).unwrap());
        let store = SqliteStore::open_with_log(dir.join("catalog"), SqliteOptions::default(), log.clone());
        (store.unwrap(), log)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn batches_and_payloads_are_there_after_the_death_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let (living, image) = (dir.path().join("living"), dir.path().join("image"));
        std::fs::create_dir(&living).unwrap();
        let (store, log) = open(&living);
        store.commit(put("a", b"1".to_vec())).await.unwrap();
        let waiting: Vec<_> = (1..50).map(|slot| store.commit(with_payload(slot, vec![slot as u8; 5_000]))).collect();
        for answer in futures::future::join_all(waiting).await {
            answer.unwrap();
        }
        // A batch in several parts.
        let long: Vec<u8> = (0..3_000_000_u32).map(|byte| byte as u8).collect();
        store.commit(put("long", long.clone())).await.unwrap();
        log.remove(7).await.unwrap();
        store.commit(put("b", b"2".to_vec())).await.unwrap();
        copy(&living, &image);
        let sequence = store.sequence();
        // The file as of before all this: everything comes from the log.
        for (round, file) in ["catalog", "catalog-wal"].into_iter().enumerate() {
            let fresh = dir.path().join(format!("fresh{round}"));
            copy(&image, &fresh);
            if round == 1 {
                std::fs::remove_file(fresh.join(file)).unwrap();
            }
            let (store, log) = open(&fresh);
            assert_eq!((store.behind_log(), store.sequence()), (None, sequence), "round {round}");
            let found = store.get(b"long").await.unwrap().unwrap();
            assert_eq!(found.open(b"long").unwrap().0, long);
            assert_eq!(store.scan(KeyRange::all(), 99).await.unwrap().len(), 4);
            let slots: Vec<u64> = (1..50).filter(|slot| *slot != 7).collect();
            assert_eq!(log.slots().await.unwrap(), slots);
            assert_eq!(log.bytes(7).await.unwrap(), None);
            assert_eq!(log.read(9, 4_990..5_100).await.unwrap(), Some(vec![9; 10]));
        }
        // Closed in order, it needs its log no more, and goes on with it.
        drop((store, log));
        drop(SqliteStore::open(living.join("catalog")).unwrap());
        let (store, log) = open(&living);
        assert_eq!((store.behind_log(), store.sequence()), (None, sequence));
        assert_eq!(log.bytes(49).await.unwrap(), Some(5_000));
        store.commit(with_payload(50, vec![1; 10])).await.unwrap();
        assert_eq!(log.bytes(50).await.unwrap(), Some(10));
    }
}
