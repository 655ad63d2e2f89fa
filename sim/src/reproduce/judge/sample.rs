//! A result over the seeds: its mean and its confidence interval.

use crate::point::half_width;

/// A number, measured once per seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    values: Vec<f64>,
}

impl Sample {
    /// The values, one for each seed.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The mean of the values.
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// Half the width of the 95 % confidence interval of the mean; `None` for one value, or if a value is not finite.
    pub fn half_width(&self) -> Option<f64> {
        half_width(self.values.iter().copied()).filter(|half| half.is_finite())
    }

    /// The confidence interval; for one value, that value.
    pub fn interval(&self) -> (f64, f64) {
        let (mean, half) = (self.mean(), self.half_width().unwrap_or(0.0));
        (mean - half, mean + half)
    }
}

/// A number without random draws.
impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self { values: vec![value] }
    }
}

/// The number of seeds with which a trend was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Seeds that followed the trend.
    pub with: usize,
    /// All seeds.
    pub of: usize,
}

impl FromIterator<bool> for Followed {
    fn from_iter<I: IntoIterator<Item = bool>>(seeds: I) -> Self {
        let none = Self { with: 0, of: 0 };
        seeds.into_iter().fold(none, |all, goes| Self { with: all.with + usize::from(goes), of: all.of + 1 })
    }
}

/// A trend without random draws.
impl From<bool> for Followed {
    fn from(goes: bool) -> Self {
        Self { with: usize::from(goes), of: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_its_own_interval_and_several_are_students() {
        assert_eq!((Sample::from(7.0).half_width(), Sample::from(7.0).interval()), (None, (7.0, 7.0)));
        let three = Sample::of([1.0, 2.0, 3.0]);
        let (low, high) = three.interval();
        assert!((low + 0.484).abs() < 1e-3 && (high - 4.484).abs() < 1e-3, "{low} to {high}");
        assert_eq!(Sample::of([f64::INFINITY, 1.0]).half_width(), None);
        assert_eq!([true, false, true].into_iter().collect::<Followed>(), Followed { with: 2, of: 3 });
    }
}
