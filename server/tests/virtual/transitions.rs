//! Power failures during operations that a client or an operator begins: no acknowledged change is lost, nothing is
//! half done, nothing is left over, and repeating the request completes the operation.
//!
//! Crashes in migration and compaction are in `packs.rs`, in checks in `checks.rs`, in rebuilds, scrubs and retirements
//! in the files of those names. `LARDER_STEPS=all` crashes at each step of all of them; by default later steps are
//! further apart, except in [`a_crash_at_each_step_of_what_a_client_changes_leaves_the_one_or_the_other`].

use crate::site::{BUCKET, Ended, Facts, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, read_out};
use crate::steps::next_step;
use engine::thermometer::{Rule, Temperature, Thermometer};
use futures::StreamExt;
use futures::stream;
use model::Rng;
use s3::store::{ObjectStore, ServiceError};
use server::admin::Admin;
use server::set_recall::SetRequest;
use std::cell::Cell;
use std::time::Duration;

/// The distance between the steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stride {
    /// Each step.
    One,
    /// Later steps are further apart: one step plus this fraction of the steps so far.
    Share(u64),
}

/// Crashes at later and later steps of `act`, each time on a site from `prepare`, and runs `check` in two runs
/// afterwards, until `act` completes before the crash. Returns the number of crashes.
fn crash_at_steps(
    (seed, stride): (u64, Stride),
    prepare: &impl Fn() -> Site,
    act: &impl AsyncFn(&Larder),
    check: &impl AsyncFn(&Larder, &Facts),
) -> u64 {
    let (torn, mut step, mut crashed) = (&mut Rng::new(seed), 1, 0);
    loop {
        let mut site = prepare();
        let facts = site.facts();
        site.power.fail_in(step);
        let ended = site.boot_and(async |larder| act(larder).await);
        let is_through = matches!(ended, Ended::Finished(()));
        site.lose_power(torn);
        for _ in 0..2 {
            site.run(async |larder| check(larder, &facts).await);
        }
        if is_through {
            println!("{crashed} crashes in {step} steps");
            return crashed;
        }
        crashed += 1;
        step = match stride {
            Stride::One => step + 1,
            Stride::Share(share) => next_step(step, 1 + step / share),
        };
    }
}

/// Asserts that all due objects move, that drives sleep, and that nothing contradicts anything.
async fn ends_well(larder: &Larder, facts: &Facts) {
    larder.settle_but_for_readers().await;
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    larder.audit(facts).await;
}

/// The serial number of the object at `key`; `None` if the object does not exist.
async fn there(larder: &Larder, key: &str) -> Option<u64> {
    match larder.get_retrying(key).await {
        Ok(serial) => Some(serial),
        Err(ServiceError::NoSuchKey) => None,
        Err(error) => panic!("{key}: {error:?}"),
    }
}

/// The changes that clients make, one after the other: the key, and the serial number before and after.
const CHANGES: [(&str, Option<u64>, Option<u64>); 6] = [
    ("new", None, Some(1)),
    ("over-staged", Some(1), Some(2)),
    ("over-cold", Some(1), Some(2)),
    ("gone-staged", Some(1), None),
    ("gone-cold", Some(1), None),
    ("parts", None, Some(3)),
];

fn changed_site() -> Site {
    let mut site = Site::nas8();
    site.small_below_bytes = 8 * KIB;
    site.run(async |larder| {
        for key in ["over-cold", "gone-cold"] {
            larder.put(key, 1, 30 * KIB).await.unwrap();
        }
        larder.settle().await;
        for key in ["over-staged", "gone-staged"] {
            larder.put(key, 1, 5 * KIB).await.unwrap();
        }
    });
    site
}

#[test]
fn a_crash_at_each_step_of_what_a_client_changes_leaves_the_one_or_the_other() {
    let acknowledged = Cell::new(0);
    let act = async |larder: &Larder| {
        acknowledged.set(0);
        for (key, before, behind) in CHANGES {
            match (before, behind) {
                (_, None) => larder.delete(key).await,
                (_, Some(3)) => larder.put_in_parts(key, 3, &[40 * KIB, 7]).await,
                (_, Some(serial)) => larder.put(key, serial, 12 * KIB).await.unwrap(),
            }
            acknowledged.set(acknowledged.get() + 1);
        }
    };
    let check = async |larder: &Larder, facts: &Facts| {
        for (nth, (key, before, behind)) in CHANGES.into_iter().enumerate() {
            let found = there(larder, key).await;
            match nth.cmp(&acknowledged.get()) {
                std::cmp::Ordering::Less => assert_eq!(found, behind, "{key} was acknowledged"),
                std::cmp::Ordering::Equal => assert!(found == before || found == behind, "{key}: {found:?}"),
                std::cmp::Ordering::Greater => assert_eq!(found, before, "{key} was not asked for yet"),
            }
        }
        ends_well(larder, facts).await;
    };
    let crashed = crash_at_steps((21, Stride::One), &changed_site, &act, &check);
    assert!(crashed > 40, "{crashed} crashes");
}

/// One object in the rack, of more than a segment.
fn cold_site() -> Site {
    let mut site = Site::nas8();
    site.run(async |larder| {
        larder.put("cold", 1, 3 * MIB + 5).await.unwrap();
        larder.put_many("beside", 3, 100 * KIB).await;
        larder.settle().await;
    });
    site
}

#[test]
fn a_crash_at_any_step_of_a_recall_leaves_the_object_cold_and_the_spool_empty() {
    let act = async |larder: &Larder| {
        assert_eq!(larder.get_retrying("cold").await.unwrap(), 1);
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    };
    let check = async |larder: &Larder, facts: &Facts| {
        let usage = larder.context.spool.usage();
        assert_eq!((usage.used_bytes, usage.entries), (0, 0), "what was in the spool is forgotten");
        let starts = larder.starts();
        assert_eq!(larder.get_retrying("cold").await.unwrap(), 1);
        assert!(larder.starts() > starts, "it is in the rack, and only there");
        ends_well(larder, facts).await;
    };
    let crashed = crash_at_steps((22, Stride::Share(8)), &cold_site, &act, &check);
    assert!(crashed > 20, "{crashed} crashes");
}

/// Files of a tree, each a blob in any group.
fn tree_site() -> Site {
    let mut site = Site::new("pelican-mini");
    site.max_wait = HOUR;
    site.policy.migration.pack_bytes = 64 * KIB;
    site.policy.starts_per_day = 10_000;
    site.run(async |larder| {
        larder.put_many("tree/", 24, 64 * KIB).await;
        larder.settle().await;
    });
    site
}

async fn all_of_the_tree(larder: &Larder) {
    let keys = larder.keys().await;
    assert_eq!(keys.len(), 24);
    let mut got = stream::iter(&keys).map(|key| larder.get_retrying(key)).buffered(10);
    while let Some(got) = got.next().await {
        assert_eq!(got.unwrap(), 1);
    }
}

#[test]
fn a_crash_at_any_step_of_a_copy_that_is_read_ahead_loses_nothing() {
    let read_ahead = Cell::new(0);
    let act = async |larder: &Larder| {
        all_of_the_tree(larder).await;
        read_ahead.set(larder.context.spool.usage().ahead.read_bytes);
    };
    let check = async |larder: &Larder, facts: &Facts| {
        assert_eq!(larder.context.spool.usage().used_bytes, 0);
        all_of_the_tree(larder).await;
        ends_well(larder, facts).await;
    };
    let crashed = crash_at_steps((23, Stride::Share(3)), &tree_site, &act, &check);
    assert!(crashed > 12 && read_ahead.get() > 0, "{crashed} crashes, {} bytes", read_ahead.get());
}

/// Recalls the tree as an operator does, and returns the bytes that had to be read for it.
async fn recall_the_tree(larder: &Larder) -> u64 {
    let status = larder.status();
    let wanted = SetRequest { bucket: BUCKET.into(), prefix: "tree/".into(), ..SetRequest::default() };
    let begun = status.recall_set(wanted).await.unwrap();
    let report = || status.set_recalls().into_iter().find(|report| report.job == begun.job).unwrap();
    larder.until("recalled", 4 * HOUR, async || report().state != "running").await;
    assert_eq!(report().state, "done", "{:?}", report());
    report().read_bytes
}

#[test]
fn a_crash_at_any_step_of_a_recalled_set_loses_nothing_and_asking_again_brings_all_of_it() {
    let act = async |larder: &Larder| {
        recall_the_tree(larder).await;
    };
    let check = async |larder: &Larder, facts: &Facts| {
        assert!(larder.status().set_recalls().is_empty(), "jobs are known as long as the server runs");
        assert!(recall_the_tree(larder).await > 0);
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        let starts = larder.starts();
        all_of_the_tree(larder).await;
        assert_eq!(larder.starts(), starts, "all of it is in the spool");
        ends_well(larder, facts).await;
    };
    let crashed = crash_at_steps((24, Stride::Share(3)), &tree_site, &act, &check);
    assert!(crashed > 12, "{crashed} crashes");
}

/// A workshop of 10 MiB whose objects are all hot.
fn hot_site() -> Site {
    let mut site = Site::nas8();
    site.workshop_bytes = 10 * MIB;
    let migration = &mut site.policy.migration;
    (migration.due_age, migration.min_age, migration.pack_bytes) = (None, Duration::ZERO, 512 * KIB);
    migration.thermometer = Thermometer { rules: vec![], default: Temperature::Hot };
    site.run(async |larder| drop(larder.put_many("hot", 15, 512 * KIB).await));
    site
}

#[test]
fn a_crash_at_any_step_of_a_hot_move_above_critical_loses_nothing_and_it_goes_on() {
    let written = Cell::new(false);
    let act = async |larder: &Larder| {
        written.set(false);
        larder.put("last", 1, 768 * KIB).await.unwrap();
        written.set(true);
        let is_critical = async || larder.context.staging.usage().staged_bytes > 8 * MIB;
        larder.until("below critical", HOUR, async || !is_critical().await).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    };
    let check = async |larder: &Larder, facts: &Facts| {
        assert!(there(larder, "last").await.is_some() || !written.get(), "it was acknowledged");
        let below = async || larder.context.staging.usage().staged_bytes <= 8 * MIB;
        larder.until("below critical", HOUR, below).await;
        for nth in 0..15 {
            assert_eq!(larder.get_retrying(&format!("hot{nth:04}")).await.unwrap(), 1);
        }
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(facts).await;
    };
    let crashed = crash_at_steps((25, Stride::Share(8)), &hot_site, &act, &check);
    assert!(crashed > 20, "{crashed} crashes");
}

/// Objects that are due after an hour without reads.
fn unread_site() -> Site {
    let mut site = Site::nas8();
    let unread = Rule { unread_for: HOUR, ..Rule::default() };
    site.policy.migration.thermometer = Thermometer { rules: vec![unread], default: Temperature::Hot };
    site.run(async |larder| drop(larder.put_many("k", 4, 60 * KIB).await));
    site
}

#[test]
fn a_crash_at_any_step_of_recording_reads_keeps_the_objects_and_they_cool_all_the_same() {
    let act = async |larder: &Larder| {
        for round in 0..4 {
            let key = format!("k{round:04}");
            let body = larder.service.get(BUCKET, &key, None).await.unwrap();
            assert_eq!(read_out(&key, body, None).await.unwrap(), 1);
            tokio::time::sleep(10 * MINUTE).await;
        }
        larder.context.counters.reads.end_run(&larder.context.catalog).await.unwrap();
    };
    let check = async |larder: &Larder, facts: &Facts| {
        for nth in 0..4 {
            assert_eq!(larder.get_retrying(&format!("k{nth:04}")).await.unwrap(), 1);
        }
        tokio::time::sleep(30 * MINUTE).await;
        larder.audit(facts).await;
        // No client reads them: they cool, no matter which earlier reads were recorded.
        larder.until("cold", 3 * HOUR, async || larder.context.catalog.staged_usage().await.unwrap().count == 0).await;
        tokio::time::sleep(SECOND).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(facts).await;
    };
    let crashed = crash_at_steps((26, Stride::Share(8)), &unread_site, &act, &check);
    assert!(crashed > 3, "{crashed} crashes");
}
