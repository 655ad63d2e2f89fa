//! The trial of a case and its result: a rack that serves, a repartition job, a rack that is filled, or a copy.

use super::case::Case;
use crate::copying::{CopyPoint, Copying};
use crate::experiment::{Experiment, ExperimentError};
use crate::fill::{FillPoint, Filling};
use crate::point::Point;
use crate::repartition::{Repartition, RepartitionError, Repartitioned};
use serde::Serialize;

/// The simulation of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// A rack serves requests.
    Service(Box<Experiment>),
    /// Data is repartitioned.
    Repartition(Box<Repartition>),
    /// A rack is written to until it refuses.
    Fill(Box<Filling>),
    /// A tree is copied beside other clients.
    Copy(Box<Copying>),
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// That of a rack that serves.
    Service(Box<Point>),
    /// That of a job.
    Repartition(Box<Repartitioned>),
    /// That of a rack that was filled.
    Fill(Box<FillPoint>),
    /// That of a copy.
    Copy(Box<CopyPoint>),
}

/// A case, and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The case.
    pub case: Case,
    /// Its result.
    pub found: Found,
}

/// The reason why a trial has no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// The experiment cannot be run.
    #[error(transparent)]
    Service(#[from] ExperimentError),
    /// The job cannot be run.
    #[error(transparent)]
    Repartition(#[from] RepartitionError),
}

impl Trial {
    /// Runs it, with every seed.
    ///
    /// # Errors
    /// [`TrialError`].
    pub fn run(&self) -> Result<Found, TrialError> {
        Ok(match self {
            Self::Service(experiment) => Found::Service(Box::new(crate::run(experiment)?)),
            Self::Repartition(job) => Found::Repartition(Box::new(crate::repartition::run(job)?)),
            Self::Fill(filling) => Found::Fill(Box::new(crate::fill::run_fill(filling)?)),
            Self::Copy(copying) => Found::Copy(Box::new(crate::copying::run_copy(copying)?)),
        })
    }
}

impl Found {
    /// True if queues had not settled before anything was measured, so that it depends on when it was measured.
    pub fn unsettled(&self) -> bool {
        matches!(self, Self::Service(point) if point.settled == Some(false))
    }

    /// For each seed, a number that is the same whenever the same happened; none where no time passes.
    pub fn trace_hashes(&self) -> &[u64] {
        match self {
            Self::Fill(_) => &[],
            Self::Service(point) => &point.trace_hashes,
            Self::Copy(copied) => &copied.trace_hashes,
            Self::Repartition(job) => &job.trace_hashes,
        }
    }
}
