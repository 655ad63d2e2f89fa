//! Shrinking: a run that breaks a rule is run again with less and less, for as long as the same rule is broken.
//!
//! Whatever happens in a run is drawn from a stream of its own, so that leaving something out leaves the rest as it is;
//! only moments shift. Tried are, from coarse to fine: lives, kinds of faults, then operations and faults in halves of
//! halves.

use crate::journal::Rule;
use crate::plan::{Item, LifeEnd, Plan};
use crate::report::{Report, run};
use crate::{readers, tags};
use disk::clock::monotonic;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Shrinking ends after so long on the wall: a run that never ends takes seconds to try.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The smallest run that was found to break the rule.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Its plan.
    pub plan: Plan,
    /// What became of it.
    pub report: Report,
    /// Runs that were tried.
    pub tried: u64,
}

/// Looks for a smaller run than `plan` that breaks the same rule as it did in `report`, with at most `runs` tries and
/// within a minute.
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
    /// Takes `plan` if it breaks the same rule.
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

    /// Leaves out as many of `items` as can be, first halves of them, then quarters and so on.
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

/// The first faults of each life: more than there are in most.
fn faults(plan: &Plan) -> Vec<Item> {
    (0..plan.lives.len() as u64).flat_map(|round| (0..64).map(move |fault| Item::Fault { round, fault })).collect()
}
