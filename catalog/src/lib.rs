//! What Larder remembers: which key lies where.
//!
//! Two layers. [`Store`] is the seam: ordered keys, range reads, atomic batches with preconditions, durable when `commit`
//! returns. `SqliteStore` and `MemoryStore` stand behind it and pass one conformance suite. [`Catalog`] is what everybody
//! uses: buckets, objects, places, blobs, drives, in typed records over any store.
//!
//! Invariants:
//! - an object is visible when its batch is durable, and not before; no batch is seen in part;
//! - a blob is known only once its stacks are synced and read back; while it is written, an intent stands for it;
//! - a version has exactly one place; moving it is one batch; no batch removes the last place of a living version;
//! - nothing here touches a drive of the rack.

mod record;
mod store;

pub use record::{
    Blob, Bucket, Checksum, ChecksumKind, DriveRecord, Object, Place, Version, VersionId,
};
pub use store::{Batch, Check, Entry, KeyRange, Store, StoreError, StoreFuture, Write};
