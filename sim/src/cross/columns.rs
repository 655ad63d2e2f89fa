//! The measures of a trace's answers, by the same rules on both sides.
//!
//! A read counts if it ends within the measured time; reads that end before the measurement do not count.

use super::trace::{Answers, ReadMoments, Trace, TracedRead};
use serde::Serialize;
use std::time::Duration;

/// A measure: one value of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Payload answered, in Gb/s.
    Throughput,
    /// From issue to the first byte, mean in seconds.
    FirstByte,
    /// From issue to the last byte, mean in seconds.
    Completion,
    /// From the queue to the last byte, wakes included, mean in seconds.
    Service,
    /// Reads refused, in percent.
    Refused,
    /// Drives started.
    SpinUps,
    /// The energy of all drives, in megajoules.
    Energy,
    /// The mean draw of all drives, in watts.
    Power,
}

impl Measure {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Throughput,
        Self::FirstByte,
        Self::Completion,
        Self::Service,
        Self::Refused,
        Self::SpinUps,
        Self::Energy,
        Self::Power,
    ];

    /// Its name, with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput (Gb/s)",
            Self::FirstByte => "TTFB, mean (s)",
            Self::Completion => "completion, mean (s)",
            Self::Service => "service time, mean (s)",
            Self::Refused => "refused (%)",
            Self::SpinUps => "spin-ups",
            Self::Energy => "energy (MJ)",
            Self::Power => "mean power (W)",
        }
    }

    /// Its value for a run.
    pub fn of(self, trace: &Trace, answers: &Answers) -> f64 {
        let span_s = answers.to.since(trace.from).as_secs_f64().max(1e-9);
        let answered = || counted(trace, answers).filter(|(_, moments)| !moments.refused);
        match self {
            Self::Throughput => answered().map(|(read, _)| read.bytes as f64).sum::<f64>() * 8e-9 / span_s,
            Self::FirstByte => mean_s(answered().map(|(read, at)| Some(at.first_byte?.since(read.at)))),
            Self::Completion => mean_s(answered().map(|(read, at)| Some(at.ended?.since(read.at)))),
            Self::Service => mean_s(answered().map(|(_, at)| Some(at.ended?.since(at.picked?)))),
            Self::Refused => {
                let refused = counted(trace, answers).filter(|(_, moments)| moments.refused).count();
                refused as f64 * 100.0 / (counted(trace, answers).count() as f64).max(1.0)
            }
            Self::SpinUps => answers.spin_ups as f64,
            Self::Energy => answers.energy_mj as f64 / 1e9,
            Self::Power => answers.energy_mj as f64 / 1e3 / span_s,
        }
    }
}

/// The reads that ended within the measured time.
fn counted<'a>(
    trace: &'a Trace,
    answers: &'a Answers,
) -> impl Iterator<Item = (&'a TracedRead, &'a ReadMoments)> + Clone {
    let all = trace.reads.iter().zip(&answers.reads);
    all.filter(|(_, moments)| moments.ended.is_some_and(|ended| trace.from <= ended && ended <= answers.to))
}

/// The mean of the known durations, in seconds; 0 without any.
fn mean_s(durations: impl Iterator<Item = Option<Duration>>) -> f64 {
    let (sum, count) =
        durations.flatten().fold((0.0, 0.0), |(sum, count), span| (sum + span.as_secs_f64(), count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
