//! What the torture has found, each as a short history of its own (`docs/reliability.md`).

use crate::site::{Ended, HOUR, KIB, Site};
use catalog::MemoryStore;
use model::Rng;

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
        assert!(larder.context.lineage.older().is_some(), "the workshop shows that there is a newer one");
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

#[test]
fn a_power_failure_in_the_first_start_makes_no_catalog_older() {
    for step in 1..60 {
        let mut site = Site::nas8();
        site.power.fail_in(step);
        let ended = site.boot_and(async |_| ());
        site.lose_power(&mut Rng::for_thing(step, 0));
        site.run(async |larder| {
            let older = larder.context.lineage.older();
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
