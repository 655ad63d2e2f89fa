//! How long requests take: histograms for whoever watches the server.
//!
//! Only requests that were served count; what is refused is quick, and would hide the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in milliseconds: from an object in memory to a group that wakes and has others to
/// wait for.
pub const BOUNDS_MS: [u64; 14] = [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 15_000, 30_000, 60_000, 120_000, 300_000];

/// How often something took how long since the start.
#[derive(Debug, Default)]
pub struct Spans {
    /// Up to each bound, and beyond the last.
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

impl Spans {
    /// It took so long once more.
    pub(crate) fn took(&self, span: Duration) {
        let bucket = BOUNDS_MS.iter().position(|bound| span <= Duration::from_millis(*bound));
        self.counts[bucket.unwrap_or(BOUNDS_MS.len())].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(span.as_micros().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The sum in seconds, and how many there were in each bucket, the last of which has no bound.
    pub fn read(&self) -> (f64, Vec<u64>) {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (self.sum_us.load(Ordering::Relaxed) as f64 / 1e6, counts)
    }
}

/// How long requests took that were served.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Until the head of the answer could be sent.
    pub first_byte: Spans,
    /// Until the answer was sent, or its client gave up.
    pub request: Spans,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_span_is_in_the_bucket_that_it_fits() {
        let spans = Spans::default();
        for ms in [0, 5, 6, 300_000, 300_001] {
            spans.took(Duration::from_millis(ms));
        }
        let (sum_s, counts) = spans.read();
        assert_eq!((counts[0], counts[1], counts[BOUNDS_MS.len() - 1], counts[BOUNDS_MS.len()]), (2, 1, 1, 1));
        assert!((sum_s - 600.012).abs() < 1e-9, "{sum_s}");
    }
}
