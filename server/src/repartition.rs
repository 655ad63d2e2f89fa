//! Repartition jobs: records that lie over the groups of the rack are brought where another key wants them, inside the
//! rack (the engine decides, [`engine::repartition`]; `batch` knows records; `docs/repartition.md` is for users).
//!
//! - `plan.rs` what a request means, what it would read, what each strategy would cost; `places.rs` and `input.rs`
//!   where it reads and writes; `sample.rs` does to some records what is to be done to all, and measures it;
//!   `expected.rs` what is then expected of all; `memory.rs` its share of memory;
//! - `checkpoint.rs` how far a job is, as the catalog keeps it, `restore.rs` saves it and has a job find back to it,
//!   `resume.rs` what it then goes on from;
//! - `lifecycle.rs` a job from its turn to its end, `finish.rs` publishing and rolling back, `shared.rs` its record in
//!   the catalog, `report.rs` JSON;
//! - `runner.rs` the steps that the engine orders, `class_steps.rs` how one class carries them out, `job_work.rs` what
//!   the classes share; `reader.rs` and `source.rs` input, `buffer.rs` what is held meanwhile, `writer.rs` output and
//!   runs;
//! - here: what users ask of jobs.
//!
//! Invariants: a job's output is in the hidden bucket until all of it is there and its tally is that of the input; then
//! it is published, and only then is input removed, if that was asked. Before that, whatever ends a job rolls it back:
//! nothing of it is left but its record. A job that the server's end interrupted goes on from its last checkpoint, or
//! begins anew.

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

/// Jobs that are over and still remembered.
const REMEMBERED: usize = 100;

/// Why something is not done.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is no such job.
    #[error("there is no job {0}")]
    Unknown(u64),
    /// It cannot be done, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The catalog does not answer.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
}

/// The repartition jobs of a server. A clone is another handle on the same.
#[derive(Clone)]
pub struct Repartitions {
    shared: Arc<Jobs>,
}

impl Repartitions {
    /// Takes up what the last server left: what was being published is published before this ends; what was interrupted
    /// goes on from its last checkpoint or begins anew, and what was being removed goes on, after it. A job that cannot
    /// be taken up keeps nobody from the others.
    ///
    /// # Errors
    /// [`CatalogError`], if it is not known which jobs there are.
    pub async fn start(context: Context, world: WorldHandle, spec: RackSpec) -> Result<Self, CatalogError> {
        let jobs = Self { shared: Arc::new(Jobs::new(context, world, spec)) };
        for job in jobs.shared.context.catalog.jobs().await? {
            let number = job.job;
            if let Err(error) = jobs.take_up(job).await {
                tracing::error!(job = number, %error, "a repartition cannot be taken up; the next start tries again");
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
                // Nobody has it go on before that is done.
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

    /// Does something that nobody waits for. What does not succeed is done by the next start.
    fn in_background(&self, what: impl Future<Output = Result<(), CatalogError>> + Send + 'static) {
        (self.shared.context.spawn)(Box::pin(async move {
            if let Err(error) = what.await {
                tracing::error!(%error, "what a repartition has left was not tidied up; the next start tries again");
            }
        }));
    }

    /// The server is about to end, as it was asked to: no job is to be blamed for that.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn closing(&self) -> Result<(), CatalogError> {
        for job in self.shared.context.catalog.jobs().await?.into_iter().filter(|job| job.state == JobState::Running) {
            self.shared.not_its_doing(job).await?;
        }
        Ok(())
    }

    /// Plans `request` and, unless it is only to be planned, begins it.
    ///
    /// # Errors
    /// [`JobError::Refused`] with what is wrong with it.
    pub async fn ask(&self, request: Request) -> Result<JobReport, JobError> {
        let Jobs { context, world, spec, .. } = &*self.shared;
        // A job that is to be carried out is sampled when its turn comes.
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

    /// All jobs that are remembered, by number.
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

    /// Halts a job: what is in service comes to its end, and nothing else is begun. What it has done stays, as long as
    /// the server runs, and what it buffers as well: others wait for it. One that has not begun lets others go first.
    ///
    /// # Errors
    /// [`JobError::Refused`] if there is nothing to pause.
    pub async fn pause(&self, job: u64) -> Result<JobReport, JobError> {
        let _lock = self.shared.lock(job).await;
        self.change(job, JobState::Running, JobState::Paused).await?;
        self.report(job, JobEvent::Paused);
        self.show(job).await
    }

    /// Has a paused job go on, or one whose output could not be published try again.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it does neither.
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

    /// Ends a job and rolls it back. One that works comes to its end a little later.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it is over, or clients see some of its output already.
    pub async fn cancel(&self, job: u64) -> Result<JobReport, JobError> {
        let _lock = self.shared.lock(job).await;
        let found = self.shared.context.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        // Paused until it is over: a start that comes in between neither begins it anew nor takes what is left of an
        // output for all of it.
        let found = match found.state {
            JobState::Running => self.change(job, JobState::Running, JobState::Paused).await?,
            JobState::Paused => found,
            JobState::Publishing if self.shared.nothing_is_published(&found).await? => {
                self.change(job, JobState::Publishing, JobState::Paused).await?
            }
            JobState::Publishing | JobState::Removing => {
                let message = format!("the output of job {job} is published already; remove what you do not want");
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

    /// Reports to the engine what happened to a job; false if it has no task.
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
