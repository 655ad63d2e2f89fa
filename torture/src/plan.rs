//! The part of a run that a seed decides in advance: the rack and its settings, the kinds of faults, the number of
//! lives of the server and how each ends, and the length of the histories. All other events of the run are drawn from
//! streams of the same seed, one for each thing, so leaving one thing out shifts no other.

use crate::kinds::FaultKind;
use engine::staging::checks::CheckPolicy;
use engine::thermometer::{Rule, Temperature, Thermometer};
use engine::{
    GroupChoice, IdleTimeout, MigrationPolicy, OverloadPolicy, RackPolicy, ReadPolicy, Relief, SchedulerPolicy,
    ScrubPolicy, Shares, SpinDownPolicy, Weighing,
};
use model::{RackSpec, Rng};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// The racks that are drawn; the first is drawn twice as often.
const SHAPES: [RackShape; 7] = [
    RackShape::Box,
    RackShape::Box,
    RackShape::BoxOfWatts,
    RackShape::SmallBox,
    RackShape::Mirrors,
    RackShape::Mini,
    RackShape::MiniOfStarts,
];

/// Streams of random numbers, one for each thing.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Plan,
    Media,
    Client {
        round: u64,
        client: u64,
        op: u64,
    },
    Storm {
        round: u64,
        fault: u64,
    },
    Pace {
        round: u64,
    },
    End {
        round: u64,
    },
    Records {
        round: u64,
    },
    /// One of the kinds of faults.
    Kind {
        index: u64,
    },
    SlowReaders,
    /// The rules about hot and cold.
    Rules,
    /// The checks of the workshop.
    Checks,
    /// How blobs are scrubbed.
    Scrubs,
    /// One of the habits of a run.
    Habit {
        index: u64,
    },
    /// Decides if the catalog is lost after a life.
    Loss {
        round: u64,
    },
    /// The time at which a server is stopped.
    Stop {
        round: u64,
    },
    /// The drives of the log in front of the catalog, and the times of its tasks.
    Front,
    /// Decides if a recovered catalog is thrown away.
    Again,
}

impl Stream {
    pub(crate) fn of(self, seed: u64) -> Rng {
        let salt = match self {
            Self::Plan => 1,
            Self::Media => 3,
            Self::SlowReaders => 4,
            Self::Rules => 5,
            Self::Checks => 6,
            Self::Scrubs => 7,
            Self::Front => 8,
            Self::Again => 9,
            Self::Client { round, client, op } => 1 << 40 | round << 32 | client << 24 | op,
            Self::Storm { round, fault } => 2 << 40 | round << 32 | fault,
            Self::Pace { round } => 3 << 40 | round,
            Self::End { round } => 4 << 40 | round,
            Self::Records { round } => 5 << 40 | round,
            Self::Kind { index } => 6 << 40 | index,
            Self::Habit { index } => 7 << 40 | index,
            Self::Loss { round } => 8 << 40 | round,
            Self::Stop { round } => 9 << 40 | round,
        };
        Rng::for_thing(seed ^ 0x7072_7475_7265, salt)
    }
}

/// The racks of runs. All are small, so rare states come soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RackShape {
    /// Eight drives, two groups of four, one awake; k = 2, r = 1.
    Box,
    /// The same, limited by watts.
    BoxOfWatts,
    /// The same with so little capacity that it fills up.
    SmallBox,
    /// The same with mirrors: k = 1, r = 1, groups of three.
    Mirrors,
    /// Ninety-six drives in two classes of six groups; k = 4, r = 2.
    Mini,
    /// The same, and only one drive of a tray may start at a time.
    MiniOfStarts,
    /// Forty-eight drives in two groups of twenty-four, one awake; k = 15, r = 3, the paper's code and group.
    Wide,
}

/// The description of [`RackShape::Wide`]: two drives to a tray, and one of them may spin, so the groups are the two
/// columns of trays. Each of the three chassis has eight trays; the loss of a chassis takes half a group.
const WIDE: &str = r#"
name = "wide"
group_drives = 24
pack = "1 MiB"

[code]
k = 15
r = 3
fragment = "4 KiB"

[geometry]
width = 2
depth = 1
height = 24

[resources.power]
same = ["height"]
active_drives = 1
hard = true

[failure_domains.drive]
same = ["drive"]
loses_media = true

[failure_domains.chassis]
same = ["height/8"]
loses_media = false

[drive]
capacity = "4.2 TB"
bytes_per_s = "105 MB/s"
seek = "4.2 ms"
spin_up = { min = "8 s", max = "12 s", draws = 4 }
mount = { min = "1.1 s", max = "1.7 s", draws = 4 }
mount_busy = { min = "1 s", max = "9.6 s", draws = 2 }
unmount = { min = "200 ms", max = "400 ms", draws = 2 }
spin_down = { min = "300 ms", max = "500 ms", draws = 2 }
watts = { standby = 1.56, spin_up = 21.53, active = 9.42 }
rated_starts = 30000
life_years = 8
"#;

impl RackShape {
    /// The rack's description.
    pub(crate) fn spec(self) -> RackSpec {
        let shipped = |name: &str| {
            let found = model::text::SHIPPED.into_iter().find(|(shipped, _)| *shipped == name);
            found.expect("the racks of runs are shipped").1.to_owned()
        };
        let of_box = || shipped("nas8").replace("128 KiB", "8 KiB");
        let of_mini = || shipped("pelican-mini").replace("64 KiB", "4 KiB");
        let text = match self {
            Self::Box => of_box(),
            Self::BoxOfWatts => of_box().replace("active_drives = 4", "watts = 100"),
            Self::SmallBox => of_box().replace("\"12 TB\"", "\"3 MB\"").replace("\"200 MB\"", "\"1 MB\""),
            Self::Mirrors => of_box().replace("k = 2", "k = 1"),
            Self::Mini => of_mini(),
            Self::MiniOfStarts => {
                let starts = "[resources.starts]\nsame = [\"width\", \"height\"]\nstarting_drives = 1\nhard = true\n\n";
                of_mini().replacen("[resources.power]", &(starts.to_owned() + "[resources.power]"), 1)
            }
            Self::Wide => WIDE.to_owned(),
        };
        model::text::parse(&text, "rack of a run").unwrap_or_else(|error| panic!("a rack of runs is sound: {error}"))
    }
}

/// How a life of the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifeEnd {
    /// It is stopped in order.
    Stopped,
    /// The process is killed at this step; what was written stays.
    Killed(u64),
    /// The power fails at this step.
    PowerLost(u64),
}

/// A life of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Life {
    /// Clients at once.
    pub clients: u64,
    /// Operations of each.
    pub ops: u64,
    /// Its end, unless the clients finish before.
    pub end: LifeEnd,
    /// Mean time between two faults, in seconds.
    pub gap_s: u64,
    /// The longest rest of a client between two operations, in seconds; 0 means only its short pauses.
    pub rest_s: u64,
    /// Records and media are compared right after the next start.
    pub audited: bool,
    /// The catalog is backed up before this life, and the backup is in use for a while after it.
    pub older_catalog: bool,
    /// The catalog is lost after this life, and made again from this.
    pub lost_catalog: Option<Left>,
}

/// The remains of a lost catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// All of it: the journal in the workshop is whole.
    Journal,
    /// A copy from before the life that ended with the loss.
    Copy,
    /// Nothing: only the drives remain, and unknown files in the workshop.
    Nothing,
}

/// A part that shrinking can leave out of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// An operation of a client.
    Op {
        /// The number of the life.
        round: u64,
        /// The number of the client.
        client: u64,
        /// The number of the operation.
        op: u64,
    },
    /// A fault.
    Fault {
        /// The number of the life.
        round: u64,
        /// The number of the fault in this life.
        fault: u64,
    },
}

/// The plan of a run. See the head of this file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(clippy::struct_excessive_bools)] // each is a separate switch
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The rack.
    pub rack: RackShape,
    /// The operator's settings.
    #[serde(skip)]
    pub policy: RackPolicy,
    /// Maximum time that clients wait for a cold object.
    pub max_wait: Duration,
    /// The workshop's capacity, in bytes.
    pub workshop_bytes: u64,
    /// The spool's capacity, in bytes.
    pub spool_bytes: u64,
    /// Duration of a commit of the catalog.
    pub commit_delay: Duration,
    /// No server has initialised the drives before the first start.
    pub unseen: bool,
    /// The kinds of faults that may happen.
    pub kinds: BTreeSet<FaultKind>,
    /// The kinds that shrinking left out.
    pub without: BTreeSet<FaultKind>,
    /// Faults may take more than r stacks of a blob.
    pub beyond: bool,
    /// There are users besides root, and they contend for a bucket.
    pub users: bool,
    /// Records are repartitioned.
    pub jobs: bool,
    /// A client reads so slowly that the blobs it reads are dead before it finishes.
    pub slow_readers: bool,
    /// Several clients contend for one upload.
    pub rivals: bool,
    /// Before a server is stopped, the faults pause, and everything is read from the same server.
    pub lulls: bool,
    /// Drives are given up more often, and other drives fail to write rebuilt stacks.
    pub besieged: bool,
    /// The operator also retires good drives.
    pub retires: bool,
    /// The operator also takes back drives that were given up.
    pub returns: bool,
    /// The operator requests, pauses and resumes scrubs.
    pub meddles: bool,
    /// The host's disk fails to sync, and the host loses power soon after a start.
    pub shaky: bool,
    /// Objects are tagged repeatedly while they move.
    pub tags: bool,
    /// Servers are stopped while clients, operators and faults continue.
    pub abrupt: bool,
    /// The operator starts verifications, and interrupts them.
    pub verifies: bool,
    /// Lives last for weeks and months: clients rest for days, and the conditions of drives last that long too.
    pub months: bool,
    /// The lives of the server, without the last ones, in which no faults happen.
    pub lives: Vec<Life>,
    /// Keys that clients contend for.
    pub keys: u64,
    /// The items that shrinking left out.
    pub dropped: BTreeSet<Item>,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// Runs from this number on may have rules about hot and cold, and check their workshop. Tests and pages cite runs
/// below this number by what they found, so those stay the same.
pub const RULED_FROM: u64 = 1_000_000;

/// Runs from this number on may have an operator who interferes with scrubs; those below stay the same.
pub const MEDDLED_FROM: u64 = 3_000_000;

/// Runs from this number on may have drives that the rack gives up itself, that are emptied, or that an old copy
/// replaces; those below stay the same.
pub const ABSENT_FROM: u64 = 4_000_000;

/// Runs from this number on may have cloned drives, and lose their catalog; those below stay the same.
pub const LOST_FROM: u64 = 5_000_000;

/// Runs from this number on may have lives of months, groups of 24 drives with 15 + 3, repeated answers, and drives
/// that other programs start; those below stay the same.
pub const MONTHS_FROM: u64 = 6_000_000;

/// Runs from this number on may have servers that are stopped amid faults, and an operator who verifies; those below
/// stay the same.
pub const STOPPED_FROM: u64 = 5_000_000_000;

/// Runs from this number on use the server's own log in front of their catalog, if they have a log; those below use a
/// model of one, and stay the same.
pub const LOGGED_FROM: u64 = 10_300_000_000;

/// Runs from this number on may have damage in the files of their log that loses nothing, and drives of the log that
/// fail; those below stay the same.
pub const SPOILED_FROM: u64 = 14_700_000_000;

/// The number of the habit of stopping servers amid faults.
const ABRUPT: u64 = 17;

/// The number of the habit of verifying.
const VERIFIES: u64 = 18;

/// The number of the habit of living for months.
const MONTHS: u64 = 14;

/// The number of the habit of having wide groups.
const WIDE_GROUPS: u64 = 15;

/// Every fourth run from [`MONTHS_FROM`] on lives for months.
fn lives_for_months(seed: u64) -> bool {
    seed >= MONTHS_FROM && Stream::Habit { index: MONTHS }.of(seed).below(4) == 0
}

/// Every fifth run from [`MONTHS_FROM`] on has the paper's groups.
fn is_wide(seed: u64) -> bool {
    seed >= MONTHS_FROM && Stream::Habit { index: WIDE_GROUPS }.of(seed).below(5) == 0
}

/// Makes clients rest for up to six days between two operations, and puts faults hours to days apart: the longest lives
/// take half a year.
fn lengthen(seed: u64, lives: &mut [Life]) {
    let rng = &mut Stream::Habit { index: MONTHS + 2 }.of(seed);
    for life in lives {
        life.rest_s = pick(rng, &[20_000, 200_000, 518_400]);
        life.gap_s = pick(rng, &[20_000, 86_400, 400_000]);
    }
}

/// The rules about hot and cold of every second run. Every object that they call hot becomes cold in the end; otherwise
/// a run would not come to rest.
fn thermometer(seed: u64) -> Thermometer {
    let rng = &mut Stream::Rules.of(seed);
    if seed < RULED_FROM || rng.below(2) == 0 {
        return Thermometer::none();
    }
    let rule = |rng: &mut Rng| match rng.below(3) {
        0 => Rule { read_through: true, ..Rule::default() },
        1 => Rule { unread_for: SECOND * rng.between(1, 200) as u32, ..Rule::default() },
        _ => Rule { larger_than_bytes: Some(rng.below(64 * KIB)), older_than: 20 * SECOND, ..Rule::default() },
    };
    let mut rules: Vec<Rule> = (0..rng.between(0, 2)).map(|_| rule(rng)).collect();
    rules.push(Rule { older_than: SECOND * rng.between(20, 200) as u32, ..Rule::default() });
    Thermometer { rules, default: pick(rng, &[Temperature::Hot, Temperature::Cold]) }
}

/// Every second run from [`RULED_FROM`] on checks its workshop, every 20 seconds to 10 minutes; in lives of months,
/// every 11 to 56 hours.
fn checks(seed: u64) -> CheckPolicy {
    let rng = &mut Stream::Checks.of(seed);
    let _due_waits = rng.next_u64();
    if seed < RULED_FROM || rng.below(2) == 0 {
        return CheckPolicy::default();
    }
    let every = SECOND * pick(rng, if lives_for_months(seed) { &[40_000, 80_000, 200_000] } else { &[20, 60, 600] });
    CheckPolicy { every: Some(every), memory_bytes: pick(rng, &[0, 100 * KIB, 16 * MIB]) }
}

/// Scrubs with a short period, in a third of the runs that may have rules about hot and cold.
fn scrub(seed: u64) -> ScrubPolicy {
    if seed < RULED_FROM || !has_habit(seed, SCRUBS) {
        return ScrubPolicy::default();
    }
    let rng = &mut Stream::Scrubs.of(seed);
    let periods_s = if lives_for_months(seed) { &[200_000, 600_000, 2_000_000] } else { &[1_200, 7_200, 40_000] };
    ScrubPolicy {
        period: Some(SECOND * pick(rng, periods_s)),
        ride_along: SECOND * pick(rng, &[0, 20, 300]),
        starts_per_day: pick(rng, &[1, 4, 20]),
        step_bytes: pick(rng, &[1, 64 * KIB, 1 << 30]),
    }
}

/// The number of the habit of taking drives back.
const RETURNS: u64 = 12;

/// The number of the habit of giving up drives that stay away.
const GIVES_UP: u64 = 13;

/// Drives that stay away are given up in a third of the runs from [`ABSENT_FROM`] on; in half of those the rack
/// recognises them when they return.
fn give_up(seed: u64) -> Option<(Duration, bool)> {
    let rng = &mut Stream::Habit { index: GIVES_UP }.of(seed);
    let gives_up = seed >= ABSENT_FROM && rng.below(3) == 0;
    let after_s = if lives_for_months(seed) { &[1_000, 8_000, 80_000] } else { &[60, 200, 1_000] };
    gives_up.then(|| (SECOND * pick(rng, after_s), rng.below(2) == 0))
}

/// The number of the habit of scrubbing.
const SCRUBS: u64 = 11;

fn policy(seed: u64, rng: &mut Rng, spec: &RackSpec) -> RackPolicy {
    RackPolicy {
        scheduler: SchedulerPolicy {
            queue_depth: pick(rng, &[8, 100, 1000]) as u32,
            overtake_limit: pick(rng, &[0, 1_000_000, 500_000_000_000]),
            weighing: pick(rng, &[Weighing::Bytes, Weighing::ServiceTime, Weighing::Operations]),
            wait_limit: pick(rng, &[None, Some(120 * SECOND)]),
            join_in_service: rng.below(2) == 0,
            anticipation: SECOND * rng.below(3) as u32,
            overload: OverloadPolicy {
                relief: pick(rng, &[Relief::None, Relief::Shed, Relief::Widen { times: 4 }]),
                ..OverloadPolicy::default()
            },
            shares: Shares { client: 60, rebuild: 30, background: 10 },
            quantum: 60 * SECOND,
        },
        group_choice: pick(rng, &[GroupChoice::Random, GroupChoice::Batch { bytes: 2 * MIB }]),
        idle_timeout: IdleTimeout::After(SECOND * rng.between(2, 300) as u32),
        read_policy: pick(rng, &[ReadPolicy::All, ReadPolicy::All, ReadPolicy::K]),
        starts_per_day: pick(rng, &[12, 1000, spec.profile.starts_per_day()]),
        spin_down: SpinDownPolicy::default(),
        host_slack: pick(rng, &[5 * SECOND, 30 * SECOND]),
        deadlines: engine::Deadlines::default(),
        migration: MigrationPolicy {
            due_age: Some(SECOND * rng.between(5, 120) as u32),
            min_age: SECOND * rng.below(5) as u32,
            min_bytes: 0,
            regular_permille: 300,
            critical_permille: 800,
            drained_permille: None,
            order: engine::MoveOrder::default(),
            pack_bytes: pick(rng, &[60 * KIB, 300 * KIB, MIB]),
            pack_members: pick(rng, &[3, 1000]),
            linger: SECOND * pick(rng, &[0, 0, 60]),
            window: pick(rng, &[1, 4, 16]),
            scan_interval: if lives_for_months(seed) { 600 * SECOND } else { 5 * SECOND },
            thermometer: thermometer(seed),
            due_with_checks: Stream::Checks.of(seed).below(2) == 0 && checks(seed).every.is_some(),
        },
        checks: checks(seed),
        evacuate_permille: pick(rng, &[300, 600, 1000]),
        give_up_after: give_up(seed).map(|(after, _)| after),
        tries_given_up: give_up(seed).is_some_and(|(_, tries)| tries),
        rebuild_read_back: true,
        write_read_back: true,
        checkpoint_interval: SECOND * pick(rng, &[60, 3600]),
        scrub: scrub(seed),
        health: engine::HealthPolicy::default(),
        classes: Vec::new(),
    }
}

/// The number of kinds that are drawn from the plan's own stream. Each later kind has its own stream, so it shifts
/// nothing else.
const KINDS_IN_ONE_STREAM: usize = 30;

/// The later kinds that runs below [`ABSENT_FROM`] know.
const KINDS_BEFORE_ABSENT: usize = 3;

/// The later kinds that runs below [`LOST_FROM`] know.
const KINDS_BEFORE_LOST: usize = 6;

/// The later kinds that runs below [`MONTHS_FROM`] know.
const KINDS_BEFORE_MONTHS: usize = 8;

/// The later kinds that runs below [`LOGGED_FROM`] know.
const KINDS_BEFORE_LOGGED: usize = 11;

/// The kinds of a run: each run switches some off, and every seventh all.
fn kinds(seed: u64, rng: &mut Rng, beyond: bool) -> BTreeSet<FaultKind> {
    if rng.below(7) == 0 {
        return BTreeSet::new();
    }
    let permille = pick(rng, &[120, 300, 700]);
    let (first, later) = FaultKind::ALL.split_at(KINDS_IN_ONE_STREAM);
    let known = match seed {
        0..ABSENT_FROM => KINDS_BEFORE_ABSENT,
        ABSENT_FROM..LOST_FROM => KINDS_BEFORE_LOST,
        LOST_FROM..MONTHS_FROM => KINDS_BEFORE_MONTHS,
        MONTHS_FROM..LOGGED_FROM => KINDS_BEFORE_LOGGED,
        _ => later.len(),
    };
    let later = &later[..known];
    let mut kinds: BTreeSet<FaultKind> = first.iter().copied().filter(|_| rng.below(1000) < permille).collect();
    let drawn = |index: u64| Stream::Kind { index }.of(seed).below(1000) < permille;
    kinds.extend((0..).zip(later).filter(|(index, _)| drawn(*index)).map(|(_, kind)| *kind));
    if !beyond {
        kinds.remove(&FaultKind::WorkshopRot);
    }
    if beyond || give_up(seed).is_some() {
        // The data that must survive is known only if no drive is lost permanently except by the operator's command.
        kinds.remove(&FaultKind::LostCatalog);
    }
    if kinds.contains(&FaultKind::LostCatalog) {
        kinds.remove(&FaultKind::OlderCatalog);
    }
    // It follows from other faults.
    kinds.remove(&FaultKind::GivenUpByRack);
    kinds
}

/// Every third run has each of the habits that are not drawn from the plan's own stream.
fn has_habit(seed: u64, index: u64) -> bool {
    Stream::Habit { index }.of(seed).below(3) == 0
}

/// Ends about half of the lives after the first early, with a power failure of the host.
fn shorten(seed: u64, lives: &mut [Life]) {
    let rng = &mut Stream::Habit { index: 8 }.of(seed);
    for life in lives.iter_mut().skip(1) {
        let steps = 1 << rng.between(6, 12);
        if rng.below(2) == 0 {
            life.end = LifeEnd::PowerLost(rng.between(1, steps));
        }
    }
}

/// Loses the catalog after about half of the lives in the runs that have that fault; true for those runs. A recovery
/// restores users, tags and jobs from its copy, and the model cannot predict them: such runs have none of them.
fn lose_catalogs(seed: u64, kinds: &BTreeSet<FaultKind>, lives: &mut [Life]) -> bool {
    if !kinds.contains(&FaultKind::LostCatalog) {
        return false;
    }
    for (round, life) in (0..).zip(lives) {
        let rng = &mut Stream::Loss { round }.of(seed);
        let left = pick(rng, &[Left::Journal, Left::Copy, Left::Copy, Left::Nothing]);
        life.lost_catalog = (rng.below(2) == 0).then_some(left);
    }
    true
}

/// The faults with which a rebuild can fail at every step.
const SIEGE: [FaultKind; 4] =
    [FaultKind::OperatorFailsDrive, FaultKind::LostWrite, FaultKind::TornWrite, FaultKind::FailedCall];

fn life(rng: &mut Rng, kinds: &BTreeSet<FaultKind>) -> Life {
    let mut ends = vec![LifeEnd::Stopped];
    let steps = 1 << rng.between(4, 14);
    let step = rng.between(1, steps);
    if kinds.contains(&FaultKind::Kill) {
        ends.push(LifeEnd::Killed(step));
    }
    if kinds.contains(&FaultKind::PowerLoss) {
        ends.extend([LifeEnd::PowerLost(step); 2]);
    }
    Life {
        clients: rng.between(1, 4),
        ops: pick(rng, &[4, 15, 30]),
        end: pick(rng, &ends),
        gap_s: pick(rng, &[5, 40, 200]),
        rest_s: 0,
        audited: rng.below(2) == 0,
        older_catalog: kinds.contains(&FaultKind::OlderCatalog) && rng.below(3) == 0,
        lost_catalog: None,
    }
}

impl Plan {
    /// The plan of `seed`.
    pub fn of(seed: u64) -> Self {
        let rng = &mut Stream::Plan.of(seed);
        let drawn = pick(rng, &SHAPES);
        let rack = if is_wide(seed) { RackShape::Wide } else { drawn };
        let beyond = rng.below(8) == 0;
        let mut kinds = kinds(seed, rng, beyond);
        let mut lives: Vec<Life> = (0..rng.between(1, 4)).map(|_| life(rng, &kinds)).collect();
        let mut policy = policy(seed, rng, &rack.spec());
        policy.spin_down.keeps_exhausted = has_habit(seed, 10);
        let max_wait = SECOND * pick(rng, &[1, 20, 45]);
        let workshop_bytes = pick(rng, &[2 * MIB, 6 * MIB, 32 * MIB]);
        let slow_readers = Stream::SlowReaders.of(seed).below(4) == 2;
        let spool_bytes = pick(rng, &[MIB, 4 * MIB, 32 * MIB]);
        let besieged = has_habit(seed, 2) && !kinds.is_empty();
        kinds.extend(SIEGE.into_iter().filter(|_| besieged));
        let retires = seed >= RULED_FROM && has_habit(seed, 11) && !kinds.is_empty();
        kinds.extend(Some(FaultKind::OperatorFailsDrive).filter(|_| retires));
        let returns = seed >= RULED_FROM && has_habit(seed, RETURNS) && !kinds.is_empty();
        kinds.extend(Some(FaultKind::OperatorFailsDrive).filter(|_| returns));
        let lulls = has_habit(seed, 1);
        if lulls && !kinds.is_empty() {
            // Its after-effects in a server show in a lull, and no longer after the next start.
            kinds.insert(FaultKind::CatalogFull);
        }
        // Numbers 3 to 6 would change runs that tests cite for bugs.
        let shaky = has_habit(seed, 7) && !kinds.is_empty();
        if shaky {
            kinds.extend([FaultKind::CommitUnsynced, FaultKind::PowerLoss]);
            shorten(seed, &mut lives);
        }
        let loses = lose_catalogs(seed, &kinds, &mut lives);
        let months = lives_for_months(seed);
        if months {
            lengthen(seed, &mut lives);
        }
        Self {
            seed,
            rack,
            policy,
            max_wait,
            workshop_bytes,
            // Small, so not all data of a slow reader is in the spool before the blob dies.
            spool_bytes: if slow_readers { MIB / 2 } else { spool_bytes },
            commit_delay: Duration::from_millis(pick(rng, &[0, 4, 40])),
            unseen: rng.below(2) == 0,
            kinds,
            without: BTreeSet::new(),
            beyond,
            users: rng.below(2) == 0 && !loses,
            jobs: rng.below(5) == 0 && !loses,
            slow_readers,
            rivals: has_habit(seed, 0),
            lulls,
            besieged,
            retires,
            returns,
            meddles: seed >= MEDDLED_FROM && has_habit(seed, SCRUBS),
            shaky,
            tags: has_habit(seed, 9) && !loses,
            abrupt: seed >= STOPPED_FROM && has_habit(seed, ABRUPT),
            verifies: seed >= STOPPED_FROM && has_habit(seed, VERIFIES),
            months,
            lives,
            keys: rng.between(2, 16),
            dropped: BTreeSet::new(),
        }
    }

    /// The lengths of objects, in bytes.
    pub(crate) fn object_bytes(rng: &mut Rng) -> u64 {
        match rng.below(16) {
            0 => 0,
            1 => pick(rng, &[1, 4095, 4096, 4097, 8192, 16_384, 16_385]),
            2..=9 => rng.between(1, 20 * KIB),
            10..=14 => rng.between(1, 100 * KIB),
            _ => rng.between(1, 400 * KIB),
        }
    }

    /// The time after which the server of a life is stopped amid clients and faults; `None` if it waits for its
    /// clients.
    pub(crate) fn stopped_after(&self, (round, life): (u64, &Life)) -> Option<Duration> {
        let rng = &mut Stream::Stop { round }.of(self.seed);
        let longest_ms = (1 << rng.between(10, 22)) * if self.months { 500 } else { 1 };
        let after = Duration::from_millis(rng.between(1, longest_ms));
        (self.abrupt && life.end == LifeEnd::Stopped).then_some(after)
    }

    /// True if the rack gives up drives that stay away.
    pub fn gives_up(&self) -> bool {
        self.policy.give_up_after.is_some()
    }

    /// True if the run has faults of this kind.
    pub(crate) fn has(&self, kind: FaultKind) -> bool {
        self.kinds.contains(&kind) && !self.without.contains(&kind)
    }

    /// True if there is a log in front of the catalog: in every second run.
    pub fn has_log(&self) -> bool {
        !self.seed.is_multiple_of(2)
    }

    /// True if `item` is left out.
    pub(crate) fn is_dropped(&self, item: Item) -> bool {
        self.dropped.contains(&item)
    }

    /// The plan in a line, for people.
    pub fn summary(&self) -> String {
        let kinds: Vec<&str> = self.kinds.difference(&self.without).map(|kind| kind.name()).collect();
        let lives: Vec<String> =
            self.lives.iter().map(|life| format!("{} x {} until {:?}", life.clients, life.ops, life.end)).collect();
        format!(
            "{:?}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}; lives: {}; faults: {}",
            self.rack,
            if self.beyond { ", losses beyond r" } else { "" },
            if self.users { ", users" } else { "" },
            if self.jobs { ", jobs" } else { "" },
            if self.slow_readers { ", slow readers" } else { "" },
            if self.rivals { ", rivals" } else { "" },
            if self.lulls { ", lulls" } else { "" },
            if self.besieged { ", besieged" } else { "" },
            if self.retires { ", drives retired" } else { "" },
            if self.returns { ", drives taken back" } else { "" },
            if self.meddles { ", scrubs asked for and paused" } else { "" },
            if self.shaky { ", shaky" } else { "" },
            if self.tags { ", tags" } else { "" },
            if self.abrupt { ", stopped amid faults" } else { "" },
            if self.verifies { ", verifications" } else { "" },
            if self.months { ", months" } else { "" },
            if self.policy.scrub.period.is_some() { ", scrubs" } else { "" },
            match give_up(self.seed) {
                None => "",
                Some((_, false)) => ", drives given up by the rack",
                Some((_, true)) => ", drives given up and recognised by the rack",
            },
            lives.join(", "),
            if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
        )
    }
}
