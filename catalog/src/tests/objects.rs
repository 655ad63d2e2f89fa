//! Objects: conditions, what is displaced, what is staged.

use super::{catalog, from_workshop, object, put, sound};
use crate::{
    Acl, CatalogError, Displaced, MemoryStore, Object, ObjectChange, Place, PutCondition, StagedWhen, StoreError,
    VersionId,
};
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test]
async fn what_was_put_is_got_until_it_is_deleted() {
    let catalog = catalog().await;
    assert!(matches!(catalog.get_object("b", "k").await, Err(CatalogError::NoSuchKey)));
    assert!(matches!(catalog.get_object("none", "k").await, Err(CatalogError::NoSuchBucket)));
    assert!(matches!(catalog.head_object("none", "k").await, Err(CatalogError::NoSuchBucket)));
    let (version, slot) = put(&catalog, "k", 5, 1).await;
    let (found, place) = catalog.get_object("b", "k").await.unwrap();
    assert_eq!((found.clone(), place), (object(version, 5, 1), Place::Staged { slot }));
    assert_eq!(catalog.head_object("b", "k").await.unwrap(), found);
    let staged = catalog.staged_object(version).await.unwrap().unwrap();
    assert_eq!((staged.key.as_str(), staged.placed.place, staged.placed.object), ("k", place, found));
    let displaced = catalog.delete_object("b", "k").await.unwrap();
    assert_eq!(displaced, from_workshop("k", version, slot, 5));
    assert_eq!(catalog.delete_object("b", "k").await.unwrap(), Displaced::Nothing);
    assert!(matches!(catalog.delete_object("none", "k").await, Err(CatalogError::NoSuchBucket)));
    assert_eq!(catalog.staged_object(version).await.unwrap(), None);
    assert_eq!(sound(&catalog).await.objects, 0);
}

#[tokio::test]
async fn an_overwrite_tells_which_slot_to_free() {
    let catalog = catalog().await;
    let (first, slot) = put(&catalog, "k", 5, 1).await;
    let second = object(VersionId(first.0 + 1), 6, 2);
    let displaced = catalog.put_object((&super::bucket(), "k"), &second, slot + 1, &PutCondition::None).await.unwrap();
    assert_eq!(displaced, from_workshop("k", first, slot, 5));
    let audit = sound(&catalog).await;
    assert_eq!((audit.objects, audit.staged, audit.staged_bytes), (1, 1, 6));
}

#[tokio::test]
async fn conditions_are_kept() {
    let catalog = catalog().await;
    let put = async |version: u64, condition: PutCondition| {
        catalog.put_object((&super::bucket(), "k"), &object(VersionId(version), 1, 1), version, &condition).await
    };
    let matching = |etag: &str| PutCondition::IfMatch(etag.into());
    assert!(matches!(put(1, matching("e0")).await, Err(CatalogError::NoSuchKey)));
    put(1, PutCondition::IfNoneMatchAny).await.unwrap();
    assert!(matches!(put(2, PutCondition::IfNoneMatchAny).await, Err(CatalogError::PreconditionFailed)));
    assert!(matches!(put(2, matching("e0")).await, Err(CatalogError::PreconditionFailed)));
    put(2, matching("e1")).await.unwrap();
    assert_eq!(catalog.head_object("b", "k").await.unwrap().etag, "e2");
    sound(&catalog).await;
}

#[tokio::test]
async fn a_delete_on_a_condition_takes_away_what_it_means_and_nothing_else() {
    let catalog = catalog().await;
    let delete = async |condition: PutCondition| catalog.delete_object_if("b", "k", &condition).await;
    let matching = |etag: &str| PutCondition::IfMatch(etag.into());
    for condition in [matching("e1"), PutCondition::IfMatchAny] {
        assert!(matches!(delete(condition).await, Err(CatalogError::NoSuchKey)));
    }
    let (version, slot) = put(&catalog, "k", 5, 1).await;
    assert!(matches!(delete(matching("other")).await, Err(CatalogError::PreconditionFailed)));
    catalog.head_object("b", "k").await.unwrap();
    let displaced = delete(matching(&format!("e{}", version.0))).await.unwrap();
    assert_eq!(displaced, from_workshop("k", version, slot, 5));
    put(&catalog, "k", 5, 1).await;
    delete(PutCondition::IfMatchAny).await.unwrap();
    assert_eq!(sound(&catalog).await.objects, 0);
}

#[tokio::test]
async fn tags_and_acl_change_without_a_new_version_or_place_and_end_with_the_version() {
    let catalog = catalog().await;
    let (version, slot) = put(&catalog, "k", 5, 1).await;
    let tags = vec![("colour".to_owned(), "blue".to_owned())];
    catalog.change_object("b", "k", &ObjectChange::Tags(tags.clone())).await.unwrap();
    let now = catalog.change_object("b", "k", &ObjectChange::Acl(Acl::PublicRead)).await.unwrap();
    assert_eq!(now, Object { acl: Acl::PublicRead, tags, ..object(version, 5, 1) });
    assert_eq!(catalog.get_object("b", "k").await.unwrap(), (now, Place::Staged { slot }));
    sound(&catalog).await;
    put(&catalog, "k", 6, 2).await;
    let next = catalog.head_object("b", "k").await.unwrap();
    assert_eq!((next.acl, next.tags), (Acl::Private, Vec::new()));
    let change = ObjectChange::Acl(Acl::PublicRead);
    assert!(matches!(catalog.change_object("b", "none", &change).await, Err(CatalogError::NoSuchKey)));
    assert!(matches!(catalog.change_object("none", "k", &change).await, Err(CatalogError::NoSuchBucket)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_conditional_puts_one_wins_and_of_many_plain_ones_all_do() {
    let catalog = catalog().await;
    let race = async |condition: PutCondition| {
        let tasks = (0..40).map(|_| {
            let (catalog, condition) = (catalog.clone(), condition.clone());
            tokio::spawn(async move {
                let version = catalog.next_version_id().await.unwrap();
                let slot = catalog.next_slot().await.unwrap();
                catalog.put_object((&super::bucket(), "k"), &object(version, 1, 1), slot, &condition).await
            })
        });
        let mut answers = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            answers.push(task.await.unwrap());
        }
        answers
    };
    let conditional = race(PutCondition::IfNoneMatchAny).await;
    assert_eq!(conditional.iter().filter(|answer| answer.is_ok()).count(), 1);
    let freed: BTreeSet<_> = race(PutCondition::None)
        .await
        .into_iter()
        .map(|answer| match answer.unwrap() {
            Displaced::Staged { slots, .. } => slots,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(freed.len(), 40, "every overwrite displaced another version");
    assert_eq!(sound(&catalog).await.staged, 1);
}

#[tokio::test]
async fn a_full_disk_refuses_puts_and_allows_deletes() {
    let store = MemoryStore::new();
    let catalog = super::catalog_in(Arc::new(store.clone())).await;
    put(&catalog, "k", 5, 1).await;
    store.set_full(true);
    let refused =
        catalog.put_object((&super::bucket(), "l"), &object(VersionId(99), 1, 1), 99, &PutCondition::None).await;
    assert!(matches!(refused, Err(CatalogError::Store(StoreError::Full))));
    catalog.delete_object("b", "k").await.unwrap();
    assert_eq!(sound(&catalog).await.objects, 0);
}

#[tokio::test]
async fn staged_pages_go_in_key_order_and_keep_the_age() {
    let catalog = catalog().await;
    for (key, bytes, age_ms) in [("c", 10, 1), ("a", 20, 3), ("b", 40, 2), ("d", 80, 9)] {
        put(&catalog, key, bytes, age_ms).await;
    }
    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let page = catalog.staged_page(after.as_ref(), StagedWhen::until(3), 2).await.unwrap();
        keys.extend(page.items.into_iter().map(|version| version.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["a", "b", "c"]);
    let of_the_future = StagedWhen { until_ms: 1, beyond_ms: 3 };
    let found = catalog.staged_page(None, of_the_future, 9).await.unwrap().items;
    assert_eq!(found.into_iter().map(|version| version.key).collect::<Vec<_>>(), ["c", "d"]);
    let aged = catalog.aged_page(None).await.unwrap().items;
    let aged: Vec<_> = aged.into_iter().map(|(of, bytes)| (of.staged_ms, bytes)).collect();
    assert_eq!(aged, [(1, 10), (2, 40), (3, 20), (9, 80)]);
    let usage = catalog.staged_usage().await.unwrap();
    assert_eq!((usage.bytes, usage.count), (150, 4));
    let slots = catalog.staged_slots(None, 9).await.unwrap();
    assert_eq!((slots.items.len(), slots.next), (4, None));
    sound(&catalog).await;
}

#[tokio::test]
async fn staged_pages_hold_over_many_entries() {
    let catalog = catalog().await;
    for i in 0..2_500 {
        put(&catalog, &format!("{i:05}"), 1, i % 2).await;
    }
    let page = catalog.staged_page(None, StagedWhen::until(0), 1_200).await.unwrap();
    assert_eq!(page.items.len(), 1_200);
    let rest = catalog.staged_page(page.next.as_ref(), StagedWhen::until(0), 1_200).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (50, None));
    assert_eq!(catalog.staged_usage().await.unwrap().count, 2_500);
    let (mut count, mut after) = (0, None);
    loop {
        let page = catalog.aged_page(after.as_ref()).await.unwrap();
        assert!(page.items.is_sorted());
        count += page.items.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(count, 2_500);
    sound(&catalog).await;
}
