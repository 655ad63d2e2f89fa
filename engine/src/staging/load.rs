//! The load of a workshop: the recent share of the time in which client requests were present.
//!
//! The pacer waits until no request is present; load is the average of that presence. [`super::pacing`] needs to know
//! if a client is present now, and [`super::checks`] if one is present most of the time (Serviceable cold storage: deep
//! scrub begins below a load of 0.5). The window slides: of the previous window, the part within [`LOAD_WINDOW`] of now
//! counts, as if its busy time had been spread evenly.
//!
//! Invariant: the load is between 0 and 1000 thousandths; it is 0 after two windows without a request, and 1000 after
//! two windows in which one was always present.

use core::time::Duration;
use model::Time;

/// The span over which load is averaged.
pub const LOAD_WINDOW: Duration = Duration::from_secs(30);

/// Measures load. See the head of this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadMeter {
    /// Requests that are present.
    clients: u32,
    /// The start of the current window.
    begun: Time,
    /// The time up to which presence is counted.
    until: Time,
    /// The time in the current window, and in the previous one, in which a request was present.
    busy: Duration,
    busy_before: Duration,
}

impl LoadMeter {
    /// Client requests that are present.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// A request has arrived.
    pub fn came(&mut self, now: Time) {
        self.count_until(now);
        self.clients += 1;
    }

    /// A request was answered.
    pub fn left(&mut self, now: Time) {
        assert!(self.clients > 0, "a request that is answered had come");
        self.count_until(now);
        self.clients -= 1;
    }

    /// The load at `now`, in thousandths.
    pub fn permille(&self, now: Time) -> u32 {
        let mut meter = *self;
        meter.count_until(now);
        let window = LOAD_WINDOW.as_nanos();
        let into = meter.until.since(meter.begun).as_nanos();
        assert!(into <= window, "a window that is over was left");
        let before = meter.busy_before.as_nanos() * (window - into) / window;
        let permille = (before + meter.busy.as_nanos()) * 1000 / window;
        assert!(permille <= 1000, "nobody is there for longer than always");
        permille as u32
    }

    fn count_until(&mut self, now: Time) {
        let now = now.max(self.until);
        if now.since(self.begun) >= 2 * LOAD_WINDOW {
            // All counted time is more than a window ago; only a request that was present throughout still counts.
            let whole = if self.clients > 0 { LOAD_WINDOW } else { Duration::ZERO };
            (self.begun, self.until) = (now, now);
            (self.busy, self.busy_before) = (Duration::ZERO, whole);
            return;
        }
        let end = self.begun + LOAD_WINDOW;
        if now >= end {
            self.add(end);
            (self.begun, self.busy_before, self.busy) = (end, self.busy, Duration::ZERO);
        }
        self.add(now);
    }

    fn add(&mut self, until: Time) {
        if self.clients > 0 {
            self.busy += until.since(self.until);
        }
        self.until = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Rng;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + MS * ms as u32
    }

    #[test]
    fn load_is_the_share_of_the_time_in_which_a_client_is_there() {
        let mut meter = LoadMeter::default();
        assert_eq!(meter.permille(at(99)), 0);
        for second in 0..120 {
            meter.came(at(second * 1000));
            meter.came(at(second * 1000 + 100));
            meter.left(at(second * 1000 + 200));
            meter.left(at(second * 1000 + 400));
        }
        assert_eq!(meter.permille(at(120_000)), 400, "two at once are no more than one");
        assert_eq!(meter.permille(at(135_000)), 200, "half of the window lies behind");
        assert_eq!(meter.permille(at(180_000)), 0);
        meter.came(at(180_000));
        assert_eq!(meter.permille(at(195_000)), 500);
        assert_eq!(meter.permille(at(9_000_000)), 1000);
        meter.left(at(9_000_000));
        assert_eq!(meter.permille(at(9_015_000)), 500);
    }

    /// Against a list of the moments at which a request was present.
    #[test]
    fn it_is_what_a_recount_says() {
        for seed in 0..100 {
            let rng = &mut Rng::new(seed);
            let (mut meter, mut now, mut open) = (LoadMeter::default(), 0, 0_u32);
            let mut busy_ms = std::vec![];
            for _ in 0..200 {
                let span = rng.below(3_000);
                busy_ms.extend((now..now + span).filter(|_| open > 0));
                now += span;
                if open > 0 && rng.below(2) == 0 {
                    open -= 1;
                    meter.left(at(now));
                } else if rng.below(3) > 0 {
                    open += 1;
                    meter.came(at(now));
                }
                assert_eq!(meter.clients(), open);
                let window = now / 30_000 * 30_000;
                let within = |from: u64, to: u64| busy_ms.iter().filter(|ms| (from..to).contains(*ms)).count() as u64;
                let before = within(window.saturating_sub(30_000), window) * (30_000 - (now - window)) / 30_000;
                let expected = (before + within(window, now)) * 1000 / 30_000;
                assert!(expected.abs_diff(meter.permille(at(now)).into()) <= 1, "seed {seed} at {now}");
            }
        }
    }
}
