//! The promises of the embedded store alone: group commit, one process, refusals, a full disk, crashes of the process.
#![allow(clippy::unwrap_used)]

use super::path::beside;
use super::{SqliteOptions, SqliteStore};
use crate::MemoryLog;
use crate::error::StoreError;
use crate::seal::Sealed;
use crate::store::{Batch, Check, KeyRange, Store, Write};
use model::Rng;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn put(key: &[u8], value: &[u8]) -> Batch {
    Batch::new(Vec::new(), vec![Write::Put(key.to_vec(), value.to_vec())])
}

fn refusal(path: &Path) -> String {
    match SqliteStore::open(path).err() {
        Some(StoreError::Unusable(message) | StoreError::Damaged(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_commits_share_few_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path().join("catalog")).unwrap());
    let waiting: Vec<_> = (0..1_000_u32).map(|i| store.commit(put(&i.to_be_bytes(), b""))).collect();
    for answer in futures::future::join_all(waiting).await {
        answer.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.batches, 1_000);
    assert!(stats.transactions <= 100, "{} transactions", stats.transactions);
    assert_eq!(store.scan(KeyRange::all(), 2_000).await.unwrap().len(), 1_000);
}

#[tokio::test]
async fn the_file_and_what_lies_beside_it_are_for_the_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let closed = |when: &str| {
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let mode = beside(&path, suffix).metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{suffix} {when}");
        }
    };
    let store = SqliteStore::open(&path).unwrap();
    store.commit(put(b"a", b"1")).await.unwrap();
    closed("when it is made");
    // The files that an older Larder left behind a crash.
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let copy = beside(&dir.path().join("old"), suffix);
        std::fs::copy(beside(&path, suffix), &copy).unwrap();
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644)).unwrap();
    }
    drop(store);
    let path = dir.path().join("old");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.get(b"a").await.unwrap().unwrap().open(b"a").unwrap().0, b"1");
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(
            beside(&path, suffix).metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{suffix}, restricted"
        );
    }
}

#[tokio::test]
async fn a_commit_nobody_waits_for_is_done_before_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let store = SqliteStore::open(&path).unwrap();
    drop(store.commit(put(b"a", b"1")));
    drop(store);
    assert!(!beside(&path, "-wal").exists(), "the log was folded into the file");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.get(b"a").await.unwrap().unwrap().open(b"a").unwrap().0, b"1");
}

#[tokio::test]
async fn what_was_answered_survives_the_death_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let store = SqliteStore::open(&path).unwrap();
    for i in 0..20_u8 {
        store.commit(put(&[i], b"kept")).await.unwrap();
        // The state that another process would find if this one died now: the file and its log, as they are.
        let image = dir.path().join(format!("image{i}"));
        std::fs::copy(&path, &image).unwrap();
        std::fs::copy(beside(&path, "-wal"), beside(&image, "-wal")).unwrap();
        let reopened = SqliteStore::open(&image).unwrap();
        assert_eq!(reopened.scan(KeyRange::all(), 99).await.unwrap().len(), usize::from(i) + 1);
    }
}

#[test]
fn a_second_opening_is_refused_until_the_first_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let first = SqliteStore::open(&path).unwrap();
    let message = refusal(&path);
    assert!(message.contains(path.to_str().unwrap()) && message.contains("stop that one first"), "{message}");
    drop(first);
    SqliteStore::open(&path).unwrap();
}

#[test]
fn foreign_files_are_refused_and_left_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "not a database at all, but long enough to have a header of one hundred bytes ".repeat(9))
        .unwrap();
    let before = std::fs::read(&text).unwrap();
    assert!(refusal(&text).contains("is not a catalog of Larder"));
    assert_eq!(std::fs::read(&text).unwrap(), before);
    let other = dir.path().join("other");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE kv (k, v)").unwrap();
    let before = std::fs::read(&other).unwrap();
    assert!(refusal(&other).contains("point Larder at its own data directory"));
    assert_eq!(std::fs::read(&other).unwrap(), before);
}

#[tokio::test]
async fn no_flipped_bit_makes_a_file_that_needs_its_log_one_that_was_closed_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (path, image) = (dir.path().join("catalog"), dir.path().join("image"));
    let (log, options) = (MemoryLog::new(), SqliteOptions::default());
    drop(SqliteStore::open_with_log(&path, options, Arc::new(log.clone())).unwrap());
    assert!(!SqliteStore::may_need_log(&path), "it was closed in order");
    let store = SqliteStore::open_with_log(&path, options, Arc::new(log.reopened(0))).unwrap();
    store.commit(put(b"a", b"1")).await.unwrap();
    let (file, wal) = (std::fs::read(&path).unwrap(), std::fs::read(beside(&path, "-wal")).unwrap());
    let refuses = |file: &[u8], wal: &[u8], what: &str| {
        std::fs::write(&image, file).unwrap();
        std::fs::write(beside(&image, "-wal"), wal).unwrap();
        assert!(SqliteStore::may_need_log(&image), "{what}");
        assert!(SqliteStore::open(&image).is_err(), "{what}");
    };
    refuses(&file, &[], "SQLite's log is lost");
    for bit in 0..32 {
        let mut flipped = file.clone();
        // The bytes of `user_version` in the header of the file.
        flipped[60 + bit / 8] ^= 1 << (bit % 8);
        refuses(&flipped, &[], &format!("bit {bit} of the version"));
    }
    for at in (0..wal.len()).step_by(61) {
        let mut flipped = wal.clone();
        flipped[at] ^= 1;
        refuses(&file, &flipped, &format!("byte {at} of SQLite's log"));
    }
}

#[test]
fn another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    drop(SqliteStore::open(&path).unwrap());
    for (version, fix) in [(4, "if a later Larder wrote it, use that one"), (1, "begin with a new data directory")] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let refusal = refusal(&path);
        assert!(refusal.contains(&format!("format {version}")) && refusal.contains(fix), "{refusal}");
    }
}

#[test]
fn a_damaged_schema_is_damage_and_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    drop(SqliteStore::open(&path).unwrap());
    let whole = std::fs::read(&path).unwrap();
    let text = b"CREATE TABLE kv";
    let begin = whole.windows(text.len()).position(|found| found == text).unwrap();
    for at in (begin - 20..begin + 70).chain(60..63) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let opened = SqliteStore::open(&path);
        assert!(matches!(opened, Ok(_) | Err(StoreError::Damaged(_))), "byte {at}: {:?}", opened.err());
        drop(opened);
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(beside(&path, suffix)));
        }
    }
}

#[tokio::test]
async fn damage_is_refused_at_open_or_told_at_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let store = SqliteStore::open(&path).unwrap();
    for i in 0..200_u32 {
        drop(store.commit(put(&i.to_be_bytes(), &[7; 500])));
    }
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(refusal(&path).contains("is damaged"), "{}", refusal(&path));
    let mut torn = whole.clone();
    torn[3 * 4096..5 * 4096].fill(0xA5);
    std::fs::write(&path, &torn).unwrap();
    assert!(refusal(&path).contains("restore it from a backup"), "{}", refusal(&path));
}

/// Wherever a bit of the file is flipped: it is refused, or what is missing is known, or nothing is.
#[tokio::test]
async fn no_flipped_bit_hides_a_record_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let store = SqliteStore::open(&path).unwrap();
    let keys: Vec<Vec<u8>> =
        (0..600_u32).map(|i| [b"S", &i.wrapping_mul(0x9E37_79B9).to_be_bytes()[..]].concat()).collect();
    for key in &keys {
        drop(store.commit(put(key, &[7; 60])));
    }
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    let mut rewritten = 0;
    for turn in 0..240_usize {
        let at = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (whole.len() * 8);
        let mut flipped = whole.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        let Ok(store) = SqliteStore::open(&path) else { continue };
        rewritten += usize::from(dir.path().join("catalog.damaged-1").exists());
        if store.incomplete().is_none() {
            let found = store.scan(KeyRange::prefix(b"S"), 1_000).await.unwrap();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            assert_eq!(found.iter().map(|entry| &entry.key).collect::<Vec<_>>(), sorted.iter().collect::<Vec<_>>());
            let damaged = found.iter().filter(|entry| entry.value.open(&entry.key).is_err()).count();
            assert!(damaged <= 1, "bit {at}: {damaged}");
            for key in &keys {
                assert!(store.get(key).await.unwrap().is_some(), "bit {at}");
            }
        }
        drop(store);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    assert!(rewritten > 5, "{rewritten} were rewritten: too few for a test");
}

#[tokio::test]
async fn records_that_are_missing_stay_known_to_be_until_they_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let store = SqliteStore::open(&path).unwrap();
    for i in 0..9_u8 {
        store.commit(put(&[i], b"1")).await.unwrap();
    }
    drop(store);
    assert_eq!(SqliteStore::open_read_only(&path, None).unwrap().incomplete(), None);
    Connection::open(&path).unwrap().execute("DELETE FROM kv WHERE k = x'04'", []).unwrap();
    let seen = SqliteStore::open_read_only(&path, None).unwrap().incomplete().map(str::to_owned);
    assert_eq!(seen.as_deref(), Some("1 of 9 records are missing"));
    for round in [1, 2, 2] {
        let store = SqliteStore::open(&path).unwrap();
        assert!(store.incomplete().unwrap().contains("records are missing"), "{:?}", store.incomplete());
        store.commit(put(&[100 + round], b"2")).await.unwrap();
        drop(store);
        assert!(!dir.path().join("catalog.damaged-2").exists(), "it is written anew once");
    }
    let options = SqliteOptions { accept_incomplete: true, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&path, options).unwrap();
    store.commit(put(b"z", b"3")).await.unwrap();
    drop(store);
    assert_eq!(SqliteStore::open(&path).unwrap().incomplete(), None);
}

#[tokio::test]
async fn a_full_disk_fails_what_does_not_fit_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_bytes: Some(256 * 1024), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(dir.path().join("catalog"), options).unwrap();
    store.commit(put(b"small", b"1")).await.unwrap();
    let large = store.commit(put(b"large", &vec![1; 1 << 20]));
    let small: Vec<_> = (0..20_u8).map(|i| store.commit(put(&[i], b"2"))).collect();
    assert!(matches!(large.await, Err(StoreError::Full)));
    for answer in futures::future::join_all(small).await {
        answer.unwrap();
    }
    assert_eq!(store.get(b"large").await.unwrap(), None);
    assert_eq!(store.scan(KeyRange::all(), 99).await.unwrap().len(), 21);
    store.commit(Batch::new(Vec::new(), vec![Write::DeleteRange(KeyRange::all())])).await.unwrap();
}

#[tokio::test]
async fn a_view_sees_what_was_answered_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog ?#%41");
    let store = SqliteStore::open(&path).unwrap();
    store.commit(put(b"a", b"1")).await.unwrap();
    assert!(SqliteStore::open_read_only(&path, None).is_err(), "it is open elsewhere");
    // The state that a crash leaves now: a log that was not folded into the file.
    let image = dir.path().join("image");
    std::fs::copy(&path, &image).unwrap();
    std::fs::copy(beside(&path, "-wal"), beside(&image, "-wal")).unwrap();
    drop(store);
    for (path, log) in [(&path, false), (&image, true)] {
        let before = (std::fs::read(path).unwrap(), std::fs::read(beside(path, "-wal")).ok());
        let view = SqliteStore::open_read_only(path, None).unwrap();
        assert_eq!(view.get(b"a").await.unwrap().unwrap().open(b"a").unwrap().0, b"1");
        assert_eq!(view.check_pages().await.unwrap(), Vec::<String>::new());
        assert!(view.commit(put(b"a", b"2")).await.is_err());
        drop(view);
        assert_eq!((std::fs::read(path).unwrap(), std::fs::read(beside(path, "-wal")).ok()), before);
        assert_eq!(beside(path, "-wal").exists(), log);
    }
}

/// The waiting records and the records that are folded into the file meanwhile are one store to every reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_ups_and_pages_are_those_of_a_map_whatever_waits_to_be_folded() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { cover_after_bytes: 2_000, ..SqliteOptions::default() };
    let log = Arc::new(MemoryLog::new());
    let store = SqliteStore::open_with_log(dir.path().join("catalog"), options, log).unwrap();
    let (mut rng, mut map) = (Rng::new(7), BTreeMap::new());
    let key = |rng: &mut Rng| vec![b'a' + rng.below(3) as u8, b'0' + rng.below(40) as u8];
    for turn in 0..3_000_u32 {
        let at = key(&mut rng);
        let body = turn.to_be_bytes().to_vec();
        let write = match rng.below(9) {
            0 => {
                Write::DeleteRange(KeyRange { start: Bound::Included(at.clone()), end: Bound::Included(key(&mut rng)) })
            }
            1..4 => Write::Delete(at.clone()),
            _ => Write::Put(at.clone(), body.clone()),
        };
        match &write {
            Write::Put(..) => drop(map.insert(at.clone(), body)),
            Write::Delete(_) => drop(map.remove(&at)),
            Write::DeleteRange(KeyRange { end: Bound::Included(end), .. }) => {
                map.retain(|key, _| *key < at || key > end);
            }
            Write::DeleteRange(_) => unreachable!("the ranges here end"),
        }
        let there = Check::Empty(KeyRange::prefix(b"z"));
        store.commit(Batch::new(vec![there], vec![write])).await.unwrap();
        let (one, other) = (key(&mut rng), key(&mut rng));
        let body = |key: &[u8], value: Option<Sealed>| value.map(|value| value.open(key).unwrap().0.to_vec());
        assert_eq!(body(&one, store.get(&one).await.unwrap()), map.get(&one).cloned());
        let found = store.get_many(vec![one.clone(), other.clone()]).await.unwrap();
        let found: Vec<_> = [&one, &other].into_iter().zip(found).map(|(key, value)| body(key, value)).collect();
        assert_eq!(found, [map.get(&one).cloned(), map.get(&other).cloned()]);
        let (range, limit) = (KeyRange::prefix_after(&one[..1], &one), rng.below(9) as usize + 1);
        let page = store.scan(range, limit).await.unwrap();
        let expected = map.range(one.clone()..).filter(|(key, _)| key[0] == one[0] && **key != one).take(limit);
        assert!(page.iter().map(|entry| &entry.key).eq(expected.map(|(key, _)| key)), "turn {turn}");
    }
    assert!(store.stats().covers > 20, "{:?}", store.stats());
}

/// No reader sees two records that are always changed together differ, even while they are folded into the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_records_are_of_one_moment_while_others_are_folded() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { cover_after_bytes: 300, ..SqliteOptions::default() };
    let store = SqliteStore::open_with_log(dir.path().join("catalog"), options, Arc::new(MemoryLog::new())).unwrap();
    let (store, keys) = (Arc::new(store), [b"a".to_vec(), b"b".to_vec()]);
    let (reads, asked) = (Arc::clone(&store), keys.to_vec());
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let reader =
        tokio::spawn(async move {
            let mut last = 0;
            while !is_done.load(Ordering::Relaxed) {
                let found = reads.get_many(asked.clone()).await.unwrap();
                let number = |at: usize| found[at].as_ref().map(|value| value.open(&asked[at]).unwrap().0.to_vec());
                assert_eq!(number(0), number(1));
                let scanned = reads.scan(KeyRange::all(), 9).await.unwrap();
                assert!(scanned.windows(2).all(|two| {
                    two[0].value.open(&two[0].key).unwrap().0 == two[1].value.open(&two[1].key).unwrap().0
                }));
                let now = number(0).map_or(0, |body| u32::from_be_bytes(body.try_into().unwrap()));
                assert!(now >= last, "{now} behind {last}");
                last = now;
            }
            last
        });
    for turn in 1..2_000_u32 {
        let writes = keys.iter().map(|key| Write::Put(key.clone(), turn.to_be_bytes().to_vec())).collect();
        store.commit(Batch::new(Vec::new(), writes)).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.await.unwrap() > 0);
}

/// Views taken while batches are logged and folded are each of one batch, and stay so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_stays_as_it_was_whatever_is_written_and_folded_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { cover_after_bytes: 300, ..SqliteOptions::default() };
    let store = SqliteStore::open_with_log(dir.path().join("catalog"), options, Arc::new(MemoryLog::new())).unwrap();
    let (store, keys) = (Arc::new(store), [b"a".to_vec(), b"b".to_vec()]);
    let (viewed, done) = (Arc::clone(&store), Arc::new(AtomicBool::new(false)));
    let (is_done, asked) = (Arc::clone(&done), keys.to_vec());
    let viewer = tokio::spawn(async move {
        let mut numbers = BTreeSet::new();
        while !is_done.load(Ordering::Relaxed) {
            let view = viewed.view().await.unwrap();
            let mut of_view = BTreeSet::new();
            for _ in 0..3 {
                for entry in view.scan(KeyRange::all(), 9).await.unwrap() {
                    of_view.insert(entry.value.open(&entry.key).unwrap().0.to_vec());
                }
                for (at, found) in asked.iter().zip(view.get_many(asked.clone()).await.unwrap()) {
                    of_view.extend(found.map(|found| found.open(at).unwrap().0.to_vec()));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(of_view.len() <= 1, "a view is of one batch: {of_view:?}");
            assert!(view.commit(Batch::default()).await.is_err(), "and nothing is written to it");
            numbers.extend(of_view);
        }
        numbers.len()
    });
    for turn in 1..4_000_u32 {
        let writes = keys.iter().map(|key| Write::Put(key.clone(), turn.to_be_bytes().to_vec())).collect();
        store.commit(Batch::new(Vec::new(), writes)).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let views = viewer.await.unwrap();
    assert!(views > 3 && store.stats().covers > 20, "{views} views, {:?}", store.stats());
}

#[tokio::test]
async fn behind_a_log_a_full_disk_lets_the_store_shrink_and_what_was_answered_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("catalog"), MemoryLog::new());
    let options = SqliteOptions { max_bytes: Some(256 * 1024), cover_after_bytes: 50_000, ..SqliteOptions::default() };
    let store = SqliteStore::open_with_log(&path, options, Arc::new(log.clone())).unwrap();
    let mut answered = 0_u32;
    let refused = loop {
        match store.commit(put(&answered.to_be_bytes(), &[1; 4_000])).await {
            Ok(()) => answered += 1,
            Err(error) => break error,
        }
        assert!(answered < 200, "nothing bounds it");
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    let all = store.scan(KeyRange::all(), usize::MAX).await.unwrap();
    assert_eq!(all.len() as u32, answered);
    assert!(matches!(store.commit(put(b"more", b"1")).await, Err(StoreError::Full)));
    for number in 0..answered / 2 {
        let gone = Batch::new(Vec::new(), vec![Write::Delete(number.to_be_bytes().to_vec())]);
        store.commit(gone).await.unwrap();
    }
    store.commit(put(b"more", b"1")).await.unwrap();
    drop(store);
    let store = SqliteStore::open_with_log(&path, options, Arc::new(log.reopened(0))).unwrap();
    assert_eq!(store.behind_log(), None);
    let all = store.scan(KeyRange::all(), usize::MAX).await.unwrap();
    assert_eq!(all.len() as u32, answered - answered / 2 + 1);
}
