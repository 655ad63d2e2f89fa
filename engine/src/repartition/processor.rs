//! The processor's part of a job: the rates at which records are decoded and split, encoded, written as runs and read
//! from runs.
//!
//! Records are split while the drives read; a batch is encoded while the batch before it is written. A refilled run is
//! decoded after it is read. So a job takes the longer of drive time and processor time for its reads and writes, and
//! the sum of both for its refills. The rates are those of one class, measured by the duration of its steps, which
//! includes the effect of other work on the same processor.
//!
//! The initial rates are those of a sample; the measured duration of steps corrects them.

use core::time::Duration;
use model::transfer_time;
use serde::{Deserialize, Serialize};

/// Processing time whose measurement weighs as much as all earlier measurements of the same kind.
const WINDOW: Duration = Duration::from_mins(1);

/// The rates of a class's processor, in bytes per second of modelled time; above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Processor {
    /// Rate for decoding, filtering and splitting input, in bytes as it is stored.
    pub split_bytes_per_s: u64,
    /// Rate for encoding buffered output.
    pub encode_bytes_per_s: u64,
    /// Rate for turning buffered output into a run, or a run into buffered output.
    pub run_bytes_per_s: u64,
}

impl Processor {
    /// A processor that takes no time.
    pub const UNBOUNDED: Self =
        Self { split_bytes_per_s: u64::MAX, encode_bytes_per_s: u64::MAX, run_bytes_per_s: u64::MAX };

    /// The time to decode and split this amount of input.
    pub fn split(&self, bytes: u64) -> Duration {
        time(bytes, self.split_bytes_per_s)
    }

    /// The time to encode this number of buffered bytes.
    pub fn encode(&self, bytes: u64) -> Duration {
        time(bytes, self.encode_bytes_per_s)
    }

    /// The time to turn this number of buffered bytes into a run, or a run into buffered bytes.
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
    /// Bytes of input, as it is stored, that were decoded and split.
    Split(u64),
    /// Bytes of the buffer that were encoded as output.
    Encoded(u64),
    /// Bytes of the buffer that became a run, or came from one.
    Run(u64),
}

/// The measured rates.
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
    /// Records work and the modelled time that it took.
    pub fn enter(&mut self, done: Processed, time: Duration) {
        match done {
            Processed::Split(bytes) => self.split.enter(bytes, time),
            Processed::Encoded(bytes) => self.encode.enter(bytes, time),
            Processed::Run(bytes) => self.run.enter(bytes, time),
        }
    }

    /// The rates to expect; `prior` has those for the kinds of work that were not measured yet.
    pub fn rates(&self, prior: Processor) -> Processor {
        Processor {
            split_bytes_per_s: self.split.rate(prior.split_bytes_per_s),
            encode_bytes_per_s: self.encode.rate(prior.encode_bytes_per_s),
            run_bytes_per_s: self.run.rate(prior.run_bytes_per_s),
        }
    }
}

impl WorkMeasured {
    /// Adds a measurement. Earlier ones are halved as soon as they cover more than a window.
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
