//! One suite for every store: what [`Store`] promises, as plain functions over a bench that opens and reopens one.
#![allow(clippy::unwrap_used)]

use crate::error::StoreError;
use crate::seal::Sealed;
use crate::store::{Batch, Check, Entry, KeyRange, Store, Write};
use crate::{MemoryLog, MemoryStore, SqliteOptions, SqliteStore};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A store under test, and what is needed to open it again: with a log in front or without.
pub(crate) enum Bench {
    Memory { store: MemoryStore, log: Option<MemoryLog> },
    Sqlite { dir: tempfile::TempDir, store: Option<Arc<SqliteStore>>, log: Option<MemoryLog> },
}

/// Few bytes, so that a store is made durable for its log again and again.
const COVER_AFTER_BYTES: u64 = 300;

impl Bench {
    pub(crate) fn memory() -> Self {
        Self::Memory { store: MemoryStore::new(), log: None }
    }

    pub(crate) fn memory_with_log() -> Self {
        let log = MemoryLog::new();
        let store = MemoryStore::new().with_log(Arc::new(log.clone())).unwrap();
        Self::Memory { store, log: Some(log) }
    }

    pub(crate) fn sqlite() -> Self {
        Self::sqlite_in_front(None)
    }

    pub(crate) fn sqlite_with_log() -> Self {
        Self::sqlite_in_front(Some(MemoryLog::new()))
    }

    fn sqlite_in_front(log: Option<MemoryLog>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Self::Sqlite { dir, store: None, log };
        bench.reopen();
        bench
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory { store, .. } => Arc::new(store.clone()),
            Self::Sqlite { store, .. } => store.clone().unwrap(),
        }
    }

    /// As after the end of the process: closed and opened again. In memory with a log, without what only that has.
    fn reopen(&mut self) {
        match self {
            Self::Memory { store, log: None } => *store = store.crash(),
            Self::Memory { store, log: Some(log) } => {
                *log = log.reopened(0);
                *store = store.crash_losing(store.unsynced()).with_log(Arc::new(log.clone())).unwrap();
            }
            Self::Sqlite { dir, store, log } => {
                if let Some(last) = store.take() {
                    assert_eq!(Arc::strong_count(&last), 1, "a test holds on to the store it wants reopened");
                }
                let path = dir.path().join("catalog");
                let options = SqliteOptions { cover_after_bytes: COVER_AFTER_BYTES, ..SqliteOptions::default() };
                *log = log.take().map(|log| log.reopened(0));
                let opened = match log {
                    Some(log) => SqliteStore::open_with_log(path, options, Arc::new(log.clone())),
                    None => SqliteStore::open(path),
                };
                *store = Some(Arc::new(opened.unwrap()));
            }
        }
    }
}

/// The body of the value under `key`, whose seal must be whole.
fn body(key: &[u8], value: &Sealed) -> Vec<u8> {
    value.open(key).unwrap().0.to_vec()
}

async fn get(store: &Arc<dyn Store>, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).await.unwrap().map(|value| body(key, &value))
}

async fn get_many(store: &Arc<dyn Store>, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let values = store.get_many(keys.iter().map(|key| key.to_vec()).collect()).await.unwrap();
    keys.iter().zip(values).map(|(key, value)| value.map(|value| body(key, &value))).collect()
}

async fn scan(store: &Arc<dyn Store>, range: KeyRange, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = store.scan(range, limit).await.unwrap();
    entries.into_iter().map(|Entry { key, value }| (key.clone(), body(&key, &value))).collect()
}

macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test(super::Bench::memory()).await; })*
        }
        mod memory_with_log {
            $(#[tokio::test] async fn $test() { super::$test(super::Bench::memory_with_log()).await; })*
        }
        mod sqlite_with_log {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(super::Bench::sqlite_with_log()).await; })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(super::Bench::sqlite()).await; })*
        }
    };
}

suite!(
    what_was_put_is_read_and_what_was_deleted_is_not,
    empty_keys_and_values_are_like_any_other,
    order_is_the_order_of_bytes,
    ranges_have_all_kinds_of_ends,
    a_scan_ends_at_its_limit,
    every_check_holds_and_fails_as_it_should,
    a_batch_with_a_failed_check_changes_nothing,
    writes_of_a_batch_happen_in_their_order,
    ranges_are_deleted_whole_and_alone,
    concurrent_increments_are_not_lost,
    readers_never_see_half_a_batch,
    what_was_answered_survives_reopening,
    every_batch_has_a_higher_number_than_all_before_it,
);

fn put(key: &[u8], value: &[u8]) -> Write {
    Write::Put(key.to_vec(), value.to_vec())
}

fn writes(writes: Vec<Write>) -> Batch {
    Batch::new(Vec::new(), writes)
}

fn range(start: Bound<&[u8]>, end: Bound<&[u8]>) -> KeyRange {
    KeyRange { start: start.map(<[u8]>::to_vec), end: end.map(<[u8]>::to_vec) }
}

async fn keys(store: &Arc<dyn Store>, range: KeyRange) -> Vec<Vec<u8>> {
    store.scan(range, usize::MAX).await.unwrap().into_iter().map(|entry| entry.key).collect()
}

async fn fill(store: &Arc<dyn Store>, keys: &[&[u8]]) {
    store.commit(writes(keys.iter().map(|key| put(key, key)).collect())).await.unwrap();
}

async fn what_was_put_is_read_and_what_was_deleted_is_not(bench: Bench) {
    let store = bench.store();
    assert_eq!(get(&store, b"a").await, None);
    store.commit(writes(vec![put(b"a", b"1"), put(b"b", b"2")])).await.unwrap();
    store.commit(writes(vec![put(b"a", b"3")])).await.unwrap();
    assert_eq!(get(&store, b"a").await.unwrap(), b"3");
    store.commit(writes(vec![Write::Delete(b"b".to_vec()), Write::Delete(b"none".to_vec())])).await.unwrap();
    let found = get_many(&store, &[b"b", b"a", b"a"]).await;
    assert_eq!(found, [None, Some(b"3".to_vec()), Some(b"3".to_vec())]);
    store.commit(Batch::default()).await.unwrap();
}

async fn empty_keys_and_values_are_like_any_other(bench: Bench) {
    let store = bench.store();
    store.commit(writes(vec![put(b"", b"x"), put(b"y", b"")])).await.unwrap();
    assert_eq!(get(&store, b"").await.unwrap(), b"x");
    assert_eq!(get(&store, b"y").await.unwrap(), b"");
    assert_eq!(keys(&store, KeyRange::all()).await, [&b""[..], b"y"]);
    let checks = vec![Check::Is(b"y".to_vec(), Vec::new()), Check::Present(Vec::new())];
    store.commit(Batch::new(checks, vec![Write::Delete(Vec::new())])).await.unwrap();
    assert_eq!(keys(&store, KeyRange::all()).await, [b"y"]);
}

async fn order_is_the_order_of_bytes(bench: Bench) {
    let store = bench.store();
    let mut sorted: Vec<&[u8]> =
        vec![b"\x00", b"\x00\x00", b"\x00\xff", b"a", b"a\x00", b"aa", b"b", "é".as_bytes(), b"\xff"];
    let mut shuffled = sorted.clone();
    shuffled.reverse();
    fill(&store, &shuffled).await;
    sorted.sort_unstable();
    assert_eq!(keys(&store, KeyRange::all()).await, sorted);
    assert_eq!(keys(&store, KeyRange::prefix(b"\xff")).await, [b"\xff"]);
    assert_eq!(keys(&store, KeyRange::prefix(b"a")).await, [&b"a"[..], b"a\x00", b"aa"]);
    assert_eq!(keys(&store, KeyRange::prefix_after(b"a", b"a")).await, [&b"a\x00"[..], b"aa"]);
}

async fn ranges_have_all_kinds_of_ends(bench: Bench) {
    let store = bench.store();
    let all: Vec<&[u8]> = vec![b"a", b"b", b"b\x00", b"c", b"d"];
    fill(&store, &all).await;
    let bounds = |key| [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)];
    for low in [&b""[..], b"a", b"b", b"bb", b"d", b"e"] {
        for high in [&b""[..], b"a", b"b", b"bb", b"d", b"e"] {
            for start in bounds(low) {
                for end in bounds(high) {
                    let inside = |key: &&&[u8]| {
                        let above = match start {
                            Bound::Unbounded => true,
                            Bound::Included(start) => **key >= start,
                            Bound::Excluded(start) => **key > start,
                        };
                        above
                            && match end {
                                Bound::Unbounded => true,
                                Bound::Included(end) => **key <= end,
                                Bound::Excluded(end) => **key < end,
                            }
                    };
                    let wanted: Vec<&[u8]> = all.iter().filter(inside).copied().collect();
                    assert_eq!(keys(&store, range(start, end)).await, wanted, "{start:?} to {end:?}");
                }
            }
        }
    }
}

async fn a_scan_ends_at_its_limit(bench: Bench) {
    let store = bench.store();
    fill(&store, &[b"a", b"b", b"c"]).await;
    for limit in 0..5 {
        assert_eq!(store.scan(KeyRange::all(), limit).await.unwrap().len(), limit.min(3));
    }
}

async fn every_check_holds_and_fails_as_it_should(bench: Bench) {
    let store = bench.store();
    fill(&store, &[b"a", b"c"]).await;
    let owned = |key: &[u8]| key.to_vec();
    let good = vec![
        Check::Absent(owned(b"b")),
        Check::Present(owned(b"a")),
        Check::Is(owned(b"a"), owned(b"a")),
        Check::Empty(range(Bound::Excluded(b"a"), Bound::Excluded(b"c"))),
        Check::Empty(range(Bound::Included(b"d"), Bound::Unbounded)),
        Check::Empty(range(Bound::Included(b"c"), Bound::Included(b"a"))),
    ];
    let bad = [
        Check::Absent(owned(b"a")),
        Check::Present(owned(b"b")),
        Check::Is(owned(b"a"), owned(b"b")),
        Check::Is(owned(b"b"), owned(b"")),
        Check::Empty(KeyRange::all()),
        Check::Empty(range(Bound::Included(b"b"), Bound::Included(b"c"))),
    ];
    store.commit(Batch::new(good.clone(), Vec::new())).await.unwrap();
    for failing in bad {
        let mut checks = good.clone();
        checks.push(failing);
        let answer = store.commit(Batch::new(checks, vec![put(b"x", b"")])).await;
        assert!(matches!(answer, Err(StoreError::CheckFailed(index)) if index == good.len()));
    }
    assert_eq!(get(&store, b"x").await, None);
}

async fn a_batch_with_a_failed_check_changes_nothing(bench: Bench) {
    let store = bench.store();
    fill(&store, &[b"a"]).await;
    let writes = vec![put(b"b", b""), Write::Delete(b"a".to_vec()), Write::DeleteRange(KeyRange::all())];
    let batch = Batch::new(vec![Check::Absent(b"a".to_vec())], writes);
    assert!(matches!(store.commit(batch).await, Err(StoreError::CheckFailed(0))));
    assert_eq!(keys(&store, KeyRange::all()).await, [b"a"]);
}

async fn writes_of_a_batch_happen_in_their_order(bench: Bench) {
    let store = bench.store();
    let all = vec![
        put(b"a", b"1"),
        Write::Delete(b"a".to_vec()),
        put(b"a", b"2"),
        put(b"b", b""),
        Write::Delete(b"b".to_vec()),
    ];
    store.commit(writes(all)).await.unwrap();
    assert_eq!(scan(&store, KeyRange::all(), 9).await, [(b"a".to_vec(), b"2".to_vec())]);
    store.commit(writes(vec![Write::DeleteRange(KeyRange::all()), put(b"c", b"")])).await.unwrap();
    assert_eq!(keys(&store, KeyRange::all()).await, [b"c"]);
}

async fn ranges_are_deleted_whole_and_alone(bench: Bench) {
    let store = bench.store();
    fill(&store, &[b"a", b"b", b"b\x00", b"bz", b"c"]).await;
    store.commit(writes(vec![Write::DeleteRange(KeyRange::prefix(b"b"))])).await.unwrap();
    assert_eq!(keys(&store, KeyRange::all()).await, [b"a", b"c"]);
    store.commit(writes(vec![Write::DeleteRange(range(Bound::Excluded(b"a"), Bound::Unbounded))])).await.unwrap();
    assert_eq!(keys(&store, KeyRange::all()).await, [b"a"]);
}

async fn every_batch_has_a_higher_number_than_all_before_it(mut bench: Bench) {
    let mut last = bench.store().sequence();
    for round in 0..4_u8 {
        let store = bench.store();
        store.commit(writes(vec![put(b"a", &[round]), put(b"b", b"")])).await.unwrap();
        let refused = Batch::new(vec![Check::Absent(b"a".to_vec())], vec![put(b"b", b"x")]);
        assert!(store.commit(refused).await.is_err());
        let (a, b) = (store.get(b"a").await.unwrap().unwrap(), store.get(b"b").await.unwrap().unwrap());
        let number = a.open(b"a").unwrap().1;
        assert_eq!((number, b.open(b"b").unwrap().1), (store.sequence(), store.sequence()), "one number a batch");
        assert!(number > last);
        last = number;
        drop(store);
        bench.reopen();
        assert_eq!(bench.store().sequence(), last);
    }
}

async fn increment(store: Arc<dyn Store>) {
    loop {
        let old = get(&store, b"n").await;
        let number = old.as_ref().map_or(0, |raw| u64::from_be_bytes(raw[..].try_into().unwrap()));
        let check = old.map_or_else(|| Check::Absent(b"n".to_vec()), |raw| Check::Is(b"n".to_vec(), raw));
        let batch = Batch::new(vec![check], vec![put(b"n", &(number + 1).to_be_bytes())]);
        match store.commit(batch).await {
            Ok(()) => return,
            Err(StoreError::CheckFailed(0)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

async fn concurrent_increments_are_not_lost(bench: Bench) {
    let store = bench.store();
    let tasks: Vec<_> = (0..32).map(|_| tokio::spawn(increment(store.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(get(&store, b"n").await.unwrap(), 32_u64.to_be_bytes());
}

async fn readers_never_see_half_a_batch(bench: Bench) {
    let store = bench.store();
    fill(&store, &[b"a", b"b"]).await;
    let writing = store.clone();
    let writer = tokio::spawn(async move {
        for round in 0..50_u8 {
            writing.commit(writes(vec![put(b"a", &[round]), put(b"b", &[round])])).await.unwrap();
        }
    });
    while !writer.is_finished() {
        let pair = get_many(&store, &[b"a", b"b"]).await;
        let scanned = scan(&store, KeyRange::all(), 2).await;
        assert!(pair[0] == pair[1] || pair[0].as_deref() == Some(b"a"));
        assert!(scanned[0].1 == scanned[1].1 || scanned[0].1 == b"a");
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert_eq!(get(&store, b"b").await.unwrap(), [49]);
}

async fn what_was_answered_survives_reopening(mut bench: Bench) {
    for round in 0..5_u8 {
        bench.store().commit(writes(vec![put(&[round], b"kept")])).await.unwrap();
        bench.reopen();
        assert_eq!(keys(&bench.store(), KeyRange::all()).await.len(), usize::from(round) + 1);
    }
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Commit(Batch),
    Scan(KeyRange, usize),
    Reopen,
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, b'a', 255]), 0..3)
}

fn any_range() -> impl Strategy<Value = KeyRange> {
    let bound = || {
        (0..3, any_key()).prop_map(|(kind, key)| match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        })
    };
    (bound(), bound()).prop_map(|(start, end)| KeyRange { start, end })
}

fn any_batch() -> impl Strategy<Value = Batch> {
    let value = || prop::collection::vec(0..3_u8, 0..2);
    let check = prop_oneof![
        any_key().prop_map(Check::Absent),
        any_key().prop_map(Check::Present),
        (any_key(), value()).prop_map(|(key, value)| Check::Is(key, value)),
        any_range().prop_map(Check::Empty),
    ];
    let write = prop_oneof![
        6 => (any_key(), value()).prop_map(|(key, value)| Write::Put(key, value)),
        2 => any_key().prop_map(Write::Delete),
        1 => any_range().prop_map(Write::DeleteRange),
    ];
    (prop::collection::vec(check, 0..2), prop::collection::vec(write, 0..6))
        .prop_map(|(checks, writes)| Batch::new(checks, writes))
}

fn any_history() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => any_batch().prop_map(Step::Commit),
        3 => (any_range(), 0..6_usize).prop_map(|(range, limit)| Step::Scan(range, limit)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

/// The naive judge: it filters everything it has.
#[derive(Default)]
pub(crate) struct Judge(BTreeMap<Vec<u8>, Vec<u8>>);

impl Judge {
    pub(crate) fn inside(&self, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
        use std::ops::RangeBounds;
        let range = (range.start.clone(), range.end.clone());
        let entries = self.0.iter().filter(|(key, _)| range.contains(*key));
        entries.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(crate) fn failed_check(&self, batch: &Batch) -> Option<usize> {
        batch.checks.iter().position(|check| !match check {
            Check::Absent(key) => !self.0.contains_key(key),
            Check::Present(key) => self.0.contains_key(key),
            Check::Is(key, value) => self.0.get(key) == Some(value),
            Check::Empty(range) => self.inside(range).is_empty(),
        })
    }

    pub(crate) fn apply(&mut self, batch: &Batch) {
        for write in &batch.writes {
            match write {
                Write::Put(key, value) => drop(self.0.insert(key.clone(), value.clone())),
                Write::Delete(key) => drop(self.0.remove(key)),
                Write::DeleteRange(range) => {
                    for (key, _) in self.inside(range) {
                        self.0.remove(&key);
                    }
                }
            }
        }
    }
}

async fn follow(mut bench: Bench, history: Vec<Step>) {
    let mut judge = Judge::default();
    for step in history {
        match step {
            Step::Reopen => bench.reopen(),
            Step::Scan(range, limit) => {
                let mut wanted = judge.inside(&range);
                wanted.truncate(limit);
                assert_eq!(scan(&bench.store(), range, limit).await, wanted);
            }
            Step::Commit(batch) => match (bench.store().commit(batch.clone()).await, judge.failed_check(&batch)) {
                (Ok(()), None) => judge.apply(&batch),
                (Err(StoreError::CheckFailed(index)), Some(wanted)) => assert_eq!(index, wanted),
                (answer, wanted) => panic!("{answer:?} where the judge says {wanted:?}"),
            },
        }
    }
    let end = scan(&bench.store(), KeyRange::all(), usize::MAX).await;
    assert_eq!(end, judge.inside(&KeyRange::all()));
}

fn follow_random_histories(bench: fn() -> Bench, cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let run = runner.run(&any_history(), |history| {
        runtime.block_on(follow(bench(), history));
        Ok(())
    });
    run.unwrap();
}

#[test]
fn random_histories_in_memory_agree_with_a_map() {
    follow_random_histories(Bench::memory, 500);
}

#[test]
fn random_histories_in_sqlite_agree_with_a_map() {
    follow_random_histories(Bench::sqlite, 40);
}

#[test]
fn random_histories_in_memory_with_a_log_agree_with_a_map() {
    follow_random_histories(Bench::memory_with_log, 500);
}

#[test]
fn random_histories_in_sqlite_with_a_log_agree_with_a_map() {
    follow_random_histories(Bench::sqlite_with_log, 40);
}
