//! The active job: a step in hand in each class, or the reason for having no step.
//!
//! In every round, each class first records which of its groups is awake, since a client may have woken one that has
//! work for the job. Then, if it has no step in hand and is not blocked, it gets the next step.
//!
//! Before a checkpoint all classes only empty their buffers, and while it is taken they do nothing
//! (`repartition/checkpoints.rs`).
//!
//! Invariants: a class has at most one step in hand; a job ends when no step and no checkpoint is in hand; a job that
//! is not paused or ending has a step in hand, or a time at which it retries.

use super::retry::{Retry, passing};
use crate::action::{Outcome, Rejection};
use crate::job_protocol::{BlockReason, JobAction, JobEnd, JobTimes, StepResult};
use crate::repartition::{Checkpoints, JobPlanner, JobSpec, Order, Processed};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, ClassId, GroupId, OpId, Time};

/// The state of the rack in which a job advances, and the requests of the job to the rack and its world.
pub(crate) struct Round<'a> {
    pub now: Time,
    /// The group of a class that is ready.
    pub awake: &'a dyn Fn(ClassId) -> Option<GroupId>,
    /// True if steps may be started.
    pub goes_on: bool,
    /// The number of steps started so far, by all jobs.
    pub attempts: &'a mut u32,
    pub actions: Vec<JobAction>,
    /// Operations to be cancelled while they are still queued.
    pub withdrawn: Vec<OpId>,
}

/// The active job. See the head of this file.
pub(crate) struct AtWork {
    pub planner: JobPlanner,
    /// The time spent so far, all classes together.
    pub times: JobTimes,
    classes: Vec<ClassAtWork>,
    host_scale: u32,
    checkpoints: Checkpoints,
    ending: Option<JobEnd>,
}

struct ClassAtWork {
    class: ClassId,
    step: Option<StepInHand>,
    /// The operations that were submitted for the class and have not ended.
    operations: BTreeSet<OpId>,
    retry: Retry,
    /// True if the planner may return another order than the last time.
    asks: bool,
    done: bool,
    /// The group that was ready in the last round.
    awake: Option<GroupId>,
    /// The reason why the class moves no bytes, and since when.
    idles: Option<(Idle, Time)>,
}

/// A step in hand.
struct StepInHand {
    attempt: Attempt,
    order: Order,
    /// True if the operations of the step are cancelled, including those that are still to be submitted.
    withdrawn: bool,
    /// The reason why an operation of the step was refused or failed.
    refused: Option<Rejection>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// No group is ready.
    Switching,
    /// The class is blocked.
    Waiting,
}

impl AtWork {
    /// A job after its planning.
    pub fn new(spec: &JobSpec) -> Self {
        assert!(spec.host_scale > 0, "time goes on");
        let planner = JobPlanner::new(spec);
        let class = |class| ClassAtWork {
            class,
            step: None,
            operations: BTreeSet::new(),
            retry: Retry::default(),
            asks: true,
            done: false,
            awake: None,
            idles: None,
        };
        let classes = planner.classes().map(class).collect();
        let checkpoints = spec.checkpoints();
        Self { planner, times: JobTimes::default(), classes, host_scale: spec.host_scale, checkpoints, ending: None }
    }

    /// The first class that is blocked, other than by a full queue, and the reason.
    pub fn blocked(&self) -> Option<(ClassId, BlockReason)> {
        self.classes.iter().find_map(|class| Some((class.class, class.retry.reason()?)))
    }

    /// The time at which a class retries, if no event comes before. [`Time::MAX`] while the job ends or a checkpoint is
    /// taken: no class retries then, and an answer is expected.
    pub fn deadline(&self) -> Time {
        if self.ending.is_some() || self.checkpoints.is_taken() {
            return Time::MAX;
        }
        let waits = self.classes.iter().filter(|class| class.step.is_none() && !class.done);
        waits.filter_map(|class| class.retry.at).min().unwrap_or(Time::MAX)
    }

    /// Ends the job in this way, unless it already ends.
    pub fn end(&mut self, end: JobEnd) {
        self.ending.get_or_insert(end);
    }

    /// The way in which the job ends, once no step is in hand.
    pub fn ended(&self) -> Option<JobEnd> {
        let ended = self.ending.filter(|_| self.is_at_rest());
        assert!(ended != Some(JobEnd::Done) || self.planner.done(), "a job is done when all output is delivered");
        ended
    }

    /// True if neither a step nor a checkpoint is in hand.
    pub fn is_at_rest(&self) -> bool {
        self.classes.iter().all(|class| class.step.is_none()) && !self.checkpoints.is_taken()
    }

    /// Resumes the job after a pause, and forgets what blocked it before.
    pub fn resume(&mut self) {
        for class in &mut self.classes {
            class.retry.went_on();
            class.asks = true;
        }
    }

    /// An operation is submitted for a class. True if it may proceed.
    pub fn operation_begins(&mut self, class: ClassId, op: OpId, goes_on: bool) -> bool {
        let goes_on = goes_on && self.ending.is_none();
        let Some(class) = self.classes.iter_mut().find(|known| known.class == class) else { return false };
        class.operations.insert(op);
        goes_on && class.step.as_ref().is_none_or(|step| !step.withdrawn)
    }

    /// An operation has ended; ignored unless it is one of the job's.
    pub fn operation_ended(&mut self, op: OpId, outcome: &Outcome) {
        let Some(class) = self.classes.iter_mut().find(|class| class.operations.contains(&op)) else { return };
        class.operations.remove(&op);
        if let (Some(step), Outcome::Failed(reason)) = (&mut class.step, outcome) {
            step.refused = Some(*reason);
        }
    }

    /// True if an operation is one of the job's.
    pub fn owns(&self, op: OpId) -> bool {
        self.classes.iter().any(|class| class.operations.contains(&op))
    }

    /// Records the time that the processor worked on records.
    pub fn processed(&mut self, done: Processed, time: Duration) {
        self.times.processing += time;
        self.planner.processed(done, time);
    }

    /// A step has ended. Late answers are ignored.
    pub fn step_ended(&mut self, now: Time, class: ClassId, attempt: Attempt, result: &StepResult) {
        let Some(index) = self.classes.iter().position(|known| known.class == class) else { return };
        let Some(step) = self.classes[index].step.take_if(|step| step.attempt == attempt) else { return };
        assert!(!self.classes[index].done, "who is done has no step in hand");
        assert_eq!(self.planner.in_hand(class), Some(step.order), "what ends was in hand");
        match result {
            StepResult::Read { input_bytes, lost_bytes, output } => {
                let group = step.order.group().expect("a read is done somewhere");
                self.planner.was_read(class, *input_bytes, output);
                self.planner.was_lost(class, group, *lost_bytes);
            }
            StepResult::Written { bytes } => self.planner.was_written(class, *bytes),
            StepResult::Refilled { bytes } => self.planner.was_refilled(class, *bytes),
            StepResult::Refused | StepResult::NoRoom | StepResult::Failed => {
                self.planner.withdrawn(class, self.classes[index].awake);
                self.came_to_nothing(now, index, &step, result);
                return;
            }
        }
        assert!(self.planner.in_hand(class).is_none(), "a step that is over is in hand no more");
        self.checkpoints.changed();
        self.classes[index].retry.went_on();
        self.ask_all();
    }

    /// A checkpoint was taken, or failed. Late answers are ignored.
    pub fn checkpoint_ended(&mut self, now: Time, attempt: Attempt, done: bool) {
        if self.checkpoints.ended(now, attempt, done) {
            assert!(self.planner.is_empty(), "nothing is done while a checkpoint is taken");
            self.planner.empty_buffers(false);
            self.ask_all();
        }
    }

    /// The time that a class was blocked, averaged over the classes.
    fn waited(&self, now: Time) -> Duration {
        let waits = |class: &ClassAtWork| match class.idles {
            Some((Idle::Waiting, since)) => now.since(since),
            _ => Duration::ZERO,
        };
        let all = self.times.waiting + self.classes.iter().map(waits).sum::<Duration>();
        all / u32::try_from(self.classes.len()).unwrap_or(u32::MAX)
    }

    /// Starts a checkpoint that is due, or asks the world for the one whose buffers are empty.
    fn checkpoint(&mut self, round: &mut Round<'_>) {
        if !round.goes_on || self.ending.is_some() {
            return;
        }
        if !self.planner.done() && self.checkpoints.begins(round.now, self.waited(round.now)) {
            self.planner.empty_buffers(true);
            self.ask_all();
        }
        if self.checkpoints.is_emptying() && self.is_at_rest() && self.planner.is_empty() {
            *round.attempts = round.attempts.wrapping_add(1);
            let attempt = Attempt(*round.attempts);
            self.checkpoints.take(attempt);
            round.actions.push(JobAction::Checkpoint { attempt });
        }
    }

    /// Handles a step that ended without progress: the class retries, now or later, or the job ends.
    fn came_to_nothing(&mut self, now: Time, index: usize, step: &StepInHand, result: &StepResult) {
        let class = &mut self.classes[index];
        assert!(class.step.is_none(), "what came to nothing is in hand no more");
        let reason = match (result, step.refused) {
            (StepResult::NoRoom, _) => Some(BlockReason::Room),
            // Withdrawn, by the job itself or in favour of other operations.
            (StepResult::Refused, None) => Some(BlockReason::Queue),
            (StepResult::Refused, Some(refused)) => passing(refused),
            _ => None,
        };
        let (class, scale) = (class.class, self.host_scale);
        match reason {
            _ if step.withdrawn && *result == StepResult::Refused => {}
            None if step.refused == Some(Rejection::Closing) => self.end(JobEnd::Closing),
            None => self.end(JobEnd::Failed { class }),
            Some(reason) => {
                if self.checkpoints.is_emptying() && reason != BlockReason::Queue {
                    self.checkpoints.put_off(now);
                    self.planner.empty_buffers(false);
                }
                if !self.classes[index].retry.block(reason, now, scale) {
                    self.end(JobEnd::GaveUp { class, reason });
                }
            }
        }
        self.ask_all();
    }

    /// Asks all classes again: they may have waited for the order that ended.
    fn ask_all(&mut self) {
        for class in &mut self.classes {
            class.asks = true;
        }
    }

    /// Advances the job as far as possible.
    pub fn go_on(&mut self, round: &mut Round<'_>) {
        self.checkpoint(round);
        for index in 0..self.classes.len() {
            self.note_awake(index, round);
            if round.goes_on && self.ending.is_none() {
                self.begin_step(index, round);
            } else {
                self.classes[index].withdraw(round);
            }
            self.classes[index].note_idle(round, &mut self.times);
        }
        self.checkpoint(round);
        if round.goes_on && self.classes.iter().all(|class| class.done) {
            self.end(JobEnd::Done);
        }
        for class in &self.classes {
            let in_hand = self.planner.in_hand(class.class);
            assert_eq!(in_hand, class.step.as_ref().map(|step| step.order), "the planner knows what is in hand");
            assert!(!class.done || class.step.is_none(), "who is done does nothing");
        }
        let stuck = round.goes_on && self.ending.is_none() && self.is_at_rest() && self.deadline() == Time::MAX;
        assert!(!stuck, "a job that goes on works, or waits for a moment");
    }

    /// Checks which group of a class is ready. Operations that are queued for another group are withdrawn if there is
    /// work on this one; the reason that blocked the class may not apply here.
    fn note_awake(&mut self, index: usize, round: &mut Round<'_>) {
        let class = &mut self.classes[index];
        let awake = (round.awake)(class.class);
        if core::mem::replace(&mut class.awake, awake) == awake {
            return;
        }
        let withdraw = self.planner.awake(class.class, awake);
        if withdraw {
            class.withdraw(round);
        } else if awake.is_some() && class.step.is_none() {
            class.retry.hasten(round.now);
        }
    }

    fn begin_step(&mut self, index: usize, round: &mut Round<'_>) {
        let class = &mut self.classes[index];
        if class.step.is_some() || class.done || self.checkpoints.is_taken() {
            return;
        }
        let waits = class.retry.at.is_some() && !class.retry.take_due(round.now);
        if waits || !class.asks {
            return;
        }
        let (id, awake) = (class.class, class.awake);
        self.planner.awake(id, awake);
        let order = self.planner.next(id);
        let class = &mut self.classes[index];
        class.asks = false;
        class.done = order == Order::Done;
        if order.group().is_none() {
            return;
        }
        assert!(round.goes_on && self.ending.is_none(), "no step is begun for a job that pauses or ends");
        *round.attempts = round.attempts.wrapping_add(1);
        let attempt = Attempt(*round.attempts);
        class.step = Some(StepInHand { attempt, order, withdrawn: false, refused: None });
        let room_bytes = self.planner.room_bytes(id);
        round.actions.push(JobAction::Step { class: id, attempt, order, room_bytes });
    }
}

impl ClassAtWork {
    /// Withdraws the operations of the class, including those that its step in hand has still to submit.
    fn withdraw(&mut self, round: &mut Round<'_>) {
        if let Some(step) = &mut self.step {
            step.withdrawn = true;
        }
        round.withdrawn.extend(self.operations.iter().copied());
    }

    /// Adds up the time that the class spends without an operation in service.
    fn note_idle(&mut self, round: &Round<'_>, times: &mut JobTimes) {
        let now = round.now;
        let idles = match (self.step.is_some(), self.retry.at.is_some(), self.awake) {
            _ if self.done => None,
            (false, ..) if !round.goes_on => None,
            (false, true, _) => Some(Idle::Waiting),
            (_, _, None) => Some(Idle::Switching),
            _ => None,
        };
        if idles == self.idles.map(|(idle, _)| idle) {
            return;
        }
        match self.idles.take() {
            Some((Idle::Switching, since)) => times.switching += now.since(since),
            Some((Idle::Waiting, since)) => times.waiting += now.since(since),
            None => {}
        }
        self.idles = idles.map(|idle| (idle, now));
    }
}
