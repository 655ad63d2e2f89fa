//! The results of a run.

use crate::Histogram;
use core::time::Duration;
use model::Time;

/// What was so in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Requests that ended in it.
    pub ended: u64,
    /// Their times from issue to answer, added up.
    pub took: Duration,
    /// What all drives drew on average, in milliwatts.
    pub draw_mw: u64,
}

impl Interval {
    /// The mean time of its requests in milliseconds; NaN if none ended.
    pub fn mean_ms(&self) -> f64 {
        self.took.as_secs_f64() * 1e3 / self.ended as f64
    }
}

/// What became of a scrub.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrubOutcome {
    /// Copies that moved to a cold drive.
    pub migrated: u64,
    /// When the last group was done.
    pub ended: Option<Time>,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct ClusterOutcome {
    /// The times of all requests, from issue to answer.
    pub latency: Histogram,
    /// Interval by interval.
    pub intervals: Vec<Interval>,
    /// How long that was.
    pub span: Duration,
    /// What all drives drew on average, in milliwatts.
    pub draw_mw: u64,
    /// Requests at work or waiting for processors or drives, on average for a host.
    pub load: f64,
    /// Reads.
    pub reads: u64,
    /// Reads that a secondary sent on to the primary.
    pub redirected: u64,
    /// Accesses to cold drives.
    pub cold_accesses: u64,
    /// Cold drives that were started.
    pub starts: u64,
    /// Cold drives that had to be started at least once.
    pub woken: u64,
    /// Objects that recovery copied.
    pub copied: u64,
    /// When all was recovered.
    pub recovered: Option<Time>,
    /// When all cold drives were asleep again after that.
    pub asleep: Option<Time>,
    /// What the scrub did.
    pub scrub: ScrubOutcome,
}

impl ClusterOutcome {
    /// The requests that took longer than `seconds`.
    pub fn slower_than(&self, seconds: f64) -> u64 {
        self.latency.count_above(Duration::from_secs_f64(seconds))
    }

    /// The median over the intervals of their mean times, in milliseconds.
    pub fn median_mean_ms(&self) -> f64 {
        let mut means: Vec<f64> =
            self.intervals.iter().map(Interval::mean_ms).filter(|mean| mean.is_finite()).collect();
        means.sort_unstable_by(f64::total_cmp);
        means.get(means.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Requests a second.
    pub fn throughput(&self) -> f64 {
        self.latency.count() as f64 / self.span.as_secs_f64()
    }
}
