//! A job at work: the engine orders steps, each class carries out its own, and their results are reported.
//!
//! Invariant: a step that was started is always reported, so that nothing is committed after a rollback.

use super::checkpoint::OpenInputs;
use super::class_steps::ClassSteps;
use super::input::Input;
use super::job_work::{Complete, JobWork};
use crate::world::JobActions;
use batch::MultisetChecksum;
use engine::repartition::{JobSpec, Order};
use engine::{BlockReason, JobAction, JobEnd, JobEvent, StepResult};
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use model::{Attempt, ClassId, GroupId};
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Why a job ended before its output was complete.
#[derive(Debug)]
pub(super) enum JobEnded {
    /// It was cancelled.
    Cancelled,
    /// The server is about to end; the job continues with the next one.
    Closing,
    /// It cannot be completed, for this reason.
    Failed(String),
}

impl JobEnded {
    /// Failed for this reason; without one, the world has ended.
    pub fn of(failed: Option<String>) -> Self {
        failed.map_or(Self::Closing, Self::Failed)
    }
}

/// The reason of a job that failed because of a bug.
pub(super) const BROKEN: &str = "it failed unexpectedly; please report this";

/// Waits for the turn of a job.
pub(super) async fn turn(actions: &mut JobActions) -> Result<(), JobEnded> {
    match actions.recv().await {
        Some(JobAction::Plan) => Ok(()),
        Some(JobAction::Ended { end: JobEnd::Cancelled }) => Err(JobEnded::Cancelled),
        Some(JobAction::Ended { .. }) | None => Err(JobEnded::Closing),
        Some(JobAction::Step { .. } | JobAction::Checkpoint { .. }) => {
            unreachable!("a job has its turn before it works")
        }
    }
}

/// Waits for the end of a job that is being planned.
pub(super) async fn ended(actions: &mut JobActions) -> JobEnded {
    match actions.recv().await {
        Some(JobAction::Ended { end: JobEnd::Cancelled }) => JobEnded::Cancelled,
        Some(JobAction::Ended { .. }) | None => JobEnded::Closing,
        Some(JobAction::Plan | JobAction::Step { .. } | JobAction::Checkpoint { .. }) => {
            unreachable!("a job is planned once, before it works")
        }
    }
}

/// Carries out the engine's orders until the job ends: everything is read, partitioned and written, and nothing is
/// published.
pub(super) async fn run(
    work: &Arc<JobWork>,
    spec: JobSpec,
    inputs: BTreeMap<GroupId, Vec<Input>>,
    actions: &mut JobActions,
) -> Result<Complete, JobEnded> {
    let mut idle = classes(work, &spec, inputs);
    work.world.report_job(work.job, JobEvent::Planned(Box::new(spec)));
    let mut steps = FuturesUnordered::new();
    let end = loop {
        tokio::select! {
            biased;
            action = actions.recv() => match action {
                Some(JobAction::Step { class, attempt, order, .. }) => {
                    let steps_of = idle.remove(&class).expect("one step in hand in a class");
                    steps.push(perform(Arc::clone(work), steps_of, attempt, order));
                }
                Some(JobAction::Checkpoint { attempt }) => {
                    assert!(steps.is_empty(), "no step is in hand when a checkpoint is asked for");
                    let open = open_now(&idle);
                    let done = checkpoint(work, open).await;
                    work.world.report_job(work.job, JobEvent::CheckpointEnded { attempt, done });
                }
                Some(JobAction::Ended { end }) => break end,
                Some(JobAction::Plan) => unreachable!("a job is planned once"),
                None => break JobEnd::Closing,
            },
            Some((steps_of, ended)) = steps.next() => {
                if let Some(steps_of) = steps_of {
                    idle.insert(steps_of.class(), steps_of);
                }
                work.world.report_job(work.job, ended);
            }
        }
    };
    assert!(steps.is_empty() || end == JobEnd::Closing, "a job ends with no step in hand");
    match end {
        JobEnd::Done => work.complete().await.map_err(JobEnded::of),
        JobEnd::Cancelled => Err(JobEnded::Cancelled),
        JobEnd::Closing => Err(JobEnded::Closing),
        JobEnd::Failed { class } => Err(JobEnded::Failed(work.fault(class))),
        JobEnd::GaveUp { class, reason } => Err(JobEnded::Failed(gave_up(&work.fault(class), reason))),
    }
}

/// Makes the progress of the job durable; true if that succeeded. `open` is the open input of the classes.
async fn checkpoint(work: &JobWork, open: Result<OpenNow, batch::Error>) -> bool {
    let saved = match open {
        Ok((open, pending)) => work.checkpoint(&open, pending).await,
        Err(error) => Err(error.to_string()),
    };
    if let Err(reason) = &saved {
        tracing::warn!(job = work.job.0, reason, "a checkpoint of a repartition job is postponed");
    }
    saved.is_ok()
}

/// Open objects of the input, and the checksum of their records that were split and not taken.
type OpenNow = (OpenInputs, MultisetChecksum);

fn open_now(idle: &BTreeMap<ClassId, ClassSteps>) -> Result<OpenNow, batch::Error> {
    let (mut open, mut pending) = OpenNow::default();
    for steps in idle.values() {
        let (of_class, split) = steps.open_inputs()?;
        open.extend(of_class);
        pending += split;
    }
    Ok((open, pending))
}

/// The executors of the classes' steps.
fn classes(
    work: &Arc<JobWork>,
    spec: &JobSpec,
    mut inputs: BTreeMap<GroupId, Vec<Input>>,
) -> BTreeMap<ClassId, ClassSteps> {
    let mut classes = BTreeMap::new();
    for part in &spec.parts {
        let mine = part.groups.iter().filter_map(|group| Some((*group, VecDeque::from(inputs.remove(group)?))));
        classes.insert(part.class, ClassSteps::new(work, part.class, mine.collect()));
    }
    assert!(inputs.is_empty(), "all input lies in some part of the job");
    classes
}

/// Carries out a step; returns its result for the engine. A class whose step panicked is gone; the others continue
/// until their steps have ended.
async fn perform(
    work: Arc<JobWork>,
    mut steps: ClassSteps,
    attempt: Attempt,
    order: Order,
) -> (Option<ClassSteps>, JobEvent) {
    let class = steps.class();
    let performed = AssertUnwindSafe(async {
        let result = steps.perform(order).await;
        work.step_ended();
        (steps, result)
    });
    let (steps, result) = if let Ok((steps, result)) = performed.catch_unwind().await {
        (Some(steps), result)
    } else {
        work.set_fault(class, BROKEN.into());
        (None, StepResult::Failed)
    };
    (steps, JobEvent::StepEnded { class, attempt, result })
}

fn gave_up(fault: &str, reason: BlockReason) -> String {
    let minutes = reason.limit().map_or(0, |limit| limit.as_secs() / 60);
    format!("{fault}; the job waited for {minutes} minutes")
}
