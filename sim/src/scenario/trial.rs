//! What is run for a case, and what comes out: a rack that serves, or a repartition job.

use crate::experiment::{Experiment, ExperimentError};
use crate::parallel::run_each;
use crate::point::Point;
use crate::repartition::{Repartition, RepartitionError, Repartitioned};
use serde::Serialize;
use std::num::NonZeroUsize;

/// What is run for a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// A rack serves requests.
    Service(Box<Experiment>),
    /// Data is repartitioned.
    Repartition(Box<Repartition>),
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// Of a rack that serves.
    Service(Box<Point>),
    /// Of a job.
    Repartition(Box<Repartitioned>),
}

/// Why a trial came to nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// The rack that was to serve.
    #[error(transparent)]
    Service(#[from] ExperimentError),
    /// The job.
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

    /// Runs all of them on so many threads; calls `done` after each with how many are done.
    ///
    /// # Errors
    /// The [`TrialError`] of the first that has one; the others are not begun any more.
    pub fn run_all(
        trials: &[Self],
        threads: NonZeroUsize,
        done: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Found>, TrialError> {
        run_each(trials, threads, &Self::run, done)
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
