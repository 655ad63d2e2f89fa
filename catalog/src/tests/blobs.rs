//! Blobs: commit, abort, members that died meanwhile, evacuation, tombstones, removal.

use super::{blob, catalog, catalog_in, put, sound};
use crate::key;
use crate::record::{Decode, Encode, Owner, PlacedObject, StagedMark, decode, encode};
use crate::{Batch, Entry, KeyRange, MemoryStore, Sealed, Sequence, Store, StoreFuture, Write};
use crate::{
    Catalog, CatalogError, Cursor, DeadBytes, Displaced, LostBeside, Member, Page, Place, RebuildTarget, VersionId,
};
use model::{BlobId, DriveId, GroupId};
use std::sync::Arc;

/// Puts objects of these sizes under "k0", "k1", ...; as members side by side, with their slots.
async fn members(catalog: &Catalog, sizes: &[u64]) -> Vec<(Member, u64)> {
    let mut members = Vec::new();
    let mut offset = 0;
    for (i, &bytes) in sizes.iter().enumerate() {
        let (version, slot) = put(catalog, &format!("k{i}"), bytes, 1).await;
        members.push((Member { version, offset, bytes }, slot));
        offset += bytes;
    }
    members
}

/// A blob in group 2 with objects of these sizes in it.
async fn stored(catalog: &Catalog, sizes: &[u64]) -> (BlobId, Vec<Member>) {
    let id = catalog.next_blob_id(7).await.unwrap();
    let members: Vec<_> = members(catalog, sizes).await.into_iter().map(|(member, _)| member).collect();
    let blob = blob(id, 2, sizes.iter().sum::<u64>() + 100, sizes.len());
    catalog.begin_blob(&blob).await.unwrap();
    let outcome = catalog.commit_blob(&blob, &members).await.unwrap();
    assert_eq!(outcome.moved.len(), members.len());
    (id, members)
}

#[tokio::test]
async fn a_commit_moves_the_living_and_counts_the_dead() {
    let catalog = catalog().await;
    let members = members(&catalog, &[10, 0, 30, 40]).await;
    let id = catalog.next_blob_id(7).await.unwrap();
    let blob = blob(id, 2, 200, 4);
    catalog.begin_blob(&blob).await.unwrap();
    assert_eq!(catalog.pending_intents().await.unwrap(), std::slice::from_ref(&blob));
    assert!(matches!(catalog.begin_blob(&blob).await, Err(CatalogError::PreconditionFailed)));
    catalog.delete_object("b", "k0").await.unwrap();
    put(&catalog, "k2", 7, 5).await;
    let list: Vec<_> = members.iter().map(|(member, _)| *member).collect();
    let outcome = catalog.commit_blob(&blob, &list).await.unwrap();
    let moved: Vec<_> = [1, 3].iter().map(|&i: &usize| (members[i].0.version, members[i].1)).collect();
    assert_eq!((outcome.moved, outcome.dead_bytes), (moved, 40));
    assert_eq!(outcome.dead, [list[0].version, list[2].version]);
    assert!(catalog.pending_intents().await.unwrap().is_empty());
    let (_, place) = catalog.get_object("b", "k3").await.unwrap();
    assert_eq!(place, Place::Stored { blob: id, offset: 40 });
    let living = catalog.blob_members(id, None, 9).await.unwrap();
    assert_eq!(living, Page { items: vec![list[1], list[3]], next: None });
    let audit = sound(&catalog).await;
    assert_eq!((audit.staged, audit.stored, audit.stored_bytes, audit.dead_bytes), (1, 2, 40, 40));
    assert!(matches!(catalog.commit_blob(&blob, &list).await, Err(CatalogError::NoIntent(_))));
    assert!(matches!(catalog.begin_blob(&blob).await, Err(CatalogError::PreconditionFailed)));
}

#[tokio::test]
async fn deletes_count_dead_bytes_until_the_blob_is_forgotten() {
    let catalog = catalog().await;
    let (id, members) = stored(&catalog, &[10, 20]).await;
    assert!(catalog.dead_page(GroupId(2), None, 9).await.unwrap().items.is_empty());
    let displaced = catalog.delete_object("b", "k1").await.unwrap();
    let version = members[1].version;
    assert_eq!(displaced, Displaced::Dead { version, group: GroupId(2), blob: id, bytes: 20 });
    let dead = catalog.dead_page(GroupId(2), None, 9).await.unwrap().items;
    assert_eq!((dead[0].dead_bytes, dead[0].living), (20, true));
    assert!(matches!(catalog.forget_blob(id).await, Err(CatalogError::BlobInUse(_))));
    sound(&catalog).await;
    put(&catalog, "k0", 3, 9).await;
    assert_eq!(catalog.dead_totals().await.unwrap(), [(GroupId(2), 30)]);
    let dead = catalog.dead_page(GroupId(2), None, 9).await.unwrap().items;
    assert_eq!((dead[0].dead_bytes, dead[0].living), (130, false));
    catalog.forget_blob(id).await.unwrap();
    catalog.forget_blob(id).await.unwrap();
    assert_eq!(catalog.blob(id).await.unwrap(), None);
    assert!(catalog.dead_totals().await.unwrap().is_empty());
    assert!(catalog.on_drive_page(DriveId(6), None, 9).await.unwrap().blobs.is_empty());
    assert_eq!(sound(&catalog).await.blobs, 0);
}

/// A store in which a rebuild target is removed right after a batch has met it.
struct RemovedLate(MemoryStore, Vec<u8>);

impl Store for RemovedLate {
    fn sequence(&self) -> Sequence {
        self.0.sequence()
    }

    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        self.0.get(key)
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        self.0.get_many(keys)
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.0.scan(range, limit)
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let answer = self.0.commit(batch).await;
            if answer.is_err() {
                let removed = Batch::new(Vec::new(), vec![Write::Delete(self.1.clone())]);
                self.0.commit(removed).await.unwrap();
            }
            answer
        })
    }
}

#[tokio::test]
async fn a_blob_is_forgotten_though_what_kept_it_goes_between_the_batch_and_the_look_at_it() {
    let store = MemoryStore::new();
    let catalog = catalog_in(Arc::new(store.clone())).await;
    let (id, _) = stored(&catalog, &[10]).await;
    catalog.fail_drive(DriveId(7), 5).await.unwrap();
    let found = catalog.blob(id).await.unwrap().unwrap();
    assert!(catalog.begin_rebuild(&found, 1, DriveId(20)).await.unwrap());
    catalog.delete_object("b", "k0").await.unwrap();
    let late = RemovedLate(store, key::rebuild_target(id, DriveId(20), 1));
    Catalog::open(Arc::new(late)).await.unwrap().forget_blob(id).await.unwrap();
    assert_eq!(catalog.blob(id).await.unwrap(), None);
    assert!(catalog.dead_totals().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_was_begun_before_a_moment_is_kept_and_what_is_begun_later_is_not() {
    let store = MemoryStore::new();
    let catalog = catalog_in(Arc::new(store.clone())).await;
    let before = store.sequence();
    catalog.keep_intents().await.unwrap();
    assert_eq!(store.sequence(), before, "nothing is begun, and nothing is written");
    let one = blob(catalog.next_blob_id(7).await.unwrap(), 1, 110, 1);
    catalog.begin_blob(&one).await.unwrap();
    catalog.keep_intents().await.unwrap();
    let two = blob(catalog.next_blob_id(7).await.unwrap(), 2, 110, 1);
    catalog.begin_blob(&two).await.unwrap();
    assert_eq!(catalog.kept_intents().await.unwrap(), Some([one.blob].into()));
    catalog.keep_intents().await.unwrap();
    assert_eq!(catalog.kept_intents().await.unwrap(), Some([one.blob, two.blob].into()));
    store.corrupt(&key::meta("kept-intents"), |bytes| bytes.fill(0));
    assert_eq!(catalog.kept_intents().await.unwrap(), None, "any may be among them");
}

#[tokio::test]
async fn an_aborted_blob_is_dead_as_a_whole() {
    let catalog = catalog().await;
    let members = members(&catalog, &[10]).await;
    let blob = blob(catalog.next_blob_id(7).await.unwrap(), 1, 110, 1);
    catalog.begin_blob(&blob).await.unwrap();
    let given_up = DeadBytes { group: GroupId(1), blob: blob.blob, bytes: 110 };
    assert_eq!(catalog.abort_blob(blob.blob).await.unwrap(), Some(given_up));
    assert_eq!(catalog.abort_blob(blob.blob).await.unwrap(), None);
    assert!(matches!(catalog.commit_blob(&blob, &[members[0].0]).await, Err(CatalogError::NoIntent(_))));
    let dead = catalog.dead_page(GroupId(1), None, 9).await.unwrap().items;
    assert_eq!((dead[0].dead_bytes, dead[0].living), (110, false));
    assert_eq!(sound(&catalog).await.staged, 1);
    catalog.forget_blob(blob.blob).await.unwrap();
    assert_eq!(sound(&catalog).await.blobs, 0);
}

#[tokio::test]
async fn a_rebuilt_stack_lies_on_its_new_drive_and_the_failed_one_is_forgotten_blob_by_blob() {
    let catalog = catalog().await;
    let (id, _) = stored(&catalog, &[10, 20]).await;
    assert!(catalog.fail_drive(DriveId(7), 5).await.unwrap());
    assert!(!catalog.fail_drive(DriveId(7), 6).await.unwrap(), "it failed once");
    assert_eq!(catalog.failed_drives().await.unwrap(), [(DriveId(7), 5)]);
    assert!(!catalog.move_stack(id, 0, [DriveId(7), DriveId(20)]).await.unwrap(), "stack 0 lies elsewhere");
    assert!(!catalog.move_stack(id, 9, [DriveId(7), DriveId(20)]).await.unwrap(), "there is no stack 9");
    assert!(catalog.move_stack(id, 1, [DriveId(7), DriveId(20)]).await.unwrap());
    assert!(!catalog.move_stack(id, 1, [DriveId(7), DriveId(21)]).await.unwrap(), "reported late, or twice");
    assert_eq!(catalog.blob(id).await.unwrap().unwrap().drives, [DriveId(6), DriveId(20), DriveId(8)]);
    assert!(catalog.on_drive_page(DriveId(7), None, 9).await.unwrap().blobs.is_empty());
    let page = catalog.on_drive_page(DriveId(20), None, 9).await.unwrap();
    assert_eq!((page.blobs[0].0.blob, page.blobs[0].1, page.next), (id, true, None));
    sound(&catalog).await;
    catalog.delete_object("b", "k0").await.unwrap();
    catalog.delete_object("b", "k1").await.unwrap();
    catalog.forget_blob(id).await.unwrap();
    assert!(!catalog.move_stack(id, 1, [DriveId(20), DriveId(21)]).await.unwrap(), "the blob is gone");
    assert!(catalog.on_drive_page(DriveId(20), None, 9).await.unwrap().blobs.is_empty());
    sound(&catalog).await;
}

#[tokio::test]
async fn no_blob_is_forgotten_while_a_rebuild_may_have_left_a_stack_of_it() {
    let catalog = catalog().await;
    let (id, _) = stored(&catalog, &[10]).await;
    catalog.fail_drive(DriveId(7), 5).await.unwrap();
    let found = catalog.blob(id).await.unwrap().unwrap();
    let [first, second] = [20, 21].map(|drive| RebuildTarget { drive: DriveId(drive), index: 1, spare: false });
    assert!(catalog.begin_rebuild(&found, 1, first.drive).await.unwrap());
    assert!(catalog.begin_rebuild(&found, 1, first.drive).await.unwrap(), "once more is the same");
    assert!(catalog.begin_rebuild(&found, 1, second.drive).await.unwrap());
    assert_eq!(catalog.rebuild_targets(id).await.unwrap(), [first, second]);
    assert!(catalog.move_stack(id, 1, [DriveId(7), second.drive]).await.unwrap());
    assert_eq!(catalog.rebuild_targets(id).await.unwrap(), [first], "what is counted is not left over");
    assert!(!catalog.begin_rebuild(&found, 1, DriveId(22)).await.unwrap(), "it lies elsewhere by now");
    sound(&catalog).await;
    catalog.delete_object("b", "k0").await.unwrap();
    assert!(matches!(catalog.forget_blob(id).await, Err(CatalogError::BlobInUse(_))));
    catalog.forget_rebuild_targets(id, &[first]).await.unwrap();
    catalog.forget_blob(id).await.unwrap();
    assert!(!catalog.begin_rebuild(&found, 1, DriveId(22)).await.unwrap(), "it is gone");
    assert_eq!(sound(&catalog).await.blobs, 0);
}

#[tokio::test]
async fn stacks_that_a_recovery_has_missed_are_lost_until_they_are_rebuilt() {
    let catalog = catalog().await;
    let (blob, _) = stored(&catalog, &[10, 20]).await;
    let bytes = catalog.blob(blob).await.unwrap().unwrap().stack_bytes;
    catalog.note_missing(blob, &[(DriveId(7), [3; 16])]).await.unwrap();
    sound(&catalog).await;
    assert_eq!(catalog.lost_on_replaced().await.unwrap().into_iter().collect::<Vec<_>>(), [(DriveId(7), bytes)]);
    assert!(catalog.is_stack_lost(DriveId(7), blob).await.unwrap());
    assert!(catalog.failed_drives().await.unwrap().is_empty(), "the drive itself is good");
    let elsewhere = catalog.note_missing(blob, &[(DriveId(20), [4; 16])]).await;
    assert!(matches!(elsewhere, Err(CatalogError::Conflict)), "it counts no stack there");
    assert!(catalog.move_stack(blob, 1, [DriveId(7), DriveId(20)]).await.unwrap());
    assert!(catalog.lost_on_replaced().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_replaced_drive_held_stays_lost_and_what_is_written_to_the_new_one_does_not() {
    let catalog = catalog().await;
    let (old, _) = stored(&catalog, &[10, 20]).await;
    assert_eq!(catalog.replace_drive(DriveId(7), [3; 16]).await.unwrap(), None, "it has not failed");
    catalog.fail_drive(DriveId(7), 5).await.unwrap();
    assert!(
        catalog.is_stack_lost(DriveId(7), old).await.unwrap() && catalog.lost_on_replaced().await.unwrap().is_empty()
    );
    let bytes = catalog.blob(old).await.unwrap().unwrap().stack_bytes;
    assert_eq!(catalog.replace_drive(DriveId(7), [3; 16]).await.unwrap(), Some(bytes));
    assert_eq!(catalog.replace_drive(DriveId(7), [3; 16]).await.unwrap(), None, "once");
    assert!(catalog.failed_drives().await.unwrap().is_empty());
    assert_eq!(catalog.replacements().await.unwrap().into_iter().collect::<Vec<_>>(), [(DriveId(7), [3; 16])]);
    let new = blob(catalog.next_blob_id(7).await.unwrap(), 2, 100, 0);
    catalog.begin_blob(&new).await.unwrap();
    catalog.commit_blob(&new, &[]).await.unwrap();
    sound(&catalog).await;
    assert!(catalog.is_stack_lost(DriveId(7), old).await.unwrap());
    assert!(!catalog.is_stack_lost(DriveId(7), new.blob).await.unwrap());
    assert!(!catalog.is_stack_lost(DriveId(6), old).await.unwrap());
    assert_eq!(catalog.lost_on_replaced().await.unwrap().into_iter().collect::<Vec<_>>(), [(DriveId(7), bytes)]);
    let page = catalog.lost_page(DriveId(7), None, 1).await.unwrap();
    assert_eq!((page.blobs.len(), page.blobs[0].0.blob, page.next), (1, old, None));
    assert_eq!(catalog.on_drive_page(DriveId(7), None, 9).await.unwrap().blobs.len(), 2);
    // The page of dead blobs names it, too: removing the blob removes nothing from the new drive.
    let beside = async |drive| catalog.lost_beside(DriveId(7), DriveId(drive)).await.unwrap();
    assert!(beside(6).await.needed, "a blob of both has lost one stack already, and bears no more");
    assert_eq!(beside(9).await, LostBeside { bytes, needed: false }, "no blob lies on both");
    catalog.delete_object("b", "k0").await.unwrap();
    assert_eq!(catalog.dead_page(GroupId(2), None, 9).await.unwrap().items[0].lost, [DriveId(7)]);
    // The new one fails as well: everything is lost there, until it is replaced in its turn.
    catalog.fail_drive(DriveId(7), 6).await.unwrap();
    assert_eq!(catalog.lost_page(DriveId(7), None, 9).await.unwrap().blobs.len(), 2);
    assert_eq!(catalog.replace_drive(DriveId(7), [3; 16]).await.unwrap(), Some(bytes + new.stack_bytes));
    assert!(catalog.move_stack(old, 1, [DriveId(7), DriveId(20)]).await.unwrap());
    assert_eq!(catalog.lost_page(DriveId(7), None, 9).await.unwrap().blobs[0].0.blob, new.blob);
    assert!(!catalog.is_stack_lost(DriveId(20), old).await.unwrap(), "it is whole again");
    sound(&catalog).await;
}

#[tokio::test]
async fn a_stack_that_was_taken_for_lost_is_known_as_left_when_it_moves() {
    let store = MemoryStore::new();
    let catalog = catalog_in(Arc::new(store.clone())).await;
    let (id, _) = stored(&catalog, &[10, 20]).await;
    store.corrupt(&key::on_drive(DriveId(7), id), |bytes| bytes[0] ^= 3);
    assert!(catalog.is_stack_lost(DriveId(7), id).await.unwrap(), "what cannot be read may be lost");
    assert!(catalog.move_stack(id, 1, [DriveId(7), DriveId(20)]).await.unwrap());
    let left = RebuildTarget { drive: DriveId(7), index: 1, spare: false };
    assert_eq!(catalog.rebuild_targets(id).await.unwrap(), [left]);
    sound(&catalog).await;
}

#[tokio::test]
async fn what_lies_on_a_drive_that_is_back_counts_when_it_was_looked_for() {
    let catalog = catalog().await;
    let (id, _) = stored(&catalog, &[10, 20]).await;
    let found = catalog.blob(id).await.unwrap().unwrap();
    let given_up = async || catalog.given_up_drives().await.unwrap();
    catalog.give_up_drive(DriveId(7), 5).await.unwrap();
    catalog.give_up_drive(DriveId(7), 6).await.unwrap();
    assert_eq!((given_up().await, catalog.failed_drives().await.unwrap()), (vec![DriveId(7)], vec![(DriveId(7), 5)]));
    assert!(!catalog.begin_return(&found, 1).await.unwrap(), "it is not back");
    assert_eq!(catalog.take_back_drive(DriveId(7), [3; 16]).await.unwrap(), Some(found.stack_bytes));
    assert_eq!(catalog.take_back_drive(DriveId(7), [3; 16]).await.unwrap(), None, "once");
    assert!(given_up().await.is_empty() && catalog.failed_drives().await.unwrap().is_empty());
    let end = catalog.returned_drives().await.unwrap().remove(&DriveId(7)).unwrap();
    assert!(id.number < end && catalog.next_blob_id(7).await.unwrap().number > end);
    assert!(catalog.is_stack_lost(DriveId(7), id).await.unwrap());
    assert!(!catalog.begin_return(&found, 0).await.unwrap(), "that one counts");
    assert!(!catalog.note_left_over(id, DriveId(7), 1).await.unwrap(), "it may be wanted");
    let target = RebuildTarget { drive: DriveId(7), index: 1, spare: false };
    for _ in 0..2 {
        assert!(catalog.begin_return(&found, 1).await.unwrap());
        assert_eq!(catalog.rebuild_targets(id).await.unwrap(), [target]);
    }
    assert!(!catalog.count_returned(id, 1, DriveId(20)).await.unwrap(), "it does not lie there");
    for _ in 0..2 {
        assert!(catalog.count_returned(id, 1, DriveId(7)).await.unwrap(), "and once more is the same");
        assert!(!catalog.is_stack_lost(DriveId(7), id).await.unwrap());
        assert_eq!(catalog.rebuild_targets(id).await.unwrap(), []);
    }
    assert!(!catalog.begin_return(&found, 1).await.unwrap(), "nothing is written over what counts");
    sound(&catalog).await;
    // A stack that was rebuilt elsewhere is left over on a drive, unless a rebuild has the drive as its target.
    assert!(catalog.begin_rebuild(&found, 1, DriveId(20)).await.unwrap());
    assert!(!catalog.note_left_over(id, DriveId(20), 1).await.unwrap());
    assert!(catalog.move_stack(id, 1, [DriveId(7), DriveId(20)]).await.unwrap());
    assert_eq!(catalog.rebuild_targets(id).await.unwrap(), [target], "it counted there");
    catalog.forget_rebuild_targets(id, &[target]).await.unwrap();
    assert!(catalog.note_left_over(id, DriveId(7), 1).await.unwrap());
    assert_eq!(catalog.rebuild_targets(id).await.unwrap(), [target]);
    catalog.forget_rebuild_targets(id, &[target]).await.unwrap();
    catalog.forget_returned(DriveId(7)).await.unwrap();
    assert!(catalog.returned_drives().await.unwrap().is_empty());
    // The operator knows more than the rack.
    catalog.give_up_drive(DriveId(7), 8).await.unwrap();
    assert!(!catalog.fail_drive(DriveId(7), 9).await.unwrap());
    assert!(given_up().await.is_empty());
    sound(&catalog).await;
}

#[tokio::test]
async fn an_evacuation_brings_a_version_back_unless_it_left_meanwhile() {
    let catalog = catalog().await;
    let (id, members) = stored(&catalog, &[10, 20]).await;
    let dead = DeadBytes { group: GroupId(2), blob: id, bytes: 10 };
    assert_eq!(catalog.restage(("b", "k0"), members[0].version, id, 77).await.unwrap(), Some(dead));
    assert_eq!(catalog.restage(("b", "k0"), members[0].version, id, 78).await.unwrap(), None);
    assert_eq!(catalog.restage(("b", "k1"), members[1].version, id.next_number(), 78).await.unwrap(), None);
    assert_eq!(catalog.restage(("b", "k1"), VersionId(999), id, 78).await.unwrap(), None);
    assert_eq!(catalog.get_object("b", "k0").await.unwrap().1, Place::Staged { slot: 77 });
    sound(&catalog).await;
    catalog.delete_object("b", "k1").await.unwrap();
    catalog.forget_blob(id).await.unwrap();
    assert_eq!(catalog.staged_page(None, crate::StagedWhen::until(1), 9).await.unwrap().items.len(), 1);
    sound(&catalog).await;
}

#[tokio::test]
async fn blobs_and_dead_blobs_come_in_pages() {
    let catalog = catalog().await;
    for group in [1, 2, 1, 1] {
        let blob = blob(catalog.next_blob_id(7).await.unwrap(), group, 100, 0);
        catalog.begin_blob(&blob).await.unwrap();
        catalog.abort_blob(blob.blob).await.unwrap();
    }
    let mut after: Option<Cursor> = None;
    let mut seen = Vec::new();
    loop {
        let page = catalog.dead_page(GroupId(1), after.as_ref(), 2).await.unwrap();
        seen.extend(page.items.into_iter().map(|dead| dead.blob.blob.number));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, [1, 3, 4]);
    let first = catalog.on_drive_page(DriveId(3), None, 2).await.unwrap();
    let second = catalog.on_drive_page(DriveId(3), first.next, 2).await.unwrap();
    assert_eq!((first.blobs.len(), second.blobs.len(), second.next), (2, 1, None));
    assert!(first.blobs.iter().all(|(_, living)| !living), "nothing lives in what was aborted");
    assert_eq!(catalog.blobs_page(None, 9).await.unwrap().items.len(), 4);
    assert_eq!(catalog.dead_totals().await.unwrap(), [(GroupId(1), 300), (GroupId(2), 100)]);
    sound(&catalog).await;
}

#[tokio::test]
#[should_panic(expected = "as long in")]
async fn a_payload_composed_wrongly_never_becomes_the_only_copy() {
    let catalog = catalog().await;
    let members = members(&catalog, &[10]).await;
    let blob = blob(catalog.next_blob_id(7).await.unwrap(), 1, 110, 1);
    catalog.begin_blob(&blob).await.unwrap();
    let longer = Member { bytes: 11, ..members[0].0 };
    let _ = catalog.commit_blob(&blob, &[longer]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_commit_gets_through_a_storm_of_deletes() {
    let catalog = catalog().await;
    let list: Vec<_> = members(&catalog, &vec![1; 3_000]).await.into_iter().map(|(member, _)| member).collect();
    let blob = blob(catalog.next_blob_id(7).await.unwrap(), 0, 3_100, list.len());
    catalog.begin_blob(&blob).await.unwrap();
    let deleting = catalog.clone();
    let deleter = tokio::spawn(async move {
        for i in (0..3_000).rev().step_by(2) {
            deleting.delete_object("b", &format!("k{i}")).await.unwrap();
        }
    });
    let outcome = catalog.commit_blob(&blob, &list).await.unwrap();
    deleter.await.unwrap();
    assert_eq!(outcome.moved.len() + outcome.dead.len(), 3_000);
    let audit = sound(&catalog).await;
    assert_eq!((audit.stored, audit.dead_bytes), (1_500, 1_500));
}

/// A catalog with something of every kind in it.
async fn varied() -> Catalog {
    let catalog = catalog().await;
    stored(&catalog, &[10, 20, 30]).await;
    catalog.delete_object("b", "k1").await.unwrap();
    put(&catalog, "staged", 1, 1).await;
    catalog.begin_blob(&blob(catalog.next_blob_id(7).await.unwrap(), 1, 50, 1)).await.unwrap();
    let given_up = blob(catalog.next_blob_id(7).await.unwrap(), 0, 70, 1);
    catalog.begin_blob(&given_up).await.unwrap();
    catalog.abort_blob(given_up.blob).await.unwrap();
    catalog
}

/// The contradictions that an audit counts after `write` was slipped into a varied catalog.
async fn contradictions_after(write: Write) -> u64 {
    let catalog = varied().await;
    sound(&catalog).await;
    catalog.store.commit(Batch::new(Vec::new(), vec![write])).await.unwrap();
    catalog.audit().await.unwrap().contradictions
}

#[tokio::test]
async fn the_audit_misses_no_lost_and_no_damaged_record() {
    let entries = varied().await.store.scan(KeyRange::all(), usize::MAX).await.unwrap();
    let (mut lost, mut damaged) = (0, 0);
    for Entry { key, value } in entries {
        // No other record shows that an intent, a counter or the format was there.
        if b"BOVSTLDNX".contains(&key[0]) {
            assert!(contradictions_after(Write::Delete(key.clone())).await > 0, "{key:?} lost");
            lost += 1;
        }
        if b"BOVSTLNXI".contains(&key[0]) {
            let value = value.open(&key).unwrap().0;
            for bad in [vec![], vec![9], value[..value.len() - 1].to_vec(), [value, &[0]].concat()] {
                assert!(contradictions_after(Write::Put(key.clone(), bad)).await > 0, "{key:?} damaged");
            }
            damaged += 1;
        }
    }
    assert!(lost >= 19 && damaged >= 14, "{lost} {damaged}");
}

#[tokio::test]
async fn the_audit_finds_what_should_not_be_there() {
    let (blob, version) = (BlobId::numbered(1), VersionId(1));
    let ten = encode(&10_u64);
    let extra = [
        key::tomb(GroupId(2), blob, 0, version),
        key::member(blob, 5, version),
        key::member(blob, 45, VersionId(99)),
        key::aged(1, version),
        key::on_drive(DriveId(50), blob),
        key::rebuild_target(BlobId::numbered(99), DriveId(50), 0),
        key::rebuild_target(blob, DriveId(50), 200),
        key::drive(DriveId(4)),
        b"z-no-such-kind".to_vec(),
        b"\x01before-all".to_vec(),
        key::version(VersionId(1 << 40)),
        key::intent(BlobId::numbered(1 << 40)),
    ];
    for key in extra {
        assert!(contradictions_after(Write::Put(key.clone(), ten.clone())).await > 0, "{key:?}");
    }
}

/// The record at `key` of a varied catalog, with what `wrong` makes of it.
async fn pointing<T: Encode + Decode>(key: &[u8], wrong: impl FnOnce(&mut T)) -> Write {
    let sealed = varied().await.store.get(key).await.unwrap().unwrap();
    let mut record: T = decode(key, &sealed).unwrap();
    let before = encode(&record);
    wrong(&mut record);
    let after = encode(&record);
    assert_ne!(before, after, "another record than before");
    Write::Put(key.to_vec(), after)
}

/// The catalog's three directions are SOHO's maps: object -> place (AMT), workshop slot -> object (SUR), rack blob ->
/// objects (HUR).
#[tokio::test]
async fn the_audit_finds_a_wrong_pointer_in_each_of_the_three_directions() {
    let catalog = catalog().await;
    let (rack, members) = stored(&catalog, &[10, 20, 30]).await;
    catalog.delete_object("b", "k1").await.unwrap();
    let version = put(&catalog, "staged", 1, 1).await.0;
    let (staged, in_rack) = (key::object("b", "staged"), key::object("b", "k0"));
    let (mark, owner) = (key::staged("b", "staged"), key::version(version));
    let member = key::member(rack, members[0].offset, members[0].version);
    let moved = |place| move |placed: &mut PlacedObject| placed.place = place;
    let stored_at = |blob, offset| moved(Place::Stored { blob, offset });
    let wrong = [
        ("AMT, another slot", pointing(&staged, moved(Place::Staged { slot: 99 })).await),
        ("AMT, in the rack instead of the workshop", pointing(&staged, stored_at(rack, 0)).await),
        ("AMT, in the workshop instead of the rack", pointing(&in_rack, moved(Place::Staged { slot: 99 })).await),
        ("AMT, another blob", pointing(&in_rack, stored_at(BlobId::numbered(99), 0)).await),
        ("AMT, elsewhere in its blob", pointing(&in_rack, stored_at(rack, 5)).await),
        ("SUR, another slot", pointing(&mark, |mark: &mut StagedMark| mark.slot = 99).await),
        ("SUR, another version", pointing(&mark, |mark: &mut StagedMark| mark.version = members[0].version).await),
        ("SUR, another object", pointing(&owner, |owner: &mut Owner| owner.key = "k0".into()).await),
        ("HUR, another length", Write::Put(member, encode(&11_u64))),
        ("HUR, a version of the workshop", Write::Put(key::member(rack, 60, version), encode(&1_u64))),
        ("HUR, a version that nobody has", Write::Put(key::member(rack, 60, VersionId(77)), encode(&1_u64))),
    ];
    for (what, write) in wrong {
        assert!(contradictions_after(write).await > 0, "{what}");
    }
}
