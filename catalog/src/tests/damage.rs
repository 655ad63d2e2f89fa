//! Damaged records: one costs one object, loudly, and nothing else.

use super::{blob, bucket, catalog_in, from_workshop, object, put, sound};
use crate::{Catalog, CatalogError, Displaced, KeyRange, ListRequest, Member, MemoryStore, Place, PutCondition, Store};
use model::{BlobId, DriveId};
use std::sync::Arc;

async fn with_store() -> (Catalog, MemoryStore) {
    let store = MemoryStore::new();
    (catalog_in(Arc::new(store.clone())).await, store)
}

/// Flips two bits of the object record of `key`: one alone could be flipped back.
fn flip(store: &MemoryStore, key: &str) {
    store.corrupt(&crate::key::object("b", key), |bytes| {
        bytes[3] ^= 4;
        bytes[5] ^= 1;
    });
}

#[tokio::test]
async fn any_flipped_bit_of_any_record_is_noticed() {
    let (catalog, store) = with_store().await;
    put(&catalog, "k", 5, 1).await;
    for entry in store.scan(KeyRange::all(), usize::MAX).await.unwrap() {
        for bit in 0..8 * entry.value.as_bytes().len() {
            store.corrupt(&entry.key, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let found = store.get(&entry.key).await.unwrap().unwrap();
            assert!(found.open(&entry.key).is_err(), "{:?} bit {bit}", entry.key);
            store.corrupt(&entry.key, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        }
        assert!(entry.value.open(&entry.key).is_ok());
    }
}

#[tokio::test]
async fn a_record_under_another_key_is_nobodys() {
    let (catalog, store) = with_store().await;
    put(&catalog, "mine", 5, 1).await;
    put(&catalog, "yours", 6, 1).await;
    let mine = store.get(&crate::key::object("b", "mine")).await.unwrap().unwrap();
    store.corrupt(&crate::key::object("b", "yours"), |bytes| *bytes = mine.as_bytes().to_vec());
    assert!(matches!(catalog.get_object("b", "yours").await, Err(CatalogError::Damaged(_))));
    assert_eq!(catalog.get_object("b", "mine").await.unwrap().0.bytes, 5);
}

#[tokio::test]
async fn a_damaged_object_is_left_out_of_lists_and_can_be_written_again() {
    let (catalog, store) = with_store().await;
    for key in ["a", "k", "z"] {
        put(&catalog, key, 5, 1).await;
    }
    flip(&store, "k");
    let request = ListRequest { max_keys: 9, ..ListRequest::default() };
    let listed = catalog.list_objects("b", &request).await.unwrap().objects;
    assert_eq!(listed.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a", "z"]);
    assert_eq!(catalog.quarantined().len(), 1);
    let version = catalog.next_version_id().await.unwrap();
    let again = object(version, 7, 2);
    let refused = catalog.put_object((&bucket(), "k"), &again, 9, &PutCondition::IfMatch("e2".into())).await;
    assert!(matches!(refused, Err(CatalogError::Damaged(_))), "a damaged record matches nothing");
    let put = catalog.put_object((&bucket(), "k"), &again, 9, &PutCondition::None).await.unwrap();
    assert_eq!(put, Displaced::Nothing, "what the damaged record named stays");
    assert_eq!(catalog.get_object("b", "k").await.unwrap().0, again);
    flip(&store, "z");
    assert_eq!(catalog.delete_object("b", "z").await.unwrap(), Displaced::Nothing);
    assert!(matches!(catalog.get_object("b", "z").await, Err(CatalogError::NoSuchKey)));
}

#[tokio::test]
async fn whoever_replaces_a_record_with_one_wrong_bit_knows_what_hung_on_it() {
    for at in [3, usize::MAX] {
        let (catalog, store) = with_store().await;
        let (staged, slot) = put(&catalog, "staged", 5, 1).await;
        let (moved, _) = put(&catalog, "moved", 6, 1).await;
        let blob = blob(catalog.next_blob_id(7).await.unwrap(), 0, 100, 1);
        catalog.begin_blob(&blob).await.unwrap();
        catalog.commit_blob(&blob, &[Member { version: moved, offset: 0, bytes: 6 }]).await.unwrap();
        for key in ["staged", "moved"] {
            // In the body, and in the seal.
            store.corrupt(&crate::key::object("b", key), |bytes| {
                let last = bytes.len() - 1;
                bytes[at.min(last)] ^= 4;
            });
        }
        assert!(matches!(catalog.get_object("b", "moved").await, Err(CatalogError::Damaged(_))), "never to be read");
        let version = catalog.next_version_id().await.unwrap();
        let again = object(version, 7, 2);
        let put = catalog.put_object((&bucket(), "staged"), &again, 9, &PutCondition::None).await.unwrap();
        assert_eq!(put, from_workshop("staged", staged, slot, 5));
        let deleted = catalog.delete_object("b", "moved").await.unwrap();
        assert_eq!(deleted, Displaced::Dead { version: moved, group: blob.group, blob: blob.blob, bytes: 6 });
        sound(&catalog).await;
    }
}

#[tokio::test]
async fn a_drive_that_takes_the_place_of_a_retired_one_is_not_retired_though_the_record_has_one_wrong_bit() {
    for at in [1, usize::MAX] {
        let (catalog, store) = with_store().await;
        let (replaced, other) = (DriveId(7), DriveId(3));
        catalog.retire_drive(replaced, 5).await.unwrap();
        catalog.retire_drive(other, 6).await.unwrap();
        catalog.fail_drive(replaced, 7).await.unwrap();
        store.corrupt(&crate::key::meta("retiring-drives"), |bytes| {
            let last = bytes.len() - 1;
            bytes[at.min(last)] ^= 4;
        });
        assert_eq!(catalog.replace_drive(replaced, [1; 16]).await.unwrap(), Some(0));
        assert_eq!(catalog.retiring_drives().await.unwrap(), [other]);
        sound(&catalog).await;
    }
}

#[tokio::test]
async fn a_damaged_member_does_not_keep_its_pack_from_moving() {
    let (catalog, store) = with_store().await;
    let (good, slot) = put(&catalog, "good", 5, 1).await;
    let (bad, _) = put(&catalog, "bad", 6, 1).await;
    let blob = blob(catalog.next_blob_id(7).await.unwrap(), 0, 100, 2);
    catalog.begin_blob(&blob).await.unwrap();
    flip(&store, "bad");
    assert_eq!(catalog.staged_object(bad).await.unwrap(), None);
    let members = [Member { version: good, offset: 0, bytes: 5 }, Member { version: bad, offset: 5, bytes: 6 }];
    let done = catalog.commit_blob(&blob, &members).await.unwrap();
    assert_eq!((done.moved, done.dead), (vec![(good, slot)], vec![bad]), "its staged file stays");
    assert_eq!(catalog.get_object("b", "good").await.unwrap().1, Place::Stored { blob: blob.blob, offset: 0 });
}

#[tokio::test]
async fn boot_reads_on_behind_damaged_records_of_every_kind() {
    let (catalog, store) = with_store().await;
    let (version, _) = put(&catalog, "k", 5, 1).await;
    put(&catalog, "stays", 5, 1).await;
    let stored = blob(catalog.next_blob_id(7).await.unwrap(), 0, 100, 1);
    catalog.begin_blob(&stored).await.unwrap();
    catalog.commit_blob(&stored, &[Member { version, offset: 0, bytes: 5 }]).await.unwrap();
    catalog.begin_blob(&blob(catalog.next_blob_id(7).await.unwrap(), 1, 50, 1)).await.unwrap();
    catalog.fail_drive(DriveId(7), 5).await.unwrap();
    catalog.delete_object("b", "k").await.unwrap();
    for entry in store.scan(KeyRange::all(), usize::MAX).await.unwrap() {
        if entry.key[0] != b'M' && !(entry.key[0] == b'A' && entry.key[1] == b'0') {
            store.corrupt(&entry.key, |bytes| bytes[0] ^= 1);
        }
    }
    let catalog = Catalog::open(Arc::new(store.clone())).await.unwrap();
    assert_eq!(catalog.pending_intents().await.unwrap(), []);
    assert_eq!(catalog.blobs_page(None, 9).await.unwrap().items, []);
    assert_eq!(catalog.staged_slots(None, 9).await.unwrap().items, []);
    assert_eq!(catalog.part_slots(None).await.unwrap().items, Vec::<(u64, u64)>::new());
    assert_eq!(catalog.staged_usage().await.unwrap().count, 0);
    assert_eq!(catalog.dead_totals().await.unwrap(), []);
    assert_eq!(catalog.upload_usage().await.unwrap().uploads, 0);
    assert_eq!((catalog.users().await.unwrap(), catalog.buckets().await.unwrap()), (vec![], vec![]));
    assert_eq!(catalog.failed_drives().await.unwrap(), [(DriveId(7), 0)], "a failed drive stays one");
    assert!(catalog.quarantined().len() >= 6, "{:?}", catalog.quarantined());
    assert!(catalog.next_slot().await.unwrap() > 2, "the other copy of the counter counts");
    assert_ne!(catalog.next_blob_id(7).await.unwrap(), BlobId::new(1, 7));
}
