//! The runs of Pelican's evaluation. Rows and figures share them.

use super::calibration::{Calibration, SHIPPED};
use crate::fill::{Capacities, DriveRule, Filled, Filling};
use crate::parallel::run_each;
use crate::reproduce::judge::{Followed, Sample};
use crate::{Arrivals, Experiment, ExperimentError, Network, Point, SeededPoint, Sizes, System, Workload};
use engine::ReadPolicy;
use model::{DomainLimit, RackDraft, RackSpec, Resource, SpecError};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::time::Duration;

/// The series of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Series {
    /// Pelican, 40 Gb/s, by rate.
    Pelican,
    /// Pelican, unbounded network, by rate.
    PelicanUnbounded,
    /// FP, 40 Gb/s, by rate.
    Fp,
    /// FP, unbounded network, by rate.
    FpUnbounded,
    /// The random layout, by rate.
    Random,
    /// Pelican at 5 requests per second, by u.
    ByU,
    /// Pelican with reads of k stacks instead of k + r, by rate.
    ReadK,
    /// The prototype, by burst.
    Burst,
    /// Pelican, 40 Gb/s, during a rebuild, by rate.
    Rebuild,
    /// The same, with turns of 300 s instead of 60 s for each class of work.
    RebuildInLongTurns,
}

/// A GB of the text in bytes.
pub const GB: u64 = 1_000_000_000;

/// A filled rack.
#[derive(Clone, Debug, Serialize)]
pub struct FilledRack {
    /// The distribution of its drives' sizes; `None` for equal drives.
    pub capacities: Option<Capacities>,
    /// True if the drives of a group are chosen at random.
    pub random: bool,
    /// The seed of its sizes, its blobs and its choices.
    pub seed: u64,
    /// The used bytes, as a multiple of the capacity of a rack with all drives clipped to 4.2 TB.
    pub over_clipped: f64,
    /// The result.
    pub filled: Filled,
}

/// All runs.
#[derive(Debug)]
pub struct Runs {
    /// The rack.
    pub rack: RackSpec,
    /// The number of its classes.
    pub classes: usize,
    /// True for the quick form.
    pub quick: bool,
    /// The number of seeds used, the first ones of [`SEEDS`].
    seeds: usize,
    /// The settings for the gaps in the text.
    calibration: &'static Calibration,
    /// All points, with their series.
    pub points: Vec<(Series, SeededPoint)>,
    /// The filled racks.
    pub fills: Vec<FilledRack>,
}

impl Runs {
    /// Simulates the evaluation of `rack`, which is Pelican's, on this number of threads; calls `done` with the number
    /// of finished runs and of all runs.
    ///
    /// The full form measures 24 hours after a warm-up of 6 hours (24 near the capacity) at every rate, with the seeds
    /// of [`SEEDS`] for all rows that are judged. The quick form measures 6 hours after 3, with one seed at some of the
    /// rates; the drives of filled racks and the failed drive have a twentieth of their size.
    ///
    /// # Errors
    /// [`ExperimentError`].
    pub fn new(
        rack: &RackSpec,
        quick: bool,
        threads: NonZeroUsize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, ExperimentError> {
        let form = Form { quick, seeds: if quick { 1 } else { SEEDS.len() }, calibration: &SHIPPED, like: None };
        Self::of(rack, form, threads, done)
    }

    /// The same for any form.
    ///
    /// # Errors
    /// [`ExperimentError`].
    pub fn of(
        rack: &RackSpec,
        form: Form<'_>,
        threads: NonZeroUsize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, ExperimentError> {
        let Form { quick, seeds, calibration, like } = form;
        let mut draft = RackDraft::clone(rack);
        calibration.change(&mut draft.profile);
        let rack = RackSpec::validated(draft)?;
        let classes = engine::layout::synthesise(&rack)?.classes.len();
        let mut asked = experiments(&rack, form)?;
        asked.retain(|(series, _)| !form.has_already(*series));
        let (series, experiments): (Vec<Series>, Vec<Experiment>) = asked.into_iter().unzip();
        let to_fill = if like.is_some() { Vec::new() } else { to_fill(form) };
        let all = experiments.len() + to_fill.len();
        let points = run_each(&experiments, threads, &crate::run_seeds, &|count| done(count, all))?;
        let filled = |count| done(experiments.len() + count, all);
        let mut fills = run_each(&to_fill, threads, &|to_fill| fill_one(&rack, to_fill, quick), &filled)?;
        fills.extend(like.iter().flat_map(|like| like.fills.clone()));
        let known = like.iter().flat_map(|like| &like.points).filter(|(series, _)| form.has_already(*series)).cloned();
        let points = series.into_iter().zip(points).chain(known).collect();
        Ok(Self { rack, classes, quick, seeds, calibration, points, fills })
    }

    /// The payload by which a request may be overtaken at this u.
    fn u_bytes(&self, gigabytes: u64) -> u64 {
        self.calibration.u_bytes(gigabytes * GB)
    }

    /// The text's u, in gigabytes, for a limit in payload bytes.
    pub fn u_gigabytes(&self, limit: u64) -> f64 {
        self.calibration.u_of(limit) as f64 / GB as f64
    }

    /// All seeds together.
    pub fn all(&self) -> View<'_> {
        View { runs: self, seed: None }
    }

    /// Each seed alone.
    pub fn each(&self) -> impl Iterator<Item = View<'_>> {
        (0..self.seeds).map(|seed| View { runs: self, seed: Some(seed) })
    }

    /// A number for no finding, from all available seeds together.
    pub fn once<'a>(&'a self, of: impl Fn(View<'a>) -> f64) -> Sample {
        Sample::from(of(self.all()))
    }

    /// A number over the seeds.
    pub fn sample<'a>(&'a self, of: impl Fn(View<'a>) -> f64) -> Sample {
        Sample::of(self.each().map(of))
    }

    /// The number of seeds that follow a trend.
    pub fn followed<'a>(&'a self, goes: impl Fn(View<'a>) -> bool) -> Followed {
        self.each().map(goes).collect()
    }
}

/// The seeds of all judged rows.
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// An extent of the evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// True for the quick form.
    pub quick: bool,
    /// The number of seeds, the first ones of [`SEEDS`].
    pub seeds: usize,
    /// The settings for the gaps in the text.
    pub calibration: &'static Calibration,
    /// Runs of the same extent; the series that a calibration does not affect are copied from them.
    pub like: Option<&'a Runs>,
}

impl Form<'_> {
    /// True for a series that can be copied from `like`: racks that never switch do not mount.
    fn has_already(self, series: Series) -> bool {
        self.like.is_some_and(|like| match series {
            Series::Random => true,
            Series::Fp | Series::FpUnbounded => like.calibration.fp_depth == self.calibration.fp_depth,
            _ => false,
        })
    }

    fn seeds(self) -> &'static [u64] {
        &SEEDS[..self.seeds.min(SEEDS.len())]
    }
}

/// The runs of one seed, or those of all seeds together.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The runs.
    pub runs: &'a Runs,
    seed: Option<usize>,
}

impl<'a> View<'a> {
    /// The points of a series, in the order of its sweep.
    pub fn of(self, series: Series) -> impl Iterator<Item = &'a Point> + Clone {
        let points = self.runs.points.iter().filter(move |(of, _)| *of == series);
        points.map(move |(_, point)| self.point(point))
    }

    /// The point of this view.
    pub fn point(self, point: &'a SeededPoint) -> &'a Point {
        self.seed.and_then(|seed| point.each.get(seed)).unwrap_or(&point.all)
    }

    /// The point of a series at a rate that every form has.
    pub fn at(self, series: Series, reads_per_s: f64) -> &'a Point {
        let found = self.of(series).find(|point| (rate(point) - reads_per_s).abs() < 1e-6);
        let Some(point) = found else { panic!("{series:?} was not simulated at {reads_per_s} requests a second") };
        point
    }

    /// The point of a u that every form has.
    pub fn at_u(self, gigabytes: u64) -> &'a Point {
        let found = self.of(Series::ByU).find(|point| point.parameters.overtake_limit == self.runs.u_bytes(gigabytes));
        let Some(point) = found else { panic!("u = {gigabytes} GB was not simulated") };
        point
    }

    /// The racks filled with drives that vary or not, chosen at random or not.
    pub fn filled(self, vary: bool, random: bool) -> impl Iterator<Item = &'a FilledRack> {
        let seed = self.seed.and_then(|index| SEEDS.get(index).copied());
        let alike = move |rack: &&FilledRack| rack.capacities.is_some() == vary && rack.random == random;
        self.runs.fills.iter().filter(alike).filter(move |rack| seed.is_none_or(|seed| rack.seed == seed))
    }
}

/// The requests per second of a point.
pub fn rate(point: &Point) -> f64 {
    point.parameters.reads_per_s.unwrap_or(0.0)
}

/// The throughput of a point in Gb/s.
pub fn gbit(point: &Point) -> f64 {
    point.throughput_bytes_per_s * 8e-9
}

/// `rack` as in the paper's cross-validation: of the two drives that may spin in a tray, only one may spin up at a
/// time.
///
/// # Errors
/// [`SpecError`] if the result is not a valid rack.
pub fn prototype(rack: &RackSpec) -> Result<RackSpec, SpecError> {
    let mut draft = RackDraft::clone(rack);
    let power = draft.resources.iter().position(|resource| resource.hard && resource.name == "power");
    let power = power.unwrap_or(0);
    let limit = DomainLimit::StartingDrives(1);
    draft.resources.push(Resource { name: "starts".into(), limit, hard: true });
    for drive in &mut draft.drives {
        drive.resource_domains.push(drive.resource_domains[power]);
    }
    RackSpec::validated(draft)
}

fn experiments(rack: &RackSpec, form: Form<'_>) -> Result<Vec<(Series, Experiment)>, SpecError> {
    let Form { quick, calibration, .. } = form;
    let mut base = Experiment::pelican(rack.clone());
    base.policy.scheduler.quantum = Duration::from_secs(calibration.quantum_s);
    base.policy.scheduler.overtake_limit = calibration.u_bytes(base.policy.scheduler.overtake_limit);
    if quick {
        base.warm_up = Duration::from_hours(3);
        base.duration = Duration::from_hours(6);
    }
    base.seeds = form.seeds().to_vec();
    let rates: &[f64] = if quick {
        &[0.0625, 0.25, 0.5, 1.0, 4.0, 5.0, 8.0]
    } else {
        &[0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    };
    let mut all = Vec::new();
    let mut sweep = |series, system, network, rates: &[f64]| {
        for rate in rates {
            let warm_up = warm_up(quick, system, network, *rate);
            let mut experiment = Experiment { system, network, warm_up, ..at_rate(&base, *rate) };
            if system == System::FullyProvisioned {
                experiment.policy.scheduler.queue_depth = calibration.fp_depth;
            }
            if series == Series::FpUnbounded {
                experiment.seeds.truncate(1); // everything said about it is by construction
            }
            all.push((series, experiment));
        }
    };
    // The longest runs come first, so no thread is left with a long one at the end.
    let beyond: &[f64] = if quick { &[16.0] } else { &[16.0, 14.0, 12.0, 10.0] };
    sweep(Series::FpUnbounded, System::FullyProvisioned, Network::UNBOUNDED, beyond);
    sweep(Series::FpUnbounded, System::FullyProvisioned, Network::UNBOUNDED, rates);
    sweep(Series::Fp, System::FullyProvisioned, Network::PELICAN, rates);
    sweep(Series::PelicanUnbounded, System::Engine, Network::UNBOUNDED, rates);
    sweep(Series::Pelican, System::Engine, Network::PELICAN, rates);
    sweep(Series::Random, System::RandomLayout, Network::PELICAN, if quick { &[0.0625, 8.0] } else { rates });
    by_policy(&base, form, &mut all);
    rebuilds(&base, quick, &mut all);
    bursts(&base, quick, &mut all)?;
    Ok(all)
}

/// `base` with reads at this mean rate.
fn at_rate(base: &Experiment, reads_per_s: f64) -> Experiment {
    let workload = Workload { arrivals: Arrivals::poisson(reads_per_s), ..base.workload.clone() };
    Experiment { workload, ..base.clone() }
}

/// Rebuilds under clients. [`Series::Pelican`] is the same without a failure.
fn rebuilds(base: &Experiment, quick: bool, all: &mut Vec<(Series, Experiment)>) {
    let failing = Experiment::pelican_rebuild(base.rack.clone());
    for rate in if quick { &[0.25, 8.0][..] } else { &[0.0625, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0] } {
        let (stored_permille, mut fault) = (failing.stored_permille, failing.fault);
        if let Some(fault) = fault.as_mut().filter(|_| quick) {
            (fault.blobs, fault.bytes) = (fault.blobs / 20, fault.bytes / 20);
        }
        let warm_up = warm_up(quick, System::Engine, base.network, *rate);
        let experiment = Experiment { stored_permille, warm_up, fault, ..at_rate(base, *rate) };
        // No row is judged by these runs.
        let mut in_long_turns = Experiment { seeds: vec![SEEDS[0]], ..experiment.clone() };
        in_long_turns.policy.scheduler.quantum = Duration::from_mins(5);
        all.push((Series::Rebuild, experiment));
        if !quick {
            all.push((Series::RebuildInLongTurns, in_long_turns));
        }
    }
}

/// The time until queues have settled. It is longer where the load is near the capacity, and where queues of 48,000
/// requests fill slowly.
fn warm_up(quick: bool, system: System, network: Network, reads_per_s: f64) -> Duration {
    let slow = match system {
        System::FullyProvisioned if network == Network::UNBOUNDED => reads_per_s > 13.0,
        System::FullyProvisioned => reads_per_s >= 5.0,
        System::Engine => (3.5..4.5).contains(&reads_per_s),
        System::RandomLayout => false,
    };
    Duration::from_hours(match (quick, slow) {
        (true, _) => 3,
        (false, true) => 24,
        (false, false) => 6,
    })
}

/// Sweeps of u at 5 requests per second, and reads of k stacks.
fn by_policy(base: &Experiment, form: Form<'_>, all: &mut Vec<(Series, Experiment)>) {
    let quick = form.quick;
    let by_u: &[u64] =
        if quick { &[0, 50, 350, 1_000] } else { &[0, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 750, 1_000] };
    for limit in by_u {
        let mut experiment = at_rate(base, 5.0);
        experiment.policy.scheduler.overtake_limit = form.calibration.u_bytes(limit * GB);
        all.push((Series::ByU, experiment));
    }
    for rate in if quick { &[][..] } else { &[0.0625, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0] } {
        let warm_up = warm_up(quick, System::Engine, base.network, *rate);
        // No row is judged by these runs.
        let mut experiment = Experiment { warm_up, seeds: vec![1], ..at_rate(base, *rate) };
        experiment.policy.read_policy = ReadPolicy::K;
        all.push((Series::ReadK, experiment));
    }
}

fn bursts(base: &Experiment, quick: bool, all: &mut Vec<(Series, Experiment)>) -> Result<(), SpecError> {
    let rack = prototype(&base.rack)?;
    for reads in if quick { &[15, 240, 1_920][..] } else { &[15, 30, 60, 120, 240, 480, 960, 1_920] } {
        let mut experiment = Experiment { rack: rack.clone(), network: Network::PROTOTYPE, ..base.clone() };
        experiment.workload.arrivals = Arrivals::Burst { reads: *reads, over: Duration::from_mins(1) };
        all.push((Series::Burst, experiment));
    }
    Ok(())
}

/// A rack to fill.
#[derive(Clone, Copy, Debug)]
struct ToFill {
    /// The variation of its drives.
    shape: Option<Capacities>,
    /// True if the drives of a group are chosen at random.
    random: bool,
    seed: u64,
}

/// The racks to fill. Shapes without a judged row have one rack each.
fn to_fill(form: Form<'_>) -> Vec<ToFill> {
    let shape = |draws: u8| Some(Capacities { draws, ..Capacities::PELICAN });
    let judged = form.seeds().iter().flat_map(|seed| {
        [(None, false), (shape(2), true), (shape(2), false)].map(|(shape, random)| ToFill {
            shape,
            random,
            seed: *seed,
        })
    });
    let others: &[u8] = if form.quick { &[] } else { &[1, 4] };
    let others = others.iter().map(|draws| ToFill { shape: shape(*draws), random: false, seed: SEEDS[0] });
    judged.chain(others).collect()
}

fn fill_one(rack: &RackSpec, to_fill: &ToFill, quick: bool) -> Result<FilledRack, ExperimentError> {
    let ToFill { shape, random, seed } = *to_fill;
    let scale = if quick { 20 } else { 1 };
    let Capacities { min_bytes, max_bytes, .. } = Capacities::PELICAN;
    let mean = u64::midpoint(min_bytes, max_bytes);
    let equal = Capacities { min_bytes: mean, max_bytes: mean, draws: 1 };
    let sizes = shape.unwrap_or(equal);
    let filling = Filling {
        rack: rack.clone(),
        capacities: Capacities { min_bytes: sizes.min_bytes / scale, max_bytes: sizes.max_bytes / scale, ..sizes },
        clipped: false,
        sizes: Sizes::VHD,
        rule: if random { DriveRule::Random } else { DriveRule::MostSpare },
        seeds: vec![seed],
    };
    let filled = filling.once(seed)?;
    Ok(FilledRack { capacities: shape, random, seed, over_clipped: filling.over_clipped(&filled), filled })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_prototype_starts_one_drive_of_a_tray_at_a_time_in_the_same_groups() {
        let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let rack = model::text::parse(text, name).unwrap();
        let prototype = prototype(&rack).unwrap();
        let starts = prototype.resources.last().unwrap();
        assert_eq!((starts.limit, starts.hard), (DomainLimit::StartingDrives(1), true));
        let of = |spec: &RackSpec| engine::layout::synthesise(spec).unwrap().groups;
        assert_eq!(of(&rack), of(&prototype));
    }
}
