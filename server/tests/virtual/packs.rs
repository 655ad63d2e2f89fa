//! Small objects, from the log in front of the catalog to packs in the rack, and out of packs that are mostly dead.

use crate::site::{BUCKET, Ended, Facts, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site};
use crate::steps::next_step;
use catalog::{Blob, Place};
use engine::trace::Record;
use engine::{GroupChoice, GroupState};
use futures::future::join_all;
use model::{BlobId, GroupId, Rng};
use s3::store::{ObjectStore, ServiceError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A site whose small objects are records of the log.
fn site() -> Site {
    let mut site = Site::nas8();
    site.small_below_bytes = 64 * KIB;
    site.policy.evacuate_permille = 500;
    site
}

/// Returns the keys of `count` objects, in a random order.
fn shuffled(count: u64, seed: u64) -> Vec<String> {
    let mut keys: Vec<String> = (0..count).map(|n| format!("k{n:05}")).collect();
    let mut rng = Rng::for_thing(seed, 0);
    for at in (1..keys.len()).rev() {
        keys.swap(at, rng.below(at as u64 + 1) as usize);
    }
    keys
}

async fn put_all(larder: &Larder, keys: &[String], bytes: u64) {
    for key in keys {
        larder.put(key, 1, bytes).await.unwrap();
    }
}

/// The blobs that hold `keys`, each with its keys by offset.
async fn packs(larder: &Larder, keys: &[String]) -> BTreeMap<BlobId, BTreeMap<u64, String>> {
    let mut packs: BTreeMap<BlobId, BTreeMap<u64, String>> = BTreeMap::new();
    for key in keys {
        let Place::Stored { blob, offset } = larder.place(key).await else { panic!("{key} is staged") };
        packs.entry(blob).or_default().insert(offset, key.clone());
    }
    packs
}

async fn blob(larder: &Larder, id: BlobId) -> Option<Blob> {
    larder.context.catalog.blob(id).await.unwrap()
}

#[test]
fn what_came_in_a_random_order_leaves_in_key_order_in_packs_of_the_target_size_freed_by_one_record_each() {
    let mut site = site();
    let (facts, target) = (site.facts(), site.policy.migration.pack_bytes);
    site.policy.migration.pack_members = 100_000;
    let mut records_of_a_pack = BTreeSet::new();
    for (seed, bytes) in [(1, 40 * KIB), (2, 4 * KIB)] {
        let keys = shuffled(3 * target / bytes - 10, seed);
        site.run(async |larder| {
            put_all(larder, &keys, bytes).await;
            assert_eq!(facts.log.slots().len(), keys.len(), "they are records, and not files");
            let before = facts.log.removals();
            larder.settle().await;
            larder.audit(&facts).await;
            assert!(facts.log.slots().is_empty());
            let packs = packs(larder, &keys).await;
            let mut ends = Vec::new();
            for (id, members) in &packs {
                assert!(members.values().is_sorted(), "{id} is in key order");
                ends.push((members.values().next().unwrap(), members.values().last().unwrap()));
                let payload_bytes = blob(larder, *id).await.unwrap().payload_bytes;
                let is_last = members.values().any(|key| Some(key) == keys.iter().max());
                let index_bytes = 400 * members.len() as u64;
                assert!(payload_bytes <= target + index_bytes, "{payload_bytes}");
                assert!(is_last || payload_bytes > target - bytes, "{payload_bytes} of {target}");
            }
            ends.sort();
            assert_eq!(ends.len(), 3);
            assert!(ends.windows(2).all(|two| two[0].1 < two[1].0), "packs follow one another: {ends:?}");
            records_of_a_pack.insert((facts.log.removals() - before) / packs.len() as u64);
            for key in &keys {
                larder.delete(key).await;
            }
        });
    }
    assert_eq!(records_of_a_pack, [1].into(), "ten times as many members cost no more");
}

#[test]
fn what_is_too_young_to_move_stays_among_what_has_moved() {
    let mut site = site();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = shuffled(400, 3);
        let (old, young) = keys.split_at(250);
        put_all(larder, old, 20 * KIB).await;
        tokio::time::sleep(20 * SECOND).await;
        put_all(larder, young, 10 * KIB).await;
        let before = facts.log.removals();
        let moved = async || !join_all(old.iter().map(|key| larder.place(key))).await.iter().any(is_staged);
        larder.until("moved", 10 * MINUTE, moved).await;
        // The other ones are due by now, and their group may be writing; but none was freed along with the old ones.
        for key in young {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        larder.settle().await;
        let packs = packs(larder, &keys).await.len() as u64;
        let freed_by = facts.log.removals() - before;
        assert!(freed_by <= packs, "{freed_by} records for {packs} packs");
        larder.audit(&facts).await;
        for key in &keys {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
    });
}

fn is_staged(place: &Place) -> bool {
    !matches!(place, Place::Stored { .. })
}

#[test]
fn what_is_read_or_put_anew_while_its_pack_is_freed_stays_for_whom_it_concerns() {
    let mut site = site();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = shuffled(300, 4);
        put_all(larder, &keys, 20 * KIB).await;
        let body = larder.service.get(BUCKET, "k00100", None).await.unwrap();
        let anew = "k00200";
        larder.put(anew, 2, 10 * KIB).await.unwrap();
        larder.settle_but_for_readers().await;
        assert_eq!(larder.get_retrying(anew).await.unwrap(), 2);
        assert_eq!(crate::site::read_out("k00100", body, None).await.unwrap(), 1, "whoever reads it finishes");
        larder.settle().await;
        larder.audit(&facts).await;
        assert!(facts.log.slots().is_empty());
    });
}

#[test]
fn a_cold_member_costs_one_wake_and_one_range_and_is_listed_read_and_deleted_by_itself() {
    let mut site = site();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = shuffled(200, 5);
        put_all(larder, &keys, 20 * KIB).await;
        larder.settle().await;
        let sorted: Vec<String> = keys.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let (starts, id) = (larder.starts(), *packs(larder, &keys).await.keys().next().unwrap());
        let stats = larder.ask(engine::Rack::stats).await;
        assert_eq!(larder.keys().await, sorted, "a listing shows each of them");
        assert_eq!(larder.starts(), starts);
        // Offset 50 is in one stripe, and the end of the member is in another.
        assert_eq!(larder.get_retrying(&sorted[50]).await.unwrap(), 1);
        let after = larder.ask(engine::Rack::stats).await;
        let wakes = |stats: &engine::Stats| stats.group_wakes.iter().sum::<u64>();
        assert_eq!((wakes(&after) - wakes(&stats), larder.starts() - starts), (1, 4), "one group of four drives");
        let read_bytes = after.read_bytes - stats.read_bytes;
        assert!(read_bytes <= 512 * KIB, "{read_bytes} bytes were read: two stripes at most");
        let group = blob(larder, id).await.unwrap().group;
        larder.delete(&sorted[50]).await;
        assert_eq!(larder.ask(move |rack| rack.dead_bytes(group)).await, 20 * KIB, "its bytes and no others");
        assert!(matches!(larder.get(&sorted[50]).await, Err(ServiceError::NoSuchKey)));
        assert_eq!(larder.keys().await.len(), sorted.len() - 1);
        for key in sorted.iter().filter(|key| **key != sorted[50]) {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
    });
}

/// Puts `count` objects of `bytes` bytes into packs, deletes `dead` of every three keys, and returns the keys that are
/// left, sorted.
async fn with_dead(larder: &Larder, (count, bytes): (u64, u64), dead: usize) -> Vec<String> {
    let mut keys = shuffled(count, 6);
    put_all(larder, &keys, bytes).await;
    larder.settle().await;
    keys.sort();
    let mut left = Vec::new();
    for (n, key) in keys.into_iter().enumerate() {
        if n % 3 < dead {
            larder.delete(&key).await;
        } else {
            left.push(key);
        }
    }
    left
}

#[test]
fn a_pack_that_is_half_dead_is_compacted_at_a_wake_that_others_cause_and_never_by_one_of_its_own() {
    let mut site = site();
    // All in one group.
    site.policy.group_choice = GroupChoice::Batch { bytes: 1 << 40 };
    let facts = site.facts();
    site.run(async |larder| {
        let left = with_dead(larder, (360, 20 * KIB), 2).await;
        let old: Vec<BlobId> = packs(larder, &left).await.into_keys().collect();
        let group = larder.group_of(&left[0]).await;
        let starts = larder.starts();
        tokio::time::sleep(48 * HOUR).await;
        assert_eq!(larder.starts(), starts, "nobody wakes a group to compact it");
        // A client reads one member. Two packs are compacted at each wake.
        assert_eq!(larder.get_retrying(&left[0]).await.unwrap(), 1);
        let compacted = async || {
            let places = join_all(left.iter().map(|key| larder.place(key))).await;
            !places.iter().any(|place| matches!(place, Place::Stored { blob, .. } if old[..2].contains(blob)))
        };
        larder.until("compacted", 10 * MINUTE, compacted).await;
        assert_eq!(facts.log.slots().len() as u64, facts.staged_files(), "copies of small objects are records, too");
        larder.settle().await;
        for _ in 0..3 {
            assert_eq!(larder.get_retrying(&left[0]).await.unwrap(), 1);
            larder.put("tick", 1, 300 * KIB).await.unwrap();
            larder.settle().await;
        }
        for id in &old[..2] {
            assert_eq!(blob(larder, *id).await, None, "{id} is removed as a whole");
        }
        assert_eq!(larder.state(group).await, GroupState::Asleep);
        for key in &left {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
    });
}

#[test]
fn a_pack_of_which_less_than_half_is_dead_stays_as_it_is() {
    let mut site = site();
    let facts = site.facts();
    site.run(async |larder| {
        let left = with_dead(larder, (360, 20 * KIB), 1).await;
        let before = packs(larder, &left).await;
        for key in &left {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        larder.settle().await;
        assert_eq!(packs(larder, &left).await, before);
        larder.audit(&facts).await;
    });
}

/// Reads a cold object of each group at once, so that both groups are wanted, and waits until all sleep. False if none
/// of `keys` is cold.
async fn read_one_of_each_group(larder: &Larder, keys: &[String], rng: &mut Rng) -> bool {
    let mut stored: BTreeMap<_, Vec<&String>> = BTreeMap::new();
    for key in keys {
        if !is_staged(&larder.place(key).await) {
            stored.entry(larder.group_of(key).await).or_default().push(key);
        }
    }
    let some: Vec<&String> = stored.values().map(|keys| keys[rng.below(keys.len() as u64) as usize]).collect();
    let got = join_all(some.iter().map(|key| larder.get_retrying(key))).await;
    assert!(got.into_iter().all(|got| got.unwrap() == 1));
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    let [clients, _, background] = larder.ask(|rack| rack.stats().group_wakes).await;
    assert_eq!(background, 0, "all {clients} wakes were by clients");
    !stored.is_empty()
}

/// Two groups of one class, both with packs that are mostly dead, and clients that keep the class switching.
#[test]
fn clients_of_another_group_end_a_compaction_which_wakes_nobody_to_go_on() {
    let mut site = site();
    site.policy.migration.pack_bytes = 2 * MIB;
    let facts = site.facts();
    // More members than are copied at once.
    let left = site.run(async |larder| with_dead(larder, (3_000, 4 * KIB), 2).await);
    // From now on nothing migrates: background work is compaction and nothing else.
    site.policy.migration.due_age = None;
    site.policy.scheduler.anticipation = Duration::ZERO;
    // While what was copied is committed, a compaction has no read queued that would keep the class where it is.
    site.catalog = site.catalog.clone().with_delay(SECOND);
    let ended_early = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ended_early);
    site.trace = Some(Arc::new(move |record: &Record| {
        let text = format!("{record:?}");
        count.fetch_add(u64::from(text.contains("reason: Asleep") || text.contains("Failed(Asleep)")), Relaxed);
    }));
    let mut rng = Rng::new(11);
    let mut rounds = 0;
    // Each start forgets what is in the spool.
    while site.run(async |larder| read_one_of_each_group(larder, &left, &mut rng).await) {
        rounds += 1;
        assert!(rounds < 100, "it comes to an end");
    }
    site.run(async |larder| {
        for key in &left {
            assert_eq!(larder.get(key).await.unwrap(), 1);
        }
        larder.audit(&facts).await;
    });
    let ended_early = ended_early.load(Relaxed);
    assert!(ended_early > 0, "compactions were cut short by clients of the other group");
}

/// Asserts after a crash that everything live is there as it was, that deleted objects are not, and that the next
/// starts clean up.
fn all_is_well(site: &mut Site, facts: &Facts, left: &[String]) {
    for _ in 0..3 {
        site.run(async |larder| {
            assert_eq!(larder.keys().await, left);
            for key in left {
                assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
            }
            larder.settle_but_for_readers().await;
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            larder.audit(facts).await;
        });
    }
    assert!(facts.log.slots().is_empty(), "nothing is left of what has moved");
}

/// Crashes at later and later steps of `act`, each time after `prepare`, until `act` completes before the crash.
/// `prepare` returns the keys that are live from then on.
fn crash_at_each_step(
    seed: u64,
    prepare: &impl AsyncFn(&Larder) -> Vec<String>,
    act: &impl AsyncFn(&Larder, &[String]),
) {
    let (torn, mut step, mut crashed) = (&mut Rng::new(seed), 1, 0);
    loop {
        let mut site = site();
        site.policy.migration.pack_bytes = MIB;
        let facts = site.facts();
        let left = site.run(async |larder| prepare(larder).await);
        site.power.fail_in(step);
        let ended = site.boot_and(async |larder| act(larder, &left).await);
        if matches!(ended, Ended::Finished(())) {
            break;
        }
        crashed += 1;
        site.lose_power(torn);
        all_is_well(&mut site, &facts, &left);
        step = next_step(step, 1 + step / 20);
    }
    assert!(crashed > 40, "{crashed} crashes");
}

#[test]
fn a_crash_at_any_step_of_a_migration_and_of_what_is_freed_then_loses_nothing_and_leaves_nothing() {
    let prepare = async |larder: &Larder| {
        let mut keys = shuffled(60, 8);
        put_all(larder, &keys, 30 * KIB).await;
        keys.sort();
        keys
    };
    crash_at_each_step(7, &prepare, &async |larder: &Larder, _: &[String]| larder.settle().await);
}

#[test]
fn a_crash_at_any_step_of_a_compaction_loses_nothing_and_the_next_wake_goes_on() {
    let prepare = async |larder: &Larder| {
        let mut keys = shuffled(30, 10);
        put_all(larder, &keys, 30 * KIB).await;
        larder.settle().await;
        keys.sort();
        for key in &keys[..20] {
            larder.delete(key).await;
        }
        keys.split_off(20)
    };
    crash_at_each_step(9, &prepare, &async |larder: &Larder, left: &[String]| {
        assert_eq!(larder.get_retrying(&left[0]).await.unwrap(), 1);
        larder.settle().await;
        let places = join_all(left.iter().map(|key| larder.place(key))).await;
        assert!(!places.iter().any(is_staged));
    });
}

#[test]
fn a_copy_of_the_catalog_is_written_though_something_else_is_asked_for_while_it_is_composed() {
    let mut site = site();
    site.small_below_bytes = 0;
    site.run(async |larder| {
        larder.put("copy", 1, 5 * KIB).await.unwrap();
        let placed = larder.context.catalog.placed_objects(&[(BUCKET, "copy")]).await.unwrap().remove(0).unwrap();
        let version = placed.object.version;
        larder.world.write_copy(version, 5 * KIB, Vec::new());
        drop(larder.world.inspect(GroupId(0), false).await); // only the request itself matters here
        larder.until("the copy is on drives", HOUR, async || !larder.world.is_migrating(version).await).await;
        assert!(matches!(larder.place("copy").await, Place::Stored { .. }));
    });
}
