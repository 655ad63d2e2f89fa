//! Repartition jobs: who has the turn, and what the job at work does next.
//!
//! - A job waits its turn, is planned by the world, works step by step, and ends ([`crate::job_protocol`] draws it).
//! - `jobs/at_work.rs` gives out the steps of the job at work and enters their results into its planner.
//! - `jobs/retry.rs` decides when a class tries again after something stood in its way, and when it gives up.
//!
//! Operations of a job are ordinary operations of the background priority class. Those that are queued are withdrawn
//! when the job is paused or ends, and when a client woke another group where the class has something to do: that
//! switch is free.
//!
//! Invariants: one job works at a time; a job that ends has no step in hand; nothing of a job that is paused or ends is
//! put into service any more.

mod at_work;
mod retry;
#[cfg(test)]
mod tests;

use crate::action::{Action, Outcome};
use crate::job_protocol::{BlockReason, JobAction, JobClass, JobEnd, JobEvent, JobId, JobTimes};
use crate::repartition::{JobPlanner, JobSpec};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use at_work::{AtWork, Round, Wishes};
use core::time::Duration;
use model::{ClassId, GroupId, OpId, Time};

/// The jobs of a rack.
#[derive(Default)]
pub(crate) struct Jobs {
    known: BTreeMap<JobId, Job>,
    /// Those that wait their turn, in the order in which they were queued; none that is paused.
    waiting: VecDeque<JobId>,
    /// The job that has the turn.
    turn: Option<JobId>,
    /// The steps begun so far.
    attempts: u32,
}

struct Job {
    stage: Stage,
    paused: bool,
}

enum Stage {
    Waiting,
    Planning,
    Working(Box<AtWork>),
    /// It is known how it ended, and the world tidies up.
    Ended(Option<Box<AtWork>>),
}

impl Jobs {
    /// Takes note of what happened to a job.
    pub fn apply(&mut self, now: Time, id: JobId, event: JobEvent, actions: &mut Vec<Action>) {
        match event {
            JobEvent::Queued => self.queued(id),
            JobEvent::Planned(spec) => self.planned(id, &spec),
            JobEvent::Paused => self.paused(id),
            JobEvent::Resumed => self.resumed(id),
            JobEvent::Cancelled => self.end(id, JobEnd::Cancelled, actions),
            JobEvent::StepEnded { class, attempt, result } => {
                if let Some(at_work) = self.at_work_mut(id) {
                    at_work.step_ended(now, class, attempt, &result);
                }
            }
            JobEvent::Closed => self.closed(id),
        }
        self.assert_turns();
    }

    /// One job has the turn at most, and who waits does not work.
    fn assert_turns(&self) {
        for (id, job) in &self.known {
            let works = matches!(job.stage, Stage::Planning | Stage::Working(_));
            assert!(!works || self.turn == Some(*id), "{id} works in its turn");
            let waits = matches!(job.stage, Stage::Waiting) && !job.paused;
            assert_eq!(self.waiting.contains(id), waits, "{id} waits its turn, or not");
        }
        assert!(self.turn.is_none_or(|id| self.known.contains_key(&id)), "who has the turn is known");
    }

    fn queued(&mut self, id: JobId) {
        if self.known.contains_key(&id) {
            return; // told twice
        }
        self.known.insert(id, Job { stage: Stage::Waiting, paused: false });
        self.waiting.push_back(id);
    }

    fn planned(&mut self, id: JobId, spec: &JobSpec) {
        let attempts = self.attempts;
        let Some(job) = self.known.get_mut(&id) else { return };
        if matches!(job.stage, Stage::Planning) {
            assert_eq!(self.turn, Some(id), "a job is planned in its turn");
            job.stage = Stage::Working(Box::new(AtWork::new(spec, attempts)));
        }
    }

    fn paused(&mut self, id: JobId) {
        let Some(job) = self.known.get_mut(&id) else { return };
        job.paused = true;
        self.waiting.retain(|waiting| *waiting != id);
    }

    fn resumed(&mut self, id: JobId) {
        let Some(job) = self.known.get_mut(&id) else { return };
        if !core::mem::replace(&mut job.paused, false) {
            return;
        }
        match &mut job.stage {
            Stage::Waiting => self.waiting.push_back(id),
            Stage::Working(at_work) => at_work.resume(),
            Stage::Planning | Stage::Ended(_) => {}
        }
    }

    /// A job ends: at once, unless it works.
    fn end(&mut self, id: JobId, end: JobEnd, actions: &mut Vec<Action>) {
        let Some(job) = self.known.get_mut(&id) else { return };
        match &mut job.stage {
            Stage::Working(at_work) => at_work.end(end),
            Stage::Waiting | Stage::Planning => {
                job.stage = Stage::Ended(None);
                self.waiting.retain(|waiting| *waiting != id);
                actions.push(Action::Job { job: id, action: JobAction::Ended { end } });
            }
            Stage::Ended(_) => {}
        }
    }

    fn closed(&mut self, id: JobId) {
        if let Some(Job { stage: Stage::Working(at_work) | Stage::Ended(Some(at_work)), .. }) = self.known.remove(&id) {
            self.attempts = at_work.attempts();
        }
        self.waiting.retain(|waiting| *waiting != id);
        self.turn.take_if(|turn| *turn == id);
    }

    /// Whether anything is known of a job.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Goes on as far as it can; returns the operations that are to be cancelled as long as they are queued.
    pub fn go_on(
        &mut self,
        now: Time,
        closing: bool,
        awake: &dyn Fn(ClassId) -> Option<GroupId>,
        actions: &mut Vec<Action>,
    ) -> Vec<OpId> {
        if closing {
            let all: Vec<JobId> = self.known.keys().copied().collect();
            for id in all {
                self.end(id, JobEnd::Closing, actions);
            }
        }
        self.give_turn(actions);
        let mut wishes = Wishes::default();
        let Some(id) = self.turn else { return wishes.withdrawn };
        let Some(job) = self.known.get_mut(&id) else { return wishes.withdrawn };
        if let Stage::Working(at_work) = &mut job.stage {
            at_work.go_on(&Round { now, awake, goes_on: !job.paused && !closing }, &mut wishes);
            if let Some(end) = at_work.ended() {
                wishes.actions.push(JobAction::Ended { end });
            }
        }
        if matches!(wishes.actions.last(), Some(JobAction::Ended { .. })) {
            let Stage::Working(at_work) = core::mem::replace(&mut job.stage, Stage::Ended(None)) else {
                return Vec::new();
            };
            assert!(at_work.is_at_rest(), "a job that ends has no step in hand");
            job.stage = Stage::Ended(Some(at_work));
        }
        self.assert_turns();
        actions.extend(wishes.actions.into_iter().map(|action| Action::Job { job: id, action }));
        wishes.withdrawn
    }

    /// Nobody has the turn: who waits longest has it.
    fn give_turn(&mut self, actions: &mut Vec<Action>) {
        if self.turn.is_some() {
            return;
        }
        let Some(id) = self.waiting.pop_front() else { return };
        let Some(job) = self.known.get_mut(&id) else { return };
        assert!(matches!(job.stage, Stage::Waiting) && !job.paused, "{id} waits its turn");
        job.stage = Stage::Planning;
        self.turn = Some(id);
        actions.push(Action::Job { job: id, action: JobAction::Plan });
    }

    /// When the job at work wants to be woken, if nothing happens before.
    pub fn deadline(&self) -> Time {
        match self.turn.and_then(|id| self.known.get(&id)) {
            Some(Job { stage: Stage::Working(at_work), paused: false }) => at_work.deadline(),
            _ => Time::MAX,
        }
    }

    /// An operation is submitted for a class of a job; whether it may go on.
    pub fn operation_begins(&mut self, of: JobClass, op: OpId) -> bool {
        let Some(job) = self.known.get_mut(&of.job) else { return false };
        match &mut job.stage {
            Stage::Working(at_work) => at_work.operation_begins(of.class, op, !job.paused),
            Stage::Waiting | Stage::Planning | Stage::Ended(_) => false,
        }
    }

    /// An operation has ended, whosever it was.
    pub fn operation_ended(&mut self, op: OpId, outcome: &Outcome) {
        if let Some(at_work) = self.turn.and_then(|id| self.at_work_mut(id)) {
            at_work.operation_ended(op, outcome);
        }
    }

    /// An operation was in service, whosever it was.
    pub fn operation_served(&mut self, op: OpId, spent: impl Fn(&mut JobTimes) -> &mut Duration, span: Duration) {
        if let Some(at_work) = self.turn.and_then(|id| self.at_work_mut(id)) {
            at_work.operation_served(op, spent, span);
        }
    }

    fn at_work_mut(&mut self, id: JobId) -> Option<&mut AtWork> {
        match &mut self.known.get_mut(&id)?.stage {
            Stage::Working(at_work) => Some(at_work),
            Stage::Waiting | Stage::Planning | Stage::Ended(_) => None,
        }
    }

    fn at_work(&self, id: JobId) -> Option<&AtWork> {
        match &self.known.get(&id)?.stage {
            Stage::Working(at_work) | Stage::Ended(Some(at_work)) => Some(at_work),
            Stage::Waiting | Stage::Planning | Stage::Ended(None) => None,
        }
    }

    /// The planner of a job that works, or has ended and is not closed.
    pub fn planner(&self, id: JobId) -> Option<&JobPlanner> {
        self.at_work(id).map(AtWork::planner)
    }

    /// The time that a job has taken so far.
    pub fn times(&self, id: JobId) -> JobTimes {
        self.at_work(id).map(AtWork::times).unwrap_or_default()
    }

    /// A class of a job that something stands in the way of, and what that is.
    pub fn blocked(&self, id: JobId) -> Option<(ClassId, BlockReason)> {
        self.at_work(id)?.blocked()
    }
}
