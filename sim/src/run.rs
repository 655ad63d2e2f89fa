//! Runs experiments.
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
//! A run begins with the engine's boot of an uninitialised rack (Pelican, section 4: an initialisation request for each
//! group). An unmeasured warm-up follows, then the measured time. A burst and a trace are measured from their first
//! request to their last answer instead.
//!
//! Invariants: the same experiment gives the same point, to the last bit; memory does not grow with simulated time.

use crate::chance::{PoissonGaps, Popular};
use crate::experiment::{Arrivals, Experiment, ExperimentError, Fault, System};
use crate::measure::{Measured, Measuring};
use crate::point::{Point, SeededPoint};
use crate::replay;
use crate::steady::QueueSamples;
use crate::stored::Stored;
use crate::world::{Setting, World};
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::{Controller, IdleTimeout, Rack};
use model::{BlobId, ClassId, DriveId, GroupId, RackSpec, Rng, Time};
use std::time::Duration;

/// The maximum simulated time of a rebuild.
const REBUILD_MAX: Duration = Duration::from_hours(30 * 24);

/// Runs an experiment with every seed; returns the combined point. A trace is read to its end before it is replayed, so
/// an error in its last line is reported first.
///
/// # Errors
/// [`ExperimentError`], before anything is simulated, or later if the file of a trace changes meanwhile.
pub fn run(experiment: &Experiment) -> Result<Point, ExperimentError> {
    Ok(run_seeds(experiment)?.all)
}

/// Runs an experiment; returns the combined point and a point for each seed.
///
/// # Errors
/// As [`run`].
pub fn run_seeds(experiment: &Experiment) -> Result<SeededPoint, ExperimentError> {
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
    Ok(SeededPoint::of(experiment, &runs?))
}

/// Runs one seed of an experiment in a rack of this layout.
///
/// # Errors
/// [`ExperimentError`], before anything is simulated, or at the first line of a trace that is not a request.
pub fn run_once(experiment: &Experiment, layout: &Layout, seed: u64) -> Result<Measured, ExperimentError> {
    let stored = stored(experiment, layout, seed)?;
    let mut setting = Setting { network: Some(experiment.network), first_boot: true, ..Setting::default() };
    setting.used_bytes.clone_from(&stored.used_bytes);
    if let Some(fault) = experiment.fault {
        let rebuilds = |_: &&mut u64| experiment.system != System::RandomLayout;
        let used = setting.used_bytes.get_mut(fault.drive.index()).filter(rebuilds);
        *used.ok_or(ExperimentError::NothingToRebuild)? = fault.stack_bytes() * u64::from(fault.blobs);
    }
    let (spec, mut policy) = (&experiment.rack, experiment.policy.clone());
    let (spec, layout) = match experiment.system {
        System::Engine => (spec.clone(), layout.clone()),
        System::FullyProvisioned => {
            policy.scheduler.overtake_limit = 0;
            policy.idle_timeout = IdleTimeout::Never;
            crate::baseline::fully_provisioned(spec, layout)?
        }
        System::RandomLayout => {
            let depth = policy.scheduler.queue_depth;
            let random = crate::baseline::RandomLayout::new(spec.clone(), depth, policy.read_policy);
            setting.judge = Some(TraceCheck::without_classes(spec));
            return ExperimentRun::new(experiment, World::with(random, seed, setting), stored, seed).measure();
        }
    };
    let failing = experiment.fault.map(|fault| Failing::of(fault, &spec, &layout, seed)).transpose()?;
    setting.judge = Some(TraceCheck::new(&spec, &layout, &policy));
    let queues = layout.classes.len() as u32;
    let world = World::with(Rack::new(spec, layout, policy, seed), seed, setting);
    ExperimentRun { failing, queues, ..ExperimentRun::new(experiment, world, stored, seed) }.measure()
}

/// The blobs stored at the beginning of an experiment.
fn stored(experiment: &Experiment, layout: &Layout, seed: u64) -> Result<Stored, ExperimentError> {
    let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"stored  "));
    let (spec, count) = (&experiment.rack, experiment.stored_blobs);
    let stored = match experiment.system {
        System::RandomLayout => Stored::at_random(spec, count, &mut rng),
        _ => Stored::in_groups(spec, layout, count, experiment.stored_permille, &mut rng),
    };
    if stored.len() == 0 { Err(ExperimentError::NothingStored) } else { Ok(stored) }
}

/// A drive that will fail.
struct Failing {
    fault: Fault,
    group: GroupId,
    /// The drives of each blob on it.
    blobs: Vec<Vec<DriveId>>,
    class_of: Vec<ClassId>,
}

impl Failing {
    fn of(fault: Fault, spec: &RackSpec, layout: &Layout, seed: u64) -> Result<Self, ExperimentError> {
        let group = layout.group_of(fault.drive).ok_or(ExperimentError::NothingToRebuild)?;
        let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"sharing "));
        let members = &layout.groups[group.index()].drives;
        let blobs = Stored::sharing(spec, members, fault.drive, fault.blobs, &mut rng);
        Ok(Self { fault, group, blobs, class_of: layout.groups.iter().map(|group| group.class).collect() })
    }
}

/// A run in progress.
struct ExperimentRun<'a, M> {
    experiment: &'a Experiment,
    world: World<M>,
    stored: Stored,
    popular: Popular,
    arrivals_rng: Rng,
    keys_rng: Rng,
    sizes_rng: Rng,
    samples: Option<QueueSamples>,
    measuring: Measuring,
    failing: Option<Failing>,
    /// The number of queues of the controller.
    queues: u32,
}

impl<'a, M: Controller> ExperimentRun<'a, M> {
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
            samples: None,
            measuring: Measuring::default(),
            failing: None,
            queues: 1,
        }
    }

    fn measure(mut self) -> Result<Measured, ExperimentError> {
        self.boot();
        match &self.experiment.workload.arrivals {
            Arrivals::Poisson { mean_gap } => self.poisson(*mean_gap),
            Arrivals::Burst { reads, over } => self.burst(*reads, *over),
            Arrivals::Replay(path) => {
                self.start_measuring();
                replay::play(replay::open(path)?, &mut self.world, &self.stored, &mut self.measuring)?;
                self.run_dry();
            }
        }
        if let Some(failing) = &self.failing {
            let left = self.world.blobs.left_on(failing.fault.drive);
            self.measuring.rebuilt((left == 0).then(|| self.world.blobs.rebuilt_at()));
        }
        let places = f64::from(self.experiment.policy.scheduler.queue_depth) * f64::from(self.queues);
        let samples = self.samples.as_ref();
        Ok(Measured {
            steady_after: samples.and_then(QueueSamples::steady_after),
            drained_after: samples.and_then(|samples| samples.first_below(places / 2.0)),
            open_mean: samples.map(|samples| samples.mean_after(self.experiment.warm_up)),
            ..self.measuring.end(&mut self.world)
        })
    }

    /// Lets the rack boot: the engine initialises every group (Pelican, section 4).
    fn boot(&mut self) {
        while self.world.rack.uninitialised_groups() > 0 {
            assert!(self.world.step(), "every group is initialised");
        }
        self.measuring.booted(self.world.now());
    }

    fn poisson(&mut self, mean_gap: Duration) {
        let begun = self.world.now();
        let measured_from = begun + self.experiment.warm_up;
        let until = measured_from + self.experiment.duration;
        if self.failing.is_none() {
            self.samples = Some(QueueSamples::new(begun, until.since(begun)));
        }
        for _ in 0..self.experiment.workload.backlog {
            self.read_any();
        }
        let mut gaps = PoissonGaps::new(mean_gap, self.arrivals_rng.clone());
        let mut next = self.arrive_until(&mut gaps, begun, measured_from);
        self.start_measuring();
        if self.failing.is_none() {
            self.arrive_until(&mut gaps, next, until);
        }
        // If a drive fails, runs until its rebuild has ended, in steps of a minute.
        while self.rebuilds() {
            next = self.arrive_until(&mut gaps, next, self.world.now() + Duration::from_mins(1));
        }
    }

    fn burst(&mut self, reads: u32, over: Duration) {
        let begun = self.world.now();
        let over_ns = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX);
        let mut moments: Vec<u64> = (0..reads).map(|_| self.arrivals_rng.between(0, over_ns)).collect();
        moments.sort_unstable();
        self.start_measuring();
        for moment in moments {
            self.world.run_until(begun + Duration::from_nanos(moment));
            self.read_any();
        }
        self.run_dry();
    }

    /// Lets time pass until everything is answered and rebuilt.
    fn run_dry(&mut self) {
        while self.world.open_ops() > 0 || self.rebuilds() {
            assert!(self.world.step(), "every operation is answered");
            self.measuring.collect(&mut self.world);
        }
    }

    /// Starts the measurement; a drive that is to fail fails now.
    fn start_measuring(&mut self) {
        self.measuring.collect(&mut self.world);
        self.measuring.start(&mut self.world);
        let Some(failing) = &mut self.failing else { return };
        let stack_bytes = failing.fault.stack_bytes();
        self.world.number_blobs_from(BlobId::numbered(self.stored.len() as u64));
        for drives in std::mem::take(&mut failing.blobs) {
            self.world.place(failing.group, drives, stack_bytes);
        }
        self.measuring.watch_class(std::mem::take(&mut failing.class_of), failing.group);
        self.world.fail(failing.fault.drive);
    }

    /// True while a rebuild runs that has not exceeded its maximum time.
    fn rebuilds(&self) -> bool {
        let left = |failing: &Failing| self.world.blobs.left_on(failing.fault.drive) > 0;
        self.failing.as_ref().is_some_and(left) && self.measuring.so_far(self.world.now()) < REBUILD_MAX
    }

    /// Poisson arrivals from time `next` on; returns the first one that is not before `until`.
    fn arrive_until(&mut self, gaps: &mut PoissonGaps, mut next: Time, until: Time) -> Time {
        while next < until {
            self.pass_until(next);
            self.read_any();
            next += gaps.draw();
        }
        self.pass_until(until);
        self.measuring.collect(&mut self.world);
        next
    }

    /// Lets time pass, and samples the queues meanwhile.
    fn pass_until(&mut self, until: Time) {
        while let Some(samples) = self.samples.as_mut().filter(|samples| samples.next() <= until) {
            self.world.run_until(samples.next());
            samples.take(self.world.open_ops() as f64);
        }
        self.world.run_until(until);
        assert!(self.world.now() == until, "the world is at {}, and was to pass until {until}", self.world.now());
    }

    fn read_any(&mut self) {
        let index = self.popular.draw(&mut self.keys_rng);
        let bytes = self.experiment.workload.sizes.draw(&mut self.sizes_rng);
        let (group, drives) = self.stored.blob(index);
        self.world.read_at(BlobId::numbered(index as u64), group, drives, bytes);
        self.measuring.collect(&mut self.world);
    }
}
