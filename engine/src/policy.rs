//! The operator's settings, with the papers' values as defaults.

use crate::deadlines::Deadlines;
use crate::thermometer::Thermometer;
use alloc::vec::Vec;
use core::time::Duration;
use model::{ClassId, GroupId};
use serde::{Deserialize, Serialize};

/// Whose work an operation is. Priority classes share a class's time by weighted fair queuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    /// Somebody waits for it.
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

/// Shares of a class's time, in any unit; only ratios matter. 0 means: only when nobody else wants the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shares {
    /// Of [`PriorityClass::Client`].
    pub client: u32,
    /// Of [`PriorityClass::Rebuild`]. Pelican's evaluation: as much as the clients.
    pub rebuild: u32,
    /// Of [`PriorityClass::Background`].
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
    /// The estimated seconds of its transfer, in milliseconds.
    Time,
    /// The same, and the group switches before an operation count as well, with their expected time: u is how much
    /// later than in the order of arrival an operation may be served, as Pelican has it in wall-clock time
    /// ([`crate::reorder`]).
    ServiceTime,
}

/// The relief of a clients' queue that has filled up (`overload.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relief {
    /// None: what finds it full is refused, and nothing else changes (Pelican).
    #[default]
    None,
    /// New requests are refused until it has drained.
    Shed,
    /// New requests may be overtaken by so many times u until it has drained.
    Widen {
        /// So many times.
        times: u32,
    },
}

/// When a clients' queue has filled up and when it has drained, in thousandths of its depth, and its relief in between.
/// Beyond the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OverloadPolicy {
    /// The relief.
    pub relief: Relief,
    /// It begins when this much is queued.
    pub from_permille: u32,
    /// It ends when no more than this is.
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
    /// u: how far an operation may be overtaken, in the unit of `weighing`. Pelican: 500 GB. 0 is FIFO.
    pub overtake_limit: u64,
    /// The unit of `overtake_limit`.
    pub weighing: Weighing,
    /// How long a client's operation may wait before no later one may be served before it ([`crate::fair`]). Beyond the
    /// paper, which counts overtaking alone; `None`, without bound, in reproductions.
    pub wait_limit: Option<Duration>,
    /// Whether a new operation may join the group in service, within the same bound. Beyond the paper; off in
    /// reproductions.
    pub join_in_service: bool,
    /// Shares of the priority classes.
    pub shares: Shares,
    /// How long one priority class may keep the class before another that waits gets its turn.
    pub quantum: Duration,
    /// How long a priority class that has nothing queued keeps the class within its turn, so that who asks for one
    /// operation after the other does not pay a switch for each (anticipatory scheduling; Iyer and Druschel 2001).
    /// Beyond the paper; 0 in reproductions.
    pub anticipation: Duration,
    /// The relief of queues that have filled up. Beyond the paper; none in reproductions.
    #[serde(default)]
    pub overload: OverloadPolicy,
}

impl SchedulerPolicy {
    /// The largest u that an operation without one of its own can have.
    pub fn overtake_limit_max(&self) -> u64 {
        match self.overload.relief {
            Relief::Widen { times } => self.overtake_limit.saturating_mul(u64::from(times.max(1))),
            Relief::None | Relief::Shed => self.overtake_limit,
        }
    }
}

/// How a write finds its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupChoice {
    /// A random group with room, for every write (Pelican, section 3).
    Random,
    /// Stay with one random group for so many bytes, so that a migration wakes few groups and keys of a kind lie
    /// together.
    Batch {
        /// Payload bytes that go to one group before another is drawn.
        bytes: u64,
    },
}

/// When a group without work goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleTimeout {
    /// After this long without work, in modelled time.
    After(Duration),
    /// Only when another group of the class is wanted (Pelican).
    Never,
}

/// How a read treats the stacks it does not strictly need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadPolicy {
    /// Read and check all k + r (Pelican's policy).
    All,
    /// Read k, and others only when one of them fails.
    K,
}

/// Where data must lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinnedTo {
    /// Wherever there is room.
    #[default]
    Anywhere,
    /// In some group of this class.
    Class(ClassId),
    /// In this group: a partition has its home there.
    Group(GroupId),
}

impl PinnedTo {
    /// Whether a blob may lie in `group`, which is of `class`.
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

/// What decides which staged versions move first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOrder {
    /// What was read through goes first, and then what was not; of each the oldest (SOHO).
    #[default]
    Processed,
    /// The oldest goes first, read or not.
    Age,
}

/// When staged data moves to the rack (SOHO's thresholds, Serviceable cold storage's rules).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigrationPolicy {
    /// Objects older than this move, however empty the workshop is; `None` is never. As `min_age`, not of what a rule
    /// of the thermometer holds for.
    pub due_age: Option<Duration>,
    /// Nothing younger than this moves, except above the critical threshold.
    pub min_age: Duration,
    /// Objects smaller than this are never cold of themselves; they move only above the critical threshold. 0 is no
    /// floor.
    pub min_bytes: u64,
    /// Above this share of the workshop's capacity (in thousandths) cold data moves when no client waits and the
    /// workshop is idle ([`crate::staging::idleness`]). SOHO: 300.
    pub regular_permille: u32,
    /// Above this share (in thousandths) data moves whoever waits, in the order of `MoveRank`. SOHO: 800.
    pub critical_permille: u32,
    /// A move that began above the critical threshold ends at this share (in thousandths); `None` is at the regular
    /// one. SOHO does not say where a move ends; by what it counts, close to 0.
    #[serde(default)]
    pub drained_permille: Option<u32>,
    /// What moves first for a threshold's sake.
    #[serde(default)]
    pub order: MoveOrder,
    /// Packs grow to this size; an object at least this large is a blob of its own.
    pub pack_bytes: u64,
    /// A pack holds at most so many objects.
    pub pack_members: u32,
    /// A pack smaller than `pack_bytes` is written all the same once its oldest member is `due_age` plus this old.
    pub linger: Duration,
    /// Migration writes that may be queued or in service at once.
    pub window: u32,
    /// How often the workshop is looked through while something may be due.
    pub scan_interval: Duration,
    /// Which objects are hot, and which are due by a rule. The world judges by it what it lists; its ages are of the
    /// clock that the world's facts are of: wall time in the server.
    #[serde(default)]
    pub thermometer: Thermometer,
    /// What is due waits for the next pass of checks, which has it in memory, instead of being read for the move alone
    /// (Serviceable cold storage: migration on the scrub's schedule). Thresholds do not wait. Only where there are
    /// passes ([`RackPolicy::checks`]).
    #[serde(default)]
    pub due_with_checks: bool,
}

/// When staged data is read and checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckPolicy {
    /// Every staged version is checked once in so long; `None` is never.
    pub every: Option<Duration>,
    /// Bytes that are kept in memory, at most, from their check until their pack is written.
    pub memory_bytes: u64,
}

/// What keeps an idle group spinning beyond its idle timeout ([`crate::spin_down`]), unless its class or its permits
/// are wanted for others. By default nothing does, as in Pelican, but a rebuild or a migration that is about to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpinDownPolicy {
    /// So long after it was ready it does not go to sleep.
    pub min_gap: Duration,
    /// While a drive of it has used up its starts of the day, it does not go to sleep before the next one.
    pub keeps_exhausted: bool,
}

/// How the blobs of a rack are read through for damage ([`crate::scrub`]). By default they are not, as in Pelican.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubPolicy {
    /// Every blob is read once in this time; `None` is never.
    pub period: Option<Duration>,
    /// So long after the last work of others a step may begin in a group that is awake for them.
    pub ride_along: Duration,
    /// So often on a day a group may be woken for its pass alone.
    pub starts_per_day: u32,
    /// Payload bytes that one step reads at most, in whole stripes and at least one: what waits for a class waits no
    /// longer for a scrub than that takes.
    pub step_bytes: u64,
}

impl Default for ScrubPolicy {
    fn default() -> Self {
        Self { period: None, ride_along: Duration::from_mins(5), starts_per_day: 1, step_bytes: 1 << 30 }
    }
}

/// When drives are asked for their health, and what follows from it. By default they are not asked, as in Pelican.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HealthPolicy {
    /// A drive that is mounted anyway is asked if so much modelled time has passed since the last time; `None` is
    /// never.
    pub every: Option<Duration>,
    /// A drive with more bad sectors than this, whose number rises, is retired; `None` is none.
    pub drain_above: Option<u64>,
}

/// For traces of policies that have no such interval.
fn hour() -> Duration {
    Duration::from_hours(1)
}

/// Everything an operator may set about a rack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RackPolicy {
    /// The schedulers.
    pub scheduler: SchedulerPolicy,
    /// How writes find their group.
    pub group_choice: GroupChoice,
    /// When groups sleep.
    pub idle_timeout: IdleTimeout,
    /// How reads treat spare stacks.
    pub read_policy: ReadPolicy,
    /// Starts a drive may use on one day for work nobody waits for. Clients may exceed it; that is reported.
    pub starts_per_day: u32,
    /// What keeps an idle group spinning.
    #[serde(default)]
    pub spin_down: SpinDownPolicy,
    /// How much longer than the hardware takes a drive's answer may be under way before the drive is done without: the
    /// time the host takes to pass on commands and answers.
    pub host_slack: Duration,
    /// How long reads, writes and syncs of a drive may take.
    #[serde(default)]
    pub deadlines: Deadlines,
    /// When staged data moves.
    pub migration: MigrationPolicy,
    /// When staged data is read and checked.
    #[serde(default)]
    pub checks: CheckPolicy,
    /// A blob so many thousandths of which are dead is evacuated at its group's wake: the rest is copied back and the
    /// blob removed. 1000 is: only blobs that are dead as a whole are removed.
    pub evacuate_permille: u32,
    /// A drive that was away for so long is given up without an operator's word, if nothing stands against it
    /// ([`crate::AbsenceView`]); `None` is never.
    #[serde(default)]
    pub give_up_after: Option<Duration>,
    /// Whether a drive that was given up so is started with its group now and again: if it is back, it is recognised.
    #[serde(default)]
    pub tries_given_up: bool,
    /// Whether a stack that was rebuilt is read back before its blob counts it. It takes as long again as writing it;
    /// the paper does not say that it does so, and its figures leave no time for it. Off in reproductions.
    pub rebuild_read_back: bool,
    /// Whether a blob that was written is read back before it counts. It takes as long again as writing it; the paper
    /// of BuffPack and OffPack counts every write once. Off in its reproduction alone: nothing that holds bytes leaves
    /// it out.
    pub write_read_back: bool,
    /// Modelled time between two checkpoints of a repartition job, at least.
    #[serde(default = "hour")]
    pub checkpoint_interval: Duration,
    /// How it is read through for damage.
    #[serde(default)]
    pub scrub: ScrubPolicy,
    /// When drives are asked for their health, and what follows from it.
    #[serde(default)]
    pub health: HealthPolicy,
    /// The classes that this instance owns; empty is all.
    pub classes: Vec<ClassId>,
}
