//! Shrinking: a run that breaks a rule is repeated with fewer and fewer parts, as long as it breaks the same rule.
//!
//! Each thing in a run is drawn from its own stream, so leaving one out changes only the timing of the rest. Shrinking
//! tries, from coarse to fine: lives, settings, kinds of faults, then operations and faults in smaller and smaller
//! chunks.

use crate::journal::Rule;
use crate::plan::{Item, LifeEnd, Plan};
use crate::report::{Report, run};
use crate::{readers, tags};
use disk::clock::monotonic;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Wall time after which shrinking ends; each try of a run that never ends takes seconds.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The smallest run found that breaks the rule.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Its plan.
    pub plan: Plan,
    /// Its result.
    pub report: Report,
    /// Number of runs that were tried.
    pub tried: u64,
}

/// Looks for a smaller run than `plan` that breaks the same rule as in `report`, with at most `runs` tries and within
/// 30 seconds.
pub fn shrink(plan: &Plan, report: Report, runs: u64) -> Shrunk {
    let Some(rule) = report.violation.as_ref().map(|violation| violation.rule) else {
        return Shrunk { plan: plan.clone(), report, tried: 0 };
    };
    let best = Shrunk { plan: plan.clone(), report, tried: 0 };
    let mut shrinking = Shrinking { best, rule, runs, began: monotonic() };
    shrinking.lives();
    shrinking.settings();
    shrinking.kinds();
    shrinking.items(&ops(&shrinking.best.plan));
    shrinking.items(&faults(&shrinking.best.plan));
    shrinking.best
}

struct Shrinking {
    best: Shrunk,
    rule: Rule,
    runs: u64,
    began: Instant,
}

impl Shrinking {
    /// Runs `plan`, and keeps it if it breaks the same rule.
    fn takes(&mut self, plan: Plan) -> bool {
        let is_over = self.best.tried >= self.runs || self.began.elapsed() >= TIME_MAX;
        if is_over || plan == self.best.plan {
            return false;
        }
        self.best.tried += 1;
        let report = run(&plan, false);
        let same = report.violation.as_ref().is_some_and(|violation| violation.rule == self.rule);
        if same {
            (self.best.plan, self.best.report) = (plan, report);
        }
        same
    }

    fn with(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.plan.clone();
        change(&mut plan);
        self.takes(plan)
    }

    fn lives(&mut self) {
        while self.best.plan.lives.len() > 1 && self.with(|plan| _ = plan.lives.pop()) {}
    }

    fn settings(&mut self) {
        self.with(|plan| plan.jobs = false);
        self.with(|plan| plan.users = false);
        self.with(|plan| plan.tags = false);
        self.with(|plan| plan.abrupt = false);
        self.with(|plan| plan.verifies = false);
        self.with(|plan| plan.unseen = false);
        for life in 0..self.best.plan.lives.len() {
            self.with(|plan| plan.lives[life].older_catalog = false);
            self.with(|plan| plan.lives[life].audited = false);
            self.with(|plan| plan.lives[life].end = LifeEnd::Stopped);
            self.with(|plan| plan.lives[life].clients = 1);
        }
    }

    fn kinds(&mut self) {
        for kind in self.best.plan.kinds.clone() {
            self.with(|plan| _ = plan.without.insert(kind));
        }
    }

    /// Leaves out as many of `items` as possible: first tries all of them, then halves, quarters and so on.
    fn items(&mut self, items: &[Item]) {
        let mut chunk = items.len();
        while chunk > 0 {
            for some in items.chunks(chunk) {
                let fresh: BTreeSet<Item> =
                    some.iter().copied().filter(|item| !self.best.plan.dropped.contains(item)).collect();
                if !fresh.is_empty() {
                    self.with(|plan| plan.dropped.extend(fresh));
                }
            }
            chunk /= 2;
        }
    }
}

fn ops(plan: &Plan) -> Vec<Item> {
    let lives = plan.lives.iter().zip(0..);
    let of_client = |round, client, ops| (0..ops).map(move |op| Item::Op { round, client, op });
    lives
        .flat_map(|(life, round)| {
            let clients = (0..life.clients).flat_map(move |client| of_client(round, client, life.ops));
            let readers = of_client(round, readers::CLIENT, readers::ops(life));
            clients.chain(readers).chain(of_client(round, tags::CLIENT, tags::ops(life)))
        })
        .collect()
}

/// The first faults of each life; most lives have fewer.
fn faults(plan: &Plan) -> Vec<Item> {
    (0..plan.lives.len() as u64).flat_map(|round| (0..64).map(move |fault| Item::Fault { round, fault })).collect()
}
