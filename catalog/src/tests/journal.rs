//! A journal has the content of the catalog after any restart; if it cannot, it reports that.

use super::snapshot::{batch, key, records};
use crate::journal::{Journal, JournalFiles};
use crate::snapshot::{LoadFrom, Loaded, load_snapshot};
use crate::store::{Batch, Store, Write};
use crate::{Catalog, SqliteStore};
use lineage::Sequence;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RACK: [u8; 16] = [7; 16];

/// A catalog with its journal, as a process has them.
struct Process {
    store: Arc<SqliteStore>,
    catalog: Catalog,
    journal: Arc<Journal>,
}

impl Process {
    fn begin(dir: &Path, nonce: u64) -> Self {
        let store = Arc::new(SqliteStore::open(dir.join("catalog")).unwrap());
        let catalog = Catalog::over(store.clone());
        let journal = Journal::begin(dir.join("journal"), RACK, nonce, &catalog).unwrap();
        Self { store, catalog, journal }
    }

    async fn write(&self, turns: std::ops::Range<u64>) {
        for turn in turns {
            self.store.commit(batch(turn)).await.unwrap();
        }
    }

    fn broken(&self) -> Option<String> {
        self.journal.status().broken
    }
}

/// The catalog that the journal in `dir` makes again.
fn made_again(dir: &Path) -> (Loaded, SqliteStore) {
    let files = JournalFiles::list(&dir.join("journal")).unwrap();
    let segments: Vec<_> = files.segments.into_iter().map(|(_, path)| path).collect();
    let to = dir.join("made-again");
    drop(std::fs::remove_file(&to));
    let loaded =
        load_snapshot(LoadFrom::one(&files.snapshots.last().unwrap().1, &segments), &to, &mut |_, _| ()).unwrap();
    (loaded, SqliteStore::open(to).unwrap())
}

async fn is_whole(dir: &Path, process: &Process) {
    process.journal.sync_for_test();
    let (loaded, again) = made_again(dir);
    assert_eq!((loaded.sequence, again.incomplete()), (process.store.sequence(), None));
    assert!(records(&again).await == records(&*process.store).await);
}

#[tokio::test]
async fn a_lost_catalog_is_made_again_after_any_number_of_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    assert!(process.broken().is_some(), "there is no snapshot yet");
    process.write(0..50).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    assert_eq!(process.broken(), None);
    is_whole(dir.path(), &process).await;
    process.write(50..90).await;
    is_whole(dir.path(), &process).await;
    drop(process);
    for turn in 2..6 {
        let process = Process::begin(dir.path(), turn);
        assert_eq!(process.broken(), None, "start {turn}");
        if turn == 3 {
            process.journal.snapshot(&process.catalog, 1).await.unwrap();
            process.journal.snapshot(&process.catalog, 1).await.unwrap();
        }
        // A start that changes nothing, too.
        process.write(100 * turn..100 * turn + 40 * (turn % 3)).await;
        is_whole(dir.path(), &process).await;
    }
    // Segments are left at a size; a snapshot removes what is before it.
    let process = Process::begin(dir.path(), 9);
    let large = |turn: u64| Batch::new(Vec::new(), vec![Write::Put(key(turn), vec![turn as u8; 1 << 20])]);
    for turn in 0..40 {
        process.store.commit(large(turn)).await.unwrap();
    }
    is_whole(dir.path(), &process).await;
    assert!(JournalFiles::list(&dir.path().join("journal")).unwrap().segments.len() > 3);
    assert!(process.journal.status().segment_bytes > 40 << 20);
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    let count = || {
        let files = JournalFiles::list(&dir.path().join("journal")).unwrap();
        (files.snapshots.len(), files.segments.len())
    };
    assert!(count().0 == 2 && count().1 > 3, "the snapshot before stays, with what leads on from it: {:?}", count());
    is_whole(dir.path(), &process).await;
    process.write(1..2).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    assert_eq!(count(), (2, 2));
    is_whole(dir.path(), &process).await;
}

#[tokio::test]
async fn a_failed_write_makes_a_snapshot_due_wherever_it_happens() {
    for meets in ["a check", "a copy", "a snapshot"] {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::begin(dir.path(), 9);
        process.journal.snapshot(&process.catalog, 1).await.unwrap();
        process.write(0..5).await;
        process.journal.fail_for_test();
        process.write(5..10).await;
        assert_eq!(process.broken(), None, "they wait to be written");
        match meets {
            "a check" => assert_eq!(process.journal.check(), None, "a snapshot is due"),
            "a copy" => assert!(process.journal.write_since(Sequence(0)).is_err()),
            _ => assert!(process.journal.snapshot(&process.catalog, 1).await.is_err()),
        }
        assert!(process.broken().is_some(), "{meets}");
        process.write(10..15).await;
        process.journal.snapshot(&process.catalog, 1).await.unwrap();
        assert_eq!(process.broken(), None);
        process.write(15..20).await;
        is_whole(dir.path(), &process).await;
    }
}

/// Flips a bit in the middle of the file at `path`.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn where_the_newest_snapshot_is_damaged_the_one_before_leads_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    for turn in 0..4 {
        process.write(30 * turn..30 * turn + 20).await;
        process.journal.snapshot(&process.catalog, 1).await.unwrap();
        process.write(30 * turn + 20..30 * turn + 30).await;
    }
    process.journal.sync_for_test();
    assert_eq!(process.journal.check(), None);
    let files = JournalFiles::list(&dir.path().join("journal")).unwrap();
    let [(_, before), (_, newest)] = &files.snapshots[..] else { panic!("two snapshots stay") };
    flip(newest);
    let segments: Vec<_> = files.segments.iter().map(|(_, path)| path.clone()).collect();
    assert!(load_snapshot(LoadFrom::one(newest, &segments), &dir.path().join("none"), &mut |_, _| ()).is_err());
    let to = dir.path().join("made-again");
    let loaded = load_snapshot(LoadFrom::one(before, &segments), &to, &mut |_, _| ()).unwrap();
    assert_eq!(loaded.sequence, process.store.sequence());
    assert!(records(&SqliteStore::open(to).unwrap()).await == records(&*process.store).await);
}

/// Flips a bit in the value of the record at `key`, as a damaged page of the catalog in `dir` has it.
fn flip_value(dir: &Path, key: &[u8]) {
    let file = rusqlite::Connection::open(dir.join("catalog")).unwrap();
    let mut value: Vec<u8> = file.query_row("SELECT v FROM kv WHERE k = ?1", [key], |row| row.get(0)).unwrap();
    value[0] ^= 1;
    file.execute("UPDATE kv SET v = ?2 WHERE k = ?1", rusqlite::params![key, value]).unwrap();
}

/// The stored value at `key` of the catalog in `dir`.
fn value_of(dir: &Path, key: &[u8]) -> Vec<u8> {
    let file = rusqlite::Connection::open(dir.join("catalog")).unwrap();
    file.query_row("SELECT v FROM kv WHERE k = ?1", [key], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn while_a_record_is_damaged_the_last_snapshot_that_has_it_whole_stays() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.store.commit(lonely(1)).await.unwrap();
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    let whole = process.journal.newest_snapshot().unwrap().unwrap();
    let snapshots = || JournalFiles::list(&dir.path().join("journal")).unwrap().snapshots;
    flip_value(dir.path(), &key(8_000));
    for turn in 0..4 {
        process.write(10 * turn..10 * turn + 10).await;
        assert_eq!(process.journal.snapshot(&process.catalog, 1).await.unwrap().damaged, 1);
        assert!(snapshots().contains(&whole) && snapshots().len() <= 3, "turn {turn}: {:?}", snapshots());
    }
    process.write(40..50).await;
    process.journal.sync_for_test();
    let segments: Vec<_> = JournalFiles::list(&dir.path().join("journal")).unwrap().segments;
    let segments: Vec<_> = segments.into_iter().map(|(_, path)| path).collect();
    let loaded = load_snapshot(LoadFrom::one(&whole.1, &segments), &dir.path().join("again"), &mut |_, _| ()).unwrap();
    assert_eq!((loaded.sequence, loaded.damaged), (process.store.sequence(), 0));
    // The object is written again.
    process.store.commit(lonely(2)).await.unwrap();
    for turn in 5..7 {
        process.write(10 * turn..10 * turn + 10).await;
        assert_eq!(process.journal.snapshot(&process.catalog, 1).await.unwrap().damaged, 0);
    }
    assert!(!snapshots().contains(&whole) && snapshots().len() == 2, "{:?}", snapshots());
    is_whole(dir.path(), &process).await;
}

/// A record that no other batch writes, in the state that the batch with this value leaves.
fn lonely(value: u8) -> Batch {
    Batch::new(Vec::new(), vec![Write::Put(key(8_000), vec![value; 30])])
}

#[tokio::test]
async fn a_record_that_is_damaged_in_the_newest_snapshot_is_taken_from_an_older_one_across_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.store.commit(lonely(1)).await.unwrap();
    process.write(0..10).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    let oldest = process.journal.newest_snapshot().unwrap().unwrap();
    let before = value_of(dir.path(), &key(8_000));
    rots_and_ends(dir.path(), process).await;
    for nonce in 2..5 {
        process_with_a_gap(dir.path(), nonce).await;
        let files = JournalFiles::list(&dir.path().join("journal")).unwrap();
        assert!(files.snapshots.contains(&oldest), "{:?}", files.snapshots);
        let others = paths(&files.snapshots);
        let to = dir.path().join(format!("again-{nonce}"));
        let from = LoadFrom { snapshot: others.last().unwrap(), segments: &[], others: &others };
        let alone = load_snapshot(LoadFrom::one(from.snapshot, &[]), &to, &mut |_, _| ()).unwrap();
        assert_eq!(alone.damaged, 1, "in itself it is damaged");
        std::fs::remove_file(&to).unwrap();
        let loaded = load_snapshot(from, &to, &mut |_, _| ()).unwrap();
        assert_eq!(loaded.damaged, 0);
        let again = SqliteStore::open(to).unwrap();
        let found = again.get(&key(8_000)).await.unwrap().unwrap();
        assert!(again.incomplete().is_none() && found.as_bytes() == before);
    }
}

#[tokio::test]
async fn the_newest_snapshot_without_damage_stays_besides_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.write(0..10).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    process.store.commit(lonely(1)).await.unwrap();
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    let before = JournalFiles::list(&dir.path().join("journal")).unwrap().snapshots;
    rots_and_ends(dir.path(), process).await;
    for nonce in 2..5 {
        process_with_a_gap(dir.path(), nonce).await;
        let snapshots = JournalFiles::list(&dir.path().join("journal")).unwrap().snapshots;
        assert!(before.iter().all(|kept| snapshots.contains(kept)) && snapshots.len() <= 4, "{snapshots:?}");
        let others = paths(&snapshots);
        let from = LoadFrom { snapshot: others.last().unwrap(), segments: &[], others: &others };
        let to = dir.path().join(format!("again-{nonce}"));
        assert_eq!(load_snapshot(from, &to, &mut |_, _| ()).unwrap().damaged, 0);
    }
}

/// The lonely record rots, and the process ends after further batches.
async fn rots_and_ends(dir: &Path, process: Process) {
    flip_value(dir, &key(8_000));
    process.write(10..20).await;
    process.journal.sync_for_test();
}

/// Files of a journal without their numbers.
fn paths(files: &[(Sequence, PathBuf)]) -> Vec<PathBuf> {
    files.iter().map(|(_, path)| path.clone()).collect()
}

/// A process that lacks the end of the journal, as after a kill, and makes a snapshot.
async fn process_with_a_gap(dir: &Path, nonce: u64) {
    let last = JournalFiles::list(&dir.join("journal")).unwrap().segments.pop().unwrap().1;
    let bytes = std::fs::read(&last).unwrap();
    std::fs::write(&last, &bytes[..bytes.len() - 3]).unwrap();
    let process = Process::begin(dir, nonce);
    assert!(process.broken().is_some());
    assert_eq!(process.journal.snapshot(&process.catalog, 1).await.unwrap().damaged, 1);
    process.write(10 * nonce..10 * nonce + 10).await;
    process.journal.sync_for_test();
}

#[tokio::test]
async fn a_record_that_was_written_after_the_older_snapshots_is_taken_from_its_batch_and_from_no_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.store.commit(lonely(1)).await.unwrap();
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    process.store.commit(lonely(2)).await.unwrap();
    let newest = value_of(dir.path(), &key(8_000));
    flip_value(dir.path(), &key(8_000));
    process.write(0..10).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    let files = JournalFiles::list(&dir.path().join("journal")).unwrap();
    let (others, segments) = (paths(&files.snapshots), paths(&files.segments));
    for (segments, damaged) in [(&segments[..], 0), (&[], 1)] {
        let to = dir.path().join(format!("again-{damaged}"));
        let from = LoadFrom { snapshot: others.last().unwrap(), segments, others: &others };
        assert_eq!(load_snapshot(from, &to, &mut |_, _| ()).unwrap().damaged, damaged);
        let found = SqliteStore::open(to).unwrap().get(&key(8_000)).await.unwrap().unwrap();
        assert_eq!(found.as_bytes() == newest, damaged == 0, "{found:?}");
        assert_eq!(found.open(&key(8_000)).is_ok(), damaged == 0);
    }
}

#[tokio::test]
async fn damage_that_a_check_finds_makes_a_snapshot_due() {
    for damaged in ["snapshot", "journal"] {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::begin(dir.path(), 1);
        process.write(0..50).await;
        process.journal.snapshot(&process.catalog, 1).await.unwrap();
        process.write(50..90).await;
        drop(process);
        // A segment that is not the last one is not read by a start.
        let process = Process::begin(dir.path(), 2);
        process.write(90..120).await;
        process.journal.sync_for_test();
        assert_eq!((process.journal.check(), process.broken()), (None, None));
        let files = JournalFiles::list(&dir.path().join("journal")).unwrap();
        let sealed = &files.segments[files.segments.len() - 2].1;
        flip(if damaged == "snapshot" { &files.snapshots[0].1 } else { sealed });
        let flaw = process.journal.check();
        assert!(flaw.is_some() && process.broken() == flaw, "{damaged}: {flaw:?}");
        process.write(120..130).await;
        process.journal.snapshot(&process.catalog, 1).await.unwrap();
        assert_eq!((process.journal.check(), process.broken()), (None, None));
        is_whole(dir.path(), &process).await;
    }
}

#[tokio::test]
async fn what_is_missing_or_torn_makes_a_snapshot_due_and_nothing_wrong_is_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.write(0..50).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    process.write(50..60).await;
    drop(process);
    let last = JournalFiles::list(&dir.path().join("journal")).unwrap().segments.pop().unwrap().1;
    let bytes = std::fs::read(&last).unwrap();
    std::fs::write(&last, &bytes[..bytes.len() - 3]).unwrap();
    let (loaded, _) = made_again(dir.path());
    let process = Process::begin(dir.path(), 2);
    assert!(process.broken().unwrap().contains("it ends with batch"), "{:?}", process.broken());
    assert_eq!(loaded.sequence.0 + 1, process.store.sequence().0, "the torn batch is left out");
    // Batches before the due snapshot are not written: they would not continue the journal.
    process.write(60..70).await;
    assert_eq!(made_again(dir.path()).0.sequence, loaded.sequence);
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    is_whole(dir.path(), &process).await;
    drop(process);
    // A catalog that was written to without its journal.
    let store = SqliteStore::open(dir.path().join("catalog")).unwrap();
    store.commit(batch(71)).await.unwrap();
    drop(store);
    assert!(Process::begin(dir.path(), 3).broken().is_some());
}

#[tokio::test]
async fn an_older_catalog_removes_nothing_of_a_newer_one_s() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.write(0..20).await;
    drop(process);
    std::fs::copy(dir.path().join("catalog"), dir.path().join("older")).unwrap();
    let process = Process::begin(dir.path(), 2);
    process.write(20..40).await;
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    process.write(40..60).await;
    let newest = process.store.sequence();
    drop(process);
    std::fs::copy(dir.path().join("older"), dir.path().join("catalog")).unwrap();
    let process = Process::begin(dir.path(), 3);
    assert!(process.broken().is_some());
    process.journal.snapshot(&process.catalog, 1).await.unwrap();
    process.write(70..80).await;
    drop(process);
    assert_eq!(made_again(dir.path()).0.sequence, newest, "the newest is made again");
}

#[tokio::test]
async fn what_was_committed_since_a_batch_leads_on_from_it_and_nothing_is_written_across_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::begin(dir.path(), 1);
    process.write(0..50).await;
    let before = process.journal.snapshot(&process.catalog, 1).await.unwrap().sequence;
    assert!(process.journal.write_since(before).unwrap().is_none(), "there is nothing since");
    let snapshot = process.journal.newest_snapshot().unwrap().unwrap();
    assert_eq!(snapshot.0, before);
    process.write(50..70).await;
    let first = process.journal.write_since(before).unwrap().unwrap();
    let one = dir.path().join("one");
    std::fs::rename(&first.path, &one).unwrap();
    process.write(70..90).await;
    let second = process.journal.write_since(first.last).unwrap().unwrap();
    assert_eq!(second.last, process.store.sequence());
    // The snapshot and the two of them are the catalog as it is.
    let to = dir.path().join("made-again");
    let loaded = load_snapshot(LoadFrom::one(&snapshot.1, &[one, second.path.clone()]), &to, &mut |_, _| ()).unwrap();
    assert_eq!(loaded.sequence, process.store.sequence());
    assert!(records(&SqliteStore::open(to).unwrap()).await == records(&*process.store).await);
    // With the next but one snapshot goes what was before it.
    std::fs::remove_file(second.path).unwrap();
    for turn in 90..92 {
        process.write(turn..turn + 1).await;
        process.journal.snapshot(&process.catalog, 1).await.unwrap();
    }
    process.write(92..95).await;
    assert!(process.journal.write_since(before).unwrap().is_none());
    let left = std::fs::read_dir(dir.path().join("journal")).unwrap();
    assert!(left.into_iter().all(|entry| entry.unwrap().path().extension().is_none_or(|end| end != "new")));
}
