//! Uploads in parts: from begun to completed or aborted, what is left behind, and what wins when two do it at once.

use super::{blob, catalog, catalog_in, from_workshop, object, put, sound};
use crate::{
    Adoption, Catalog, CatalogError, Checksum, ChecksumKind, ChosenPart, Completed, Displaced, FoundMember, Member,
    MemoryStore, Object, Part, Place, PutCondition, SqliteStore, Store, Upload, UploadListRequest, VersionId,
};
use lineage::Sequence;
use model::BlobId;
use std::collections::BTreeSet;
use std::sync::Arc;

async fn begin(catalog: &Catalog, key: &str) -> VersionId {
    let version = catalog.next_version_id().await.unwrap();
    let plain = Upload::plain(ChecksumKind::Crc32);
    let upload = Upload { version, initiated_ms: 3, checksum_named: true, composite: true, ..plain };
    catalog.create_upload("b", key, &upload).await.unwrap();
    assert_eq!(catalog.upload("b", key, version).await.unwrap(), upload);
    version
}

fn part(number: u32, slot: u64, bytes: u64) -> Part {
    let checksum = Checksum { kind: ChecksumKind::Crc32, base64: "AAAAAA==".into() };
    Part { number, slot, bytes, etag: format!("p{slot}"), checksum, modified_ms: 5 }
}

/// Puts a part of `bytes` bytes with a new slot.
async fn put_part(catalog: &Catalog, key: &str, upload: VersionId, number: u32, bytes: u64) -> Part {
    let part = part(number, catalog.next_slot().await.unwrap(), bytes);
    catalog.put_part("b", key, upload, &part).await.unwrap();
    part
}

fn chosen(parts: &[&Part]) -> Vec<ChosenPart> {
    parts.iter().map(|part| ChosenPart { number: part.number, etag: part.etag.clone() }).collect()
}

/// The object of these parts.
fn of(upload: VersionId, parts: &[&Part]) -> Object {
    let bytes = parts.iter().map(|part| part.bytes).sum();
    Object { parts: parts.iter().map(|part| part.bytes).collect(), ..object(upload, bytes, 9) }
}

async fn complete(catalog: &Catalog, key: &str, upload: VersionId, parts: &[&Part]) -> Result<Completed, CatalogError> {
    let object = of(upload, parts);
    catalog.complete_upload(("b", key), &object, &chosen(parts), &PutCondition::None).await
}

async fn part_slots(catalog: &Catalog) -> BTreeSet<u64> {
    let mut slots = BTreeSet::new();
    let mut after = None;
    loop {
        let page = catalog.part_slots(after.as_ref()).await.unwrap();
        slots.extend(page.items.into_iter().map(|(slot, _)| slot));
        after = page.next;
        if after.is_none() {
            return slots;
        }
    }
}

#[tokio::test]
async fn an_upload_becomes_an_object_of_its_parts_in_their_order() {
    let catalog = catalog().await;
    let upload = begin(&catalog, "k").await;
    let second = put_part(&catalog, "k", upload, 7, 20).await;
    let first = put_part(&catalog, "k", upload, 2, 10).await;
    let unused = put_part(&catalog, "k", upload, 5, 99).await;
    assert!(matches!(catalog.head_object("b", "k").await, Err(CatalogError::NoSuchKey)));
    assert_eq!(catalog.upload_usage().await.unwrap().bytes, 129);
    assert_eq!(sound(&catalog).await.upload_bytes, 129);
    let done = complete(&catalog, "k", upload, &[&first, &second]).await.unwrap();
    assert_eq!(done, Completed { displaced: Displaced::Nothing, unused: vec![unused] });
    let (found, place) = catalog.get_object("b", "k").await.unwrap();
    assert_eq!((found.version, found.bytes, place), (upload, 30, Place::Parts));
    assert_eq!(found.parts.range(2), Some(10..30));
    assert_eq!(catalog.slots_of(upload, place).await.unwrap(), [first.slot, second.slot]);
    assert_eq!(part_slots(&catalog).await, BTreeSet::from([first.slot, second.slot]));
    assert_eq!(catalog.staged_slots(None, 9).await.unwrap().items, [], "its mark names no slot");
    let staged = catalog.staged_page(None, crate::StagedWhen::until(9), 9).await.unwrap().items;
    assert_eq!((staged[0].place, staged[0].bytes), (Place::Parts, 30));
    let numbers: Vec<u32> = catalog.parts_page(upload, 0, 9).await.unwrap().iter().map(|part| part.number).collect();
    assert_eq!(numbers, [1, 2], "without gaps");
    let audit = sound(&catalog).await;
    assert_eq!((audit.staged, audit.staged_bytes, audit.uploads, audit.upload_bytes), (1, 30, 0, 0));
}

#[tokio::test]
async fn what_is_over_is_no_upload_any_more() {
    let catalog = catalog().await;
    let (done, given_up) = (begin(&catalog, "k").await, begin(&catalog, "l").await);
    let one = put_part(&catalog, "k", done, 1, 5).await;
    let other = put_part(&catalog, "l", given_up, 1, 5).await;
    complete(&catalog, "k", done, &[&one]).await.unwrap();
    assert_eq!(catalog.abort_upload("b", "l", given_up).await.unwrap(), std::slice::from_ref(&other));
    for (key, upload, old) in [("k", done, &one), ("l", given_up, &other), ("l", done, &one), ("none", done, &one)] {
        assert!(matches!(catalog.upload("b", key, upload).await, Err(CatalogError::NoSuchUpload)));
        assert!(matches!(catalog.abort_upload("b", key, upload).await, Err(CatalogError::NoSuchUpload)));
        assert!(matches!(complete(&catalog, key, upload, &[old]).await, Err(CatalogError::NoSuchUpload)));
        let late = catalog.put_part("b", key, upload, &part(2, 900, 5)).await;
        assert!(matches!(late, Err(CatalogError::NoSuchUpload)));
    }
    assert!(matches!(catalog.upload("none", "k", done).await, Err(CatalogError::NoSuchBucket)));
    assert_eq!(part_slots(&catalog).await, BTreeSet::from([one.slot]));
    sound(&catalog).await;
}

#[tokio::test]
async fn a_part_takes_the_place_of_the_one_of_its_number() {
    let catalog = catalog().await;
    let upload = begin(&catalog, "k").await;
    assert_eq!(catalog.put_part("b", "k", upload, &part(1, 500, 5)).await.unwrap(), None);
    assert_eq!(catalog.put_part("b", "k", upload, &part(1, 501, 6)).await.unwrap(), Some(part(1, 500, 5)));
    let old = complete(&catalog, "k", upload, &[&part(1, 500, 6)]).await;
    assert!(matches!(old, Err(CatalogError::NoSuchPart(1))), "another ETag");
    let long = complete(&catalog, "k", upload, &[&part(1, 501, 7)]).await;
    assert!(matches!(long, Err(CatalogError::NoSuchPart(1))), "another length");
    let missing = complete(&catalog, "k", upload, &[&part(1, 501, 6), &part(2, 502, 6)]).await;
    assert!(matches!(missing, Err(CatalogError::NoSuchPart(2))));
    complete(&catalog, "k", upload, &[&part(1, 501, 6)]).await.unwrap();
    sound(&catalog).await;
}

#[tokio::test]
async fn completing_keeps_conditions_and_displaces_what_was_there() {
    let catalog = catalog().await;
    let (version, slot) = put(&catalog, "k", 4, 1).await;
    let upload = begin(&catalog, "k").await;
    let one = put_part(&catalog, "k", upload, 1, 5).await;
    let object = of(upload, &[&one]);
    for condition in [PutCondition::IfNoneMatchAny, PutCondition::IfMatch("x".into())] {
        let refused = catalog.complete_upload(("b", "k"), &object, &chosen(&[&one]), &condition).await;
        assert!(matches!(refused, Err(CatalogError::PreconditionFailed)));
    }
    let matching = PutCondition::IfMatch(format!("e{}", version.0));
    let done = catalog.complete_upload(("b", "k"), &object, &chosen(&[&one]), &matching).await.unwrap();
    assert_eq!(done.displaced, from_workshop("k", version, slot, 4));
    let displaced = catalog.delete_object("b", "k").await.unwrap();
    assert_eq!(displaced, from_workshop("k", upload, one.slot, 5));
    assert_eq!(part_slots(&catalog).await, BTreeSet::new());
    sound(&catalog).await;
}

#[tokio::test]
async fn parts_are_remembered_in_the_rack_and_their_slots_are_not() {
    let catalog = catalog().await;
    let upload = begin(&catalog, "k").await;
    let (one, two) = (put_part(&catalog, "k", upload, 1, 5).await, put_part(&catalog, "k", upload, 2, 6).await);
    complete(&catalog, "k", upload, &[&one, &two]).await.unwrap();
    let open = begin(&catalog, "later").await;
    let other = put_part(&catalog, "later", open, 1, 1).await;
    let id = catalog.next_blob_id(7).await.unwrap();
    let blob = blob(id, 0, 20, 1);
    catalog.begin_blob(&blob).await.unwrap();
    let member = Member { version: upload, offset: 0, bytes: 11 };
    let moved = catalog.commit_blob(&blob, &[member]).await.unwrap().moved;
    assert_eq!(moved, [(upload, one.slot), (upload, two.slot)]);
    assert_eq!(part_slots(&catalog).await, BTreeSet::from([other.slot]));
    assert_eq!(catalog.parts_page(upload, 1, 9).await.unwrap(), [two]);
    sound(&catalog).await;
    let slot = catalog.next_slot().await.unwrap();
    catalog.restage(("b", "k"), upload, id, slot).await.unwrap().unwrap();
    assert_eq!(catalog.get_object("b", "k").await.unwrap().1, Place::Staged { slot }, "in one piece again");
    assert_eq!(part_slots(&catalog).await, BTreeSet::from([other.slot]));
    sound(&catalog).await;
    assert!(
        matches!(catalog.delete_object("b", "k").await.unwrap(), Displaced::Staged { slots, .. } if slots == [slot])
    );
    assert_eq!(catalog.parts_page(upload, 0, 9).await.unwrap(), []);
    sound(&catalog).await;
}

#[tokio::test]
async fn a_bucket_with_uploads_is_not_empty() {
    let catalog = catalog().await;
    let upload = begin(&catalog, "k").await;
    assert!(matches!(catalog.delete_bucket("b").await, Err(CatalogError::BucketNotEmpty)));
    catalog.abort_upload("b", "k", upload).await.unwrap();
    catalog.delete_bucket("b").await.unwrap();
}

#[tokio::test]
async fn ten_thousand_parts_are_completed_in_one_batch_on_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path().join("catalog")).unwrap());
    let catalog = catalog_in(store).await;
    let upload = begin(&catalog, "k").await;
    let parts: Vec<Part> = (1..=crate::PARTS_MAX).map(|number| part(number, u64::from(number), 8)).collect();
    let puts = parts.iter().map(|part| catalog.put_part("b", "k", upload, part));
    for done in futures::future::join_all(puts).await {
        done.unwrap();
    }
    complete(&catalog, "k", upload, &parts.iter().collect::<Vec<_>>()).await.unwrap();
    assert_eq!(catalog.head_object("b", "k").await.unwrap().parts.runs(), [(crate::PARTS_MAX, 8)]);
    assert_eq!(part_slots(&catalog).await.len(), crate::PARTS_MAX as usize);
    let audit = sound(&catalog).await;
    assert_eq!((audit.objects, audit.staged_bytes), (1, 80_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_parts_puts_aborts_and_completions_at_once_none_leaves_a_slot_behind() {
    for round in 0..30 {
        let catalog = catalog().await;
        let upload = begin(&catalog, "k").await;
        let first = put_part(&catalog, "k", upload, 1, 5).await;
        let putting: Vec<_> = (0..8_u64)
            .map(|i| {
                let catalog = catalog.clone();
                let part = part(1 + (i % 4) as u32, 600 + i, 5);
                tokio::spawn(async move { (part.slot, catalog.put_part("b", "k", upload, &part).await) })
            })
            .collect();
        let completing: Vec<_> = (0..2)
            .map(|_| {
                let (catalog, first) = (catalog.clone(), first.clone());
                tokio::spawn(async move { complete(&catalog, "k", upload, &[&first]).await })
            })
            .collect();
        let aborting = (round % 2 == 0).then(|| {
            let catalog = catalog.clone();
            tokio::spawn(async move { catalog.abort_upload("b", "k", upload).await })
        });
        let mut files = BTreeSet::from([first.slot]);
        let mut freed = BTreeSet::new();
        let mut over = 0;
        for task in putting {
            match task.await.unwrap() {
                (slot, Ok(displaced)) => {
                    files.insert(slot);
                    freed.extend(displaced.map(|part| part.slot));
                }
                (_, Err(error)) => assert!(matches!(error, CatalogError::NoSuchUpload), "{error}"),
            }
        }
        for task in completing {
            match task.await.unwrap() {
                Ok(done) => {
                    over += 1;
                    freed.extend(done.unused.iter().map(|part| part.slot));
                }
                Err(CatalogError::NoSuchUpload | CatalogError::NoSuchPart(1)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if let Some(task) = aborting {
            match task.await.unwrap() {
                Ok(parts) => {
                    over += 1;
                    freed.extend(parts.iter().map(|part| part.slot));
                }
                Err(error) => assert!(matches!(error, CatalogError::NoSuchUpload), "{error}"),
            }
        }
        assert!(over <= 1, "it ends once");
        assert!(freed.is_subset(&files));
        assert_eq!(part_slots(&catalog).await, files.difference(&freed).copied().collect(), "round {round}");
        sound(&catalog).await;
    }
}

#[tokio::test]
async fn uploads_are_listed_by_key_and_age_page_by_page() {
    let catalog = catalog().await;
    let mut expected = Vec::new();
    for key in ["a", "b/1", "b/2", "b/2", "c", "c", "c\0x", "d/\u{e9}"] {
        expected.push((key.to_owned(), begin(&catalog, key).await));
    }
    for max_uploads in 1..10 {
        let mut request = UploadListRequest { max_uploads, ..UploadListRequest::default() };
        let mut listed = Vec::new();
        loop {
            let page = catalog.list_uploads("b", &request).await.unwrap();
            listed.extend(page.uploads.into_iter().map(|(key, upload)| (key, upload.version)));
            let Some((key, upload)) = listed.last().filter(|_| page.truncated) else { break };
            request.after = Some((key.clone(), Some(*upload)));
        }
        assert_eq!(listed, expected, "{max_uploads} at a time");
    }
    let list = async |prefix: &str, after: Option<&str>, max_uploads: usize| {
        let request = UploadListRequest {
            prefix: prefix.into(),
            delimiter: Some("/".into()),
            after: after.map(|key| (key.to_owned(), None)),
            max_uploads,
        };
        let page = catalog.list_uploads("b", &request).await.unwrap();
        let keys: Vec<String> = page.uploads.into_iter().map(|(key, _)| key).collect();
        (keys.join(" "), page.common_prefixes.join(" "), page.truncated)
    };
    assert_eq!(list("", None, 9).await, ("a c c c\0x".into(), "b/ d/".into(), false));
    assert_eq!(list("", None, 2).await, ("a".into(), "b/".into(), true));
    assert_eq!(list("", Some("b/"), 2).await, ("c c".into(), String::new(), true));
    assert_eq!(list("", Some("c"), 9).await, ("c\0x".into(), "d/".into(), false));
    assert_eq!(list("b/", None, 9).await, ("b/1 b/2 b/2".into(), String::new(), false));
    assert_eq!(list("x", None, 9).await, (String::new(), String::new(), false));
    assert_eq!(list("", None, 0).await, (String::new(), String::new(), false));
    assert!(matches!(
        catalog.list_uploads("none", &UploadListRequest::default()).await,
        Err(CatalogError::NoSuchBucket)
    ));
}

#[tokio::test]
async fn an_upload_that_the_rack_shows_as_completed_is_open_no_more() {
    for is_replaced in [false, true] {
        // As the catalog was when it was copied.
        let catalog = catalog().await;
        let upload = begin(&catalog, "k").await;
        let parts = [put_part(&catalog, "k", upload, 1, 10).await, put_part(&catalog, "k", upload, 2, 20).await];
        let copied = catalog.next_version_id().await.unwrap();
        // A pack's record of the time since.
        let of_upload = FoundMember {
            bucket: "b".into(),
            key: "k".into(),
            offset: 0,
            object: of(upload, &[&parts[0], &parts[1]]),
            sequence: Sequence(u64::MAX - 1),
            bucket_created_ms: 1,
            owner: String::new(),
            parts: parts.map(|part| Part { slot: 0, ..part }).to_vec(),
            locked: false,
        };
        let newer = VersionId(copied.0 + 1);
        let (sequence, object) = (Sequence(u64::MAX), object(newer, 5, 9));
        let replaced_by = FoundMember { offset: 30, sequence, object, parts: Vec::new(), ..of_upload.clone() };
        let found: Vec<_> = [of_upload, replaced_by].into_iter().take(1 + usize::from(is_replaced)).collect();
        let pack = blob(BlobId { number: 7, nonce: 1 }, 0, 35, found.len());
        let mut adoption = Adoption::new(catalog.clone(), Arc::new(MemoryStore::new()), Sequence(u64::MAX - 2));
        adoption.adopt(&pack, Sequence(u64::MAX), found).await.unwrap();
        let (lives, _) = catalog.get_object("b", "k").await.unwrap();
        assert_eq!(lives.version, if is_replaced { newer } else { upload });
        assert!(matches!(catalog.abort_upload("b", "k", upload).await, Err(CatalogError::NoSuchUpload)));
        assert_eq!(part_slots(&catalog).await, BTreeSet::new(), "its files are nobody's");
        let listed = catalog.parts_page(upload, 0, 9).await.unwrap().len();
        assert_eq!(listed, if is_replaced { 0 } else { 2 }, "S3 lists the parts of what lives");
        sound(&catalog).await;
    }
}
