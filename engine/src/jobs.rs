//! Repartition jobs: the turns of the jobs, and the next steps of the active job.
//!
//! - A job waits its turn, is planned by the world, works step by step, and ends (see the diagram in
//!   [`crate::job_protocol`]).
//! - `jobs/at_work.rs` issues the steps of the active job and enters their results into its planner.
//! - `jobs/retry.rs` decides when a blocked class retries, and when it gives up.
//!
//! Operations of a job are ordinary operations of the background priority class. Queued operations are withdrawn when
//! the job is paused or ends, and when a client woke another group that has work for the class: that switch is free.
//!
//! Invariants: one job works at a time; a job that ends has no step in hand; no operation of a job that is paused or
//! ends is put into service.

mod at_work;
mod retry;
#[cfg(test)]
mod tests;

use crate::action::{Action, Outcome};
use crate::job_protocol::{JobAction, JobClass, JobEnd, JobEvent, JobId};
use crate::step::Step;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use at_work::{AtWork, Round};
use model::{ClassId, GroupId, OpId, Time};

/// The jobs of a rack.
#[derive(Default)]
pub(crate) struct Jobs {
    known: BTreeMap<JobId, Job>,
    /// Jobs that wait their turn, in the order in which they were queued; none that is paused.
    waiting: VecDeque<JobId>,
    /// The job that has the turn.
    turn: Option<JobId>,
    /// The number of steps started so far.
    attempts: u32,
}

struct Job {
    stage: Stage,
    paused: bool,
    /// Set once the job is planned.
    at_work: Option<Box<AtWork>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Planning,
    Working,
    /// The end of the job is known, and the world cleans up.
    Ended,
}

impl Jobs {
    /// Applies an event of a job.
    pub fn apply(&mut self, id: JobId, event: JobEvent, step: &mut Step) {
        match (event, self.known.get_mut(&id)) {
            (JobEvent::Queued, None) => {
                self.known.insert(id, Job { stage: Stage::Waiting, paused: false, at_work: None });
                self.waiting.push_back(id);
            }
            (JobEvent::Planned(spec), Some(job)) if job.stage == Stage::Planning => {
                assert_eq!(self.turn, Some(id), "a job is planned in its turn");
                assert!(job.at_work.is_none(), "{id} is planned once");
                (job.stage, job.at_work) = (Stage::Working, Some(Box::new(AtWork::new(&spec))));
            }
            (JobEvent::Paused, Some(job)) => {
                job.paused = true;
                self.waiting.retain(|waiting| *waiting != id);
            }
            (JobEvent::Resumed, Some(job)) if job.paused => {
                job.paused = false;
                match job.stage {
                    Stage::Waiting => self.waiting.push_back(id),
                    Stage::Working => job.at_work.iter_mut().for_each(|at_work| at_work.resume()),
                    Stage::Planning | Stage::Ended => {}
                }
            }
            (JobEvent::Cancelled, _) => self.end(id, JobEnd::Cancelled, step),
            (JobEvent::StepEnded { class, attempt, result }, Some(job)) => {
                if let Some(at_work) = job.working() {
                    at_work.step_ended(step.now, class, attempt, &result);
                }
            }
            (JobEvent::Processed { done, time }, Some(job)) => {
                if let Some(at_work) = job.working() {
                    at_work.processed(done, time);
                }
            }
            (JobEvent::CheckpointEnded { attempt, done }, Some(job)) => {
                if let Some(at_work) = job.working() {
                    at_work.checkpoint_ended(step.now, attempt, done);
                }
            }
            (JobEvent::Closed, _) => {
                self.known.remove(&id);
                self.waiting.retain(|waiting| *waiting != id);
                self.turn.take_if(|turn| *turn == id);
            }
            _ => {} // reported twice, or late
        }
        self.assert_turns();
    }

    /// Asserts that at most one job has the turn, and that a waiting job does not work.
    fn assert_turns(&self) {
        for (id, job) in &self.known {
            let works = matches!(job.stage, Stage::Planning | Stage::Working);
            assert!(!works || self.turn == Some(*id), "{id} works in its turn");
            let waits = job.stage == Stage::Waiting && !job.paused;
            assert_eq!(self.waiting.contains(id), waits, "{id} waits its turn, or not");
            assert!(job.stage != Stage::Working || job.at_work.is_some(), "{id} was planned before it works");
        }
        assert!(self.turn.is_none_or(|id| self.known.contains_key(&id)), "who has the turn is known");
    }

    /// Ends a job: at once, unless it works.
    fn end(&mut self, id: JobId, end: JobEnd, step: &mut Step) {
        let Some(job) = self.known.get_mut(&id).filter(|job| job.stage != Stage::Ended) else { return };
        if let Some(at_work) = job.working() {
            at_work.end(end);
        } else {
            job.stage = Stage::Ended;
            self.waiting.retain(|waiting| *waiting != id);
            step.ask(Action::Job { job: id, action: JobAction::Ended { end } });
        }
    }

    /// True if no job is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Advances the jobs as far as possible; returns the operations that are to be cancelled while they are still
    /// queued.
    pub fn go_on(&mut self, closing: bool, awake: &dyn Fn(ClassId) -> Option<GroupId>, step: &mut Step) -> Vec<OpId> {
        if closing {
            for id in self.known.keys().copied().collect::<Vec<JobId>>() {
                self.end(id, JobEnd::Closing, step);
            }
        }
        self.give_turn(step);
        let Some(id) = self.turn else { return Vec::new() };
        let Some(job) = self.known.get_mut(&id) else { return Vec::new() };
        let goes_on = !job.paused && !closing;
        let Some(at_work) = job.working() else { return Vec::new() };
        let attempts = &mut self.attempts;
        let mut round = Round { now: step.now, awake, goes_on, attempts, actions: Vec::new(), withdrawn: Vec::new() };
        at_work.go_on(&mut round);
        let Round { mut actions, withdrawn, .. } = round;
        if let Some(end) = at_work.ended() {
            assert!(at_work.is_at_rest(), "a job that ends has no step in hand");
            job.stage = Stage::Ended;
            actions.push(JobAction::Ended { end });
        }
        self.assert_turns();
        step.actions.extend(actions.into_iter().map(|action| Action::Job { job: id, action }));
        withdrawn
    }

    /// Gives the turn to the job that has waited longest, if no job has it.
    fn give_turn(&mut self, step: &mut Step) {
        if self.turn.is_some() {
            return;
        }
        let Some(id) = self.waiting.pop_front() else { return };
        let Some(job) = self.known.get_mut(&id) else { return };
        assert!(job.stage == Stage::Waiting && !job.paused, "{id} waits its turn");
        job.stage = Stage::Planning;
        self.turn = Some(id);
        step.ask(Action::Job { job: id, action: JobAction::Plan });
    }

    /// The time at which the active job wants to be woken, if no event comes before.
    pub fn deadline(&self) -> Time {
        match self.turn.and_then(|id| self.known.get(&id)) {
            Some(Job { stage: Stage::Working, paused: false, at_work: Some(at_work) }) => at_work.deadline(),
            _ => Time::MAX,
        }
    }

    /// An operation is submitted for a class of a job. True if it may proceed.
    pub fn operation_begins(&mut self, of: JobClass, op: OpId) -> bool {
        let Some(job) = self.known.get_mut(&of.job) else { return false };
        let goes_on = !job.paused;
        let goes_on = job.working().is_some_and(|at_work| at_work.operation_begins(of.class, op, goes_on));
        assert!(!goes_on || self.turn == Some(of.job), "{op} goes on in the turn of its job");
        goes_on
    }

    /// An operation of any origin has ended.
    pub fn operation_ended(&mut self, op: OpId, outcome: &Outcome) {
        if let Some(at_work) = self.working() {
            at_work.operation_ended(op, outcome);
        }
    }

    /// The active job.
    pub fn working(&mut self) -> Option<&mut AtWork> {
        self.known.get_mut(&self.turn?)?.working()
    }

    /// A job that works, or has ended and is not closed.
    pub fn at_work(&self, id: JobId) -> Option<&AtWork> {
        self.known.get(&id)?.at_work.as_deref()
    }
}

impl Job {
    fn working(&mut self) -> Option<&mut AtWork> {
        self.at_work.as_deref_mut().filter(|_| self.stage == Stage::Working)
    }
}
