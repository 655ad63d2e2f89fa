//! The runs of Pelican's evaluation. Rows and figures share them.

use crate::fill::{Capacities, DriveRule, Filled, fill, varied};
use crate::parallel::run_each;
use crate::{Arrivals, Experiment, ExperimentError, Network, Point, Sizes, System, Workload};
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
    /// Pelican at 5 requests a second, by u.
    ByU,
    /// Pelican that reads k stacks instead of k + r, by rate.
    ReadK,
    /// The prototype, by burst.
    Burst,
    /// Pelican, 40 Gb/s, while a drive is rebuilt, by rate.
    Rebuild,
    /// The same, with turns of 300 s instead of 60 s for each class of work.
    RebuildInLongTurns,
}

/// A GB of the text in bytes.
pub const GB: u64 = 1_000_000_000;

/// A rack that was filled.
#[derive(Clone, Debug, Serialize)]
pub struct FilledRack {
    /// The distribution of the sizes of its drives; `None` if they are equal.
    pub capacities: Option<Capacities>,
    /// True if the drives of a group are chosen at random.
    pub random: bool,
    /// The bytes used, over the capacity of a rack whose drives are all clipped to 4.2 TB.
    pub over_clipped: f64,
    /// The result.
    pub filled: Filled,
}

/// All runs.
#[derive(Debug)]
pub struct Runs {
    /// The rack.
    pub rack: RackSpec,
    /// Its classes.
    pub classes: usize,
    /// True for the quick form.
    pub quick: bool,
    /// Every point, and its series.
    pub points: Vec<(Series, Point)>,
    /// Racks that were filled.
    pub fills: Vec<FilledRack>,
}

impl Runs {
    /// Simulates the evaluation of `rack`, which is Pelican's, on so many threads; calls `done` with the number of runs
    /// done, and of all.
    ///
    /// The full form measures 24 hours after 6 of warm-up (24 near what can be served) at every rate, with three seeds
    /// for Pelican by rate and for bursts, and one for all else. The quick form measures 6 hours after 3, with one seed
    /// at some rates; drives have a twentieth of their size where racks are filled, as has the failed drive.
    ///
    /// # Errors
    /// [`ExperimentError`].
    pub fn new(
        rack: RackSpec,
        quick: bool,
        threads: NonZeroUsize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, ExperimentError> {
        let classes = engine::layout::synthesise(&rack)?.classes.len();
        let (series, experiments): (Vec<Series>, Vec<Experiment>) = experiments(&rack, quick)?.into_iter().unzip();
        let to_fill = to_fill(quick);
        let all = experiments.len() + to_fill.len();
        let points = run_each(&experiments, threads, &crate::run, &|count| done(count, all))?;
        let filled = |count| done(experiments.len() + count, all);
        let fills = run_each(&to_fill, threads, &|to_fill| fill_one(&rack, *to_fill, quick), &filled)?;
        Ok(Self { rack, classes, quick, points: series.into_iter().zip(points).collect(), fills })
    }

    /// The points of a series, in the order of its sweep.
    pub fn of(&self, series: Series) -> impl Iterator<Item = &Point> + Clone {
        self.points.iter().filter(move |(of, _)| *of == series).map(|(_, point)| point)
    }

    /// The point of a series at a rate that every extent has.
    pub fn at(&self, series: Series, reads_per_s: f64) -> &Point {
        let found = self.of(series).find(|point| (rate(point) - reads_per_s).abs() < 1e-6);
        let Some(point) = found else { panic!("{series:?} was not simulated at {reads_per_s} requests a second") };
        point
    }

    /// The point of a u that every extent has.
    pub fn at_u(&self, gigabytes: u64) -> &Point {
        let found = self.of(Series::ByU).find(|point| point.parameters.overtake_limit == gigabytes * GB);
        let Some(point) = found else { panic!("u = {gigabytes} GB was not simulated") };
        point
    }

    /// Racks that were filled with drives that vary or not, chosen at random or not.
    pub fn filled(&self, vary: bool, random: bool) -> impl Iterator<Item = &FilledRack> {
        self.fills.iter().filter(move |rack| rack.capacities.is_some() == vary && rack.random == random)
    }
}

/// Requests a second of a point.
pub fn rate(point: &Point) -> f64 {
    point.parameters.reads_per_s.unwrap_or(0.0)
}

/// Its throughput in Gb/s.
pub fn gbit(point: &Point) -> f64 {
    point.throughput_bytes_per_s * 8e-9
}

/// `rack` as the cross-validation had it: beside two drives that spin in a tray, one that spins up at a time.
///
/// # Errors
/// [`SpecError`] if that is no rack.
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

fn experiments(rack: &RackSpec, quick: bool) -> Result<Vec<(Series, Experiment)>, SpecError> {
    let mut base = Experiment::pelican(rack.clone());
    if quick {
        base.warm_up = Duration::from_hours(3);
        base.duration = Duration::from_hours(6);
        base.seeds = vec![1];
    }
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
            experiment.seeds.truncate(if system == System::Engine { 3 } else { 1 });
            all.push((series, experiment));
        }
    };
    // The longest runs come first, so that no thread is left with one at the end.
    let beyond: &[f64] = if quick { &[16.0] } else { &[16.0, 14.0, 12.0, 10.0] };
    sweep(Series::FpUnbounded, System::FullyProvisioned, Network::UNBOUNDED, beyond);
    sweep(Series::FpUnbounded, System::FullyProvisioned, Network::UNBOUNDED, rates);
    sweep(Series::Fp, System::FullyProvisioned, Network::PELICAN, rates);
    sweep(Series::PelicanUnbounded, System::Engine, Network::UNBOUNDED, rates);
    sweep(Series::Pelican, System::Engine, Network::PELICAN, rates);
    sweep(Series::Random, System::RandomLayout, Network::PELICAN, if quick { &[0.0625, 8.0] } else { rates });
    let once = Experiment { seeds: vec![1], ..base.clone() };
    by_policy(&once, quick, &mut all);
    rebuilds(&once, quick, &mut all);
    bursts(&base, quick, &mut all)?;
    Ok(all)
}

/// `base` with reads at this mean rate.
fn at_rate(base: &Experiment, reads_per_s: f64) -> Experiment {
    let workload = Workload { arrivals: Arrivals::poisson(reads_per_s), ..base.workload.clone() };
    Experiment { workload, ..base.clone() }
}

/// Rebuilds under clients. Without a failure the same is [`Series::Pelican`].
fn rebuilds(base: &Experiment, quick: bool, all: &mut Vec<(Series, Experiment)>) {
    let failing = Experiment::pelican_rebuild(base.rack.clone());
    for rate in if quick { &[0.25, 8.0][..] } else { &[0.0625, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0] } {
        let (stored_permille, mut fault) = (failing.stored_permille, failing.fault);
        if let Some(fault) = fault.as_mut().filter(|_| quick) {
            (fault.blobs, fault.bytes) = (fault.blobs / 20, fault.bytes / 20);
        }
        let warm_up = warm_up(quick, System::Engine, base.network, *rate);
        let experiment = Experiment { stored_permille, warm_up, fault, ..at_rate(base, *rate) };
        let mut in_long_turns = experiment.clone();
        in_long_turns.policy.scheduler.quantum = Duration::from_mins(5);
        all.push((Series::Rebuild, experiment));
        if !quick {
            all.push((Series::RebuildInLongTurns, in_long_turns));
        }
    }
}

/// The time until queues have settled: longer where the load is near the capacity, and where queues of 48,000 requests
/// fill slowly.
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

/// u at 5 requests a second, and reads of k stacks.
fn by_policy(base: &Experiment, quick: bool, all: &mut Vec<(Series, Experiment)>) {
    let by_u: &[u64] =
        if quick { &[0, 50, 350, 1_000] } else { &[0, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 750, 1_000] };
    for limit in by_u {
        let mut experiment = at_rate(base, 5.0);
        experiment.policy.scheduler.overtake_limit = limit * GB;
        all.push((Series::ByU, experiment));
    }
    for rate in if quick { &[][..] } else { &[0.0625, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0] } {
        let warm_up = warm_up(quick, System::Engine, base.network, *rate);
        let mut experiment = Experiment { warm_up, ..at_rate(base, *rate) };
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

/// A rack to be filled: how its drives vary, and whether those of a group are chosen at random.
type ToFill = (Option<Capacities>, bool);

/// The racks to be filled.
fn to_fill(quick: bool) -> Vec<ToFill> {
    let shapes: &[u8] = if quick { &[2] } else { &[2, 1, 4] };
    let shape = |draws: u8| Some(Capacities { draws, ..Capacities::PELICAN });
    let by_rule = shapes.iter().map(|draws| (shape(*draws), false));
    [(None, false), (shape(2), true)].into_iter().chain(by_rule).collect()
}

fn fill_one(rack: &RackSpec, (shape, random): ToFill, quick: bool) -> Result<FilledRack, ExperimentError> {
    let scale = if quick { 20 } else { 1 };
    let Capacities { min_bytes, max_bytes, .. } = Capacities::PELICAN;
    let mean = u64::midpoint(min_bytes, max_bytes);
    let equal = Capacities { min_bytes: mean, max_bytes: mean, draws: 1 };
    let sizes = shape.unwrap_or(equal);
    let scaled = Capacities { min_bytes: sizes.min_bytes / scale, max_bytes: sizes.max_bytes / scale, ..sizes };
    let sized = varied(rack, scaled, 1)?;
    let layout = engine::layout::synthesise(&sized)?;
    let rule = if random { DriveRule::Random } else { DriveRule::MostSpare };
    let filled = fill(&sized, &layout, Sizes::VHD, rule, 1);
    let clipped = min_bytes / scale * sized.drives.len() as u64;
    let over_clipped = filled.used_bytes as f64 / clipped as f64;
    Ok(FilledRack { capacities: shape, random, over_clipped, filled })
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
