//! Versions that cannot be read: remembered once, gone with its version, and never of a version that has moved.

use super::{blob, catalog, put, sound};
use crate::{Member, Place, Version, VersionId};

#[tokio::test]
async fn an_unreadable_version_is_named_until_it_is_cleared_written_anew_or_deleted() {
    let catalog = catalog().await;
    let mut versions = Vec::new();
    for key in ["a", "b", "c", "d"] {
        versions.push(put(&catalog, key, 10, 1).await.0);
    }
    assert_eq!(catalog.are_unreadable(&versions).await.unwrap(), [false; 4]);
    for version in &versions[..3] {
        let found = catalog.staged_version(*version).await.unwrap().unwrap();
        assert!(catalog.mark_unreadable(&found, 7, "it is damaged").await.unwrap());
        assert!(catalog.mark_unreadable(&found, 9, "another reason").await.unwrap());
    }
    assert_eq!(catalog.are_unreadable(&versions).await.unwrap(), [true, true, true, false]);
    assert_eq!(catalog.unreadable_usage().await.unwrap(), (3, 30));
    let page = catalog.unreadable_page(None, 2).await.unwrap();
    let named: Vec<_> = page.items.iter().map(|found| (found.key.as_str(), found.since_ms)).collect();
    assert_eq!(named, [("a", 7), ("b", 7)]);
    assert_eq!(catalog.unreadable_page(page.next.as_ref(), 2).await.unwrap().items.len(), 1);
    let unreadable = catalog.unreadable_of(versions[0]).await.unwrap().unwrap();
    assert_eq!((unreadable.reason.as_str(), unreadable.bytes), ("it is damaged", 10));
    catalog.clear_unreadable(versions[0]).await.unwrap();
    put(&catalog, "b", 4, 2).await;
    catalog.delete_object("b", "c").await.unwrap();
    assert_eq!(catalog.unreadable_usage().await.unwrap(), (0, 0));
    assert_eq!(catalog.unreadable_of(versions[0]).await.unwrap(), None);
    sound(&catalog).await;
}

#[tokio::test]
async fn what_is_gone_or_lies_elsewhere_is_not_marked() {
    let catalog = catalog().await;
    let (version, _) = put(&catalog, "a", 10, 1).await;
    let mut found = catalog.staged_version(version).await.unwrap().unwrap();
    found.place = Place::Staged { slot: 77 };
    assert!(!catalog.mark_unreadable(&found, 7, "not there").await.unwrap());
    found.version = VersionId(99);
    assert!(!catalog.mark_unreadable(&found, 7, "never was").await.unwrap());
    assert_eq!(catalog.unreadable_usage().await.unwrap(), (0, 0));
    sound(&catalog).await;
}

#[tokio::test]
async fn a_version_that_moves_leaves_quarantine() {
    let catalog = catalog().await;
    let (version, _) = put(&catalog, "a", 10, 1).await;
    let mark = async |place: Place| {
        let found = Version { version, bucket: "b".into(), key: "a".into(), bytes: 10, staged_ms: 1, place };
        assert!(catalog.mark_unreadable(&found, 7, "a sector cannot be read").await.unwrap());
    };
    let id = catalog.next_blob_id(7).await.unwrap();
    let blob = blob(id, 2, 200, 1);
    catalog.begin_blob(&blob).await.unwrap();
    // Its pack has read it by then.
    mark(catalog.get_object("b", "a").await.unwrap().1).await;
    catalog.commit_blob(&blob, &[Member { version, offset: 0, bytes: 10 }]).await.unwrap();
    assert_eq!(catalog.unreadable_of(version).await.unwrap(), None, "it was read, and is in the rack");
    sound(&catalog).await;
    mark(Place::Stored { blob: id, offset: 0 }).await;
    let slot = catalog.next_slot().await.unwrap();
    assert!(catalog.restage(("b", "a"), version, id, slot).await.unwrap().is_some());
    assert_eq!(catalog.unreadable_of(version).await.unwrap(), None, "it was read, and is in the workshop");
    sound(&catalog).await;
}
