//! Moves beside clients: which moves wait for an idle workshop, and how admission slows before it stops.

use crate::site::{BUCKET, HOUR, Larder, MIB, MINUTE, Site, retry_after_s};
use engine::staging::idleness::PUT_OFF_MAX;
use futures::StreamExt;
use model::DriveId;
use s3::store::{GetBody, ObjectStore};
use std::time::Duration;
use tokio::time::Instant;

/// A workshop of 20 MiB in which nothing is due by its age, so that only thresholds cause moves.
fn site() -> Site {
    let mut site = Site::nas8();
    site.workshop_bytes = 20 * MIB;
    (site.policy.migration.due_age, site.policy.migration.pack_bytes) = (None, MIB);
    site
}

async fn staged_count(larder: &Larder) -> u64 {
    larder.context.catalog.staged_usage().await.unwrap().count
}

/// Puts objects at least a millisecond apart: objects staged in one millisecond have the same rank.
async fn put_apart(larder: &Larder, prefix: &str, count: u64) {
    for number in 0..count {
        larder.put(&format!("{prefix}{number:04}"), 1, MIB).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Begins to read an object as a client that reads no further: the read stays open until the body is dropped.
async fn somebody_reads(larder: &Larder, key: &str) -> GetBody {
    larder.service.get(BUCKET, key, None).await.unwrap()
}

#[test]
fn between_the_thresholds_moves_wait_until_the_workshop_is_idle() {
    site().run(async |larder| {
        put_apart(larder, "k", 2).await;
        let mut body = somebody_reads(larder, "k0000").await;
        put_apart(larder, "l", 10).await;
        tokio::time::sleep(PUT_OFF_MAX.saturating_sub(10 * MINUTE)).await;
        assert_eq!(staged_count(larder).await, 12, "clients come first above the regular threshold");
        while body.bytes.next().await.is_some() {}
        drop(body);
        larder.until("moved", 5 * MINUTE, async || staged_count(larder).await <= 6).await;
        tokio::time::sleep(HOUR).await;
        assert!(staged_count(larder).await >= 5, "down to the regular threshold and no further");
    });
}

#[test]
fn clients_may_put_a_move_off_for_so_long_and_no_longer() {
    site().run(async |larder| {
        larder.put_many("k", 12, MIB).await;
        let body = somebody_reads(larder, "k0000").await;
        tokio::time::sleep(PUT_OFF_MAX.saturating_sub(MINUTE)).await;
        assert_eq!(staged_count(larder).await, 12);
        tokio::time::sleep(6 * MINUTE).await;
        assert!(staged_count(larder).await <= 6, "{}", staged_count(larder).await);
        drop(body);
    });
}

#[test]
fn above_the_critical_threshold_nobody_is_waited_for() {
    site().run(async |larder| {
        larder.put_many("k", 15, MIB).await;
        let body = somebody_reads(larder, "k0000").await;
        larder.put_many("l", 2, MIB).await;
        larder.until("moved", 5 * MINUTE, async || staged_count(larder).await <= 6).await;
        drop(body);
    });
}

/// Puts objects of 256 KiB one after the other until one is refused. Returns for each the share of the workshop that
/// was used before, in thousandths, and the time that it took.
async fn fill(larder: &Larder) -> Vec<(u64, Duration)> {
    let mut took = Vec::new();
    for number in 0..4000 {
        let usage = larder.context.staging.usage();
        let (used, begun) = (usage.staged_bytes * 1000 / usage.capacity_bytes, Instant::now());
        match larder.put(&format!("n{number:05}"), 1, MIB / 4).await {
            Ok(()) => took.push((used, begun.elapsed())),
            Err(error) => {
                assert!(retry_after_s(&error).is_some(), "{error}");
                return took;
            }
        }
    }
    panic!("admission never stopped");
}

#[test]
fn admission_slows_above_critical_before_the_first_put_is_told_to_slow_down() {
    let mut site = site();
    (site.workshop_bytes, site.staged_bytes_s) = (60 * MIB, Some(100_000_000));
    // Moved bytes are counted in whole blocks, of 4 MB here.
    site.policy.migration.pack_bytes = 10 * MIB;
    site.run(async |larder| {
        // Something has moved, so that the rate of moving is known. After that nothing more can move; otherwise writers
        // would be held at that rate and never be refused.
        larder.put_many("before", 49, MIB).await;
        larder.until("moved", HOUR, async || staged_count(larder).await <= 20).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        (0..larder.context.drives.len() as u32).for_each(|drive| larder.rack.pull(DriveId(drive)));
        let took = fill(larder).await;
        let mean = |from: u64, to: u64| {
            let of: Vec<Duration> =
                took.iter().filter(|(used, _)| (from..to).contains(used)).map(|(_, t)| *t).collect();
            assert!(!of.is_empty(), "puts between {from} and {to}");
            of.iter().sum::<Duration>() / of.len() as u32
        };
        let (below, above, near, full) = (mean(400, 790), mean(810, 880), mean(900, 950), mean(960, 1000));
        println!("{below:?} below critical, {above:?} above, {near:?} nearer to full, {full:?} before it stops");
        assert!(below < above && above < near && near < full, "{below:?} {above:?} {near:?} {full:?}");
    });
}
