//! What a recovery is asked for, is at, and has done.

use model::DriveId;
use serde::Serialize;
use std::path::PathBuf;

/// The choices of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A copy of the catalog (`larder catalog backup`), which may be older than the journal.
    pub from: Option<PathBuf>,
    /// Make it again although there is one.
    pub replace: bool,
}

/// What a recovery is at.
#[derive(Debug)]
pub enum Step<'a> {
    /// It begins with this.
    Base(Option<Base>),
    /// So many groups are looked through for copies of the catalog. A spare counts as a group of its own.
    Copies(u64),
    /// So many groups are looked at. A spare counts as a group of its own.
    Groups(u64),
    /// These drives are about to be started: those of a group, or a spare.
    Awake(&'a [DriveId]),
    /// They are stopped.
    Asleep,
    /// Some thousand blobs more were looked at: all in all so many.
    Blobs(Pass),
    /// A group was looked through: all in all so much.
    Group(Pass),
    /// A blob, a drive or a file cannot be used, for this reason.
    Unusable(&'a str),
}

/// Blobs between two reports of the progress within a group.
const REPORT_BLOBS: u64 = 5_000;

/// How far a pass over all groups is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The groups of the rack; a spare counts as one.
    pub groups: u64,
    /// Those that were looked through.
    pub groups_done: u64,
    /// Drives in these that could be read.
    pub drives: u64,
    /// Blobs that were looked at.
    pub blobs: u64,
    /// Payload bytes of these, where that is known.
    pub bytes: u64,
}

impl Pass {
    pub(super) fn of(groups: usize) -> Self {
        Self { groups: groups as u64, ..Self::default() }
    }

    /// One more blob was looked at, with a payload of so many bytes.
    pub(super) fn blob(&mut self, payload_bytes: u64, watch: &(dyn Fn(Step<'_>) + Sync)) {
        self.blobs += 1;
        self.bytes = self.bytes.saturating_add(payload_bytes);
        if self.blobs.is_multiple_of(REPORT_BLOBS) {
            watch(Step::Blobs(*self));
        }
    }

    /// One more group was looked through, so many of whose drives could be read.
    pub(super) fn group(&mut self, drives: usize) {
        self.groups_done += 1;
        self.drives += drives as u64;
        assert!(self.groups_done <= self.groups, "each group is looked at once");
    }
}

/// Where a snapshot was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In the journal, in the workshop.
    #[default]
    Journal,
    /// On drives: there is no snapshot in the workshop.
    Drives,
    /// In the file that the operator named.
    Copy,
}

/// A snapshot that a catalog was made from, and the batches since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Base {
    /// Where it was found.
    pub source: Source,
    /// When the snapshot was made, in milliseconds of the Unix epoch.
    pub made_ms: u64,
    /// Its records.
    pub records: u64,
    /// Batches that were committed while it was made, and since.
    pub batches: u64,
    /// Records that were damaged when it was made, and are missing.
    pub damaged: u64,
}

/// A recovery that was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What the catalog was made from before the drives were looked at; nothing if there was neither a snapshot nor a
    /// copy of it.
    pub base: Option<Base>,
    /// Batches that the log of small objects has, and that do not follow on what there is: the journal was cut off, or
    /// there was none.
    pub behind_log: Option<String>,
    /// Blobs on the drives.
    pub blobs: u64,
    /// Of these, blobs that the catalog did not know and was to.
    pub adopted: u64,
    /// Objects that were found in these, their bytes, members that are dead, and buckets that were made for them.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Members that are dead.
    pub dead: u64,
    /// Buckets that were made for them.
    pub buckets: u64,
    /// Stacks that lie elsewhere than the catalog knew.
    pub moved: u64,
    /// Stacks missing from readable drives; the server rebuilds them.
    pub missing: u64,
    /// Objects that the catalog knew, and of whose blob no drive has anything: they were deleted, or moved to a workshop
    /// that is lost, after the last change that it has.
    pub removed: u64,
    /// Objects whose blob was removed after they were moved back to the workshop, where they are.
    pub moved_back: u64,
    /// Objects that were in the workshop alone, and the workshop is lost.
    pub staged: u64,
    /// Blobs that cannot be read.
    pub unreadable: u64,
    /// Drives that cannot be used.
    pub drives_unusable: u64,
    /// Drives that the base of the catalog records as failed. Some may have been replaced since.
    pub failed: Vec<u32>,
    /// Owners of buckets who are no users: they have no keys.
    pub owners: Vec<String>,
    /// Where the catalog that was there is now.
    pub replaced: Option<String>,
}
