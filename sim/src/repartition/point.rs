//! The measurements of a job, with the forecasts of the models.

use super::asked::{Method, Repartition};
use super::job::Measurements;
use crate::chance::zipf_shares;
use crate::measure::{Clients, Summary};
use engine::repartition::formulas::{
    Question, Skew, baseline_s, buffpack_s, lower_bound_s, offpack_s, skewed_baseline_s, skewed_buffpack_s,
    skewed_fillpack_s,
};
use engine::repartition::{Choice, Expected};
use serde::{Deserialize, Serialize};

/// The results of a job, as means over the seeds, and the forecasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repartitioned {
    /// The strategy at the end, in the last run.
    pub strategy: Choice,
    /// Changes of strategy by the planner.
    pub changes: f64,
    /// Hours from the first operation until all output was delivered.
    pub hours: f64,
    /// The part of it in which the class waited for a group to rest and another one to wake, for clients or for the
    /// job.
    pub switching_hours: f64,
    /// Groups woken for the job, as the rack counts them, including the first.
    pub switches: f64,
    /// Groups woken by clients during the job.
    pub client_wakes: f64,
    /// The number of those with which the job continued, instead of the group that it had requested.
    pub free_rides: f64,
    /// The forecast switches minus the actual ones; negative if clients cost the job more switches than they saved.
    pub switches_saved: f64,
    /// Payload bytes read: input, and runs read back.
    pub bytes_read: u64,
    /// Payload bytes written: delivered, and offloaded.
    pub bytes_written: u64,
    /// The maximum of offloaded bytes on any one group.
    pub peak_offloaded_bytes: u64,
    /// By the paper's formula (1), (6) or (7); `None` for a strategy that is not in the paper.
    pub model_hours: Option<f64>,
    /// By the formula with skew and the terms that the paper's leaves out; `None` for OffPack and TourPack.
    pub better_model_hours: Option<f64>,
    /// By cost simulation: the strategy runs as a fluid, without a rack.
    pub simulated_hours: f64,
    /// The lower bound of all strategies; known if all groups receive equal output.
    pub bound_hours: Option<f64>,
    /// The clients' times to the first byte.
    pub ttfb_s: Summary,
    /// The share of client reads that were refused.
    pub reject_rate: f64,
    /// Events reported to the engine, over all seeds.
    pub events: u64,
    /// The trace hash of each seed's run.
    pub trace_hashes: Vec<u64>,
}

const HOUR_S: f64 = 3_600.0;

impl Repartitioned {
    pub(super) fn of(what: &Repartition, groups: usize, runs: &[Measurements]) -> Self {
        assert!(!runs.is_empty() && runs.len() == what.seeds.len(), "each seed has a run");
        let mean = |of: &dyn Fn(&Measurements) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let bytes = |of: fn(&Measurements) -> u64| {
            let sum: u128 = runs.iter().map(|run| u128::from(of(run))).sum();
            (sum / runs.len() as u128) as u64
        };
        let mut clients = Clients::default();
        for run in runs {
            clients.merge(&run.clients);
        }
        let (question, choice) = (what.question(groups), what.begins_with(groups));
        let simulated = choice.simulate_cost(&what.accounting(groups), &what.terms(), &what.expected(groups));
        let in_hours = |seconds: f64| seconds / HOUR_S;
        let switches = mean(&|run| run.switches as f64);
        Self {
            strategy: runs[runs.len() - 1].strategy,
            changes: mean(&|run| f64::from(run.changes)),
            hours: mean(&|run| run.time.as_secs_f64()) / HOUR_S,
            switching_hours: mean(&|run| run.switching.as_secs_f64()) / HOUR_S,
            switches,
            client_wakes: mean(&|run| run.client_wakes as f64),
            free_rides: mean(&|run| run.free_rides as f64),
            switches_saved: simulated.switches as f64 - switches,
            bytes_read: bytes(|run| run.bytes_read),
            bytes_written: bytes(|run| run.bytes_written),
            peak_offloaded_bytes: runs.iter().map(|run| run.peak_offloaded_bytes).max().unwrap_or(0),
            model_hours: paper_s(choice, &question).map(in_hours),
            better_model_hours: what.better_model_s(choice, &question).map(in_hours),
            simulated_hours: simulated.time.as_secs_f64() / HOUR_S,
            bound_hours: (what.output_skew_permille == 0).then(|| in_hours(lower_bound_s(&question))),
            ttfb_s: Summary::of(&clients.first_byte),
            reject_rate: clients.reject_rate(),
            events: runs.iter().map(|run| run.events).sum(),
            trace_hashes: runs.iter().map(|run| run.trace_hash).collect(),
        }
    }
}

/// The paper's formula for a strategy, in seconds.
pub(crate) fn paper_s(choice: Choice, question: &Question) -> Option<f64> {
    match choice {
        Choice::Baseline => Some(baseline_s(question)),
        Choice::Buffpack => Some(buffpack_s(question)),
        Choice::Offpack => Some(offpack_s(question)),
        Choice::Fillpack | Choice::Tourpack { .. } => None,
    }
}

impl Repartition {
    /// The formula with skew for the strategy `choice`, in seconds.
    fn better_model_s(&self, choice: Choice, question: &Question) -> Option<f64> {
        let [input, output] = [self.input_skew_permille, self.output_skew_permille]
            .map(|skew| zipf_shares(question.groups, skew).collect::<Vec<_>>());
        let skew = Skew { input: &input, output: &output };
        match choice {
            Choice::Baseline => Some(skewed_baseline_s(question)),
            Choice::Buffpack => Some(skewed_buffpack_s(question, skew)),
            Choice::Fillpack => Some(skewed_fillpack_s(question, skew)),
            Choice::Offpack | Choice::Tourpack { .. } => None,
        }
    }

    /// The strategy at the beginning. The planner knows the distribution of the input, but not that of the output.
    fn begins_with(&self, groups: usize) -> Choice {
        let terms = self.terms();
        match self.method {
            Method::Planner => {
                let expected = Expected::uniform(groups, self.alpha);
                Choice::cheapest(&self.accounting(groups), &terms, &expected)
            }
            method => method.forced(&terms, self.memory_bytes, groups).unwrap_or(Choice::Baseline),
        }
    }
}
