//! Repartition jobs in the world: the engine's actions for a job go to the task that carries them out, and their
//! results return as events.

use super::state::World;
use super::state::WorldHandle;
use engine::{Event, JobAction, JobClass, JobEvent, JobId, Request};
use tokio::sync::mpsc;

/// The engine's actions for one job, in order. They end with the world.
pub type JobActions = mpsc::UnboundedReceiver<JobAction>;

impl WorldHandle {
    /// Queues a job; the actions announce its turn and everything after it.
    pub fn queue_job(&self, job: JobId) -> JobActions {
        let (sender, actions) = mpsc::unbounded_channel();
        self.run(move |world| world.queue_job(job, sender));
        actions
    }

    /// Reports an event of a job to the engine.
    pub fn report_job(&self, job: JobId, event: JobEvent) {
        self.report(Event::Job { job, event });
    }
}

impl World {
    fn queue_job(&mut self, job: JobId, actions: mpsc::UnboundedSender<JobAction>) {
        self.job_actions.insert(job, actions);
        self.apply(Event::Job { job, event: JobEvent::Queued });
    }

    pub(super) fn act_for_job(&mut self, job: JobId, action: JobAction) {
        let ended = matches!(action, JobAction::Ended { .. });
        if let Some(actions) = self.job_actions.get(&job) {
            let _ = actions.send(action); // the job's task may have ended with the server
        }
        if ended {
            self.job_actions.remove(&job);
        }
    }

    /// Submits an operation, on behalf of a job if it is part of one of its steps.
    pub(super) fn submit(&mut self, of: Option<JobClass>, request: Request) {
        self.apply(match of {
            Some(of) => Event::SubmittedForJob { of, request: Box::new(request) },
            None => Event::Submitted(Box::new(request)),
        });
    }
}
