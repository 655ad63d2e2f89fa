//! The strategies by name, and the one that a planner uses.

use super::accounting::Accounting;
use super::apportion::Expected;
use super::baseline::Baseline;
use super::buffpack::BuffPack;
use super::fillpack::FillPack;
use super::offpack::OffPack;
use super::simulation::{Cost, Day, Simulation};
use super::strategy::{Step, Strategy};
use super::terms::Terms;
use super::tourpack::TourPack;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A strategy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// [`Baseline`].
    Baseline,
    /// [`BuffPack`].
    Buffpack,
    /// [`OffPack`].
    Offpack,
    /// [`FillPack`].
    Fillpack,
    /// [`TourPack`].
    Tourpack {
        /// The number of next groups of the tour whose output it carries.
        window: usize,
    },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baseline => write!(f, "Baseline"),
            Self::Buffpack => write!(f, "BuffPack"),
            Self::Offpack => write!(f, "OffPack"),
            Self::Fillpack => write!(f, "FillPack"),
            Self::Tourpack { window } => write!(f, "TourPack({window})"),
        }
    }
}

impl Choice {
    /// The strategy itself, in its initial state.
    pub fn strategy(self) -> Chosen {
        match self {
            Self::Baseline => Chosen::Baseline(Baseline::default()),
            Self::Buffpack => Chosen::Buffpack(BuffPack),
            Self::Offpack => Chosen::Offpack(OffPack::default()),
            Self::Fillpack => Chosen::Fillpack(FillPack::default()),
            Self::Tourpack { window } => Chosen::Tourpack(TourPack::new(window)),
        }
    }

    /// The paper's three and our two, TourPack with the window that fits the terms.
    pub fn candidates(terms: &Terms, memory_bytes: u64, groups: usize) -> [Self; 5] {
        let window = TourPack::fitting(terms, memory_bytes, groups).window();
        [Self::Baseline, Self::Buffpack, Self::Offpack, Self::Fillpack, Self::Tourpack { window }]
    }

    /// The candidate that costs least, starting from this accounting.
    pub fn cheapest(accounting: &Accounting, terms: &Terms, expected: &Expected) -> Self {
        let candidates = Self::candidates(terms, accounting.memory_bytes(), accounting.groups());
        cheapest(candidates, accounting, terms, expected).0
    }

    /// The cost of this choice, starting from this accounting.
    pub fn simulate_cost(self, accounting: &Accounting, terms: &Terms, expected: &Expected) -> Cost {
        self.strategy().simulate_cost(&Day::default(), accounting, terms, expected)
    }
}

/// The candidate that costs least, and its cost. There must be one.
pub(super) fn cheapest(
    candidates: impl IntoIterator<Item = Choice>,
    accounting: &Accounting,
    terms: &Terms,
    expected: &Expected,
) -> (Choice, Cost) {
    let costs = candidates.into_iter().map(|choice| (choice, choice.simulate_cost(accounting, terms, expected)));
    costs.min_by_key(|(_, cost)| cost.total()).expect("there are candidates")
}

/// A strategy with its current state.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// [`Baseline`].
    Baseline(Baseline),
    /// [`BuffPack`].
    Buffpack(BuffPack),
    /// [`OffPack`].
    Offpack(OffPack),
    /// [`FillPack`].
    Fillpack(FillPack),
    /// [`TourPack`].
    Tourpack(TourPack),
}

impl Chosen {
    /// The cost of the rest of the job, starting from this accounting and this moment of a day. Takes time in
    /// proportion to the number of times that the buffer is filled.
    pub fn simulate_cost(mut self, day: &Day, accounting: &Accounting, terms: &Terms, expected: &Expected) -> Cost {
        Simulation::new(accounting.clone(), terms, expected, day).run(|accounting| self.next(accounting, terms))
    }
}

impl Strategy for Chosen {
    fn next(&mut self, accounting: &Accounting, terms: &Terms) -> Step {
        let step = match self {
            Self::Baseline(strategy) => strategy.next(accounting, terms),
            Self::Buffpack(strategy) => strategy.next(accounting, terms),
            Self::Offpack(strategy) => strategy.next(accounting, terms),
            Self::Fillpack(strategy) => strategy.next(accounting, terms),
            Self::Tourpack(strategy) => strategy.next(accounting, terms),
        };
        if let Step::Visit { group } = step {
            assert!(group < accounting.groups(), "a strategy visits a group of the class");
        }
        if let Step::Offload { target } = step {
            assert!(accounting.awake() != Some(target), "nothing is offloaded to its own destination");
        }
        step
    }
}
