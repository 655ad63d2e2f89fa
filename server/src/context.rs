//! Everything that a server works with: clock, drives, catalog, workshop, and the counters that only the world sees.
//!
//! Given tokio's paused clock, drives and a catalog in memory, the same server runs in virtual time on one thread.

use crate::catalog_age::CatalogAge;
use crate::holds::Holds;
use crate::losses::Losses;
use crate::open_parts::OpenParts;
use crate::pacing::Pacing;
use crate::processor::Processor;
use crate::reads::ReadLog;
use crate::refusals::Refusals;
use catalog::{Blob, Catalog, CatalogError};
use disk::label::RackUuid;
use disk::{Clock, Drive};
use engine::Usage;
use engine::trace::Record;
use futures::future::BoxFuture;
use model::{ClassId, DriveId, Rng};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use workshop::{SmallFiles, Spool, Staging};

/// Starts a task that the caller does not wait for.
pub type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// The wall clock, in milliseconds of the Unix epoch. For S3's dates and the ages of objects, never for physics.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Draws the nonce of a blob's id.
pub type Nonce = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Nonces from one stream of random numbers. Never 0, which is for worlds without media.
pub fn nonces(seed: u64) -> Nonce {
    let stream = Mutex::new(Rng::for_thing(seed, NONCE_SALT));
    Arc::new(move || stream.lock().next_u64().max(1))
}

/// Separates the stream of nonces from others of the same seed.
const NONCE_SALT: u64 = 0x6e6f_6e63_6500;

/// The class that a key of a bucket is pinned to.
pub type PinOf = Arc<dyn Fn(&str, &str) -> Option<ClassId> + Send + Sync>;

/// Takes the records of the engine's trace.
pub type Tracer = Arc<dyn Fn(&Record) + Send + Sync>;

/// The part of the staging area that is in the log in front of the catalog.
#[derive(Clone)]
pub struct SmallObjects {
    /// The drive that the staging area works on.
    pub files: Arc<SmallFiles>,
    /// Objects with fewer bytes go there.
    pub below_bytes: u64,
}

impl SmallObjects {
    /// Lets the staged file of `slot`, with `bytes` bytes of data, become a record if it is small. It must then be
    /// [settled](Self::settle).
    pub(crate) fn admit(&self, catalog: &Catalog, slot: u64, bytes: u64) {
        if bytes < self.below_bytes && catalog.takes_payloads() {
            self.files.admit(slot, bytes);
        }
    }

    /// Records that the batch of the file of `slot` was answered with `answer`. A refused file is freed like any staged
    /// file. After an error that leaves open what is durable, nothing refers to the file before the next start.
    pub(crate) fn settle<T>(&self, slot: u64, answer: &Result<T, CatalogError>) {
        if !answer.as_ref().is_err_and(is_refusal) {
            self.files.settled(slot);
        }
    }
}

/// True if the catalog certainly changed nothing. After any other error the change may still be durable, so a file that
/// it refers to must stay; a file without a reference goes at the next start.
pub(crate) fn is_refusal(error: &CatalogError) -> bool {
    matches!(
        error,
        CatalogError::NoSuchBucket
            | CatalogError::NoSuchKey
            | CatalogError::NoSuchUpload
            | CatalogError::NoSuchPart(_)
            | CatalogError::PreconditionFailed
            | CatalogError::Conflict
            | CatalogError::Store(catalog::StoreError::Full)
    )
}

/// Everything that a server works with.
#[derive(Clone)]
pub struct Context {
    /// Modelled time.
    pub clock: Arc<dyn Clock>,
    /// The wall clock.
    pub wall: WallClock,
    /// Starts tasks.
    pub spawn: Spawn,
    /// The drives, by number. Shared, because every request has its own context.
    pub drives: Arc<[Arc<dyn Drive>]>,
    /// The rack's number, on every label and stack.
    pub rack_uuid: RackUuid,
    /// Draws the nonce of a new blob.
    pub nonce: Nonce,
    /// All durable records.
    pub catalog: Catalog,
    /// Staged files.
    pub staging: Staging,
    /// The place of small objects, unless they go into separate files.
    pub small: Option<SmallObjects>,
    /// Migration beside clients.
    pub pacing: Pacing,
    /// Recalls.
    pub spool: Spool,
    /// Blobs with readers.
    pub holds: Holds,
    /// The age of the catalog: the newest one, or older than the rack.
    pub catalog_age: Arc<CatalogAge>,
    /// Held while a task looks into the spool and orders a recall, so that two clients order the same bytes once.
    pub recall_order: Arc<tokio::sync::Mutex<()>>,
    /// Pins of buckets and prefixes.
    pub pin_of: PinOf,
    /// Counters that the engine does not have.
    pub counters: Arc<WorldCounters>,
    /// The processor that decodes, splits and encodes the records of repartition jobs.
    pub processor: Processor,
    /// Takes the engine's trace, if one is written.
    pub trace: Option<Tracer>,
}

impl Context {
    /// `blob`, which is held, with its current stacks: while it is read, its stacks may be rebuilt on other drives, and
    /// the old ones replaced. Unchanged if the catalog does not have it.
    pub(crate) async fn as_it_lies(&self, blob: &Blob) -> Blob {
        self.catalog.blob(blob.blob).await.ok().flatten().unwrap_or_else(|| blob.clone())
    }
}

/// Counters that only the world can count.
#[derive(Debug, Default)]
pub struct WorldCounters {
    /// Fragments that were bad and were repaired.
    pub repaired_fragments: AtomicU64,
    /// Fuses that tripped.
    pub fuse_trips: AtomicU64,
    /// Objects that were served with other bytes than those acknowledged.
    pub wrong_bodies: AtomicU64,
    /// Staged files that this catalog does not know, and that may belong to a newer catalog.
    pub unknown_staged: AtomicU64,
    /// Staged files that were missing at the start.
    pub missing_staged: AtomicU64,
    /// Staged files that the last run left, and that the next start removes.
    pub left_staged: AtomicU64,
    /// The parts of open uploads, including those that are being received.
    pub open_parts: OpenParts,
    /// Stripes that reads found lost.
    pub losses: Losses,
    /// The reasons that recalls failed.
    pub refusals: Refusals,
    /// Set while the engine reports that the rack has no room for staged objects.
    pub rack_full: AtomicBool,
    /// Set while the last attempt to bring a copy of the catalog to drives failed, or one has been due for too long.
    pub are_copies_overdue: AtomicBool,
    /// Set while the last snapshot of the catalog failed.
    pub has_snapshot_failed: AtomicBool,
    /// The largest object that a group of the rack can hold, in bytes; 0 before that is known.
    pub object_bytes_max: AtomicU64,
    /// Objects that were read ahead of a request.
    pub ahead_objects: AtomicU64,
    /// GETs of cold objects that found bytes that were read ahead for them.
    pub ahead_hits: AtomicU64,
    /// Staged objects that went to the rack without being read again after their check.
    pub saved_reads: AtomicU64,
    /// Their bytes.
    pub saved_read_bytes: AtomicU64,
    /// The reasons that drives could not be used when they were last tried.
    pub absences: Reasons,
    /// The reasons that readable drives did not take the last stack that was to be written to them.
    pub refused_writes: Reasons,
    /// Reads of staged objects.
    pub reads: ReadLog,
}

/// The workshop's fill for the engine: bytes that may migrate, and the room for those. Parts of open uploads may not,
/// and migrating everything else in haste would make no room for them.
pub(crate) fn usage_of(context: &Context) -> Usage {
    let usage = context.staging.usage();
    let open = &context.counters.open_parts;
    Usage {
        staged_bytes: usage.staged_bytes.saturating_sub(open.staged_bytes()),
        capacity_bytes: usage.capacity_bytes.saturating_sub(open.bytes()),
    }
}

impl WorldCounters {
    /// Forgets the reasons of `drive`: it was given up, or is another one.
    pub fn forget_reasons(&self, drive: DriveId) {
        self.absences.note(drive, None);
        self.refused_writes.note(drive, None);
    }
}

/// Reasons, most with a fix: at most one sentence for each drive.
#[derive(Debug, Default)]
pub struct Reasons(Mutex<BTreeMap<DriveId, String>>);

impl Reasons {
    /// Records that `drive` could not be used, for this reason; or that it could.
    pub fn note(&self, drive: DriveId, reason: Option<String>) {
        let mut reasons = self.0.lock();
        match reason {
            Some(reason) => drop(reasons.insert(drive, reason)),
            None => drop(reasons.remove(&drive)),
        }
    }

    /// The reasons, by drive.
    pub fn all(&self) -> BTreeMap<DriveId, String> {
        self.0.lock().clone()
    }
}
