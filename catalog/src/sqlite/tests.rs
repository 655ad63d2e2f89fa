//! The promises of the embedded store alone: group commit, one process, refusals, a full disk, crashes of the process.
#![allow(clippy::unwrap_used)]

use super::path::beside;
use super::{SqliteOptions, SqliteStore};
use crate::error::StoreError;
use crate::store::{Batch, KeyRange, Store, Write};
use rusqlite::Connection;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

fn put(key: &[u8], value: &[u8]) -> Batch {
    Batch::new(Vec::new(), vec![Write::Put(key.to_vec(), value.to_vec())])
}

fn refusal(path: &Path) -> String {
    match SqliteStore::open(path).err() {
        Some(StoreError::Unusable(message)) => message,
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

#[test]
fn another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    drop(SqliteStore::open(&path).unwrap());
    for (version, mend) in [(4, "use the Larder that wrote it"), (1, "begin with a new data directory")] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let refusal = refusal(&path);
        assert!(refusal.contains(&format!("format {version}")) && refusal.contains(mend), "{refusal}");
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
