//! The typed catalog, tried from outside over stores in memory; every test ends with an audit.
#![allow(clippy::unwrap_used)]

mod blobs;
pub(crate) mod conformance;
mod damage;
mod history;
mod jobs;
mod journal;
mod listing;
mod log;
mod objects;
mod reads;
mod rights;
mod small;
mod snapshot;
mod unreadable;
mod uploads;

use crate::{Acl, Audit, Blob, Bucket, Catalog, Displaced, MemoryStore, Object, Store, VersionId};
use model::{BlobId, ClassId, DriveId, GroupId};
use std::sync::Arc;

/// A catalog over `store` with a bucket named "b".
async fn catalog_in(store: Arc<dyn Store>) -> Catalog {
    let catalog = Catalog::open(store).await.unwrap();
    catalog.create_bucket(&bucket()).await.unwrap();
    catalog
}

/// The bucket that catalogs under test have at first.
fn bucket() -> Bucket {
    Bucket::new("b", 1, "me")
}

/// A version of the object at `key` that left the workshop file of `slot`.
fn from_workshop(key: &str, version: VersionId, slot: u64, bytes: u64) -> Displaced {
    Displaced::Staged { bucket: "b".into(), key: key.into(), version, slots: vec![slot], bytes }
}

async fn catalog() -> Catalog {
    catalog_in(Arc::new(MemoryStore::new())).await
}

/// An object whose ETag shows its version.
fn object(version: VersionId, bytes: u64, modified_ms: u64) -> Object {
    Object {
        version,
        bytes,
        etag: format!("e{}", version.0),
        modified_ms,
        created_ms: modified_ms,
        headers: vec![("content-type".into(), "text/plain".into())],
        metadata: Vec::new(),
        checksums: Vec::new(),
        acl: Acl::Private,
        tags: Vec::new(),
        parts: crate::PartLengths::default(),
    }
}

/// Puts a new object of `bytes` bytes; its version and slot.
async fn put(catalog: &Catalog, key: &str, bytes: u64, modified_ms: u64) -> (VersionId, u64) {
    let version = catalog.next_version_id().await.unwrap();
    let slot = catalog.next_slot().await.unwrap();
    let object = object(version, bytes, modified_ms);
    catalog.put_object((&bucket(), key), &object, slot, &crate::PutCondition::None).await.unwrap();
    (version, slot)
}

/// A blob of group `group` on drives 3 x group and the next two.
fn blob(id: BlobId, group: u32, payload_bytes: u64, members: usize) -> Blob {
    Blob {
        blob: id,
        group: GroupId(group),
        class: ClassId(0),
        drives: (0..3).map(|i| DriveId(3 * group + i)).collect(),
        code_data: 2,
        code_parity: 1,
        fragment_bytes: 4096,
        payload_bytes,
        stack_bytes: payload_bytes / 2 + 4096,
        members: members as u32,
        written_ms: 9,
    }
}

/// The audit of a sound catalog.
async fn sound(catalog: &Catalog) -> Audit {
    let audit = catalog.audit().await.unwrap();
    assert_eq!(audit.contradictions, 0, "{:#?}", audit.findings);
    audit
}
