//! Meta, ids, users, buckets, drives.

use super::{catalog, catalog_in, object, put, sound};
use crate::{
    Acl, Bucket, BucketChange, Catalog, CatalogError, ChecksRecord, ClockAnchor, Cursor, DriveHabits, DriveHealth,
    DriveRecord, MemoryStore, Ownership, PutCondition, StagedWhen, Store, StoreError, User, VersionId, Write,
};
use model::{DriveId, PowerHabits, PowerUpInStandby, Smart, UnaskedWake};
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test]
async fn meta_and_anchors_are_kept_apart() {
    let catalog = catalog().await;
    catalog.meta_put("rack-uuid", b"mine".to_vec()).await.unwrap();
    assert_eq!(catalog.rack_uuid().await.unwrap(), None);
    catalog.set_rack_uuid([7; 16]).await.unwrap();
    catalog.set_rack_uuid([7; 16]).await.unwrap();
    assert!(matches!(catalog.set_rack_uuid([8; 16]).await, Err(CatalogError::PreconditionFailed)));
    assert_eq!(catalog.rack_uuid().await.unwrap(), Some([7; 16]));
    assert_eq!(catalog.meta_get("rack-uuid").await.unwrap().unwrap(), b"mine");
    let anchor = ClockAnchor { wall_ms: 5, modelled_ns: 6 };
    catalog.set_clock_anchor(anchor).await.unwrap();
    assert_eq!(catalog.clock_anchor().await.unwrap(), Some(anchor));
}

#[tokio::test]
async fn ids_are_never_given_out_twice_across_crashes_and_tasks() {
    let mut store = MemoryStore::new();
    let (mut seen, mut highest) = (BTreeSet::new(), 0);
    for _ in 0..4 {
        let catalog = Catalog::open(Arc::new(store.clone())).await.unwrap();
        let other = Catalog::open(Arc::new(store.clone())).await.unwrap();
        let first = catalog.next_version_id().await.unwrap().0;
        assert!(first > highest, "versions grow");
        seen.insert(first);
        for _ in 0..1_500 {
            assert!(seen.insert(catalog.next_version_id().await.unwrap().0));
            assert!(seen.insert(other.next_version_id().await.unwrap().0));
        }
        highest = *seen.last().unwrap();
        store = store.crash();
    }
    assert!(!seen.contains(&0), "0 stands for no version");
}

fn user(name: &str, access_key: &str) -> User {
    let (access_key, secret) = (access_key.to_owned(), format!("{name}'s secret"));
    User { name: name.to_owned(), access_key, secret, created_ms: 1, rotated_ms: 1 }
}

#[tokio::test]
async fn a_user_is_added_once_and_replaced_or_removed_only_if_there() {
    let catalog = catalog().await;
    catalog.add_user(&user("adam", "1")).await.unwrap();
    assert!(matches!(catalog.add_user(&user("adam", "2")).await, Err(CatalogError::UserExists)));
    assert!(matches!(catalog.replace_user(&user("zoe", "2")).await, Err(CatalogError::NoSuchUser)));
    catalog.replace_user(&user("adam", "3")).await.unwrap();
    assert_eq!(catalog.users().await.unwrap(), [user("adam", "3")]);
    catalog.remove_user("adam").await.unwrap();
    assert!(matches!(catalog.remove_user("adam").await, Err(CatalogError::NoSuchUser)));
    assert_eq!(catalog.users().await.unwrap(), []);
}

#[tokio::test]
async fn a_bucket_changes_in_what_was_asked_and_keeps_the_rest() {
    let catalog = catalog().await;
    let tags = vec![("shelf".to_owned(), "top".to_owned())];
    catalog.change_bucket("b", &BucketChange::Tags(tags.clone())).await.unwrap();
    catalog.change_bucket("b", &BucketChange::Acl(Acl::PublicRead)).await.unwrap();
    let ownership = Some(Ownership::ObjectWriter);
    let now = catalog.change_bucket("b", &BucketChange::Ownership(ownership)).await.unwrap();
    assert_eq!(now, Bucket { acl: Acl::PublicRead, ownership, tags, ..Bucket::new("b", 1, "me") });
    assert_eq!(catalog.bucket("b").await.unwrap(), now);
    let nowhere = catalog.change_bucket("none", &BucketChange::Acl(Acl::Private)).await;
    assert!(matches!(nowhere, Err(CatalogError::NoSuchBucket)));
}

#[tokio::test]
async fn what_was_meant_for_a_bucket_does_not_get_into_another_one_of_its_name() {
    let catalog = catalog().await;
    let mine = catalog.bucket("b").await.unwrap();
    let put = async |number: u64| {
        catalog.put_object((&mine, "k"), &object(VersionId(number), 1, 1), number, &PutCondition::None).await
    };
    catalog.change_bucket("b", &BucketChange::Acl(Acl::PublicRead)).await.unwrap();
    put(1).await.expect("it was changed, and is the same");
    catalog.delete_object("b", "k").await.unwrap();
    for another in [Bucket::new("b", 1, "eve"), Bucket::new("b", 2, "me")] {
        catalog.delete_bucket("b").await.unwrap();
        assert!(matches!(put(2).await, Err(CatalogError::NoSuchBucket)));
        catalog.create_bucket(&another).await.unwrap();
        assert!(matches!(put(3).await, Err(CatalogError::NoSuchBucket)), "{another:?}");
        assert!(matches!(catalog.head_object("b", "k").await, Err(CatalogError::NoSuchKey)));
    }
}

#[tokio::test]
async fn a_bucket_is_made_for_a_user_who_is_there() {
    let catalog = catalog().await;
    let (attic, cellar) = (Bucket::new("attic", 1, "ann"), Bucket::new("cellar", 1, "ann"));
    assert!(matches!(catalog.create_users_bucket(&attic).await, Err(CatalogError::NoSuchUser)));
    catalog.add_user(&user("ann", "1")).await.unwrap();
    catalog.create_users_bucket(&attic).await.unwrap();
    assert!(matches!(catalog.create_users_bucket(&attic).await, Err(CatalogError::BucketExists)));
    catalog.remove_user("ann").await.unwrap();
    assert!(matches!(catalog.create_users_bucket(&cellar).await, Err(CatalogError::NoSuchUser)));
    assert_eq!(catalog.buckets().await.unwrap().len(), 2);
}

#[tokio::test]
async fn users_and_drives_are_listed_in_order() {
    let catalog = catalog().await;
    for name in ["zoe", "adam"] {
        catalog.add_user(&user(name, "1")).await.unwrap();
    }
    assert_eq!(catalog.users().await.unwrap(), [user("adam", "1"), user("zoe", "1")]);
    for drive in [300, 2] {
        let record = DriveRecord { drive: DriveId(drive), day: 1, starts: 2, starts_total: 3 };
        catalog.drive_put(&record).await.unwrap();
    }
    let drives: Vec<_> = catalog.drives().await.unwrap().into_iter().map(|record| record.drive.0).collect();
    assert_eq!(drives, [2, 300]);
    assert_eq!(catalog.drive(DriveId(2)).await.unwrap().unwrap().starts_total, 3);
}

#[tokio::test]
async fn the_first_count_of_bad_sectors_stays_until_another_drive_takes_the_place() {
    let store = MemoryStore::new();
    let catalog = Catalog::open(Arc::new(store.clone())).await.unwrap();
    let said = |drive, reallocated_sectors| {
        let said = Smart { reallocated_sectors, ..Smart::default() };
        DriveHealth { drive, said, ..DriveHealth::default() }
    };
    let put = async |health: DriveHealth| catalog.put_drive_health(health).await.unwrap().first_bad_sectors;
    assert_eq!(put(said(300, None)).await, 0, "nothing is said of them");
    assert_eq!(put(said(300, Some(8))).await, 8, "this is the first count");
    let mut worse = said(300, Some(9));
    worse.said.pending_sectors = Some(2);
    assert_eq!(put(worse).await, 8);
    assert_eq!(put(said(2, Some(1))).await, 1);
    let again = Catalog::open(Arc::new(store)).await.unwrap();
    let known = again.drive_healths().await.unwrap();
    assert_eq!(known.iter().map(|health| health.drive).collect::<Vec<_>>(), [2, 300]);
    assert_eq!((known[1].first_bad_sectors, known[1].said.bad_sectors()), (8, Some(11)));
    again.fail_drive(DriveId(300), 7).await.unwrap();
    assert_eq!(again.replace_drive(DriveId(300), [1; 16]).await.unwrap(), Some(0));
    assert_eq!(again.drive_healths().await.unwrap().len(), 1);
    assert_eq!(again.put_drive_health(said(300, Some(0))).await.unwrap().first_bad_sectors, 0);
}

#[tokio::test]
async fn what_was_seen_of_a_drive_outlives_what_it_says_of_itself() {
    let catalog = catalog().await;
    let wake = |by_itself| UnaskedWake { found_ms: 7, by_itself, cause: "flushes: 2".into() };
    catalog.note_unasked_wake(DriveId(1), wake(false)).await.unwrap();
    for _ in 0..2 {
        catalog.note_unasked_wake(DriveId(1), wake(true)).await.unwrap();
    }
    let puis = Some(PowerUpInStandby::EnabledUntilSpunUp);
    let said = PowerHabits { power_up_in_standby: puis, apm_level: Some(96), ..PowerHabits::default() };
    catalog.put_drive_habits(DriveId(1), said).await.unwrap();
    let known = catalog.drive_habits().await.unwrap();
    assert_eq!(
        known,
        [DriveHabits { drive: 1, said, woke_itself: 1, woken_by_others: 1, last_wake: Some(wake(true)) }]
    );
    catalog.fail_drive(DriveId(1), 7).await.unwrap();
    catalog.replace_drive(DriveId(1), [1; 16]).await.unwrap();
    assert_eq!(catalog.drive_habits().await.unwrap(), []);
}

#[tokio::test]
async fn a_drive_is_remembered_as_initialised_until_another_takes_its_place_or_the_record_is_damaged() {
    let store = MemoryStore::new();
    let catalog = Catalog::open(Arc::new(store.clone())).await.unwrap();
    let known = async |catalog: &Catalog| catalog.initialised_drives().await.unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(known(&catalog).await, []);
    let (one, other) = ([DriveId(3), DriveId(1)], [DriveId(2)]);
    let (first, second) = tokio::join!(catalog.note_initialised(&one, 5), catalog.note_initialised(&other, 6));
    first.and(second).unwrap();
    assert_eq!(known(&catalog).await, [1, 2, 3].map(DriveId), "two at once lose nothing");
    catalog.fail_drive(DriveId(2), 7).await.unwrap();
    assert_eq!(catalog.replace_drive(DriveId(2), [1; 16]).await.unwrap(), Some(0));
    let again = Catalog::open(Arc::new(store.clone())).await.unwrap();
    assert_eq!(known(&again).await, [1, 3].map(DriveId));
    store.corrupt(&crate::key::meta("initialised-drives"), |bytes| bytes[2] ^= 1);
    assert_eq!(known(&again).await, [], "then every group is initialised once more");
    again.note_initialised(&one, 8).await.unwrap();
    assert_eq!(known(&again).await, [1, 3].map(DriveId));
    sound(&again).await;
}

#[tokio::test]
async fn a_pass_of_checks_is_remembered_with_its_place_and_begins_anew_if_its_record_is_damaged() {
    let store = MemoryStore::new();
    let catalog = catalog_in(Arc::new(store.clone())).await;
    for key in ["c", "a", "b"] {
        put(&catalog, key, 10, 1).await;
    }
    let versions = catalog.staged_page(None, StagedWhen::until(u64::MAX), 9).await.unwrap().items;
    let place = Cursor::behind_staged(&versions[0]);
    let record = ChecksRecord { begun_ns: 5, objects: 1, behind: Some(place), ..ChecksRecord::default() };
    assert_eq!(catalog.checks().await.unwrap(), None);
    catalog.note_checks(&record).await.unwrap();
    let again = Catalog::open(Arc::new(store.clone())).await.unwrap();
    let found = again.checks().await.unwrap().unwrap();
    assert_eq!(found, record);
    let rest = again.staged_page(found.behind.as_ref(), StagedWhen::until(u64::MAX), 9).await.unwrap().items;
    assert_eq!(rest, versions[1..]);
    store.corrupt(&crate::key::meta("workshop-checks"), |bytes| bytes[2] ^= 1);
    assert_eq!(again.checks().await.unwrap(), None);
    again.note_checks(&ChecksRecord { behind: None, ..record }).await.unwrap();
    assert_eq!(again.checks().await.unwrap().unwrap().behind, None);
    sound(&again).await;
}

#[tokio::test]
async fn buckets_are_made_once_and_removed_only_when_empty() {
    let catalog = catalog().await;
    let again = Bucket::new("b", 2, "you");
    assert!(matches!(catalog.create_bucket(&again).await, Err(CatalogError::BucketExists)));
    assert_eq!(catalog.bucket("b").await.unwrap().owner, "me");
    put(&catalog, "k", 1, 1).await;
    assert!(matches!(catalog.delete_bucket("b").await, Err(CatalogError::BucketNotEmpty)));
    sound(&catalog).await;
    catalog.delete_object("b", "k").await.unwrap();
    catalog.delete_bucket("b").await.unwrap();
    assert!(matches!(catalog.delete_bucket("b").await, Err(CatalogError::NoSuchBucket)));
    assert!(catalog.buckets().await.unwrap().is_empty());
    let late = catalog.put_object((&super::bucket(), "k"), &object(VersionId(9), 1, 1), 1, &PutCondition::None).await;
    assert!(matches!(late, Err(CatalogError::NoSuchBucket)));
    sound(&catalog).await;
}

#[tokio::test]
async fn a_put_and_the_removal_of_its_bucket_never_both_succeed() {
    for _ in 0..50 {
        let catalog = catalog().await;
        let putting = catalog.clone();
        let object = object(VersionId(1), 1, 1);
        let put = async move { putting.put_object((&super::bucket(), "k"), &object, 1, &PutCondition::None).await };
        let (put, removed) = tokio::join!(put, catalog.delete_bucket("b"));
        assert!(put.is_ok() != removed.is_ok());
        sound(&catalog).await;
    }
}

#[tokio::test]
async fn a_store_with_foreign_records_or_another_format_is_refused() {
    let store = MemoryStore::new();
    let foreign = crate::Batch::new(Vec::new(), vec![Write::Put(b"x".to_vec(), Vec::new())]);
    store.commit(foreign).await.unwrap();
    let refused = Catalog::open(Arc::new(store)).await.err().unwrap();
    assert!(matches!(refused, CatalogError::Store(StoreError::Unusable(_))));
    let store = MemoryStore::new();
    Catalog::open(Arc::new(store.clone())).await.unwrap();
    let newer = Write::Put(crate::key::meta("format"), crate::record::encode(&5_u32));
    store.commit(crate::Batch::new(Vec::new(), vec![newer])).await.unwrap();
    let refused = Catalog::open(Arc::new(store)).await.err().unwrap();
    assert!(matches!(refused, CatalogError::Store(StoreError::Unusable(_))));
}

#[tokio::test]
async fn a_catalog_of_the_format_before_is_opened_and_has_the_new_one_from_then_on() {
    let store = MemoryStore::new();
    Catalog::open(Arc::new(store.clone())).await.unwrap();
    let at = crate::key::meta("format");
    let before = Write::Put(at.clone(), crate::record::encode(&3_u32));
    store.commit(crate::Batch::new(Vec::new(), vec![before])).await.unwrap();
    for _ in 0..2 {
        Catalog::open(Arc::new(store.clone())).await.unwrap();
        let found = store.get(&at).await.unwrap().unwrap();
        assert_eq!(crate::record::decode::<u32>(&at, &found).unwrap(), 4);
    }
}
