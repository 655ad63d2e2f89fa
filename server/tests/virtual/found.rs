//! Bugs that the torture test has found, each as a short history (`docs/reliability/findings.md`).

use crate::site::{Ended, HOUR, KIB, Larder, Site};
use catalog::{MemoryStore, Place};
use disk::MemoryCall;
use model::{DriveId, Rng};
use server::admin::Admin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn under_an_older_catalog_no_staged_file_is_removed_that_the_newest_counts_on() {
    let mut site = Site::nas8();
    // A log in front of the catalog would bring the backup up to date.
    site.catalog = MemoryStore::new();
    site.run(async |larder| {
        for key in ["overwritten", "deleted", "migrated"] {
            larder.put(key, 1, 20 * KIB).await.unwrap();
        }
    });
    let backup = site.catalog.snapshot();
    site.set_wall_clock(HOUR);
    site.run(async |larder| larder.put("later", 2, 20 * KIB).await.unwrap());
    let newest = std::mem::replace(&mut site.catalog, backup);
    site.set_wall_clock(HOUR);
    site.run(async |larder| {
        assert!(larder.context.catalog_age.older().is_some(), "the workshop shows that there is a newer one");
        larder.put("overwritten", 7, 10 * KIB).await.unwrap();
        larder.delete("deleted").await;
        larder.settle_but_for_readers().await;
    });
    site.catalog = newest;
    site.run(async |larder| {
        for key in ["overwritten", "deleted", "migrated"] {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1, "{key}");
        }
        assert_eq!(larder.get_retrying("later").await.unwrap(), 2);
    });
}

/// A start asks no staged file for its length, and opens none that the catalog knows, however many there are.
#[test]
fn a_start_looks_at_no_staged_file() {
    let mut site = Site::nas8();
    site.run(async |larder| larder.put_many("kept/", 40, 3 << 20).await);
    assert!(site.facts().staged_files() >= 40, "they are files of their own");
    let (looks, lists) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (look, list) = (Arc::clone(&looks), Arc::clone(&lists));
    site.staged.hang(move |call| {
        match call {
            MemoryCall::Len(_) | MemoryCall::Read(..) => look.fetch_add(1, Ordering::Relaxed),
            MemoryCall::Look => list.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        None
    });
    site.run(async |larder| {
        let looked = (looks.load(Ordering::Relaxed), lists.load(Ordering::Relaxed));
        assert_eq!(looked, (0, 1), "its names are listed once, and nothing else");
        let usage = larder.context.staging.usage();
        let files = larder.keys().await.len() as u64;
        assert_eq!((usage.staged_bytes, files), (40 * workshop::charged_for(3 << 20), 40));
    });
    site.staged.stop_hanging();
}

#[test]
fn a_power_failure_in_the_first_start_makes_no_catalog_older() {
    for step in 1..60 {
        let mut site = Site::nas8();
        site.power.fail_in(step);
        let ended = site.boot_and(async |_| ());
        site.lose_power(&mut Rng::for_thing(step, 0));
        site.run(async |larder| {
            let older = larder.context.catalog_age.older();
            assert_eq!(older, None, "the power failed at step {step}");
        });
        if matches!(ended, Ended::Finished(())) {
            return;
        }
    }
    panic!("a first start takes fewer steps");
}

#[test]
fn a_start_that_a_full_catalog_could_not_remember_is_one_of_the_day() {
    let mut site = Site::nas8();
    let catalog = site.catalog.clone();
    site.run(async |larder| {
        larder.put("cold", 1, 20 * KIB).await.unwrap();
        larder.settle().await;
        let before = larder.starts();
        catalog.set_full(true);
        larder.get_retrying("cold").await.unwrap();
        catalog.set_full(false);
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        // A write wakes the group once more, since writes stay with a group for a while.
        larder.put("next", 1, 20 * KIB).await.unwrap();
        larder.settle().await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        assert_eq!(larder.starts(), before + 8, "drives of one group were started twice");
        assert_eq!(larder.group_of("cold").await, larder.group_of("next").await, "drives of one group");
        let audit = larder.context.catalog.audit().await.unwrap();
        assert_eq!((audit.contradictions, audit.findings), (0, Vec::new()));
    });
}

#[test]
fn what_was_staged_while_the_clock_was_ahead_does_not_wait_for_that_time() {
    let mut site = Site::nas8();
    site.run(async |larder| larder.put("now", 1, 20 * KIB).await.unwrap());
    site.set_wall_clock(1000 * HOUR);
    site.run(async |larder| larder.put("ahead", 1, 20 * KIB).await.unwrap());
    site.set_wall_clock_back(1001 * HOUR);
    site.run(async |larder| {
        larder.settle().await;
        assert!(larder.elapsed() < HOUR, "nothing waits for a time that may never come");
        for key in ["now", "ahead"] {
            assert!(matches!(larder.place(key).await, Place::Stored { .. }), "{key}");
        }
    });
}

#[test]
fn a_server_that_was_killed_after_two_months_knows_which_day_it_is() {
    let mut site = Site::nas8();
    let day = async |larder: &Larder| larder.world.ask(|_, now| now.day()).await.unwrap();
    site.run(async |larder| {
        tokio::time::sleep(60 * 24 * HOUR).await;
        larder.put("late", 1, 20 * KIB).await.unwrap();
        larder.settle().await;
        assert_eq!(day(larder).await, 60);
        assert!(larder.starts() > 0, "drives were started on that day");
    });
    // Only a server that shuts down cleanly records the time; here none did.
    site.run(async |larder| {
        assert_eq!(day(larder).await, 60, "not the day 30 days after the last start");
        tokio::time::sleep(24 * HOUR).await;
        let used = larder.world.ask(|rack, now| rack.starts_today(DriveId(0), now).0).await.unwrap();
        assert_eq!(used, 0, "the next day has its own budget");
    });
}

#[test]
fn a_second_drive_may_be_given_up_when_only_dead_blobs_wait_for_the_first() {
    let mut site = Site::nas8();
    site.run(async |larder| {
        larder.put("dead", 1, 40 * KIB).await.unwrap();
        larder.settle().await;
        let Place::Stored { blob, .. } = larder.place("dead").await else { panic!("it has migrated") };
        let drives = larder.context.catalog.blob(blob).await.unwrap().unwrap().drives;
        let [first, second, _] = drives[..] else { panic!("k + r = 3") };
        let status = larder.status();
        larder.rack.pull(first);
        status.fail_drive(first.0, false).await.unwrap().unwrap();
        let refused = status.fail_drive(second.0, false).await.unwrap_err().to_string();
        assert!(refused.contains("blobs would be lost"), "what lives is not rebuilt yet: {refused}");
        larder.delete("dead").await;
        let left: u64 = larder.ask(|rack| rack.rebuilds().map(|view| view.left_bytes).sum()).await;
        assert!(left > 0, "it is not reclaimed yet");
        larder.rack.pull(second);
        // No data would be lost, but the two remaining drives could not rebuild anything written from now on.
        let refused = status.fail_drive(second.0, false).await.unwrap_err().to_string();
        assert!(refused.contains("2 drives in service, and blobs have 3 stacks"), "{refused}");
        let forced = status.fail_drive(second.0, true).await.unwrap().unwrap();
        assert_eq!(forced.lacks_drives, 1);
        let again = status.fail_drive(second.0, false).await.unwrap().unwrap();
        assert_eq!(again, forced, "it is given up already");
    });
}
