//! What is measured of a run, and what several runs say together.
//!
//! Completion and time to first byte count from the moment a request was issued, service from the moment it left its
//! queue to its last byte, the wake it caused included (Pelican, section 5).
//!
//! Invariants: constant memory; an operation is counted when it ends, a request when it was issued or refused in the
//! time that is measured.

use crate::experiment::{Arrivals, Experiment, System};
use crate::histogram::Histogram;
use crate::links::Network;
use crate::world::{Counted, Ended, World};
use engine::{Lane, Mind, Outcome, ReadPolicy, Waking};
use model::{ClassId, GroupId, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Seconds in the year that rates are given for.
const YEAR_S: f64 = 365.25 * 86_400.0;

/// Takes the measurements of a run.
#[derive(Default)]
pub(crate) struct Taking {
    since: Time,
    boot: Duration,
    counted: Counted,
    waking: Waking,
    answered: u64,
    refused: u64,
    last_answer: Time,
    first_byte: Histogram,
    completion: Histogram,
    service: Histogram,
    watched: Option<Watched>,
    /// How long the rebuild took.
    rebuild: Option<Duration>,
}

/// The class of a drive that failed, beside the others.
struct Watched {
    class_of: Vec<ClassId>,
    class: ClassId,
    /// Clients of that class, and those of the others.
    clients: [Clients; 2],
}

/// What clients of some classes have experienced.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// From issue to first byte.
    pub first_byte: Histogram,
    /// From issue to last byte.
    pub completion: Histogram,
}

impl Clients {
    /// Takes one of their reads, which has ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        if matches!(ended.outcome, Outcome::Failed(_) | Outcome::Cancelled) {
            self.refused += 1;
            return;
        }
        self.answered += 1;
        self.completion.add(ended.at.since(ended.issued));
        if let Some(first_byte) = ended.first_byte {
            self.first_byte.add(first_byte.since(ended.issued));
        }
    }

    /// The share of requests that were refused.
    pub(crate) fn reject_rate(&self) -> f64 {
        self.refused as f64 / ((self.answered + self.refused) as f64).max(1.0)
    }

    /// Takes what others have experienced as well.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.first_byte.merge(&other.first_byte);
        self.completion.merge(&other.completion);
    }
}

impl Taking {
    /// Every group has been waked once.
    pub fn booted(&mut self, now: Time) {
        self.boot = now.since(Time::ZERO);
    }

    /// Forgets what was taken, and counts from now on.
    pub fn start<M: Mind>(&mut self, world: &mut World<M>) {
        let now = world.now();
        let boot = self.boot;
        let (counted, waking) = (world.counted(), world.rack.waking());
        *self = Self { since: now, last_answer: now, boot, counted, waking, ..Self::default() };
        world.meter().restart(now);
    }

    /// From now on clients of the class of `group`, where a drive has failed, are told apart from the others.
    pub fn watch_class(&mut self, class_of: Vec<ClassId>, group: GroupId) {
        let class = class_of[group.index()];
        self.watched = Some(Watched { class_of, class, clients: Default::default() });
    }

    /// The rebuild was over then, if it was.
    pub fn rebuilt(&mut self, at: Option<Time>) {
        self.rebuild = at.map(|at| at.since(self.since));
    }

    /// How long has been measured.
    pub fn so_far(&self, now: Time) -> Duration {
        now.since(self.since)
    }

    /// Takes what has ended since the last time.
    pub fn take<M: Mind>(&mut self, world: &mut World<M>) {
        world.drain_ended(|ended| self.ended(&ended));
    }

    /// Takes one operation that has ended, if a client waited for it.
    pub fn ended(&mut self, ended: &Ended) {
        if ended.lane != Lane::Client {
            return;
        }
        if let (Some(watched), Some(group)) = (&mut self.watched, ended.group) {
            let other = watched.class_of[group.index()] != watched.class;
            watched.clients[usize::from(other)].ended(ended);
        }
        if matches!(ended.outcome, Outcome::Failed(_) | Outcome::Cancelled) {
            self.refused += 1;
            return;
        }
        self.answered += 1;
        self.last_answer = ended.at;
        self.completion.add(ended.at.since(ended.issued));
        if let Some(first_byte) = ended.first_byte {
            self.first_byte.add(first_byte.since(ended.issued));
        }
        if let Some(picked) = ended.picked {
            self.service.add(ended.at.since(picked));
        }
    }

    /// What was measured, up to now.
    pub fn end<M: Mind>(self, world: &mut World<M>) -> Measured {
        let now = world.now();
        let span = now.since(self.since);
        let (before, after) = (self.counted, world.counted());
        let waking = world.rack.waking();
        let waked = waking.time.saturating_sub(self.waking.time).as_secs_f64();
        Measured {
            span,
            boot: self.boot,
            steady_after: None,
            drives: world.rack.spec().drives.len(),
            answered: self.answered,
            refused: self.refused,
            events: after.events - before.events,
            sent_bytes: after.sent_bytes - before.sent_bytes,
            drive_bytes: after.drive_bytes - before.drive_bytes,
            spin_ups: after.spin_ups - before.spin_ups,
            wake_time_fraction: waked / (span.as_secs_f64() * f64::from(waking.schedulers)).max(f64::MIN_POSITIVE),
            mean_power_mw: world.meter().mean_mw(now),
            peak_power_mw: world.meter().peak_mw(now),
            first_byte: self.first_byte,
            completion: self.completion,
            service: self.service,
            rebuild: self.rebuild,
            clients: self.watched.map(|watched| watched.clients),
            trace_hash: world.trace_hash(),
        }
    }
}

/// What was measured in one run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How long it was measured.
    pub span: Duration,
    /// How long it took to wake every group once, before.
    pub boot: Duration,
    /// How long after the first request of a Poisson load the number of open requests was in its steady state; `None`
    /// if it never was, half of the run at most being its beginning (MSER-5).
    pub steady_after: Option<Duration>,
    /// Drives in the rack.
    pub drives: usize,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Events told to the engine.
    pub events: u64,
    /// Payload bytes that left by the network.
    pub sent_bytes: u64,
    /// Bytes that drives read or wrote, redundancy included.
    pub drive_bytes: u64,
    /// Drives started.
    pub spin_ups: u64,
    /// The share of the schedulers' time in which they waited for drives to rest and wake.
    pub wake_time_fraction: f64,
    /// What all drives drew on average, in milliwatts.
    pub mean_power_mw: u64,
    /// The most that they drew, in milliwatts.
    pub peak_power_mw: u64,
    /// From issue to first byte.
    pub first_byte: Histogram,
    /// From issue to last byte.
    pub completion: Histogram,
    /// From the queue to the last byte.
    pub service: Histogram,
    /// How long the rebuild took, if a drive failed and its rebuild came to an end.
    pub rebuild: Option<Duration>,
    /// If a drive failed: the clients of its class, and those of all others.
    pub clients: Option<[Clients; 2]>,
    /// The same for two runs in which the same happened.
    pub trace_hash: u64,
}

impl Measured {
    fn throughput_bytes_per_s(&self) -> f64 {
        self.sent_bytes as f64 / self.span.as_secs_f64().max(1e-9)
    }

    fn reject_rate(&self) -> f64 {
        self.refused as f64 / ((self.answered + self.refused) as f64).max(1.0)
    }

    /// What `amount` in the time measured is for each drive in a year.
    fn per_drive_year(&self, amount: f64) -> f64 {
        amount / self.drives as f64 * YEAR_S / self.span.as_secs_f64().max(1e-9)
    }
}

/// A distribution of durations in short, in seconds. `None` where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The mean.
    pub mean: Option<f64>,
    /// Half are no longer; within [`Histogram::QUANTILE_ERROR`], as is `p99`.
    pub p50: Option<f64>,
    /// 99 of 100 are no longer.
    pub p99: Option<f64>,
    /// The longest of all.
    pub max: Option<f64>,
}

impl Summary {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let (p50, p99) = (histogram.quantile_s(500), histogram.quantile_s(990));
        Self { mean: histogram.mean_s(), p50, p99, max: histogram.max_s() }
    }
}

/// What clients of some classes have experienced, over all seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSummary {
    /// From issue to first byte.
    pub ttfb_s: Summary,
    /// From issue to last byte.
    pub completion_s: Summary,
    /// The share of requests that were refused.
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

/// What came of a drive's failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RebuildPoint {
    /// From the failure until every blob was whole again, in seconds, on average over the seeds; `None` if that did not
    /// come about in one of them.
    pub rebuild_s: Option<f64>,
    /// Clients of the class of the failed drive, while it was rebuilt.
    pub in_class: ClientSummary,
    /// Clients of all other classes, meanwhile.
    pub elsewhere: ClientSummary,
}

impl RebuildPoint {
    fn of(runs: &[Measured]) -> Option<Self> {
        let clients: Option<Vec<&[Clients; 2]>> = runs.iter().map(|run| run.clients.as_ref()).collect();
        let clients = clients?;
        let took: Option<Vec<f64>> = runs.iter().map(|run| Some(run.rebuild?.as_secs_f64())).collect();
        Some(Self {
            rebuild_s: took.map(|took| took.iter().sum::<f64>() / took.len() as f64),
            in_class: ClientSummary::of(clients.iter().map(|[in_class, _]| in_class)),
            elsewhere: ClientSummary::of(clients.iter().map(|[_, elsewhere]| elsewhere)),
        })
    }
}

/// Watts of all drives together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// On average.
    pub mean: f64,
    /// At most.
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
    /// Of the share of requests refused.
    pub reject_rate: Option<f64>,
}

/// What was asked for in a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The rack's name.
    pub rack: String,
    /// Who decided.
    pub system: System,
    /// What the servers could send.
    pub network: Network,
    /// Reads offered in a second, for a Poisson load.
    pub reads_per_s: Option<f64>,
    /// Reads of a burst.
    pub burst_reads: Option<u32>,
    /// u, in the unit of the policy's weighing.
    pub overtake_limit: u64,
    /// Requests a queue holds.
    pub queue_depth: u32,
    /// How reads treat spare stacks.
    pub read_policy: ReadPolicy,
    /// What was thrown away before, in seconds.
    pub warm_up_s: f64,
    /// What was measured, in seconds, on average over the seeds.
    pub measured_s: f64,
    /// The seeds.
    pub seeds: Vec<u64>,
}

/// A point: what was asked, and what was measured over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was asked.
    pub parameters: Parameters,
    /// Payload bytes that left by the network, in bytes/s.
    pub throughput_bytes_per_s: f64,
    /// From issue to first byte.
    pub ttfb_s: Summary,
    /// From issue to last byte.
    pub completion_s: Summary,
    /// From the queue to the last byte, wakes included.
    pub service_s: Summary,
    /// The share of requests that were refused.
    pub reject_rate: f64,
    /// The share of the schedulers' time in which they waited for drives to rest and wake.
    pub wake_time_fraction: f64,
    /// Starts of a drive in a year.
    pub spin_ups_per_drive_year: f64,
    /// Starts that a drive is rated for in a year of its life.
    pub rated_starts_per_drive_year: f64,
    /// Whether drives start more often than that, so that they wear out before their time.
    pub beyond_rating: bool,
    /// What a drive transfers in a year, in 10^12 bytes, redundancy included.
    pub tb_per_drive_year: f64,
    /// Watts of all drives.
    pub power_w: Power,
    /// How long it took to wake every group once, before anything else, in seconds.
    pub boot_s: f64,
    /// How long after the first request of a Poisson load the number of open requests was in its steady state, in
    /// seconds, in the slowest run (MSER-5); `None` if half of some run was not enough.
    pub steady_after_s: Option<f64>,
    /// What came of a drive's failure, if one failed.
    pub rebuild: Option<RebuildPoint>,
    /// How sure the means are.
    pub ci95: Confidence,
    /// Requests answered, over all seeds.
    pub answered: u64,
    /// Requests refused, over all seeds.
    pub refused: u64,
    /// Events told to the engine while it was measured, over all seeds.
    pub events: u64,
    /// For each seed, a number that is the same whenever the same happened.
    pub trace_hashes: Vec<u64>,
}

impl Point {
    pub(crate) fn of(experiment: &Experiment, runs: &[Measured]) -> Self {
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
            parameters: parameters(experiment, mean(&|run| run.span.as_secs_f64())),
            throughput_bytes_per_s: mean(&Measured::throughput_bytes_per_s),
            ttfb_s: all(|run| &run.first_byte),
            completion_s: all(|run| &run.completion),
            service_s: all(|run| &run.service),
            reject_rate: mean(&Measured::reject_rate),
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
            steady_after_s: runs.iter().try_fold(0.0_f64, |most, run| Some(most.max(run.steady_after?.as_secs_f64()))),
            rebuild: RebuildPoint::of(runs),
            ci95: Confidence {
                throughput_bytes_per_s: half_width(runs.iter().map(Measured::throughput_bytes_per_s)),
                ttfb_mean_s: half_width(runs.iter().filter_map(|run| run.first_byte.mean_s())),
                service_mean_s: half_width(runs.iter().filter_map(|run| run.service.mean_s())),
                reject_rate: half_width(runs.iter().map(Measured::reject_rate)),
            },
            answered: runs.iter().map(|run| run.answered).sum(),
            refused: runs.iter().map(|run| run.refused).sum(),
            events: runs.iter().map(|run| run.events).sum(),
            trace_hashes: runs.iter().map(|run| run.trace_hash).collect(),
        }
    }
}

fn parameters(experiment: &Experiment, measured_s: f64) -> Parameters {
    let arrivals = &experiment.workload.arrivals;
    let poisson = matches!(arrivals, Arrivals::Poisson { .. });
    Parameters {
        rack: experiment.rack.name.clone(),
        system: experiment.system,
        network: experiment.network,
        reads_per_s: match arrivals {
            Arrivals::Poisson { mean_gap } => Some(mean_gap.as_secs_f64().recip()),
            _ => None,
        },
        burst_reads: match arrivals {
            Arrivals::Burst { reads, .. } => Some(*reads),
            _ => None,
        },
        overtake_limit: experiment.policy.scheduler.overtake_limit,
        queue_depth: experiment.policy.scheduler.queue_depth,
        read_policy: experiment.policy.read_policy,
        warm_up_s: if poisson { experiment.warm_up.as_secs_f64() } else { 0.0 },
        measured_s,
        seeds: experiment.seeds.clone(),
    }
}

/// Student's t for 95 % (two-sided), by degrees of freedom from 1 on; beyond, the normal distribution's.
const STUDENT_T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

fn half_width(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count();
    if count < 2 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / count as f64;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
    let t = STUDENT_T.get(count - 2).copied().unwrap_or(1.96);
    Some(t * (variance / count as f64).sqrt())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn confidence_is_students() {
        assert_eq!(half_width([1.0].into_iter()), None);
        let three = half_width([1.0, 2.0, 3.0].into_iter()).unwrap();
        assert!((three - 4.303 / 3_f64.sqrt()).abs() < 1e-9, "{three}");
    }
}
