//! Random draws: gaps between arrivals, sizes, keys.
//!
//! Invariants: draws use integer arithmetic, so a seed gives the same results on every machine; only the weights of
//! Zipf's law are floating point, computed once before the first draw.

use model::Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// ln 2 in 2^-32.
const LN2_Q32: u128 = 2_977_044_472;

/// The gap between two arrivals of a Poisson process with this mean, above 0.
pub(crate) fn poisson_gap(mean: Duration, rng: &mut Rng) -> Duration {
    assert!(!mean.is_zero(), "arrivals without a gap all come at once");
    let mean_ns = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(exponential(mean_ns, rng).max(1))
}

/// An exponentially distributed number of this mean.
fn exponential(mean: u64, rng: &mut Rng) -> u64 {
    let [log] = neg_log2_q32([rng.next_u64() | 1]);
    scaled(log, mean)
}

/// A mean times -ln(x / 2^64), where `log` is -log2(x / 2^64) in 2^-32.
fn scaled(log: u64, mean: u64) -> u64 {
    u64::try_from((u128::from(log) * LN2_Q32 * u128::from(mean)) >> 64).unwrap_or(u64::MAX)
}

/// -log2(x / 2^64) in 2^-32 for each x, which must be above 0. It is computed digit by digit: each squaring of the
/// mantissa gives one. A squaring waits for the one before, so several numbers at once take little longer than one.
fn neg_log2_q32<const N: usize>(x: [u64; N]) -> [u64; N] {
    let zeros = x.map(u64::leading_zeros);
    let mut mantissas: [u64; N] = std::array::from_fn(|i| x[i] << zeros[i]);
    let mut fractions = [0_u64; N];
    for digit in (0..32).rev() {
        for (mantissa, fraction) in mantissas.iter_mut().zip(&mut fractions) {
            // Without a branch, which would be unpredictable.
            let square = u128::from(*mantissa) * u128::from(*mantissa);
            let (high, doubled) = ((square >> 64) as u64, (square >> 63) as u64);
            let above = high >> 63;
            *fraction |= above << digit;
            *mantissa = doubled ^ ((doubled ^ high) & above.wrapping_neg());
        }
    }
    std::array::from_fn(|i| (u64::from(zeros[i] + 1) << 32) - fractions[i])
}

/// The gaps of a Poisson process, as [`poisson_gap`] draws them, a few at a time.
#[derive(Clone, Debug)]
pub(crate) struct PoissonGaps {
    mean_ns: u64,
    rng: Rng,
    logs: [u64; 4],
    /// The number of `logs` that were used.
    used: usize,
}

impl PoissonGaps {
    /// Gaps of this mean, above 0, drawn from `rng`.
    pub fn new(mean: Duration, rng: Rng) -> Self {
        assert!(!mean.is_zero(), "arrivals without a gap all come at once");
        let mean_ns = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
        Self { mean_ns, rng, logs: [0; 4], used: 4 }
    }

    /// The next gap.
    pub fn draw(&mut self) -> Duration {
        if self.used == self.logs.len() {
            self.logs = neg_log2_q32(std::array::from_fn(|_| self.rng.next_u64() | 1));
            self.used = 0;
        }
        self.used += 1;
        Duration::from_nanos(scaled(self.logs[self.used - 1], self.mean_ns).max(1))
    }
}

/// The size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// Always this number of bytes.
    Fixed(u64),
    /// Between `min` and `max` with this mean, small sizes more likely than large ones: a mixture of a uniform draw and
    /// the lesser of two. Pelican's VHD images are 200 MB to 9 GB with a mean of 3.3 GB; their distribution is not
    /// known, and this shape is ours.
    Spread {
        /// The smallest, in bytes.
        min: u64,
        /// The largest, in bytes.
        max: u64,
        /// The mean, in bytes: a third to half of the way from `min` to `max`.
        mean: u64,
    },
}

impl Sizes {
    /// Pelican's VHD images.
    pub const VHD: Self = Self::Spread { min: 200_000_000, max: 9_000_000_000, mean: 3_300_000_000 };

    /// Draws one size.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match *self {
            Self::Fixed(bytes) => bytes,
            Self::Spread { min, max, mean } => {
                // The mean of the lesser of two draws is a third of the way, that of one draw is half, both in
                // millionths here.
                assert!(min <= mean && mean <= max, "a mean of {mean} lies outside of {min} to {max}");
                let way = u128::from(mean.saturating_sub(min)) * 1_000_000 / u128::from((max - min).max(1));
                let uniform_ppm = (way.saturating_sub(333_333) * 6).min(1_000_000) as u64;
                let first = rng.between(min, max);
                if rng.below(1_000_000) < uniform_ppm { first } else { first.min(rng.between(min, max)) }
            }
        }
    }
}

/// The popularity of the stored blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Popularity {
    /// All are read with equal chance (Pelican, section 5).
    #[default]
    Uniform,
    /// The i-th is read with a chance proportional to i^-s.
    Zipf {
        /// s in thousandths.
        exponent_permille: u32,
    },
}

/// Zipf's law: the weight of each rank, rank^-s.
fn zipf_weights(count: usize, exponent_permille: u32) -> impl Iterator<Item = f64> + Clone {
    let exponent = f64::from(exponent_permille) / 1_000.0;
    (1..=count).map(move |rank| (rank as f64).powf(-exponent))
}

/// Zipf's law: the share of each rank, largest first. All shares are equal for an exponent of 0.
pub(crate) fn zipf_shares(count: usize, exponent_permille: u32) -> impl Iterator<Item = f64> {
    let weights = zipf_weights(count, exponent_permille);
    let sum: f64 = weights.clone().sum();
    weights.map(move |weight| weight / sum)
}

/// Draws blobs by their popularity.
#[derive(Clone, Debug)]
pub(crate) struct Popular {
    count: u64,
    /// For Zipf: the sum of the chances up to each blob, scaled to 2^64.
    sums: Vec<u64>,
}

impl Popular {
    /// Draws from `count` blobs, at least one.
    pub fn new(popularity: Popularity, count: usize) -> Self {
        assert!(count > 0, "nothing is stored to be read");
        let Popularity::Zipf { exponent_permille } = popularity else {
            return Self { count: count as u64, sums: Vec::new() };
        };
        let mut sum = 0.0;
        let running = zipf_weights(count, exponent_permille).map(|weight| {
            sum += weight;
            sum
        });
        let sums: Vec<f64> = running.collect();
        assert!(sum.is_finite() && sum > 0.0, "chances add up to {sum}");
        Self { count: count as u64, sums: sums.iter().map(|part| (part / sum * u64::MAX as f64) as u64).collect() }
    }

    /// Draws the number of a blob, from 0.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        if self.sums.is_empty() {
            return rng.below(self.count) as usize;
        }
        let at = rng.next_u64();
        self.sums.partition_point(|sum| *sum < at).min(self.count as usize - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean_and_their_tail() {
        let mut rng = Rng::new(5);
        let gaps: Vec<u64> = (0..200_000).map(|_| exponential(1_000_000, &mut rng)).collect();
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        assert!((mean - 1e6).abs() < 1e4, "{mean}");
        let long = gaps.iter().filter(|gap| **gap > 3_000_000).count() as f64 / gaps.len() as f64;
        assert!((long - (-3.0_f64).exp()).abs() < 0.003, "{long} are three times the mean");
    }

    #[test]
    fn gaps_are_the_same_one_by_one_and_a_few_at_a_time() {
        let mean = Duration::from_millis(125);
        let (mut rng, mut gaps) = (Rng::new(8), PoissonGaps::new(mean, Rng::new(8)));
        assert!((0..10).all(|_| gaps.draw() == poisson_gap(mean, &mut rng)));
    }

    #[test]
    fn logarithms_are_right_to_nine_digits() {
        for x in [1, 2, 3, 1 << 40, u64::MAX / 3, u64::MAX - 5, u64::MAX] {
            let exact = 64.0 - (x as f64).log2();
            let found = neg_log2_q32([x])[0] as f64 / 2_f64.powi(32);
            assert!((found - exact).abs() < 1e-9, "{x}: {found}, {exact}");
        }
    }

    #[test]
    fn image_sizes_have_the_papers_range_and_mean() {
        let mut rng = Rng::new(6);
        let sizes: Vec<u64> = (0..200_000).map(|_| Sizes::VHD.draw(&mut rng)).collect();
        assert!(sizes.iter().all(|size| (200_000_000..=9_000_000_000).contains(size)));
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        assert!((mean / 3.3e9 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn a_zipf_of_one_reads_the_first_twice_as_often_as_the_second() {
        let popular = Popular::new(Popularity::Zipf { exponent_permille: 1_000 }, 100);
        let mut rng = Rng::new(7);
        let mut counts = [0_u32; 100];
        for _ in 0..100_000 {
            counts[popular.draw(&mut rng)] += 1;
        }
        assert!((f64::from(counts[0]) / f64::from(counts[1]) - 2.0).abs() < 0.1, "{counts:?}");
    }
}
