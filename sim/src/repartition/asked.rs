//! A repartition job, as it is asked for: how much data, how it lies, how its output falls, who decides.

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

/// The class that jobs are on.
pub(super) const CLASS: ClassId = ClassId(0);

/// Who decides the visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Whatever the planner chooses, and chooses again.
    Planner,
    /// The paper's baseline.
    Baseline,
    /// The paper's BuffPack.
    Buffpack,
    /// The paper's OffPack.
    Offpack,
    /// Ours: OffPack, with the buffer filled for as few targets as can be.
    Fillpack,
    /// Ours, with the window that fits.
    Tourpack,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Planner, Self::Baseline, Self::Buffpack, Self::Offpack, Self::Fillpack, Self::Tourpack];

    /// As scenarios write it.
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

    /// The strategy that is forced by it.
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

/// Reads by clients of the class, at random moments, of any of its groups with equal chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// The mean time between two; above 0.
    pub mean_gap: Duration,
    /// The size of each.
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
    /// The skew of the output over them.
    pub output_skew_permille: u32,
    /// Who decides.
    pub method: Method,
    /// The most that one operation moves; `None` is all that the planner asks for at once.
    pub operation_bytes: Option<u64>,
    /// The clients' reads meanwhile.
    pub reads: Option<Reads>,
    /// One run for each; at least one.
    pub seeds: Vec<u64>,
}

impl Repartition {
    /// The paper's Table III, decided by `method`, in groups that are made up.
    ///
    /// # Errors
    /// [`SpecError`] if there are no such groups.
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

    /// The costs of the class's hardware by the rack's description. What is written is read back where the policy says
    /// so, and takes as long again.
    pub fn terms(&self) -> Terms {
        Terms::of(&self.rack, self.policy.write_read_back)
    }

    /// The accounting of the job before it begins, over so many groups.
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

    /// The same for the formulas.
    pub fn question(&self, groups: usize) -> Question {
        let (data_bytes, memory_bytes) = (self.data_bytes, self.memory_bytes);
        Question { data_bytes, memory_bytes, groups, alpha: self.alpha, terms: self.terms() }
    }
}

/// `whole` over so many groups by Zipf's law; what rounding leaves goes to the first.
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

/// The reason why a job cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepartitionError {
    /// The rack has no layout.
    #[error("the rack has no layout: {0}")]
    Layout(#[from] LayoutError),
    /// The groups of a scenario are not valid.
    #[error("these groups are no rack: {0}")]
    Groups(#[from] SpecError),
    /// No seed was given.
    #[error("a job needs at least one seed")]
    NoSeed,
    /// There is nothing to do, or nothing to do it with.
    #[error("a job needs data, memory, and reads that do not all come at once")]
    Nothing,
    /// The rack refused an operation.
    #[error("the rack refused an operation of the job: {0:?}; {more} h had passed", more = .1.as_secs() / 3_600)]
    Refused(Rejection, Duration),
}
