//! The runs of a queue: neighbours in the order of service that want the same group.
//!
//! An operation that overtakes others is put behind the last one of its group, or is the first of its group and leaves
//! the queue at once, so it overtakes runs as a whole. So a run keeps in one number the weight that has overtaken it
//! since it was opened, and an operation of it only what that number was not yet, or no more, when it came. There are
//! as many runs as a queue has switches in it: some for each group, where operations may be overtaken.
//!
//! How much more a run may be overtaken by is known by its tightest operation. A run ends with its last operation and
//! loses its first one, so it keeps those that are tighter than all behind them: the first of these is the tightest of
//! all, and when it has left, the next one is.
//!
//! Invariants:
//! - every run has operations, but for the moment between its opening and its first one;
//! - `tightest` is in the order of the run, and each of them has less headroom than those behind it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use model::GroupId;
use model::sabotage::{Sabotage, is_on};

/// The place of an operation in the queue's arena.
pub(super) type Slot = u32;

/// The place of a run among the runs, which stays the same while there is the run.
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
    /// The weight that has overtaken it since it was opened.
    pub delay: i128,
    tightest: VecDeque<(Slot, i128)>,
    neighbours: [RunId; 2],
}

impl Run {
    /// Whether all of its operations may be overtaken by `weight` more.
    fn bears(&self, weight: u64) -> bool {
        self.tightest.front().is_none_or(|(_, headroom)| headroom - self.delay >= i128::from(weight))
    }

    /// Takes note of an operation behind those noted so far, which might be overtaken by `headroom` if the run had not
    /// been yet.
    pub fn note_headroom(&mut self, slot: Slot, headroom: i128) {
        while self.tightest.back().is_some_and(|(_, less_tight)| *less_tight >= headroom) {
            self.tightest.pop_back();
        }
        self.tightest.push_back((slot, headroom));
    }
}

/// Neighbouring runs from one end of the queue on, summed up.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub operations: u32,
    pub weight: u64,
    /// How often the group changes between them, and from them to the run that follows.
    pub changes: u32,
}

/// All runs. See the head of this file.
pub(super) struct Runs {
    arena: Vec<Run>,
    free: Vec<RunId>,
    /// The first one and the last one.
    ends: [RunId; 2],
    /// Operations in all of them, their weight, and how often the group changes between them.
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

    /// The run behind `run`.
    pub fn next(&self, run: &Run) -> Option<&Run> {
        self.arena.get(run.neighbours[BEHIND] as usize)
    }

    /// The span before `run`.
    pub fn before(&self, run: RunId) -> Span {
        self.beyond(run, BEFORE)
    }

    /// The span behind `run`, if all of it may be overtaken by `weight`.
    pub fn behind_bearing(&self, run: RunId, weight: u64) -> Option<Span> {
        self.bear(run, BEHIND, weight).then(|| self.beyond(run, BEHIND))
    }

    /// Whether all that lies before `run` may be overtaken by `weight`.
    pub fn bear_before(&self, run: RunId, weight: u64) -> bool {
        self.bear(run, BEFORE, weight)
    }

    /// All that lies before `run` is overtaken by `weight`.
    pub fn delay_before(&mut self, run: RunId, weight: u64) {
        self.delay_beyond(run, BEFORE, weight);
    }

    /// All that lies behind `run` is overtaken by `weight`.
    pub fn delay_behind(&mut self, run: RunId, weight: u64) {
        self.delay_beyond(run, BEHIND, weight);
    }

    /// A new run of `group` at the end, for an operation that comes next.
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

    /// The operation at `slot` is the last one of `run` from now on.
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

    /// The operation at `slot` leaves `run`; its neighbours there, if it has any, are `[before, behind]`. True if it
    /// leaves from between others or from behind, so that the headroom of those left must be noted anew.
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

    /// Whether the group changes from one run to the other, if there are both.
    fn differ(&self, before: RunId, behind: RunId) -> u32 {
        let both = before != NIL && behind != NIL;
        u32::from(both && self.get(before).group != self.get(behind).group)
    }

    /// All runs on one side of `run`, from the end of the queue on.
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
