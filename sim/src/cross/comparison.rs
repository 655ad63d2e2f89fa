//! Both sides of each case, measure by measure, and the verdict.

use super::columns::Measure;
use super::trace::{Answers, Case, Feed, Load, Trace};
use crate::point::half_width;
use serde::Serialize;

/// The largest deviation of the means at which a row agrees, as a share of the simulator's mean; a percentage, in
/// points.
const NEAR: f64 = 0.05;
const NEAR_POINTS: f64 = 2.0;

/// The mean of a measure over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval; `None` for a single seed.
    pub half: Option<f64>,
}

/// A row: a measure of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The case.
    pub case: String,
    /// The measure.
    pub measure: Measure,
    /// The simulator's value.
    pub simulator: Estimate,
    /// The server's value.
    pub server: Estimate,
    /// The deviation of the server's mean from the simulator's, as a share of the latter; for percentages, in points.
    pub deviation: f64,
    /// True if the means are near each other, or their confidence intervals overlap.
    pub agrees: bool,
    /// Reads of the burst, or reads per second (see `is_burst`).
    pub load: f64,
    /// True for a burst.
    pub is_burst: bool,
    /// The path of the bytes on the server's side.
    pub feed: Feed,
}

/// All rows of a cross-validation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The rows, case by case.
    pub rows: Vec<Compared>,
}

impl Comparison {
    /// Adds the rows of `case`; each of its runs has a trace, the simulator's answers and the server's.
    pub fn add(&mut self, case: &Case, runs: &[(Trace, Answers, Answers)]) {
        assert!(!runs.is_empty(), "a case has a run");
        // A recall is several operations; none of them is the read.
        let has = |measure: &Measure| *measure != Measure::Service || !matches!(case.feed, Feed::Spool(_));
        self.rows.extend(Measure::ALL.into_iter().filter(has).map(|measure| compared(case, measure, runs)));
    }

    /// The number of rows that agree.
    pub fn agreeing(&self) -> usize {
        self.rows.iter().filter(|row| row.agrees).count()
    }
}

fn compared(case: &Case, measure: Measure, runs: &[(Trace, Answers, Answers)]) -> Compared {
    let estimate = |of: fn(&(Trace, Answers, Answers)) -> (&Trace, &Answers)| {
        let values = runs.iter().map(|run| {
            let (trace, answers) = of(run);
            measure.of(trace, answers)
        });
        Estimate { mean: values.clone().sum::<f64>() / runs.len() as f64, half: half_width(values) }
    };
    let (simulator, server) =
        (estimate(|(trace, sim, _)| (trace, sim)), estimate(|(trace, _, server)| (trace, server)));
    let apart = server.mean - simulator.mean;
    let (deviation, near) = match measure {
        Measure::Refused => (apart, apart.abs() <= NEAR_POINTS),
        _ if apart == 0.0 => (0.0, true),
        _ => (apart / simulator.mean, (apart / simulator.mean).abs() <= NEAR),
    };
    let overlap = simulator.half.zip(server.half).is_some_and(|(one, other)| apart.abs() <= one + other);
    let (load, is_burst) = match case.load {
        Load::Burst(reads, _) => (f64::from(reads), true),
        Load::Poisson(rate, ..) => (rate, false),
    };
    let (case, feed) = (case.name(), case.feed);
    Compared { case, measure, simulator, server, deviation, agrees: near || overlap, load, is_burst, feed }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cross::{ReadMoments, TracedRead, small};
    use engine::DriveList;
    use model::{GroupId, Time};

    /// A run of one read that takes this number of seconds.
    fn answers(seconds: u64) -> (Trace, Answers) {
        let at = Time::from_secs(1_000);
        let read = TracedRead { at, blob: 0, group: GroupId(0), drives: DriveList::new(), bytes: 1_000_000_000 };
        let ended = at + std::time::Duration::from_secs(seconds);
        let moments = ReadMoments { picked: Some(at), first_byte: Some(ended), ended: Some(ended), refused: false };
        let trace = Trace { reads: vec![read], from: at, until: None };
        (trace, Answers { reads: vec![moments], spin_ups: 24, energy_mj: 1_000 * seconds, to: ended })
    }

    fn agrees(measure: Measure, simulator: &[u64], server: &[u64]) -> bool {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican-mini").unwrap();
        let case = &small(&model::text::parse(text, "pelican-mini").unwrap(), 1_000_000_000)[0];
        let both = simulator.iter().zip(server).map(|(simulator, server)| {
            let (trace, simulated) = answers(*simulator);
            (trace, simulated, answers(*server).1)
        });
        let mut comparison = Comparison::default();
        comparison.add(case, &both.collect::<Vec<_>>());
        comparison.rows.iter().find(|row| row.measure == measure).unwrap().agrees
    }

    #[test]
    fn means_are_near_or_their_intervals_overlap() {
        assert!(agrees(Measure::Completion, &[100], &[105]));
        assert!(!agrees(Measure::Completion, &[100], &[106]));
        assert!(!agrees(Measure::Throughput, &[100], &[106]));
        assert!(!agrees(Measure::Completion, &[100, 101, 102], &[108, 109, 110]));
        assert!(agrees(Measure::Completion, &[80, 100, 120], &[90, 110, 130]), "scattered means overlap");
        assert!(agrees(Measure::SpinUps, &[100], &[200]), "a measure that is the same agrees");
    }
}
