//! The watt meter of a rack: the power draw of all drives, summed over time.
//!
//! Invariants: energy is in whole picojoules (milliwatts x nanoseconds); a draw of zero duration is no peak.

use model::{DriveId, Time};

/// Measures the drives of a rack.
#[derive(Clone, Debug)]
pub struct Meter {
    /// The power draw of each drive, in milliwatts.
    draws_mw: Vec<u32>,
    draw_mw: u64,
    since: Time,
    seen: Time,
    energy_pj: u128,
    peak_mw: u64,
}

impl Meter {
    /// A meter of drives that draw `each_mw` milliwatts each.
    pub fn new(drives: usize, each_mw: u32) -> Self {
        let draw_mw = drives as u64 * u64::from(each_mw);
        let draws_mw = vec![each_mw; drives];
        Self { draws_mw, draw_mw, since: Time::ZERO, seen: Time::ZERO, energy_pj: 0, peak_mw: 0 }
    }

    /// Sets the power draw of `drive` from now on.
    pub fn set(&mut self, now: Time, drive: DriveId, draw_mw: u32) {
        self.settle(now);
        let old = std::mem::replace(&mut self.draws_mw[drive.index()], draw_mw);
        assert!(self.draw_mw >= u64::from(old), "{drive} draws more than all drives");
        self.draw_mw = self.draw_mw - u64::from(old) + u64::from(draw_mw);
    }

    /// Discards the past, and measures from now on.
    pub fn restart(&mut self, now: Time) {
        self.settle(now);
        (self.since, self.energy_pj, self.peak_mw) = (now, 0, 0);
    }

    /// Mean power draw since the start, in milliwatts; 0 before any time has passed.
    pub fn mean_mw(&mut self, now: Time) -> u64 {
        self.settle(now);
        let span_ns = now.since(self.since).as_nanos();
        let mean_mw = self.energy_pj.checked_div(span_ns).map_or(0, |mean| mean as u64);
        assert!(mean_mw <= self.peak_mw, "the mean of {mean_mw} mW is above the peak of {} mW", self.peak_mw);
        mean_mw
    }

    /// The highest power draw since the start that had a duration, in milliwatts.
    pub fn peak_mw(&mut self, now: Time) -> u64 {
        self.settle(now);
        self.peak_mw
    }

    fn settle(&mut self, now: Time) {
        assert!(now >= self.seen, "time runs forward");
        let span_ns = now.nanos_since(self.seen);
        if span_ns > 0 {
            self.energy_pj += u128::from(span_ns) * u128::from(self.draw_mw);
            self.peak_mw = self.peak_mw.max(self.draw_mw);
            self.seen = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_over_time_and_a_moment_is_no_peak() {
        let mut meter = Meter::new(2, 1_000);
        meter.set(Time::from_secs(1), DriveId(0), 20_000);
        meter.set(Time::from_secs(1), DriveId(0), 5_000);
        assert_eq!(meter.mean_mw(Time::from_secs(2)), 4_000);
        assert_eq!(meter.peak_mw(Time::from_secs(2)), 6_000);
        meter.restart(Time::from_secs(2));
        meter.set(Time::from_secs(3), DriveId(1), 0);
        assert_eq!(meter.mean_mw(Time::from_secs(4)), 5_500);
        assert_eq!(meter.peak_mw(Time::from_secs(4)), 6_000);
    }
}
