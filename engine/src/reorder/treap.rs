//! A sequence of operations into which one may be inserted anywhere, with everything behind (or before) it charged for
//! that.
//!
//! A treap over positions (Seidel, Aragon 1996): the in-order walk is the sequence, and each node has an [`Aggregate`]
//! of its subtree. Nodes lie in an arena and know their parent, so a position is found from its slot, not by search. A
//! charge to a whole subtree is kept at its root as `pending` until a walk passes through (lazy propagation).
//!
//! Invariants:
//! - a node's `delay` and `aggregate` are right once the `pending` of all its ancestors are added;
//! - priorities fall from parent to child; they are drawn from a fixed stream, so the same calls give the same tree;
//! - the expected depth is O(log n), and nothing recurses deeper than that;
//! - slots of removed nodes are used again, so the arena is as large as the sequence ever was.

use alloc::vec::Vec;
use model::{GroupId, OpId, Rng, Time};

/// The place of a node in the arena, which stays the same while its operation is in the sequence.
pub(super) type Slot = u32;

/// No node.
pub(super) const NIL: Slot = u32::MAX;

/// The largest sum of weights in one sequence, and the largest limit that is one; whatever is above stands for no
/// limit. Sums and differences of two such numbers fit into 64 bits.
pub(super) const WEIGHT_SUM_MAX: u64 = 1 << 61;

const _: () = assert!(WEIGHT_SUM_MAX < i64::MAX as u64 / 2, "the sum of two weights is a delay");

/// The headroom of an operation without limit. No delay changes it.
const UNBOUNDED: i64 = i64::MAX;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// An operation as the queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Which operation.
    pub op: OpId,
    /// The group it needs awake.
    pub group: GroupId,
    /// Its share of u, in the unit of [`Weighing`](crate::Weighing). Fixed at admission. 0 is taken for 1, since
    /// otherwise something weightless could overtake without end; above 2^61 over the queue's depth (2 PB at 1,000) it
    /// is taken for that, so that sums fit.
    pub weight: u64,
    /// The weight of a switch to another group, as expected at its admission; 0 where switches do not count. Above 2^61
    /// over the queue's depth it is taken for that.
    pub switch_weight: u64,
    /// u: how much weight may overtake it, in the same unit. Above 2^61 (`u64::MAX`, say) it is any amount.
    pub overtake_limit: u64,
    /// When it is overdue; [`Time::MAX`] is never. Never earlier than that of one that was queued before.
    pub due: Time,
}

/// Neighbouring operations of the sequence, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aggregate {
    /// How many there are.
    pub operations: u32,
    /// Their weight.
    pub weight: u64,
    /// How many runs of one group they form.
    pub runs: u32,
    /// The least that any of them may still be delayed: the smallest u - (o - t).
    pub headroom: i64,
    /// The groups of the first and the last one. Without meaning if there are none.
    first_group: GroupId,
    last_group: GroupId,
}

impl Aggregate {
    const EMPTY: Self = Self {
        operations: 0,
        weight: 0,
        runs: 0,
        headroom: UNBOUNDED,
        first_group: GroupId(0),
        last_group: GroupId(0),
    };

    fn of(item: &Queued, delay: i64) -> Self {
        let bounded = item.overtake_limit <= WEIGHT_SUM_MAX;
        Self {
            operations: 1,
            weight: item.weight,
            runs: 1,
            headroom: if bounded { item.overtake_limit.cast_signed() - delay } else { UNBOUNDED },
            first_group: item.group,
            last_group: item.group,
        }
    }

    /// The group of the last one, if there is any.
    pub fn last_group(&self) -> Option<GroupId> {
        (self.operations > 0).then_some(self.last_group)
    }

    /// Whether all of them may be delayed by `weight`.
    pub fn bears(&self, weight: u64) -> bool {
        self.headroom == UNBOUNDED || self.headroom >= weight.cast_signed()
    }

    fn then(self, next: Self) -> Self {
        if self.operations == 0 || next.operations == 0 {
            return if self.operations == 0 { next } else { self };
        }
        assert!(self.runs <= self.operations && next.runs <= next.operations, "a run has at least one operation");
        Self {
            operations: self.operations + next.operations,
            weight: self.weight + next.weight,
            runs: self.runs + next.runs - u32::from(self.last_group == next.first_group),
            headroom: self.headroom.min(next.headroom),
            first_group: self.first_group,
            last_group: next.last_group,
        }
    }

    fn delayed(self, by: i64) -> Self {
        if self.headroom == UNBOUNDED { self } else { Self { headroom: self.headroom - by, ..self } }
    }
}

struct Node {
    item: Queued,
    /// o - t: how much weight it was overtaken by, less what it has passed. Saturates, which only an operation
    /// without limit can live to see.
    delay: i64,
    /// To be added to the delays of everything below this node.
    pending: i64,
    aggregate: Aggregate,
    priority: u64,
    parent: Slot,
    children: [Slot; 2],
}

/// The sequence. See the head of this file.
pub(super) struct Treap {
    nodes: Vec<Node>,
    free: Vec<Slot>,
    root: Slot,
    priorities: Rng,
    /// Scratch for walks from the root to a node.
    path: Vec<Slot>,
}

impl Treap {
    pub fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NIL, priorities: Rng::new(0x11ae), path: Vec::new() }
    }

    pub fn len(&self) -> u32 {
        self.aggregate(self.root).operations
    }

    pub fn item(&self, slot: Slot) -> Queued {
        self.node(slot).item
    }

    /// o - t of the operation at `slot`.
    pub fn delay(&self, slot: Slot) -> i64 {
        let mut delay = self.node(slot).delay;
        let mut at = self.node(slot).parent;
        while at != NIL {
            delay = delay.saturating_add(self.node(at).pending);
            at = self.node(at).parent;
        }
        delay
    }

    /// The first operation, or `NIL`.
    pub fn first(&self) -> Slot {
        self.outermost(self.root, LEFT)
    }

    /// The operation right behind `slot`, or `NIL`.
    pub fn next(&self, slot: Slot) -> Slot {
        let right = self.node(slot).children[RIGHT];
        if right != NIL {
            return self.outermost(right, LEFT);
        }
        let mut at = slot;
        loop {
            let parent = self.node(at).parent;
            if parent == NIL || self.node(parent).children[LEFT] == at {
                return parent;
            }
            at = parent;
        }
    }

    /// Everything behind `slot`.
    pub fn behind(&self, slot: Slot) -> Aggregate {
        self.beyond(slot, RIGHT)
    }

    /// Everything before `slot`.
    pub fn before(&self, slot: Slot) -> Aggregate {
        self.beyond(slot, LEFT)
    }

    /// Everything.
    pub fn whole(&self) -> Aggregate {
        self.aggregate(self.root)
    }

    /// Adds `weight` to the delay of everything before `slot`.
    pub fn delay_before(&mut self, slot: Slot, weight: u64) {
        self.delay_beyond(slot, LEFT, weight.cast_signed());
    }

    /// Puts an operation right behind `slot`, or at the very end if `slot` is `NIL`. Its weight is added to the delay
    /// of everything it overtakes, and `passed`, the weight that it comes before, is taken from its own. There must be
    /// room for it by [`Aggregate::bears`].
    pub fn insert_behind(&mut self, slot: Slot, item: Queued, passed: u64) -> Slot {
        assert!(item.weight <= WEIGHT_SUM_MAX && passed <= WEIGHT_SUM_MAX, "weights add up without overflow");
        let count = self.len();
        let delay = -passed.cast_signed();
        let fresh = self.allocate(item, delay);
        let (parent, side) = self.leaf_behind(slot);
        if parent == NIL {
            self.root = fresh;
            return fresh;
        }
        self.attach(parent, side, fresh);
        while self.node(fresh).parent != NIL && self.node(fresh).priority > self.node(self.node(fresh).parent).priority
        {
            self.rotate_up(fresh);
        }
        self.delay_beyond(fresh, RIGHT, item.weight.cast_signed());
        assert!(self.len() == count + 1, "one operation was inserted");
        fresh
    }

    /// Takes the operation at `slot` out of the sequence. Nobody's delay changes.
    pub fn remove(&mut self, slot: Slot) -> Queued {
        self.settle_path(slot);
        let [left, right] = self.node(slot).children;
        let merged = self.merge(left, right);
        let parent = self.node(slot).parent;
        if merged != NIL {
            self.node_mut(merged).parent = parent;
        }
        self.replace_child(parent, slot, merged);
        self.pull_ancestors(slot);
        assert!(self.node(slot).pending == 0, "nobody misses a charge because {slot} leaves");
        self.free.push(slot);
        self.node(slot).item
    }

    fn node(&self, slot: Slot) -> &Node {
        &self.nodes[slot as usize]
    }

    fn node_mut(&mut self, slot: Slot) -> &mut Node {
        &mut self.nodes[slot as usize]
    }

    fn aggregate(&self, slot: Slot) -> Aggregate {
        if slot == NIL { Aggregate::EMPTY } else { self.node(slot).aggregate }
    }

    fn own_aggregate(&self, slot: Slot) -> Aggregate {
        let node = self.node(slot);
        Aggregate::of(&node.item, node.delay)
    }

    fn allocate(&mut self, item: Queued, delay: i64) -> Slot {
        let node = Node {
            item,
            delay,
            pending: 0,
            aggregate: Aggregate::of(&item, delay),
            priority: self.priorities.next_u64(),
            parent: NIL,
            children: [NIL; 2],
        };
        if let Some(slot) = self.free.pop() {
            assert!((slot as usize) < self.nodes.len(), "a slot that is free was in use");
            self.nodes[slot as usize] = node;
            return slot;
        }
        let slot = u32::try_from(self.nodes.len()).expect("a queue is bounded by its depth, a u32");
        assert!(slot != NIL, "the last slot number means none");
        self.nodes.push(node);
        slot
    }

    fn outermost(&self, from: Slot, side: usize) -> Slot {
        let mut at = from;
        while at != NIL && self.node(at).children[side] != NIL {
            at = self.node(at).children[side];
        }
        at
    }

    /// Where a leaf goes that shall come right behind `slot` (or last): its parent and side. Nothing is pending above
    /// it.
    fn leaf_behind(&mut self, slot: Slot) -> (Slot, usize) {
        let below = if slot == NIL { self.root } else { self.node(slot).children[RIGHT] };
        let (parent, side) = match (slot, below) {
            (_, NIL) => (slot, RIGHT),
            (NIL, below) => (self.outermost(below, RIGHT), RIGHT),
            (_, below) => (self.outermost(below, LEFT), LEFT),
        };
        if parent != NIL {
            assert!(self.node(parent).children[side] == NIL, "a leaf goes where there is none");
            self.settle_path(parent);
        }
        (parent, side)
    }

    fn attach(&mut self, parent: Slot, side: usize, child: Slot) {
        assert!(parent != child, "{parent} is not its own child");
        self.node_mut(parent).children[side] = child;
        if child != NIL {
            self.node_mut(child).parent = parent;
        }
    }

    fn replace_child(&mut self, parent: Slot, old: Slot, new: Slot) {
        if parent == NIL {
            assert!(self.root == old, "only the root has no parent");
            self.root = new;
        } else {
            let side = usize::from(self.node(parent).children[RIGHT] == old);
            assert!(self.node(parent).children[side] == old, "{old} is a child of its parent");
            self.node_mut(parent).children[side] = new;
        }
    }

    fn delay_subtree(&mut self, slot: Slot, by: i64) {
        if slot != NIL {
            let node = self.node_mut(slot);
            node.delay = node.delay.saturating_add(by);
            node.pending = node.pending.saturating_add(by);
            node.aggregate = node.aggregate.delayed(by);
        }
    }

    fn settle(&mut self, slot: Slot) {
        let pending = core::mem::take(&mut self.node_mut(slot).pending);
        if pending != 0 {
            let [left, right] = self.node(slot).children;
            self.delay_subtree(left, pending);
            self.delay_subtree(right, pending);
        }
    }

    /// Leaves nothing pending from the root down to `slot`.
    fn settle_path(&mut self, slot: Slot) {
        let mut path = core::mem::take(&mut self.path);
        assert!(path.is_empty(), "the last walk came to its end");
        let mut at = slot;
        while at != NIL {
            path.push(at);
            at = self.node(at).parent;
        }
        while let Some(slot) = path.pop() {
            self.settle(slot);
        }
        self.path = path;
    }

    fn pull(&mut self, slot: Slot) {
        let Node { pending, children: [left, right], .. } = *self.node(slot);
        let aggregate = self.aggregate(left).delayed(pending).then(self.own_aggregate(slot));
        self.node_mut(slot).aggregate = aggregate.then(self.aggregate(right).delayed(pending));
    }

    fn pull_ancestors(&mut self, slot: Slot) {
        let mut at = self.node(slot).parent;
        while at != NIL {
            self.pull(at);
            at = self.node(at).parent;
        }
    }

    /// Swaps `slot` with its parent. Nothing may be pending in either.
    fn rotate_up(&mut self, slot: Slot) {
        let parent = self.node(slot).parent;
        assert!(parent != NIL, "the root has no parent to swap with");
        assert!(self.node(slot).pending == 0 && self.node(parent).pending == 0, "a rotation moves no charge");
        let grandparent = self.node(parent).parent;
        let side = usize::from(self.node(parent).children[RIGHT] == slot);
        let between = self.node(slot).children[1 - side];
        self.attach(parent, side, between);
        self.replace_child(grandparent, parent, slot);
        self.node_mut(slot).parent = grandparent;
        self.attach(slot, 1 - side, parent);
        self.pull(parent);
        self.pull(slot);
    }

    /// One tree of two that are neighbours in the sequence. Recurses no deeper than they are deep together.
    fn merge(&mut self, left: Slot, right: Slot) -> Slot {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        let (top, side) =
            if self.node(left).priority > self.node(right).priority { (left, RIGHT) } else { (right, LEFT) };
        self.settle(top);
        let inner = self.node(top).children[side];
        let merged = if side == RIGHT { self.merge(inner, right) } else { self.merge(left, inner) };
        assert!(self.node(merged).priority <= self.node(top).priority, "priorities fall from parent to child");
        self.attach(top, side, merged);
        self.pull(top);
        top
    }

    /// Everything on one side of `slot`: its subtree there, and every ancestor (with that subtree of its own) on that
    /// side.
    fn beyond(&self, slot: Slot, side: usize) -> Aggregate {
        let node = self.node(slot);
        let mut sum = self.aggregate(node.children[side]).delayed(node.pending);
        let mut at = slot;
        while self.node(at).parent != NIL {
            let parent = self.node(at).parent;
            let Node { pending, children, .. } = *self.node(parent);
            sum = sum.delayed(pending);
            if children[1 - side] == at {
                let far = self.aggregate(children[side]).delayed(pending);
                let own = self.own_aggregate(parent);
                sum = if side == LEFT { far.then(own).then(sum) } else { sum.then(own).then(far) };
            }
            at = parent;
        }
        assert!(sum.operations < self.len(), "{slot} does not lie beside itself");
        sum
    }

    /// Adds `by` to the delay of everything on one side of `slot`, and makes every sum up to the root right again.
    fn delay_beyond(&mut self, slot: Slot, side: usize, by: i64) {
        self.delay_subtree(self.node(slot).children[side], by);
        self.pull(slot);
        let mut at = slot;
        while self.node(at).parent != NIL {
            let parent = self.node(at).parent;
            let children = self.node(parent).children;
            if children[1 - side] == at {
                let node = self.node_mut(parent);
                node.delay = node.delay.saturating_add(by);
                self.delay_subtree(children[side], by);
            }
            self.pull(parent);
            at = parent;
        }
    }
}
