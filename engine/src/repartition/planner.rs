//! Follows the cheapest strategy in one class, and changes it when what was measured makes another one cheaper.
//!
//! The cost of every candidate is simulated from where the job stands, with what was measured so far: the choice knows
//! the skew of input and output, what is buffered and what lies offloaded. A change costs only the simulation, since
//! every strategy can go on from any accounting; it must promise at least a fiftieth of what is left, so that noise
//! does not make the job waver.

use super::accounting::Accounting;
use super::apportion::Expected;
use super::choice::{Choice, Chosen, cheapest};
use super::processor::Processor;
use super::simulation::{Cost, Day};
use super::strategy::{Step, Strategy};
use super::terms::{Alpha, Terms};

/// The reviews of the choice in a job.
const REVIEWS: u64 = 20;

/// Plans a job in one class.
#[derive(Clone, Debug)]
pub struct Planner {
    /// The bytes moved so far, and where they lie.
    pub(super) accounting: Accounting,
    terms: Terms,
    /// The choice stays, whatever is measured.
    pub(super) fixed: bool,
    /// The strategy it follows now.
    pub(super) choice: Choice,
    chosen: Chosen,
    /// The input that was left at the last review.
    reviewed_at: u64,
    /// The input between two reviews.
    review_every: u64,
    /// How often it changed the strategy.
    pub(super) changes: u32,
}

impl Planner {
    /// Begins with `choice`, and keeps to it if it is `fixed`.
    pub fn new(accounting: Accounting, terms: Terms, choice: Choice, fixed: bool) -> Self {
        assert!(terms.read_bytes_per_s > 0 && terms.write_bytes_per_s > 0, "a group moves bytes");
        let reviewed_at = accounting.input_left();
        let review_every = (reviewed_at / REVIEWS).max(1);
        let chosen = choice.strategy();
        Self { accounting, terms, fixed, choice, chosen, reviewed_at, review_every, changes: 0 }
    }

    /// The next step. Twenty times in a job, and only when a group would be left, the choice is reviewed.
    pub fn next_step(&mut self) -> Step {
        let step = self.chosen.next(&self.accounting, &self.terms);
        assert!(self.accounting.input_left() <= self.reviewed_at, "input does not grow");
        let read = self.reviewed_at - self.accounting.input_left();
        if self.fixed || read < self.review_every || !matches!(step, Step::Visit { .. }) {
            return step;
        }
        self.reviewed_at = self.accounting.input_left();
        if !self.review() {
            return step;
        }
        self.chosen.next(&self.accounting, &self.terms)
    }

    /// The step that the current choice would take on this group if it were awake and so much less were reserved.
    /// Nothing is reviewed for it.
    pub(super) fn step_on(&mut self, group: usize, reserved: u64) -> Step {
        let awake = self.accounting.awake();
        self.accounting.release(reserved);
        self.accounting.set_awake(Some(group));
        let mut chosen = self.chosen;
        let step = chosen.next(&self.accounting, &self.terms);
        self.accounting.set_awake(awake);
        self.accounting.reserve(reserved);
        assert_eq!(self.accounting.awake(), awake, "a look changes nothing");
        step
    }

    /// The processor's rates were measured.
    pub(super) fn set_processor(&mut self, processor: Processor) {
        self.terms.processor = processor;
    }

    /// The cost of the rest by the current choice, if things go on as measured and a day has just begun.
    pub fn forecast(&self) -> Cost {
        self.chosen.simulate_cost(&Day::default(), &self.accounting, &self.terms, &self.measured())
    }

    fn measured(&self) -> Expected {
        let produced = self.accounting.produced();
        if produced.iter().all(|bytes| *bytes == 0) {
            return Expected::uniform(self.accounting.groups(), self.accounting.alpha());
        }
        let alpha = self.accounting.alpha();
        Expected { alpha: Alpha { input: alpha.input.max(1), ..alpha }, shares: produced.to_vec() }
    }

    /// Changes the strategy if another one is cheaper by a fiftieth at least.
    fn review(&mut self) -> bool {
        assert!(!self.fixed, "a fixed choice is not reviewed");
        let (memory_bytes, groups) = (self.accounting.memory_bytes(), self.accounting.groups());
        let candidates = Choice::candidates(&self.terms, memory_bytes, groups);
        let candidates = candidates.into_iter().filter(|choice| *choice != Choice::Baseline);
        let (choice, cost) = cheapest(candidates, &self.accounting, &self.terms, &self.measured());
        if choice == self.choice || cost.total() + cost.total() / 49 > self.forecast().total() {
            return false;
        }
        assert!(cost.total() <= self.forecast().total(), "a change promises something");
        self.choice = choice;
        self.chosen = choice.strategy();
        self.changes += 1;
        true
    }
}
