//! The server's reports about itself: the answers of the admin API, printed by `larder status`, `explain`, `drive
//! list`, `user`, `scrub`.
//!
//! Times say which time they are in: `_ms` and `_s` of the wall, `modelled_` of the hardware (they differ by the time
//! scale).

mod scrub;
mod temperature;

pub use scrub::{
    DamagedStackReport, LostObject, ScrubCounts, ScrubFindingReport, ScrubGroup, ScrubReport, ScrubStatus, UnreadBlob,
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
    /// Modelled seconds since the rack came into being.
    pub modelled_s: f64,
    /// Wall clock, milliseconds of the Unix epoch.
    pub wall_ms: u64,
    /// Modelled seconds per wall second.
    pub time_scale: u32,
    /// Wall seconds since the server started.
    pub uptime_s: f64,
    /// The workshop.
    pub workshop: WorkshopStatus,
    /// What was read ahead of what clients asked for.
    #[serde(default)]
    pub read_ahead: ReadAheadStatus,
    /// The checks of what is staged.
    #[serde(default)]
    pub checks: ChecksStatus,
    /// The intake of small objects, if there is one.
    #[serde(default)]
    pub intake: Option<IntakeStatus>,
    /// The journal of the catalog, if there is one.
    pub journal: Option<JournalReport>,
    /// Connections and requests of S3.
    pub front: FrontStatus,
    /// The certificate of S3, if it is served over TLS.
    #[serde(default)]
    pub tls: Option<TlsStatus>,
    /// Power now.
    pub power: PowerStatus,
    /// Drives by what they are doing.
    pub drives: DriveCounts,
    /// Groups, and how many of them were ever woken.
    #[serde(default)]
    pub groups: GroupCounts,
    /// Drives that failed for good, as far as something is left to rebuild or was rebuilt since the server started.
    pub rebuilds: Vec<RebuildReport>,
    /// The scrub of the rack.
    #[serde(default)]
    pub scrub: ScrubStatus,
    /// Blobs that have lost stacks with drives that failed.
    #[serde(default)]
    pub exposed: ExposureReport,
    /// One row a class.
    pub classes: Vec<ClassStatus>,
    /// The time that a group is expected to take for its way up and down.
    #[serde(default)]
    pub switch: SwitchStatus,
    /// Counts since the server started.
    pub totals: Totals,
    /// Capacity and contents of the rack, in stack bytes.
    pub capacity: CapacityStatus,
    /// Things an operator should know, in words, each with its mend.
    pub warnings: Vec<String>,
    /// The condition of each of these warnings, in the same order.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Notes on the server's configuration that are worth a sentence though nothing is wrong.
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
    /// Versions staged. Files of uploads in parts, of PUTs under way, and of what was just moved or deleted are among
    /// the bytes, and not among these.
    pub staged_count: u64,
    /// Uploads in parts that are neither completed nor aborted.
    pub uploads: u64,
    /// Bytes of their parts, which are among those staged.
    pub upload_bytes: u64,
    /// Room for staged objects.
    pub capacity_bytes: u64,
    /// Bytes of recalls in the spool.
    pub spool_bytes: u64,
    /// Room for recalls.
    pub spool_capacity_bytes: u64,
    /// Migration writes from composing to their end.
    pub migrations_under_way: u64,
    /// Bytes of hot objects that moved since the server started, since the workshop was above its critical share and
    /// nothing else was left to move.
    #[serde(default)]
    pub hot_moved_bytes: u64,
}

/// What was read ahead of what clients asked for. Counts are since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAheadStatus {
    /// Objects.
    pub objects: u64,
    /// GETs that found what was read for them.
    pub hits: u64,
    /// Bytes, in whole stripes.
    pub read_bytes: u64,
    /// Bytes that clients have taken of it.
    pub used_bytes: u64,
    /// Bytes of objects that went before anybody took them.
    pub wasted_bytes: u64,
    /// The room of what waits to be asked for.
    pub waiting_bytes: u64,
}

/// The passes in which all that is staged is read and checked. Spans are wall seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChecksStatus {
    /// `off`, `waiting for its time`, `running`, `overdue`, `paused for clients`, or `waiting for migration`.
    pub state: String,
    /// The period of passes; 0 if there are none.
    pub every_s: f64,
    /// The load when it was measured last: the share of the time in which a client used the workshop, in thousandths.
    pub load_permille: u32,
    /// How long ago the pass under way, or the last one, began.
    pub begun_s_ago: Option<f64>,
    /// How long ago the last pass ended that was read to its end.
    pub completed_s_ago: Option<f64>,
    /// When the next one begins; `None` while one is under way.
    pub next_in_s: Option<f64>,
    /// Objects that this pass has checked.
    pub pass_objects: u64,
    /// Their bytes.
    pub pass_bytes: u64,
    /// Those of them that were damaged.
    pub pass_damaged: u64,
    /// Bytes that are left to it, as far as is known.
    pub left_bytes: u64,
    /// Passes that were read to their end since the server started.
    pub passes: u64,
    /// Objects checked since then.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects found to be damaged since then; they are in quarantine, or were.
    pub damaged: u64,
    /// Pages read since then whatever the load, since the pass would not have been through in time.
    pub overdue_pages: u64,
    /// Objects that went to the rack since then without being read again, since a check had them in memory.
    pub saved_reads: u64,
    /// Their bytes.
    pub saved_read_bytes: u64,
}

/// The intake: the log of small objects, and the shelves behind it. Counts are since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntakeStatus {
    /// Copies of each small object that its drives hold.
    pub copies: u64,
    /// Its drives.
    pub drives: Vec<PoolDriveReport>,
    /// How logging and transformation alternate: `ideal`, `acceptable`, or `bad`, when a log was full before one of
    /// those before it was a shelf. `None` until a log was full; of two rotations the worse.
    pub alternation: Option<String>,
    /// Logs that are not shelves yet, those on duty apart.
    pub backlog: u64,
    /// Logs that are shelves and kept all the same, since a newer or more complete catalog may need what is in them;
    /// of two rotations the more. With 64 nothing more is taken in.
    pub retained: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Changes that were acknowledged.
    pub accepted: u64,
    /// Their bytes.
    pub accepted_bytes: u64,
    /// Bytes written to all drives for each of those.
    pub write_amplification: f64,
    /// Versions and files of which the only copy was lost, those included that the start found.
    pub losses: u64,
    /// A drive is missing, or something of one was lost that the other rotation has not given back yet.
    pub incomplete: bool,
}

/// The journal beside the catalog, from which that is made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalReport {
    /// Bytes of the last snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of what was committed since.
    pub batch_bytes: u64,
    /// The two together are the catalog as it is; false until the first snapshot, and where one is due anew.
    pub leads_on: bool,
    /// All that matters of the catalog is on drives as well: a copy of it, and of the changes since.
    #[serde(default)]
    pub on_drives: bool,
}

/// A drive of the intake's pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolDriveReport {
    /// Its directory.
    pub place: String,
    /// `logging`, `transforming`, `idle`, `asleep`, `lost`, if it failed, or `missing`, if it was not there at the
    /// start.
    pub state: String,
    /// `spinning`, `stopping`, `standby`, `waiting` (for a permit to start) or `starting`; `None` if nobody controls
    /// its power.
    #[serde(default)]
    pub power: Option<String>,
    /// Why its last start or stop failed; `None` if it did not.
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
    /// Of those, how many have no request under way.
    pub idle_connections: u64,
    /// Their limit.
    pub connection_limit: u64,
    /// Requests now.
    pub requests: u64,
    /// Of those, how many nobody signed.
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
    /// When the one in use was read, in milliseconds of the Unix epoch.
    pub loaded_ms: u64,
    /// How many took the place of another since the server started.
    pub reloads: u64,
    /// Why the files that are there now are not in use, if they are not.
    pub problem: Option<String>,
}

/// The time that a group is expected to take for its way up and down, in wall seconds: by the drives' profile at first,
/// then as it was measured of late.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// From standby to ready, while nothing else moves.
    pub wake_s: f64,
    /// The same, beside other groups' work.
    pub wake_busy_s: f64,
    /// From ready to standby.
    pub rest_s: f64,
}

/// Power, by the ledger.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerStatus {
    /// Watts all drives draw now.
    pub watts: f64,
    /// Watts with every drive in standby that ever is.
    pub standby_watts: f64,
    /// Drives spinning or spinning up; those without power control at all times.
    pub active_drives: u64,
    /// The most there may be.
    pub active_drives_max: u64,
    /// Fuses that tripped since the server started. Always 0 unless something is very wrong.
    pub fuse_trips: u64,
    /// Drives that would not stop, or do not say whether they did: they count as spinning.
    #[serde(default)]
    pub unstopped_drives: u64,
}

/// Drives by what they are doing.
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
    /// Failed for good, by the operator's word or the rack's.
    pub failed: u64,
    /// Good, emptied by the operator's word, and out of service.
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
    /// Those that were initialised: woken once, and the labels of their drives checked. The others are woken one after
    /// the other.
    pub initialised: u64,
}

/// The objects that are lost: more stacks of their blobs than the code makes up for were on drives that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostReport {
    /// The first of them, by name.
    pub objects: Vec<LostObjectReport>,
    /// How many there are.
    pub count: u64,
    /// How many blobs they lie in.
    pub blobs: u64,
    /// There are more such blobs than were looked into.
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
    /// The blob that it lies in.
    pub blob: String,
    /// The drives whose stacks of it are lost.
    pub drives: Vec<u32>,
}

impl LostReport {
    /// Objects that are named.
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

/// How many blobs have lost how many stacks to drives that failed, as far as rebuilds have looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposureReport {
    /// By the number of stacks that they have lost, from 1 to r.
    pub blobs: Vec<u64>,
    /// Blobs that have lost more than r: data is lost.
    pub lost_blobs: u64,
}

/// The progress of rebuilding a drive that failed for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct RebuildReport {
    /// The drive.
    pub drive: u32,
    /// Its group, on whose other drives it is rebuilt.
    pub group: u32,
    /// Bytes of stacks that objects still have on it; 0 is done.
    pub left_bytes: u64,
    /// Bytes of stacks that were rebuilt since the server started.
    pub rebuilt_bytes: u64,
    /// Stacks that were rebuilt since the server started.
    pub rebuilt_stacks: u64,
    /// Blobs that have lost more stacks than the code makes up for, as far as is known.
    pub lost_blobs: u64,
    /// Blobs that wait for drives that are away, or for room.
    pub waiting_blobs: u64,
    /// Those of them that no drive which is there has room for.
    #[serde(default)]
    pub unplaced_blobs: u64,
    /// It is good, and its stacks move away since the operator retires it.
    #[serde(default)]
    pub retires: bool,
    /// It was good, was emptied since the operator retired it, and is out of service.
    #[serde(default)]
    pub retired: bool,
    /// What is in its place: `itself`, `another` drive, which what was lost goes back to, or itself, which was given up
    /// and is back (`returned`).
    #[serde(default)]
    pub there: String,
    /// Bytes of stacks that count on what is in its place.
    #[serde(default)]
    pub used_bytes: u64,
    /// It is away.
    #[serde(default)]
    pub away: bool,
    /// Drives that its group lacks to rebuild it: with fewer drives in service than a blob has stacks, no lost stack
    /// finds a place.
    #[serde(default)]
    pub lacks_drives: u64,
    /// Nothing of it is being rebuilt, and something is left: for want of drives, or of room. The times below then say
    /// nothing.
    #[serde(default)]
    pub stuck: bool,
    /// Wall seconds that it may still take at least, if nothing is waited for.
    pub left_min_s: f64,
    /// The same at most, with everybody else taking their full shares.
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
    /// The group would sleep, and spins on since a drive of it has no starts left today.
    pub kept_spinning: bool,
}

/// Counters since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Group wakes, by cause: client, rebuild, background.
    pub group_wakes: [u64; 3],
    /// Of those by background work, wakes for nothing but to initialise a group.
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
    /// Blobs that were written with more than r stacks in a domain that can be lost, since members were away.
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
    /// Sleeping drives that woke although nobody had sent them anything.
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
    /// Payload bytes of the last write from the workshop that found no room, as long as it would find none.
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
    /// Where it lies.
    pub place: PlaceReport,
    /// Why it is in quarantine, if it is: not every byte of it can be read, and nothing moves it before that is mended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Its temperature, while it is in the workshop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<TemperatureReport>,
}

/// Where an object lies.
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

/// Where in the rack an object lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RackPlace {
    /// Its blob.
    pub blob: String,
    /// The number of objects that share the blob.
    pub members: u32,
    /// Where in the blob it begins.
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
    /// Its stacks that are of no use, as far as that is known without reading.
    pub unusable: Vec<UnusableStack>,
    /// Wall seconds until the first byte would come, at least; `None` if nothing will.
    pub wait_min_s: Option<f64>,
    /// Wall seconds after which the first byte is expected, as wakes and transfers went of late; `None` if nothing will
    /// come.
    pub wait_expected_s: Option<f64>,
    /// Wall seconds until the first byte would come, at most; `None` if nothing will.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Starts it may use a day for work nobody waits for.
    pub starts_per_day: u32,
    /// Free bytes, as far as the engine knows.
    pub free_bytes: u64,
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
    /// The number of times that it did not answer in time since the server started.
    pub missed_deadlines: u64,
    /// Why it could not be used when it was last tried, and what to do about it; `None` if it could, or was not tried.
    #[serde(default)]
    pub reason: Option<String>,
    /// Starts that Larder has made of it, in all; 0 where that is not asked.
    #[serde(default)]
    pub starts_total: u64,
    /// Starts that it is made for: by its own word, or else by the rack's description.
    #[serde(default)]
    pub rated_starts: u64,
    /// What it said of its health when it was awake and asked; `None` if it never did.
    #[serde(default)]
    pub health: Option<HealthReport>,
    /// What it does about its power by itself; `None` of a drive that is no device.
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
    /// What is in the place of the drive that failed: `itself`, back with what is on it, or `another`, empty one.
    pub taken: String,
    /// The drive from now on.
    #[serde(flatten)]
    pub drive: DriveReport,
}

/// What a drive said of its health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// When it was asked, in milliseconds of the Unix epoch.
    pub read_ms: u64,
    /// Bad sectors, reallocated or pending, when it was asked first.
    pub first_bad_sectors: u64,
    /// What it said.
    #[serde(flatten)]
    pub said: Smart,
}

/// What a drive does about its power by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HabitsReport {
    /// What it and the kernel say of it.
    #[serde(flatten)]
    pub said: PowerHabits,
    /// How often it was found awake although nobody had sent it anything.
    pub woke_itself: u64,
    /// How often it was found awake since another program woke it.
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
    /// The time it got its keys, in milliseconds of the Unix epoch; not known of root.
    pub rotated_ms: Option<u64>,
    /// The number of buckets it owns.
    pub buckets: u64,
}

/// The keys of a user, shown once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKeys {
    /// Whose.
    pub name: String,
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// The file that they were written to, in place of the old ones; `None` if the catalog keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl fmt::Debug for NewKeys {
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKeys")
            .field("name", &self.name)
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}
