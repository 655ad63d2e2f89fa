//! A histogram of durations in constant memory.
//!
//! Buckets are as wide as 1/128 of the power of two they lie in (the idea of HdrHistogram), so that a quantile is at
//! most 0.4 % off; mean and maximum are exact.

use std::time::Duration;

/// Buckets in a power of two: 2^7.
const FINE_BITS: u32 = 7;
const BUCKETS: usize = (64 - FINE_BITS as usize + 1) << FINE_BITS;

/// Durations, counted. See the head of this file.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// How far a quantile may be off, as a share of itself.
    pub const QUANTILE_ERROR: f64 = 1.0 / (1 << (FINE_BITS + 1)) as f64;

    /// Counts `span`.
    pub fn add(&mut self, span: Duration) {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for (own, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean in seconds; `None` if nothing was counted.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e9)
    }

    /// The longest in seconds; `None` if nothing was counted.
    pub fn max_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.max_ns as f64 / 1e9)
    }

    /// What `per_mille` of a thousand are no longer than, in seconds; `None` if nothing was counted.
    pub fn quantile_s(&self, per_mille: u64) -> Option<f64> {
        let rank = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle_of(bucket).min(self.max_ns) as f64 / 1e9)
    }
}

fn bucket_of(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(FINE_BITS + 1);
    ((shift as usize) << FINE_BITS) + (ns >> shift) as usize
}

fn middle_of(bucket: usize) -> u64 {
    let shift = (bucket >> FINE_BITS).saturating_sub(1);
    let fine = (bucket - (shift << FINE_BITS)) as u64;
    (fine << shift) + ((1_u64 << shift) >> 1)
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
            let found = histogram.quantile_s(per_mille as u64).unwrap();
            assert!((found - exact).abs() <= exact * Histogram::QUANTILE_ERROR + 1e-9, "{per_mille}: {found}, {exact}");
        }
        let mean = all.iter().sum::<u64>() as f64 / 1e13;
        assert!((histogram.mean_s().unwrap() - mean).abs() < 1e-6);
        assert_eq!(histogram.max_ns, *all.last().unwrap());
    }

    #[test]
    fn every_duration_has_a_bucket_and_two_histograms_are_as_one() {
        assert!(bucket_of(u64::MAX) < BUCKETS);
        assert_eq!(Histogram::default().quantile_s(500), None);
        let (mut one, mut two, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for seconds in 0..100 {
            if seconds % 3 == 0 { &mut one } else { &mut two }.add(Duration::from_secs(seconds));
            both.add(Duration::from_secs(seconds));
        }
        one.merge(&two);
        assert_eq!((one.buckets, one.sum_ns, one.max_ns), (both.buckets, both.sum_ns, both.max_ns));
    }
}
