//! The trial of a case and its result: a serving rack, a repartition job, a filled rack, or a copy.

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
    /// A rack that serves requests.
    Service(Box<Experiment>),
    /// A repartition job.
    Repartition(Box<Repartition>),
    /// A rack that is written to until it rejects a write.
    Fill(Box<Filling>),
    /// A copy of a tree beside other clients.
    Copy(Box<Copying>),
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// The result of a serving rack.
    Service(Box<Point>),
    /// The result of a job.
    Repartition(Box<Repartitioned>),
    /// The result of a filled rack.
    Fill(Box<FillPoint>),
    /// The result of a copy.
    Copy(Box<CopyPoint>),
}

/// A case with its result.
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
    /// The experiment cannot run.
    #[error(transparent)]
    Service(#[from] ExperimentError),
    /// The job cannot run.
    #[error(transparent)]
    Repartition(#[from] RepartitionError),
}

impl Trial {
    /// Runs the trial with every seed.
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
    /// True if queues had not settled before the measurement, so the result depends on the time of the measurement.
    pub fn unsettled(&self) -> bool {
        matches!(self, Self::Service(point) if point.settled == Some(false))
    }

    /// The trace hash of each seed's run; none for trials without simulated time.
    pub fn trace_hashes(&self) -> &[u64] {
        match self {
            Self::Fill(_) => &[],
            Self::Service(point) => &point.trace_hashes,
            Self::Copy(copied) => &copied.trace_hashes,
            Self::Repartition(job) => &job.trace_hashes,
        }
    }
}
