//! Hot and cold by rules: what moves and when, what stays, and how reads affect it.

use crate::site::{BUCKET, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, content};
use bytes::Bytes;
use catalog::{Object, Place, PutCondition};
use engine::MoveOrder;
use engine::thermometer::{Rule, Temperature, Thermometer};
use model::Rng;
use s3::store::ObjectStore;
use server::admin::Admin;
use std::time::Duration;

/// A site whose objects are hot unless one of these rules holds.
fn site(rules: Vec<Rule>) -> Site {
    let mut site = Site::nas8();
    site.policy.migration.thermometer = Thermometer { rules, default: Temperature::Hot };
    site
}

/// The paper's rule: older than 2 minutes and larger than 10 KB.
fn line() -> Rule {
    Rule { name: "line".into(), larger_than_bytes: Some(10_000), older_than: 2 * MINUTE, ..Rule::default() }
}

async fn is_staged(larder: &Larder, key: &str) -> bool {
    matches!(larder.place(key).await, Place::Staged { .. })
}

async fn staged(larder: &Larder, keys: &[&str]) -> Vec<String> {
    let mut staged = Vec::new();
    for key in keys {
        if is_staged(larder, key).await {
            staged.push((*key).to_owned());
        }
    }
    staged
}

/// Puts an object with the attributes of `object`.
async fn put_as(larder: &Larder, key: &str, object: Object) {
    let bucket = larder.service.head_bucket(BUCKET).await.unwrap();
    let bytes = object.bytes;
    let mut sink = larder.service.begin_put(&bucket, key, object, PutCondition::None).await.unwrap();
    sink.write(Bytes::from(content(key, 1, bytes))).await.unwrap();
    sink.commit(format!("1-{bytes}"), Vec::new()).await.unwrap();
}

#[test]
fn objects_move_by_rule_and_hot_ones_stay() {
    site(vec![line()]).run(async |larder| {
        larder.put_many("thumbnail", 5, 10_000).await;
        larder.put_many("picture", 5, 60_000).await;
        tokio::time::sleep(119 * SECOND).await;
        let usage = || async { larder.context.catalog.staged_usage().await.unwrap().count };
        assert_eq!(usage().await, 10, "all are young");
        tokio::time::sleep(2 * MINUTE).await;
        assert_eq!(usage().await, 5);
        assert!(is_staged(larder, "thumbnail0004").await && !is_staged(larder, "picture0000").await);
        tokio::time::sleep(100 * 24 * HOUR).await;
        assert_eq!(usage().await, 5, "what no rule names is never cold, whatever the age at which all is due");
        for key in larder.keys().await {
            assert_eq!(larder.get_retrying(&key).await.unwrap(), 1);
        }
    });
}

#[test]
fn an_installation_without_rules_goes_on_as_before() {
    let mut site = Site::nas8();
    site.policy.migration.thermometer = Thermometer::none();
    site.run(async |larder| {
        larder.put_many("k", 5, 10_000).await;
        larder.settle().await;
    });
}

#[test]
fn age_is_that_of_the_bytes_and_tags_are_those_of_now() {
    let raw = Rule { tags: vec![("kind".into(), "raw".into())], ..Rule::default() };
    site(vec![line(), raw]).run(async |larder| {
        let created_ms = (larder.context.wall)() - 3_600_000;
        put_as(larder, "copy", Object { bytes: 60_000, created_ms, ..Object::default() }).await;
        larder.put("new", 1, 60_000).await.unwrap();
        larder.put("small", 1, 10).await.unwrap();
        let tags = vec![("a".to_owned(), "b".to_owned()), ("kind".to_owned(), "raw".to_owned())];
        put_as(larder, "raw", Object { bytes: 10, tags, ..Object::default() }).await;
        tokio::time::sleep(MINUTE).await;
        assert_eq!(staged(larder, &["copy", "new", "small", "raw"]).await, ["new", "small"]);
        let tags = catalog::ObjectChange::Tags(vec![("kind".to_owned(), "raw".to_owned())]);
        larder.service.change(BUCKET, "small", tags).await.unwrap();
        tokio::time::sleep(MINUTE).await;
        assert!(!is_staged(larder, "small").await);
    });
}

/// A workshop of 10 MiB in which nothing moves because of its age, and objects are blobs of their own.
fn small_workshop(thermometer: Thermometer) -> Site {
    let mut site = Site::nas8();
    site.workshop_bytes = 10 * MIB;
    let migration = &mut site.policy.migration;
    (migration.due_age, migration.min_age, migration.pack_bytes) = (None, Duration::ZERO, 512 * KIB);
    migration.thermometer = thermometer;
    site
}

#[test]
fn what_was_read_through_moves_first_however_young_it_is() {
    let moved = ["a", "d"];
    let mut site = small_workshop(Thermometer::none());
    moves_in_order(&mut site, &moved, "the one that was read through, and then the oldest");
}

#[test]
fn by_age_it_is_the_oldest_whether_it_was_read_or_not() {
    let mut site = small_workshop(Thermometer::none());
    site.policy.migration.order = MoveOrder::Age;
    moves_in_order(&mut site, &["a", "b"], "the two oldest");
}

/// Asserts that of seven objects above the regular threshold, one of which was read completely, exactly `moved` have
/// moved at the end.
fn moves_in_order(site: &mut Site, moved: &[&str], why: &str) {
    site.run(async |larder| {
        for key in ["a", "b", "c", "d", "e"] {
            larder.put(key, 1, 512 * KIB).await.unwrap();
            tokio::time::sleep(SECOND).await;
        }
        // Reads half of an older one, and all of another in overlapping ranges.
        larder.get_range("b", Some(0..300 * KIB)).await.unwrap();
        for range in [200 * KIB..512 * KIB, 0..100 * KIB, 90 * KIB..210 * KIB] {
            larder.get_range("d", Some(range)).await.unwrap();
        }
        tokio::time::sleep(HOUR).await;
        assert_eq!(larder.context.catalog.staged_usage().await.unwrap().count, 5, "below the regular threshold");
        larder.put("f", 1, 512 * KIB).await.unwrap();
        larder.put("g", 1, 512 * KIB).await.unwrap();
        tokio::time::sleep(HOUR).await;
        let mut expected = vec!["a", "b", "c", "d", "e", "f", "g"];
        let left = staged(larder, &expected).await;
        expected.retain(|key| !moved.contains(key));
        assert_eq!(left, expected, "{why}");
    });
}

/// Puts objects at least a millisecond apart: objects staged in one millisecond have the same rank.
async fn put_apart(larder: &Larder, prefix: &str, count: u64) -> Vec<String> {
    let mut keys = Vec::new();
    for number in 0..count {
        let key = format!("{prefix}{number:04}");
        larder.put(&key, 1, 512 * KIB).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        keys.push(key);
    }
    keys
}

#[test]
fn hot_data_moves_only_above_critical_and_only_as_far_as_it_must() {
    small_workshop(Thermometer { rules: vec![], default: Temperature::Hot }).run(async |larder| {
        let keys = put_apart(larder, "k", 14).await;
        larder.get(&keys[9]).await.unwrap();
        tokio::time::sleep(24 * HOUR).await;
        assert_eq!(larder.context.catalog.staged_usage().await.unwrap().count, 14, "7 of 10 MiB are hot");
        assert_eq!(larder.status().status().await.unwrap().workshop.hot_moved_bytes, 0);
        put_apart(larder, "l", 4).await;
        tokio::time::sleep(HOUR).await;
        // Slightly more than 9 of 10 MiB were staged, with the heads of the files, and the threshold is 8.
        let workshop = larder.status().status().await.unwrap().workshop;
        assert_eq!((workshop.staged_count, workshop.hot_moved_bytes), (15, 3 * 512 * KIB));
        assert!((7 * MIB..8 * MIB).contains(&workshop.staged_bytes), "{workshop:?}");
        assert_eq!(staged(larder, &["k0000", "k0001", "k0002", "k0009"]).await, ["k0002"], "read through, then oldest");
        let warnings = larder.status().status().await.unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("hot objects had to move")), "{warnings:?}");
        tokio::time::sleep(24 * HOUR).await;
        assert_eq!(larder.context.catalog.staged_usage().await.unwrap().count, 15, "and no further");
    });
}

#[test]
fn above_critical_what_a_rule_calls_cold_goes_before_hot_data() {
    let cold = Rule { prefix: "cold".into(), older_than: HOUR, ..Rule::default() };
    small_workshop(Thermometer { rules: vec![cold], default: Temperature::Hot }).run(async |larder| {
        larder.put_many("cold", 6, 512 * KIB).await;
        larder.put_many("hot", 9, 512 * KIB).await;
        tokio::time::sleep(59 * MINUTE).await;
        assert_eq!(larder.context.catalog.staged_usage().await.unwrap().count, 15);
        tokio::time::sleep(MINUTE).await;
        larder.put_many("more", 3, 512 * KIB).await;
        tokio::time::sleep(HOUR).await;
        assert_eq!(larder.context.catalog.staged_usage().await.unwrap().count, 12);
        assert_eq!(larder.status().status().await.unwrap().workshop.hot_moved_bytes, 0);
    });
}

#[test]
fn a_read_keeps_an_object_hot_over_an_orderly_restart_and_a_crash() {
    let unread = Rule { unread_for: HOUR, ..Rule::default() };
    let mut site = site(vec![unread]);
    site.run(async |larder| {
        larder.put("read", 1, 60_000).await.unwrap();
        larder.put("unread", 1, 60_000).await.unwrap();
        tokio::time::sleep(50 * MINUTE).await;
        larder.get("read").await.unwrap();
        let reads = &larder.context.counters.reads;
        reads.end_run(&larder.context.catalog).await.unwrap();
    });
    let crashed = site.boot_and(async |larder| {
        tokio::time::sleep(40 * MINUTE).await;
        assert_eq!(staged(larder, &["read", "unread"]).await, ["read"]);
        larder.get("read").await.unwrap();
    });
    assert!(matches!(crashed, crate::site::Ended::Finished(())), "it ends without a word");
    site.lose_power(&mut Rng::new(1));
    site.run(async |larder| {
        tokio::time::sleep(55 * MINUTE).await;
        assert!(is_staged(larder, "read").await, "that it was read is lost, and so it counts as read at the start");
        tokio::time::sleep(10 * MINUTE).await;
        assert!(!is_staged(larder, "read").await);
    });
}

#[test]
fn a_clock_that_was_set_back_keeps_nothing_from_its_rule() {
    let mut site = site(vec![line()]);
    site.run(async |larder| larder.put("k", 1, 60_000).await.unwrap());
    site.set_wall_clock_back(365 * 24 * HOUR);
    site.run(async |larder| {
        tokio::time::sleep(MINUTE).await;
        assert!(!is_staged(larder, "k").await, "nobody knows how old it is");
        larder.put("l", 1, 60_000).await.unwrap();
        tokio::time::sleep(MINUTE).await;
        assert!(is_staged(larder, "l").await);
    });
}

#[test]
fn explain_names_the_rule_and_the_moment_and_the_dry_run_the_blobs_that_come() {
    let pinned = Rule { name: "pinned".into(), is: Temperature::Hot, prefix: "pinned/".into(), ..Rule::default() };
    site(vec![pinned, line()]).run(async |larder| {
        larder.put_many("pinned/", 3, 60_000).await;
        larder.put_many("k", 100, 60_000).await;
        larder.put("small", 1, 10).await.unwrap();
        let status = larder.status();
        let temperature = async |key: &str| status.explain(BUCKET, key).await.unwrap().unwrap().temperature;
        let young = temperature("k0000").await.unwrap();
        let next = young.next.clone().unwrap();
        assert_eq!((young.temperature.as_str(), young.rule, next.rule.number), ("hot", None, 2));
        assert_eq!(next.at_ms, young.created_ms + 120_000);
        assert_eq!((young.moves.when.as_str(), young.moves.at_ms), ("later", Some(next.at_ms)));
        let kept = temperature("pinned/0000").await.unwrap();
        assert_eq!((kept.temperature.as_str(), kept.rule.unwrap().name.as_str()), ("hot", "pinned"));
        assert_eq!((kept.rules.len(), kept.moves.when.as_str()), (2, "above_critical"));
        assert_eq!(temperature("small").await.unwrap().rules, []);
        let now = status.dry_run(BUCKET, "", None).await.unwrap().unwrap();
        assert_eq!((now.staged.objects, now.due.objects, now.later.objects), (104, 0, 100));
        assert_eq!(now.rules.iter().map(|rule| rule.total.objects).collect::<Vec<_>>(), [3, 0]);
        let sooner = Rule { older_than: Duration::ZERO, ..line() };
        let alone = status.dry_run(BUCKET, "k", Some(sooner)).await.unwrap().unwrap();
        assert_eq!((alone.due.objects, alone.due.bytes), (100, 6_000_000));
        assert_eq!(status.dry_run("no-such", "", None).await.unwrap(), None);
        assert_eq!(larder.starts(), 0);
        let before = larder.ask(|rack| rack.stats().migrated_bytes).await;
        tokio::time::sleep(10 * MINUTE).await;
        let mut blobs = std::collections::BTreeSet::new();
        for n in 0..100 {
            let Place::Stored { blob, .. } = larder.place(&format!("k{n:04}")).await else { panic!("it moved") };
            blobs.insert(blob);
        }
        assert_eq!(blobs.len() as u64, alone.due.blobs);
        assert!(larder.ask(|rack| rack.stats().migrated_bytes).await > before);
        assert!(u64::from(larder.starts()) <= alone.due.starts, "{} and {}", larder.starts(), alone.due.starts);
        assert_eq!(temperature("k0000").await, None, "in the rack nothing is left to say");
    });
}

#[test]
fn a_clock_that_jumps_ahead_makes_cold_what_its_rule_says_and_nothing_else_and_loses_nothing() {
    let mut site = site(vec![line()]);
    let facts = site.facts();
    site.run(async |larder| {
        larder.put("k", 1, 60_000).await.unwrap();
        larder.put("small", 1, 10_000).await.unwrap();
        larder.put_many("cold", 3, 60_000).await;
        tokio::time::sleep(MINUTE).await;
    });
    site.set_wall_clock(20 * 365 * 24 * HOUR);
    site.run(async |larder| {
        larder.put("new", 1, 60_000).await.unwrap();
        tokio::time::sleep(MINUTE).await;
        assert!(!is_staged(larder, "k").await, "by the clock it is old enough");
        assert!(is_staged(larder, "small").await && is_staged(larder, "new").await, "no rule calls these cold");
        for key in larder.keys().await {
            assert_eq!(larder.get_retrying(&key).await.unwrap(), 1);
        }
        larder.audit(&facts).await;
    });
    // And back again: objects staged meanwhile are dated in the future, and move without waiting for that time.
    site.set_wall_clock_back(20 * 365 * 24 * HOUR);
    site.run(async |larder| {
        tokio::time::sleep(5 * MINUTE).await;
        assert!(!is_staged(larder, "new").await && is_staged(larder, "small").await);
        assert_eq!(larder.keys().await.len(), 6);
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
    });
}
