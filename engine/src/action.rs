//! Everything a rack can ask of the world.
//!
//! An action leaves no choice to the world: it names drives, lengths, how many fragments suffice and what policy holds.
//! The world answers with one event, with the same attempt.

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
    /// Remember, durably and before the drive starts, that it has used so many starts on this day.
    PersistStarts {
        /// Which drive.
        drive: DriveId,
        /// Which day.
        day: u32,
        /// How many starts, this one included.
        starts: u32,
    },
    /// Remember, durably, that this group was initialised with these of its drives: those whose labels were found to
    /// be right, and those that were not there or not to be used, which are tried again whenever the group wakes.
    PersistInitialised {
        /// Which group.
        group: GroupId,
        /// The drives of it that this is not remembered of yet.
        drives: Vec<DriveId>,
    },
    /// Start the platters. Answered by `SpunUp` or `DriveCommandFailed`.
    SpinUp {
        /// Which drive.
        drive: DriveId,
        /// To be given back in the answer.
        attempt: Attempt,
    },
    /// Mount the file system and check the label. Answered by `Mounted` or `DriveCommandFailed`.
    Mount {
        /// Which drive.
        drive: DriveId,
        /// To be given back in the answer.
        attempt: Attempt,
    },
    /// Unmount the file system. Answered by `Unmounted` or `DriveCommandFailed`.
    Unmount {
        /// Which drive.
        drive: DriveId,
        /// To be given back in the answer.
        attempt: Attempt,
    },
    /// Stop the platters (STANDBY IMMEDIATE). Answered by `Stopped` or `DriveCommandFailed`.
    Stop {
        /// Which drive.
        drive: DriveId,
        /// To be given back in the answer.
        attempt: Attempt,
    },

    /// Something is to be done with a drive of the pool of small records.
    PoolDrive {
        /// Which drive.
        drive: PoolDriveId,
        /// The work.
        action: PoolDriveAction,
    },

    /// The operation was not taken in. Nothing more will be heard of it.
    Rejected {
        /// Which operation.
        op: OpId,
        /// Why.
        reason: Rejection,
    },
    /// Move bytes. Answered by `TransferEnded`.
    Transfer {
        /// Which operation.
        op: OpId,
        /// To be given back in the answer.
        attempt: Attempt,
        /// The bytes to move.
        transfer: Transfer,
    },
    /// The operation is over. For a write that is done, the world commits the blob to the catalog and only then frees
    /// what it was made of.
    Finished {
        /// Which operation.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
    },

    /// List staged versions in key order, leaving out those that already belong to an unfinished pack. Answered by
    /// `StagedPage`. With `restart`, begin at the first key; otherwise go on behind the last page.
    ListStaged {
        /// To be given back in the answer.
        attempt: Attempt,
        /// At least this old, in modelled time.
        older_than: Duration,
        /// What decides which of them are the first.
        #[serde(default)]
        order: MoveOrder,
        /// Of those, only as many of the first in the order of [`MoveRank`](crate::staging::MoveRank) as make this
        /// many bytes; `None` is all. Versions that are due by a rule of the policy's thermometer are listed whatever
        /// their age and rank, and count among those bytes.
        coldest_bytes: Option<u64>,
        /// If all that is not hot makes fewer bytes than this, hot versions are listed as well, the first in the order
        /// of moving, until there are as many; at 0 none is.
        #[serde(default)]
        hot_bytes: u64,
        /// Those that are shorter stay, and must not stand for others that can go.
        #[serde(default)]
        min_bytes: u64,
        /// At most so many entries.
        limit: u32,
        /// Whether to begin at the first key.
        restart: bool,
    },
    /// Make one blob of these versions, in this order, and submit it as a background write with `migration` set. The
    /// bytes of those that a check keeps in memory are not read again. A version that is gone by then is left out; if
    /// none is left, answer with `Cancelled`. One whose file is not there is quarantined: that is remembered durably,
    /// and no listing shows it again before it can be read.
    Compose {
        /// The number of the write to come.
        op: OpId,
        /// The versions, in key order.
        versions: Vec<u64>,
        /// Where the blob must lie.
        pin: PinnedTo,
    },
    /// Make one blob of the versions of a write that is about to end, like `Compose`. Read and check every byte of them
    /// first, and quarantine what cannot be read, so that no group wakes for it another time.
    Recompose {
        /// The number of the write to come.
        op: OpId,
        /// The write whose versions are meant.
        of: OpId,
        /// Where the blob must lie.
        pin: PinnedTo,
    },

    /// List blobs of a group with dead bytes, leaving out those that a reader still holds. Answered by `DeadPage`, or
    /// by `DeadUnlisted`.
    ListDead {
        /// Which group.
        group: GroupId,
        /// To be given back in the answer.
        attempt: Attempt,
        /// At most so many blobs.
        limit: u32,
        /// Whether to begin at the first.
        restart: bool,
    },
    /// Copy what is still wanted of a blob back to the workshop, so that the blob is dead as a whole. The world reads
    /// it through an ordinary background read.
    Evacuate {
        /// Which blob.
        blob: BlobId,
    },

    /// List blobs that have a stack on a drive that failed for good or is retired, by number. If it was replaced, only
    /// those whose stack was on the drive that failed and is not rebuilt. Answered by `OnDrivePage`, or by
    /// `OnDriveUnlisted`.
    ListOnDrive {
        /// Which drive.
        drive: DriveId,
        /// To be given back in the answer.
        attempt: Attempt,
        /// Only blobs of higher numbers; `None` is from the first on.
        after: Option<BlobId>,
        /// At most so many blobs.
        limit: u32,
    },
    /// Remember, durably, that a stack of the blob lies on another drive now; it is written and synced there. From the
    /// old one it is removed then if that drive is good (`removes`); from one that failed nothing is. If both are the
    /// same drive, the stack that was written beside the damaged one takes its place, unless another's file lies there.
    /// Answered by `StackMoved`.
    MoveStack {
        /// The rebuild.
        op: OpId,
        /// To be given back in the answer.
        attempt: Attempt,
        /// Which blob.
        blob: BlobId,
        /// The index of the stack.
        index: u8,
        /// The failed drive, the one that is retired, or that of the damaged stack.
        from: DriveId,
        /// Where it lies now.
        to: DriveId,
        /// Whether the old stack is removed.
        #[serde(default)]
        removes: bool,
    },

    /// Remember that a drive that was given up, and was there just now, is back in service: nothing that blobs have on
    /// it counts until it is looked for. Answered by `DriveReturned` then; not at all if it cannot be remembered, or if
    /// the drive has not failed any more.
    TakeBack {
        /// Which drive.
        drive: DriveId,
    },
    /// Remember, durably, that the drive failed for good, and then say so (`DriveFailed`): it was away for too long, or
    /// it is empty and `retired`. Asked for again after a while if nothing is heard.
    GiveUp {
        /// Which drive.
        drive: DriveId,
        /// The operator retired it, and nothing is left on it.
        retired: bool,
    },

    /// List the blobs of a group in which something lives, by number. Answered by `ScrubPage`, or by `ScrubUnlisted`.
    ListToScrub {
        /// Which group.
        group: GroupId,
        /// To be given back in the answer.
        attempt: Attempt,
        /// Only blobs above this one; `None` is from the first on.
        after: Option<BlobId>,
        /// Only blobs with numbers below this; `None` is all.
        end: Option<u64>,
        /// At most so many blobs.
        limit: u32,
    },
    /// Remember, durably, how far the scrub of a group is. One with a lower serial number than what is remembered comes
    /// late, and is dropped.
    PersistScrub {
        /// Which group.
        group: GroupId,
        /// Its pass.
        pass: ScrubPass,
        /// The blobs that could not be read and are read again.
        unread: Vec<BlobId>,
    },

    /// Something is to be done for a repartition job.
    Job {
        /// Which job.
        job: JobId,
        /// The work.
        action: JobAction,
    },

    /// Measure the load of the workshop. Answered by `LoadMeasured`.
    MeasureLoad {
        /// To be given back in the answer.
        attempt: Attempt,
    },
    /// Read staged versions in key order and check every byte of them; quarantine what is damaged. With `restart`,
    /// begin at the first key; otherwise go on behind the last page, or where the last `PersistChecks` was if there is
    /// none. Answered by `StagedChecked` or `StagedUnchecked`.
    CheckStaged {
        /// To be given back in the answer.
        attempt: Attempt,
        /// Which of them are to move, and how much memory there is to keep them in; none if `None`.
        take: Option<Taking>,
        /// At most so many versions.
        limit: u32,
        /// No more versions once those that were read have so many bytes.
        bytes_max: u64,
        /// At this load, in thousandths, the page ends before the version that is being read; never if `None`.
        load_limit_permille: Option<u32>,
        /// Whether to begin at the first key.
        restart: bool,
    },
    /// Let go whatever checked versions are kept in memory and were not composed.
    ReleaseChecked,
    /// Remember, durably, how far the pass of checks has come, and the place behind the last page.
    PersistChecks {
        /// How far.
        progress: CheckProgress,
    },

    /// Ask the drive, which is mounted, for its health, and remember it durably; if it is not awake any more, do
    /// nothing. Answered by `DriveHealth`, or not at all if the drive does not say how many sectors are bad.
    ReadHealth {
        /// Which drive.
        drive: DriveId,
    },
    /// Remember, durably, that the drive is to be emptied since it wears out, and then say so (`DriveRetiring`). Asked
    /// for again after a while if nothing is heard.
    Retire {
        /// Which drive.
        drive: DriveId,
    },
}

/// What a version in memory takes beside its bytes.
const HELD_OVERHEAD_BYTES: u64 = 256;

/// What a version of `bytes` bytes takes while it is in memory.
pub const fn held_cost(bytes: u64) -> u64 {
    bytes.saturating_add(HELD_OVERHEAD_BYTES)
}

/// What the world is to take of a page: as in [`Action::ListStaged`], and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taking {
    /// Cold versions at least this old, in modelled time.
    pub older_than: Duration,
    /// The order of moving.
    pub order: MoveOrder,
    /// Of those, only as many of the first in the order of [`MoveRank`](crate::staging::MoveRank) as make this many
    /// bytes; `None` is all.
    pub coldest_bytes: Option<u64>,
    /// None that are shorter.
    pub min_bytes: u64,
    /// Memory for what is taken, each version at its [`held_cost`]. A version that takes more than all of it is taken
    /// all the same, and read again for its pack; before one that only does not fit any more the page ends.
    pub hold_bytes: u64,
    /// Which versions are the first in the order of moving is counted anew; else as for the last page.
    pub anew: bool,
}

/// Bytes to move, with everything the world needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transfer {
    /// Read what the operation asked for from these stacks.
    Read {
        /// Which blob.
        blob: BlobId,
        /// Stack index and drive of every stack that can be read now. At least `need`.
        stacks: Vec<(u8, DriveId)>,
        /// k: how many good fragments of a stripe suffice.
        need: u8,
        /// Whether to read and check all stacks or only as many as needed.
        policy: ReadPolicy,
    },
    /// Write the operation's payload as k + r stacks, one to each of these drives in stack order, and sync them.
    Write {
        /// The group they are in.
        group: GroupId,
        /// The drives.
        drives: Vec<DriveId>,
    },
    /// Read back what the operation has written, check every fragment and the payload's checksum; of a rebuild, the one
    /// stack that it wrote.
    Verify {
        /// The drives, as they were written; of a rebuild, the target.
        drives: Vec<DriveId>,
    },
    /// Regenerate one stack of a blob from others, write it to a drive and sync it. Each fragment that is read is
    /// checked.
    ///
    /// If the stack itself is the only one that is named, it is copied from its good drive, and the others are not
    /// needed. If it is the target's as well, nothing is written: its drive came back after it was given up, and all of
    /// the stack is read and checked where it lies.
    Rebuild {
        /// Which blob.
        blob: BlobId,
        /// The group it lies in.
        group: GroupId,
        /// The drive of each of its stacks, in stack order, as the catalog has it.
        drives: Vec<DriveId>,
        /// The index of the stack that is lost.
        lost: u8,
        /// Stack index and drive of every stack that can be read now, at least `need`, and the lost one not among them;
        /// or that one alone.
        stacks: Vec<(u8, DriveId)>,
        /// How many good fragments of a stripe suffice: k, or 1 of a stack that is copied or looked for.
        need: u8,
        /// Whether to read and check all stacks or only as many as needed.
        policy: ReadPolicy,
        /// Where the regenerated stack goes: to a drive that has none of the blob; to the drive in the place of the one
        /// that it was lost with; or, beside the stack that is damaged, to the drive that this lies on. Reported last
        /// among the outcomes.
        target: DriveId,
        /// It is written as a spare beside the stack that is damaged.
        #[serde(default)]
        spare: bool,
    },
    /// Read a part of a blob from all of these stacks as a whole: every fragment and checksum page of it is checked,
    /// and the parity compared with what the data makes. What is bad and can be written again where it lies is repaired
    /// there. The outcome of a stack that cannot is `StackBad`. Done if every stripe has enough good fragments; with no
    /// outcomes at all, the blob is gone or lies elsewhere.
    Scrub {
        /// Which blob.
        blob: BlobId,
        /// The group it lies in.
        group: GroupId,
        /// The drive of each of its stacks, in stack order, as the catalog has it.
        drives: Vec<DriveId>,
        /// Stack index and drive of every stack that can be read now. At least `need`.
        stacks: Vec<(u8, DriveId)>,
        /// k: how many good fragments of a stripe suffice.
        need: u8,
        /// The payload byte at which the part begins: a whole number of stripes.
        from: u64,
        /// The payload byte at which it ends: likewise, or the end of the payload.
        to: u64,
    },
    /// Remove these stacks of a blob. A stack that is not there counts as removed.
    Delete {
        /// Which blob.
        blob: BlobId,
        /// Stack index and drive of every stack that can be reached now.
        stacks: Vec<(u8, DriveId)>,
    },
    /// Look at files of these drives, briefly; change nothing.
    Inspect {
        /// The group they are in.
        group: GroupId,
        /// Every drive of it that can be read now. At least one.
        drives: Vec<DriveId>,
    },
}

impl Transfer {
    /// What a rebuild reads if it reads the stack itself: its drive, from which it is copied, or on which it is looked
    /// for.
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

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The read is complete.
    Read,
    /// The blob is written to these drives and was read back well.
    Written {
        /// The group.
        group: GroupId,
        /// The drive of each stack, in stack order.
        drives: Vec<DriveId>,
    },
    /// The blob's stacks are gone from every drive that answers, or the visit or initialisation is over.
    Deleted,
    /// The lost stack is regenerated, and the catalog counts it.
    Rebuilt,
    /// A blob, or a part of it, was scrubbed.
    Scrubbed(Scrubbed),
    /// It was cancelled before it was in service.
    Cancelled,
    /// It could not be done, on any drives and in any of the attempts allowed.
    Failed(Rejection),
    /// The look at the group's drives is over.
    Inspected,
}

/// Why an operation is refused or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{}", self.text())]
pub enum Rejection {
    /// The queue of the class is full; try again later.
    QueueFull,
    /// No group (of the class it is pinned to) has room on enough drives.
    NoRoom,
    /// Fewer than k stacks can be read: more drives are away than the code can make up for. They may come back.
    TooManyDrivesAway,
    /// Fewer than k good fragments of some stripe: data is lost.
    DataLost,
    /// The drives' start budgets of the day are used up, and may not be exceeded for this priority class.
    StartBudgetSpent,
    /// Writing failed on every choice of drives that was tried.
    WriteFailed,
    /// The data that was to be written cannot be read.
    SourceUnreadable,
    /// The request contradicts the rack (a group or drive that does not exist).
    Malformed,
    /// The rack is about to close.
    Closing,
    /// Its group does not spin, and it is worth no wake of its own.
    Asleep,
}

impl Rejection {
    /// Its meaning, for people.
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
