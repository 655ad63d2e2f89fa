//! Background reads: evacuations and repartition jobs take their bytes from the drives through memory.

use crate::repartition::{assert_partitioned, fill, is_over, jobs, request};
use crate::site::{HOUR, KIB, Site};
use catalog::Place;
use engine::GroupChoice;

#[test]
fn no_byte_of_a_repartition_job_crosses_the_spool() {
    let mut site = Site::nas8();
    site.run(async |larder| {
        let rows = fill(larder, 8, 12_000).await;
        larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
        let before = larder.spooled_bytes();
        let jobs = jobs(larder).await;
        let job = jobs.ask(request("hash(name)", 5)).await.unwrap().job;
        let report = is_over(&jobs, job).await;
        assert_eq!(report.state, "done", "{report:?}");
        let spooled_bytes = larder.spooled_bytes() - before;
        assert_eq!(spooled_bytes, 0, "{:?}", report.outcome);
        assert_partitioned(larder, &rows, 5).await;
        assert!(larder.spooled_bytes() > before, "clients read by way of the spool, which is counted");
    });
}

#[test]
fn no_byte_of_an_evacuation_crosses_the_spool() {
    let mut site = Site::nas8();
    site.policy.evacuate_permille = 500;
    site.policy.group_choice = GroupChoice::Batch { bytes: 1 << 40 };
    let facts = site.facts();
    site.run(async |larder| {
        let (keys, blob) = larder.mostly_dead_blob().await;
        // Its migration wakes the group.
        larder.put("another", 1, 300 * KIB).await.unwrap();
        larder
            .until(
                "evacuated",
                HOUR,
                async || !matches!(larder.place("k0000").await, Place::Stored { blob: b, .. } if b == blob),
            )
            .await;
        larder.settle().await;
        assert_eq!(larder.spooled_bytes(), 0);
        for key in &keys[..2] {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        assert!(larder.spooled_bytes() > 0, "clients read by way of the spool, which is counted");
        larder.audit(&facts).await;
    });
}
