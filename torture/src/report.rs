//! The results of a run, and of many runs.

use crate::coverage::{self, Coverage, Pair};
use crate::journal::{Line, Violation};
use crate::kinds::FaultKind;
use crate::life;
use crate::plan::Plan;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tracing::subscriber::NoSubscriber;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of everything that happened: the same for the same seed.
    pub hash: u64,
    /// The first rule that was broken, if any.
    pub violation: Option<Violation>,
    /// The history.
    pub lines: Vec<Line>,
    /// Virtual time of the run, in milliseconds.
    pub virtual_ms: u64,
    /// Drive-milliseconds in a bad condition.
    pub fault_ms: u64,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Requests of clients that were answered.
    pub answers: u64,
    /// Records of the engine's trace.
    pub records: u64,
    /// The number of times that each event met each state.
    pub coverage: Coverage,
}

/// Runs `plan` on this thread. The server's log is left out, unless `logged`.
pub fn run(plan: &Plan, logged: bool) -> Report {
    let _unlogged = (!logged).then(|| tracing::subscriber::set_default(NoSubscriber::default()));
    let site = life::run(plan);
    let (happened, fault_ms) = {
        let state = site.overlay.state();
        (state.happened.clone(), state.fault_ms)
    };
    let judge = site.judge.lock();
    Report {
        seed: plan.seed,
        hash: site.journal.hash(),
        violation: site.journal.violation(),
        lines: site.journal.take_lines(),
        virtual_ms: site.journal.now_ms(),
        fault_ms,
        faults: happened,
        answers: site.journal.answers(),
        records: judge.records,
        coverage: judge.coverage.clone(),
    }
}

/// The results of many runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Runs that broke a rule.
    pub broken: u64,
    /// Virtual hours.
    pub virtual_hours: f64,
    /// Drive-hours in some bad condition.
    pub fault_hours: f64,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Requests of clients that were answered.
    pub answers: u64,
    /// Records of the engine's trace.
    pub records: u64,
    /// The number of times that each event met each state, by event and then by state.
    pub coverage: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.broken += u64::from(report.violation.is_some());
        self.virtual_hours += report.virtual_ms as f64 / 3_600_000.0;
        self.fault_hours += report.fault_ms as f64 / 3_600_000.0;
        self.answers += report.answers;
        self.records += report.records;
        for (kind, count) in &report.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        for ((event, state), count) in &report.coverage {
            *self.coverage.entry(event).or_default().entry(state).or_default() += count;
        }
    }

    /// Pairs of an event and a state that were reached.
    pub fn reached(&self) -> usize {
        self.coverage.values().map(BTreeMap::len).sum()
    }

    /// Possible pairs that were not reached.
    pub fn never(&self) -> Vec<Pair> {
        coverage::pairs().filter(|pair| !self.has(*pair) && coverage::cannot(*pair).is_none()).collect()
    }

    /// Pairs that were reached although they are impossible or unknown; there should be none.
    pub fn contradictions(&self) -> Vec<Pair> {
        let known: BTreeSet<Pair> = coverage::pairs().filter(|pair| coverage::cannot(*pair).is_none()).collect();
        let reached = self.coverage.iter().flat_map(|(event, states)| states.keys().map(|state| (*event, *state)));
        reached.filter(|pair| !known.contains(pair)).collect()
    }

    fn has(&self, (event, state): Pair) -> bool {
        self.coverage.get(event).is_some_and(|states| states.contains_key(state))
    }
}
