//! The life of an object: workshop, rack, sleep, recall.

use crate::site::{HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, retry_after_s};
use catalog::Place;
use engine::GroupState;
use model::ClassId;
use s3::store::ServiceError;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[test]
fn what_was_put_is_got_from_the_workshop_without_a_drive() {
    Site::nas8().run(async |larder| {
        for (n, bytes) in [0, 1, 4095, 4096, 4097, 3 * MIB + 5].into_iter().enumerate() {
            let key = format!("k{n}");
            larder.put(&key, 7, bytes).await.unwrap();
            assert_eq!(larder.get(&key).await.unwrap(), 7);
            assert!(matches!(larder.place(&key).await, Place::Staged { .. }));
        }
        assert_eq!(larder.starts(), 0);
    });
}

#[test]
fn a_day_passes_in_milliseconds_and_cold_bytes_come_back_exactly() {
    let begun = Instant::now();
    Site::nas8().run(async |larder| {
        larder.put("a/large", 3, 9 * MIB + 123).await.unwrap();
        larder.put("a/empty", 4, 0).await.unwrap();
        larder.put_many("a/small", 20, 3000).await;
        larder.settle().await;
        tokio::time::sleep(24 * HOUR).await;
        let starts = larder.starts();
        let group = larder.group_of("a/large").await;
        assert_eq!(larder.state(group).await, GroupState::Asleep);
        assert_eq!(larder.get("a/large").await.unwrap(), 3);
        assert_eq!(larder.starts(), starts + 4, "the drives of one group started");
        assert!(matches!(larder.state(group).await, GroupState::Idle | GroupState::Busy), "it may read ahead");
        assert_eq!(larder.get("a/empty").await.unwrap(), 4);
        assert_eq!(larder.get_retrying("a/small0007").await.unwrap(), 1);
        tokio::time::sleep(10 * MINUTE).await;
        assert!(larder.is_asleep().await, "without work it goes to sleep");
    });
    assert!(begun.elapsed().as_secs() < 20, "virtual hours are not waited for");
}

#[test]
fn ranges_of_a_cold_object_are_exact() {
    Site::nas8().run(async |larder| {
        let bytes = 5 * MIB + 77;
        larder.put("o", 1, bytes).await.unwrap();
        larder.settle().await;
        for range in [0..1, 0..bytes, 262_143..262_145, bytes - 1..bytes, MIB..3 * MIB + 1, 100..100] {
            assert_eq!(larder.get_range("o", Some(range)).await.unwrap(), 1);
        }
    });
}

#[test]
fn a_range_costs_only_the_stripes_that_it_lies_in() {
    Site::nas8().run(async |larder| {
        larder.put("o", 1, 16 * MIB).await.unwrap();
        larder.settle().await;
        larder.get_range("o", Some(MIB + 5..MIB + 10)).await.unwrap();
        assert_eq!(larder.ask(|rack| rack.stats().read_bytes).await, 256 * KIB);
    });
}

#[test]
fn many_small_objects_share_packs() {
    Site::nas8().run(async |larder| {
        let keys = larder.put_many("small/", 300, 10 * KIB).await;
        larder.settle().await;
        let mut blobs = BTreeSet::new();
        for key in &keys {
            let Place::Stored { blob, .. } = larder.place(key).await else { panic!("{key} is staged") };
            blobs.insert(blob);
        }
        assert!(blobs.len() <= 2, "{} blobs for 3 MB", blobs.len());
        // Neighbours cost nothing: one recall of the pack's stripes answers them all.
        for key in &keys {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        let read = larder.ask(|rack| rack.stats().read_bytes).await;
        assert!(read <= 4 * MIB, "{read} bytes were read for 3 MB");
    });
}

#[test]
fn a_client_that_waits_briefly_is_told_when_to_come_again_and_finds_it_in_the_spool() {
    let mut site = Site::nas8();
    site.max_wait = SECOND;
    site.run(async |larder| {
        larder.put("o", 5, 3 * MIB).await.unwrap();
        larder.settle().await;
        let group = larder.group_of("o").await;
        let refused = larder.get("o").await.unwrap_err();
        let wait = retry_after_s(&refused).expect("503 with Retry-After");
        assert!((5..=60).contains(&wait), "{wait} s");
        assert_eq!(larder.state(group).await, GroupState::Waking, "the recall goes on");
        larder.until("the group sleeps again", HOUR, async || larder.is_asleep().await).await;
        let starts = larder.starts();
        assert_eq!(larder.get("o").await.unwrap(), 5);
        assert_eq!(larder.starts(), starts, "the retry touches no drive");
    });
}

#[test]
fn a_client_waits_as_long_as_it_may_although_the_forecast_is_longer() {
    let mut site = Site::nas8();
    site.max_wait = 10 * SECOND;
    site.run(async |larder| {
        larder.put("o", 5, 3 * MIB).await.unwrap();
        larder.settle().await;
        let group = larder.group_of("o").await;
        let forecast = larder.world.ask(move |rack, now| rack.forecast(group, now)).await.unwrap();
        assert!(forecast.expected > 10 * SECOND, "{forecast:?}");
        let began = tokio::time::Instant::now();
        assert!(retry_after_s(&larder.get("o").await.unwrap_err()).is_some());
        assert_eq!(began.elapsed().as_secs(), 10, "neither sooner nor later");
        assert_eq!(larder.get("o").await.unwrap(), 5, "the second try waits for the rest");
        assert!(began.elapsed() <= forecast.max + SECOND, "the recall went on: {:?}", began.elapsed());
    });
}

#[test]
fn a_head_of_a_cold_object_says_when_its_bytes_would_be_there_and_wakes_nothing() {
    use s3::store::ObjectStore;
    Site::nas8().run(async |larder| {
        larder.put("o", 5, 3 * MIB).await.unwrap();
        let located = async || larder.service.locate(crate::site::BUCKET, "o").await.unwrap().object.unwrap();
        let forecast = async || larder.service.recall_forecast(&located().await).await.unwrap();
        assert_eq!(forecast().await, None, "it is staged");
        larder.settle().await;
        let expected = forecast().await.expect("it is cold");
        assert!((10 * SECOND..20 * SECOND).contains(&expected), "{expected:?}");
        tokio::time::sleep(MINUTE).await;
        assert!(larder.is_asleep().await);
        assert_eq!(larder.get("o").await.unwrap(), 5);
        assert_eq!(forecast().await, None, "it is in the spool");
    });
}

#[test]
fn a_client_that_waits_briefly_is_told_why_its_recall_came_to_nothing() {
    let mut site = Site::nas8();
    site.max_wait = SECOND;
    let facts = site.facts();
    site.run(async |larder| {
        larder.put("o", 5, 3 * MIB).await.unwrap();
        larder.settle().await;
    });
    for stack in facts.stacks().iter().filter(|stack| stack.index < 2) {
        facts.media[stack.drive].flip_bit(&stack.name, 10_000, 16);
    }
    site.run(async |larder| {
        assert!(retry_after_s(&larder.get("o").await.unwrap_err()).is_some(), "nobody knows yet");
        for _ in 0..2 {
            larder.until("the group sleeps again", HOUR, async || larder.is_asleep().await).await;
            let began = tokio::time::Instant::now();
            let refused = larder.get("o").await;
            assert!(matches!(refused, Err(ServiceError::DataLost { .. })), "{refused:?}");
            assert!(began.elapsed() < SECOND / 2, "nobody waits once more for what is known");
        }
        larder.until("the next recall has ended as well", HOUR, async || larder.is_asleep().await).await;
    });
}

#[test]
fn without_any_wait_a_retry_finds_what_was_recalled() {
    let mut site = Site::nas8();
    site.max_wait = Duration::ZERO;
    site.run(async |larder| {
        larder.put("o", 5, 3 * MIB).await.unwrap();
        larder.settle().await;
        assert!(retry_after_s(&larder.get("o").await.unwrap_err()).is_some());
        tokio::time::sleep(MINUTE).await;
        assert_eq!(larder.get("o").await.unwrap(), 5);
    });
}

#[test]
fn lists_and_heads_touch_no_drive() {
    Site::nas8().run(async |larder| {
        use s3::store::ObjectStore;
        let keys = larder.put_many("x/", 40, 100 * KIB).await;
        larder.settle().await;
        let starts = larder.starts();
        assert_eq!(larder.keys().await, keys);
        for key in &keys {
            assert_eq!(larder.service.head(crate::site::BUCKET, key).await.unwrap().bytes, 100 * KIB);
        }
        assert!(larder.is_asleep().await);
        assert_eq!(larder.starts(), starts);
    });
}

#[test]
fn a_pinned_prefix_stays_in_its_class() {
    let mut site = Site::new("pelican-mini");
    site.pin = Some(("films/", ClassId(1)));
    site.run(async |larder| {
        let keys = larder.put_many("films/", 12, 900 * KIB).await;
        larder.put_many("other/", 12, 900 * KIB).await;
        larder.settle().await;
        for key in &keys {
            let group = larder.group_of(key).await;
            assert_eq!(larder.ask(move |rack| rack.layout().class_of(group)).await, ClassId(1));
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
    });
}

#[test]
fn two_classes_of_a_larger_rack_serve_at_once() {
    let mut site = Site::new("pelican-mini");
    site.policy.idle_timeout = engine::IdleTimeout::After(HOUR);
    site.pin = Some(("films/", ClassId(1)));
    site.run(async |larder| {
        larder.put("films/a", 1, 5 * MIB).await.unwrap();
        larder.put_many("other/", 30, 2 * MIB).await;
        larder.settle().await;
        let mut other = None;
        for key in larder.keys().await {
            let group = larder.group_of(&key).await;
            if larder.ask(move |rack| rack.layout().class_of(group)).await == ClassId(0) {
                other = Some(key);
            }
        }
        let other = other.expect("random placement finds both classes");
        let before = tokio::time::Instant::now();
        let (one, two) = tokio::join!(larder.get("films/a"), larder.get(&other));
        assert_eq!((one.unwrap(), two.unwrap()), (1, 1));
        assert!(before.elapsed() < 12 * SECOND, "neither waited for the other's wake");
        both_awake(larder).await;
    });
}

async fn both_awake(larder: &Larder) {
    let awake = larder
        .ask(|rack| {
            let groups = 0..rack.layout().groups.len() as u32;
            groups.filter(|g| rack.group_state(model::GroupId(*g)) == GroupState::Idle).count()
        })
        .await;
    assert_eq!(awake, 2);
}
