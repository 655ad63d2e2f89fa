//! The trial of a case and its result: a rack that serves, or a repartition job.

use super::case::Case;
use crate::experiment::{Experiment, ExperimentError};
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
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// That of a rack that serves.
    Service(Box<Point>),
    /// That of a job.
    Repartition(Box<Repartitioned>),
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
        })
    }
}

impl Found {
    /// For each seed, a number that is the same whenever the same happened.
    pub fn trace_hashes(&self) -> &[u64] {
        match self {
            Self::Service(point) => &point.trace_hashes,
            Self::Repartition(job) => &job.trace_hashes,
        }
    }
}
