//! The description of a repartition job: the amount of data, its distribution, that of its output, and the method.

use super::hardware::Groups;
use crate::chance::zipf_shares;
use crate::links::Network;
use engine::layout::LayoutError;
use engine::repartition::formulas::Question;
use engine::repartition::{Accounting, Alpha, Choice, Expected, Terms};
use engine::{RackPolicy, Rejection};
use model::{ClassId, RackSpec, SpecError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The class of all jobs.
pub(super) const CLASS: ClassId = ClassId(0);

/// The method that decides the visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The planner's choice, revised during the job.
    Planner,
    /// The paper's baseline.
    Baseline,
    /// The paper's BuffPack.
    Buffpack,
    /// The paper's OffPack.
    Offpack,
    /// Our own: OffPack, with the buffer filled for as few targets as possible.
    Fillpack,
    /// Our own, with the window that fits.
    Tourpack,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 6] =
        [Self::Planner, Self::Baseline, Self::Buffpack, Self::Offpack, Self::Fillpack, Self::Tourpack];

    /// The word for it in scenarios.
    pub fn word(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Baseline => "baseline",
            Self::Buffpack => "buffpack",
            Self::Offpack => "offpack",
            Self::Fillpack => "fillpack",
            Self::Tourpack => "tourpack",
        }
    }

    /// The strategy that it forces.
    pub(super) fn forced(self, terms: &Terms, memory_bytes: u64, groups: usize) -> Option<Choice> {
        let [baseline, buffpack, offpack, fillpack, tourpack] = Choice::candidates(terms, memory_bytes, groups);
        match self {
            Self::Planner => None,
            Self::Baseline => Some(baseline),
            Self::Buffpack => Some(buffpack),
            Self::Offpack => Some(offpack),
            Self::Fillpack => Some(fillpack),
            Self::Tourpack => Some(tourpack),
        }
    }
}

/// Clients' reads from the class, at random times, from each of its groups with equal chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// The mean time between two reads; above 0.
    pub mean_gap: Duration,
    /// The size of each read.
    pub bytes: u64,
}

/// A job. See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repartition {
    /// The rack; the job is on the groups of its first class.
    pub rack: RackSpec,
    /// The operator's settings.
    pub policy: RackPolicy,
    /// The network between servers and clients.
    pub network: Network,
    /// S_D: bytes of input.
    pub data_bytes: u64,
    /// S_M: bytes of buffer; above 0.
    pub memory_bytes: u64,
    /// Output over input.
    pub alpha: Alpha,
    /// The skew of the input over the groups: s of Zipf's law, in thousandths.
    pub input_skew_permille: u32,
    /// The skew of the output over the groups, in the same form.
    pub output_skew_permille: u32,
    /// The method that decides the visits.
    pub method: Method,
    /// The maximum that one operation moves; `None` is everything that the planner requests at once.
    pub operation_bytes: Option<u64>,
    /// The clients' reads during the job.
    pub reads: Option<Reads>,
    /// The seeds, at least one; each gives one run.
    pub seeds: Vec<u64>,
}

impl Repartition {
    /// The paper's Table III, decided by `method`, on synthetic groups.
    ///
    /// # Errors
    /// [`SpecError`] if the groups are not valid.
    pub fn paper(groups: &Groups, method: Method) -> Result<Self, SpecError> {
        let rack = groups.rack()?;
        let mut policy = crate::experiment::pelican_policy(rack.profile.starts_per_day());
        policy.write_read_back = false;
        Ok(Self {
            rack,
            policy,
            network: Network::UNBOUNDED,
            data_bytes: Question::PAPER.data_bytes,
            memory_bytes: Question::PAPER.memory_bytes,
            alpha: Alpha::ONE,
            input_skew_permille: 0,
            output_skew_permille: 0,
            method,
            operation_bytes: None,
            reads: None,
            seeds: vec![1],
        })
    }

    /// The costs of the class's hardware by the rack's description. If the policy asks for it, written data is read
    /// back, which takes the same time again.
    pub fn terms(&self) -> Terms {
        Terms::of(&self.rack, self.policy.write_read_back)
    }

    /// The accounting of the job before it begins, over this number of groups.
    pub fn accounting(&self, groups: usize) -> Accounting {
        Accounting::new(self.input_bytes(groups), self.memory_bytes, self.alpha)
    }

    /// The bytes of input in each group.
    pub(super) fn input_bytes(&self, groups: usize) -> Vec<u64> {
        shared_out(self.data_bytes, self.input_skew_permille, groups)
    }

    /// The true shares of the output.
    pub fn expected(&self, groups: usize) -> Expected {
        Expected { alpha: self.alpha, shares: shared_out(1 << 40, self.output_skew_permille, groups) }
    }

    /// The same job for the formulas.
    pub fn question(&self, groups: usize) -> Question {
        let (data_bytes, memory_bytes) = (self.data_bytes, self.memory_bytes);
        Question { data_bytes, memory_bytes, groups, alpha: self.alpha, terms: self.terms() }
    }
}

/// Divides `whole` over this number of groups by Zipf's law; the first group gets the rounding remainder.
fn shared_out(whole: u64, skew_permille: u32, groups: usize) -> Vec<u64> {
    let mut parts: Vec<u64> = if skew_permille == 0 {
        vec![whole / groups as u64; groups]
    } else {
        zipf_shares(groups, skew_permille).map(|share| (share * whole as f64) as u64).collect()
    };
    let given: u64 = parts.iter().sum();
    parts[0] += whole - given.min(whole);
    parts
}

/// The reason why a job cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepartitionError {
    /// The rack has no layout.
    #[error("the rack has no layout: {0}")]
    Layout(#[from] LayoutError),
    /// The groups of a scenario are not valid.
    #[error("these groups cannot form a rack: {0}")]
    Groups(#[from] SpecError),
    /// No seed was given.
    #[error("a job needs at least one seed")]
    NoSeed,
    /// There is nothing to do, or no means to do it.
    #[error("a job needs data, memory, and reads that do not all come at once")]
    Nothing,
    /// The rack refused an operation.
    #[error("the rack refused an operation of the job: {0:?}; {more} h had passed", more = .1.as_secs() / 3_600)]
    Refused(Rejection, Duration),
}
