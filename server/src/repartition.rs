//! Repartition jobs move records between the groups of the rack, so that these are stored by another key; the data does
//! not leave the rack (the engine decides, [`engine::repartition`]; `batch` handles records;
//! `docs/howto/repartition.md` is for users).
//!
//! - `plan.rs` the meaning of a request, its input, and the cost of each strategy; `places.rs` and `input.rs` where it
//!   reads and writes; `sample.rs` processes a few records like the job would, and measures that; `expected.rs`
//!   extrapolates to all records; `memory.rs` its share of memory;
//! - `checkpoint.rs` the progress of a job, as the catalog stores it; `restore.rs` saves and restores it; `resume.rs`
//!   the state from which a job then resumes;
//! - `lifecycle.rs` a job from its turn to its end, `finish.rs` publishing and rolling back, `shared.rs` its record in
//!   the catalog, `report.rs` JSON;
//! - `runner.rs` the steps that the engine orders, `class_steps.rs` how one class carries them out, `job_work.rs` the
//!   state that the classes share; `reader.rs` and `source.rs` input, `buffer.rs` records held in memory, `writer.rs`
//!   output and runs;
//! - here: the commands of users.
//!
//! Invariants: a job's output stays in the hidden bucket until all of it is there and its checksum equals that of the
//! input. Then it is published, and only after that is the input removed, if the request asks for that. A job that ends
//! before it is published is rolled back: only its record remains. A job that is interrupted by the end of the server
//! resumes from its last checkpoint, or restarts.

mod buffer;
mod checkpoint;
mod class_steps;
mod exclude;
mod expected;
mod finish;
mod input;
mod job_work;
mod lifecycle;
mod memory;
mod places;
mod plan;
mod reader;
mod report;
mod restore;
mod resume;
mod runner;
mod sample;
mod shared;
mod source;
mod writer;

pub use report::{
    ClassPlan, Figure, Forecast, JobReport, Outcome, Pace, Place, Plan, ProcessorRates, Progress, Request, Sample,
    Worked,
};

use crate::world::{Context, WorldHandle};
use catalog::{CatalogError, Job, JobState};
use engine::{JobEvent, JobId, PriorityClass};
use model::RackSpec;
use plan::Figures;
use report::Kept;
use shared::{Jobs, Task, json, kept, name};
use std::sync::Arc;

/// Finished jobs that are remembered.
const REMEMBERED: usize = 100;

/// Why a command is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// No job has this number.
    #[error("there is no job {0}")]
    Unknown(u64),
    /// The command cannot be carried out, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The catalog failed.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
}

/// The repartition jobs of a server. Clones are handles on the same jobs.
#[derive(Clone)]
pub struct Repartitions {
    shared: Arc<Jobs>,
}

impl Repartitions {
    /// Takes up the jobs of the last server: output that was being published is published before this returns.
    /// Afterwards interrupted jobs resume from their last checkpoint or restart, and removals continue. A job that
    /// cannot be taken up does not stop the others.
    ///
    /// # Errors
    /// [`CatalogError`], if the jobs cannot be listed.
    pub async fn start(context: Context, world: WorldHandle, spec: RackSpec) -> Result<Self, CatalogError> {
        let jobs = Self { shared: Arc::new(Jobs::new(context, world, spec)) };
        for job in jobs.shared.context.catalog.jobs().await? {
            let number = job.job;
            if let Err(error) = jobs.take_up(job).await {
                tracing::error!(job = number, %error, "cannot resume a repartition job; the next start tries again");
            }
        }
        let shared = Arc::clone(&jobs.shared);
        jobs.in_background(async move { shared.sweep().await });
        Ok(jobs)
    }

    async fn take_up(&self, mut job: Job) -> Result<(), CatalogError> {
        let (number, shared) = (job.job, Arc::clone(&self.shared));
        if job.state == JobState::Running {
            job = self.shared.interrupted(job).await?;
        }
        match job.state {
            JobState::Running => self.shared.spawn(job),
            JobState::Paused => {
                // The lock keeps the job from being resumed before that is done.
                let lock = self.shared.lock(number).await;
                self.in_background(async move {
                    let _lock = lock;
                    if kept(&job).cancelled {
                        shared.roll_back(number).await?;
                        shared.end(job, JobState::Cancelled, String::new()).await?;
                    } else {
                        shared.restore(number).await?;
                    }
                    Ok(())
                });
            }
            JobState::Publishing | JobState::Removing => {
                let job = self.shared.publish(job).await?;
                self.in_background(async move { shared.tidy(job).await });
            }
            JobState::Done | JobState::Cancelled | JobState::Failed => {}
        }
        Ok(())
    }

    /// Runs a task that no caller waits for. The next start retries it if it fails.
    fn in_background(&self, what: impl Future<Output = Result<(), CatalogError>> + Send + 'static) {
        (self.shared.context.spawn)(Box::pin(async move {
            if let Err(error) = what.await {
                tracing::error!(%error, "cannot remove the leftovers of a repartition job; the next start tries again");
            }
        }));
    }

    /// Records that the server is about to end as requested, so that no running job is blamed for it.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn closing(&self) -> Result<(), CatalogError> {
        for job in self.shared.context.catalog.jobs().await?.into_iter().filter(|job| job.state == JobState::Running) {
            self.shared.not_its_doing(job).await?;
        }
        Ok(())
    }

    /// Plans `request` and, unless it is a dry run, starts the job.
    ///
    /// # Errors
    /// [`JobError::Refused`] with the mistake in the request.
    pub async fn ask(&self, request: Request) -> Result<JobReport, JobError> {
        let Jobs { context, world, spec, .. } = &*self.shared;
        // A job that is to be carried out takes its sample when its turn comes.
        let figures = if request.dry_run { Figures::Sample(PriorityClass::Client) } else { Figures::Assume };
        let survey = plan::survey(context, world, spec, (&request, figures), None).await;
        let survey =
            survey.map_err(|failed| JobError::Refused(failed.unwrap_or_else(|| "the server is stopping".into())))?;
        memory::fits_the_machine(survey.plan.memory_bytes_most).map_err(JobError::Refused)?;
        let (_, to) = places::places(&request).map_err(JobError::Refused)?;
        let request = Request { to, ..request };
        let created_ms = (context.wall)();
        if request.dry_run {
            let state = "planned".to_owned();
            return Ok(JobReport { state, created_ms, request, plan: Some(survey.plan), ..JobReport::default() });
        }
        let target = context.catalog.bucket(&request.to.bucket).await?;
        let kept = Kept { plan: Some(survey.plan), target: Some(target), ..Kept::default() };
        let job = Job {
            job: 0,
            state: JobState::Running,
            created_ms,
            ended_ms: None,
            request: json(&request),
            report: json(&kept),
            reason: String::new(),
        };
        context.catalog.make_hidden_bucket(created_ms).await?;
        let job = context.catalog.create_job(&job).await?;
        self.shared.spawn(job.clone());
        self.forget_old().await?;
        Ok(self.report_of(&job).await)
    }

    /// All remembered jobs, by number.
    ///
    /// # Errors
    /// [`JobError::Catalog`].
    pub async fn list(&self) -> Result<Vec<JobReport>, JobError> {
        let mut reports = Vec::new();
        for job in self.shared.context.catalog.jobs().await? {
            reports.push(self.report_of(&job).await);
        }
        Ok(reports)
    }

    /// One job.
    ///
    /// # Errors
    /// [`JobError::Unknown`].
    pub async fn show(&self, job: u64) -> Result<JobReport, JobError> {
        let found = self.shared.context.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        Ok(self.report_of(&found).await)
    }

    /// Pauses a job: operations in service finish, and no others start. Its results stay while the server runs, and so
    /// does its buffer: other jobs wait for it. A job that has not started lets others go first.
    ///
    /// # Errors
    /// [`JobError::Refused`] if there is nothing to pause.
    pub async fn pause(&self, job: u64) -> Result<JobReport, JobError> {
        let _lock = self.shared.lock(job).await;
        self.change(job, JobState::Running, JobState::Paused).await?;
        self.report(job, JobEvent::Paused);
        self.show(job).await
    }

    /// Resumes a paused job, or retries to publish the output of a job.
    ///
    /// # Errors
    /// [`JobError::Refused`] if the job is neither paused nor waiting to publish.
    pub async fn resume(&self, job: u64) -> Result<JobReport, JobError> {
        let lock = self.shared.lock(job).await;
        let found = self.shared.context.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        if matches!(found.state, JobState::Publishing | JobState::Removing) {
            let found = self.shared.enter(found, |job| Job { reason: String::new(), ..job.clone() }).await?;
            let found = self.shared.publish(found).await?;
            let shared = Arc::clone(&self.shared);
            self.in_background(async move {
                let _lock = lock;
                if let Err(error) = shared.tidy(found.clone()).await {
                    shared.park(found, &error).await;
                }
                Ok(())
            });
            return self.show(job).await;
        }
        if found.state == JobState::Paused && kept(&found).cancelled {
            return Err(JobError::Refused(format!("job {job} is being cancelled")));
        }
        let found = self.change(job, JobState::Paused, JobState::Running).await?;
        if !self.report(job, JobEvent::Resumed) {
            self.shared.spawn(found);
        }
        self.show(job).await
    }

    /// Cancels a job and rolls it back. A job at work ends a little later.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it has ended, or clients see some of its output already.
    pub async fn cancel(&self, job: u64) -> Result<JobReport, JobError> {
        let _lock = self.shared.lock(job).await;
        let found = self.shared.context.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        // Paused until it has ended: a server that starts in between neither restarts the job nor takes the rest of an
        // output for all of it.
        let found = match found.state {
            JobState::Running => self.change(job, JobState::Running, JobState::Paused).await?,
            JobState::Paused => found,
            JobState::Publishing if self.shared.nothing_is_published(&found).await? => {
                self.change(job, JobState::Publishing, JobState::Paused).await?
            }
            JobState::Publishing | JobState::Removing => {
                let message =
                    format!("the output of job {job} is already published; remove the objects that you do not want");
                return Err(JobError::Refused(message));
            }
            _ => return Err(JobError::Refused(format!("job {job} is over"))),
        };
        let cancelled = |job: &Job| Job { report: json(&Kept { cancelled: true, ..kept(job) }), ..job.clone() };
        let found = self.shared.enter(found, cancelled).await?;
        if !self.report(job, JobEvent::Cancelled) {
            self.shared.roll_back(job).await?;
            self.shared.end(found, JobState::Cancelled, String::new()).await?;
        }
        self.show(job).await
    }

    async fn change(&self, job: u64, from: JobState, to: JobState) -> Result<Job, JobError> {
        let catalog = &self.shared.context.catalog;
        let found = catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        if found.state != from {
            return Err(JobError::Refused(format!("job {job} is {}", name(found.state))));
        }
        let report = json(&Kept { interruptions: 0, ..kept(&found) });
        let changed = Job { state: to, report, reason: String::new(), ..found.clone() };
        catalog.change_job(&found, &changed).await?;
        Ok(changed)
    }

    /// Reports an event of a job to the engine; false if the job has no task.
    fn report(&self, job: u64, event: JobEvent) -> bool {
        let has_task = self.shared.running.lock().contains_key(&job);
        if has_task {
            self.shared.world.report_job(JobId(job), event);
        }
        has_task
    }

    async fn report_of(&self, job: &Job) -> JobReport {
        let kept = kept(job);
        let running = self.shared.running.lock().get(&job.job).cloned();
        let waits = matches!(running, Some(Task::Waits));
        let progress = match running {
            Some(Task::Works(work)) => Some(work.progress().await),
            _ => None,
        };
        let state = match job.state {
            JobState::Paused if kept.cancelled => "cancelling",
            JobState::Running if waits => "waiting",
            state => name(state),
        };
        JobReport {
            job: job.job,
            state: state.to_owned(),
            created_ms: job.created_ms,
            ended_ms: job.ended_ms,
            reason: job.reason.clone(),
            request: serde_json::from_str(&job.request).unwrap_or_default(),
            plan: kept.plan,
            progress,
            outcome: kept.outcome,
        }
    }

    async fn forget_old(&self) -> Result<(), CatalogError> {
        let catalog = &self.shared.context.catalog;
        let over: Vec<Job> = catalog.jobs().await?.into_iter().filter(|job| job.state.is_over()).collect();
        for job in over.iter().take(over.len().saturating_sub(REMEMBERED)) {
            catalog.forget_job(job.job).await?;
        }
        Ok(())
    }
}
