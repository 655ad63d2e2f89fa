//! Repartition jobs: records that lie over the groups of the rack are brought where another key wants them, inside the
//! rack ([`engine::repartition`] decides the visits, `batch` knows records, `docs/repartition.md` tells users).
//!
//! - `plan.rs` what a request means, what it would read, what each strategy would cost; `sample.rs` holds a plan that
//!   is not carried out against one object of the input; `memory.rs` what it takes of memory;
//! - `runner.rs` the orders of a planner, done by operations of the background lane; `reader.rs` and `source.rs` how
//!   input is read, `buffer.rs` what is held meanwhile, `writer.rs` how output and runs are written, `patience.rs`
//!   what is waited for;
//! - here: the jobs, one after another, from being asked for to being over.
//!
//! Invariants: a job's output is in the hidden bucket until all of it is there and its tally is that of the input; then
//! it is published, and only then is input removed, if that was asked. Before that, whatever ends a job rolls it back:
//! nothing of it is left but its record. A job that the server's end interrupted begins anew. A job's state changes
//! only by who has its door open.

mod buffer;
mod finish;
mod memory;
mod patience;
mod plan;
mod reader;
mod report;
mod runner;
mod sample;
mod source;
mod writer;

pub use report::{ClassPlan, Forecast, JobReport, Outcome, Place, Plan, Progress, Request};

use crate::world::{Means, WorldHandle};
use catalog::{CatalogError, Job, JobState};
use futures::FutureExt;
use model::RackSpec;
use plan::SurveyError;
use report::Kept;
use runner::{Control, Ended};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Jobs that are over and still remembered.
const REMEMBERED: usize = 100;
/// How often a job begins anew by itself after a server that was not told to end; perhaps it ended because of the job.
const INTERRUPTIONS_MAX: u32 = 3;

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
    /// Who changes a job's state: one at a time. One for each job since the server began.
    doors: Mutex<BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>>,
    /// Who works: one at a time, since each takes the memory it was given.
    turn: tokio::sync::Mutex<()>,
}

/// What is known of a job that has a task.
struct Running {
    control: watch::Sender<Control>,
    progress: Option<Progress>,
}

impl Repartitions {
    /// Takes up what the last server left: what was being published is published before this ends; what was interrupted
    /// is rolled back and begins anew, and what was being removed goes on, after it. A job that cannot be taken up
    /// keeps nobody from the others.
    ///
    /// # Errors
    /// [`CatalogError`], if it is not known which jobs there are.
    pub async fn start(means: Means, world: WorldHandle, spec: RackSpec) -> Result<Self, CatalogError> {
        let (running, doors, turn) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        let jobs = Self { shared: Arc::new(Shared { means, world, spec, running, doors, turn }) };
        for job in jobs.shared.means.catalog.jobs().await? {
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
            JobState::Running => self.spawn(job),
            JobState::Paused => {
                // Nobody has it go on before that is done.
                let door = self.shared.door(number).await;
                self.in_background(async move {
                    let _door = door;
                    shared.roll_back(number).await?;
                    if kept(&job).cancelled {
                        shared.end(job, JobState::Cancelled, String::new()).await?;
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
        (self.shared.means.spawn)(Box::pin(async move {
            if let Err(error) = what.await {
                tracing::error!(%error, "what a repartition has left was not tidied up; the next start tries again");
            }
        }));
    }

    /// The server is about to end, as it was told to: no job is to be blamed for that.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn closing(&self) -> Result<(), CatalogError> {
        for job in self.shared.means.catalog.jobs().await?.into_iter().filter(|job| job.state == JobState::Running) {
            self.shared.not_its_doing(job).await?;
        }
        Ok(())
    }

    /// Plans `request` and, unless it is only to be planned, begins it.
    ///
    /// # Errors
    /// [`JobError::Refused`] with what is wrong with it.
    pub async fn ask(&self, request: Request) -> Result<JobReport, JobError> {
        let Shared { means, world, spec, .. } = &*self.shared;
        let survey = plan::survey(means, world, spec, &request).await;
        let mut survey = survey.map_err(|error| JobError::Refused(error.to_string()))?;
        memory::fits_the_machine(survey.plan.memory_bytes_most).map_err(JobError::Refused)?;
        let (_, to) = plan::places(&request).map_err(JobError::Refused)?;
        let request = Request { to, ..request };
        let created_ms = (means.wall)();
        if request.dry_run {
            let warning = sample::check(means, world, &survey).await.map_err(JobError::Refused)?;
            survey.plan.warnings.extend(warning);
            let state = "planned".to_owned();
            return Ok(JobReport { state, created_ms, request, plan: Some(survey.plan), ..JobReport::default() });
        }
        let target = means.catalog.bucket(&request.to.bucket).await?;
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

    /// Halts a job: what is in service comes to its end, and nothing else is begun. What it has done stays, as long as
    /// the server runs, and what it buffers as well: others wait for it. One that has not begun lets others go first.
    ///
    /// # Errors
    /// [`JobError::Refused`] if there is nothing to pause.
    pub async fn pause(&self, job: u64) -> Result<JobReport, JobError> {
        let _door = self.shared.door(job).await;
        self.change(job, JobState::Running, JobState::Paused).await?;
        self.control(job, Control::Pause);
        self.show(job).await
    }

    /// Has a paused job go on, or one whose output could not be published try again.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it does neither.
    pub async fn resume(&self, job: u64) -> Result<JobReport, JobError> {
        let door = self.shared.door(job).await;
        let found = self.shared.means.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        if matches!(found.state, JobState::Publishing | JobState::Removing) {
            let found = self.shared.enter(found, |job| Job { reason: String::new(), ..job.clone() }).await?;
            let found = self.shared.publish(found).await?;
            let shared = Arc::clone(&self.shared);
            self.in_background(async move {
                let _door = door;
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
        if !self.control(job, Control::Run) {
            self.spawn(found);
        }
        self.show(job).await
    }

    /// Ends a job and rolls it back. One that works comes to its end a little later.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it is over, or clients see some of its output already.
    pub async fn cancel(&self, job: u64) -> Result<JobReport, JobError> {
        let _door = self.shared.door(job).await;
        let found = self.shared.means.catalog.job(job).await?.ok_or(JobError::Unknown(job))?;
        // Paused until it is over: a start that comes in between neither begins it anew nor takes what is left of an
        // output for all of it.
        let found = match found.state {
            JobState::Running => self.change(job, JobState::Running, JobState::Paused).await?,
            JobState::Paused => found,
            JobState::Publishing if self.shared.nothing_is_published(&found).await? => {
                self.change(job, JobState::Publishing, JobState::Paused).await?
            }
            JobState::Publishing | JobState::Removing => {
                let told = format!("the output of job {job} is published already; remove what you do not want");
                return Err(JobError::Refused(told));
            }
            _ => return Err(JobError::Refused(format!("job {job} is over"))),
        };
        let cancelled = |job: &Job| Job { report: json(&Kept { cancelled: true, ..kept(job) }), ..job.clone() };
        let found = self.shared.enter(found, cancelled).await?;
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
        let report = json(&Kept { interruptions: 0, ..kept(&found) });
        let changed = Job { state: to, report, reason: String::new(), ..found.clone() };
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
            let worked = shared.work(job.clone(), controlled).await;
            // Nobody has it go on before it is known to have no task.
            let _door = shared.door(number).await;
            if let Err(error) = worked {
                tracing::error!(job = number, %error, "a repartition does not go on");
                shared.park(job, &error).await;
            }
            shared.running().remove(&number);
        }));
    }

    fn told(&self, job: &Job) -> JobReport {
        let kept = kept(job);
        let running = self.shared.running();
        let task = running.get(&job.job);
        let progress = task.map(|running| running.progress.clone());
        let state = match job.state {
            JobState::Paused if kept.cancelled => "cancelling",
            JobState::Running if matches!(progress, Some(None)) => "waiting",
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

    /// Opens a job's door, and holds it open: nobody else changes its state meanwhile.
    async fn door(&self, job: u64) -> tokio::sync::OwnedMutexGuard<()> {
        let door = {
            let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(doors.entry(job).or_default())
        };
        door.lock_owned().await
    }

    /// A job from its beginning to its end.
    async fn work(&self, job: Job, control: watch::Receiver<Control>) -> Result<(), CatalogError> {
        let number = job.job;
        let turn = self.turn_of(control.clone()).await;
        // Whatever an earlier attempt has left.
        self.roll_back(number).await?;
        let came = match &turn {
            // A mistake in a record must not take the server along.
            Some(_) => {
                AssertUnwindSafe(self.transform(&job, control.clone())).catch_unwind().await.unwrap_or_else(|_| {
                    Err(Ended::Failed("it failed in a way that must not be; please report this".into()))
                })
            }
            None => Err(Ended::Cancelled),
        };
        let _door = self.door(number).await;
        let came = if *control.borrow() == Control::Cancel { Err(Ended::Cancelled) } else { came };
        match came {
            Ok(outcome) => {
                let publishing = |job: &Job| {
                    let report = json(&Kept { outcome: Some(outcome.clone()), ..kept(job) });
                    Job { state: JobState::Publishing, report, ..job.clone() }
                };
                let job = self.enter(job, publishing).await?;
                let job = self.publish(job).await?;
                self.tidy(job).await
            }
            Err(Ended::Closing) => self.not_its_doing(job).await,
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

    /// The turn of a job, when it has come: not while the job is paused, and not at all if it is cancelled before.
    async fn turn_of(&self, mut control: watch::Receiver<Control>) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        loop {
            let now = *control.wait_for(|control| *control != Control::Pause).await.ok()?;
            if now == Control::Cancel {
                return None;
            }
            let turn = tokio::select! {
                turn = self.turn.lock() => turn,
                _ = control.changed() => continue,
            };
            if *control.borrow() == Control::Run {
                return Some(turn);
            }
        }
    }

    /// The server ends, and not because of this job.
    async fn not_its_doing(&self, job: Job) -> Result<(), CatalogError> {
        let told = |job: &Job| {
            let report = json(&Kept { interruptions: 0, works: false, ..kept(job) });
            if job.state.is_over() { job.clone() } else { Job { report, ..job.clone() } }
        };
        self.enter(job, told).await.map(drop)
    }

    /// A job that was to work when the server ended. It begins anew, unless it did work, and that has happened too
    /// often.
    async fn interrupted(&self, job: Job) -> Result<Job, CatalogError> {
        if !kept(&job).works {
            return Ok(job);
        }
        let changed = |job: &Job| {
            let interruptions = kept(job).interruptions + 1;
            let report = json(&Kept { interruptions, ..kept(job) });
            let (mut state, mut reason) = (job.state, job.reason.clone());
            if interruptions > INTERRUPTIONS_MAX {
                state = JobState::Paused;
                reason = format!(
                    "the server ended {interruptions} times while it worked on this, and was not told to; see why, \
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
    async fn park(&self, job: Job, error: &CatalogError) {
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
        let failed = |error: CatalogError| Ended::Failed(error.to_string());
        let request: Request =
            serde_json::from_str(&job.request).map_err(|error| Ended::Failed(format!("its request: {error}")))?;
        let survey =
            plan::survey(&self.means, &self.world, &self.spec, &request).await.map_err(|error| match error {
                SurveyError::Closing => Ended::Closing,
                SurveyError::Refused(reason) => Ended::Failed(reason),
            })?;
        let number = job.job;
        // What there is to read may have changed since it was asked for.
        let planned = |job: &Job| {
            let report = json(&Kept { plan: Some(survey.plan.clone()), works: true, ..kept(job) });
            Job { report, ..job.clone() }
        };
        self.enter(job.clone(), planned).await.map_err(failed)?;
        let watch = |progress: &Progress| {
            if let Some(running) = self.running().get_mut(&number) {
                running.progress = Some(progress.clone());
            }
        };
        watch(&Progress::default());
        let (outcome, read) = runner::run(&self.means, &self.world, number, &request, survey, control, watch).await?;
        let hidden = self.output(number, &request.to, usize::MAX).await.map_err(failed)?.len() as u64;
        if hidden != outcome.output_objects {
            let written = outcome.output_objects;
            return Err(Ended::Failed(format!(
                "{hidden} objects of {written} that were written are there; nothing is published. Please report this"
            )));
        }
        // Input of which nothing came is kept: nobody who has all of it left out wants it gone.
        if request.remove_input && outcome.rows > 0 {
            self.means.catalog.add_job_inputs(number, &request.from.bucket, &read).await.map_err(failed)?;
        }
        Ok(outcome)
    }
}

/// What the catalog keeps of a job in the server's words.
fn kept(job: &Job) -> Kept {
    serde_json::from_str(&job.report).unwrap_or_default()
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
