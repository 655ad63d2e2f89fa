//! A job from beginning to end: it waits its turn, is planned, works, and is published or rolled back.

use super::job_work::{Complete, JobWork};
use super::plan::{self, Figures, Survey};
use super::report::{Kept, Outcome, Request};
use super::resume::Resume;
use super::runner::{self, BROKEN, JobEnded};
use super::shared::{Jobs, Task, json, kept};
use crate::processor::heavy;
use crate::world::JobActions;
use catalog::{CatalogError, Job, JobState};
use engine::{JobEvent, JobId, PriorityClass};
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

impl Jobs {
    /// Starts a job, which waits for its turn among the others.
    pub(super) fn spawn(self: &Arc<Self>, job: Job) {
        let shared = Arc::clone(self);
        self.running.lock().insert(job.job, Task::Waits);
        let actions = self.world.queue_job(JobId(job.job));
        (self.context.spawn)(Box::pin(async move {
            let number = job.job;
            let worked = shared.work(job.clone(), actions).await;
            shared.world.report_job(JobId(number), JobEvent::Closed);
            // The lock keeps the job from being resumed before its task is known to be gone.
            let _lock = shared.lock(number).await;
            if let Err(error) = worked {
                tracing::error!(job = number, %error, "a repartition job cannot continue");
                shared.park(job, &error).await;
            }
            shared.running.lock().remove(&number);
        }));
    }

    async fn work(&self, job: Job, mut actions: JobActions) -> Result<(), CatalogError> {
        let number = job.job;
        let turn = runner::turn(&mut actions).await;
        if let (Ok(()), Some(running)) = (&turn, self.running.lock().get_mut(&number)) {
            *running = Task::Plans;
        }
        // Keeps those leftovers of an earlier attempt that its checkpoint counts on.
        let resume = self.restore(number).await?;
        let came = match turn {
            // A panic over a record must not end the server.
            Ok(()) => {
                let transformed = AssertUnwindSafe(self.transform(&job, resume, &mut actions)).catch_unwind().await;
                transformed.unwrap_or_else(|_| Err(JobEnded::Failed(BROKEN.into())))
            }
            Err(ended) => Err(ended),
        };
        let _lock = self.lock(number).await;
        // A user may have cancelled it after everything was written.
        let cancelled = self.context.catalog.job(number).await?.is_some_and(|job| kept(&job).cancelled);
        match if cancelled { Err(JobEnded::Cancelled) } else { came } {
            Ok(outcome) => {
                let publishing = |job: &Job| {
                    let report = json(&Kept { outcome: Some(outcome.clone()), ..kept(job) });
                    Job { state: JobState::Publishing, report, ..job.clone() }
                };
                let job = self.enter(job, publishing).await?;
                let job = self.publish(job).await?;
                self.tidy(job).await
            }
            Err(JobEnded::Closing) => self.not_its_doing(job).await,
            Err(JobEnded::Cancelled) => {
                self.roll_back(number).await?;
                self.end(job, JobState::Cancelled, String::new()).await
            }
            Err(JobEnded::Failed(reason)) => {
                tracing::warn!(job = number, reason, "a repartition job failed; it is rolled back");
                self.roll_back(number).await?;
                self.end(job, JobState::Failed, reason).await
            }
        }
    }

    /// Carries out a job up to output that is complete and verified, and not yet published.
    async fn transform(
        &self,
        job: &Job,
        resume: Option<Resume>,
        actions: &mut JobActions,
    ) -> Result<Outcome, JobEnded> {
        let request: Request =
            serde_json::from_str(&job.request).map_err(|error| JobEnded::Failed(format!("its request: {error}")))?;
        let (number, (outcome, read)) = (job.job, self.carry_out(job, (&request, resume), actions).await?);
        let hidden = self.output(number, &request.to, usize::MAX).await.map_err(failed)?.len() as u64;
        if hidden != outcome.output_objects {
            let written = outcome.output_objects;
            return Err(JobEnded::Failed(format!(
                "only {hidden} objects of {written} that were written still exist; nothing is published. Please report \
                 this"
            )));
        }
        // Input that produced no records is kept: a user whose filter leaves out everything does not want it removed.
        if request.remove_input && outcome.rows > 0 {
            self.context.catalog.add_job_inputs(number, &request.from.bucket, &read).await.map_err(failed)?;
        }
        Ok(outcome)
    }

    /// The survey of a job that resumes from a checkpoint, or begins.
    async fn survey(&self, job: u64, request: &Request, resume: Option<Resume>) -> Result<Survey, JobEnded> {
        let (context, world, spec) = (&self.context, &self.world, &self.spec);
        if let Some(resume) = resume {
            let figures = resume.checkpoint.plan.sample.clone().map_or(Figures::Assume, Figures::Known);
            match plan::survey(context, world, spec, (request, figures), Some(resume)).await {
                Ok(survey) => return Ok(survey),
                Err(None) => return Err(JobEnded::Closing),
                Err(Some(useless)) => self.begin_anew(job, &useless).await.map_err(failed)?,
            }
        }
        let figures = Figures::SampleIfItGoes(PriorityClass::Background);
        plan::survey(context, world, spec, (request, figures), None).await.map_err(JobEnded::of)
    }

    async fn carry_out(
        &self,
        job: &Job,
        (request, resume): (&Request, Option<Resume>),
        actions: &mut JobActions,
    ) -> Result<Complete, JobEnded> {
        let survey = tokio::select! {
            biased;
            survey = Box::pin(self.survey(job.job, request, resume)) => survey?,
            ended = runner::ended(actions) => return Err(ended),
        };
        // The input may have changed since the request. A job that resumes from a checkpoint keeps its plan.
        let planned = |job: &Job| {
            let before = kept(job);
            let plan = if survey.resume.is_some() { before.plan } else { Some(survey.plan.clone()) };
            let report = json(&Kept { plan, works: true, ..before });
            Job { report, ..job.clone() }
        };
        self.enter(job.clone(), planned).await.map_err(failed)?;
        let scale = self.context.clock.scale();
        // Simulates the cost of every strategy.
        let (mut survey, spec) = heavy(move || {
            let spec = survey.job(scale);
            (survey, spec)
        })
        .await;
        let work = JobWork::begin(&self.context, &self.world, JobId(job.job), request, &mut survey).await;
        let work = Arc::new(work.map_err(JobEnded::of)?);
        if let Some(running) = self.running.lock().get_mut(&job.job) {
            *running = Task::Works(Arc::clone(&work));
        }
        runner::run(&work, spec.map_err(JobEnded::Failed)?, survey.inputs, actions).await
    }
}

/// Fails the job, which cannot continue without the catalog.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn failed(error: CatalogError) -> JobEnded {
    JobEnded::Failed(error.to_string())
}
