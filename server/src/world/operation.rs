//! The world's side of operations: the state of each until it ends, and the values that pass between the tasks of one
//! operation.

use super::read_target::ReadProgress;
use crate::holds::Hold;
use catalog::{Blob, Cursor, StagedWhen, VersionId};
use disk::Drive;
use engine::staging::Selection;
use engine::{JobClass, Rejection};
use futures::future::{BoxFuture, Shared};
use model::{BlobId, DriveId, GroupId};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;
use workshop::{CheckedBytes, HeldPack, Sealed};

/// The world's side of an operation.
pub(super) enum Operation {
    Read {
        blob: Blob,
        /// Here while no transfer uses it.
        progress: Option<Box<ReadProgress>>,
        refused: Arc<OnceLock<Rejection>>,
        /// Keeps the blob's stacks.
        _hold: Hold,
    },
    Write {
        pack: Arc<HeldPack>,
        of: Origin,
        /// Set when the stacks are written and synced.
        written: Option<WrittenBlob>,
    },
    Rebuild(Rebuild),
    /// The blob that is scrubbed.
    Scrub(BlobId),
    /// An inspection of the drives of a group; has the answer until the drives are handed out.
    Inspect(Option<InspectAnswer>),
}

impl Operation {
    /// True if it reads into memory, or inspects, for a caller that is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Read { progress: Some(progress), .. } => progress.is_abandoned(),
            Self::Inspect(Some(answer)) => answer.is_closed(),
            _ => false,
        }
    }
}

/// The readable drives of a group. The inspection ends when this is dropped, so it is to be held only briefly.
pub struct InspectedDrives {
    drives: BTreeMap<DriveId, Arc<dyn Drive>>,
    _held: oneshot::Sender<()>,
}

impl InspectedDrives {
    /// These drives; `held` is dropped when they are released.
    pub(super) fn new(drives: BTreeMap<DriveId, Arc<dyn Drive>>, held: oneshot::Sender<()>) -> Self {
        Self { drives, _held: held }
    }

    /// The drive `drive`, if it can be read.
    pub fn get(&self, drive: DriveId) -> Option<Arc<dyn Drive>> {
        self.drives.get(&drive).cloned()
    }
}

/// The channel for the outcome of an inspection.
pub(super) type InspectAnswer = oneshot::Sender<Result<InspectedDrives, Rejection>>;

/// The source of a blob that is written.
pub(super) enum Origin {
    /// These versions of the workshop.
    Workshop(Vec<VersionId>),
    /// Bytes in memory.
    Memory(Box<Making>),
}

/// An order to write a blob.
pub struct WriteOrder {
    /// Its bytes.
    pub pack: Arc<HeldPack>,
    /// The group to write it to.
    pub group: GroupId,
    /// The keys of the pack's members in the hidden bucket, in the pack's order.
    pub keys: Vec<String>,
    /// The class of the repartition job whose step this is part of.
    pub job: JobClass,
    /// The channel for its outcome.
    pub answer: oneshot::Sender<Result<Blob, MakeError>>,
}

/// Why a blob was not made. Nothing of it is recorded then.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// It was withdrawn before it started.
    #[error("it was withdrawn")]
    Withdrawn,
    /// The rack refused it, or could not write it.
    #[error("{0}")]
    Refused(Rejection),
    /// It is written, but the catalog refuses it.
    #[error("the catalog rejects it: {0}")]
    Catalog(String),
}

/// The keys of a blob's members, and the channel for its outcome.
pub(super) struct Making {
    pub(super) keys: Vec<String>,
    pub(super) job: JobClass,
    pub(super) answer: oneshot::Sender<Result<Blob, MakeError>>,
}

/// A blob whose stacks are written and synced.
#[derive(Clone, Debug)]
pub(crate) struct WrittenBlob {
    pub(super) blob: Blob,
    pub(super) sealed: Sealed,
    /// Every fragment was read back, and the payload has the checksum that it was sealed with.
    pub(super) read_back: bool,
}

impl WrittenBlob {
    /// The blob, ready to be committed: the engine counts it as written to `drives` of `group`.
    pub(super) fn into_committed(self, group: GroupId, drives: &[DriveId]) -> Blob {
        let Self { blob, sealed, read_back } = self;
        assert!(read_back, "{} is read back before it is committed", blob.blob);
        assert_eq!((blob.group, &*blob.drives), (group, drives), "{} lies where the engine counts it", blob.blob);
        assert_eq!(blob.payload_bytes, sealed.payload_bytes, "{} is as long as its intent says", blob.blob);
        blob
    }
}

/// The state of a rebuild.
#[derive(Clone, Debug)]
pub(crate) struct Rebuild {
    /// The index of the stack.
    pub(crate) index: u8,
    /// The stack is damaged, and its new copy is written beside it.
    pub(crate) in_place: bool,
    /// The stack was lost with a drive that was replaced or is back, and returns to its place there. It may be read as
    /// soon as it is written, whether or not it counts.
    pub(crate) returns: bool,
    /// The blob and the checksum of its payload, once the stack is written.
    pub(crate) written: Option<(Blob, u64)>,
}

/// The state of a listing of staged versions.
#[derive(Clone, Debug)]
pub(crate) struct StagedCursor {
    pub(super) when: StagedWhen,
    pub(super) selection: Selection,
    /// The end of the last page; `None` after the last one.
    pub(super) after: Option<Cursor>,
}

/// Checked versions in memory.
pub(super) type InMemory = HashMap<VersionId, CheckedBytes>;

/// The point at which a pass of checks continues.
#[derive(Clone, Debug)]
pub(crate) enum CheckPlace {
    /// The point in its record.
    AsRecorded,
    /// After this staged version, or at the first one.
    Behind(Option<Cursor>),
}

/// Completes when the starts of one batch of actions, and of all batches before it, are persisted.
pub(super) type StartsPersisted = Shared<BoxFuture<'static, ()>>;

/// The number of the last command to each drive.
pub(super) type LastCommands = Arc<[AtomicU32]>;
