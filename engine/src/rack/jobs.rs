//! The link between repartition jobs and the rack: their operations are submitted, withdrawn and timed like any other.

use super::Rack;
use crate::action::Outcome;
use crate::class::{ClassPhase, InService};
use crate::event::{Request, Work};
use crate::job_protocol::{BlockReason, JobClass, JobId, JobTimes};
use crate::policy::PriorityClass;
use crate::repartition::{JobPlanner, Order};
use crate::step::Step;
use alloc::boxed::Box;
use model::{ClassId, Time};

impl Rack {
    /// Submits an operation of a job. If the job must not do anything at the moment, the operation is cancelled at
    /// once.
    pub(super) fn submitted_for_job(&mut self, of: JobClass, request: Box<Request>, step: &mut Step) {
        let op = request.op;
        assert_eq!(request.priority, PriorityClass::Background, "nobody waits for an operation of a job");
        let may_go_on = self.jobs.operation_begins(of, op);
        self.submitted(request, step);
        if !self.ops.contains(op) {
            self.jobs.operation_ended(op, &Outcome::Cancelled); // refused, or reported twice
        } else if !may_go_on {
            self.cancelled(op, step);
        }
    }

    /// Advances jobs as far as possible; true if that has changed the queues.
    pub(super) fn go_on_with_jobs(&mut self, step: &mut Step) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        let awake = |class: ClassId| match self.classes[class.index()].phase {
            ClassPhase::Awake { group, .. } => Some(group),
            ClassPhase::Asleep | ClassPhase::Waking { .. } | ClassPhase::Resting { .. } => None,
        };
        let withdrawn = self.jobs.go_on(self.closing, &awake, step);
        let open = self.ops.len();
        for op in withdrawn {
            self.cancelled(op, step);
        }
        assert!(self.ops.len() <= open, "what is withdrawn adds nothing");
        self.ops.len() < open
    }

    /// Adds the time that an operation of a job was in service to the times of that job, when the operation leaves
    /// service.
    pub(super) fn note_job_service(&mut self, service: InService, now: Time) {
        assert!(now >= service.since, "{} was in service before it left", service.op);
        let Some(at_work) = self.jobs.working().filter(|at_work| at_work.owns(service.op)) else { return };
        let Some(op) = self.ops.get(service.op) else { return };
        let spent = match op.request.work {
            Work::Read { .. } => &mut at_work.times.reading,
            _ if op.verifying => &mut at_work.times.verifying,
            _ => &mut at_work.times.writing,
        };
        *spent += now.since(service.since);
    }

    /// The planner of a job that works, or has ended and is not closed: its accounting, strategies and forecast.
    pub fn job_planner(&self, job: JobId) -> Option<&JobPlanner> {
        Some(&self.jobs.at_work(job)?.planner)
    }

    /// The time spent on a job so far.
    pub fn job_times(&self, job: JobId) -> JobTimes {
        self.jobs.at_work(job).map(|at_work| at_work.times).unwrap_or_default()
    }

    /// The first blocked class of a job, and the reason. A wait for a place in a queue does not count.
    pub fn job_blocked(&self, job: JobId) -> Option<(ClassId, BlockReason)> {
        self.jobs.at_work(job)?.blocked()
    }

    /// The next order of a class of a job, if the write that it has in hand writes this number of bytes and nothing
    /// happens before its end; only if the next order is a write as well ([`JobPlanner::ahead`]).
    pub fn job_ahead(&self, of: JobClass, bytes: u64) -> Option<Order> {
        let next = self.job_planner(of.job)?.ahead(of.class, bytes)?;
        assert!(next.writes(), "nothing but a write is prepared ahead");
        Some(next)
    }
}
