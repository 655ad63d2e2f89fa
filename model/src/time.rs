//! Modelled time, in which the hardware's physics and the engine's decisions are counted.
//!
//! A [`Time`] is nanoseconds since the rack was created. At a time scale of 1 it runs with the wall clock; an
//! emulated rack may run it faster. Spans are [`Duration`]s.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// A moment in modelled time: nanoseconds since the rack was created (584 years fit).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

const NANOS_PER_S: u64 = 1_000_000_000;
const NANOS_PER_DAY: u64 = 86_400 * NANOS_PER_S;

impl Time {
    /// The moment the rack was created.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the rack was created.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `seconds` seconds after the rack was created.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * NANOS_PER_S)
    }

    /// Nanoseconds since the rack was created.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the rack was created, for people and reports; never for decisions.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_S as f64
    }

    /// The day of this moment, counted from 0. Start budgets are kept by day.
    pub const fn day(self) -> u32 {
        (self.0 / NANOS_PER_DAY) as u32
    }

    /// When day `day` begins.
    pub const fn start_of_day(day: u32) -> Self {
        Self(day as u64 * NANOS_PER_DAY)
    }

    /// The span from `earlier` to this moment; zero if `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::MAX`], so that "never" stays "never".
    #[inline]
    fn add(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::ZERO`].
    fn sub(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / NANOS_PER_S, self.0 % NANOS_PER_S / 1_000_000)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The time to transfer `bytes` at `bytes_per_s`, rounded up to the nanosecond. `bytes_per_s` must be above 0.
pub fn transfer_time(bytes: u64, bytes_per_s: u64) -> Duration {
    assert!(bytes_per_s > 0, "a transfer rate of 0 never ends");
    let nanos = (u128::from(bytes) * u128::from(NANOS_PER_S)).div_ceil(u128::from(bytes_per_s));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabyte_over_fifteen_drives_takes_the_papers_lower_bound() {
        // Pelican, section 5: service time is at least ~0.65 s for 1 GB (15 drives at 105 MB/s).
        let each = 1_000_000_000_u64.div_ceil(15);
        let took = transfer_time(each, 105_000_000);
        assert_eq!(took.as_millis(), 634);
    }

    #[test]
    fn never_stays_never() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_secs(86_400).day(), 1);
    }
}
