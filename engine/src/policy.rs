//! The operator's settings, with the papers' values as defaults.

use crate::deadlines::Deadlines;
use crate::thermometer::Thermometer;
use alloc::vec::Vec;
use core::time::Duration;
use model::{ClassId, GroupId};
use serde::{Deserialize, Serialize};

/// The origin of an operation. Priority classes share a class's time by weighted fair queuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    /// A client waits for it.
    Client,
    /// Redundancy is missing until it is done.
    Rebuild,
    /// Migration, reclaiming, scrub, repartition.
    Background,
}

impl PriorityClass {
    /// All priority classes, in the order in which ties are broken.
    pub const ALL: [Self; 3] = [Self::Client, Self::Rebuild, Self::Background];
}

const _: () = assert!(
    PriorityClass::Client as usize == 0
        && PriorityClass::Rebuild as usize == 1
        && PriorityClass::Background as usize == 2,
    "a priority's number is its place in ALL"
);

/// Shares of a class's time, in any unit; only ratios matter. With a share of 0, a priority class is served only when
/// no other one wants the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shares {
    /// The share of [`PriorityClass::Client`].
    pub client: u32,
    /// The share of [`PriorityClass::Rebuild`]. Pelican's evaluation: the same as the clients'.
    pub rebuild: u32,
    /// The share of [`PriorityClass::Background`].
    pub background: u32,
}

impl Shares {
    /// The share of `priority`.
    pub fn of(&self, priority: PriorityClass) -> u32 {
        match priority {
            PriorityClass::Client => self.client,
            PriorityClass::Rebuild => self.rebuild,
            PriorityClass::Background => self.background,
        }
    }
}

/// The unit in which the reordering of a queue is counted. An operation's weight is fixed when it is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weighing {
    /// Each operation weighs 1.
    Operations,
    /// Its payload bytes.
    Bytes,
    /// The estimated time of its transfer, in milliseconds.
    Time,
    /// As `Time`, and the group switches before an operation count as well, with their expected time. u is then the
    /// delay of an operation against the order of arrival, which Pelican states in wall-clock time
    /// ([`crate::reorder`]).
    ServiceTime,
}

/// The response to a clients' queue that has filled up (`overload.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relief {
    /// None: a request that finds the queue full is refused, and nothing else changes (Pelican).
    #[default]
    None,
    /// New requests are refused until the queue has drained.
    Shed,
    /// New requests may be overtaken by `times` times u until the queue has drained.
    Widen {
        /// The factor.
        times: u32,
    },
}

/// The fill levels at which a clients' queue counts as filled up and as drained, in thousandths of its depth, and the
/// relief in between. Beyond the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OverloadPolicy {
    /// The relief.
    pub relief: Relief,
    /// Fill level at which the relief starts.
    pub from_permille: u32,
    /// Highest fill level at which the relief ends.
    pub until_permille: u32,
}

impl Default for OverloadPolicy {
    /// No relief, as in the paper.
    fn default() -> Self {
        Self { relief: Relief::None, from_permille: 750, until_permille: 250 }
    }
}

/// One class's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulerPolicy {
    /// Operations that may be queued in each priority class; one more is rejected. Pelican: 1,000.
    pub queue_depth: u32,
    /// u: the amount by which an operation may be overtaken, in the unit of `weighing`. Pelican: 500 GB. 0 is FIFO.
    pub overtake_limit: u64,
    /// The unit of `overtake_limit`.
    pub weighing: Weighing,
    /// The time after which no later operation may be served before a waiting operation of a client ([`crate::fair`]).
    /// Beyond the paper, which counts only overtaking; `None`, without bound, in reproductions.
    pub wait_limit: Option<Duration>,
    /// True if a new operation may join the group in service, within the same bound. Beyond the paper; off in
    /// reproductions.
    pub join_in_service: bool,
    /// Shares of the priority classes.
    pub shares: Shares,
    /// The time that one priority class may keep the class before another that waits gets its turn.
    pub quantum: Duration,
    /// The time that a priority class without queued operations keeps the class within its turn, so that a client that
    /// sends one operation after the other does not pay a switch for each (anticipatory scheduling; Iyer and Druschel
    /// 2001). Beyond the paper; 0 in reproductions.
    pub anticipation: Duration,
    /// The relief for queues that have filled up. Beyond the paper; none in reproductions.
    #[serde(default)]
    pub overload: OverloadPolicy,
}

impl SchedulerPolicy {
    /// The largest u of an operation that has no limit in its request.
    pub fn overtake_limit_max(&self) -> u64 {
        match self.overload.relief {
            Relief::Widen { times } => self.overtake_limit.saturating_mul(u64::from(times.max(1))),
            Relief::None | Relief::Shed => self.overtake_limit,
        }
    }
}

/// The choice of a group for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupChoice {
    /// A random group with room, for every write (Pelican, section 3).
    Random,
    /// One random group for this number of bytes, so that a migration wakes few groups and related keys are stored
    /// together.
    Batch {
        /// Payload bytes that go to one group before another is chosen.
        bytes: u64,
    },
}

/// The time at which a group without work goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleTimeout {
    /// After this long without work, in modelled time.
    After(Duration),
    /// Only when another group of the class is wanted (Pelican).
    Never,
}

/// The treatment of the stacks that a read does not strictly need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadPolicy {
    /// Read and check all k + r (Pelican's policy).
    All,
    /// Read k, and others only when one of them fails.
    K,
}

/// The required place of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinnedTo {
    /// Any group with room.
    #[default]
    Anywhere,
    /// Any group of this class.
    Class(ClassId),
    /// This group: it is the destination of a partition.
    Group(GroupId),
}

impl PinnedTo {
    /// True if a blob may be stored in `group`, which is of `class`.
    pub fn allows(self, group: GroupId, class: ClassId) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Class(pinned) => pinned == class,
            Self::Group(pinned) => pinned == group,
        }
    }
}

impl From<Option<ClassId>> for PinnedTo {
    fn from(class: Option<ClassId>) -> Self {
        class.map_or(Self::Anywhere, Self::Class)
    }
}

/// The order in which staged versions move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOrder {
    /// Versions that were read through go first, then the others; the oldest of each first (SOHO).
    #[default]
    Processed,
    /// The oldest goes first, read or not.
    Age,
}

/// The conditions for moving staged data to the rack (SOHO's thresholds, Serviceable cold storage's rules).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigrationPolicy {
    /// Objects older than this move, even if the workshop is almost empty; `None` is never. Like `min_age`, it does not
    /// apply to objects for which a rule of the thermometer holds.
    pub due_age: Option<Duration>,
    /// Objects younger than this do not move, except above the critical threshold.
    pub min_age: Duration,
    /// Objects smaller than this never count as cold by themselves; they move only above the critical threshold. 0 is
    /// no floor.
    pub min_bytes: u64,
    /// Above this share of the workshop's capacity (in thousandths) cold data moves when no client waits and the
    /// workshop is idle ([`crate::staging::idleness`]). SOHO: 300.
    pub regular_permille: u32,
    /// Above this share (in thousandths) data moves even if clients wait, in the order of `MoveRank`. SOHO: 800.
    pub critical_permille: u32,
    /// A move that started above the critical threshold ends at this share (in thousandths); `None` is the regular
    /// threshold. SOHO does not state where a move ends; its counts suggest a share close to 0.
    #[serde(default)]
    pub drained_permille: Option<u32>,
    /// The order of moves that a threshold causes.
    #[serde(default)]
    pub order: MoveOrder,
    /// The size up to which packs grow; an object at least this large gets its own blob.
    pub pack_bytes: u64,
    /// The largest number of objects in a pack.
    pub pack_members: u32,
    /// A pack smaller than `pack_bytes` is written anyway once its oldest member is `due_age` plus this old.
    pub linger: Duration,
    /// Migration writes that may be queued or in service at once.
    pub window: u32,
    /// The interval between scans of the workshop while something may be due.
    pub scan_interval: Duration,
    /// The rules for hot objects, and for objects that are due. The world applies them to its listings; its ages are by
    /// the clock of the world's events: wall time in the server.
    #[serde(default)]
    pub thermometer: Thermometer,
    /// Objects that are due wait for the next pass of checks, which has them in memory, instead of being read only for
    /// the move (Serviceable cold storage: migration on the scrub's schedule). Thresholds do not wait. Has an effect
    /// only with passes ([`RackPolicy::checks`]).
    #[serde(default)]
    pub due_with_checks: bool,
}

/// The schedule for reading and checking staged data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckPolicy {
    /// The time in which every staged version is checked once; `None` is never.
    pub every: Option<Duration>,
    /// The most bytes that are kept in memory from their check until their pack is written.
    pub memory_bytes: u64,
}

/// The conditions under which an idle group keeps spinning beyond its idle timeout ([`crate::spin_down`]), unless its
/// class or its permits are wanted for others. By default only a rebuild or a migration that is about to continue keeps
/// it spinning; otherwise as in Pelican.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpinDownPolicy {
    /// The group does not go to sleep before this time has passed since it was ready.
    pub min_gap: Duration,
    /// True if a group with a drive that has used up its starts of the day does not go to sleep before the next day.
    pub keeps_exhausted: bool,
}

/// The schedule of scrubs, which read blobs for damage ([`crate::scrub`]). By default there are none, as in Pelican.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubPolicy {
    /// The time in which every blob is read once; `None` is never.
    pub period: Option<Duration>,
    /// A step may start in a group that is awake for other work until this long after the last of that work.
    pub ride_along: Duration,
    /// The number of times per day that a group may be woken only for its pass.
    pub starts_per_day: u32,
    /// The most payload bytes that one step reads, in whole stripes and at least one. Operations that wait for a class
    /// wait at most the time of a step for a scrub.
    pub step_bytes: u64,
}

impl Default for ScrubPolicy {
    fn default() -> Self {
        Self { period: None, ride_along: Duration::from_mins(5), starts_per_day: 1, step_bytes: 1 << 30 }
    }
}

/// The schedule for asking drives for their health, and the reaction. By default they are not asked, as in Pelican.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HealthPolicy {
    /// A drive that is mounted for another reason is asked if this much modelled time has passed since the last time;
    /// `None` is never.
    pub every: Option<Duration>,
    /// A drive is retired if it has more bad sectors than this, and their number rises; `None` retires no drive.
    pub drain_above: Option<u64>,
}

/// The default for traces with policies that lack the interval.
fn hour() -> Duration {
    Duration::from_hours(1)
}

/// All settings of an operator for a rack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RackPolicy {
    /// The schedulers.
    pub scheduler: SchedulerPolicy,
    /// The choice of groups for writes.
    pub group_choice: GroupChoice,
    /// The time at which groups sleep.
    pub idle_timeout: IdleTimeout,
    /// The treatment of spare stacks by reads.
    pub read_policy: ReadPolicy,
    /// Starts that a drive may use on one day for background work. Clients may exceed it; that is reported.
    pub starts_per_day: u32,
    /// The conditions that keep an idle group spinning.
    #[serde(default)]
    pub spin_down: SpinDownPolicy,
    /// The time that a drive's answer may take beyond the time of the hardware before the rack continues without the
    /// drive: the time in which the host passes on commands and answers.
    pub host_slack: Duration,
    /// Time limits of reads, writes and syncs of a drive.
    #[serde(default)]
    pub deadlines: Deadlines,
    /// The conditions for moving staged data.
    pub migration: MigrationPolicy,
    /// The schedule for checking staged data.
    #[serde(default)]
    pub checks: CheckPolicy,
    /// A blob with at least this many thousandths of dead bytes is evacuated when its group wakes: the rest is copied
    /// back and the blob removed. With 1000, only blobs that are completely dead are removed.
    pub evacuate_permille: u32,
    /// A drive that was away this long is given up without an operator's decision, if nothing prevents it
    /// ([`crate::AbsenceView`]); `None` is never.
    #[serde(default)]
    pub give_up_after: Option<Duration>,
    /// True if a drive that was given up in this way is started with its group from time to time, and recognised if it
    /// is back.
    #[serde(default)]
    pub tries_given_up: bool,
    /// True if a rebuilt stack is read back before its blob counts it, which takes as long again as writing it. The
    /// paper does not mention it, and its figures leave no time for it. Off in reproductions.
    pub rebuild_read_back: bool,
    /// True if a written blob is read back before it counts, which takes as long again as writing it. The paper of
    /// BuffPack and OffPack counts every write once. Off only in its reproduction: every instance that stores real data
    /// reads back.
    pub write_read_back: bool,
    /// The minimum modelled time between two checkpoints of a repartition job.
    #[serde(default = "hour")]
    pub checkpoint_interval: Duration,
    /// The schedule of scrubs.
    #[serde(default)]
    pub scrub: ScrubPolicy,
    /// The schedule for asking drives for their health, and the reaction.
    #[serde(default)]
    pub health: HealthPolicy,
    /// The classes that this instance owns; all if empty.
    pub classes: Vec<ClassId>,
}
