//! The results of a run.

use crate::Histogram;
use core::time::Duration;
use model::Time;

/// The measurements of one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Requests that ended in it.
    pub ended: u64,
    /// The sum of their times from issue to answer.
    pub took: Duration,
    /// Mean power draw of all drives, in milliwatts.
    pub draw_mw: u64,
}

impl Interval {
    /// The mean latency of its requests in milliseconds; NaN if none ended.
    pub fn mean_ms(&self) -> f64 {
        self.took.as_secs_f64() * 1e3 / self.ended as f64
    }
}

/// The outcome of a scrub.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrubOutcome {
    /// Copies moved to a cold drive.
    pub migrated: u64,
    /// The time when the last group was done.
    pub ended: Option<Time>,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct ClusterOutcome {
    /// The latencies of all requests, from issue to answer.
    pub latency: Histogram,
    /// The intervals in order.
    pub intervals: Vec<Interval>,
    /// The duration of the run.
    pub span: Duration,
    /// Mean power draw of all drives, in milliwatts.
    pub draw_mw: u64,
    /// Requests in service or waiting for processors or drives: the mean per host.
    pub load: f64,
    /// Reads.
    pub reads: u64,
    /// Reads that a secondary redirected to the primary.
    pub redirected: u64,
    /// Accesses to cold drives.
    pub cold_accesses: u64,
    /// Starts of cold drives.
    pub starts: u64,
    /// Cold drives that started at least once.
    pub woken: u64,
    /// Objects that recovery copied.
    pub copied: u64,
    /// The time when all data was recovered.
    pub recovered: Option<Time>,
    /// The time when all cold drives were asleep again after that.
    pub asleep: Option<Time>,
    /// The outcome of the scrub.
    pub scrub: ScrubOutcome,
}

impl ClusterOutcome {
    /// The number of requests that took longer than `seconds`.
    pub fn slower_than(&self, seconds: f64) -> u64 {
        self.latency.count_above(Duration::from_secs_f64(seconds))
    }

    /// The median of the intervals' mean latencies, in milliseconds.
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
