//! Stores with a log in front: crash images at every stage, against what was acknowledged; logs that fail; copies that
//! do not fit.

use super::conformance::Judge;
use crate::log_entry;
use crate::{
    Batch, Check, CommitLog, KeyRange, LogError, LogFault, LogRecord, MemoryLog, MemoryStore, Payload, Sequence,
    SqliteOptions, SqliteStore, Store, StoreError, Write,
};
use bytes::Bytes;
use futures::future::join_all;
use model::Rng;
use parking_lot::Mutex;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Few bytes, so that stores are made durable for their logs again and again.
const OFTEN: SqliteOptions = SqliteOptions {
    readers: 2,
    max_bytes: None,
    sequence_min: Sequence(0),
    accept_incomplete: false,
    cover_after_bytes: 3_000,
    retains_log: false,
};
/// Never, but for open and close.
const NEVER: SqliteOptions = SqliteOptions { cover_after_bytes: u64::MAX, ..OFTEN };

/// Bytes of a page of SQLite's log with its head, and of the head of the log.
const WAL_FRAME_BYTES: usize = 24 + 4096;
const WAL_HEAD_BYTES: usize = 32;

fn put(key: &str, value: &str) -> Batch {
    Batch::new(Vec::new(), vec![Write::Put(key.into(), value.into())])
}

fn any_batch(rng: &mut Rng, slot: u64) -> Batch {
    let key = |rng: &mut Rng| format!("{:02}", rng.below(40)).into_bytes();
    let check = match rng.below(4) {
        0 => vec![Check::Absent(key(rng))],
        1 => vec![Check::Present(key(rng))],
        _ => Vec::new(),
    };
    let write = |rng: &mut Rng| match rng.below(8) {
        0 => Write::DeleteRange(KeyRange::prefix(&key(rng)[..1])),
        1 | 2 => Write::Delete(key(rng)),
        _ => Write::Put(key(rng), vec![rng.next_u64() as u8; rng.below(300) as usize]),
    };
    let writes = (0..=rng.below(4)).map(|_| write(rng)).collect();
    let bytes = Bytes::from(vec![slot as u8; rng.below(200) as usize]);
    let payload = (rng.below(2) == 0).then(|| Payload { slot, name: b"b\0k".to_vec(), bytes });
    Batch { payload, ..Batch::new(check, writes) }
}

/// Everything in `store`, without seals.
async fn contents(store: &dyn Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = store.scan(KeyRange::all(), usize::MAX).await.unwrap();
    entries.into_iter().map(|entry| (entry.key.clone(), entry.value.open(&entry.key).unwrap().0.to_vec())).collect()
}

/// The last number in a log, and how many entries it has.
fn last_of(log: &MemoryLog) -> (u64, usize) {
    let (mut last, mut count) = (log.covered_up_to().0, 0);
    let each = &mut |entry: &[u8]| {
        last = log_entry::decode(entry).unwrap().0.sequence.0;
        count += 1;
        ControlFlow::Continue(())
    };
    log.replay(each).unwrap();
    (last, count)
}

/// A log that takes a picture of all media between each of its syncs and the commit that follows.
struct Filming {
    log: MemoryLog,
    path: PathBuf,
    pictures: Mutex<Vec<Picture>>,
    /// SQLite's log as it was when it was last known to be durable.
    durable: Mutex<Vec<u8>>,
}

/// Media at one moment.
struct Picture {
    file: Vec<u8>,
    wal: Vec<u8>,
    /// So much of `wal` is durable.
    wal_durable: usize,
    /// The log, and how long it was before the append that was just done.
    log: Vec<u8>,
    log_before: usize,
    covered: Sequence,
}

impl Filming {
    fn new(path: &Path) -> Self {
        let log = MemoryLog::new();
        Self { log, path: path.into(), pictures: Mutex::default(), durable: Mutex::default() }
    }

    fn wal(&self) -> Vec<u8> {
        std::fs::read(format!("{}-wal", self.path.display())).unwrap_or_default()
    }
}

impl CommitLog for Filming {
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError> {
        let log_before = self.log.image().len();
        self.log.append(records)?;
        let (wal, durable) = (self.wal(), self.durable.lock());
        // When SQLite's log is restarted, its head has other salts; then all its content is in the file.
        let is_same = wal.len() >= WAL_HEAD_BYTES && durable.get(..WAL_HEAD_BYTES) == wal.get(..WAL_HEAD_BYTES);
        let wal_durable = if is_same { durable.len() } else { 0 };
        let (file, log) = (std::fs::read(&self.path).unwrap(), self.log.image());
        let covered = self.log.covered_up_to();
        self.pictures.lock().push(Picture { file, wal, wal_durable, log, log_before, covered });
        Ok(())
    }

    fn covered(&self, sequence: Sequence) {
        *self.durable.lock() = self.wal();
        self.log.covered(sequence);
    }

    fn retain(&self) {
        self.log.retain();
    }

    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        self.log.replay(each)
    }
}

/// The states that a store had, by how many batches had changed something.
struct History {
    judge: Judge,
    states: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl History {
    fn new() -> Self {
        Self { judge: Judge::default(), states: vec![Vec::new()] }
    }

    /// Commits `batches` at once, and compares the answers.
    async fn commit(&mut self, store: &dyn Store, batches: Vec<Batch>) {
        let waiting: Vec<_> = batches.iter().map(|batch| store.commit(batch.clone())).collect();
        for (batch, answer) in batches.iter().zip(join_all(waiting).await) {
            match (answer, self.judge.failed_check(batch)) {
                (Ok(()), None) => {
                    self.judge.apply(batch);
                    self.states.push(self.judge.inside(&KeyRange::all()));
                }
                (Err(StoreError::CheckFailed(index)), Some(wanted)) => assert_eq!(index, wanted),
                (answer, wanted) => panic!("{answer:?} where the judge says {wanted:?}"),
            }
        }
    }
}

/// A store of a picture, with the log cut at `log_cut` and SQLite's own at `wal_cut`.
fn developed(picture: &Picture, dir: &Path, (log_cut, wal_cut): (usize, usize), zeroed: bool) -> (SqliteStore, u64) {
    let path = dir.join("image");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    std::fs::write(&path, &picture.file).unwrap();
    let mut wal = picture.wal.clone();
    // Bytes that were not synced may be there in part: here a hole, and then the rest.
    if zeroed {
        let end = wal.len().min(wal_cut + WAL_FRAME_BYTES);
        wal[wal_cut..end].fill(0);
    } else {
        wal.truncate(wal_cut);
    }
    std::fs::write(format!("{}-wal", path.display()), wal).unwrap();
    let log = MemoryLog::from_image(&picture.log[..log_cut], picture.covered);
    let (last, _) = last_of(&log);
    (SqliteStore::open_with_log(&path, OFTEN, Arc::new(log)).unwrap(), last)
}

async fn crash_anywhere(seed: u64, options: SqliteOptions) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let (filming, mut rng, mut history) = (Arc::new(Filming::new(&path)), Rng::new(seed), History::new());
    for _ in 0..2 {
        let store = SqliteStore::open_with_log(&path, options, filming.clone()).unwrap();
        assert_eq!(store.behind_log(), None);
        for round in 0..12 {
            let batches = (0..=rng.below(5)).map(|turn| any_batch(&mut rng, 1 + round * 10 + turn)).collect();
            history.commit(&store, batches).await;
        }
    }
    let mut images = 0;
    let pictures = std::mem::take(&mut *filming.pictures.lock());
    for picture in &pictures {
        for _ in 0..4 {
            let log_cut = match rng.below(3) {
                0 => picture.log.len(),
                _ => picture.log_before + rng.below((picture.log.len() - picture.log_before + 1) as u64) as usize,
            };
            let unsynced = picture.wal.len() - picture.wal_durable.min(picture.wal.len());
            let at = match rng.below(3) {
                0 => rng.below(unsynced as u64 + 1) as usize,
                _ => rng.below((unsynced / WAL_FRAME_BYTES) as u64 + 1) as usize * WAL_FRAME_BYTES,
            };
            let wal_cut = (picture.wal_durable + at).min(picture.wal.len());
            let (store, last) = developed(picture, dir.path(), (log_cut, wal_cut), rng.below(4) == 0);
            assert_eq!(store.behind_log(), None, "seed {seed}: {log_cut} {wal_cut}");
            assert_eq!((store.sequence().0, store.incomplete()), (last, None), "seed {seed}");
            assert_eq!(contents(&store).await, history.states[last as usize], "seed {seed}: batch {last}");
            // And the store continues.
            store.commit(put("z", "after")).await.unwrap();
            images += 1;
        }
    }
    images
}

#[tokio::test]
async fn after_a_power_loss_anywhere_every_acknowledged_batch_is_there_in_order() {
    let mut images = 0;
    for seed in 0..8 {
        images += crash_anywhere(seed, if seed % 2 == 0 { OFTEN } else { NEVER }).await;
    }
    assert!(images > 500, "{images} images: too few for a test");
}

#[tokio::test]
async fn in_memory_as_well_whatever_only_the_log_has() {
    for seed in 0..200 {
        let (mut rng, mut history, mut log) = (Rng::new(seed), History::new(), MemoryLog::new());
        let mut store = MemoryStore::new().with_log(Arc::new(log.clone())).unwrap();
        for turn in 0..30 {
            let batch = any_batch(&mut rng, 1 + turn);
            history.commit(&store, vec![batch.clone()]).await;
            if rng.below(4) == 0 {
                log = log.reopened(0);
                let lost = rng.below(store.unsynced() as u64 + 1) as usize;
                store = store.crash_losing(lost).with_log(Arc::new(log.clone())).unwrap();
            }
            assert_eq!(contents(&store).await, *history.states.last().unwrap(), "seed {seed}, turn {turn}");
            assert_eq!((store.behind_log(), store.sequence().0 as usize), (None, history.states.len() - 1));
        }
        for slot in 1..=30 {
            if let Some(bytes) = log.payload(slot) {
                assert!(bytes.iter().all(|byte| *byte == slot as u8), "the bytes of slot {slot}");
            }
        }
    }
}

#[tokio::test]
async fn a_full_log_refuses_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = MemoryLog::new();
    let store = SqliteStore::open_with_log(dir.path().join("catalog"), NEVER, Arc::new(log.clone())).unwrap();
    log.fail(LogFault::Full);
    assert!(matches!(store.commit(put("a", "1")).await, Err(StoreError::Full)));
    assert_eq!(store.get(b"a").await.unwrap(), None);
    store.commit(put("b", "1")).await.unwrap();
    store.commit(put("b", "2")).await.unwrap();
    // Forgettable entries make room: the store arranges that by itself.
    let covered = log.covered_up_to();
    log.fail(LogFault::Full);
    store.commit(put("c", "3")).await.unwrap();
    assert!(log.covered_up_to() > covered);
    assert_eq!(contents(&store).await.len(), 2);
}

#[tokio::test]
async fn after_a_log_failed_nothing_is_written_until_the_store_is_opened_again() {
    for written_bytes in [0, 60, 100_000] {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("catalog"), MemoryLog::new());
        let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
        store.commit(put("a", "1")).await.unwrap();
        log.fail(LogFault::Failed { written_bytes });
        assert!(matches!(store.commit(put("a", "2")).await, Err(StoreError::Failed(_))));
        assert!(matches!(store.commit(put("b", "3")).await, Err(StoreError::Failed(_))));
        assert_eq!(contents(&store).await, [(b"a".to_vec(), b"1".to_vec())], "as it was acknowledged");
        drop(store);
        assert!(SqliteStore::open_with(&path, NEVER).is_err(), "its log has what it needs");
        let log = log.reopened(usize::MAX);
        let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log)).unwrap();
        let wanted: &[u8] = if written_bytes == 100_000 { b"2" } else { b"1" };
        assert_eq!(contents(&store).await, [(b"a".to_vec(), wanted.to_vec())]);
        store.commit(put("b", "3")).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_is_whole_without_its_log_only_if_it_was_closed_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (path, image) = (dir.path().join("catalog"), dir.path().join("image"));
    let log = MemoryLog::new();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    store.commit(put("a", "1")).await.unwrap();
    std::fs::copy(&path, &image).unwrap();
    std::fs::copy(dir.path().join("catalog-wal"), dir.path().join("image-wal")).unwrap();
    assert!(SqliteStore::needs_log(&image) && !SqliteStore::needs_log(dir.path().join("none")));
    for refused in [SqliteStore::open(&image).err(), SqliteStore::open_read_only(&image, None).err()] {
        let Some(StoreError::Unusable(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("was not closed properly"), "{why}");
    }
    drop(store);
    assert_eq!(last_of(&log), (1, 1), "the log has its last number, and nothing that the file has not");
    assert!(!SqliteStore::needs_log(&path));
    let store = SqliteStore::open(&path).unwrap();
    store.commit(put("b", "2")).await.unwrap();
    drop(store);
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.reopened(0))).unwrap();
    assert_eq!((contents(&store).await.len(), store.behind_log()), (2, None));
}

#[tokio::test]
async fn a_look_sees_what_only_the_log_has_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, image) = (dir.path().join("catalog"), dir.path().join("image"));
    let log = MemoryLog::new();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    let key = |number: u32| format!("{:03}", number * 37 % 101);
    for number in 0..200 {
        if number == 90 {
            std::fs::copy(&path, &image).unwrap();
            std::fs::copy(dir.path().join("catalog-wal"), dir.path().join("image-wal")).unwrap();
        }
        store.commit(put(&key(number), &number.to_string())).await.unwrap();
        let gone = match number % 7 {
            0 => Write::Delete(key(number / 2).into()),
            1 => Write::DeleteRange(KeyRange::prefix(&key(number / 3).as_bytes()[..2])),
            _ => continue,
        };
        store.commit(Batch::new(Vec::new(), vec![gone])).await.unwrap();
    }
    let before = std::fs::read(&image).unwrap();
    let look = SqliteStore::open_read_only(&image, Some(Arc::new(log.reopened(0)))).unwrap();
    assert_eq!((look.incomplete(), look.behind_log(), look.sequence()), (None, None, store.sequence()));
    let all = store.scan(KeyRange::all(), 1_000).await.unwrap();
    assert!(all.len() > 20, "some are left");
    assert_eq!(look.scan(KeyRange::all(), 1_000).await.unwrap(), all);
    for limit in [1, 3, 10] {
        let (mut found, mut range) = (Vec::new(), KeyRange::all());
        loop {
            let page = look.scan(range.clone(), limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            range.start = Bound::Excluded(last.key.clone());
            found.extend(page);
        }
        assert_eq!(found, all, "{limit} at once");
    }
    let keys: Vec<Vec<u8>> = (0..101).map(|number| key(number).into()).collect();
    assert_eq!(look.get_many(keys.clone()).await.unwrap(), store.get_many(keys.clone()).await.unwrap());
    for key in keys {
        assert_eq!(look.get(&key).await.unwrap(), store.get(&key).await.unwrap());
    }
    assert!(look.commit(put("a", "1")).await.is_err());
    assert!(std::fs::read(&image).unwrap() == before);
}

#[tokio::test]
async fn a_store_that_its_log_does_not_follow_on_takes_nothing_and_says_so() {
    let log = MemoryLog::new();
    let store = MemoryStore::new().with_log(Arc::new(log.clone())).unwrap();
    store.commit(put("a", "1")).await.unwrap();
    let older = store.snapshot();
    let store = store.with_log(Arc::new(log.clone())).unwrap();
    store.commit(put("a", "2")).await.unwrap();
    // As long as the log has all that happened since, the older copy becomes the newest one.
    let caught_up = older.snapshot().with_log(Arc::new(log.reopened(0))).unwrap();
    assert_eq!((caught_up.behind_log(), contents(&caught_up).await), (None, contents(&store).await));
    // But once the store is durable by itself, the log has only what happened since.
    log.covered(store.sequence());
    store.commit(put("b", "3")).await.unwrap();
    let behind = older.snapshot().with_log(Arc::new(log.reopened(0))).unwrap();
    assert!(behind.behind_log().unwrap().contains("number 3"), "{:?}", behind.behind_log());
    assert_eq!(contents(&behind).await, [(b"a".to_vec(), b"1".to_vec())]);
    // A log of another store, by chance with a number that follows.
    let other = MemoryStore::new();
    other.commit(put("x", "1")).await.unwrap();
    let log = MemoryLog::new();
    let store = MemoryStore::new().with_log(Arc::new(log.clone())).unwrap();
    store.commit(put("a", "1")).await.unwrap();
    store.commit(put("a", "2")).await.unwrap();
    let other = other.with_log(Arc::new(log.reopened(0))).unwrap();
    assert!(other.behind_log().is_some());
    assert_eq!(contents(&other).await, [(b"x".to_vec(), b"1".to_vec())]);
}

/// A copy of `store` with a copy of `log`, as a start after a crash finds them.
fn reopened(store: &MemoryStore, log: &MemoryLog) -> (MemoryStore, MemoryLog) {
    let log = log.reopened(0);
    (store.snapshot().with_log(Arc::new(log.clone())).unwrap(), log)
}

/// A store that was backed up, used and made durable since, so that its log does not lead from the backup to it: the
/// backup; the newest one, without a third batch that only its log has; and that.
async fn older_and_newest() -> (MemoryStore, MemoryStore, MemoryLog) {
    let log = MemoryLog::new();
    let store = MemoryStore::new().with_log(Arc::new(log.clone())).unwrap();
    store.commit(put("a", "1")).await.unwrap();
    let older = store.snapshot();
    let store = store.with_log(Arc::new(log.clone())).unwrap();
    store.commit(put("a", "2")).await.unwrap();
    log.covered(store.sequence());
    let newest = store.snapshot();
    store.commit(put("b", "3")).await.unwrap();
    (older, newest, log)
}

#[tokio::test]
async fn the_newest_store_is_known_when_it_comes_back_after_an_older_copy_was_used() {
    for (runs, more_runs) in [(1, 1), (2, 3)] {
        let (mut older, mut newest, mut log) = older_and_newest().await;
        for run in 0..runs {
            (older, log) = reopened(&older, &log);
            assert!(older.behind_log().is_some(), "run {run}");
            assert!(older.sequence() < Sequence(3) || run > 0);
            // More than is logged before a store is made durable: the log forgets what only the older one needed.
            for turn in 0..300 {
                older.commit(put("c", &format!("{turn:01000}"))).await.unwrap();
            }
            assert!(older.sequence() > Sequence(3), "above all that the log has");
            assert!(older.unsynced() < 300 && log.image().len() < 150_000, "it is made durable, and the log forgets");
        }
        // But not what the newest one needs, which finds all that it had acknowledged when it comes back.
        for run in 0..more_runs {
            (newest, log) = reopened(&newest, &log);
            assert_eq!(newest.behind_log(), None, "run {run}");
            assert_eq!((contents(&newest).await.len(), newest.sequence() > Sequence(3)), (2 + run, run > 0));
            newest.commit(put(&format!("d{run}"), "5")).await.unwrap();
        }
        // Now the log is against the older one again, however far that had got.
        let (behind, _) = reopened(&older, &log);
        assert!(behind.behind_log().unwrap().contains("do not follow"), "{:?}", behind.behind_log());
        // And so on.
        let (again, of_again) = reopened(&behind, &log);
        again.commit(put("e", "6")).await.unwrap();
        let (last, of_last) = reopened(&newest, &of_again);
        assert_eq!((last.behind_log(), contents(&last).await.len()), (None, 2 + more_runs));
        last.commit(put("f", "7")).await.unwrap();
        let (last, _) = reopened(&last, &of_last);
        assert_eq!((last.behind_log(), contents(&last).await.len()), (None, 3 + more_runs));
    }
}

#[tokio::test]
async fn a_second_older_copy_is_not_taken_for_the_newest() {
    let (older, newest, log) = older_and_newest().await;
    let between = newest.snapshot();
    let (newest, log) = reopened(&newest, &log);
    log.covered(newest.sequence());
    newest.commit(put("b", "4")).await.unwrap();
    assert_eq!((older.sequence(), between.sequence(), newest.sequence()), (Sequence(1), Sequence(2), Sequence(4)));
    let (older, log) = reopened(&older, &log);
    older.commit(put("c", "5")).await.unwrap();
    for _ in 0..2 {
        let (between, log) = reopened(&between, &log);
        assert!(between.behind_log().unwrap().contains("up to number 4"), "{:?}", between.behind_log());
        between.commit(put("d", "6")).await.unwrap();
        let (between, _) = reopened(&between, &log);
        assert!(between.behind_log().unwrap().contains("not the newest"), "{:?}", between.behind_log());
        assert_eq!(reopened(&newest, &log).0.behind_log(), None);
    }
}

#[tokio::test]
async fn an_older_copy_that_is_accepted_is_the_newest_from_then_on() {
    let (older, newest, log) = older_and_newest().await;
    let (older, log) = reopened(&older, &log);
    older.commit(put("c", "4")).await.unwrap();
    older.set_aside(false);
    older.commit(put("c", "5")).await.unwrap();
    let (older, log) = reopened(&older, &log);
    assert_eq!((older.behind_log(), contents(&older).await.len()), (None, 2));
    assert!(reopened(&newest, &log).0.behind_log().is_some(), "the one that was given up");
    assert_eq!(reopened(&older, &log).0.behind_log(), None);
}

#[tokio::test]
async fn a_copy_that_was_found_to_be_older_late_takes_back_what_the_log_says_of_it() {
    let (older, newest, log) = older_and_newest().await;
    let (newest, log) = reopened(&newest, &log);
    log.covered(newest.sequence());
    // Nothing in the log is against it.
    let (mut older, mut log) = reopened(&older, &log);
    for found in [false, true, true] {
        assert_eq!(older.behind_log(), None);
        older.set_aside(found);
        for turn in 4..9 {
            older.commit(put("c", &turn.to_string())).await.unwrap();
        }
        assert!(older.sequence() > newest.sequence());
        let is_known = reopened(&newest, &log).0.behind_log().is_none();
        assert_eq!(is_known, found, "only the mark shows it");
        if !found {
            (older, log) = reopened(&older, &log);
        }
    }
    let (older, _) = reopened(&older, &log);
    assert!(older.behind_log().is_some());
}

#[tokio::test]
async fn a_mark_whose_group_was_refused_counts_all_the_same() {
    let (older, newest, log) = older_and_newest().await;
    let (older, log) = reopened(&older, &log);
    older.set_full(true);
    assert!(matches!(older.commit(put("c", "4")).await, Err(StoreError::Full)));
    older.set_full(false);
    log.fail(LogFault::Full);
    older.commit(Batch::new(Vec::new(), vec![Write::Delete(b"x".to_vec())])).await.unwrap_err();
    older.commit(put("c", "5")).await.unwrap();
    assert_eq!(reopened(&newest, &log).0.behind_log(), None);
    // A torn mark has no meaning, and nothing follows it.
    let (older, newest, log) = older_and_newest().await;
    let (older, log) = reopened(&older, &log);
    log.fail(LogFault::Failed { written_bytes: 40 });
    older.commit(put("c", "4")).await.unwrap_err();
    let log = log.reopened(usize::MAX);
    assert_eq!(reopened(&newest, &log).0.behind_log(), None);
    assert!(reopened(&older, &log).0.behind_log().is_some());
}

#[tokio::test]
async fn files_that_are_exchanged_under_one_log_know_which_of_them_is_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("catalog"), MemoryLog::new());
    let open = |log: &MemoryLog| SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    let put_back = |name: &str| std::fs::copy(dir.path().join(name), &path).unwrap();
    let store = open(&log);
    store.commit(put("a", "1")).await.unwrap();
    drop(store);
    std::fs::copy(&path, dir.path().join("older")).unwrap();
    let store = open(&log);
    for turn in 0..20 {
        store.commit(put("b", &format!("{turn:01000}"))).await.unwrap();
    }
    drop(store);
    std::fs::copy(&path, dir.path().join("newest")).unwrap();
    // After a close in order, the log has nothing that the file needs; a part of it may still be there.
    let store = open(&log);
    store.commit(put("c", "1")).await.unwrap();
    let mut left = log.reopened(0);
    drop(store);
    std::fs::copy(&path, dir.path().join("newest")).unwrap();
    for round in 0..3 {
        put_back("older");
        let look = SqliteStore::open_read_only(&path, Some(Arc::new(left.reopened(0)))).unwrap();
        assert!(look.behind_log().is_some(), "round {round}: {:?} {:?}", look.sequence(), last_of(&left));
        drop(look);
        for _ in 0..2 {
            let store = open(&left);
            assert!(store.behind_log().is_some());
            store.commit(put("d", &"4".repeat(5_000))).await.unwrap();
            assert!(SqliteStore::open_read_only(&path, None).is_err(), "one at a time");
        }
        let look = SqliteStore::open_read_only(&path, Some(Arc::new(left.reopened(0)))).unwrap();
        assert!(look.behind_log().unwrap().contains("not the newest"), "{:?}", look.behind_log());
        drop(look);
        std::fs::copy(&path, dir.path().join("older")).unwrap();
        put_back("newest");
        let look = SqliteStore::open_read_only(&path, Some(Arc::new(left.reopened(0)))).unwrap();
        assert_eq!(look.behind_log(), None);
        drop(look);
        let store = open(&left);
        assert_eq!((store.behind_log(), contents(&store).await.len()), (None, 3));
        store.commit(put("c", &"5".repeat(500))).await.unwrap();
        let rest = left.reopened(0);
        drop(store);
        left = rest;
        std::fs::copy(&path, dir.path().join("newest")).unwrap();
    }
}

#[tokio::test]
async fn an_older_file_is_known_before_a_log_that_was_closed_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut log) = (dir.path().join("catalog"), MemoryLog::new());
    for (name, key) in [("older", "a"), ("newest", "b")] {
        let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
        store.commit(put(key, "1")).await.unwrap();
        store.commit(put(key, "2")).await.unwrap();
        drop(store);
        std::fs::copy(&path, dir.path().join(name)).unwrap();
        log = log.reopened(0);
    }
    std::fs::copy(dir.path().join("older"), &path).unwrap();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    assert!(store.behind_log().is_some(), "{:?}", last_of(&log));
    store.commit(put("c", "2")).await.unwrap();
    drop(store);
    std::fs::copy(dir.path().join("newest"), &path).unwrap();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.reopened(0))).unwrap();
    assert_eq!((store.behind_log(), contents(&store).await.len()), (None, 2));
}

#[tokio::test]
async fn a_file_that_was_made_again_is_the_newest_one_and_its_log_is_held_until_it_is_released() {
    for is_aside in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (older, newest, mut log) = (dir.path().join("older"), dir.path().join("newest"), MemoryLog::new());
        for (key, copy) in [("a", &older), ("b", &dir.path().join("closed"))] {
            let store = SqliteStore::open_with_log(&newest, NEVER, Arc::new(log.clone())).unwrap();
            store.commit(put(key, "1")).await.unwrap();
            store.commit(put(key, "2")).await.unwrap();
            drop(store);
            std::fs::copy(&newest, copy).unwrap();
            log = log.reopened(0);
        }
        if is_aside {
            let store = SqliteStore::open_with_log(&older, NEVER, Arc::new(log.clone())).unwrap();
            store.commit(put("c", "1")).await.unwrap();
            log = log.reopened(0);
        }
        // Remade: like the newest copy, with separate batches that are in no log.
        let above = SqliteOptions { sequence_min: Sequence(1_000), ..NEVER };
        SqliteStore::open_with(&newest, above).unwrap().commit(put("d", "1")).await.unwrap();
        let (before, options) = (last_of(&log).1, SqliteOptions { retains_log: true, cover_after_bytes: 1, ..NEVER });
        let store = SqliteStore::open_with_log(&newest, options, Arc::new(log.clone())).unwrap();
        assert_eq!((store.behind_log(), store.retains_log(), last_of(&log).1), (None, true, before), "{is_aside}");
        store.commit(put("e", "1")).await.unwrap();
        assert_eq!(last_of(&log).1, before + 1);
        store.release_log();
        store.commit(put("f", "1")).await.unwrap();
        assert_eq!((store.retains_log(), last_of(&log).1), (false, 1), "the last number stays");
        let log = log.reopened(0);
        drop(store);
        let older = SqliteStore::open_with_log(&older, NEVER, Arc::new(log.reopened(0))).unwrap();
        assert!(older.behind_log().is_some(), "{is_aside}");
        let store = SqliteStore::open_with_log(&newest, options, Arc::new(log.reopened(0))).unwrap();
        assert_eq!((store.behind_log(), store.retains_log(), contents(&store).await.len()), (None, true, 5));
    }
}

#[tokio::test]
async fn batches_that_a_file_took_from_its_log_stay_there_until_the_log_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let (path, killed, log) = (dir.path().join("catalog"), dir.path().join("killed"), MemoryLog::new());
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    // The batches after this are in its log and in the WAL of the other file.
    std::fs::copy(&path, &killed).unwrap();
    for key in ["a", "b", "c"] {
        store.commit(put(key, "1")).await.unwrap();
    }
    let log = log.reopened(0);
    let options = SqliteOptions { retains_log: true, ..NEVER };
    let again = SqliteStore::open_with_log(&killed, options, Arc::new(log.clone())).unwrap();
    assert_eq!((again.behind_log(), again.retains_log(), contents(&again).await.len()), (None, true, 3));
    let kept = last_of(&log).1;
    assert!(kept >= 3, "{kept}");
    again.release_log();
    for _ in 0..500 {
        if last_of(&log).1 == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!((again.retains_log(), last_of(&log).1), (false, 1), "the last number stays");
}

#[tokio::test]
async fn a_file_that_was_made_again_without_what_is_in_the_log_does_not_hide_that_by_what_it_logs() {
    let dir = tempfile::tempdir().unwrap();
    let (newest, made, log) = (dir.path().join("newest"), dir.path().join("made"), MemoryLog::new());
    // The first batch is in no log, so that the log does not lead on from nothing.
    SqliteStore::open_with(&newest, NEVER).unwrap().commit(put("a", "1")).await.unwrap();
    let store = SqliteStore::open_with_log(&newest, NEVER, Arc::new(log.clone())).unwrap();
    store.commit(put("b", "1")).await.unwrap();
    drop(store);
    let log = log.reopened(0);
    let above = SqliteOptions { sequence_min: Sequence(1_000), ..NEVER };
    SqliteStore::open_with(&made, above).unwrap().commit(put("c", "1")).await.unwrap();
    let store = SqliteStore::open_with_log(&made, NEVER, Arc::new(log.clone())).unwrap();
    assert_eq!(store.behind_log(), None, "its own number is above all in the log");
    // Its owner knows better.
    store.set_aside(true);
    store.commit(put("d", "1")).await.unwrap();
    drop(store);
    let (log, empty) = (log.reopened(0), dir.path().join("empty"));
    let store = SqliteStore::open_with_log(&empty, NEVER, Arc::new(log.reopened(0))).unwrap();
    assert!(store.behind_log().is_some_and(|why| why.contains("do not follow")), "{:?}", store.behind_log());
    drop(store);
    let store = SqliteStore::open_with_log(&newest, NEVER, Arc::new(log)).unwrap();
    assert_eq!((store.behind_log(), contents(&store).await.len()), (None, 2));
}

#[tokio::test]
async fn the_last_number_stays_in_a_log_that_does_not_lead_to_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("catalog"), MemoryLog::new());
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    store.commit(put("a", "1")).await.unwrap();
    store.commit(put("a", "2")).await.unwrap();
    let log = log.reopened(0);
    drop(store);
    let above = SqliteOptions { sequence_min: Sequence(1_000), ..NEVER };
    SqliteStore::open_with(&path, above).unwrap().commit(put("b", "1")).await.unwrap();
    drop(SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap());
    assert_eq!(last_of(&log), (2, 1));
}

#[tokio::test]
async fn a_start_takes_from_the_log_what_is_there_and_that_does_not_grow_with_the_number_of_batches() {
    let (mut replayed, mut batch_bytes) = (Vec::new(), 0);
    for count in [50_u32, 500, 3_000] {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("catalog"), MemoryLog::new());
        let store = SqliteStore::open_with_log(&path, OFTEN, Arc::new(log.clone())).unwrap();
        let mut most = 0;
        for number in 0..count {
            let before = log.image().len();
            let payload = Payload { slot: u64::from(number) + 1, name: Vec::new(), bytes: vec![7; 100].into() };
            let batch = Batch { payload: Some(payload), ..put(&format!("{number:08}"), "some metadata") };
            store.commit(batch).await.unwrap();
            batch_bytes = batch_bytes.max(log.image().len().saturating_sub(before));
            most = most.max(last_of(&log).1);
        }
        // So many entries would a start have found at the worst moment.
        replayed.push(most);
        let image = dir.path().join("image");
        std::fs::copy(&path, &image).unwrap();
        std::fs::copy(dir.path().join("catalog-wal"), dir.path().join("image-wal")).unwrap();
        let after = SqliteStore::open_with_log(&image, OFTEN, Arc::new(log.reopened(0))).unwrap();
        assert_eq!((after.behind_log(), after.sequence()), (None, store.sequence()));
    }
    // The last one that was covered stays.
    let bound = OFTEN.cover_after_bytes as usize / batch_bytes + 3;
    assert!(replayed.iter().all(|entries| *entries <= bound), "{replayed:?} of at most {bound}");
}

#[tokio::test]
async fn what_is_replayed_onto_a_file_with_missing_records_leaves_the_others_known_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, image) = (dir.path().join("catalog"), dir.path().join("image"));
    let log = MemoryLog::new();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    for key in ["a", "b", "c", "d"] {
        store.commit(put(key, "1")).await.unwrap();
    }
    drop(store);
    std::fs::copy(&path, &image).unwrap();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    store.commit(put("a", "2")).await.unwrap();
    store.commit(put("e", "2")).await.unwrap();
    let log = log.reopened(0);
    drop(store);
    // The file as of before, with two records lost: one of them comes back with the log.
    let lossy = rusqlite::Connection::open(&image).unwrap();
    lossy.execute("DELETE FROM kv WHERE k IN (x'61', x'62')", []).unwrap();
    drop(lossy);
    let store = SqliteStore::open_with_log(&image, NEVER, Arc::new(log.clone())).unwrap();
    assert_eq!(store.incomplete(), Some("1 of 5 records are missing"));
    assert_eq!(store.behind_log(), None);
    let keys: Vec<Vec<u8>> = contents(&store).await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"a", b"c", b"d", b"e"]);
    drop(store);
    let accepted = SqliteOptions { accept_incomplete: true, ..NEVER };
    drop(SqliteStore::open_with_log(&image, accepted, Arc::new(log.reopened(0))).unwrap());
    assert_eq!(SqliteStore::open(&image).unwrap().incomplete(), None);
}

/// The log alone may have the missing records, and the file may be made again from there.
#[tokio::test]
async fn a_log_forgets_nothing_for_a_file_with_missing_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let log = MemoryLog::new();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    for key in ["a", "b", "c"] {
        store.commit(put(key, "1")).await.unwrap();
    }
    drop(store);
    let (image, log) = (dir.path().join("image"), log.reopened(0));
    std::fs::copy(&path, &image).unwrap();
    let store = SqliteStore::open_with_log(&path, NEVER, Arc::new(log.clone())).unwrap();
    store.commit(put("d", "2")).await.unwrap();
    let lossy = rusqlite::Connection::open(&image).unwrap();
    lossy.execute("DELETE FROM kv WHERE k = x'61'", []).unwrap();
    drop(lossy);
    let log = log.reopened(0);
    let covered = log.covered_up_to();
    let lacking = SqliteStore::open_with_log(&image, OFTEN, Arc::new(log.clone())).unwrap();
    assert_eq!((lacking.incomplete(), lacking.behind_log()), (Some("1 of 4 records are missing"), None));
    for _ in 0..10 {
        lacking.commit(put("e", &"x".repeat(1_000))).await.unwrap();
    }
    drop(lacking);
    assert_eq!(log.covered_up_to(), covered);
}
