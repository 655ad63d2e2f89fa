//! The server's reports about itself: the answers of the admin API, printed by `larder status`, `explain`, `drive
//! list`, `user`, `scrub`.
//!
//! Times name their clock: `_ms` and `_s` are wall time, `modelled_` is the hardware's (they differ by the time scale).

mod scrub;
mod temperature;

pub use scrub::{
    DamagedStackReport, GroupScrub, LostObject, ScrubCounts, ScrubFindingReport, ScrubReport, ScrubStatus, UnreadBlob,
};
pub use temperature::{
    ChangeReport, DryRunReport, MoveEstimate, MoveReport, ObjectTotal, RuleName, RuleReport, RuleTotal,
    TemperatureReport,
};

use crate::condition::{Condition, Warning};
use model::{PowerHabits, Smart, UnaskedWake};
use serde::{Deserialize, Serialize};
use std::fmt;

/// `larder status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The rack's name.
    pub rack: String,
    /// Modelled seconds since the rack was created.
    pub modelled_s: f64,
    /// Wall clock, milliseconds of the Unix epoch.
    pub wall_ms: u64,
    /// Modelled seconds per wall second.
    pub time_scale: u32,
    /// Wall seconds since the server started.
    pub uptime_s: f64,
    /// The workshop.
    pub workshop: WorkshopStatus,
    /// Reading ahead of clients' requests.
    #[serde(default)]
    pub read_ahead: ReadAheadStatus,
    /// The checks of staged data.
    #[serde(default)]
    pub checks: ChecksStatus,
    /// The intake of small objects, if any.
    #[serde(default)]
    pub intake: Option<IntakeStatus>,
    /// The journal of the catalog, if any.
    pub journal: Option<JournalReport>,
    /// Connections and requests of S3.
    pub front: FrontStatus,
    /// The certificate of S3, if it is served over TLS.
    #[serde(default)]
    pub tls: Option<TlsStatus>,
    /// Power now.
    pub power: PowerStatus,
    /// Drives by state.
    pub drives: DriveCounts,
    /// Groups, and the number of them that were ever woken.
    #[serde(default)]
    pub groups: GroupCounts,
    /// Drives that failed permanently or retire, if something is left to rebuild or was rebuilt since the server
    /// started.
    pub rebuilds: Vec<RebuildReport>,
    /// The scrub of the rack.
    #[serde(default)]
    pub scrub: ScrubStatus,
    /// Blobs that have lost stacks with failed drives.
    #[serde(default)]
    pub exposed: ExposureReport,
    /// One row for each class.
    pub classes: Vec<ClassStatus>,
    /// The expected time for a group to wake and to rest.
    #[serde(default)]
    pub switch: SwitchStatus,
    /// Counts since the server started.
    pub totals: Totals,
    /// Capacity and contents of the rack, in stack bytes.
    pub capacity: CapacityStatus,
    /// Sentences that an operator should know, each with its fix.
    pub warnings: Vec<String>,
    /// The condition of each of these warnings, in the same order.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Notes on the server's configuration that are worth a sentence although nothing is wrong.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Status {
    /// Adds `warnings`.
    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        for Warning { condition, message } in warnings {
            self.warnings.push(message);
            self.conditions.push(condition);
        }
    }
}

/// The workshop's fill.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkshopStatus {
    /// Bytes staged.
    pub staged_bytes: u64,
    /// Versions staged. Files of uploads in parts, of PUTs under way, and of versions just moved or deleted count among
    /// the bytes, but not here.
    pub staged_count: u64,
    /// Uploads in parts that are neither completed nor aborted.
    pub uploads: u64,
    /// Bytes of their parts, which are included in the staged bytes.
    pub upload_bytes: u64,
    /// Room for staged objects.
    pub capacity_bytes: u64,
    /// Bytes of recalls in the spool.
    pub spool_bytes: u64,
    /// Room for recalls.
    pub spool_capacity_bytes: u64,
    /// Migration writes under way, from composing to their end.
    pub migrations_under_way: u64,
    /// Bytes of hot objects that moved since the server started, because the workshop was above its critical share and
    /// nothing else was left to move.
    #[serde(default)]
    pub hot_moved_bytes: u64,
}

/// Reading ahead of clients' requests. Counts are since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAheadStatus {
    /// Objects that were read ahead.
    pub objects: u64,
    /// GETs that found bytes that were read ahead for them.
    pub hits: u64,
    /// Bytes that were read ahead, in whole stripes.
    pub read_bytes: u64,
    /// Bytes of those that clients have taken.
    pub used_bytes: u64,
    /// Bytes of objects that were evicted before a client took them.
    pub wasted_bytes: u64,
    /// The room of data that waits to be requested.
    pub waiting_bytes: u64,
}

/// The passes in which all staged data is read and checked. Durations are wall seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChecksStatus {
    /// `off`, `waiting for its time`, `running`, `overdue`, `paused for clients`, or `waiting for migration`.
    pub state: String,
    /// The period of passes; 0 without passes.
    pub every_s: f64,
    /// The last measured load: the share of the time in which a client used the workshop, in thousandths.
    pub load_permille: u32,
    /// Time since the begin of the pass under way, or of the last one.
    pub begun_s_ago: Option<f64>,
    /// Time since the end of the last complete pass.
    pub completed_s_ago: Option<f64>,
    /// Time until the next pass begins; `None` while one is under way.
    pub next_in_s: Option<f64>,
    /// Objects that this pass has checked.
    pub pass_objects: u64,
    /// Their bytes.
    pub pass_bytes: u64,
    /// Those of them that were damaged.
    pub pass_damaged: u64,
    /// Bytes that remain for it, as far as is known.
    pub left_bytes: u64,
    /// Complete passes since the server started.
    pub passes: u64,
    /// Objects checked since then.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects found to be damaged since then; they are in quarantine, or were.
    pub damaged: u64,
    /// Pages that were read since then regardless of the load, because the pass would not have ended in time.
    pub overdue_pages: u64,
    /// Objects that went to the rack since then without being read again, because a check had them in memory.
    pub saved_reads: u64,
    /// Their bytes.
    pub saved_read_bytes: u64,
}

/// The intake: the log of small objects, and its shelves. Counts are since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntakeStatus {
    /// Copies of each small object that its drives hold.
    pub copies: u64,
    /// Its drives.
    pub drives: Vec<PoolDriveReport>,
    /// The alternation of logging and transformation: `ideal`, `acceptable`, or `bad`, when a log was full before an
    /// earlier one was a shelf. `None` until a log was full; the worse of two rotations.
    pub alternation: Option<String>,
    /// Logs that are not shelves yet, except those on duty.
    pub backlog: u64,
    /// Logs that are shelves and still kept, because a newer or more complete catalog may need their contents; the
    /// larger number of two rotations. At 64 nothing more is accepted.
    pub retained: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Changes that were acknowledged.
    pub accepted: u64,
    /// Their bytes.
    pub accepted_bytes: u64,
    /// Bytes written to all drives for each of those bytes.
    pub write_amplification: f64,
    /// Versions and files whose only copy was lost, including those that the start found lost.
    pub losses: u64,
    /// True if a drive is missing, or something of one was lost that the other rotation has not restored yet.
    pub incomplete: bool,
}

/// The journal beside the catalog, from which the catalog can be made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalReport {
    /// Bytes of the last snapshot.
    pub snapshot_bytes: u64,
    /// Bytes that were committed since.
    pub batch_bytes: u64,
    /// True if the two together are the current catalog; false until the first snapshot, and when a new one is due.
    pub leads_on: bool,
    /// True if all that matters of the catalog is on drives as well: a copy of it, and of the changes since.
    #[serde(default)]
    pub on_drives: bool,
}

/// A drive of the intake's pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolDriveReport {
    /// Its directory.
    pub place: String,
    /// `logging`, `transforming`, `idle`, `asleep`, `lost` if it failed, or `missing` if it was missing at the start.
    pub state: String,
    /// `spinning`, `stopping`, `standby`, `waiting` (for a permit to start) or `starting`; `None` without power
    /// control.
    #[serde(default)]
    pub power: Option<String>,
    /// The reason that its last start or stop failed; `None` if it did not.
    #[serde(default)]
    pub power_failure: Option<String>,
    /// Starts on this day.
    #[serde(default)]
    pub starts_today: u64,
    /// Starts since the server started.
    #[serde(default)]
    pub starts: u64,
    /// Bytes of the shelves on it.
    pub shelf_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
}

/// Connections and requests of S3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FrontStatus {
    /// Connections now.
    pub connections: u64,
    /// Of those, connections without a request under way.
    pub idle_connections: u64,
    /// Their limit.
    pub connection_limit: u64,
    /// Requests now.
    pub requests: u64,
    /// Of those, unsigned requests.
    pub unsigned_requests: u64,
    /// Their limit.
    pub request_limit: u64,
    /// Requests that wait for cold objects now, beside those.
    #[serde(default)]
    pub waiting_requests: u64,
    /// Their limit.
    #[serde(default)]
    pub waiting_limit: u64,
    /// Requests answered SlowDown since the server started, because there were too many.
    pub refused_requests: u64,
    /// Connections that were closed at once since then, because their address had too many.
    pub refused_connections: u64,
    /// Idle connections that made room for others since then.
    pub evicted_connections: u64,
    /// Clients that were cut off since then, because they sent or took too little.
    pub slow_clients: u64,
    /// Time until the response head was ready, of requests served since the server started.
    #[serde(default)]
    pub first_byte: HistogramReport,
    /// Time until the response was sent.
    #[serde(default)]
    pub request: HistogramReport,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramReport {
    /// The sum, in wall seconds.
    pub sum_s: f64,
    /// The count of each bucket of `s3::latency`.
    pub counts: Vec<u64>,
}

/// The certificate of S3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsStatus {
    /// Its file.
    pub certificate: String,
    /// The time when the one in use was read, in milliseconds of the Unix epoch.
    pub loaded_ms: u64,
    /// Replacements of the certificate since the server started.
    pub reloads: u64,
    /// The reason that the present files are not in use, if they are not.
    pub problem: Option<String>,
}

/// The expected time for a group to wake and to rest, in wall seconds: by the drives' profile at first, then by recent
/// measurements.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// From standby to ready, without other groups at work.
    pub wake_s: f64,
    /// The same, beside other groups' work.
    pub wake_busy_s: f64,
    /// From ready to standby.
    pub rest_s: f64,
}

/// Power, by the ledger.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerStatus {
    /// Power draw of all drives now, in watts.
    pub watts: f64,
    /// Power draw with every drive in standby that can be, in watts.
    pub standby_watts: f64,
    /// Drives spinning or spinning up; drives without power control always count.
    pub active_drives: u64,
    /// Their maximum.
    pub active_drives_max: u64,
    /// Fuses that tripped since the server started. Always 0 unless something is very wrong.
    pub fuse_trips: u64,
    /// Drives that would not stop, or that do not report whether they did: they count as spinning.
    #[serde(default)]
    pub unstopped_drives: u64,
}

/// Drives by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveCounts {
    /// Platters stopped.
    pub standby: u64,
    /// Starting, mounting, unmounting or stopping.
    pub moving: u64,
    /// Mounted.
    pub ready: u64,
    /// Not there.
    pub away: u64,
    /// Failed permanently, by the operator's command or the rack's decision.
    pub failed: u64,
    /// Good, emptied by the operator's command, and out of service.
    #[serde(default)]
    pub retired: u64,
    /// Without power control, and not in use: they count as spinning.
    #[serde(default)]
    pub always_on: u64,
}

/// The groups of the rack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// All of them.
    pub total: u64,
    /// Those that were initialised: woken once, with the labels of their drives checked. The others are woken one after
    /// the other.
    pub initialised: u64,
}

/// The objects that are lost: more stacks of their blobs than the code makes up for were on failed drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostReport {
    /// The first of them, by name.
    pub objects: Vec<LostObjectReport>,
    /// The number of lost objects.
    pub count: u64,
    /// The number of blobs that stored them.
    pub blobs: u64,
    /// True if there are more such blobs than were examined.
    pub cut: bool,
}

/// An object that is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostObjectReport {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub bytes: u64,
    /// The blob that stored it.
    pub blob: String,
    /// The drives whose stacks of it are lost.
    pub drives: Vec<u32>,
}

impl LostReport {
    /// The most objects that are named.
    pub(crate) const NAMED_MAX: usize = 10_000;

    pub(crate) fn of(lost: catalog::LostObjects) -> Self {
        let object = |object: catalog::LostObject| LostObjectReport {
            bucket: object.bucket,
            key: object.key,
            bytes: object.bytes,
            blob: object.blob.to_string(),
            drives: object.drives.into_iter().map(|drive| drive.0).collect(),
        };
        let objects = lost.objects.into_iter().map(object).collect();
        Self { objects, count: lost.count, blobs: lost.blobs, cut: lost.cut }
    }
}

/// Numbers of blobs that have lost stacks to failed drives, as far as rebuilds have looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposureReport {
    /// By the number of lost stacks, from 1 to r.
    pub blobs: Vec<u64>,
    /// Blobs that have lost more than r: data is lost.
    pub lost_blobs: u64,
}

/// The progress of rebuilding a drive that failed permanently, or of emptying one that retires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // each is a separate fact
pub struct RebuildReport {
    /// The drive.
    pub drive: u32,
    /// Its group, on whose other drives it is rebuilt.
    pub group: u32,
    /// Bytes of stacks that objects still have on it; 0 when done.
    pub left_bytes: u64,
    /// Bytes of stacks that were rebuilt since the server started.
    pub rebuilt_bytes: u64,
    /// Stacks that were rebuilt since the server started.
    pub rebuilt_stacks: u64,
    /// Blobs that have lost more stacks than the code makes up for, as far as is known.
    pub lost_blobs: u64,
    /// Blobs that wait for drives that are away, or for room.
    pub waiting_blobs: u64,
    /// Those of them for which no present drive has room.
    #[serde(default)]
    pub unplaced_blobs: u64,
    /// True if it is good, and its stacks move away because the operator retires it.
    #[serde(default)]
    pub retires: bool,
    /// True if it was good, was emptied because the operator retired it, and is out of service.
    #[serde(default)]
    pub retired: bool,
    /// The drive in its place: `itself`; `another` drive, to which the lost data is restored; or itself, which was
    /// given up and is back (`returned`).
    #[serde(default)]
    pub there: String,
    /// Bytes of stacks that count as stored on the drive in its place.
    #[serde(default)]
    pub used_bytes: u64,
    /// True if it is away.
    #[serde(default)]
    pub away: bool,
    /// Drives that its group lacks to rebuild it: with fewer drives in service than a blob has stacks, no lost stack
    /// finds a place.
    #[serde(default)]
    pub lacks_drives: u64,
    /// True if nothing of it is being rebuilt although something is left, for want of drives or of room. The times
    /// below then mean nothing.
    #[serde(default)]
    pub stuck: bool,
    /// Minimum wall seconds that remain, if nothing has to be waited for.
    pub left_min_s: f64,
    /// Maximum wall seconds that remain, with all other work taking its full share.
    pub left_max_s: f64,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its number.
    pub class: u32,
    /// The group that is not asleep, if any.
    pub group: Option<u32>,
    /// `asleep`, `waking`, `busy`, `idle` or `resting`.
    pub state: String,
    /// Operations queued: client, rebuild, background.
    pub queued: [u64; 3],
    /// True if the group would sleep, but keeps spinning because a drive of it has no starts left today.
    pub kept_spinning: bool,
}

/// Counters since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Group wakes, by cause: client, rebuild, background.
    pub group_wakes: [u64; 3],
    /// Of those by background work, wakes only to initialise a group.
    pub initialisation_wakes: u64,
    /// Drive starts.
    pub drive_starts: u64,
    /// Payload bytes read from the rack.
    pub read_bytes: u64,
    /// Payload bytes that migrated to the rack.
    pub migrated_bytes: u64,
    /// Group wakes caused by background work other than initialisation, per 10^9 bytes migrated; `None` before anything
    /// migrated.
    pub wakes_per_gb_migrated: Option<f64>,
    /// Payload bytes of reclaimed blobs.
    pub reclaimed_bytes: u64,
    /// Payload bytes of deleted or overwritten versions that wait for their group's next wake.
    pub waiting_reclaim_bytes: u64,
    /// Operations refused or failed.
    pub refused: u64,
    /// Reads that failed because data is lost.
    pub data_lost: u64,
    /// Drive starts beyond the day's budget: for clients and rebuilds, which may exceed it.
    pub starts_over_budget: u64,
    /// Blobs that were written with more than r stacks in a domain that can be lost, because members were away.
    pub crowded_placements: u64,
    /// Drives that woke although a soft limit was reached: speed is lost, nothing else.
    pub soft_overruns: u64,
    /// Fragments that were bad and were repaired.
    pub repaired_fragments: u64,
    /// The number of times that drives did not answer in time.
    pub missed_deadlines: u64,
    /// Sleeping drives that another program woke.
    #[serde(default)]
    pub woken_by_others: u64,
    /// Sleeping drives that woke although no program had sent them anything.
    #[serde(default)]
    pub woke_themselves: u64,
    /// I/O calls on emulated drives that took longer than the model says.
    pub overruns: u64,
    /// Their sum, in wall seconds.
    pub overrun_s: f64,
}

/// Room in the rack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityStatus {
    /// Capacity of the drives of all groups.
    pub total_bytes: u64,
    /// Free bytes of it, as far as the engine knows. The room of a disk that drives share is counted once.
    pub free_bytes: u64,
    /// True if there is no room for staged objects: PUTs are refused.
    pub full: bool,
    /// Payload bytes of the last write from the workshop that found no room, as long as it would still find none.
    pub unplaced_bytes: Option<u64>,
}

/// `larder explain s3://bucket/key`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// Its ETag.
    pub etag: String,
    /// The time it was written, in milliseconds of the Unix epoch.
    pub modified_ms: u64,
    /// Its place.
    pub place: PlaceReport,
    /// The reason that it is in quarantine, if it is: not every byte of it can be read, and nothing moves it before
    /// that is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Its temperature, while it is in the workshop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<TemperatureReport>,
}

/// The place of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "where")]
pub enum PlaceReport {
    /// In the workshop.
    Workshop {
        /// The slots of its files: one, or one for each part.
        slots: Vec<u64>,
        /// Its age there, in wall seconds.
        age_s: f64,
        /// True if it is in a pack that is being written.
        migrating: bool,
    },
    /// In the rack.
    Rack(RackPlace),
}

/// The place of an object in the rack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RackPlace {
    /// Its blob.
    pub blob: String,
    /// The number of objects that share the blob.
    pub members: u32,
    /// The offset of its first byte in the blob.
    pub offset: u64,
    /// The group.
    pub group: u32,
    /// `asleep`, `waking`, `busy`, `idle` or `resting`.
    pub group_state: String,
    /// The class.
    pub class: u32,
    /// k of its code.
    pub code_data: u8,
    /// r of its code.
    pub code_parity: u8,
    /// The drive of each of its stacks, in stack order.
    pub drives: Vec<DriveReport>,
    /// `readable`; `unavailable` if too many of its drives are away, which may come back; `lost` if more stacks are
    /// on failed drives, or known to be damaged, than the code makes up for.
    pub state: String,
    /// Its unusable stacks, as far as that is known without reading.
    pub unusable: Vec<UnusableStack>,
    /// Minimum wall seconds until the first byte; `None` if no byte will come.
    pub wait_min_s: Option<f64>,
    /// Expected wall seconds until the first byte, by recent wakes and transfers; `None` if no byte will come.
    pub wait_expected_s: Option<f64>,
    /// Maximum wall seconds until the first byte; `None` if no byte will come.
    pub wait_max_s: Option<f64>,
    /// True if a recall of all of it is in the spool.
    pub recalled: bool,
}

/// A stack of a blob that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableStack {
    /// Its index.
    pub stack: u8,
    /// Its drive.
    pub drive: u32,
    /// `failed`, `away` or `damaged`.
    pub why: String,
}

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveReport {
    /// Its number.
    pub drive: u32,
    /// [width, depth, height].
    pub slot: [u16; 3],
    /// Its group, or `None` for a spare.
    pub group: Option<u32>,
    /// Its state.
    pub state: String,
    /// Starts on this modelled day.
    pub starts_today: u32,
    /// Starts that it may use a day for work that no client waits for.
    pub starts_per_day: u32,
    /// Free bytes, as far as the engine knows.
    pub free_bytes: u64,
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
    /// The number of times that it did not answer in time since the server started.
    pub missed_deadlines: u64,
    /// The reason that it could not be used when it was last tried, and the fix; `None` if it could, or was not tried.
    #[serde(default)]
    pub reason: Option<String>,
    /// Starts that Larder has made of it, in all; 0 in reports that do not include it.
    #[serde(default)]
    pub starts_total: u64,
    /// Starts that it is made for: as the drive reports it, or else as in the rack's description.
    #[serde(default)]
    pub rated_starts: u64,
    /// The health that it reported when it was awake and asked; `None` if it never did.
    #[serde(default)]
    pub health: Option<HealthReport>,
    /// Its own power behaviour; `None` for a drive that is no device.
    #[serde(default)]
    pub habits: Option<HabitsReport>,
}

/// `larder drive fail`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedReport {
    /// Drives that its group lacks to rebuild what it held; 0 if there are enough.
    pub lacks_drives: u64,
    /// The drive from now on.
    #[serde(flatten)]
    pub drive: DriveReport,
}

/// `larder drive replace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplacedReport {
    /// The drive in the place of the failed one: `itself`, back with its data, or `another`, empty one.
    pub taken: String,
    /// The drive from now on.
    #[serde(flatten)]
    pub drive: DriveReport,
}

/// The health that a drive reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// The time when it was asked, in milliseconds of the Unix epoch.
    pub read_ms: u64,
    /// Bad sectors, reallocated or pending, when it was first asked.
    pub first_bad_sectors: u64,
    /// Its report.
    #[serde(flatten)]
    pub said: Smart,
}

/// The power behaviour of a drive on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HabitsReport {
    /// The behaviour as the drive and the kernel report it.
    #[serde(flatten)]
    pub said: PowerHabits,
    /// Number of times that it was found awake although no program had sent it anything.
    pub woke_itself: u64,
    /// Number of times that it was found awake because another program woke it.
    pub woken_by_others: u64,
    /// The last of those wakes.
    pub last_unasked_wake: Option<UnaskedWake>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserReport {
    /// Its name, which owns its buckets.
    pub name: String,
    /// The key it signs with.
    pub access_key: String,
    /// The time when it got its keys, in milliseconds of the Unix epoch; not known for root.
    pub rotated_ms: Option<u64>,
    /// The number of buckets it owns.
    pub buckets: u64,
}

/// The keys of a user, shown once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKeys {
    /// The name of the user.
    pub name: String,
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// The file with the new keys, in place of the old ones; `None` if the catalog stores them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl fmt::Debug for NewKeys {
    /// Without the secret: printed values end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKeys")
            .field("name", &self.name)
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}
