//! Everything that can happen to a rack.
//!
//! Events are facts, never requests: the failed start of a drive is an event, just like its start. An answer carries
//! the attempt of its action, so that late and duplicate answers are recognised. Lists come in pages of bounded length.

use crate::drive_list::DriveList;
use crate::job_protocol::{JobClass, JobEvent, JobId};
use crate::policy::{PinnedTo, PriorityClass};
use crate::pool_protocol::PoolDriveEvent;
use crate::scrub_pass::ScrubPass;
use crate::thermometer::Heat;
use alloc::boxed::Box;
use alloc::vec::Vec;
use model::{Attempt, BlobId, DriveId, GroupId, OpId, PoolDriveId, Time};
use serde::{Deserialize, Serialize};

/// A fact about the world, for [`Rack::apply`](crate::Rack::apply).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// At boot, once per drive: its record in the catalog, and its presence.
    DriveReported(DriveReport),
    /// At boot, once, after the reports of all drives: work may start, first with the groups that were never
    /// initialised.
    Booted,

    /// The free space of a file system that stores several drives, as in an emulated rack. Sent at boot and after every
    /// change; from the first one on, the drives' common room counts once.
    HostMeasured {
        /// The file system: any small number, always the same for one file system.
        host: u32,
        /// The drives on it.
        drives: Vec<DriveId>,
        /// Free bytes of the file system that the drives may still use.
        free_bytes: u64,
    },

    /// The platters turn. Answers [`Action::SpinUp`](crate::Action::SpinUp).
    SpunUp {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },
    /// The drive's file system is mounted and its label checked. Answers [`Action::Mount`](crate::Action::Mount).
    Mounted {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Bytes that can still be written to it: the lower of the model's figure and the real medium's.
        free_bytes: u64,
    },
    /// The drive's file system is unmounted. Answers [`Action::Unmount`](crate::Action::Unmount).
    Unmounted {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },
    /// The platters have stopped. Answers [`Action::Stop`](crate::Action::Stop).
    Stopped {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },
    /// A start, mount, unmount or stop failed. The drive is out of service until it comes back.
    DriveCommandFailed {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The reason.
        loss: Loss,
    },
    /// The drive was lost without a command: it died, or the fuse of one of its domains tripped.
    DriveLost {
        /// The drive.
        drive: DriveId,
        /// The reason.
        loss: Loss,
    },
    /// A drive that was away answers again, in standby.
    DriveBack {
        /// The drive.
        drive: DriveId,
    },
    /// A drive spins without a permit, or may: the world asked at boot, after a crash or on its return, or another
    /// program woke it. It counts as spinning against every budget, even beyond a limit, and is sent a stop; it keeps
    /// its permits until it reports that it has stopped. At boot this is sent after the reports and before `Booted`.
    /// Ignored for a drive that is in use or on its way.
    DriveSpins {
        /// The drive.
        drive: DriveId,
    },

    /// The operator declares that the drive failed permanently, or the rack gave it up
    /// ([`Action::GiveUp`](crate::Action::GiveUp), which this answers). Its data no longer counts, and the drive is not
    /// used again even if it answers. Its stacks are rebuilt on other drives of its group. Also sent at boot, between
    /// the reports and `Booted`, for a drive that failed earlier. A drive that is merely away is not rebuilt: it may
    /// come back.
    DriveFailed {
        /// The drive.
        drive: DriveId,
        /// True if the operator has pulled the drive or cut its power, or will. If so, the drive counts as without
        /// power if it is away when this is sent (the first time or again), if it is lost afterwards, or if it is
        /// absent when it is to stop.
        pulled: bool,
    },
    /// An empty drive has replaced a failed one, and is in standby: it is in service like any other from now on. The
    /// stacks of the failed drive stay lost, and their rebuild continues. Also sent at boot, after the reports and
    /// before `Booted`, for a drive that was replaced earlier and whose rebuild is unfinished; the used bytes in its
    /// report exclude those stacks. While the rack runs this is sent only for a drive that may be replaced
    /// ([`Rack::may_be_replaced`](crate::Rack::may_be_replaced)); for others it is ignored.
    DriveReplaced {
        /// The drive.
        drive: DriveId,
        /// Bytes of the failed drive's stacks that are not rebuilt.
        lost_bytes: u64,
    },
    /// A drive that was given up is itself back, and is in standby: it is in service like any other from now on. No
    /// stack that blobs had on it counts before it is found there; stacks that are not found are rebuilt. Sent instead
    /// of `DriveReplaced`, under the same conditions.
    DriveReturned {
        /// The drive.
        drive: DriveId,
        /// Bytes of the stacks on it that are not rebuilt.
        lost_bytes: u64,
    },
    /// A drive that was reported as failed was given up by the rack in an earlier run because it stayed away
    /// ([`Action::GiveUp`](crate::Action::GiveUp)), and was not reported as pulled: it may come back. Sent at boot.
    DriveMayReturn {
        /// The drive.
        drive: DriveId,
    },
    /// The drive is good, and the operator wants it empty: it gets no new stacks, its stacks move to other drives of
    /// its group, and then it is given up. Also sent at boot, after the reports, for a drive that is being or was
    /// retired, and before any event that reports its failure.
    DriveRetiring {
        /// The drive.
        drive: DriveId,
    },
    /// A page of blobs that have a stack on a failed drive, or had one on its failed predecessor. Answers
    /// [`Action::ListOnDrive`](crate::Action::ListOnDrive).
    OnDrivePage {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The blobs, by number; at most the requested number.
        blobs: Vec<BlobOnDrive>,
        /// Cursor: the next page starts after this blob. `None` if no page follows.
        next: Option<BlobId>,
    },
    /// The catalog counts a rebuilt stack, or not. Answers [`Action::MoveStack`](crate::Action::MoveStack).
    StackMoved {
        /// The operation.
        op: OpId,
        /// The attempt this answers.
        attempt: Attempt,
        /// True if the blob is now on the new drive. If not (the blob is gone, or the catalog failed), the world has
        /// removed the written stack as far as it could.
        done: bool,
    },

    /// An event of a drive of the pool of small records, including that it is needed or no longer needed.
    PoolDrive {
        /// The drive.
        drive: PoolDriveId,
        /// The event.
        event: PoolDriveEvent,
    },

    /// A requested operation.
    Submitted(Box<Request>),
    /// A read or an inspection that does not justify a wake: a copy out of a mostly dead blob, or a read-ahead
    /// ([`crate::readahead`]). It is refused with [`Rejection::Asleep`](crate::Rejection::Asleep) if its group is
    /// neither awake nor waking, and ends with it if the group goes to sleep before its turn.
    SubmittedWhileAwake(Box<Request>),
    /// The requester no longer waits for the operation. Ignored once it is in service.
    Cancelled {
        /// The operation.
        op: OpId,
    },
    /// A transfer ended, successfully or not. Answers [`Action::Transfer`](crate::Action::Transfer); one event for all
    /// drives.
    TransferEnded {
        /// The operation.
        op: OpId,
        /// The attempt this answers.
        attempt: Attempt,
        /// True if the transfer as a whole succeeded (for a read: at least k good fragments of every stripe).
        done: bool,
        /// Each drive's result, in the order of the action.
        outcomes: Vec<DriveOutcome>,
    },
    /// A read delivered this number of payload bytes and delivers no more, since its reader takes no more. Its transfer
    /// ends next, as done.
    ReadCutShort {
        /// The operation.
        op: OpId,
        /// The attempt that ends.
        attempt: Attempt,
        /// Payload bytes delivered.
        bytes: u64,
    },

    /// A write failed because its source cannot be read; no drive is at fault. Answers
    /// [`Action::Transfer`](crate::Action::Transfer); the part that was written is given up.
    SourceUnreadable {
        /// The operation.
        op: OpId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The unreadable versions; empty if the host is at fault, not the versions (for example, it has no file
        /// descriptors left).
        versions: Vec<u64>,
        /// Each drive's result, in the order of the action.
        outcomes: Vec<DriveOutcome>,
    },

    /// The fill level of the workshop.
    StagingChanged(Usage),
    /// A page of staged versions that match the query. Answers [`Action::ListStaged`](crate::Action::ListStaged).
    StagedPage {
        /// The attempt this answers.
        attempt: Attempt,
        /// The versions, in key order.
        entries: Vec<StagedEntry>,
        /// True if more pages follow; the world keeps the cursor.
        more: bool,
    },
    /// A delete, an overwrite or a failed write left dead bytes in blobs of `group`, which wait there to be reclaimed.
    SpaceDead {
        /// The group.
        group: GroupId,
        /// Payload bytes.
        bytes: u64,
    },
    /// The stacks of a dead blob in `group` were removed, but the catalog could not forget the blob: its bytes stay
    /// dead. The next wake of the group tries again; the group is not woken for that.
    DeadKept {
        /// The group.
        group: GroupId,
        /// Payload bytes.
        bytes: u64,
    },
    /// The catalog counts stacks of a dead blob that the engine does not count: those of a write that failed and was
    /// given up, or of a blob that was removed and could not be forgotten. They count as used until they are removed.
    /// For a write this is sent before the answer to its transfer: its room is reserved until then, so none of its
    /// drives is replaced in between.
    DeadStacks {
        /// The drive of each stack.
        drives: Vec<DriveId>,
        /// Of these, the drives that store nothing of the blob because they replaced a failed drive.
        lost: Vec<DriveId>,
        /// Bytes that each stack uses of its drive.
        stack_bytes: u64,
    },
    /// A page of blobs with dead bytes. Answers [`Action::ListDead`](crate::Action::ListDead).
    DeadPage {
        /// The group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The blobs.
        blobs: Vec<BlobWithDead>,
        /// Dead bytes of blobs that are not listed because a reader holds them.
        held_bytes: u64,
        /// True if more pages follow; the world keeps the cursor.
        more: bool,
    },

    /// The stacks on a drive could not be listed; the rack asks again later. Answers
    /// [`Action::ListOnDrive`](crate::Action::ListOnDrive).
    OnDriveUnlisted {
        /// The drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// Blobs with dead bytes could not be listed, or not all of them: the engine's figures for the group do not change.
    /// Answers [`Action::ListDead`](crate::Action::ListDead).
    DeadUnlisted {
        /// The group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// At boot, before `Booted`: the last persisted progress of the scrub of a group.
    ScrubReported {
        /// The group.
        group: GroupId,
        /// Its pass.
        pass: ScrubPass,
    },
    /// At boot, after the `ScrubReported` of its group: a blob that a scrub could not read, and reads again.
    ScrubUnread {
        /// Its group.
        group: GroupId,
        /// The blob.
        blob: BlobOnDrive,
    },
    /// The operator pauses or resumes scrubs. Also sent at boot if they are paused.
    ScrubPaused {
        /// True if nothing is to be scrubbed.
        paused: bool,
    },
    /// The operator wants a group to be scrubbed now, from its first blob. Ignored while scrubs are paused.
    ScrubRequested {
        /// The group; `None` is all groups.
        group: Option<GroupId>,
    },
    /// A page of the blobs of a group. Answers [`Action::ListToScrub`](crate::Action::ListToScrub).
    ScrubPage {
        /// The group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The page.
        page: ScrubPage,
    },
    /// The blobs of a group could not be listed. Answers [`Action::ListToScrub`](crate::Action::ListToScrub).
    ScrubUnlisted {
        /// The group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// An event of a repartition job.
    Job {
        /// The job.
        job: JobId,
        /// The event.
        event: JobEvent,
    },
    /// A requested operation that is part of a step of a repartition job. It is answered like any other, and is
    /// cancelled if the step is to end.
    SubmittedForJob {
        /// The class of the job.
        of: JobClass,
        /// The operation, of the background priority class.
        request: Box<Request>,
    },

    /// The world is about to end: the rack accepts nothing more, lets operations in service end, and puts every group
    /// to sleep. Queued operations are refused.
    Closing,

    /// A deadline of the rack ([`Rack::next_deadline`](crate::Rack::next_deadline)) is reached.
    DeadlineReached,

    /// At boot, at most once and before `Booted`: the progress of the last pass of checks.
    ChecksReported(CheckProgress),
    /// The load of the workshop. Answers [`Action::MeasureLoad`](crate::Action::MeasureLoad).
    LoadMeasured {
        /// The attempt this answers.
        attempt: Attempt,
        /// The load, as defined by [`LoadMeter`](crate::staging::LoadMeter), in thousandths.
        load_permille: u32,
    },
    /// Staged versions were read and checked. Answers [`Action::CheckStaged`](crate::Action::CheckStaged).
    StagedChecked {
        /// The attempt this answers.
        attempt: Attempt,
        /// The versions, in key order; damaged ones are in quarantine.
        entries: Vec<CheckedEntry>,
        /// True if more pages follow; the world keeps the cursor.
        more: bool,
        /// The load at the end, in thousandths.
        load_permille: u32,
    },
    /// Staged versions could not be listed; the cursor has not moved. Answers
    /// [`Action::CheckStaged`](crate::Action::CheckStaged).
    StagedUnchecked {
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// The drive's number of bad sectors: those that were reallocated or wait to be. Answers
    /// [`Action::ReadHealth`](crate::Action::ReadHealth).
    DriveHealth {
        /// The drive.
        drive: DriveId,
        /// Number of bad sectors.
        bad_sectors: u64,
    },
    /// At boot, before `Booted`: the persisted numbers of bad sectors that a drive reported in earlier runs.
    DriveHealthReported(HealthRecord),
}

/// A drive's state at boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DriveReport {
    /// The drive.
    pub drive: DriveId,
    /// Its capacity, in bytes.
    pub capacity_bytes: u64,
    /// Bytes that blobs of the catalog use on it.
    pub used_bytes: u64,
    /// The day of `starts` ([`Time::day`](model::Time::day)).
    pub day: u32,
    /// Number of starts on that day.
    pub starts: u32,
    /// True if it answers. A drive that is reported as present is in standby.
    pub present: bool,
    /// True if its group was initialised with it before ([`Action::PersistInitialised`](crate::Action)); if not, its
    /// group is woken for that.
    pub initialised: bool,
}

/// Bad sectors that a drive reported in earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HealthRecord {
    /// The drive.
    pub drive: DriveId,
    /// Bad sectors at the first health reading.
    pub first_bad_sectors: u64,
    /// Bad sectors at the last health reading.
    pub bad_sectors: u64,
    /// Time of the last reading, in modelled time.
    pub asked: Time,
}

/// The reason for which a drive is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loss {
    /// The fuse of one of its domains tripped; it comes back when the fuse resets.
    FuseTripped,
    /// It did not start in time, or refused to.
    SpinUpFailed,
    /// Its file system could not be mounted or unmounted.
    MountFailed,
    /// It has no label, or the label of another rack or drive; or its place is empty.
    ForeignLabel,
    /// It answered with a permanent error.
    Died,
    /// It did not answer before the deadline; its command may still be under way.
    NoAnswer,
    /// The host could not send it a command: the process had too many files open. The drive is not to blame.
    NotAsked,
    /// It failed permanently: declared by the operator, or given up by the rack.
    Failed,
}

/// An operation on the rack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The world's number for it, above 0 and above all numbers used before; or the number of a composed write.
    pub op: OpId,
    /// The priority class to which it is charged.
    pub priority: PriorityClass,
    /// Its overtaking limit, in the scheduler's unit; `None` is the scheduler's own u.
    pub overtake_limit: Option<u64>,
    /// The work to be done.
    pub work: Work,
}

/// The work of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// Read payload bytes of a blob, whose location is from the catalog.
    Read {
        /// The blob.
        blob: BlobId,
        /// The group that stores it.
        group: GroupId,
        /// The drive of each of its k + r stacks, in stack order.
        drives: DriveList,
        /// Number of payload bytes.
        bytes: u64,
    },
    /// Write a new blob. The engine chooses group and drives; the blob is written, read back, and then reported as
    /// finished.
    Write {
        /// Payload bytes.
        bytes: u64,
        /// Bytes that each stack of it uses of its drive.
        stack_bytes: u64,
        /// The class or group that must store it.
        pin: PinnedTo,
        /// True if it was composed for the migration (and so counts against its window).
        migration: bool,
    },
    /// Remove the stacks of a blob that is no longer referenced.
    Delete {
        /// The blob.
        blob: BlobId,
        /// The group that stores it.
        group: GroupId,
        /// The drive of each of its stacks.
        drives: Vec<DriveId>,
        /// Of these, the drives that store nothing of the blob because they replaced a failed drive.
        lost: Vec<DriveId>,
        /// Bytes that each stack uses of its drive.
        stack_bytes: u64,
        /// Payload bytes that are freed.
        bytes: u64,
    },
    /// Regenerate a stack of a permanently failed drive on another drive of the group, or a damaged stack in place.
    /// Created by the engine only.
    Rebuild {
        /// The blob.
        blob: BlobId,
        /// The group that stores it.
        group: GroupId,
        /// The drive of each of its stacks, in stack order, the failed one included.
        drives: Vec<DriveId>,
        /// The index of the lost stack.
        lost: u8,
        /// Bytes that each stack uses of its drive.
        stack_bytes: u64,
        /// The blob's payload bytes.
        bytes: u64,
        /// True if the stack is damaged and is rewritten on its own drive.
        in_place: bool,
    },
    /// Read a part of a blob from all of its stacks, and repair bad fragments. Created by the engine only.
    Scrub {
        /// The blob.
        blob: BlobId,
        /// The group that stores it.
        group: GroupId,
        /// The drive of each of its stacks, in stack order.
        drives: Vec<DriveId>,
        /// Payload bytes of the part.
        bytes: u64,
        /// The payload byte at which the part ends.
        to: u64,
    },
    /// Wake the group for a scrub, without a transfer. Created by the engine only.
    ScrubWake {
        /// The group.
        group: GroupId,
    },
    /// Wake the group and do its waiting work (reclaiming), without a transfer.
    Visit {
        /// The group.
        group: GroupId,
    },
    /// Wake the group for the first time, so that its drives are started and mounted and their labels checked, without
    /// a transfer. Created by the engine only.
    Initialise {
        /// The group.
        group: GroupId,
    },
    /// Look at a short part of the files on the group's drives at a time, for a verification that compares them with
    /// the catalog. Moves and changes nothing.
    Inspect {
        /// The group.
        group: GroupId,
    },
}

impl Work {
    /// Payload bytes that the operation moves; for a rebuild those of the whole blob, since its stacks move in
    /// parallel. A delete moves none.
    pub fn transfer_bytes(&self) -> u64 {
        match self {
            Self::Read { bytes, .. }
            | Self::Write { bytes, .. }
            | Self::Rebuild { bytes, .. }
            | Self::Scrub { bytes, .. } => *bytes,
            Self::Delete { .. }
            | Self::Visit { .. }
            | Self::Initialise { .. }
            | Self::ScrubWake { .. }
            | Self::Inspect { .. } => 0,
        }
    }
}

/// The outcome of a transfer for one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DriveOutcome {
    /// The drive.
    pub drive: DriveId,
    /// The result there.
    pub result: DriveResult,
}

/// The result of a transfer on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DriveResult {
    /// It did everything it was asked.
    Fine,
    /// It was not asked, since the others sufficed or the transfer ended early.
    Unused,
    /// Some fragments failed their checksum, and were repaired in place.
    Repaired {
        /// Number of repaired fragments.
        fragments: u32,
    },
    /// Its stack is missing or unreadable; the drive itself answers.
    StackBad,
    /// It has no room.
    Full,
    /// It answered with an error.
    Failed,
    /// It did not answer before the deadline; its request may still be under way.
    MissedDeadline,
    /// The host could not send it a request: the process had too many files open. The drive is not to blame.
    NotAsked,
}

impl DriveResult {
    /// True if a retry may succeed: neither the stack nor the room is to blame.
    pub fn may_do_better(self) -> bool {
        matches!(self, Self::Failed | Self::MissedDeadline | Self::NotAsked)
    }
}

/// Fill level of the workshop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes staged and not yet freed.
    pub staged_bytes: u64,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
}

/// A version in the workshop that may migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StagedEntry {
    /// The version's number.
    pub version: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// Time since it was staged, in modelled time.
    pub age: core::time::Duration,
    /// The pin of its bucket or prefix.
    pub pin: PinnedTo,
    /// The thermometer's verdict.
    #[serde(default)]
    pub heat: Heat,
}

/// Progress of a pass of checks. It is persisted together with the world's cursor in the listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckProgress {
    /// Start, in modelled time.
    pub begun: Time,
    /// End, if it has ended.
    pub ended: Option<Time>,
    /// End of the last pass that ran to its end; this pass, if it has ended.
    pub last_ended: Option<Time>,
    /// Versions read and checked so far.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Damaged versions among them.
    pub damaged: u64,
}

/// A staged version that a pass of checks has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckedEntry {
    /// The version.
    pub entry: StagedEntry,
    /// The result.
    pub result: CheckResult,
    /// True if it is to move, by the action's [`Taking`](crate::Taking). Only sound versions are.
    pub taken: bool,
    /// True if its bytes are kept in memory.
    pub held: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckResult {
    /// All of its bytes are as staged.
    Sound,
    /// Its staged bytes cannot be read back; it is in quarantine.
    Damaged,
    /// It was not read: it no longer exists, belongs to a pack that is being written, is already in quarantine, or the
    /// host could not open its file.
    Skipped,
}

/// A blob with unreferenced bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobWithDead {
    /// The blob.
    pub blob: BlobId,
    /// The drive of each of its stacks.
    pub drives: Vec<DriveId>,
    /// Of these, the drives that store nothing of the blob because they replaced a failed drive.
    pub lost: Vec<DriveId>,
    /// Bytes that each stack uses of its drive.
    pub stack_bytes: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// Its dead bytes.
    pub dead_bytes: u64,
    /// True if it stores a live version. If not, the whole blob can be removed.
    pub living: bool,
    /// True if its live data can be read, as far as is known. If not, it cannot be copied out, and the blob stays.
    pub readable: bool,
}

/// A blob that has a stack on a failed drive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobOnDrive {
    /// The blob.
    pub blob: BlobId,
    /// The drive of each of its stacks, in stack order.
    pub drives: Vec<DriveId>,
    /// Of these, the drives that store nothing of the blob because they replaced a failed drive.
    #[serde(default)]
    pub lost: Vec<DriveId>,
    /// Bytes that each stack uses of its drive.
    pub stack_bytes: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// True if it stores a live version. A blob without one is reclaimed, not rebuilt.
    pub living: bool,
    /// An earlier rebuild may have left the lost stack in its place, on the drive whose blobs were listed.
    #[serde(default)]
    pub left_there: bool,
}

/// A page of the blobs of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubPage {
    /// The blobs with live data, by number; at most the requested number.
    pub blobs: Vec<BlobOnDrive>,
    /// Cursor: the next page starts after this blob. `None` if no page follows.
    pub next: Option<BlobId>,
    /// An upper bound: the number of every blob is below this.
    pub end: u64,
}
