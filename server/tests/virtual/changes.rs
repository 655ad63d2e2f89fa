//! Objects that are overwritten and deleted while other work is under way; and the space that they leave.

use crate::site::{BUCKET, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, content, read_out, retry_after_s};
use catalog::{Bucket, Place, User};
use engine::GroupState;
use futures::StreamExt;
use futures::future::join_all;
use model::GroupId;
use s3::store::{GetBody, ObjectStore, ServiceError};
use std::time::Duration;

/// Waits in small steps, so that it returns at the moment when `done` holds.
async fn soon(what: &str, mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..200_000 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: not within 200 s");
}

/// Wakes the group of `key`, and waits until it sleeps again.
async fn visit(larder: &Larder, key: &str) {
    let group = larder.group_of(key).await;
    larder.get_retrying(key).await.unwrap();
    larder.until("asleep", HOUR, async || larder.state(group).await == GroupState::Asleep).await;
}

/// The number of steps that a migration of three objects takes.
fn steps_of_a_migration() -> u64 {
    let mut site = Site::nas8();
    let power = site.power.clone();
    site.run(async |larder| {
        larder.put_many("k", 3, 200 * KIB).await;
        let before = power.steps();
        larder.settle().await;
        power.steps() - before
    })
}

#[test]
fn a_version_may_change_at_any_step_of_its_migration() {
    let steps = steps_of_a_migration();
    assert!(steps > 50, "{steps}");
    for step in 1..=steps {
        let mut site = Site::nas8();
        let (power, facts) = (site.power.clone(), site.facts());
        site.run(async |larder| {
            larder.put_many("k", 3, 200 * KIB).await;
            power.after(step).await;
            if step % 2 == 0 {
                larder.delete("k0001").await;
            } else {
                larder.put("k0001", 2, 100 * KIB).await.unwrap();
            }
            larder.settle().await;
            larder.audit(&facts).await;
            let now = larder.get_retrying("k0001").await;
            match (step % 2, now) {
                (0, Err(ServiceError::NoSuchKey)) | (1, Ok(2)) => {}
                (_, now) => panic!("step {step}: {now:?}"),
            }
            assert_eq!(larder.get_retrying("k0000").await.unwrap(), 1);
            assert_eq!(larder.get_retrying("k0002").await.unwrap(), 1);
        });
    }
}

#[test]
fn who_waits_for_a_cold_object_gets_the_version_that_was_there_when_he_asked() {
    for overwrite in [false, true] {
        let mut site = Site::nas8();
        let facts = site.facts();
        site.run(async |larder| {
            larder.put("o", 1, 3 * MIB).await.unwrap();
            larder.settle().await;
            let (got, ()) = tokio::join!(larder.get("o"), async {
                tokio::time::sleep(5 * SECOND).await;
                if overwrite {
                    larder.put("o", 2, MIB).await.unwrap();
                } else {
                    larder.delete("o").await;
                }
            });
            assert_eq!(got.unwrap(), 1);
            if overwrite {
                assert_eq!(larder.get("o").await.unwrap(), 2);
            } else {
                assert!(matches!(larder.get("o").await, Err(ServiceError::NoSuchKey)));
            }
            larder.settle().await;
            larder.audit(&facts).await;
        });
    }
}

#[test]
fn a_reader_of_an_old_version_finishes_although_its_group_wakes_and_reclaims() {
    let mut site = Site::nas8();
    site.spool_bytes = 8 * MIB;
    site.policy.group_choice = engine::GroupChoice::Batch { bytes: 1 << 40 };
    let facts = site.facts();
    site.run(async |larder| {
        larder.put("old", 1, 12 * MIB).await.unwrap();
        larder.put("beside", 1, 5 * MIB).await.unwrap();
        larder.settle().await;
        assert_eq!(larder.group_of("old").await, larder.group_of("beside").await);
        let GetBody { object, mut bytes } = larder.service.get(BUCKET, "old", None).await.unwrap();
        let first = bytes.next().await.unwrap().unwrap();
        larder.delete("old").await;
        let full = facts.media_bytes();
        for _ in 0..2 {
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            visit(larder, "beside").await;
        }
        assert_eq!(facts.media_bytes(), full, "the old version is still held");
        let mut all = first.to_vec();
        while let Some(piece) = bytes.next().await {
            all.extend_from_slice(&piece.unwrap());
        }
        drop(bytes);
        assert!(all == content("old", 1, object.bytes));
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        tokio::time::sleep(HOUR).await;
        // The spool holds all of `beside`; one that it does not hold wakes the group.
        larder.put("beside", 2, 5 * MIB).await.unwrap();
        larder.settle().await;
        assert!(facts.media_bytes() < full * 2 / 3, "{} of {full}", facts.media_bytes());
        larder.audit(&facts).await;
    });
}

#[test]
fn what_is_deleted_gives_its_space_back_at_the_next_wake() {
    let mut site = Site::nas8();
    site.policy.group_choice = engine::GroupChoice::Batch { bytes: 1 << 40 };
    let facts = site.facts();
    site.run(async |larder| {
        larder.put_many("gone/", 10, 5 * MIB).await;
        larder.put("kept", 1, 5 * MIB).await.unwrap();
        larder.settle().await;
        let full = facts.media_bytes();
        for n in 0..10 {
            larder.delete(&format!("gone/{n:04}")).await;
        }
        tokio::time::sleep(HOUR).await;
        assert!(larder.is_asleep().await, "a delete wakes nobody");
        assert_eq!(facts.media_bytes(), full);
        let group = larder.group_of("kept").await;
        assert!(larder.ask(move |rack| rack.dead_bytes(group)).await >= 50 * MIB);
        visit(larder, "kept").await;
        assert!(facts.media_bytes() < full / 10, "{} of {full}", facts.media_bytes());
        assert_eq!(larder.ask(move |rack| rack.dead_bytes(group)).await, 0);
        larder.audit(&facts).await;
    });
}

#[test]
fn what_still_lives_in_a_mostly_dead_pack_is_evacuated() {
    let mut site = Site::nas8();
    site.policy.evacuate_permille = 500;
    let facts = site.facts();
    site.run(async |larder| {
        let (keys, blob) = larder.mostly_dead_blob().await;
        visit(larder, "k0000").await;
        // It is staged again and moves again; at the next wake of the old group the old pack is removed.
        larder.settle().await;
        for key in &keys[..2] {
            assert!(!matches!(larder.place(key).await, Place::Stored { blob: b, .. } if b == blob), "evacuated");
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        larder.audit(&facts).await;
        larder
            .until("the old pack goes", 48 * HOUR, async || {
                larder.put("tick", 1, 300 * KIB).await.unwrap();
                larder.settle().await;
                larder.context.catalog.blob(blob).await.unwrap().is_none()
            })
            .await;
        larder.audit(&facts).await;
        for key in &keys[..2] {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
    });
}

#[test]
fn a_full_workshop_says_when_to_come_again_and_is_drained() {
    let mut site = Site::nas8();
    site.workshop_bytes = 20 * MIB;
    // Nothing is due by age; only the thresholds move anything.
    site.policy.migration.due_age = None;
    site.run(async |larder| {
        let mut put = 0;
        let refused = loop {
            match larder.put(&format!("k{put:04}"), 1, 2 * MIB).await {
                Ok(()) => put += 1,
                Err(error) => break error,
            }
        };
        assert!((8..=10).contains(&put), "{put}");
        assert!(retry_after_s(&refused).is_some(), "{refused}");
        larder.until("there is room again", HOUR, async || larder.put("more", 1, 2 * MIB).await.is_ok()).await;
        for n in 0..put {
            assert_eq!(larder.get_retrying(&format!("k{n:04}")).await.unwrap(), 1);
        }
        larder
            .until("drained to the regular threshold", HOUR, async || {
                larder.context.staging.usage().staged_bytes <= 20 * MIB * 3 / 10
            })
            .await;
    });
}

#[test]
fn many_readers_share_a_spool_that_holds_none_of_their_objects() {
    let mut site = Site::nas8();
    site.spool_bytes = 8 * MIB;
    site.run(async |larder| {
        let keys = larder.put_many("k", 10, 11 * MIB).await;
        larder.settle().await;
        let before = tokio::time::Instant::now();
        let got = join_all(keys.iter().map(|key| larder.get_retrying(key))).await;
        assert!(got.into_iter().all(|got| got.unwrap() == 1));
        let took = before.elapsed();
        assert!(took < 5 * MINUTE, "{took:?}");
        assert!(larder.context.spool.usage().used_bytes <= 8 * MIB);
    });
}

#[test]
fn a_slow_reader_keeps_no_group_awake() {
    let mut site = Site::nas8();
    site.spool_bytes = 16 * MIB;
    site.run(async |larder| {
        larder.put("o", 1, 12 * MIB).await.unwrap();
        larder.settle().await;
        let mut body = larder.service.get(BUCKET, "o", None).await.unwrap();
        let first = body.bytes.next().await.unwrap().unwrap();
        tokio::time::sleep(20 * MINUTE).await;
        assert!(larder.is_asleep().await);
        let rest = futures::stream::once(async { Ok(first) }).chain(body.bytes);
        let body = GetBody { object: body.object, bytes: rest.boxed() };
        assert_eq!(read_out("o", body, None).await.unwrap(), 1);
    });
}

#[test]
fn closing_with_work_in_flight_ends_it_and_loses_nothing() {
    let mut site = Site::nas8();
    let facts = site.facts();
    for wait in [0, 1, 10, 14_000, 20_000, 31_000, 36_000, 42_000, 45_000, 48_000] {
        site.boot_and(async |larder| {
            larder.put_many(&format!("{wait}/"), 8, 2 * MIB).await;
            let reading = async {
                for key in larder.keys().await {
                    match larder.get(&key).await {
                        Ok(_) | Err(ServiceError::SlowDown { .. } | ServiceError::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            tokio::join!(reading, async {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                larder.close().await;
            });
        });
    }
    site.run(async |larder| {
        larder.settle().await;
        larder.audit(&facts).await;
        for key in larder.keys().await {
            assert_eq!(larder.get_retrying(&key).await.unwrap(), 1);
        }
    });
}

#[test]
fn closing_while_a_write_fails_ends_all_the_same() {
    for call in 1..=20 {
        let mut site = Site::nas8();
        let media = site.media.clone();
        site.boot_and(async |larder| {
            larder.put("o", 1, 5 * MIB).await.unwrap();
            soon("the group is busy", async || {
                let states = [larder.state(GroupId(0)).await, larder.state(GroupId(1)).await];
                states.contains(&GroupState::Busy)
            })
            .await;
            for medium in &media {
                medium.fail_call(call);
            }
            larder.close().await;
        });
        site.run(async |larder| {
            larder.settle().await;
            assert_eq!(larder.get("o").await.unwrap(), 1, "call {call} failed");
        });
    }
}

/// The request was admitted when the user still existed.
#[test]
fn whoever_is_removed_while_he_makes_a_bucket_has_no_key_any_more() {
    Site::nas8().run(async |larder| {
        let theirs = |name: &str| Bucket::new(name, 0, "bob");
        let refused = larder.service.create_bucket(theirs("attic")).await;
        assert!(matches!(refused, Err(ServiceError::NoSuchAccessKey)), "{refused:?}");
        let name = "bob".to_owned();
        let user = User { name, access_key: "AK".into(), secret: "s".into(), created_ms: 1, rotated_ms: 1 };
        larder.context.catalog.add_user(&user).await.unwrap();
        larder.service.create_bucket(theirs("attic")).await.unwrap();
    });
}
