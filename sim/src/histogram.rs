//! A histogram of durations in constant memory.
//!
//! Quantiles come from HdrHistogram, whose buckets are 1/128 of a power of two wide with two significant digits: the
//! middle of a bucket deviates by at most 0.4 %. Mean and maximum are exact.

use std::time::Duration;

/// Two significant digits: 128 buckets in each power of two.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Counted durations.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = hdrhistogram::Histogram::new_with_max(u64::MAX / 2, SIGNIFICANT_DIGITS);
        Self { buckets: buckets.expect("the bounds are in order"), sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// The maximum relative error of a quantile.
    pub const QUANTILE_ERROR: f64 = 1.0 / 256.0;

    /// Counts `span`.
    pub fn add(&mut self, span: Duration) {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.buckets.saturating_record(ns);
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        assert!(self.sum_ns <= u128::from(self.max_ns) * u128::from(self.count()), "the mean is above the longest");
    }

    /// Adds all durations that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.add(&other.buckets).expect("both have the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The number of counted durations.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// The number of durations longer than `span`, except those in the same bucket.
    pub fn count_above(&self, span: Duration) -> u64 {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let above = self.buckets.highest_equivalent(ns).saturating_add(1);
        self.buckets.count_between(above, u64::MAX)
    }

    /// The mean in seconds; `None` if nothing was counted.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64 / 1e9)
    }

    /// The longest duration in seconds; `None` if nothing was counted.
    pub fn max_s(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.max_ns as f64 / 1e9)
    }

    /// The duration in seconds that a share `quantile` of all does not exceed; `None` if nothing was counted.
    pub fn quantile_s(&self, quantile: f64) -> Option<f64> {
        let ns = self.buckets.median_equivalent(self.buckets.value_at_quantile(quantile)).min(self.max_ns);
        (self.count() > 0).then(|| ns as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::Rng;

    #[test]
    fn quantiles_are_within_the_stated_error_of_the_sorted_list() {
        let mut rng = Rng::new(1);
        let mut all: Vec<u64> = (0..10_000).map(|_| rng.next_u64() >> (24 + rng.below(30))).collect();
        let mut histogram = Histogram::default();
        for ns in &all {
            histogram.add(Duration::from_nanos(*ns));
        }
        all.sort_unstable();
        for per_mille in [1, 10, 500, 990, 999, 1000] {
            let exact = all[(all.len() * per_mille).div_ceil(1000) - 1] as f64 / 1e9;
            let found = histogram.quantile_s(per_mille as f64 / 1000.0).unwrap();
            assert!((found - exact).abs() <= exact * Histogram::QUANTILE_ERROR + 1e-9, "{per_mille}: {found}, {exact}");
        }
        let mean = all.iter().sum::<u64>() as f64 / 1e13;
        assert!((histogram.mean_s().unwrap() - mean).abs() < 1e-6);
        assert_eq!(histogram.max_ns, *all.last().unwrap());
    }

    #[test]
    fn every_duration_has_a_bucket_and_two_histograms_are_as_one() {
        let mut longest = Histogram::default();
        longest.add(Duration::MAX);
        assert_eq!(longest.count(), 1);
        assert_eq!(Histogram::default().quantile_s(0.5), None);
        let (mut one, mut two, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for seconds in 0..100 {
            if seconds % 3 == 0 { &mut one } else { &mut two }.add(Duration::from_secs(seconds));
            both.add(Duration::from_secs(seconds));
        }
        one.merge(&two);
        assert_eq!((one.buckets, one.sum_ns, one.max_ns), (both.buckets, both.sum_ns, both.max_ns));
    }
}
