//! Measurements of a job, beside the models.

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

/// A job: what it took, on average over the seeds, and what was foretold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repartitioned {
    /// The strategy at the end, in the last run.
    pub strategy: Choice,
    /// Changes of it by the planner.
    pub changes: f64,
    /// From the first operation until everything was home.
    pub hours: f64,
    /// The part of it in which the class waited for a group to rest and another one to wake, whoever wanted it.
    pub switching_hours: f64,
    /// Groups that were woken for the job, as the rack counts them; the first one counts.
    pub switches: f64,
    /// Groups that clients woke meanwhile.
    pub client_wakes: f64,
    /// Of those, how many the job went on with, instead of the one that it had asked for.
    pub free_rides: f64,
    /// By how many switches fewer than foretold the job took; less than 0 if clients cost it more than they saved.
    pub switches_saved: f64,
    /// Payload bytes read: input, and runs read back.
    pub bytes_read: u64,
    /// Payload bytes written: home, and offloaded.
    pub bytes_written: u64,
    /// The most that lay offloaded on any one group.
    pub peak_offloaded_bytes: u64,
    /// By the paper's formula, (1), (6) or (7); none for what is not in the paper.
    pub model_hours: Option<f64>,
    /// By the formula that knows skew, and what the paper's leaves out; none for OffPack and TourPack.
    pub better_model_hours: Option<f64>,
    /// By cost simulation: the strategy run as a fluid, without a rack.
    pub simulated_hours: f64,
    /// The lower bound of all strategies; known where output falls to all groups alike.
    pub bound_hours: Option<f64>,
    /// The clients' times to the first byte.
    pub ttfb_s: Summary,
    /// The share of client reads that were refused.
    pub reject_rate: f64,
    /// Events that the engine was given, over all seeds.
    pub events: u64,
    /// For each seed, a number that is the same whenever the same happened.
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
    /// The formula that knows skew for the strategy `choice`, in seconds.
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

    /// The strategy that it begins with. The planner knows how the input lies and not how the output falls.
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
