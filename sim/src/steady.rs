//! The time at which a run reaches its steady state.
//!
//! A run begins with empty queues, and measurements before the queues have filled describe the beginning. MSER-5
//! (White, Cobb and Spratt, 2000) finds the end of the beginning. It cuts the series into batches of five, and drops
//! the number of first batches that minimises the variance of the rest divided by its number of batches, so the mean of
//! the rest is most certain. If that drops at least half of the batches, the run was too short, or has no steady state.
//!
//! Invariants: no parameter except the batch size of five; a series that is level from the start loses batches only by
//! chance.

use model::Time;
use std::time::Duration;

/// Values per batch.
const BATCH: usize = 5;

/// Samples of a run, a whole number of batches: one per minute in 30 hours.
const SAMPLES: u32 = 1_800;

/// The queue lengths of a run at equal intervals, from its first request on.
#[derive(Debug)]
pub(crate) struct QueueSamples {
    every: Duration,
    next: Time,
    values: Vec<f64>,
}

impl QueueSamples {
    /// Samples of a run that begins at `from` and lasts for `span`.
    pub fn new(from: Time, span: Duration) -> Self {
        let every = (span / SAMPLES).max(Duration::from_nanos(1));
        Self { every, next: from + every, values: Vec::with_capacity(SAMPLES as usize) }
    }

    /// The time of the next sample; [`Time::MAX`] after the last one.
    pub fn next(&self) -> Time {
        if self.values.len() < SAMPLES as usize { self.next } else { Time::MAX }
    }

    /// Records the value at [`QueueSamples::next`].
    pub fn take(&mut self, value: f64) {
        assert!(self.values.len() < SAMPLES as usize, "all samples are taken");
        self.values.push(value);
        self.next += self.every;
    }

    /// The time of the first sample below `value`, counted from the beginning.
    pub fn first_below(&self, value: f64) -> Option<Duration> {
        self.values.iter().position(|sample| *sample < value).map(|index| self.every * (index as u32 + 1))
    }

    /// The mean of the samples later than `after`, counted from the beginning.
    pub fn mean_after(&self, after: Duration) -> f64 {
        let early = (after.as_nanos() / self.every.as_nanos()) as usize;
        let late = self.values.get(early..).unwrap_or_default();
        late.iter().sum::<f64>() / late.len().max(1) as f64
    }

    /// The time of the steady state, counted from the beginning.
    pub fn steady_after(&self) -> Option<Duration> {
        beginning(&self.values).map(|dropped| self.every * dropped as u32)
    }
}

/// The number of values of `series` that belong to the beginning, in whole batches. `None` if at least half of the
/// batches would be dropped, or if there are fewer than ten batches.
fn beginning(series: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = series.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    if batches.len() < 10 {
        return None;
    }
    // From the last batch to the first, so the sums of the rest are computed incrementally.
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    let mut most_certain = (f64::INFINITY, batches.len());
    for (dropped, batch) in batches.iter().enumerate().rev() {
        count += 1.0;
        let off = batch - mean;
        mean += off / count;
        squares += off * (batch - mean);
        let uncertainty = squares / (count * count);
        // A few batches may be alike by chance, so the rest must be at least a tenth.
        if (batches.len() - dropped) * 10 >= batches.len() && uncertainty <= most_certain.0 {
            most_certain = (uncertainty, dropped);
        }
    }
    (most_certain.1 * 2 < batches.len()).then_some(most_certain.1 * BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Rng;

    #[test]
    fn samples_have_moments() {
        let mut samples = QueueSamples::new(Time::ZERO, Duration::from_secs(u64::from(SAMPLES)));
        for value in [9.0, 8.0, 3.0, 5.0] {
            samples.take(value);
        }
        assert_eq!(samples.first_below(4.0), Some(Duration::from_secs(3)));
        assert_eq!(samples.first_below(1.0), None);
        assert!((samples.mean_after(Duration::from_secs(2)) - 4.0).abs() < 1e-9);
    }

    /// A series of `count` values: `level` with noise of +- `noise`.
    fn series(count: usize, noise: f64, level: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut rng = Rng::new(11);
        let mut draw = || rng.below(2_000_001) as f64 / 1e6 - 1.0;
        (0..count).map(|i| level(i as f64) + noise * draw()).collect()
    }

    #[test]
    fn a_level_series_has_no_beginning() {
        assert_eq!(beginning(&[7.0; 100]), Some(0));
        let dropped = beginning(&series(1_000, 1.0, |_| 10.0));
        assert!(dropped.is_some_and(|dropped| dropped < 100), "{dropped:?}");
    }

    #[test]
    fn a_queue_that_fills_is_dropped_until_it_is_full() {
        // 95 % full after 150 values, 99.8 % after 300.
        let filling = series(1_000, 20.0, |i| 1_000.0 * (1.0 - (-i / 50.0).exp()));
        let dropped = beginning(&filling);
        assert!(dropped.is_some_and(|dropped| (100..=400).contains(&dropped)), "{dropped:?}");
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let rest = mean(&filling[dropped.unwrap_or(0)..]);
        assert!((rest - 1_000.0).abs() < 5.0 && mean(&filling) < 960.0, "{rest}");
    }

    #[test]
    fn what_never_levels_off_has_no_steady_state() {
        assert_eq!(beginning(&series(1_000, 1.0, |i| i)), None);
        assert_eq!(beginning(&series(1_000, 1.0, |i| if i < 700.0 { 0.0 } else { 100.0 })), None);
        assert_eq!(beginning(&[1.0; 49]), None, "too few values");
    }
}
