//! Follows the cheapest strategy in one class, and changes it when the measurements make another one cheaper.
//!
//! The cost of every candidate is simulated from the job's current progress, with the measurements so far: the choice
//! includes the skew of input and output, and the buffered and offloaded bytes. A change costs only the simulation,
//! since every strategy can continue from any accounting. It must save at least a fiftieth of the remaining cost, so
//! that noise does not make the job waver.

use super::accounting::Accounting;
use super::apportion::Expected;
use super::choice::{Choice, Chosen, cheapest};
use super::processor::Processor;
use super::simulation::{Cost, Day};
use super::strategy::{Step, Strategy};
use super::terms::{Alpha, Terms};

/// The number of reviews of the choice in a job.
const REVIEWS: u64 = 20;

/// Plans a job in one class.
#[derive(Clone, Debug)]
pub struct Planner {
    /// The bytes moved so far, and their places.
    pub(super) accounting: Accounting,
    terms: Terms,
    /// True if the choice stays, regardless of measurements.
    pub(super) fixed: bool,
    /// The current strategy.
    pub(super) choice: Choice,
    chosen: Chosen,
    /// The input that was unread at the last review.
    reviewed_at: u64,
    /// The input to read between two reviews.
    review_every: u64,
    /// The number of changes of the strategy.
    pub(super) changes: u32,
}

impl Planner {
    /// Starts with `choice`, and keeps it if it is `fixed`.
    pub fn new(accounting: Accounting, terms: Terms, choice: Choice, fixed: bool) -> Self {
        assert!(terms.read_bytes_per_s > 0 && terms.write_bytes_per_s > 0, "a group moves bytes");
        let reviewed_at = accounting.input_left();
        let review_every = (reviewed_at / REVIEWS).max(1);
        let chosen = choice.strategy();
        Self { accounting, terms, fixed, choice, chosen, reviewed_at, review_every, changes: 0 }
    }

    /// The next step. The choice is reviewed up to twenty times in a job, and only when a group would be left.
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

    /// The step that the current choice would take if this group were awake and `reserved` bytes fewer were reserved.
    /// The choice is not reviewed for it.
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

    /// Replaces the processor's rates by measured ones.
    pub(super) fn set_processor(&mut self, processor: Processor) {
        self.terms.processor = processor;
    }

    /// The cost of the rest of the job with the current choice, if input and output continue as measured and a day has
    /// just begun.
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

    /// Changes the strategy if another one is cheaper by at least a fiftieth.
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
