//! The processor's part of a job: how fast records are decoded and split, encoded, and written and read as runs.
//!
//! A step that reads goes on with the drives while records are split; a batch is encoded while the one before it is
//! written. What was refilled is decoded when it has come. So a job takes the longer of the two for what it reads and
//! writes, and both for what it refills. Rates are those of one class, as long as its steps took: beside what others
//! did with the same processor.
//!
//! Rates are a sample's at first; what the steps take corrects them.

use core::time::Duration;
use model::transfer_time;
use serde::{Deserialize, Serialize};

/// A measurement of so much work counts as much as all before it, of the same kind.
const WINDOW: Duration = Duration::from_mins(1);

/// The rates of a class's processor, in bytes for each second of modelled time; above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Processor {
    /// Input, as it is stored, that is decoded, filtered and split.
    pub split_bytes_per_s: u64,
    /// Buffered output that is encoded.
    pub encode_bytes_per_s: u64,
    /// Buffered output that is made a run, or taken out of one.
    pub run_bytes_per_s: u64,
}

impl Processor {
    /// One that takes no time.
    pub const UNBOUNDED: Self =
        Self { split_bytes_per_s: u64::MAX, encode_bytes_per_s: u64::MAX, run_bytes_per_s: u64::MAX };

    /// The time to decode and split so much input.
    pub fn split(&self, bytes: u64) -> Duration {
        time(bytes, self.split_bytes_per_s)
    }

    /// The time to encode so much of what is buffered.
    pub fn encode(&self, bytes: u64) -> Duration {
        time(bytes, self.encode_bytes_per_s)
    }

    /// The time to make a run of so much of what is buffered, or to take it out of one.
    pub fn run(&self, bytes: u64) -> Duration {
        time(bytes, self.run_bytes_per_s)
    }
}

fn time(bytes: u64, bytes_per_s: u64) -> Duration {
    if bytes_per_s == u64::MAX { Duration::ZERO } else { transfer_time(bytes, bytes_per_s) }
}

/// The processor's work in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processed {
    /// So much input, as it is stored, was decoded and split.
    Split(u64),
    /// So much of the buffer was encoded as output.
    Encoded(u64),
    /// So much of the buffer became a run, or was taken out of one.
    Run(u64),
}

/// The rates that were measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessorMeter {
    split: WorkMeasured,
    encode: WorkMeasured,
    run: WorkMeasured,
}

/// Work of one kind: bytes, and the time they took.
#[derive(Clone, Copy, Debug, Default)]
struct WorkMeasured {
    bytes: u64,
    time: Duration,
}

impl ProcessorMeter {
    /// So much was done in so much modelled time.
    pub fn enter(&mut self, done: Processed, time: Duration) {
        match done {
            Processed::Split(bytes) => self.split.enter(bytes, time),
            Processed::Encoded(bytes) => self.encode.enter(bytes, time),
            Processed::Run(bytes) => self.run.enter(bytes, time),
        }
    }

    /// The rates to expect, where so many were expected before anything was measured.
    pub fn rates(&self, prior: Processor) -> Processor {
        Processor {
            split_bytes_per_s: self.split.rate(prior.split_bytes_per_s),
            encode_bytes_per_s: self.encode.rate(prior.encode_bytes_per_s),
            run_bytes_per_s: self.run.rate(prior.run_bytes_per_s),
        }
    }
}

impl WorkMeasured {
    /// Earlier measurements count half as soon as they cover more than a window.
    fn enter(&mut self, bytes: u64, time: Duration) {
        if self.time > WINDOW {
            (self.bytes, self.time) = (self.bytes / 2, self.time / 2);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.time = self.time.saturating_add(time);
    }

    fn rate(&self, prior: u64) -> u64 {
        if self.bytes == 0 {
            return prior;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.time.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_takes_the_place_of_what_was_expected_kind_by_kind() {
        let prior = Processor { split_bytes_per_s: 300, encode_bytes_per_s: 100, run_bytes_per_s: 900 };
        let mut meter = ProcessorMeter::default();
        assert_eq!(meter.rates(prior), prior);
        meter.enter(Processed::Split(0), Duration::from_secs(1));
        assert_eq!(meter.rates(prior), prior, "time without bytes is no rate");
        meter.enter(Processed::Split(1_000), Duration::from_secs(1));
        assert_eq!(meter.rates(prior).split_bytes_per_s, 500, "but it counts");
        meter.enter(Processed::Run(500), Duration::ZERO);
        let rates = meter.rates(prior);
        assert_eq!(rates.encode_bytes_per_s, 100);
        assert!(rates.run_bytes_per_s > 1_000_000_000, "it took no time");
        for _ in 0..20 {
            meter.enter(Processed::Split(6_000), Duration::from_mins(1));
        }
        assert!((99..=110).contains(&meter.rates(prior).split_bytes_per_s), "the last minutes count");
    }
}
