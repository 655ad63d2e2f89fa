//! Histograms of the time that served requests take.
//!
//! Refused requests are not recorded: they are quick, and would hide the served ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in milliseconds: from an object in memory to a sleeping group with a queue.
pub const BOUNDS_MS: [u64; 14] = [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 15_000, 30_000, 60_000, 120_000, 300_000];

/// A histogram of durations since the server started.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// Durations per bucket; the last bucket has no bound.
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

impl DurationHistogram {
    /// Records one duration.
    pub(crate) fn record(&self, span: Duration) {
        let bucket = BOUNDS_MS.iter().position(|bound| span <= Duration::from_millis(*bound));
        self.counts[bucket.unwrap_or(BOUNDS_MS.len())].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(span.as_micros().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The sum in seconds, and the count of each bucket; the last bucket has no bound.
    pub fn read(&self) -> (f64, Vec<u64>) {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (self.sum_us.load(Ordering::Relaxed) as f64 / 1e6, counts)
    }
}

/// The durations of served requests.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Time until the response head was ready.
    pub first_byte: DurationHistogram,
    /// Time until the response was sent or the client disconnected.
    pub request: DurationHistogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_counted_in_its_bucket() {
        let spans = DurationHistogram::default();
        for ms in [0, 5, 6, 300_000, 300_001] {
            spans.record(Duration::from_millis(ms));
        }
        let (sum_s, counts) = spans.read();
        assert_eq!((counts[0], counts[1], counts[BOUNDS_MS.len() - 1], counts[BOUNDS_MS.len()]), (2, 1, 1, 1));
        assert!((sum_s - 600.012).abs() < 1e-9, "{sum_s}");
    }
}
