//! Values along a sweep.

use crate::report::short;

/// The share above which a step of a sweep counts as up or down.
pub(super) const STEP: f64 = 0.01;

/// The greatest value of `values`.
pub(super) fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// The share by which the greatest value of a range exceeds the least.
pub(super) fn spread((least, most): (f64, f64)) -> f64 {
    most / least - 1.0
}

/// A range for readers: `3.2 to 3.4`.
pub(super) fn from_to((least, most): (f64, f64)) -> String {
    format!("{} to {}", short(least), short(most))
}
