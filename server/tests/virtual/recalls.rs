//! Cold GETs whose bytes come in several segments: how often they wake their group, and how long their forecast wait
//! is.

use crate::site::{BUCKET, HOUR, Larder, MIB, MINUTE, SECOND, Site};
use futures::StreamExt;
use futures::future::join_all;
use model::{GroupId, Rng};
use s3::store::ObjectStore;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Returns the keys of each group.
async fn by_group(larder: &Larder) -> Vec<(GroupId, Vec<String>)> {
    let mut keys: BTreeMap<GroupId, Vec<String>> = BTreeMap::new();
    for key in larder.keys().await {
        keys.entry(larder.group_of(&key).await).or_default().push(key);
    }
    keys.into_iter().collect()
}

/// Returns the drive starts while `keys`, all of them cold, are read at once.
async fn starts_of(larder: &Larder, keys: &[&String]) -> u32 {
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    let before = larder.starts();
    let got = join_all(keys.iter().map(|key| larder.get_retrying(key))).await;
    assert!(got.into_iter().all(|got| got.unwrap() == 1));
    larder.starts() - before
}

#[test]
fn a_get_wakes_its_group_once_while_others_wait_for_theirs() {
    let mut site = Site::nas8();
    site.max_wait = HOUR;
    // Operations of 16 MiB: an object is two of them, of some segments each.
    site.spool_bytes = 64 * MIB;
    site.run(async |larder| {
        larder.put_many("k", 8, 25 * MIB).await;
        larder.settle().await;
        let groups = by_group(larder).await;
        let (left, right) = (&groups[0].1, &groups[1].1);
        assert!(groups.len() == 2 && left.len().min(right.len()) >= 2, "there is enough in both");
        let drives = larder.context.drives.len() as u32;
        assert_eq!(starts_of(larder, &[&left[0], &right[0]]).await, drives, "each group is woken once");
    });
}

#[test]
fn a_client_that_takes_nothing_holds_nobody_up() {
    let mut site = Site::nas8();
    site.max_wait = HOUR;
    site.run(async |larder| {
        larder.put_many("k", 8, 25 * MIB).await;
        larder.settle().await;
        let groups = by_group(larder).await;
        let slow = larder.service.get(BUCKET, &groups[0].1[0], None).await.unwrap();
        let began = Instant::now();
        assert_eq!(larder.get(&groups[1].1[0]).await.unwrap(), 1);
        assert!(began.elapsed() < MINUTE, "it waited {:?} for a switch", began.elapsed());
        tokio::time::sleep(MINUTE).await;
        let usage = larder.context.spool.usage();
        assert_eq!(usage.idle_bytes, usage.used_bytes, "nothing is kept for who takes nothing");
        assert_eq!(crate::site::read_out(&groups[0].1[0], slow, None).await.unwrap(), 1);
    });
}

#[test]
fn a_client_that_has_gone_costs_the_operation_under_way() {
    let mut site = Site::nas8();
    site.run(async |larder| {
        larder.put("o", 1, 60 * MIB).await.unwrap();
        larder.settle().await;
        let before = larder.spooled_bytes();
        let mut body = larder.service.get(BUCKET, "o", None).await.unwrap();
        body.bytes.next().await.unwrap().unwrap();
        drop(body);
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        let spooled_bytes = larder.spooled_bytes() - before;
        assert!((32 * MIB..=52 * MIB).contains(&spooled_bytes), "{} MiB", spooled_bytes / MIB);
        let usage = larder.context.spool.usage();
        assert_eq!(usage.idle_bytes, usage.used_bytes, "nothing is kept for it");
    });
}

/// Clients read objects of several segments at random moments, `gap` apart on average. Returns the number of forecasts
/// that held, the number of forecasts, and the sums of the expected and the actual waits.
fn forecasts(gap: Duration, seed: u64) -> (usize, usize, [Duration; 2]) {
    let mut site = Site::new("pelican-mini");
    site.max_wait = HOUR;
    site.seed = seed;
    // So small that nothing read before is still there.
    site.spool_bytes = 48 * MIB;
    site.run(async |larder| {
        larder.put_many("k", 24, 9 * MIB).await;
        larder.settle().await;
        let keys = larder.keys().await;
        let mut rng = Rng::new(seed);
        let mut at = Duration::ZERO;
        let reads = (0..60).map(|_| {
            at += gap * rng.between(0, 2_000) as u32 / 1_000;
            let key = keys[rng.below(keys.len() as u64) as usize].clone();
            async move {
                tokio::time::sleep(at).await;
                let group = larder.group_of(&key).await;
                let said = larder.world.ask(move |rack, now| rack.forecast(group, now)).await.unwrap();
                let began = Instant::now();
                let body = larder.service.get(BUCKET, &key, None).await.unwrap();
                let waited = began.elapsed();
                assert_eq!(crate::site::read_out(&key, body, None).await.unwrap(), 1);
                (waited > SECOND / 10).then_some((said, waited))
            }
        });
        let answered: Vec<_> = join_all(reads.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        let held = answered.iter().filter(|(said, waited)| (said.min..=said.max).contains(waited)).count();
        let expected = answered.iter().map(|(said, _)| said.expected).sum();
        let waited = answered.iter().map(|(_, waited)| *waited).sum();
        (held, answered.len(), [expected, waited])
    })
}

#[test]
fn waits_for_objects_of_several_segments_lie_within_their_forecasts() {
    for (gap, seed) in [(MINUTE, 1), (10 * SECOND, 2), (2 * SECOND, 3)] {
        let (held, all, [expected, waited]) = forecasts(gap, seed);
        println!("every {gap:?}: {held} of {all} held; {expected:?} expected, {waited:?} waited in all");
        assert!(all >= 20, "{all} waited at all");
        assert!(held * 10 >= all * 9, "{held} of {all} forecasts held");
        assert!(expected.abs_diff(waited) < waited / 3, "{expected:?} was expected, and it took {waited:?}");
    }
}
