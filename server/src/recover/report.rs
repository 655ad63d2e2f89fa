//! The options, the progress and the result of a recovery.

use catalog::Sequence;
use model::DriveId;
use serde::Serialize;
use std::path::PathBuf;

/// The place of the snapshots that the operator has chosen for a recovery to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseChoice {
    /// The journal, with the log, even if drives show a newer catalog.
    Journal,
    /// The copies on drives. Nothing is taken from the journal and the log.
    Drives,
}

/// The options of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A copy of the catalog (`larder catalog backup`), which may be older than the journal.
    pub from: Option<PathBuf>,
    /// Recreate the catalog although one exists.
    pub replace: bool,
    /// The place of the snapshots. `None` is the journal, or the drives if it has no snapshot; a sign that the journal
    /// is older than the rack is an error then.
    pub base: Option<BaseChoice>,
}

/// The progress of a recovery.
#[derive(Debug)]
pub enum Step<'a> {
    /// It begins with this snapshot.
    Base(Option<Base>),
    /// The number of groups to search for copies of the catalog. A spare counts as a separate group.
    Copies(u64),
    /// The number of groups to search for blobs. A spare counts as a separate group.
    Groups(u64),
    /// These drives are about to be started: those of a group, or a spare.
    Awake(&'a [DriveId]),
    /// They are stopped.
    Asleep,
    /// Progress within a group, after some thousand more blobs.
    Blobs(Pass),
    /// Progress after a group.
    Group(Pass),
    /// A blob, a drive or a file cannot be used, for this reason.
    Unusable(&'a str),
}

/// Blobs between two reports of the progress within a group.
const REPORT_BLOBS: u64 = 5_000;

/// The progress of a pass over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The groups of the rack; a spare counts as one.
    pub groups: u64,
    /// Groups that are done.
    pub groups_done: u64,
    /// Drives in these that were readable.
    pub drives: u64,
    /// Blobs that were processed.
    pub blobs: u64,
    /// Payload bytes of these, where known.
    pub bytes: u64,
}

impl Pass {
    pub(super) fn of(groups: usize) -> Self {
        Self { groups: groups as u64, ..Self::default() }
    }

    /// Counts one more blob with this payload.
    pub(super) fn blob(&mut self, payload_bytes: u64, watch: &(dyn Fn(Step<'_>) + Sync)) {
        self.blobs += 1;
        self.bytes = self.bytes.saturating_add(payload_bytes);
        if self.blobs.is_multiple_of(REPORT_BLOBS) {
            watch(Step::Blobs(*self));
        }
    }

    /// Counts one more group, in which `drives` drives were readable.
    pub(super) fn group(&mut self, drives: usize) {
        self.groups_done += 1;
        self.drives += drives as u64;
        assert!(self.groups_done <= self.groups, "each group is looked at once");
    }
}

/// The place of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In the journal, in the workshop.
    #[default]
    Journal,
    /// On drives: the workshop has no snapshot.
    Drives,
    /// In the file that the operator named.
    Copy,
}

/// A snapshot from which a catalog was made, and the batches since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Base {
    /// Its place.
    pub source: Source,
    /// When the snapshot was made, in milliseconds of the Unix epoch.
    pub made_ms: u64,
    /// Its records.
    pub records: u64,
    /// Batches that were committed while it was made, and later.
    pub batches: u64,
    /// Records that were damaged when it was made, and still are.
    pub damaged: u64,
}

/// The result of a recovery.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The base of the catalog before the drives were searched; `None` if there was neither a snapshot nor a copy of
    /// one.
    pub base: Option<Base>,
    /// Batches that the log of small objects has, and that do not follow on the base: the journal was truncated, or
    /// there was none.
    pub behind_log: Option<String>,
    /// The log of small objects is lost, or lacks something: the last acknowledged changes may have been there alone.
    pub lacks_log: bool,
    /// Records that the base should have and lacks, in words: they count as deleted from now on.
    pub incomplete: Option<String>,
    /// The last batch of the newest copy of the catalog in the adopted blobs; `None` if no copy is in them.
    #[serde(skip)]
    pub newest_copy: Option<Sequence>,
    /// Blobs on the drives.
    pub blobs: u64,
    /// Of these, blobs that the catalog should know and did not.
    pub adopted: u64,
    /// Objects that were found in the adopted blobs.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dead members of the adopted blobs.
    pub dead: u64,
    /// Buckets that were made for the objects.
    pub buckets: u64,
    /// Stacks on other drives than the catalog knew.
    pub moved: u64,
    /// Stacks missing from readable drives; the server rebuilds them.
    pub missing: u64,
    /// Objects that the catalog knew in a blob that is on no drive: they were deleted after its last change, or moved
    /// to a workshop that is lost.
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
    /// Owners of buckets that are not users: they have no keys.
    pub owners: Vec<String>,
    /// The new path of the old catalog.
    pub replaced: Option<String>,
}
