//! The state that all jobs share, and the changes of their records in the catalog.
//!
//! Invariant: a job's state changes only by whoever holds its state lock.

use super::job_work::JobWork;
use super::report::Kept;
use crate::world::{Context, WorldHandle};
use catalog::{CatalogError, Job, JobState};
use model::RackSpec;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a job goes on or begins anew by itself, without having come to another checkpoint, after a server that was
/// not asked to end; perhaps it ended because of the job.
const INTERRUPTIONS_MAX: u32 = 3;

/// The context that all jobs share, and the jobs that have a task.
pub(super) struct Jobs {
    pub context: Context,
    pub world: WorldHandle,
    pub spec: RackSpec,
    /// Jobs that have a task, and how far it is.
    pub running: Mutex<BTreeMap<u64, Task>>,
    /// Held by whoever changes a job's state. One for each job since the server began.
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
    /// No job has a task yet.
    pub fn new(context: Context, world: WorldHandle, spec: RackSpec) -> Self {
        Self { context, world, spec, running: Mutex::default(), locks: Mutex::default() }
    }

    /// Locks a job's state: nobody else changes it meanwhile.
    pub async fn lock(&self, job: u64) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = Arc::clone(self.locks.lock().entry(job).or_default());
        lock.lock_owned().await
    }

    /// The server ends, and not because of this job.
    pub async fn not_its_doing(&self, job: Job) -> Result<(), CatalogError> {
        let undisturbed = |job: &Job| {
            let report = json(&Kept { interruptions: 0, works: false, ..kept(job) });
            if job.state.is_over() { job.clone() } else { Job { report, ..job.clone() } }
        };
        self.enter(job, undisturbed).await.map(drop)
    }

    /// A job that was to work when the server ended. It begins anew, unless it did work, and that has happened too
    /// often.
    pub async fn interrupted(&self, job: Job) -> Result<Job, CatalogError> {
        if !kept(&job).works {
            return Ok(job);
        }
        // With a new checkpoint it has come further than the last time.
        let serial = self.context.catalog.checkpoint(job.job).await?.map_or(0, |checkpoint| checkpoint.serial);
        let changed = |job: &Job| {
            let before = kept(job);
            let interruptions = if serial > before.interrupted_at { 1 } else { before.interruptions + 1 };
            let report = json(&Kept { interruptions, interrupted_at: serial, ..before });
            let (mut state, mut reason) = (job.state, job.reason.clone());
            if interruptions > INTERRUPTIONS_MAX {
                state = JobState::Paused;
                reason = format!(
                    "the server ended {interruptions} times while it worked on this, and was not asked to; see why, \
                     give the job less --memory if it took too much, and then `larder repartition resume {number}` \
                     or `larder repartition cancel {number}`",
                    number = job.job
                );
            }
            Job { state, report, reason, ..job.clone() }
        };
        self.enter(job, changed).await
    }

    /// A job that the catalog keeps from going on waits for somebody who has it go on.
    pub async fn park(&self, job: Job, error: &CatalogError) {
        let number = job.job;
        let changed = |job: &Job| {
            let reason = format!("{error}; when that is mended, `larder repartition resume {number}`");
            let state = if job.state == JobState::Running { JobState::Paused } else { job.state };
            if job.state.is_over() { job.clone() } else { Job { state, reason, ..job.clone() } }
        };
        if let Err(error) = self.enter(job, changed).await {
            tracing::error!(job = number, %error, "that cannot even be noted; the next start takes the job up");
        }
    }

    /// Changes what is remembered of a job, whatever its user has just changed.
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

/// Our own reports can always be written.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
