//! Repartition jobs: records that lie over the groups of the rack are brought where another key wants them, inside the
//! rack ([`engine::repartition`] decides the visits, `batch` knows records, `docs/repartition.md` tells users).
//!
//! - `plan.rs` what a request means, what it would read, what each strategy would cost; `memory.rs` what it takes of
//!   memory;
//! - `runner.rs` the orders of a planner, done by operations of the background lane; `reader.rs` and `source.rs` how
//!   input is read, `buffer.rs` what is held meanwhile, `writer.rs` how output and runs are written;
//! - here: the jobs, one after another, from being asked for to being over.
//!
//! Invariants: a job's output is in the hidden bucket until all of it is there and its tally is that of the input; then
//! it is published, and only then is input removed, if that was asked. Before that, whatever ends a job rolls it back:
//! nothing of it is left but its record. A job that the server's end interrupted begins anew.

mod buffer;
mod finish;
mod memory;
mod plan;
mod reader;
mod report;
mod runner;
mod source;
mod writer;

pub use report::{ClassPlan, Forecast, JobReport, Outcome, Place, Plan, Progress, Request};

use crate::world::{Means, WorldHandle};
use catalog::{CatalogError, Job, JobState};
use futures::FutureExt;
use model::RackSpec;
use report::Kept;
use runner::{Control, Ended};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Jobs that are over and still remembered.
const REMEMBERED: usize = 100;

/// Why something is not done.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is no such job.
    #[error("there is no job {0}")]
    Unknown(u64),
    /// It cannot be done, for the reason told.
    #[error("{0}")]
    Refused(String),
    /// The catalog does not answer.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
}

/// The repartition jobs of a server. A clone is another handle on the same.
#[derive(Clone)]
pub struct Repartitions {
    shared: Arc<Shared>,
}

struct Shared {
    means: Means,
    world: WorldHandle,
    spec: RackSpec,
    /// Jobs that have a task.
    running: Mutex<BTreeMap<u64, Running>>,
    /// Who works: one at a time, since each takes the memory it was given.
    turn: tokio::sync::Mutex<()>,
}

/// What is known of a job that has a task.
struct Running {
    control: watch::Sender<Control>,
    progress: Option<Progress>,
}

impl Repartitions {
    /// Takes up what the last server left: what was being published is published, what was interrupted is rolled back
    /// and begins anew.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn start(means: Means, world: WorldHandle, spec: RackSpec) -> Result<Self, CatalogError> {
        let (running, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        let jobs = Self { shared: Arc::new(Shared { means, world, spec, running, turn }) };
        let catalog = &jobs.shared.means.catalog;
        for job in catalog.jobs().await? {
            match job.state {
                JobState::Running => {
                    jobs.shared.roll_back(job.job).await?;
                    jobs.spawn(job);
                }
                JobState::Paused => jobs.shared.roll_back(job.job).await?,
                JobState::Publishing | JobState::Removing => jobs.shared.complete(job).await?,
                JobState::Done | JobState::Cancelled | JobState::Failed => {}
            }
        }
        Ok(jobs)
    }

    /// Plans `request` and, unless it is only to be planned, begins it.
    ///
    /// # Errors
    /// [`JobError::Refused`] with what is wrong with it.
    pub async fn ask(&self, request: Request) -> Result<JobReport, JobError> {
        let Shared { means, world, spec, .. } = &*self.shared;
        let survey = plan::survey(means, world, spec, &request).await.map_err(JobError::Refused)?;
        let (_, to) = plan::places(&request).map_err(JobError::Refused)?;
        let request = Request { to, ..request };
        let created_ms = (means.wall)();
        if request.dry_run {
            let state = "planned".to_owned();
            return Ok(JobReport { state, created_ms, request, plan: Some(survey.plan), ..JobReport::default() });
        }
        let kept = Kept { plan: Some(survey.plan), outcome: None };
        let job = Job {
            job: 0,
            state: JobState::Running,
            created_ms,
            ended_ms: None,
            request: json(&request),
            report: json(&kept),
            reason: String::new(),
        };
        means.catalog.make_hidden_bucket(created_ms).await?;
        let job = means.catalog.create_job(&job).await?;
        self.spawn(job.clone());
        self.forget_old().await?;
        Ok(self.told(&job))
    }

    /// All jobs that are remembered, by number.
    ///
    /// # Errors
    /// [`JobError::Catalog`].
    pub async fn list(&self) -> Result<Vec<JobReport>, JobError> {
        Ok(self.shared.means.catalog.jobs().await?.iter().map(|job| self.told(job)).collect())
    }

    /// One job.
    ///
    /// # Errors
    /// [`JobError::Unknown`].
    pub async fn show(&self, job: u64) -> Result<JobReport, JobError> {
        let found = self.shared.means.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        Ok(self.told(&found))
    }

    /// Halts a job after the operation in hand. What it has done stays, as long as the server runs.
    ///
    /// # Errors
    /// [`JobError::Refused`] if there is nothing to pause.
    pub async fn pause(&self, job: u64) -> Result<JobReport, JobError> {
        self.change(job, JobState::Running, JobState::Paused).await?;
        self.control(job, Control::Pause);
        self.show(job).await
    }

    /// Has a paused job go on, or one whose output could not be published try again.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it does neither.
    pub async fn resume(&self, job: u64) -> Result<JobReport, JobError> {
        let found = self.shared.means.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        if matches!(found.state, JobState::Publishing | JobState::Removing) {
            self.shared.complete(found).await?;
            return self.show(job).await;
        }
        let found = self.change(job, JobState::Paused, JobState::Running).await?;
        if !self.control(job, Control::Run) {
            self.spawn(found);
        }
        self.show(job).await
    }

    /// Ends a job and rolls it back.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it is over, or being published.
    pub async fn cancel(&self, job: u64) -> Result<JobReport, JobError> {
        let found = self.shared.means.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        match found.state {
            JobState::Running | JobState::Paused => {}
            JobState::Publishing | JobState::Removing => {
                let told = format!("the output of job {job} is being published already; remove what you do not want");
                return Err(JobError::Refused(told));
            }
            _ => return Err(JobError::Refused(format!("job {job} is over"))),
        }
        if !self.control(job, Control::Cancel) {
            self.shared.roll_back(job).await?;
            self.shared.end(found, JobState::Cancelled, String::new()).await?;
        }
        self.show(job).await
    }

    async fn change(&self, job: u64, from: JobState, to: JobState) -> Result<Job, JobError> {
        let catalog = &self.shared.means.catalog;
        let found = catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        if found.state != from {
            return Err(JobError::Refused(format!("job {job} is {}", name(found.state))));
        }
        let changed = Job { state: to, ..found.clone() };
        catalog.change_job(&found, &changed).await?;
        Ok(changed)
    }

    /// Tells the task of a job; whether it has one.
    fn control(&self, job: u64, control: Control) -> bool {
        let running = self.shared.running();
        running.get(&job).is_some_and(|running| running.control.send(control).is_ok())
    }

    fn spawn(&self, job: Job) {
        let (control, controlled) = watch::channel(Control::Run);
        self.shared.running().insert(job.job, Running { control, progress: None });
        let shared = Arc::clone(&self.shared);
        (self.shared.means.spawn)(Box::pin(async move {
            let number = job.job;
            if let Err(error) = shared.work(job, controlled).await {
                tracing::error!(job = number, %error, "a repartition was not brought to its end; the next start does");
            }
            shared.running().remove(&number);
        }));
    }

    fn told(&self, job: &Job) -> JobReport {
        let kept: Kept = serde_json::from_str(&job.report).unwrap_or_default();
        let running = self.shared.running();
        let progress = running.get(&job.job).map(|running| running.progress.clone());
        let waits = job.state == JobState::Running && matches!(progress, Some(None));
        JobReport {
            job: job.job,
            state: if waits { "waiting" } else { name(job.state) }.to_owned(),
            created_ms: job.created_ms,
            ended_ms: job.ended_ms,
            reason: job.reason.clone(),
            request: serde_json::from_str(&job.request).unwrap_or_default(),
            plan: kept.plan,
            progress: progress.flatten(),
            outcome: kept.outcome,
        }
    }

    async fn forget_old(&self) -> Result<(), CatalogError> {
        let catalog = &self.shared.means.catalog;
        let over: Vec<Job> = catalog.jobs().await?.into_iter().filter(|job| job.state.is_over()).collect();
        for job in over.iter().take(over.len().saturating_sub(REMEMBERED)) {
            catalog.forget_job(job.job).await?;
        }
        Ok(())
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job from its beginning to its end.
    async fn work(&self, job: Job, control: watch::Receiver<Control>) -> Result<(), CatalogError> {
        let number = job.job;
        let mut waiting = control.clone();
        let turn = tokio::select! {
            turn = self.turn.lock() => Some(turn),
            _ = waiting.wait_for(|control| *control == Control::Cancel) => None,
        };
        // Whatever an earlier attempt has left.
        self.roll_back(number).await?;
        let came = match &turn {
            // A mistake in a record must not take the server along.
            Some(_) => AssertUnwindSafe(self.transform(&job, control)).catch_unwind().await.unwrap_or_else(|_| {
                Err(Ended::Failed("it failed in a way that must not be; please report this".into()))
            }),
            None => Err(Ended::Cancelled),
        };
        match came {
            Ok(outcome) => {
                let publishing = |job: &Job| {
                    let kept: Kept = serde_json::from_str(&job.report).unwrap_or_default();
                    let report = json(&Kept { outcome: Some(outcome.clone()), ..kept });
                    Job { state: JobState::Publishing, report, ..job.clone() }
                };
                let job = self.enter(job, publishing).await?;
                self.complete(job).await
            }
            Err(Ended::Closing) => Ok(()),
            Err(Ended::Cancelled) => {
                self.roll_back(number).await?;
                self.end(job, JobState::Cancelled, String::new()).await
            }
            Err(Ended::Failed(reason)) => {
                tracing::warn!(job = number, reason, "a repartition failed; it is rolled back");
                self.roll_back(number).await?;
                self.end(job, JobState::Failed, reason).await
            }
        }
    }

    /// Changes what is remembered of a job, whatever its user has just changed.
    async fn enter(&self, mut job: Job, change: impl Fn(&Job) -> Job) -> Result<Job, CatalogError> {
        loop {
            job = self.means.catalog.job(job.job).await?.unwrap_or(job);
            let changed = change(&job);
            match self.means.catalog.change_job(&job, &changed).await {
                Ok(()) => return Ok(changed),
                Err(CatalogError::PreconditionFailed) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything up to an output that is complete and verified, and not yet published.
    async fn transform(&self, job: &Job, control: watch::Receiver<Control>) -> Result<Outcome, Ended> {
        let request: Request =
            serde_json::from_str(&job.request).map_err(|error| Ended::Failed(format!("its request: {error}")))?;
        let survey = plan::survey(&self.means, &self.world, &self.spec, &request).await.map_err(Ended::Failed)?;
        let number = job.job;
        let watch = |progress: &Progress| {
            if let Some(running) = self.running().get_mut(&number) {
                running.progress = Some(progress.clone());
            }
        };
        watch(&Progress::default());
        let (outcome, versions) =
            runner::run(&self.means, &self.world, number, &request, survey, control, watch).await?;
        if request.remove_input {
            let noted = self.means.catalog.add_job_inputs(number, &versions).await;
            noted.map_err(|error| Ended::Failed(error.to_string()))?;
        }
        Ok(outcome)
    }
}

fn name(state: JobState) -> &'static str {
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
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
