//! Everything that can happen to a rack.
//!
//! Events are facts, never requests: a drive that failed to start is as good an event as one that started. Answers
//! carry the attempt of the action they answer, so that late and duplicate ones are recognised. Lists come in pages
//! of bounded length.

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
    /// At boot, once per drive: what the catalog remembers of it and whether it answers.
    DriveReported(DriveReport),
    /// At boot, once, after every drive was reported: work may begin, with the groups that were never initialised.
    Booted,

    /// The free space of a file system on which several drives lie: those of an emulated rack. Sent at boot and
    /// whenever it has changed; the drives' room is counted once from then on.
    HostMeasured {
        /// Which file system; any small number, always the same for one.
        host: u32,
        /// The drives on it.
        drives: Vec<DriveId>,
        /// Bytes of it that they may still use.
        free_bytes: u64,
    },

    /// The drive's platters turn. Answers [`Action::SpinUp`](crate::Action::SpinUp).
    SpunUp {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },
    /// The drive's file system is mounted and its label checked. Answers [`Action::Mount`](crate::Action::Mount).
    Mounted {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Bytes that can still be written to it: the smaller of the model's and the real medium's figures.
        free_bytes: u64,
    },
    /// The drive's file system is unmounted. Answers [`Action::Unmount`](crate::Action::Unmount).
    Unmounted {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },
    /// The drive's platters stand still. Answers [`Action::Stop`](crate::Action::Stop).
    Stopped {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },
    /// A command to the drive failed (start, mount, unmount or stop). The drive is out of service until it comes back.
    DriveCommandFailed {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Why.
        loss: Loss,
    },
    /// The drive went away without being asked: it died, or the fuse of one of its domains tripped.
    DriveLost {
        /// Which drive.
        drive: DriveId,
        /// Why.
        loss: Loss,
    },
    /// A drive that was away answers again, in standby.
    DriveBack {
        /// Which drive.
        drive: DriveId,
    },
    /// A drive that nobody was permitted to start spins, or nobody knows whether it does: it was asked at boot, after a
    /// crash or when it came back, or another program woke it. It counts as spinning against every budget, even where
    /// that breaks a limit, and is sent a stop; until it says that it stands still it keeps its permits. At boot it is
    /// sent after the reports and before `Booted`. Ignored of a drive that is in use or on its way.
    DriveSpins {
        /// Which drive.
        drive: DriveId,
    },

    /// The drive failed for good, says the operator: nothing on it counts any more, and it is not used again even if it
    /// answers. What blobs had on it is rebuilt on other drives of its group. Also sent at boot, between the reports
    /// and `Booted`, of a drive that failed earlier. A drive that merely went away is not rebuilt: it may come back.
    /// Also the answer to [`Action::GiveUp`](crate::Action::GiveUp).
    DriveFailed {
        /// Which drive.
        drive: DriveId,
        /// Whoever says so has pulled it or cut it off, or will: if it is away when this is sent, for the first time or
        /// again, or is lost afterwards, or is not there when it is to stop, it is taken to draw no power any more.
        pulled: bool,
    },
    /// Another drive, with nothing on it, is in the place of one that failed, and stands still: it is in service like
    /// any other from now on. What blobs had on the failed one is as lost as it was, and its rebuild goes on. Also sent
    /// at boot, after the reports and before `Booted`, of a drive that was replaced earlier and whose rebuild is not
    /// through; what it reported as used is without those stacks. While the rack runs it is sent only for a drive that
    /// may be replaced ([`Rack::may_be_replaced`](crate::Rack::may_be_replaced)); of others it is ignored.
    DriveReplaced {
        /// Which drive.
        drive: DriveId,
        /// Bytes of stacks that blobs had on the failed one and that are not rebuilt.
        lost_bytes: u64,
    },
    /// The very drive that was given up is back, and stands still: it is in service like any other from now on. Nothing
    /// that blobs had on it counts until it was looked for there; what is not found is rebuilt. Sent like
    /// `DriveReplaced`, in the place of it.
    DriveReturned {
        /// Which drive.
        drive: DriveId,
        /// Bytes of stacks that blobs had on it and that are not rebuilt.
        lost_bytes: u64,
    },
    /// The drive, of which it was said that it failed, was given up by the rack in an earlier run since it stayed away
    /// ([`Action::GiveUp`](crate::Action::GiveUp)), and nobody has pulled it: it may come back. Sent at boot.
    DriveMayReturn {
        /// Which drive.
        drive: DriveId,
    },
    /// The drive is good, and the operator wants it empty: it gets no new stacks, those that it has move to other
    /// drives of its group, and then it is given up. Also sent at boot, after the reports, of a drive that is being
    /// retired or was, before it is said that it failed.
    DriveRetiring {
        /// Which drive.
        drive: DriveId,
    },
    /// A page of blobs that have a stack on a failed drive, or had it on the one before that was replaced. Answers
    /// [`Action::ListOnDrive`](crate::Action::ListOnDrive).
    OnDrivePage {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The blobs, by number; at most as many as were asked for.
        blobs: Vec<BlobOnDrive>,
        /// Behind which blob to go on; `None` if there are no more.
        next: Option<BlobId>,
    },
    /// The catalog counts a rebuilt stack, or does not. Answers [`Action::MoveStack`](crate::Action::MoveStack).
    StackMoved {
        /// Which operation.
        op: OpId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Whether the blob lies on the new drive now. If not (the blob is gone, or the catalog failed), the world has
        /// removed what was written, as far as it could.
        done: bool,
    },

    /// Something happened to a drive of the pool of small records, or it is needed or not.
    PoolDrive {
        /// Which drive.
        drive: PoolDriveId,
        /// The event.
        event: PoolDriveEvent,
    },

    /// An operation is asked for.
    Submitted(Box<Request>),
    /// A read, or a look, is asked for that is worth no wake of its own: what is copied out of a blob that is mostly
    /// dead, or read ahead ([`crate::readahead`]). It is refused with [`Rejection::Asleep`](crate::Rejection::Asleep)
    /// if its group is neither awake nor on its way to be, and ends so when that goes to sleep before its turn.
    SubmittedWhileAwake(Box<Request>),
    /// Nobody waits for the operation any more. Ignored once it is in service.
    Cancelled {
        /// Which operation.
        op: OpId,
    },
    /// A transfer is over, well or badly. Answers [`Action::Transfer`](crate::Action::Transfer); one event for all
    /// drives.
    TransferEnded {
        /// Which operation.
        op: OpId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Whether the transfer as a whole did what was asked (for a read: at least k good fragments of every stripe).
        done: bool,
        /// Each drive's result, in the order of the action.
        outcomes: Vec<DriveOutcome>,
    },
    /// A read gave so many bytes of its payload and gives no more, since its reader takes no more. Its transfer ends
    /// next, as done.
    ReadCutShort {
        /// Which operation.
        op: OpId,
        /// The attempt that ends.
        attempt: Attempt,
        /// Payload bytes that were given.
        bytes: u64,
    },

    /// A write could not be done since what it is made of cannot be read. No drive is at fault for that. Answers
    /// [`Action::Transfer`](crate::Action::Transfer); what was written of it is given up.
    SourceUnreadable {
        /// Which operation.
        op: OpId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The versions that could not be read; none if the host is at fault (it has no file descriptors left, say),
        /// and not they.
        versions: Vec<u64>,
        /// Each drive's result, in the order of the action.
        outcomes: Vec<DriveOutcome>,
    },

    /// How full the workshop is.
    StagingChanged(Usage),
    /// A page of staged versions that fit what was asked. Answers [`Action::ListStaged`](crate::Action::ListStaged).
    StagedPage {
        /// The attempt this answers.
        attempt: Attempt,
        /// The versions, in key order.
        entries: Vec<StagedEntry>,
        /// Whether there are more; the world keeps the place.
        more: bool,
    },
    /// Space of blobs in `group` was given up by a delete, an overwrite or a write that failed, and waits there to be
    /// reclaimed.
    SpaceDead {
        /// Which group.
        group: GroupId,
        /// How many payload bytes.
        bytes: u64,
    },
    /// A dead blob in `group`, whose stacks were removed, could not be forgotten: its bytes are dead as before, and are
    /// tried again at the next wake of the group, which nothing has to wake for that.
    DeadKept {
        /// Which group.
        group: GroupId,
        /// How many payload bytes.
        bytes: u64,
    },
    /// The catalog counts stacks of a dead blob that do not count here: of a write that failed and was given up, or of
    /// a blob that was removed and could not be forgotten. They count as used until they are removed. Of a write it is
    /// said before the answer to its transfer: its room is reserved until then, so that no drive of it is replaced
    /// meanwhile.
    DeadStacks {
        /// The drive of each of them.
        drives: Vec<DriveId>,
        /// Those of them that hold nothing of it, since they took the place of a drive that failed.
        lost: Vec<DriveId>,
        /// Bytes that each stack uses of its drive.
        stack_bytes: u64,
    },
    /// A page of blobs with dead bytes. Answers [`Action::ListDead`](crate::Action::ListDead).
    DeadPage {
        /// Which group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The blobs.
        blobs: Vec<DeadBlob>,
        /// Dead bytes of blobs that were left out because a reader holds them.
        held_bytes: u64,
        /// Whether there are more; the world keeps the place.
        more: bool,
    },

    /// The stacks on a drive could not be listed: they are listed again later. Answers
    /// [`Action::ListOnDrive`](crate::Action::ListOnDrive).
    OnDriveUnlisted {
        /// Which drive.
        drive: DriveId,
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// Blobs with dead bytes could not be listed, or not all of them: what is believed of the group stays. Answers
    /// [`Action::ListDead`](crate::Action::ListDead).
    DeadUnlisted {
        /// Which group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// At boot, before `Booted`: how far the scrub of a group was, as it was remembered last.
    ScrubReported {
        /// Which group.
        group: GroupId,
        /// Its pass.
        pass: ScrubPass,
    },
    /// At boot, behind the `ScrubReported` of its group: a blob that a scrub could not read, and reads again.
    ScrubUnread {
        /// Its group.
        group: GroupId,
        /// The blob.
        blob: BlobOnDrive,
    },
    /// The operator has scrubs paused, or has them go on. Also sent at boot if they are paused.
    ScrubPaused {
        /// True if nothing is to be scrubbed.
        paused: bool,
    },
    /// The operator wants a group to be scrubbed from its first blob on, at once. Ignored while scrubs are paused.
    ScrubRequested {
        /// Which group; `None` is all.
        group: Option<GroupId>,
    },
    /// A page of the blobs of a group. Answers [`Action::ListToScrub`](crate::Action::ListToScrub).
    ScrubPage {
        /// Which group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
        /// The page.
        page: ScrubPage,
    },
    /// The blobs of a group could not be listed. Answers [`Action::ListToScrub`](crate::Action::ListToScrub).
    ScrubUnlisted {
        /// Which group.
        group: GroupId,
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// Something happened to a repartition job.
    Job {
        /// Which job.
        job: JobId,
        /// The event.
        event: JobEvent,
    },
    /// An operation is asked for that is part of a step of a repartition job. It is answered as any other; cancelled,
    /// if the step is to end.
    SubmittedForJob {
        /// The class of the job.
        of: JobClass,
        /// The operation, of the background priority class.
        request: Box<Request>,
    },

    /// The world is about to end: take in nothing more, let what is in service end, put every group to sleep. Queued
    /// operations are refused.
    Closing,

    /// A moment the rack asked to be woken at ([`Rack::next_deadline`](crate::Rack::next_deadline)) has come.
    DeadlineReached,

    /// At boot, at most once and before `Booted`: how far the last pass of checks had come.
    ChecksReported(CheckProgress),
    /// The load of the workshop. Answers [`Action::MeasureLoad`](crate::Action::MeasureLoad).
    LoadMeasured {
        /// The attempt this answers.
        attempt: Attempt,
        /// The load, as [`LoadMeter`](crate::staging::LoadMeter) has it, in thousandths.
        load_permille: u32,
    },
    /// Staged versions were read and checked. Answers [`Action::CheckStaged`](crate::Action::CheckStaged).
    StagedChecked {
        /// The attempt this answers.
        attempt: Attempt,
        /// The versions, in key order; what is damaged is in quarantine.
        entries: Vec<CheckedEntry>,
        /// Whether there are more; the world keeps the place.
        more: bool,
        /// The load at the end, in thousandths.
        load_permille: u32,
    },
    /// Staged versions could not be listed; the place is as it was. Answers
    /// [`Action::CheckStaged`](crate::Action::CheckStaged).
    StagedUnchecked {
        /// The attempt this answers.
        attempt: Attempt,
    },

    /// So many sectors of the drive are bad: they were reallocated, or wait to be. Answers
    /// [`Action::ReadHealth`](crate::Action::ReadHealth).
    DriveHealth {
        /// Which drive.
        drive: DriveId,
        /// How many.
        bad_sectors: u64,
    },
    /// At boot, before `Booted`: what a drive said of its bad sectors before, as it was remembered.
    DriveHealthReported(HealthRecord),
}

/// A drive as it is known at boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DriveReport {
    /// Which drive.
    pub drive: DriveId,
    /// Its capacity, in bytes.
    pub capacity_bytes: u64,
    /// Bytes of it that blobs of the catalog use.
    pub used_bytes: u64,
    /// The day `starts` counts for ([`Time::day`](model::Time::day)).
    pub day: u32,
    /// How often it was started on that day.
    pub starts: u32,
    /// Whether it answers. A drive that is reported as present is in standby.
    pub present: bool,
    /// Whether its group was initialised with it before ([`Action::PersistInitialised`](crate::Action)); if not, its
    /// group is woken for that.
    pub initialised: bool,
}

/// What a drive said of its bad sectors in earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HealthRecord {
    /// Which drive.
    pub drive: DriveId,
    /// How many there were when it was asked first.
    pub first_bad_sectors: u64,
    /// How many there were when it was asked last.
    pub bad_sectors: u64,
    /// When that was, in modelled time.
    pub asked: Time,
}

/// Why a drive is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loss {
    /// The fuse of one of its domains tripped; it comes back when the fuse resets.
    FuseTripped,
    /// It did not start in time, or refused to.
    SpinUpFailed,
    /// Its file system could not be mounted or unmounted.
    MountFailed,
    /// It carries the label of another rack or drive, or none; or there is no drive in its place.
    ForeignLabel,
    /// It answered with an error that will not go away.
    Died,
    /// It did not answer before the deadline; what it was asked may still be under way.
    NoAnswer,
    /// The host could not ask it: the process had too many files open. The drive is not to blame.
    NotAsked,
    /// The operator says that it failed for good.
    Failed,
}

/// An operation on the rack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The world's number for it: above all it has used before, and above 0; or that of a composed write.
    pub op: OpId,
    /// Whose share it is charged to.
    pub priority: PriorityClass,
    /// How far it may be overtaken, in the scheduler's unit; `None` is the scheduler's own u.
    pub overtake_limit: Option<u64>,
    /// The work to be done.
    pub work: Work,
}

/// The work of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// Read payload bytes of a blob; the catalog said where it lies.
    Read {
        /// Which blob.
        blob: BlobId,
        /// The group it lies in.
        group: GroupId,
        /// The drive of each of its k + r stacks, in stack order.
        drives: DriveList,
        /// How many payload bytes are wanted.
        bytes: u64,
    },
    /// Write a new blob. The engine chooses group and drives; it is written, read back, and then reported as finished.
    Write {
        /// Payload bytes.
        bytes: u64,
        /// Bytes that each stack of it uses of its drive.
        stack_bytes: u64,
        /// Where it must lie.
        pin: PinnedTo,
        /// Whether it was composed for the migration (and so counts against its window).
        migration: bool,
    },
    /// Remove the stacks of a blob that nobody refers to any more.
    Delete {
        /// Which blob.
        blob: BlobId,
        /// The group it lies in.
        group: GroupId,
        /// The drive of each of its stacks.
        drives: Vec<DriveId>,
        /// Those of them that hold nothing of it, since they took the place of a drive that failed.
        lost: Vec<DriveId>,
        /// Bytes that each stack uses of its drive.
        stack_bytes: u64,
        /// Payload bytes that are given back.
        bytes: u64,
    },
    /// Regenerate a stack that was on a drive that failed for good, on another drive of the group; or one that is
    /// damaged, in its place. The engine's own.
    Rebuild {
        /// Which blob.
        blob: BlobId,
        /// The group it lies in.
        group: GroupId,
        /// The drive of each of its stacks, in stack order, the failed one included.
        drives: Vec<DriveId>,
        /// The index of the stack that is lost.
        lost: u8,
        /// Bytes that each stack uses of its drive.
        stack_bytes: u64,
        /// The blob's payload bytes.
        bytes: u64,
        /// Whether it is damaged, and goes to where it lies.
        in_place: bool,
    },
    /// Read a part of a blob from all of its stacks, and repair the fragments that are bad. The engine's own.
    Scrub {
        /// Which blob.
        blob: BlobId,
        /// The group it lies in.
        group: GroupId,
        /// The drive of each of its stacks, in stack order.
        drives: Vec<DriveId>,
        /// Payload bytes of the part.
        bytes: u64,
        /// The payload byte at which it ends.
        to: u64,
    },
    /// Wake the group for a scrub; moves nothing itself. The engine's own.
    ScrubWake {
        /// Which group.
        group: GroupId,
    },
    /// Wake the group and do what waits there (reclaiming); moves nothing itself.
    Visit {
        /// Which group.
        group: GroupId,
    },
    /// Wake the group for the first time, so that its drives are started and mounted and their labels checked; moves
    /// nothing itself. The engine's own.
    Initialise {
        /// Which group.
        group: GroupId,
    },
    /// Look at what lies on the drives of the group, a short part of it at once: a verification holds it against the
    /// catalog. Moves nothing and changes nothing.
    Inspect {
        /// Which group.
        group: GroupId,
    },
}

impl Work {
    /// Payload bytes that the operation moves; for a rebuild those of the whole blob, since its stacks move at once. A
    /// delete moves none.
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
    /// Which drive.
    pub drive: DriveId,
    /// The result there.
    pub result: DriveResult,
}

/// The result of a transfer on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DriveResult {
    /// Everything asked of it was done.
    Fine,
    /// It was not asked, since the others sufficed or the transfer ended early.
    Unused,
    /// Some fragments failed their checksum; so many were repaired in place.
    Repaired {
        /// How many fragments.
        fragments: u32,
    },
    /// Its stack is missing or unreadable; the drive itself answers.
    StackBad,
    /// It has no room.
    Full,
    /// It answered with an error.
    Failed,
    /// It did not answer before the deadline; what it was asked may still be under way.
    MissedDeadline,
    /// The host could not ask it: the process had too many files open. The drive is not to blame.
    NotAsked,
}

impl DriveResult {
    /// True if another try may succeed: neither the stack nor the room is to blame.
    pub fn may_do_better(self) -> bool {
        matches!(self, Self::Failed | Self::MissedDeadline | Self::NotAsked)
    }
}

/// How full the workshop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes staged and not yet freed.
    pub staged_bytes: u64,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
}

/// A version in the workshop that may migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StagedEntry {
    /// The version's number.
    pub version: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// How long it has lain there, in modelled time.
    pub age: core::time::Duration,
    /// Where its bucket or prefix is pinned to.
    pub pin: PinnedTo,
    /// What the thermometer says of it.
    #[serde(default)]
    pub heat: Heat,
}

/// How far a pass has come. Durable, along with the world's place in the listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckProgress {
    /// When it began, in modelled time.
    pub begun: Time,
    /// When it ended, if it has.
    pub ended: Option<Time>,
    /// When the last one ended that was read to its end; this one, if it has.
    pub last_ended: Option<Time>,
    /// Versions that were read and checked so far.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that were found to be damaged.
    pub damaged: u64,
}

/// A staged version that a pass of checks has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckedEntry {
    /// The version.
    pub entry: StagedEntry,
    /// The result.
    pub result: CheckResult,
    /// Whether it is to move, as the action's [`Taking`](crate::Taking) says. Only what is sound is.
    pub taken: bool,
    /// Whether its bytes are kept in memory.
    pub held: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckResult {
    /// Every byte of it is as it was staged.
    Sound,
    /// It cannot be read as it was staged, and is in quarantine.
    Damaged,
    /// It was not read: it is gone, belongs to a pack that is being written, is in quarantine already, or the host
    /// could not open its file.
    Skipped,
}

/// A blob some or all of whose bytes nobody refers to any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeadBlob {
    /// Which blob.
    pub blob: BlobId,
    /// The drive of each of its stacks.
    pub drives: Vec<DriveId>,
    /// Those of them that hold nothing of it, since they took the place of a drive that failed.
    pub lost: Vec<DriveId>,
    /// Bytes that each stack uses of its drive.
    pub stack_bytes: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// How many of them are dead.
    pub dead_bytes: u64,
    /// Whether a version lives in it. If none does, it can go as a whole.
    pub living: bool,
    /// Whether what lives in it can be read, as far as is known. If not, it cannot be copied out, and the blob stays.
    pub readable: bool,
}

/// A blob that has a stack on a failed drive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobOnDrive {
    /// Which blob.
    pub blob: BlobId,
    /// The drive of each of its stacks, in stack order.
    pub drives: Vec<DriveId>,
    /// Those of them that hold nothing of it, since they took the place of a drive that failed.
    #[serde(default)]
    pub lost: Vec<DriveId>,
    /// Bytes that each stack uses of its drive.
    pub stack_bytes: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// Whether a version lives in it. A blob that is dead as a whole is reclaimed, not rebuilt.
    pub living: bool,
    /// An earlier rebuild may have left the lost stack in its place, on the drive whose blobs were listed.
    #[serde(default)]
    pub left_there: bool,
}

/// A page of the blobs of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubPage {
    /// The living ones, by number; at most as many as were asked for.
    pub blobs: Vec<BlobOnDrive>,
    /// Behind which blob to go on; `None` if there are no more.
    pub next: Option<BlobId>,
    /// Every blob that there is has a number below this.
    pub end: u64,
}
