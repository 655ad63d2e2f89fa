//! The catalog: every object, and the place of its bytes.
//!
//! Two layers. [`Store`] is the interface below: ordered keys, range reads, atomic batches with preconditions, durable
//! when `commit` returns. `SqliteStore` and `MemoryStore` implement it and pass one conformance suite. [`Catalog`] is
//! the interface above: buckets, objects, places, blobs, drives, in typed records over any store.
//!
//! Invariants:
//! - an object is visible when its batch is durable, and not before; no reader sees part of a batch;
//! - a blob is known only after its stacks are synced and read back; while it is written, an intent represents it;
//! - a version has exactly one place; moving it is one batch; no batch removes the last place of a living version;
//! - nothing here touches a drive of the rack.

// Every call of `Catalog` may return `Store` and `Damaged`; its other errors are listed under its "Errors".
#![allow(clippy::missing_errors_doc)]

mod adopt;
mod audit;
mod authority;
mod blob;
mod bucket;
mod catalog;
mod checkpoint;
mod checks;
mod committer;
mod copies;
mod error;
mod failed;
mod follow;
mod follower;
mod habits;
mod health;
mod ids;
mod initialised;
mod job;
mod journal;
mod key;
mod key_digest;
mod list;
mod locate;
mod log;
mod log_entry;
mod look;
mod lost;
mod memory;
mod memory_log;
mod meta;
mod object;
mod parts;
mod placed;
mod placed_format;
mod quarantine;
mod reads;
mod rebuild;
mod record;
mod replay;
mod retiring;
mod rules;
mod scrub;
mod seal;
mod snapshot;
mod sqlite;
mod staging;
mod store;
mod unreadable;
mod upload;

pub use adopt::{AdoptError, Adopted, Adoption, FoundMember};
pub use audit::Audit;
pub use authority::Authority;
pub use blob::{CommitBlob, DeadPage, DeadRecord};
pub use catalog::{Catalog, Cursor, Page};
pub use checkpoint::JobCheckpoint;
pub use checks::ChecksRecord;
pub use copies::{CATALOG_BUCKET, CatalogCopy, CopyChain, CopyContent, chain_of, copy_nonce, may_have_copy};
pub use error::{CatalogError, StoreError};
pub use failed::{LostBeside, OnDrive};
pub use follower::{FollowedFrom, Follower};
pub use habits::DriveHabits;
pub use health::DriveHealth;
pub use job::{HIDDEN_BUCKET, Job, JobInput, JobObject, JobState, Publication};
pub use journal::{Journal, JournalFiles, JournalStatus, Since};
pub use lineage::Sequence;
pub use list::{ListRequest, Listing};
pub use locate::Located;
pub use log::{CommitLog, LogError, LogRecord};
pub use look::Known;
pub use lost::{LostObject, LostObjects};
pub use memory::MemoryStore;
pub use memory_log::{LogFault, MemoryLog, PayloadRecord};
pub use object::{Displaced, MetadataChange, PutCondition, StagedObject};
pub use parts::{PARTS_MAX, PartLengths};
pub use placed::PlacedPage;
pub use reads::{AgedVersion, Reads};
pub use rebuild::RebuildTarget;
pub use record::{
    Acl, Blob, Bucket, BucketChange, Checksum, ChecksumKind, ClockAnchor, DriveRecord, Member, Object, ObjectChange,
    Ownership, Part, Place, PlacedObject, Upload, User, Version, VersionId,
};
pub use scrub::{DamagedStack, ScrubCounts, ScrubFinding, ScrubPass};
pub use seal::{SEAL_BYTES, Sealed};
pub use snapshot::{LoadFrom, Loaded, SnapshotError, SnapshotTotals, check_snapshot, load_snapshot};
pub use sqlite::{SqliteOptions, SqliteStats, SqliteStore};
pub use staging::{DeadBytes, StagedSlot, StagedUsage, StagedWhen};
pub use store::{Batch, Check, Entry, KeyRange, Payload, Store, StoreFuture, Write};
pub use unreadable::Unreadable;
pub use upload::{ChosenPart, Completed, UploadListRequest, UploadListing, UploadUsage};

#[cfg(test)]
mod tests;
