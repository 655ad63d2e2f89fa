//! Chooses a strategy before the job runs, and again when what is measured makes another one cheaper.
//!
//! Every candidate is rehearsed from where the job stands, with what was measured so far: the choice knows skew of
//! input and output, what is buffered and what lies offloaded. A change costs a rehearsal only, since every strategy
//! can go on from any books; it must promise at least a fiftieth of what is left, so that noise does not make the job
//! waver.

use super::rehearsal::rehearse_on;
use super::{
    Alpha, Baseline, Books, BuffPack, Cost, Day, Expected, OffPack, Step, Strategy, Terms, TourPack, rehearse,
};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A strategy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// [`Baseline`].
    Baseline,
    /// [`BuffPack`].
    Buffpack,
    /// [`OffPack`].
    Offpack,
    /// [`TourPack`].
    Tourpack {
        /// For how many groups of the tour it carries.
        window: usize,
    },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baseline => write!(f, "Baseline"),
            Self::Buffpack => write!(f, "BuffPack"),
            Self::Offpack => write!(f, "OffPack"),
            Self::Tourpack { window } => write!(f, "TourPack({window})"),
        }
    }
}

impl Choice {
    /// The strategy itself, at its beginning.
    pub fn strategy(self) -> Chosen {
        match self {
            Self::Baseline => Chosen::Baseline(Baseline::default()),
            Self::Buffpack => Chosen::Buffpack(BuffPack),
            Self::Offpack => Chosen::Offpack(OffPack::default()),
            Self::Tourpack { window } => Chosen::Tourpack(TourPack::new(window)),
        }
    }

    /// The paper's three, and ours with the window that fits.
    pub fn candidates(terms: &Terms, memory_bytes: u64, groups: usize) -> [Self; 4] {
        let window = TourPack::fitting(terms, memory_bytes, groups).window();
        [Self::Baseline, Self::Buffpack, Self::Offpack, Self::Tourpack { window }]
    }

    /// What this choice would cost from these books on.
    pub fn rehearse(self, books: &Books, terms: &Terms, expected: &Expected) -> Cost {
        rehearse(&mut self.strategy(), books.clone(), terms, expected)
    }

    /// The same from a certain moment of a day on.
    pub fn rehearse_on(self, day: &Day, books: &Books, terms: &Terms, expected: &Expected) -> Cost {
        rehearse_on(day, &mut self.strategy(), books.clone(), terms, expected)
    }
}

/// A strategy in the middle of its work.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// [`Baseline`].
    Baseline(Baseline),
    /// [`BuffPack`].
    Buffpack(BuffPack),
    /// [`OffPack`].
    Offpack(OffPack),
    /// [`TourPack`].
    Tourpack(TourPack),
}

impl Strategy for Chosen {
    fn next(&mut self, books: &Books, terms: &Terms) -> Step {
        match self {
            Self::Baseline(strategy) => strategy.next(books, terms),
            Self::Buffpack(strategy) => strategy.next(books, terms),
            Self::Offpack(strategy) => strategy.next(books, terms),
            Self::Tourpack(strategy) => strategy.next(books, terms),
        }
    }
}

/// A job's mind in one class.
#[derive(Clone, Debug)]
pub struct Planner {
    books: Books,
    terms: Terms,
    forced: bool,
    choice: Choice,
    chosen: Chosen,
    /// Input that was left when the choice was last looked at.
    reviewed_at: u64,
    /// Input between two reviews.
    review_every: u64,
    changes: u32,
}

impl Planner {
    /// Chooses the strategy that costs least, if output falls as expected; or takes the one that is `forced`.
    pub fn new(books: Books, terms: Terms, expected: &Expected, forced: Option<Choice>) -> Self {
        let candidates = Choice::candidates(&terms, books.memory_bytes(), books.groups());
        let cheapest = || cheapest(&candidates, &books, &terms, expected).0;
        let choice = forced.unwrap_or_else(cheapest);
        let reviewed_at = books.input_left();
        Self {
            chosen: choice.strategy(),
            choice,
            forced: forced.is_some(),
            reviewed_at,
            review_every: (reviewed_at / 20).max(1),
            books,
            terms,
            changes: 0,
        }
    }

    /// The strategy it follows now.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// How often it changed it.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The books.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The books, to enter what was done.
    pub fn books_mut(&mut self) -> &mut Books {
        &mut self.books
    }

    /// The next step. Twenty times in a job, and only when a group would be left, the choice is looked at again.
    pub fn next_step(&mut self) -> Step {
        let step = self.chosen.next(&self.books, &self.terms);
        let read = self.reviewed_at - self.books.input_left();
        if self.forced || read < self.review_every || !matches!(step, Step::Visit { .. }) {
            return step;
        }
        self.reviewed_at = self.books.input_left();
        if !self.review() {
            return step;
        }
        self.chosen.next(&self.books, &self.terms)
    }

    /// What the current choice would do on this group if it were awake and so much less were promised. Nothing is
    /// reviewed for it.
    pub(super) fn step_on(&mut self, group: usize, promised: u64) -> Step {
        let awake = self.books.awake();
        self.books.redeem(promised);
        self.books.woke(group);
        let mut chosen = self.chosen;
        let step = chosen.next(&self.books, &self.terms);
        match awake {
            Some(awake) => self.books.woke(awake),
            None => self.books.slept(),
        }
        self.books.promise(promised);
        step
    }

    /// What the rest would cost by the current choice, if things go on as measured and a day has just begun.
    pub fn forecast(&self) -> Cost {
        let mut chosen = self.chosen;
        rehearse(&mut chosen, self.books.clone(), &self.terms, &self.measured())
    }

    fn measured(&self) -> Expected {
        let produced = self.books.produced();
        if produced.iter().all(|bytes| *bytes == 0) {
            return Expected::uniform(self.books.groups(), self.books.alpha());
        }
        let alpha = self.books.alpha();
        Expected { alpha: Alpha { input: alpha.input.max(1), ..alpha }, shares: produced.to_vec() }
    }

    /// Changes the strategy if another one is cheaper by a fiftieth at least.
    fn review(&mut self) -> bool {
        let expected = self.measured();
        let candidates: Vec<Choice> = Choice::candidates(&self.terms, self.books.memory_bytes(), self.books.groups())
            .into_iter()
            .filter(|choice| *choice != Choice::Baseline)
            .collect();
        let (choice, cost) = cheapest(&candidates, &self.books, &self.terms, &expected);
        if choice == self.choice || cost.total() + cost.total() / 49 > self.forecast().total() {
            return false;
        }
        self.choice = choice;
        self.chosen = choice.strategy();
        self.changes += 1;
        true
    }
}

/// The candidate that costs least. There must be one.
fn cheapest(candidates: &[Choice], books: &Books, terms: &Terms, expected: &Expected) -> (Choice, Cost) {
    let costs = candidates.iter().map(|choice| (*choice, choice.rehearse(books, terms, expected)));
    costs.min_by_key(|(_, cost)| cost.total()).expect("there are candidates")
}
