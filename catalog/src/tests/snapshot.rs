//! A snapshot has the state after its last batch, regardless of writes while it is made; and no incomplete file is
//! accepted as one.

use crate::follower::Follower;
use crate::log_entry;
use crate::seal::Sealed;
use crate::snapshot::{LoadFrom, SnapshotError, load_snapshot};
use crate::store::{Batch, KeyRange, Store, Write};
use crate::{Catalog, SqliteStore};
use lineage::Sequence;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// All batches, in order.
#[derive(Default)]
struct History(Mutex<Vec<(Sequence, Vec<u8>)>>);

impl Follower for History {
    fn committed(&self, sequence: Sequence, entry: &[u8]) {
        self.0.lock().push((sequence, entry.to_vec()));
        // Followers after this one are notified some time after the batch becomes visible.
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl History {
    /// The records after batch `last`.
    fn records(&self, last: Sequence) -> BTreeMap<Vec<u8>, Sealed> {
        let mut records = BTreeMap::new();
        for (sequence, entry) in self.0.lock().iter().filter(|(sequence, _)| *sequence <= last) {
            for write in log_entry::decode(entry).unwrap().1 {
                match write {
                    Write::Put(key, body) => drop(records.insert(key.clone(), Sealed::seal(&key, body, *sequence))),
                    Write::Delete(key) => drop(records.remove(&key)),
                    Write::DeleteRange(range) => {
                        let (start, end) = range.half_open();
                        records.retain(|key, _| *key < start || end.as_ref().is_some_and(|end| key >= end));
                    }
                }
            }
        }
        records
    }
}

pub(super) fn key(number: u64) -> Vec<u8> {
    format!("O{number:06}").into_bytes()
}

/// A batch that sets some, removes some, and sometimes a range.
pub(super) fn batch(turn: u64) -> Batch {
    let at = |step: u64| key((turn.wrapping_mul(7_919) + step * 613) % 6_000);
    let mut writes: Vec<Write> = (0..4).map(|step| Write::Put(at(step), turn.to_le_bytes().to_vec())).collect();
    writes.push(Write::Delete(at(9)));
    if turn.is_multiple_of(5) {
        writes.push(Write::DeleteRange(KeyRange::prefix(&at(17)[..5])));
    }
    Batch::new(Vec::new(), writes)
}

pub(super) async fn records(store: &dyn Store) -> BTreeMap<Vec<u8>, Sealed> {
    let entries = store.scan(KeyRange::all(), usize::MAX >> 1).await.unwrap();
    entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

/// A store with 5,000 records, and everything that was ever written to it.
async fn filled(path: &Path) -> (Arc<SqliteStore>, Arc<History>) {
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let history = Arc::new(History::default());
    store.follow(&(Arc::clone(&history) as Arc<dyn Follower>)).unwrap();
    let writes = (0..5_000).map(|number| Write::Put(key(number), vec![1; 30])).collect();
    store.commit(Batch::new(Vec::new(), writes)).await.unwrap();
    (store, history)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_the_state_after_its_last_batch_whatever_is_written_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (store, history) = filled(&dir.path().join("catalog")).await;
    let (stop, writing) = (Arc::new(AtomicBool::new(false)), Arc::clone(&store));
    let stopped = Arc::clone(&stop);
    let writer = tokio::spawn(async move {
        let mut turn = 0;
        while !stopped.load(Ordering::Relaxed) {
            turn += 1;
            writing.commit(batch(turn)).await.unwrap();
        }
    });
    let catalog = Catalog::over(store.clone());
    let mut batches = 0;
    for round in 0..8 {
        let mut bytes = Vec::new();
        let totals = catalog.snapshot([7; 16], 99, &mut bytes).await.unwrap();
        assert_eq!(totals.bytes, bytes.len() as u64);
        batches += totals.batches;
        let (from, to) = (dir.path().join("snapshot"), dir.path().join(format!("loaded{round}")));
        std::fs::write(&from, bytes).unwrap();
        let loaded = load_snapshot(LoadFrom::one(&from, &[]), &to, &mut |_, _| ()).unwrap();
        assert_eq!((loaded.sequence, loaded.rack, loaded.damaged), (totals.sequence, [7; 16], 0));
        let loaded = SqliteStore::open(&to).unwrap();
        assert_eq!((loaded.sequence(), loaded.incomplete()), (totals.sequence, None));
        assert!(records(&loaded).await == history.records(totals.sequence), "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(batches > 0, "something was written meanwhile");
}

#[tokio::test]
async fn what_is_cut_off_changed_or_another_file_is_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = filled(&dir.path().join("catalog")).await;
    let mut bytes = Vec::new();
    Catalog::over(store).snapshot([7; 16], 99, &mut bytes).await.unwrap();
    let (from, to) = (dir.path().join("snapshot"), dir.path().join("loaded"));
    let load = |bytes: &[u8]| {
        std::fs::write(&from, bytes).unwrap();
        let error = load_snapshot(LoadFrom::one(&from, &[]), &to, &mut |_, _| ()).unwrap_err();
        assert!(!to.exists(), "nothing is made of what is no snapshot");
        error
    };
    for cut in [0, 7, 71, 72, 1_000, bytes.len() / 2, bytes.len() - 1] {
        assert!(matches!(load(&bytes[..cut]), SnapshotError::CutOff), "at {cut}");
    }
    for at in (0..bytes.len()).step_by(911) {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        load(&changed);
    }
    assert!(matches!(load(&[b'x'; 100]), SnapshotError::Foreign));
    // A record that was damaged when the snapshot was made is left out, and known to be missing.
    std::fs::write(&from, &bytes).unwrap();
    load_snapshot(LoadFrom::one(&from, &[]), &to, &mut |_, _| ()).unwrap();
    assert!(load_snapshot(LoadFrom::one(&from, &[]), &to, &mut |_, _| ()).is_err(), "what is there is not overwritten");
}

#[tokio::test]
async fn a_record_that_was_damaged_stays_damaged_and_does_not_count_as_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::MemoryStore::new();
    for number in 0..3 {
        store.commit(Batch::new(Vec::new(), vec![Write::Put(key(number), vec![1; 30])])).await.unwrap();
    }
    store.corrupt(&key(1), |bytes| bytes[3] ^= 1);
    let damaged = store.get(&key(1)).await.unwrap();
    let mut bytes = Vec::new();
    let totals = Catalog::over(Arc::new(store)).snapshot([7; 16], 99, &mut bytes).await.unwrap();
    assert_eq!((totals.records, totals.damaged), (3, 1));
    let (from, to) = (dir.path().join("snapshot"), dir.path().join("loaded"));
    std::fs::write(&from, bytes).unwrap();
    let loaded = load_snapshot(LoadFrom::one(&from, &[]), &to, &mut |_, _| ()).unwrap();
    assert_eq!((loaded.records, loaded.damaged), (3, 1));
    let loaded = SqliteStore::open(&to).unwrap();
    assert_eq!((loaded.incomplete(), records(&loaded).await.len()), (None, 3));
    assert_eq!(loaded.get(&key(1)).await.unwrap(), damaged, "as it was");
}
