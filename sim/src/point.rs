//! The combined measurements of several runs of one experiment: a point of a sweep.

use crate::experiment::{Arrivals, Experiment, System};
use crate::histogram::Histogram;
use crate::links::Network;
use crate::measure::{Clients, Measured, Summary};
use engine::ReadPolicy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The experience of the clients of some classes, over all seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSummary {
    /// From issue to first byte.
    pub ttfb_s: Summary,
    /// From issue to last byte.
    pub completion_s: Summary,
    /// The share of refused requests.
    pub reject_rate: f64,
}

impl ClientSummary {
    fn of<'a>(runs: impl Iterator<Item = &'a Clients>) -> Self {
        let mut all = Clients::default();
        runs.for_each(|run| all.merge(run));
        Self {
            ttfb_s: Summary::of(&all.first_byte),
            completion_s: Summary::of(&all.completion),
            reject_rate: all.reject_rate(),
        }
    }
}

/// The consequences of a drive's failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RebuildPoint {
    /// From the failure until every blob was whole again, in seconds, mean over the seeds; `None` if the rebuild did
    /// not end under one of them.
    pub rebuild_s: Option<f64>,
    /// Clients of the failed drive's class, during the rebuild.
    pub in_class: ClientSummary,
    /// Clients of all other classes, during the rebuild.
    pub elsewhere: ClientSummary,
}

impl RebuildPoint {
    fn of(runs: &[Measured]) -> Option<Self> {
        let clients: Option<Vec<&[Clients; 2]>> = runs.iter().map(|run| run.by_class.as_ref()).collect();
        let clients = clients?;
        let took: Option<Vec<f64>> = runs.iter().map(|run| Some(run.rebuild?.as_secs_f64())).collect();
        Some(Self {
            rebuild_s: took.map(|took| took.iter().sum::<f64>() / took.len() as f64),
            in_class: ClientSummary::of(clients.iter().map(|[in_class, _]| in_class)),
            elsewhere: ClientSummary::of(clients.iter().map(|[_, elsewhere]| elsewhere)),
        })
    }
}

/// Power draw of all drives together, in watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// The mean.
    pub mean: f64,
    /// The peak.
    pub peak: f64,
}

/// Half the width of the 95 % confidence interval of a mean over the seeds (Student's t); `None` for a single seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    /// Of the throughput, in bytes/s.
    pub throughput_bytes_per_s: Option<f64>,
    /// Of the mean time to first byte, in seconds.
    pub ttfb_mean_s: Option<f64>,
    /// Of the mean service time, in seconds.
    pub service_mean_s: Option<f64>,
    /// Of the share of refused requests.
    pub reject_rate: Option<f64>,
}

/// The parameters of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The rack's name.
    pub rack: String,
    /// The deciding system.
    pub system: System,
    /// The servers' network.
    pub network: Network,
    /// Reads per second of a Poisson load.
    pub reads_per_s: Option<f64>,
    /// Reads of a burst.
    pub burst_reads: Option<u32>,
    /// u, in the unit of the policy's weighing.
    pub overtake_limit: u64,
    /// Capacity of a queue, in requests.
    pub queue_depth: u32,
    /// The stacks that reads request.
    pub read_policy: ReadPolicy,
    /// The duration of the unmeasured warm-up, in seconds.
    pub warm_up_s: f64,
    /// The measured time, in seconds, mean over the seeds.
    pub measured_s: f64,
    /// The seeds.
    pub seeds: Vec<u64>,
}

/// A point over all seeds, and a point for each seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeededPoint {
    /// All seeds together.
    pub all: Point,
    /// Each seed alone, in the same order.
    pub each: Vec<Point>,
}

impl SeededPoint {
    pub(crate) fn of(experiment: &Experiment, runs: &[Measured]) -> Self {
        let alone = |(seed, run): (&u64, &Measured)| {
            Point::of(experiment, std::slice::from_ref(seed), std::slice::from_ref(run))
        };
        Self {
            all: Point::of(experiment, &experiment.seeds, runs),
            each: experiment.seeds.iter().zip(runs).map(alone).collect(),
        }
    }
}

/// A point: its parameters, and its measurements over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The parameters.
    pub parameters: Parameters,
    /// Payload that left through the network, in bytes/s.
    pub throughput_bytes_per_s: f64,
    /// From issue to first byte.
    pub ttfb_s: Summary,
    /// From issue to last byte.
    pub completion_s: Summary,
    /// From leaving the queue to the last byte, including wakes.
    pub service_s: Summary,
    /// The share of refused requests.
    pub reject_rate: f64,
    /// The share of the schedulers' time in which they waited for drives to rest and wake.
    pub wake_time_fraction: f64,
    /// Starts of a drive per year.
    pub spin_ups_per_drive_year: f64,
    /// Rated starts of a drive per year of its life.
    pub rated_starts_per_drive_year: f64,
    /// True if drives start more often than that, so they wear out before the end of their life.
    pub beyond_rating: bool,
    /// Data that a drive transfers per year, in 10^12 bytes, including redundancy.
    pub tb_per_drive_year: f64,
    /// Power draw of all drives.
    pub power_w: Power,
    /// The time that the engine took to initialise every group, before anything else, in seconds.
    pub boot_s: f64,
    /// The time from the first request until the number of open requests of a Poisson load was steady, in seconds, in
    /// the slowest run (MSER-5); `None` if some run needed at least half of its time.
    pub steady_after_s: Option<f64>,
    /// True if that was within the warm-up, so the results do not depend on the time of the measurement; `None` without
    /// a steady state, as for a burst or a rebuild.
    pub settled: Option<bool>,
    /// The time from the first request until the open requests of a Poisson load were for the first time fewer than
    /// half of what the queues hold, in seconds, in the slowest run; `None` if that never happened in some run.
    pub drained_after_s: Option<f64>,
    /// Mean number of requests of a Poisson load that waited or were served.
    pub open_mean: Option<f64>,
    /// The consequences of a drive's failure, if one failed.
    pub rebuild: Option<RebuildPoint>,
    /// The confidence intervals of the means.
    pub ci95: Confidence,
    /// Answered requests, over all seeds.
    pub answered: u64,
    /// Refused requests, over all seeds.
    pub refused: u64,
    /// Events reported to the engine in the measured time, over all seeds.
    pub events: u64,
    /// The trace hash of each seed's run.
    pub trace_hashes: Vec<u64>,
}

impl Point {
    fn of(experiment: &Experiment, seeds: &[u64], runs: &[Measured]) -> Self {
        assert!(!runs.is_empty() && runs.len() == seeds.len(), "each seed has a run");
        let mean = |of: &dyn Fn(&Measured) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let spin_ups_per_drive_year = mean(&|run| run.per_drive_year(run.spin_ups as f64));
        let profile = &experiment.rack.profile;
        let rated_starts_per_drive_year = f64::from(profile.rated_starts) / f64::from(profile.life_years);
        let all = |of: fn(&Measured) -> &Histogram| {
            let mut merged = Histogram::default();
            for run in runs {
                merged.merge(of(run));
            }
            Summary::of(&merged)
        };
        Self {
            parameters: parameters(experiment, seeds, mean(&|run| run.span.as_secs_f64())),
            throughput_bytes_per_s: mean(&Measured::throughput_bytes_per_s),
            ttfb_s: all(|run| &run.clients.first_byte),
            completion_s: all(|run| &run.clients.completion),
            service_s: all(|run| &run.service),
            reject_rate: mean(&|run| run.clients.reject_rate()),
            wake_time_fraction: mean(&|run| run.wake_time_fraction),
            spin_ups_per_drive_year,
            rated_starts_per_drive_year,
            beyond_rating: spin_ups_per_drive_year > rated_starts_per_drive_year,
            tb_per_drive_year: mean(&|run| run.per_drive_year(run.drive_bytes as f64) / 1e12),
            power_w: Power {
                mean: mean(&|run| run.mean_power_mw as f64 / 1e3),
                peak: runs.iter().map(|run| run.peak_power_mw).max().unwrap_or(0) as f64 / 1e3,
            },
            boot_s: mean(&|run| run.boot.as_secs_f64()),
            steady_after_s: last(runs, |run| run.steady_after),
            drained_after_s: last(runs, |run| run.drained_after),
            open_mean: runs.iter().map(|run| run.open_mean).sum::<Option<f64>>().map(|sum| sum / runs.len() as f64),
            settled: settled(experiment, runs),
            rebuild: RebuildPoint::of(runs),
            ci95: Confidence {
                throughput_bytes_per_s: half_width(runs.iter().map(Measured::throughput_bytes_per_s)),
                ttfb_mean_s: half_width(runs.iter().filter_map(|run| run.clients.first_byte.mean_s())),
                service_mean_s: half_width(runs.iter().filter_map(|run| run.service.mean_s())),
                reject_rate: half_width(runs.iter().map(|run| run.clients.reject_rate())),
            },
            answered: runs.iter().map(|run| run.clients.answered).sum(),
            refused: runs.iter().map(|run| run.clients.refused).sum(),
            events: runs.iter().map(|run| run.events).sum(),
            trace_hashes: runs.iter().map(|run| run.trace_hash).collect(),
        }
    }
}

/// The largest of a time over the runs, in seconds; `None` if some run has none.
fn last(runs: &[Measured], of: impl Fn(&Measured) -> Option<Duration>) -> Option<f64> {
    runs.iter().try_fold(0.0_f64, |most, run| Some(most.max(of(run)?.as_secs_f64())))
}

fn settled(experiment: &Experiment, runs: &[Measured]) -> Option<bool> {
    let steady = matches!(experiment.workload.arrivals, Arrivals::Poisson { .. }) && experiment.fault.is_none();
    let in_time = |run: &Measured| run.steady_after.is_some_and(|after| after <= experiment.warm_up);
    steady.then(|| runs.iter().all(in_time))
}

fn parameters(experiment: &Experiment, seeds: &[u64], measured_s: f64) -> Parameters {
    let (reads_per_s, burst_reads, warm_up) = match &experiment.workload.arrivals {
        Arrivals::Poisson { mean_gap } => (Some(rate_of(*mean_gap)), None, experiment.warm_up),
        Arrivals::Burst { reads, .. } => (None, Some(*reads), Duration::ZERO),
        Arrivals::Replay(_) => (None, None, Duration::ZERO),
    };
    Parameters {
        rack: experiment.rack.name.clone(),
        system: experiment.system,
        network: experiment.network,
        reads_per_s,
        burst_reads,
        overtake_limit: experiment.policy.scheduler.overtake_limit,
        queue_depth: experiment.policy.scheduler.queue_depth,
        read_policy: experiment.policy.read_policy,
        warm_up_s: warm_up.as_secs_f64(),
        measured_s,
        seeds: seeds.to_vec(),
    }
}

/// The requested rate: of those with this mean gap, the one with the fewest decimals. A third of a second is not a
/// whole number of nanoseconds, but the request was 3 per second.
fn rate_of(mean_gap: Duration) -> f64 {
    let exact = mean_gap.as_secs_f64().recip();
    let rounded = (0..=9).filter_map(|decimals| format!("{exact:.decimals$}").parse().ok());
    let mut asked = rounded.filter(|rate: &f64| Arrivals::poisson(*rate) == Arrivals::Poisson { mean_gap });
    asked.next().unwrap_or(exact)
}

/// Half the width of the 95 % confidence interval of the mean of `values` (Student's t); `None` for fewer than two.
pub(crate) fn half_width(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count();
    if count < 2 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / count as f64;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
    Some(t_95((count - 1) as f64) * (variance / count as f64).sqrt())
}

/// The quantile of Student's t distribution that bounds 95 % on both sides.
fn t_95(degrees_of_freedom: f64) -> f64 {
    distrs::StudentsT::ppf(0.975, degrees_of_freedom)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees_of_freedom, tabulated) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (5.0, 2.571),
            (6.0, 2.447),
            (7.0, 2.365),
            (8.0, 2.306),
            (9.0, 2.262),
            (10.0, 2.228),
            (11.0, 2.201),
            (12.0, 2.179),
            (15.0, 2.131),
            (20.0, 2.086),
            (30.0, 2.042),
            (60.0, 2.000),
            (120.0, 1.980),
        ] {
            let found = t_95(degrees_of_freedom);
            assert!((found - tabulated).abs() < 0.000_6, "{degrees_of_freedom}: {found}, {tabulated}");
        }
    }

    #[test]
    fn the_rate_is_the_one_that_was_asked_for() {
        for rate in [0.0625, 0.125, 0.3, 1.0, 3.0, 3.8, 7.0, 16.0, 1.0 / 120.0] {
            let Arrivals::Poisson { mean_gap } = Arrivals::poisson(rate) else { panic!("it is Poisson") };
            let found = rate_of(mean_gap);
            assert!((found / rate - 1.0).abs() < 1e-6, "{found} for {rate}");
            assert!(rate < 0.01 || found.to_string() == rate.to_string(), "{found} for {rate}");
        }
    }

    #[test]
    fn confidence_is_students() {
        assert_eq!(half_width([1.0].into_iter()), None);
        let three = half_width([1.0, 2.0, 3.0].into_iter()).unwrap();
        assert!((three - 4.302_652_73 / 3_f64.sqrt()).abs() < 1e-8, "{three}");
        let twelve = half_width((1..=12).map(f64::from)).unwrap();
        assert!((twelve - 2.200_985 * (13.0_f64 / 12.0).sqrt()).abs() < 1e-5, "{twelve}");
    }
}
