//! Meta, ids, users, buckets, drives.

use super::{catalog, object, put, sound};
use crate::{
    Bucket, Catalog, CatalogError, ClockAnchor, DriveRecord, MemoryStore, PutCondition, Store, StoreError, VersionId,
    Write,
};
use model::DriveId;
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

#[tokio::test]
async fn users_and_drives_are_listed_in_order() {
    let catalog = catalog().await;
    for name in ["zoe", "adam"] {
        catalog.user_put(name, &format!("{name}'s secret")).await.unwrap();
    }
    assert_eq!(catalog.users().await.unwrap(), ["adam", "zoe"]);
    assert_eq!(catalog.user_secret("zoe").await.unwrap().unwrap(), "zoe's secret");
    assert_eq!(catalog.user_secret("eve").await.unwrap(), None);
    for drive in [300, 2] {
        let record = DriveRecord { drive: DriveId(drive), day: 1, starts: 2, starts_total: 3 };
        catalog.drive_put(&record).await.unwrap();
    }
    let drives: Vec<_> = catalog.drives().await.unwrap().into_iter().map(|record| record.drive.0).collect();
    assert_eq!(drives, [2, 300]);
    assert_eq!(catalog.drive(DriveId(2)).await.unwrap().unwrap().starts_total, 3);
}

#[tokio::test]
async fn buckets_are_made_once_and_removed_only_when_empty() {
    let catalog = catalog().await;
    let again = Bucket { name: "b".into(), created_ms: 2, owner: "you".into() };
    assert!(matches!(catalog.create_bucket(&again).await, Err(CatalogError::BucketExists)));
    assert_eq!(catalog.bucket("b").await.unwrap().owner, "me");
    put(&catalog, "k", 1, 1).await;
    assert!(matches!(catalog.delete_bucket("b").await, Err(CatalogError::BucketNotEmpty)));
    sound(&catalog).await;
    catalog.delete_object("b", "k").await.unwrap();
    catalog.delete_bucket("b").await.unwrap();
    assert!(matches!(catalog.delete_bucket("b").await, Err(CatalogError::NoSuchBucket)));
    assert!(catalog.buckets().await.unwrap().is_empty());
    let late = catalog.put_object("b", "k", &object(VersionId(9), 1, 1), 1, &PutCondition::None).await;
    assert!(matches!(late, Err(CatalogError::NoSuchBucket)));
    sound(&catalog).await;
}

#[tokio::test]
async fn a_put_and_the_removal_of_its_bucket_never_both_succeed() {
    for _ in 0..50 {
        let catalog = catalog().await;
        let putting = catalog.clone();
        let object = object(VersionId(1), 1, 1);
        let put = async move { putting.put_object("b", "k", &object, 1, &PutCondition::None).await };
        let (put, removed) = tokio::join!(put, catalog.delete_bucket("b"));
        assert!(put.is_ok() != removed.is_ok());
        sound(&catalog).await;
    }
}

#[tokio::test]
async fn a_store_with_foreign_records_or_another_format_is_refused() {
    let store = MemoryStore::new();
    let foreign = crate::Batch { checks: Vec::new(), writes: vec![Write::Put(b"x".to_vec(), Vec::new())] };
    store.commit(foreign).await.unwrap();
    let refused = Catalog::open(Arc::new(store)).await.err().unwrap();
    assert!(matches!(refused, CatalogError::Store(StoreError::Unusable(_))));
    let store = MemoryStore::new();
    Catalog::open(Arc::new(store.clone())).await.unwrap();
    let newer = Write::Put(crate::key::meta("format"), crate::record::encode(&2_u32));
    store.commit(crate::Batch { checks: Vec::new(), writes: vec![newer] }).await.unwrap();
    let refused = Catalog::open(Arc::new(store)).await.err().unwrap();
    assert!(matches!(refused, CatalogError::Store(StoreError::Unusable(_))));
}
