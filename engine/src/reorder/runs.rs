//! The runs of a queue: neighbours in the order of service that need the same group.
//!
//! An operation that overtakes others goes right after the last one of its group, or is the first of its group and
//! leaves the queue at once, so it overtakes runs as a whole. So a run stores in one number the weight that has
//! overtaken it since it was opened, and an operation of the run stores only the correction for the time before it
//! joined. There are as many runs as a queue has switches in it: a few for each group, where operations may be
//! overtaken.
//!
//! The tightest operation of a run determines by how much more the run may be overtaken. A run grows at its end and
//! loses its first operation, so it stores those that are tighter than all after them: the first of these is the
//! tightest of all, and when it has left, the next one is.
//!
//! Invariants:
//! - every run has operations, except between its opening and its first one;
//! - `tightest` is in the order of the run, and each entry has less headroom than those after it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use model::GroupId;
use model::sabotage::{Sabotage, is_on};

/// The place of an operation in the queue's arena.
pub(super) type Slot = u32;

/// The index of a run among the runs, which does not change while the run exists.
pub(super) type RunId = u32;

/// No operation, or no run.
pub(super) const NIL: u32 = u32::MAX;

const BEFORE: usize = 0;
const BEHIND: usize = 1;

/// One run.
pub(super) struct Run {
    pub group: GroupId,
    pub first: Slot,
    pub last: Slot,
    operations: u32,
    weight: u64,
    /// The weight that has overtaken the run since it was opened.
    pub delay: i128,
    tightest: VecDeque<(Slot, i128)>,
    neighbours: [RunId; 2],
}

impl Run {
    /// True if all of its operations may be overtaken by `weight` more.
    fn bears(&self, weight: u64) -> bool {
        self.tightest.front().is_none_or(|(_, headroom)| headroom - self.delay >= i128::from(weight))
    }

    /// Records an operation after those recorded so far; `headroom` is the weight by which it might be overtaken if the
    /// run had not been overtaken yet.
    pub fn note_headroom(&mut self, slot: Slot, headroom: i128) {
        while self.tightest.back().is_some_and(|(_, less_tight)| *less_tight >= headroom) {
            self.tightest.pop_back();
        }
        self.tightest.push_back((slot, headroom));
    }
}

/// The sums over neighbouring runs from one end of the queue on.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub operations: u32,
    pub weight: u64,
    /// The number of changes of group between them, and from them to the run that follows.
    pub changes: u32,
}

/// All runs. See the head of this file.
pub(super) struct Runs {
    arena: Vec<Run>,
    free: Vec<RunId>,
    /// The first run and the last run.
    ends: [RunId; 2],
    /// The operations in all runs, their weight, and the number of changes of group between them.
    pub whole: Span,
}

impl Runs {
    pub fn new() -> Self {
        Self { arena: Vec::new(), free: Vec::new(), ends: [NIL; 2], whole: Span::default() }
    }

    pub fn first(&self) -> Option<&Run> {
        self.arena.get(self.ends[BEFORE] as usize)
    }

    pub fn last(&self) -> Option<&Run> {
        self.arena.get(self.ends[BEHIND] as usize)
    }

    pub fn get(&self, run: RunId) -> &Run {
        &self.arena[run as usize]
    }

    pub fn get_mut(&mut self, run: RunId) -> &mut Run {
        &mut self.arena[run as usize]
    }

    /// The run after `run`.
    pub fn next(&self, run: &Run) -> Option<&Run> {
        self.arena.get(run.neighbours[BEHIND] as usize)
    }

    /// The span before `run`.
    pub fn before(&self, run: RunId) -> Span {
        self.beyond(run, BEFORE)
    }

    /// The span after `run`, if all of it may be overtaken by `weight`.
    pub fn behind_bearing(&self, run: RunId, weight: u64) -> Option<Span> {
        self.bear(run, BEHIND, weight).then(|| self.beyond(run, BEHIND))
    }

    /// True if everything before `run` may be overtaken by `weight`.
    pub fn bear_before(&self, run: RunId, weight: u64) -> bool {
        self.bear(run, BEFORE, weight)
    }

    /// Everything before `run` is overtaken by `weight`.
    pub fn delay_before(&mut self, run: RunId, weight: u64) {
        self.delay_beyond(run, BEFORE, weight);
    }

    /// Everything after `run` is overtaken by `weight`.
    pub fn delay_behind(&mut self, run: RunId, weight: u64) {
        self.delay_beyond(run, BEHIND, weight);
    }

    /// Opens a run of `group` at the end, for the operation that is appended next.
    pub fn open(&mut self, group: GroupId) -> RunId {
        let run = self.free.pop().unwrap_or_else(|| {
            let neighbours = [NIL; 2];
            let (first, last, tightest) = (NIL, NIL, VecDeque::new());
            self.arena.push(Run { group, first, last, operations: 0, weight: 0, delay: 0, tightest, neighbours });
            (self.arena.len() - 1) as RunId
        });
        let before = core::mem::replace(&mut self.ends[BEHIND], run);
        match self.arena.get_mut(before as usize) {
            Some(last) => last.neighbours[BEHIND] = run,
            None => self.ends[BEFORE] = run,
        }
        let opened = self.get_mut(run);
        assert!(opened.operations == 0 && opened.tightest.is_empty(), "a run is opened without operations");
        (opened.group, opened.delay, opened.neighbours) = (group, 0, [before, NIL]);
        self.whole.changes += self.differ(before, run);
        run
    }

    /// Appends the operation at `slot` to `run`.
    pub fn append(&mut self, run: RunId, slot: Slot, weight: u64) {
        self.whole.operations += 1;
        self.whole.weight += weight;
        let run = self.get_mut(run);
        assert!(run.operations == 0 || run.last != slot, "{slot} is appended once");
        if run.operations == 0 {
            run.first = slot;
        }
        run.last = slot;
        run.operations += 1;
        run.weight += weight;
    }

    /// Removes the operation at `slot` from `run`; its neighbours there, if any, are `[before, behind]`. True if it was
    /// neither the first nor the only one, so that the headroom of the remaining ones must be recorded again.
    pub fn leave(&mut self, run: RunId, slot: Slot, weight: u64, [before, behind]: [Slot; 2]) -> bool {
        assert!(self.whole.operations > 0 && self.whole.weight >= weight, "what leaves the queue was counted");
        self.whole.operations -= 1;
        self.whole.weight -= weight;
        let left = self.get_mut(run);
        assert!(left.operations > 0 && left.weight >= weight, "what leaves a run was counted");
        left.operations -= 1;
        left.weight -= weight;
        if left.operations == 0 {
            assert!(left.weight == 0, "a run without operations weighs nothing");
            left.tightest.clear();
            self.close(run);
            return false;
        }
        if slot == left.first {
            assert!(behind != NIL, "a run that goes on has a first operation");
            left.first = behind;
            left.tightest.pop_front_if(|(tightest, _)| *tightest == slot);
            return false;
        }
        if slot == left.last {
            assert!(before != NIL, "a run that goes on has a last operation");
            left.last = before;
        }
        left.tightest.clear();
        true
    }

    fn close(&mut self, run: RunId) {
        let [before, behind] = self.get(run).neighbours;
        let (with, without) = (self.differ(before, run) + self.differ(run, behind), self.differ(before, behind));
        assert!(self.whole.changes + without >= with, "the changes around {run} were counted");
        self.whole.changes = self.whole.changes + without - with;
        match self.arena.get_mut(before as usize) {
            Some(run) => run.neighbours[BEHIND] = behind,
            None => self.ends[BEFORE] = behind,
        }
        match self.arena.get_mut(behind as usize) {
            Some(run) => run.neighbours[BEFORE] = before,
            None => self.ends[BEHIND] = before,
        }
        assert!((self.ends[BEFORE] == NIL) == (self.ends[BEHIND] == NIL), "a queue has two ends, or none");
        self.free.push(run);
        assert!(self.free.len() <= self.arena.len(), "a run is closed once");
    }

    /// 1 if both runs exist and the group changes from one to the other, otherwise 0.
    fn differ(&self, before: RunId, behind: RunId) -> u32 {
        let both = before != NIL && behind != NIL;
        u32::from(both && self.get(before).group != self.get(behind).group)
    }

    /// All runs on one side of `run`, starting at the end of the queue.
    fn all_beyond(&self, run: RunId, side: usize) -> impl Iterator<Item = RunId> {
        let next = move |at: &RunId| Some(self.get(*at).neighbours[1 - side]).filter(|next| *next != run);
        core::iter::successors(Some(self.ends[side]).filter(|end| *end != run), next)
    }

    fn bear(&self, run: RunId, side: usize, weight: u64) -> bool {
        is_on(Sabotage::OvertakeUnchecked) || self.all_beyond(run, side).all(|other| self.get(other).bears(weight))
    }

    fn beyond(&self, run: RunId, side: usize) -> Span {
        let mut span = Span::default();
        for other in self.all_beyond(run, side) {
            let Run { operations, weight, neighbours, .. } = self.get(other);
            span.operations += operations;
            span.weight += weight;
            span.changes += self.differ(other, neighbours[1 - side]);
        }
        assert!(span.operations <= self.whole.operations, "a part of the queue is no longer than the queue");
        assert!(span.changes <= self.whole.changes, "the group changes no more often in a part of the queue");
        span
    }

    fn delay_beyond(&mut self, run: RunId, side: usize, weight: u64) {
        let mut at = self.ends[side];
        while at != run {
            let other = self.get_mut(at);
            other.delay += i128::from(weight);
            at = other.neighbours[1 - side];
        }
    }
}
