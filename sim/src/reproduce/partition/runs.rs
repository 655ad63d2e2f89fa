//! The runs of the evaluation of BuffPack and OffPack, each job once. Rows and figures share them.

use crate::parallel::run_each;
use crate::repartition::{self, Groups, Method, Repartition, RepartitionError, Repartitioned};
use crate::report::short;
use model::SpecError;
use std::num::NonZeroUsize;
use std::time::Duration;

/// A varied parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// S_D in TB (figure 4).
    Data,
    /// S_M in GB (figure 5).
    Memory,
    /// K (figure 6).
    Groups,
    /// T_sw in seconds (figure 7).
    Switch,
    /// s of the input (figure 8, left).
    InputSkew,
    /// s of the output (figure 8, right).
    OutputSkew,
    /// S_D in TB, on disks that need no switch: one group that stays awake.
    Disks,
}

impl Sweep {
    /// The sweeps of figures 4 to 7, without skew.
    pub const EVEN: [Self; 4] = [Self::Data, Self::Memory, Self::Groups, Self::Switch];

    /// True for the sweeps of figures 4 to 7.
    pub fn is_even(self) -> bool {
        Self::EVEN.contains(&self)
    }

    /// The name of the parameter.
    pub fn words(self) -> &'static str {
        match self {
            Self::Data => "data (TB)",
            Self::Memory => "buffer (GB)",
            Self::Groups => "groups",
            Self::Switch => "switch (s)",
            Self::InputSkew => "skew of input",
            Self::OutputSkew => "skew of output",
            Self::Disks => "data (TB), no switches",
        }
    }
}

/// A simulated job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The varied parameter.
    pub sweep: Sweep,
    /// Its value.
    pub x: f64,
    /// The description of the job.
    pub what: Repartition,
    /// The result.
    pub point: Repartitioned,
}

impl Job {
    /// Its place in its sweep: `data (TB) = 100`.
    pub fn place(&self) -> String {
        format!("{} = {}", self.sweep.words(), short(self.x))
    }
}

/// The paper's three methods, and our two.
pub const METHODS: [Method; 5] =
    [Method::Baseline, Method::Buffpack, Method::Offpack, Method::Fillpack, Method::Tourpack];
/// The paper's three methods.
pub const PAPERS: [Method; 3] = [Method::Baseline, Method::Buffpack, Method::Offpack];
/// The methods with a better formula than the paper's.
pub const BETTER: [Method; 3] = [Method::Baseline, Method::Buffpack, Method::Fillpack];

/// The buffer size at which BuffPack and OffPack take the same time, in GB, by formulas (6) and (7).
pub const CROSSING_GB: f64 = 24.5;

/// All runs.
#[derive(Debug)]
pub struct Runs {
    /// True for the quick form.
    pub quick: bool,
    /// All jobs.
    pub jobs: Vec<Job>,
}

impl Runs {
    /// Simulates the evaluation on this number of threads; calls `done` with the number of finished jobs and of all
    /// jobs. A job that belongs to several sweeps, like that of the defaults, is simulated once. The quick form has
    /// fewer values, and 10 TB instead of 100 in all sweeps except those of the data.
    ///
    /// # Errors
    /// [`RepartitionError`].
    pub fn new(
        quick: bool,
        threads: NonZeroUsize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, RepartitionError> {
        let asked = asked(quick)?;
        let mut jobs: Vec<Repartition> = Vec::new();
        let mut number_of = |what: &Repartition| {
            jobs.iter().position(|known| known == what).unwrap_or_else(|| {
                jobs.push(what.clone());
                jobs.len() - 1
            })
        };
        let numbers: Vec<usize> = asked.iter().map(|(_, _, what)| number_of(what)).collect();
        let points = run_each(&jobs, threads, &repartition::run, &|count| done(count, jobs.len()))?;
        let job = |((sweep, x, what), number): (_, usize)| Job { sweep, x, what, point: points[number].clone() };
        Ok(Self { quick, jobs: asked.into_iter().zip(numbers).map(job).collect() })
    }

    /// The jobs of a sweep by one method, in order.
    pub fn of(&self, sweep: Sweep, method: Method) -> impl Iterator<Item = &Job> + Clone {
        self.jobs.iter().filter(move |job| job.sweep == sweep && job.what.method == method)
    }

    /// The values of a sweep, in order.
    pub fn values(&self, sweep: Sweep) -> Vec<f64> {
        self.of(sweep, Method::Baseline).map(|job| job.x).collect()
    }

    /// The job at a value that both forms have.
    pub fn at(&self, sweep: Sweep, method: Method, x: f64) -> &Job {
        let found = self.of(sweep, method).find(|job| (job.x - x).abs() < 1e-9);
        let Some(job) = found else { panic!("{method:?} was not simulated at {x} {}", sweep.words()) };
        job
    }

    /// The job at the paper's defaults.
    pub fn default(&self, method: Method) -> &Job {
        self.at(Sweep::Data, method, 100.0)
    }

    /// The time for the same data on disks without switches, in hours.
    pub fn disks_hours(&self, what: &Repartition) -> f64 {
        let same = |job: &&Job| job.sweep == Sweep::Disks && job.what.data_bytes == what.data_bytes;
        self.jobs.iter().find(same).map_or(f64::NAN, |job| job.point.hours)
    }
}

fn values(sweep: Sweep, quick: bool) -> &'static [f64] {
    match (sweep, quick) {
        (Sweep::Data, false) => &[10.0, 25.0, 50.0, 75.0, 100.0, 150.0, 200.0],
        (Sweep::Data, true) | (Sweep::Disks, _) => &[10.0, 50.0, 100.0],
        (Sweep::Memory, false) => &[2.0, 4.0, 8.0, 12.0, 16.0, 20.0, CROSSING_GB, 28.0, 32.0, 48.0, 64.0, 100.0],
        (Sweep::Memory, true) => &[4.0, 8.0, 20.0, CROSSING_GB, 28.0, 64.0],
        (Sweep::Groups, false) => &[2.0, 4.0, 8.0, 12.0, 24.0, 48.0, 100.0],
        (Sweep::Groups, true) => &[4.0, 12.0, 24.0, 48.0],
        (Sweep::Switch, false) => &[10.0, 15.0, 20.0, 25.0, 30.0],
        (Sweep::Switch, true) => &[10.0, 20.0, 30.0],
        (Sweep::InputSkew, false) => &[0.0, 0.25, 0.5, 0.75, 1.0],
        (Sweep::InputSkew, true) => &[0.0, 0.5, 1.0],
        (Sweep::OutputSkew, false) => &[0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0],
        (Sweep::OutputSkew, true) => &[0.0, 0.5, 1.0, 2.0],
    }
}

fn asked(quick: bool) -> Result<Vec<(Sweep, f64, Repartition)>, SpecError> {
    let mut all = Vec::new();
    let skews = [Sweep::InputSkew, Sweep::OutputSkew];
    for sweep in Sweep::EVEN.into_iter().chain(skews) {
        for (x, method) in values(sweep, quick).iter().flat_map(|x| METHODS.map(|method| (*x, method))) {
            all.push((sweep, x, job(sweep, x, method, quick)?));
        }
    }
    for x in values(Sweep::Data, quick) {
        all.push((Sweep::Disks, *x, job(Sweep::Disks, *x, Method::Baseline, quick)?));
    }
    Ok(all)
}

fn job(sweep: Sweep, x: f64, method: Method, quick: bool) -> Result<Repartition, SpecError> {
    let groups = match sweep {
        Sweep::Groups => Groups { groups: x as u32, ..Groups::PAPER },
        Sweep::Switch => Groups { switch: Duration::from_secs_f64(x), ..Groups::PAPER },
        Sweep::Disks => Groups { groups: 1, ..Groups::PAPER },
        Sweep::Data | Sweep::Memory | Sweep::InputSkew | Sweep::OutputSkew => Groups::PAPER,
    };
    let mut what = Repartition::paper(&groups, method)?;
    if quick {
        what.data_bytes /= 10;
    }
    let permille = (x * 1_000.0).round() as u32;
    match sweep {
        Sweep::Data | Sweep::Disks => what.data_bytes = (x * 1e12) as u64,
        Sweep::Memory => what.memory_bytes = (x * 1e9) as u64,
        Sweep::InputSkew => what.input_skew_permille = permille,
        Sweep::OutputSkew => what.output_skew_permille = permille,
        Sweep::Groups | Sweep::Switch => {}
    }
    Ok(what)
}
