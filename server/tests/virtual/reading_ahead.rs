//! The order in which a client asks for the files of a tree: what it costs in wakes and time, with reading ahead and
//! without.

use crate::site::{HOUR, Larder, MIB, MINUTE, Site};
use futures::StreamExt;
use futures::stream;
use model::GroupId;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Files of the tree, each of this length, and how many a client asks for at once, as `aws s3 cp --recursive` does.
const FILES: usize = 240;
const FILE_BYTES: u64 = MIB / 2;
const AT_ONCE: usize = 10;
const TREE_BYTES: u64 = FILES as u64 * FILE_BYTES;

/// A rack of which neighbours by key lie anywhere.
fn scattered() -> Site {
    let mut site = Site::new("pelican-mini");
    site.max_wait = HOUR;
    site.policy.migration.pack_bytes = FILE_BYTES;
    site.policy.starts_per_day = 10_000;
    site.spool_bytes = 2 * TREE_BYTES;
    site.workshop_bytes = 2 * TREE_BYTES;
    site.run(async |larder| {
        for directory in 0..FILES / 20 {
            larder.put_many(&format!("tree/{directory:02}/f"), 20, FILE_BYTES).await;
        }
        larder.settle().await;
    });
    site
}

/// The keys, and how many groups they lie in; by place if they are sorted so.
async fn keys(larder: &Larder, by_place: bool) -> (Vec<String>, usize) {
    let mut groups: BTreeMap<GroupId, Vec<String>> = BTreeMap::new();
    let keys: Vec<String> = larder.keys().await.into_iter().filter(|key| key.starts_with("tree/")).collect();
    for key in &keys {
        groups.entry(larder.group_of(key).await).or_default().push(key.clone());
    }
    let count = groups.len();
    (if by_place { groups.into_values().flatten().collect() } else { keys }, count)
}

/// What it costs to copy the tree.
#[derive(Clone, Copy, Debug)]
struct Cost {
    wakes: u64,
    starts: u32,
    time: Duration,
    groups: usize,
}

async fn wakes(larder: &Larder) -> u64 {
    larder.ask(|rack| rack.stats().group_wakes.iter().sum()).await
}

async fn copy(larder: &Larder, by_place: bool) -> Cost {
    let (keys, groups) = keys(larder, by_place).await;
    assert_eq!(keys.len(), FILES);
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    let (before, starts, began) = (wakes(larder).await, larder.starts(), Instant::now());
    let mut copied = stream::iter(&keys).map(|key| larder.get_retrying(key)).buffered(AT_ONCE);
    while let Some(got) = copied.next().await {
        assert_eq!(got.unwrap(), 1);
    }
    Cost { wakes: wakes(larder).await - before, starts: larder.starts() - starts, time: began.elapsed(), groups }
}

fn cost(site: &mut Site, read_ahead: bool, by_place: bool) -> Cost {
    site.read_ahead = read_ahead;
    let cost = site.run(async |larder| copy(larder, by_place).await);
    println!("read ahead: {read_ahead}, sorted by place: {by_place}: {cost:?}");
    cost
}

#[test]
fn a_tree_that_fits_the_spool_costs_at_most_three_times_what_it_costs_sorted_by_place() {
    let mut site = scattered();
    let sorted = cost(&mut site, false, true);
    let plain = cost(&mut site, false, false);
    let ahead = cost(&mut site, true, false);
    assert!(plain.wakes > 3 * sorted.wakes, "the order matters without reading ahead");
    assert!(ahead.wakes <= 3 * sorted.wakes, "{ahead:?}, sorted {sorted:?}");
    assert!(ahead.time <= 3 * sorted.time, "{ahead:?}, sorted {sorted:?}");
    let sorted_ahead = cost(&mut site, true, true);
    assert!(sorted_ahead.wakes <= sorted.wakes, "{sorted_ahead:?} does no harm to {sorted:?}");
}

#[test]
fn a_larger_tree_costs_three_rounds_of_wakes_for_each_time_that_it_fills_the_spool() {
    for fills in [2, 4, 8] {
        let mut site = scattered();
        site.spool_bytes = TREE_BYTES / fills;
        let plain = cost(&mut site, false, false);
        let ahead = cost(&mut site, true, false);
        assert!(ahead.wakes <= 3 * ahead.groups as u64 * fills, "{fills} times: {ahead:?}");
        assert!(ahead.wakes < plain.wakes, "{ahead:?}, {plain:?} without");
    }
}

#[test]
fn what_a_client_does_not_take_is_read_less_and_less_ahead_and_makes_room_for_recalls() {
    let mut site = scattered();
    site.spool_bytes = TREE_BYTES / 2;
    site.run(async |larder| {
        let (keys, _) = keys(larder, false).await;
        // One file of each directory, again and again: what follows it is never asked for.
        for round in 0..4 {
            for key in keys.iter().skip(round).step_by(20) {
                assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
                let usage = larder.context.spool.usage();
                assert!(usage.ahead_unread_bytes <= usage.capacity_bytes * 3 / 4, "{usage:?}");
            }
            tokio::time::sleep(9 * MINUTE).await;
        }
        let ahead = larder.context.spool.usage().ahead;
        assert!(ahead.read_bytes <= 2 * TREE_BYTES, "{ahead:?}");
        // What nobody takes is in nobody's way.
        let mut all = stream::iter(&keys).map(|key| larder.get_retrying(key)).buffered(AT_ONCE);
        while let Some(got) = all.next().await {
            assert_eq!(got.unwrap(), 1);
        }
    });
}
