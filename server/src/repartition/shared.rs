//! The state that all jobs share, and the changes to their records in the catalog.
//!
//! Invariant: only the holder of a job's state lock changes its state.

use super::job_work::JobWork;
use super::report::Kept;
use crate::world::{Context, WorldHandle};
use catalog::{CatalogError, Job, JobState};
use model::RackSpec;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of times in a row that a job resumes or restarts by itself without a new checkpoint, after servers
/// that ended unrequested, perhaps because of the job.
const INTERRUPTIONS_MAX: u32 = 3;

/// The context that all jobs share, and the jobs that have a task.
pub(super) struct Jobs {
    pub context: Context,
    pub world: WorldHandle,
    pub spec: RackSpec,
    /// Jobs that have a task, and its state.
    pub running: Mutex<BTreeMap<u64, Task>>,
    /// State locks, one for each job used since the server started; held to change a job's state.
    locks: Mutex<BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>>,
}

/// The state of a job's task.
#[derive(Clone)]
pub(super) enum Task {
    /// It waits its turn.
    Waits,
    /// Its input is surveyed and sampled.
    Plans,
    /// It works.
    Works(Arc<JobWork>),
}

impl Jobs {
    /// Creates the state, without any task.
    pub fn new(context: Context, world: WorldHandle, spec: RackSpec) -> Self {
        Self { context, world, spec, running: Mutex::default(), locks: Mutex::default() }
    }

    /// Locks a job's state against changes by others.
    pub async fn lock(&self, job: u64) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = Arc::clone(self.locks.lock().entry(job).or_default());
        lock.lock_owned().await
    }

    /// Records that the server ends, and not because of this job.
    pub async fn not_its_doing(&self, job: Job) -> Result<(), CatalogError> {
        let undisturbed = |job: &Job| {
            let report = json(&Kept { interruptions: 0, works: false, ..kept(job) });
            if job.state.is_over() { job.clone() } else { Job { report, ..job.clone() } }
        };
        self.enter(job, undisturbed).await.map(drop)
    }

    /// Takes up a job that was running when the server ended. It stays running, unless it was at work and that has
    /// happened too often; then it is paused.
    pub async fn interrupted(&self, job: Job) -> Result<Job, CatalogError> {
        if !kept(&job).works {
            return Ok(job);
        }
        // With a new checkpoint it has made progress since the last time.
        let serial = self.context.catalog.checkpoint(job.job).await?.map_or(0, |checkpoint| checkpoint.serial);
        let changed = |job: &Job| {
            let before = kept(job);
            let interruptions = if serial > before.interrupted_at { 1 } else { before.interruptions + 1 };
            let report = json(&Kept { interruptions, interrupted_at: serial, ..before });
            let (mut state, mut reason) = (job.state, job.reason.clone());
            if interruptions > INTERRUPTIONS_MAX {
                state = JobState::Paused;
                reason = format!(
                    "the server crashed {interruptions} times while it worked on this job; find the cause, use a \
                     smaller --memory if the job took too much, and then run `larder repartition resume {number}` or \
                     `larder repartition cancel {number}`",
                    number = job.job
                );
            }
            Job { state, report, reason, ..job.clone() }
        };
        self.enter(job, changed).await
    }

    /// Pauses a job that cannot continue because of the catalog, until a user resumes it.
    pub async fn park(&self, job: Job, error: &CatalogError) {
        let number = job.job;
        let changed = |job: &Job| {
            let reason = format!("{error}; once that is fixed, run `larder repartition resume {number}`");
            let state = if job.state == JobState::Running { JobState::Paused } else { job.state };
            if job.state.is_over() { job.clone() } else { Job { state, reason, ..job.clone() } }
        };
        if let Err(error) = self.enter(job, changed).await {
            tracing::error!(job = number, %error, "cannot record that a job stopped; the next start resumes it");
        }
    }

    /// Changes the record of a job, on top of any change that its user has just made.
    pub async fn enter(&self, mut job: Job, change: impl Fn(&Job) -> Job) -> Result<Job, CatalogError> {
        loop {
            job = self.context.catalog.job(job.job).await?.unwrap_or(job);
            let changed = change(&job);
            assert_eq!(changed.job, job.job, "a change of a job is of that job");
            match self.context.catalog.change_job(&job, &changed).await {
                Ok(()) => return Ok(changed),
                Err(CatalogError::PreconditionFailed) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The server's own part of a job's record.
pub(super) fn kept(job: &Job) -> Kept {
    serde_json::from_str(&job.report).unwrap_or_default()
}

/// The name of a state, for people.
pub(super) fn name(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Paused => "paused",
        JobState::Publishing => "publishing",
        JobState::Removing => "removing",
        JobState::Done => "done",
        JobState::Cancelled => "cancelled",
        JobState::Failed => "failed",
    }
}

/// Serialises a report; the server's own types never fail.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
