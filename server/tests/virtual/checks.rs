//! Checks of the workshop, with migration during the same pass: what is read and when, what is found, and what is not
//! read again.

use crate::site::{BUCKET, Ended, HOUR, KIB, Larder, MIB, MINUTE, Site};
use crate::steps::next_step;
use catalog::Place;
use engine::staging::checks::{CheckPolicy, LOAD_LIMIT_PERMILLE};
use engine::thermometer::{Rule, Temperature, Thermometer};
use engine::trace::{Record, TraceMessage};
use engine::{Action, CheckResult, Event};
use futures::StreamExt;
use model::{Rng, Time};
use parking_lot::Mutex;
use s3::store::ObjectStore;
use server::admin::Admin;
use server::report::Status;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workshop::staged_file_name;

const DAY: Duration = Duration::from_hours(24);

/// A site that is checked once a day. Objects older than an hour and larger than 10 KB are due and wait for a pass; all
/// others are hot. Objects below 64 KiB are records of the log.
fn site() -> Site {
    let mut site = Site::nas8();
    site.small_below_bytes = 64 * KIB;
    let migration = &mut site.policy.migration;
    let line = Rule { larger_than_bytes: Some(10_000), older_than: HOUR, ..Rule::default() };
    migration.thermometer = Thermometer { rules: vec![line], default: Temperature::Hot };
    (migration.due_age, migration.due_with_checks) = (None, true);
    site.policy.checks = CheckPolicy { every: Some(DAY), memory_bytes: 64 * MIB };
    site
}

/// The trace of a site.
fn traced(site: &mut Site) -> Arc<Mutex<Vec<Record>>> {
    let records: Arc<Mutex<Vec<Record>>> = Arc::default();
    let into = Arc::clone(&records);
    site.trace = Some(Arc::new(move |record| into.lock().push(record.clone())));
    records
}

/// The times at which a pass read each version.
fn checked(records: &[Record]) -> BTreeMap<u64, Vec<Time>> {
    let mut checked: BTreeMap<u64, Vec<Time>> = BTreeMap::new();
    for record in records {
        if let TraceMessage::Event(Event::StagedChecked { entries, .. }) = &record.message {
            let read = entries.iter().filter(|entry| entry.result != CheckResult::Skipped);
            read.for_each(|read| checked.entry(read.entry.version).or_default().push(record.now));
        }
    }
    checked
}

/// Returns the number of pages that were requested at or above the load limit, and the number of all others. Asserts
/// that the former have no limit.
fn pages(records: &[Record]) -> (u32, u32) {
    let (mut load, mut pages) = (0, (0, 0));
    for record in records {
        match &record.message {
            TraceMessage::Event(
                Event::LoadMeasured { load_permille, .. } | Event::StagedChecked { load_permille, .. },
            ) => load = *load_permille,
            TraceMessage::Action(Action::CheckStaged { load_limit_permille, .. }) if load >= LOAD_LIMIT_PERMILLE => {
                assert_eq!(*load_limit_permille, None, "at {} clients come first", record.now);
                pages.0 += 1;
            }
            TraceMessage::Action(Action::CheckStaged { .. }) => pages.1 += 1,
            _ => {}
        }
    }
    pages
}

async fn status(larder: &Larder) -> Status {
    larder.status().status().await.unwrap()
}

async fn staged_count(larder: &Larder) -> u64 {
    larder.context.catalog.staged_usage().await.unwrap().count
}

/// Puts objects of every kind: hot ones, records of the log, files, and one of more than a block.
async fn put_all(larder: &Larder) -> Vec<String> {
    let mut keys = larder.put_many("hot", 5, 10_000).await;
    keys.extend(larder.put_many("small", 20, 40 * KIB).await);
    keys.extend(larder.put_many("file", 20, 300 * KIB).await);
    larder.put("large", 1, 3 * MIB + 5).await.unwrap();
    keys.push("large".to_owned());
    keys
}

#[test]
fn what_is_due_goes_to_the_rack_from_memory_and_every_object_is_checked_once_a_period() {
    let mut site = site();
    let (records, facts) = (traced(&mut site), site.facts());
    let mut keys = Vec::new();
    site.run(async |larder| {
        tokio::time::sleep(HOUR).await;
        keys = put_all(larder).await;
        tokio::time::sleep(22 * HOUR).await;
        assert_eq!(staged_count(larder).await, 46, "what is due waits for a pass");
        tokio::time::sleep(2 * HOUR).await;
        assert_eq!(staged_count(larder).await, 5, "what is hot stays");
        let checks = status(larder).await.checks;
        let due_bytes = 20 * 40 * KIB + 20 * 300 * KIB + 3 * MIB + 5;
        assert_eq!((checks.saved_reads, checks.saved_read_bytes), (41, due_bytes));
        assert_eq!((checks.pass_objects, checks.pass_bytes, checks.damaged), (46, due_bytes + 50_000, 0));
        assert_eq!((checks.state.as_str(), checks.passes, checks.overdue_pages), ("waiting for its time", 2, 0));
        assert!((22.0..24.0).contains(&(checks.next_in_s.unwrap() / 3600.0)), "{checks:?}");
        for key in &keys {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        tokio::time::sleep(3 * DAY).await;
    });
    // After a restart the period continues.
    site.run(async |larder| {
        tokio::time::sleep(2 * DAY).await;
        let checks = status(larder).await.checks;
        assert_eq!((checks.objects, checks.passes), (10, 2));
        larder.audit(&facts).await;
    });
    let records = records.lock();
    let times: Vec<Vec<Time>> = checked(&records).into_values().collect();
    assert_eq!(times.len(), 46);
    for times in &times {
        assert!(times.len() == 1 || times.len() == 6, "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1].since(pair[0]).abs_diff(DAY) < MINUTE), "{times:?}");
    }
    assert_eq!(pages(&records).0, 0);
}

/// Bytes that the workshop's disk moves for checks and migration of files of a MiB, with `memory_bytes` of memory.
fn moved_bytes(memory_bytes: u64) -> u64 {
    let mut site = site();
    site.policy.checks.memory_bytes = memory_bytes;
    let moved = Arc::clone(&site.staged_bytes_moved);
    site.run(async |larder| {
        tokio::time::sleep(HOUR).await;
        larder.put_many("file", 16, MIB).await;
        let before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(25 * HOUR).await;
        assert_eq!(staged_count(larder).await, 0);
        moved.load(Ordering::Relaxed) - before
    })
}

#[test]
fn the_disk_of_the_workshop_reads_once_and_not_twice() {
    let (with, without) = (moved_bytes(64 * MIB), moved_bytes(0));
    assert!((16 * MIB..17 * MIB).contains(&with), "{} KiB", with / KIB);
    assert!((32 * MIB..34 * MIB).contains(&without), "{} KiB", without / KIB);
    // In turns where the memory does not hold all: packs of 4 MiB.
    assert!((16 * MIB..17 * MIB).contains(&moved_bytes(6 * MIB)));
}

#[test]
fn clients_come_first_until_a_pass_is_overdue() {
    let mut site = site();
    let records = traced(&mut site);
    site.run(async |larder| {
        tokio::time::sleep(HOUR).await;
        larder.put_many("file", 3, MIB).await;
        larder.put("held", 1, 9_000).await.unwrap();
        tokio::time::sleep(22 * HOUR + 50 * MINUTE).await;
        // A client begins to read and holds the stream open for a day.
        let mut body = larder.service.get(BUCKET, "held", None).await.unwrap();
        tokio::time::sleep(DAY).await;
        let checks = status(larder).await.checks;
        assert_eq!((checks.state.as_str(), checks.load_permille, checks.objects), ("paused for clients", 1000, 0));
        tokio::time::sleep(20 * MINUTE).await;
        let checks = status(larder).await.checks;
        assert_eq!((checks.objects, checks.overdue_pages), (4, 1), "{checks:?}");
        while body.bytes.next().await.is_some() {}
        drop(body);
        tokio::time::sleep(DAY).await;
        let checks = status(larder).await.checks;
        assert!(checks.load_permille < LOAD_LIMIT_PERMILLE && checks.pass_objects == 1, "{checks:?}");
    });
    let (busy, others) = pages(&records.lock());
    assert!(busy > 0 && others > 0, "{busy} and {others}");
}

#[test]
fn a_flipped_byte_is_found_by_the_pass_before_any_migration_and_shown() {
    let mut site = site();
    site.policy.migration.thermometer = Thermometer { rules: Vec::new(), default: Temperature::Hot };
    let facts = site.facts();
    site.run(async |larder| {
        tokio::time::sleep(HOUR).await;
        let keys = larder.put_many("k", 6, 300 * KIB).await;
        let Place::Staged { slot } = larder.place(&keys[2]).await else { panic!("it is staged") };
        facts.staged.flip_bit(&staged_file_name(slot), 100_000, 4);
        let Place::Staged { slot } = larder.place(&keys[4]).await else { panic!("it is staged") };
        assert!(facts.staged.lose_file(&staged_file_name(slot)));
        tokio::time::sleep(22 * HOUR).await;
        assert!(status(larder).await.warnings.is_empty());
        tokio::time::sleep(2 * HOUR).await;
        let seen = status(larder).await;
        assert_eq!((seen.checks.pass_objects, seen.checks.pass_damaged), (6, 2));
        assert!(seen.warnings.iter().any(|warning| warning.contains("quarantine")), "{:?}", seen.warnings);
        let explained = larder.status().explain(BUCKET, &keys[2]).await.unwrap().unwrap();
        assert!(explained.quarantined.is_some() && explained.temperature.is_some());
        assert_eq!(larder.ask(|rack| rack.stats().group_wakes).await, [0, 0, 0], "nothing moved");
        assert_eq!(larder.get(&keys[3]).await.unwrap(), 1);
        tokio::time::sleep(DAY).await;
        let seen = status(larder).await.checks;
        assert_eq!((seen.pass_objects, seen.pass_damaged, seen.damaged), (4, 0, 2), "it is not read again and again");
    });
}

#[test]
fn an_object_that_is_overwritten_or_deleted_while_it_is_in_memory_is_not_packed() {
    let mut site = site();
    site.policy.migration.linger = HOUR;
    let facts = site.facts();
    site.run(async |larder| {
        tokio::time::sleep(HOUR).await;
        // A quarter of a pack, which stays in memory until the pass ends.
        larder.put_many("k", 10, 100 * KIB).await;
        tokio::time::sleep(22 * HOUR + 59 * MINUTE).await;
        // A client keeps the pass from continuing.
        larder.until("the pass began", HOUR, async || status(larder).await.checks.pass_objects > 0).await;
        larder.put("k0003", 2, 100 * KIB).await.unwrap();
        larder.delete("k0005").await;
        tokio::time::sleep(2 * DAY).await;
        for key in larder.keys().await {
            assert_eq!(larder.get_retrying(&key).await.unwrap(), if key == "k0003" { 2 } else { 1 });
        }
        assert_eq!((larder.keys().await.len(), staged_count(larder).await), (9, 0));
        larder.audit(&facts).await;
    });
}

/// Crashes at later and later steps of a pass and of the work that follows from it.
#[test]
fn a_crash_at_any_step_of_a_pass_loses_nothing_and_it_goes_on() {
    let (torn, mut step, mut crashed) = (&mut Rng::new(5), 1, 0);
    loop {
        let mut site = site();
        site.policy.migration.pack_bytes = MIB;
        site.policy.checks.memory_bytes = 2 * MIB;
        let facts = site.facts();
        let keys = site.run(async |larder| {
            tokio::time::sleep(HOUR).await;
            let keys = put_all(larder).await;
            tokio::time::sleep(22 * HOUR + 50 * MINUTE).await;
            keys
        });
        site.power.fail_in(step);
        let ended = site.boot_and(async |_| tokio::time::sleep(2 * HOUR).await);
        if matches!(ended, Ended::Finished(())) {
            break;
        }
        crashed += 1;
        site.lose_power(torn);
        for _ in 0..2 {
            site.run(async |larder| {
                for key in &keys {
                    assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
                }
                tokio::time::sleep(25 * HOUR).await;
                assert_eq!(staged_count(larder).await, 5, "after {step} steps");
                let checks = status(larder).await.checks;
                assert!(checks.completed_s_ago.is_some() && checks.damaged == 0, "{checks:?}");
                larder.audit(&facts).await;
            });
        }
        step = next_step(step, 1 + step / 6);
    }
    assert!(crashed > 20, "{crashed} crashes");
}
