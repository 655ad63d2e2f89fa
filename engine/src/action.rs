//! Everything that a rack can ask of the world.
//!
//! An action leaves the world no choice: it names the drives, the lengths, the number of fragments that suffice and the
//! policy. The world answers an action that carries an attempt with one event that has the same attempt.

use crate::event::CheckProgress;
use crate::job_protocol::{JobAction, JobId};
use crate::policy::{MoveOrder, PinnedTo, ReadPolicy};
use crate::pool_protocol::PoolDriveAction;
use crate::scrub_pass::{ScrubPass, Scrubbed};
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, DriveId, GroupId, OpId, PoolDriveId};
use serde::{Deserialize, Serialize};

/// Something the world must do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Persist, before the drive starts, the number of starts that it has used on this day.
    PersistStarts {
        /// The drive.
        drive: DriveId,
        /// The day.
        day: u32,
        /// Starts on that day, this one included.
        starts: u32,
    },
    /// Persist that this group was initialised with these drives: the drives with a correct label, and the drives that
    /// were absent or not usable. The latter are tried again whenever the group wakes.
    PersistInitialised {
        /// The group.
        group: GroupId,
        /// The group's drives for which this is not persisted yet.
        drives: Vec<DriveId>,
    },
    /// Start the platters. Answered by `SpunUp` or `DriveCommandFailed`.
    SpinUp {
        /// The drive.
        drive: DriveId,
        /// Returned in the answer.
        attempt: Attempt,
    },
    /// Mount the file system and check the label. Answered by `Mounted` or `DriveCommandFailed`.
    Mount {
        /// The drive.
        drive: DriveId,
        /// Returned in the answer.
        attempt: Attempt,
    },
    /// Unmount the file system. Answered by `Unmounted` or `DriveCommandFailed`.
    Unmount {
        /// The drive.
        drive: DriveId,
        /// Returned in the answer.
        attempt: Attempt,
    },
    /// Stop the platters (STANDBY IMMEDIATE). Answered by `Stopped` or `DriveCommandFailed`.
    Stop {
        /// The drive.
        drive: DriveId,
        /// Returned in the answer.
        attempt: Attempt,
    },

    /// Do this work on a drive of the pool of small records.
    PoolDrive {
        /// The drive.
        drive: PoolDriveId,
        /// The work.
        action: PoolDriveAction,
    },

    /// The operation was not accepted. No further action concerns it.
    Rejected {
        /// The operation.
        op: OpId,
        /// The reason.
        reason: Rejection,
    },
    /// Move bytes. Answered by `TransferEnded`.
    Transfer {
        /// The operation.
        op: OpId,
        /// Returned in the answer.
        attempt: Attempt,
        /// The bytes to move.
        transfer: Transfer,
    },
    /// The operation ended. For a successful write, the world commits the blob to the catalog and only then frees the
    /// write's source.
    Finished {
        /// The operation.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
    },

    /// List staged versions in key order, without those that already belong to an unfinished pack. Answered by
    /// `StagedPage`. With `restart`, start at the first key; otherwise continue after the last page.
    ListStaged {
        /// Returned in the answer.
        attempt: Attempt,
        /// Minimum age, in modelled time.
        older_than: Duration,
        /// The order of moving.
        #[serde(default)]
        order: MoveOrder,
        /// Of those, only the first in the order of [`MoveRank`](crate::staging::MoveRank), up to this number of bytes;
        /// `None` is all. Versions that are due by a rule of the policy's thermometer are listed regardless of their
        /// age and rank; they count towards these bytes.
        coldest_bytes: Option<u64>,
        /// If the due and cold versions make fewer bytes than this, hot versions are listed too, in the order of
        /// moving, until the total reaches it. At 0 no hot version is listed.
        #[serde(default)]
        hot_bytes: u64,
        /// Shorter versions are not listed, and do not count towards the bytes above: versions that can move take their
        /// place.
        #[serde(default)]
        min_bytes: u64,
        /// Maximum number of entries.
        limit: u32,
        /// True to start at the first key.
        restart: bool,
    },
    /// Compose one blob of these versions, in this order, and submit it as a background write with `migration` set.
    /// Versions that a check keeps in memory are not read again. A version that no longer exists is left out; if none
    /// remains, answer with `Cancelled`. A version with a missing file is quarantined: that is persisted, and no
    /// listing shows the version until it can be read again.
    Compose {
        /// The number of the future write.
        op: OpId,
        /// The versions, in key order.
        versions: Vec<u64>,
        /// The class or group that must store the blob.
        pin: PinnedTo,
    },
    /// Compose one blob of the versions of a write that is about to end, like `Compose`. First read and check every
    /// byte of them, and quarantine unreadable versions, so that no group wakes for them again.
    Recompose {
        /// The number of the future write.
        op: OpId,
        /// The write that has these versions.
        of: OpId,
        /// The class or group that must store the blob.
        pin: PinnedTo,
    },

    /// List the blobs of a group that have dead bytes, without those that a reader still holds. Answered by `DeadPage`
    /// or `DeadUnlisted`.
    ListDead {
        /// The group.
        group: GroupId,
        /// Returned in the answer.
        attempt: Attempt,
        /// Maximum number of blobs.
        limit: u32,
        /// True to start at the first blob.
        restart: bool,
    },
    /// Copy the referenced data of a blob back to the workshop, so that the whole blob is dead. The world reads the
    /// blob with an ordinary background read.
    Evacuate {
        /// The blob.
        blob: BlobId,
    },

    /// List, by number, the blobs that have a stack on a permanently failed or retired drive. If the drive was
    /// replaced, list only those whose stack was on the failed drive and is not rebuilt. Answered by `OnDrivePage` or
    /// `OnDriveUnlisted`.
    ListOnDrive {
        /// The drive.
        drive: DriveId,
        /// Returned in the answer.
        attempt: Attempt,
        /// Only blobs with higher numbers; `None` starts at the first blob.
        after: Option<BlobId>,
        /// Maximum number of blobs.
        limit: u32,
    },
    /// Persist that a stack of the blob is now on another drive, where it is written and synced. Then remove the old
    /// stack if its drive is good (`removes`); nothing is removed from a failed drive. If both are the same drive, the
    /// spare stack replaces the damaged one, unless that path holds the file of another blob. Answered by `StackMoved`.
    MoveStack {
        /// The rebuild.
        op: OpId,
        /// Returned in the answer.
        attempt: Attempt,
        /// The blob.
        blob: BlobId,
        /// The index of the stack.
        index: u8,
        /// The failed drive, the retired drive, or the drive of the damaged stack.
        from: DriveId,
        /// The drive that stores it now.
        to: DriveId,
        /// True if the old stack is removed.
        #[serde(default)]
        removes: bool,
    },

    /// Persist that a drive that was given up, and answered just now, is back in service: no stack that blobs had on it
    /// counts before it is found there. Answered by `DriveReturned`; not answered if this cannot be persisted, or if
    /// the drive is no longer marked as failed.
    TakeBack {
        /// The drive.
        drive: DriveId,
    },
    /// Persist that the drive failed permanently, and then send `DriveFailed`: it was away too long, or it is empty and
    /// `retired`. The rack asks again after a while if it receives no answer.
    GiveUp {
        /// The drive.
        drive: DriveId,
        /// The operator retired it, and it stores nothing any more.
        retired: bool,
    },

    /// List, by number, the blobs of a group that have live data. Answered by `ScrubPage` or `ScrubUnlisted`.
    ListToScrub {
        /// The group.
        group: GroupId,
        /// Returned in the answer.
        attempt: Attempt,
        /// Only blobs with higher numbers; `None` starts at the first blob.
        after: Option<BlobId>,
        /// Only blobs with lower numbers; `None` is all.
        end: Option<u64>,
        /// Maximum number of blobs.
        limit: u32,
    },
    /// Persist the progress of a group's scrub. An action with a lower serial number than the persisted one is late,
    /// and is dropped.
    PersistScrub {
        /// The group.
        group: GroupId,
        /// Its pass.
        pass: ScrubPass,
        /// Blobs that could not be read; the scrub reads them again.
        unread: Vec<BlobId>,
    },

    /// Do this work for a repartition job.
    Job {
        /// The job.
        job: JobId,
        /// The work.
        action: JobAction,
    },

    /// Measure the load of the workshop. Answered by `LoadMeasured`.
    MeasureLoad {
        /// Returned in the answer.
        attempt: Attempt,
    },
    /// Read staged versions in key order, check every byte of them, and quarantine damaged ones. With `restart`, start
    /// at the first key; otherwise continue after the last page, or at the position of the last `PersistChecks` before
    /// the first page. Answered by `StagedChecked` or `StagedUnchecked`.
    CheckStaged {
        /// Returned in the answer.
        attempt: Attempt,
        /// Selects the versions that are to move, and the memory for them; `None` takes no version.
        take: Option<Taking>,
        /// Maximum number of versions.
        limit: u32,
        /// The page ends once the versions read have this number of bytes.
        bytes_max: u64,
        /// At this load, in thousandths, the page ends before the version that is being read; `None` is no limit.
        load_limit_permille: Option<u32>,
        /// True to start at the first key.
        restart: bool,
    },
    /// Release the checked versions that are in memory and were not composed.
    ReleaseChecked,
    /// Persist the progress of the pass of checks, and the position after the last page.
    PersistChecks {
        /// The progress.
        progress: CheckProgress,
    },

    /// Read the health of the drive, which is mounted, and persist it; do nothing if the drive is no longer awake.
    /// Answered by `DriveHealth`; not answered if the drive does not report its number of bad sectors.
    ReadHealth {
        /// The drive.
        drive: DriveId,
    },
    /// Persist that the drive is to be emptied because it wears out, and then send `DriveRetiring`. The rack asks again
    /// after a while if it receives no answer.
    Retire {
        /// The drive.
        drive: DriveId,
    },
}

/// Memory that a version uses in addition to its bytes.
const HELD_OVERHEAD_BYTES: u64 = 256;

/// Memory that a version of `bytes` bytes uses.
pub const fn held_cost(bytes: u64) -> u64 {
    bytes.saturating_add(HELD_OVERHEAD_BYTES)
}

/// The versions of a page that the world is to take, selected as in [`Action::ListStaged`], and the memory for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taking {
    /// Minimum age of cold versions, in modelled time.
    pub older_than: Duration,
    /// The order of moving.
    pub order: MoveOrder,
    /// Of those, only the first in the order of [`MoveRank`](crate::staging::MoveRank), up to this number of bytes;
    /// `None` is all.
    pub coldest_bytes: Option<u64>,
    /// Minimum length of a version.
    pub min_bytes: u64,
    /// Memory for the taken versions; each uses its [`held_cost`]. A version that needs more than all of it is taken
    /// anyway, and is read again for its pack. The page ends before a version that only does not fit into the rest.
    pub hold_bytes: u64,
    /// True if the world recomputes the versions that are first in the order of moving; otherwise it keeps the last
    /// page's.
    pub anew: bool,
}

/// Bytes to move, with all parameters that the world needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transfer {
    /// Read the operation's bytes from these stacks.
    Read {
        /// The blob.
        blob: BlobId,
        /// Stack index and drive of every stack that can be read now; at least `need`.
        stacks: Vec<(u8, DriveId)>,
        /// k, the number of good fragments of a stripe that suffice.
        need: u8,
        /// Selects between reading and checking all stacks or only as many as needed.
        policy: ReadPolicy,
    },
    /// Write the operation's payload as k + r stacks, one to each of these drives in stack order, and sync them.
    Write {
        /// Their group.
        group: GroupId,
        /// The drives.
        drives: Vec<DriveId>,
    },
    /// Read back what the operation has written; check every fragment and the payload's checksum. For a rebuild, read
    /// only the one stack that it wrote.
    Verify {
        /// The drives, as they were written; for a rebuild, the target.
        drives: Vec<DriveId>,
    },
    /// Regenerate one stack of a blob from other stacks, write it to a drive and sync it. Every fragment read is
    /// checked.
    ///
    /// If `stacks` names the lost stack alone, it is copied from its good drive, and the others are not needed. If that
    /// drive is also the target, nothing is written: the drive came back after it was given up, and the whole stack is
    /// read and checked in place.
    Rebuild {
        /// The blob.
        blob: BlobId,
        /// The group that stores it.
        group: GroupId,
        /// The drive of each of its stacks, in stack order, from the catalog.
        drives: Vec<DriveId>,
        /// The index of the lost stack.
        lost: u8,
        /// Stack index and drive of every stack that can be read now, at least `need` and without the lost one; or the
        /// lost one alone.
        stacks: Vec<(u8, DriveId)>,
        /// The number of good fragments of a stripe that suffice: k, or 1 for a stack that is copied or checked in
        /// place.
        need: u8,
        /// Selects between reading and checking all stacks or only as many as needed.
        policy: ReadPolicy,
        /// The drive for the regenerated stack: one that stores nothing of the blob; the replacement of the drive that
        /// the stack was lost with; or, for a spare beside a damaged stack, the drive of that stack. Its outcome is the
        /// last one.
        target: DriveId,
        /// True if it is written as a spare beside the damaged stack.
        #[serde(default)]
        spare: bool,
    },
    /// Read a part of a blob from all of these stacks. Check every fragment and checksum page of it, and compare the
    /// parity with the parity computed from the data. Repair in place what is bad and can be rewritten there; the
    /// outcome of a stack that cannot be repaired is `StackBad`. Done if every stripe has enough good fragments.
    /// Without any outcome, the blob no longer exists or is stored elsewhere.
    Scrub {
        /// The blob.
        blob: BlobId,
        /// The group that stores it.
        group: GroupId,
        /// The drive of each of its stacks, in stack order, from the catalog.
        drives: Vec<DriveId>,
        /// Stack index and drive of every stack that can be read now; at least `need`.
        stacks: Vec<(u8, DriveId)>,
        /// k, the number of good fragments of a stripe that suffice.
        need: u8,
        /// The payload byte at which the part starts: a multiple of the stripe length.
        from: u64,
        /// The payload byte at which it ends: likewise a multiple, or the end of the payload.
        to: u64,
    },
    /// Remove these stacks of a blob. An absent stack counts as removed.
    Delete {
        /// The blob.
        blob: BlobId,
        /// Stack index and drive of every stack that can be reached now.
        stacks: Vec<(u8, DriveId)>,
    },
    /// Look briefly at the files of these drives; change nothing.
    Inspect {
        /// Their group.
        group: GroupId,
        /// Every drive of the group that can be read now; at least one.
        drives: Vec<DriveId>,
    },
}

impl Transfer {
    /// The drive of the lost stack itself, if this is a rebuild that reads it, to copy it or to check it in place.
    pub fn itself(&self) -> Option<DriveId> {
        let Self::Rebuild { stacks, lost, .. } = self else { return None };
        stacks.first().filter(|(index, _)| index == lost).map(|(_, drive)| *drive)
    }

    /// The drives that it reads or changes.
    pub fn drives(&self) -> impl Iterator<Item = DriveId> + '_ {
        let (stacks, drives, target): (&[(u8, DriveId)], &[DriveId], Option<DriveId>) = match self {
            Self::Read { stacks, .. } | Self::Delete { stacks, .. } | Self::Scrub { stacks, .. } => (stacks, &[], None),
            Self::Write { drives, .. } | Self::Verify { drives } | Self::Inspect { drives, .. } => (&[], drives, None),
            Self::Rebuild { stacks, target, .. } => (stacks, &[], Some(*target)),
        };
        stacks.iter().map(|(_, drive)| *drive).chain(drives.iter().copied()).chain(target)
    }
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The read is complete.
    Read,
    /// The blob is written to these drives and was read back without an error.
    Written {
        /// The group.
        group: GroupId,
        /// The drive of each stack, in stack order.
        drives: Vec<DriveId>,
    },
    /// Every drive that answers has removed the blob's stacks, or the visit or initialisation ended.
    Deleted,
    /// The lost stack is regenerated, and the catalog counts it.
    Rebuilt,
    /// A blob or a part of it was scrubbed.
    Scrubbed(Scrubbed),
    /// It was cancelled before it was in service.
    Cancelled,
    /// It failed on all drives and in all attempts allowed.
    Failed(Rejection),
    /// The inspection of the group's drives ended.
    Inspected,
}

/// The reason for refusing or giving up an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{}", self.text())]
pub enum Rejection {
    /// The queue of the class is full; try again later.
    QueueFull,
    /// No group that its pin allows has room on enough drives.
    NoRoom,
    /// Fewer than k stacks can be read: more drives are away than the code tolerates. They may come back.
    TooManyDrivesAway,
    /// A stripe has fewer than k good fragments: data is lost.
    DataLost,
    /// The drives' start budgets of the day are used up, and this priority class may not exceed them.
    StartBudgetSpent,
    /// Writing failed on every choice of drives that was tried.
    WriteFailed,
    /// The data to be written cannot be read.
    SourceUnreadable,
    /// The request contradicts the rack: it names a group or drive that does not exist.
    Malformed,
    /// The rack is about to close.
    Closing,
    /// Its group does not spin, and the operation does not justify a wake.
    Asleep,
}

impl Rejection {
    /// Its meaning, for messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::QueueFull => "the queue of its class is full",
            Self::NoRoom => "no group has room",
            Self::TooManyDrivesAway => "more drives of its group are away than the code can make up for",
            Self::DataLost => "more stacks are damaged than the code can make up for: data is lost",
            Self::StartBudgetSpent => "the drives' starts of the day are used up",
            Self::SourceUnreadable => "what was to be written cannot be read",
            Self::WriteFailed => "writing failed on every choice of drives",
            Self::Malformed => "the rack's description does not know its group or drives",
            Self::Closing => "the server is shutting down",
            Self::Asleep => "its group sleeps",
        }
    }
}
