//! Experiments: a rack, a way of deciding, a load, and what comes out.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").ok_or("no such rack")?;
//! let rack = model::text::parse(text, name)?;
//! let mut experiment = sim::Experiment::pelican(rack);
//! experiment.workload.arrivals = sim::Arrivals::poisson(4.0);
//! let point = sim::run(&experiment)?;
//! println!("{} Gb/s", point.throughput_bytes_per_s * 8.0 / 1e9);
//! # Ok(())
//! # }
//! ```
//!
//! [`run`] simulates one point for each seed and answers with the [`Point`]: what was asked, and what was measured. A
//! point begins with every group waked once (Pelican's boot: an initialisation request for each group), then a warm-up
//! whose measurements are thrown away, then the time that is measured. A burst and a trace are measured from their
//! first request to their last answer instead.
//!
//! Invariants: the same experiment gives the same point, to the last bit; memory does not grow with simulated time.

use crate::chance::{Popular, Popularity, Sizes};
use crate::links::Network;
use crate::measure::{Measured, Point, Taking};
use crate::replay::{self, TraceError};
use crate::steady::Looks;
use crate::stored::Stored;
use crate::world::{Setting, World};
use engine::check::TraceCheck;
use engine::layout::{Layout, LayoutError};
use engine::{
    GroupChoice, IdleTimeout, MigrationPolicy, Mind, Rack, RackPolicy, ReadPolicy, SchedulerPolicy, Shares, Weighing,
};
use model::{BlobId, ClassId, DriveId, GroupId, RackSpec, Rng, SpecError, Time};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The engine, as it serves.
    Engine,
    /// FP: the engine with all drives allowed to spin and a FIFO queue for each group ([`crate::baseline`]).
    FullyProvisioned,
    /// The straw man: stacks on random drives, one queue ([`crate::baseline`]).
    RandomLayout,
}

/// When requests come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Reads at random moments, independent of each other.
    Poisson {
        /// The mean time between two: 200 ms are 5 reads a second.
        mean_gap: Duration,
    },
    /// So many reads, each at a random moment of the span; ends when all are answered.
    Burst {
        /// How many.
        reads: u32,
        /// Over how long.
        over: Duration,
    },
    /// The requests of the trace in this file ([`crate::replay`]), read as they come; ends when all are answered.
    Replay(PathBuf),
}

impl Arrivals {
    /// So many reads a second, at random moments. A rate that is no number above 0 gives a gap of 0, which [`run`]
    /// refuses.
    pub fn poisson(reads_per_s: f64) -> Self {
        let gap = Duration::try_from_secs_f64(reads_per_s.recip());
        Self::Poisson { mean_gap: gap.unwrap_or(Duration::ZERO) }
    }
}

/// A load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// When requests come.
    pub arrivals: Arrivals,
    /// How large they are (a trace says so itself).
    pub sizes: Sizes,
    /// Which blobs they are for.
    pub popularity: Popularity,
}

/// A drive that fails for good when the warm-up is over, and is rebuilt (Pelican, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which drive.
    pub drive: DriveId,
    /// How many blobs have a stack on it.
    pub blobs: u32,
    /// What their stacks take of it, in bytes; all of them are of one size.
    pub bytes: u64,
}

impl Fault {
    /// What the paper's failed drive held: 4.28 TB of 64,329 blobs.
    pub fn pelican(drive: DriveId) -> Self {
        Self { drive, blobs: 64_329, bytes: 4_280_000_000_000 }
    }

    fn stack_bytes(&self) -> u64 {
        self.bytes / u64::from(self.blobs.max(1))
    }
}

/// The longest that a rebuild is simulated.
const REBUILD_MAX: Duration = Duration::from_hours(30 * 24);

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// The rack.
    pub rack: RackSpec,
    /// The operator's settings. FP and the straw man take queue depth and read policy from them.
    pub policy: RackPolicy,
    /// Who decides.
    pub system: System,
    /// What the servers can send.
    pub network: Network,
    /// The load.
    pub workload: Workload,
    /// How many blobs stand for those that are stored ([`Stored`]).
    pub stored_blobs: u32,
    /// How much of the rack they fill, in thousandths.
    pub stored_permille: u32,
    /// How long a Poisson load runs before anything is measured.
    pub warm_up: Duration,
    /// How long it is measured. With a fault: until the rebuild is over instead.
    pub duration: Duration,
    /// A drive that fails for good. Not for the straw man.
    pub fault: Option<Fault>,
    /// One run for each; at least one.
    pub seeds: Vec<u64>,
}

impl Experiment {
    /// Pelican's evaluation (section 5): u = 500 GB in bytes, 1,000 requests a queue, groups that stay up until another
    /// one of their class is wanted, 20 Gb/s a server, 1 GB reads of any blob with equal chance, one a second; a
    /// warm-up of 6 hours, measured for 24, with three seeds.
    pub fn pelican(rack: RackSpec) -> Self {
        let starts_per_day = rack.profile.starts_per_day();
        Self {
            policy: pelican_policy(starts_per_day),
            rack,
            system: System::Engine,
            network: Network::PELICAN,
            workload: Workload {
                arrivals: Arrivals::poisson(1.0),
                sizes: Sizes::Fixed(1_000_000_000),
                popularity: Popularity::Uniform,
            },
            stored_blobs: 24_000,
            stored_permille: 1_000,
            warm_up: Duration::from_hours(6),
            duration: Duration::from_hours(24),
            fault: None,
            seeds: vec![1, 2, 3],
        }
    }

    /// Pelican's rebuild (section 5, figure 7): the same, and a drive with 4.28 TB of 64,329 blobs fails once the
    /// warm-up is over; rebuild and clients have equal shares (w = 50 %). The rack is 94 % full, as the failed drive is
    /// of its 4.55 TB, so that its group has room for what is rebuilt.
    pub fn pelican_rebuild(rack: RackSpec) -> Self {
        let fault = Some(Fault::pelican(DriveId(0)));
        Self { stored_permille: 940, fault, ..Self::pelican(rack) }
    }
}

/// The settings of Pelican's evaluation.
pub(crate) fn pelican_policy(starts_per_day: u32) -> RackPolicy {
    RackPolicy {
        scheduler: SchedulerPolicy {
            queue_depth: 1_000,
            overtake_limit: 500_000_000_000,
            weighing: Weighing::Bytes,
            wait_limit: None,
            join_in_service: false,
            anticipation: Duration::ZERO,
            shares: Shares { client: 1, rebuild: 1, background: 1 },
            quantum: Duration::from_mins(1),
        },
        group_choice: GroupChoice::Random,
        idle_timeout: IdleTimeout::Never,
        read_policy: ReadPolicy::All,
        starts_per_day,
        host_slack: Duration::from_secs(30),
        deadlines: engine::Deadlines::default(),
        migration: MigrationPolicy {
            due_age: None,
            min_age: Duration::ZERO,
            min_bytes: 0,
            regular_permille: 300,
            critical_permille: 800,
            pack_bytes: 1_000_000_000,
            pack_members: 10_000,
            linger: Duration::ZERO,
            window: 64,
            scan_interval: Duration::from_mins(1),
        },
        rescue_permille: 1_000,
        rebuild_read_back: false,
        write_read_back: true,
        classes: Vec::new(),
    }
}

/// Why an experiment cannot be run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// The rack has no layout.
    #[error("the rack has no layout: {0}")]
    Layout(#[from] LayoutError),
    /// The rack does not stand without its limits.
    #[error("the rack does not stand without its limits: {0}")]
    Spec(#[from] SpecError),
    /// No seed was given.
    #[error("an experiment needs at least one seed")]
    NoSeed,
    /// Nothing is stored, or nothing could be.
    #[error("an experiment needs at least one stored blob, and a rack that can take it")]
    NothingStored,
    /// The drive that is to fail is in no group, or the rack is one that rebuilds nothing.
    #[error("the drive that fails must be one of a group, in a rack that rebuilds: not a spare, not the straw man's")]
    NothingToRebuild,
    /// Nothing ever comes, or everything at once.
    #[error("requests must come, and not all at once: the mean gap between two must be above 0")]
    NoArrivals,
    /// The trace cannot be replayed.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Runs an experiment: every seed, and all of them taken together. A trace is read to its end before it is replayed, so
/// that what is wrong with its last line is known first.
///
/// # Errors
/// [`ExperimentError`], before anything is simulated; or later, if the file of a trace changes meanwhile.
pub fn run(experiment: &Experiment) -> Result<Point, ExperimentError> {
    if experiment.seeds.is_empty() {
        return Err(ExperimentError::NoSeed);
    }
    if experiment.workload.arrivals == (Arrivals::Poisson { mean_gap: Duration::ZERO }) {
        return Err(ExperimentError::NoArrivals);
    }
    if let Arrivals::Replay(path) = &experiment.workload.arrivals {
        replay::check(path)?;
    }
    let layout = engine::layout::synthesise(&experiment.rack)?;
    let runs: Result<Vec<Measured>, _> =
        experiment.seeds.iter().map(|seed| run_once(experiment, &layout, *seed)).collect();
    Ok(Point::of(experiment, &runs?))
}

/// Runs one seed of an experiment in a rack of this layout.
///
/// # Errors
/// [`ExperimentError`], before anything is simulated, or at the first line of a trace that is no request.
pub fn run_once(experiment: &Experiment, layout: &Layout, seed: u64) -> Result<Measured, ExperimentError> {
    let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"stored  "));
    let spec = &experiment.rack;
    let count = experiment.stored_blobs;
    let (setting, stored) = match experiment.system {
        System::Engine | System::FullyProvisioned => {
            let stored = Stored::in_groups(spec, layout, count, experiment.stored_permille, &mut rng);
            (Setting { used_bytes: stored.used_bytes().to_vec(), ..Setting::default() }, stored)
        }
        System::RandomLayout => (Setting::default(), Stored::at_random(spec, count, &mut rng)),
    };
    if stored.is_empty() {
        return Err(ExperimentError::NothingStored);
    }
    let mut setting = Setting { network: Some(experiment.network), ..setting };
    if let Some(fault) = experiment.fault {
        let used = setting.used_bytes.get_mut(fault.drive.index()).ok_or(ExperimentError::NothingToRebuild)?;
        *used = fault.stack_bytes() * u64::from(fault.blobs);
    }
    let (spec, layout, policy) = match experiment.system {
        System::FullyProvisioned => {
            let (spec, layout) = crate::baseline::fully_provisioned(spec, layout)?;
            let mut policy = experiment.policy.clone();
            policy.scheduler.overtake_limit = 0;
            policy.idle_timeout = IdleTimeout::Never;
            (spec, layout, policy)
        }
        System::Engine => (spec.clone(), layout.clone(), experiment.policy.clone()),
        System::RandomLayout => {
            let scheduler = experiment.policy.scheduler;
            let judge = Some(TraceCheck::without_classes(spec));
            let mind =
                crate::baseline::RandomLayout::new(spec.clone(), scheduler.queue_depth, experiment.policy.read_policy);
            let world = World::with(mind, seed, Setting { judge, ..setting });
            return Run::new(experiment, world, stored, seed).go();
        }
    };
    let failing = failing(experiment, &spec, &layout, seed)?;
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    let world = World::with(Rack::new(spec, layout, policy, seed), seed, Setting { judge, ..setting });
    Run { failing, ..Run::new(experiment, world, stored, seed) }.go()
}

/// What fails, if anything, with the blobs that lie on it.
fn failing(
    experiment: &Experiment,
    spec: &RackSpec,
    layout: &Layout,
    seed: u64,
) -> Result<Option<Failing>, ExperimentError> {
    let Some(fault) = experiment.fault else { return Ok(None) };
    let group = layout.group_of(fault.drive).ok_or(ExperimentError::NothingToRebuild)?;
    let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"sharing "));
    let blobs = Stored::sharing(spec, layout, group, fault.drive, fault.blobs, &mut rng);
    let class_of = layout.groups.iter().map(|group| group.class).collect();
    Ok(Some(Failing { fault, group, blobs, class_of }))
}

/// A drive that is going to fail.
struct Failing {
    fault: Fault,
    group: GroupId,
    /// The drives of each blob on it.
    blobs: Vec<Vec<DriveId>>,
    class_of: Vec<ClassId>,
}

/// One run under way.
struct Run<'a, M> {
    experiment: &'a Experiment,
    world: World<M>,
    stored: Stored,
    popular: Popular,
    arrivals_rng: Rng,
    keys_rng: Rng,
    sizes_rng: Rng,
    looks: Option<Looks>,
    taking: Taking,
    failing: Option<Failing>,
}

impl<'a, M: Mind> Run<'a, M> {
    fn new(experiment: &'a Experiment, world: World<M>, stored: Stored, seed: u64) -> Self {
        let rng = |thing: &[u8; 8]| Rng::for_thing(seed, u64::from_le_bytes(*thing));
        Self {
            popular: Popular::new(experiment.workload.popularity, stored.len()),
            experiment,
            world,
            stored,
            arrivals_rng: rng(b"arrivals"),
            keys_rng: rng(b"keys    "),
            sizes_rng: rng(b"sizes   "),
            looks: None,
            taking: Taking::default(),
            failing: None,
        }
    }

    fn go(mut self) -> Result<Measured, ExperimentError> {
        self.boot();
        match &self.experiment.workload.arrivals {
            Arrivals::Poisson { mean_gap } => {
                let mean_gap_ns = u64::try_from(mean_gap.as_nanos()).unwrap_or(u64::MAX);
                let measured_from = self.world.now() + self.experiment.warm_up;
                let until = measured_from + self.experiment.duration;
                if self.failing.is_none() {
                    self.looks = Some(Looks::new(self.world.now(), until.since(self.world.now())));
                }
                let next = self.arrive_until(mean_gap_ns, self.world.now(), measured_from);
                self.start_taking();
                if self.failing.is_some() {
                    self.arrive_while_rebuilding(mean_gap_ns, next);
                } else {
                    self.arrive_until(mean_gap_ns, next, until);
                }
            }
            Arrivals::Burst { reads, over } => {
                let over_ns = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX);
                let from = self.world.now();
                let mut moments: Vec<u64> = (0..*reads).map(|_| self.arrivals_rng.between(0, over_ns)).collect();
                moments.sort_unstable();
                self.start_taking();
                for moment in moments {
                    self.world.run_until(from + Duration::from_nanos(moment));
                    self.read_any();
                }
                self.run_dry();
            }
            Arrivals::Replay(path) => {
                self.start_taking();
                replay::play(replay::open(path)?, &mut self.world, &self.stored, &mut self.taking)?;
                self.run_dry();
            }
        }
        if let Some(failing) = &self.failing {
            let left = self.world.left_on(failing.fault.drive);
            self.taking.rebuilt((left == 0).then(|| self.world.rebuilt_at()));
        }
        let steady_after = self.looks.as_ref().and_then(Looks::steady_after);
        Ok(Measured { steady_after, ..self.taking.end(&mut self.world) })
    }

    /// Every group's first operation: it is waked once, as at Pelican's boot (section 4).
    fn boot(&mut self) {
        if self.experiment.system == System::RandomLayout {
            return;
        }
        for index in self.stored.one_of_each_group() {
            let (group, drives) = self.stored.blob(index);
            self.world.read_at(BlobId::numbered(index as u64), group, drives.to_vec(), 1);
        }
        self.run_dry();
        self.taking.booted(self.world.now());
    }

    /// Lets time pass until everything is answered, and rebuilt.
    fn run_dry(&mut self) {
        while self.world.open_ops() > 0 || self.rebuilds() {
            assert!(self.world.step(), "every operation is answered");
            self.taking.take(&mut self.world);
        }
    }

    fn start_taking(&mut self) {
        self.taking.take(&mut self.world);
        self.taking.start(&mut self.world);
        let Some(failing) = &mut self.failing else { return };
        let stack_bytes = failing.fault.stack_bytes();
        self.world.number_blobs_from(BlobId::numbered(self.stored.len() as u64));
        for drives in std::mem::take(&mut failing.blobs) {
            self.world.place(failing.group, drives, stack_bytes);
        }
        self.taking.watch_class(failing.class_of.clone(), failing.group);
        self.world.fail(failing.fault.drive);
    }

    /// Whether a rebuild is under way that is worth waiting for.
    fn rebuilds(&self) -> bool {
        let left = |failing: &Failing| self.world.left_on(failing.fault.drive) > 0;
        self.failing.as_ref().is_some_and(left) && self.taking.so_far(self.world.now()) < REBUILD_MAX
    }

    /// Poisson arrivals until the rebuild is over, to the minute.
    fn arrive_while_rebuilding(&mut self, mean_gap_ns: u64, mut next: Time) {
        while self.rebuilds() {
            next = self.arrive_until(mean_gap_ns, next, self.world.now() + Duration::from_mins(1));
        }
    }

    /// Poisson arrivals from moment `next` on; answers the first one that is not before `until`.
    fn arrive_until(&mut self, mean_gap_ns: u64, mut next: Time, until: Time) -> Time {
        while next < until {
            self.pass_until(next);
            self.read_any();
            next += Duration::from_nanos(crate::chance::exponential(mean_gap_ns, &mut self.arrivals_rng).max(1));
        }
        self.pass_until(until);
        self.taking.take(&mut self.world);
        next
    }

    /// Lets time pass, and looks at the queues in between.
    fn pass_until(&mut self, until: Time) {
        while let Some(looks) = self.looks.as_mut().filter(|looks| looks.next() <= until) {
            self.world.run_until(looks.next());
            looks.take(self.world.open_ops() as f64);
        }
        self.world.run_until(until);
    }

    fn read_any(&mut self) {
        let index = self.popular.draw(&mut self.keys_rng);
        let bytes = self.experiment.workload.sizes.draw(&mut self.sizes_rng);
        let (group, drives) = self.stored.blob(index);
        self.world.read_at(BlobId::numbered(index as u64), group, drives.to_vec(), bytes);
        self.taking.take(&mut self.world);
    }
}
