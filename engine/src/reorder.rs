//! One queue of a class's scheduler: batches operations of a group, within a bound on how far any may be overtaken.
//!
//! Pelican, section 3, "Reordering", with weights instead of counts. The queue keeps a counter t, the weight admitted
//! so far.
//! 1. A new operation r of weight w gets t_r = o_r = t; then t grows by w.
//! 2. Let l be the last queued operation of r's group. If there is none, r goes to the end.
//! 3. If o_i + w - t_i <= u_i for every operation i behind l, then r goes right behind l, every such o_i grows by w,
//!    and o_r becomes t_r less the weight overtaken. Otherwise r goes to the end.
//!
//! **Switches.** The paper measures "the delay compared to FIFO order", in "wall clock time", estimated from "the
//! number of group spin ups and the volume of data" before an operation. To that end a switch has a weight as well, v;
//! it is 0 where switches do not count. The *expected begin* of an operation in some order is the weight before it, and
//! v for each change of group on the way to it, from the group that was served last. Then t_r is r's expected begin if
//! all that is queued were served in the order of arrival, or at the end of the queue as it is, whichever is later; o_r
//! is the one at its place; and o_i grows by what is added before i. So o - t <= u says that nobody is served more than
//! u later than in the order of arrival, as far as this queue decides.
//!
//! The check of rule 3 stays as it is: what goes behind the last operation of its group prolongs a batch, and adds no
//! switch for those it overtakes. But batches before an operation have saved it switches, and by these it is ahead of
//! time: so much more it may be overtaken. That counts for those who found a queue in batches and went to its end; what
//! r itself passes counts as well, but never decides, since whatever overtakes r overtakes the first of its batch.
//!
//! The paper's u is one number for the queue; here each operation brings its own, which is the same if all are equal.
//! Beyond the paper, [`ReorderQueue::pop_of_group`] lets a later operation of the group in service go first, and
//! charges everything it passes in the same way. And an operation may be *overdue*: [`ReorderQueue::pop_overdue`] takes
//! the first of its group wherever it lies, and charges nobody, as if it had been cancelled; what it had overtaken
//! itself stays charged.
//!
//! Invariants:
//! - o - t <= u for every queued operation, always;
//! - operations of one group leave in the order in which they came (a cancelled one aside);
//! - a refused push changes nothing;
//! - every call but [`ReorderQueue::iter`] costs O(log n); those that ask for what is overdue look at the first
//!   operation of each group.

#[cfg(test)]
mod tests;
mod treap;

use crate::numbered::{Numbered, OpMap};
use alloc::vec::Vec;
use model::{GroupId, OpId, Time};
use treap::{Aggregate, NIL, Slot, Treap, WEIGHT_SUM_MAX};

pub use treap::Queued;

/// The queue holds as many operations as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// The operations that are served before another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// How many operations.
    pub operations: usize,
    /// Their weight.
    pub weight: u64,
    /// How often the group changes from the head of the queue up to the operation itself, the change to it included and
    /// the one to the head not. Exact for the order as it is now.
    pub group_switches: usize,
}

/// The first and the last queued operation of a group, and how many there are.
#[derive(Clone, Copy)]
struct Members {
    first: Slot,
    last: Slot,
    count: usize,
}

/// One queue. See the head of this file.
pub struct ReorderQueue {
    depth: u32,
    order: Treap,
    ops: OpMap<Slot>,
    groups: Numbered<GroupId, Members>,
    /// For each slot in use, the neighbours of the same group: [before, behind].
    mates: Vec<[Slot; 2]>,
    arrivals: Arrivals,
    /// The group that was served last.
    served: Option<GroupId>,
}

/// The queued operations in the order of arrival.
struct Arrivals {
    /// For each slot in use, its neighbours: [before, behind].
    neighbours: Vec<[Slot; 2]>,
    first: Slot,
    last: Slot,
    /// How often the group changes from the first to the last.
    changes: u32,
}

impl ReorderQueue {
    /// An empty queue for at most `depth` operations; one more is refused.
    pub fn new(depth: u32) -> Self {
        let arrivals = Arrivals { neighbours: Vec::new(), first: NIL, last: NIL, changes: 0 };
        let (order, ops, groups) = (Treap::new(), OpMap::default(), Numbered::default());
        Self { depth, order, ops, groups, mates: Vec::new(), arrivals, served: None }
    }

    /// Queues an operation by the insertion rule. Its number must not be queued already.
    ///
    /// # Errors
    /// [`QueueFull`] if `depth` operations are queued; nothing has changed then.
    pub fn push(&mut self, item: Queued) -> Result<(), QueueFull> {
        if self.order.len() >= self.depth {
            return Err(QueueFull);
        }
        let item = Queued { weight: self.weight_of(item.weight), ..item };
        let (last, overtaken) = self.joinable(item.group, item.weight).unwrap_or((NIL, 0));
        let passed = (overtaken + self.switches_saved_weight(last, &item)).min(WEIGHT_SUM_MAX);
        let slot = self.order.insert_behind(last, item, passed);
        let known = self.ops.insert(item.op, slot);
        assert!(known.is_none(), "{} is queued already", item.op);
        self.join_mates(item.group, slot);
        self.join_arrivals(slot);
        assert!(self.ops.len() == self.len(), "every queued operation is found by its number");
        Ok(())
    }

    /// Takes the first operation.
    pub fn pop(&mut self) -> Option<Queued> {
        let first = self.order.first();
        (first != NIL).then(|| self.serve(first))
    }

    /// The operation that [`Self::pop`] would take.
    pub fn head(&self) -> Option<Queued> {
        let first = self.order.first();
        (first != NIL).then(|| self.order.item(first))
    }

    /// Takes the first operation of `group`, wherever it is, unless one before it may not be overtaken by its weight.
    pub fn pop_of_group(&mut self, group: GroupId) -> Option<Queued> {
        let first = self.groups.get(&group)?.first;
        let weight = self.order.item(first).weight;
        let before = self.order.before(first);
        assert!(before.operations < self.order.len(), "an operation does not lie before itself");
        if !before.bears(weight) {
            return None;
        }
        self.order.delay_before(first, weight);
        let item = self.serve(first);
        assert!(item.group == group, "the first operation of {group} is one of its own");
        Some(item)
    }

    /// The group that an operation has been overdue in for longest, `but` those.
    pub fn overdue_group(&self, now: Time, but: &[GroupId]) -> Option<GroupId> {
        self.groups.first_by(|group, members| {
            let first = self.order.item(members.first);
            (first.due <= now && !but.contains(group)).then_some((first.due, first.op))
        })
    }

    /// Whether an operation of `group` is overdue.
    pub fn is_overdue(&self, group: GroupId, now: Time) -> bool {
        self.groups.get(&group).is_some_and(|members| self.order.item(members.first).due <= now)
    }

    /// When the first operation will be overdue, or has been.
    pub fn first_due(&self) -> Time {
        let first = self.groups.first_by(|_, members| {
            let first = self.order.item(members.first);
            Some((first.due, first.op))
        });
        first.and_then(|group| self.groups.get(&group)).map_or(Time::MAX, |members| self.order.item(members.first).due)
    }

    /// Takes the first operation of `group`, wherever it is. Nobody is charged.
    pub fn pop_overdue(&mut self, group: GroupId) -> Option<Queued> {
        let first = self.groups.get(&group)?.first;
        let item = self.serve(first);
        assert!(item.group == group, "the first operation of {group} is one of its own");
        Some(item)
    }

    /// Takes `op` out, if it is queued. What it overtook stays charged: nobody gets a bound back that was used up.
    pub fn remove(&mut self, op: OpId) -> Option<Queued> {
        let slot = *self.ops.get(&op)?;
        Some(self.take(slot))
    }

    /// How many operations are queued.
    pub fn len(&self) -> usize {
        self.order.len() as usize
    }

    /// Whether none is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `op` is queued.
    pub fn contains(&self, op: OpId) -> bool {
        self.ops.contains_key(&op)
    }

    /// How many operations of `group` are queued.
    pub fn len_of_group(&self, group: GroupId) -> usize {
        let count = self.groups.get(&group).map_or(0, |members| members.count);
        assert!(count <= self.len(), "a group has no more than there are");
        count
    }

    /// The operations before `op`, if it is queued.
    pub fn ahead_of(&self, op: OpId) -> Option<Ahead> {
        let slot = *self.ops.get(&op)?;
        let ahead = ahead(&self.order.before(slot), self.order.item(slot).group);
        assert!(ahead.operations < self.len(), "{op} does not lie before itself");
        Some(ahead)
    }

    /// The operations that would be before one of this group and weight if it were queued now, full or not. How far it
    /// may be overtaken itself plays no part in where it goes, only in what may overtake it afterwards.
    pub fn ahead_of_new(&self, group: GroupId, weight: u64) -> Ahead {
        match self.joinable(group, self.weight_of(weight)) {
            Some((last, _)) => {
                let before = ahead(&self.order.before(last), group);
                let weight = before.weight + self.order.item(last).weight;
                Ahead { operations: before.operations + 1, weight, ..before }
            }
            None => ahead(&self.order.whole(), group),
        }
    }

    /// Every operation in the order of service, each with its o - t.
    pub fn iter(&self) -> impl Iterator<Item = (Queued, i64)> {
        let mut at = self.order.first();
        core::iter::from_fn(move || {
            let slot = at;
            (slot != NIL).then(|| {
                at = self.order.next(slot);
                (self.order.item(slot), self.order.delay(slot))
            })
        })
    }

    fn weight_of(&self, weight: u64) -> u64 {
        let weight = weight.clamp(1, WEIGHT_SUM_MAX / u64::from(self.depth.max(1)));
        assert!(weight > 0, "nothing weightless overtakes without end");
        weight
    }

    /// The weight of the switches by which a new operation comes sooner behind `last`, or at the end if that is `NIL`,
    /// than in the order of arrival, or than at the end where that is later.
    fn switches_saved_weight(&self, last: Slot, item: &Queued) -> u64 {
        if item.switch_weight == 0 {
            return 0;
        }
        let changes = |from: Option<GroupId>, to: GroupId| u32::from(from.is_some_and(|from| from != to));
        let group_at = |slot: Slot| (slot != NIL).then(|| self.order.item(slot).group);
        let to_first = |slot: Slot| group_at(slot).map_or(0, |first| changes(self.served, first));
        let by_arrival = to_first(self.arrivals.first)
            + self.arrivals.changes
            + changes(group_at(self.arrivals.last).or(self.served), item.group);
        let to_head = to_first(self.order.first());
        let whole = self.order.whole();
        let at_end = to_head + whole.runs.saturating_sub(1) + changes(whole.last_group().or(self.served), item.group);
        let place = match last {
            NIL => at_end,
            last => to_head + ahead(&self.order.before(last), item.group).group_switches as u32,
        };
        assert!(place <= at_end, "the way to the end leads through every place");
        let switch_weight = item.switch_weight.min(WEIGHT_SUM_MAX / u64::from(self.depth.max(1)));
        switch_weight * u64::from(by_arrival.max(at_end) - place)
    }

    /// The last operation of `group`, and the weight behind it, if one of `weight` may go right behind it.
    fn joinable(&self, group: GroupId, weight: u64) -> Option<(Slot, u64)> {
        let last = self.groups.get(&group)?.last;
        let behind = self.order.behind(last);
        assert!(behind.operations < self.order.len(), "an operation does not lie behind itself");
        behind.bears(weight).then_some((last, behind.weight))
    }

    fn serve(&mut self, slot: Slot) -> Queued {
        let item = self.take(slot);
        self.served = Some(item.group);
        item
    }

    fn take(&mut self, slot: Slot) -> Queued {
        let count = self.order.len();
        self.leave_arrivals(slot);
        let item = self.order.remove(slot);
        assert!(self.order.len() + 1 == count, "one operation leaves");
        let known = self.ops.remove(&item.op);
        assert!(known == Some(slot), "{} lies where it was put", item.op);
        self.leave_mates(item.group, slot);
        item
    }

    /// Whether the group changes from one slot to the other, if there are both.
    fn differ(&self, before: Slot, behind: Slot) -> u32 {
        let both = before != NIL && behind != NIL;
        u32::from(both && self.order.item(before).group != self.order.item(behind).group)
    }

    fn join_arrivals(&mut self, slot: Slot) {
        if self.arrivals.neighbours.len() <= slot as usize {
            self.arrivals.neighbours.resize(slot as usize + 1, [NIL; 2]);
        }
        let before = core::mem::replace(&mut self.arrivals.last, slot);
        self.arrivals.neighbours[slot as usize] = [before, NIL];
        if before == NIL {
            self.arrivals.first = slot;
        } else {
            self.arrivals.neighbours[before as usize][1] = slot;
        }
        self.arrivals.changes += self.differ(before, slot);
        assert!(self.arrivals.changes < self.order.len(), "a change has an operation before it");
    }

    fn leave_arrivals(&mut self, slot: Slot) {
        let [before, behind] = self.arrivals.neighbours[slot as usize];
        let (with, without) = (self.differ(before, slot) + self.differ(slot, behind), self.differ(before, behind));
        assert!(self.arrivals.changes + without >= with, "the changes around {slot} were counted");
        self.arrivals.changes = self.arrivals.changes + without - with;
        if before == NIL {
            self.arrivals.first = behind;
        } else {
            self.arrivals.neighbours[before as usize][1] = behind;
        }
        if behind == NIL {
            self.arrivals.last = before;
        } else {
            self.arrivals.neighbours[behind as usize][0] = before;
        }
    }

    /// A new operation is always the last of its group: it goes behind the last one, or to the end.
    fn join_mates(&mut self, group: GroupId, slot: Slot) {
        if self.mates.len() <= slot as usize {
            self.mates.resize(slot as usize + 1, [NIL; 2]);
        }
        let members = self.groups.get_or_insert_with(group, || Members { first: slot, last: NIL, count: 0 });
        let before = core::mem::replace(&mut members.last, slot);
        assert!((before == NIL) == (members.count == 0), "the first member of {group} comes after none");
        members.count += 1;
        self.mates[slot as usize] = [before, NIL];
        if before != NIL {
            self.mates[before as usize][1] = slot;
        }
    }

    fn leave_mates(&mut self, group: GroupId, slot: Slot) {
        let [before, behind] = self.mates[slot as usize];
        let members = self.groups.get_mut(&group).expect("a queued operation's group has members");
        assert!(members.count > 0, "{group} has the member that leaves");
        members.count -= 1;
        if members.count == 0 {
            assert!(before == NIL && behind == NIL, "the last member of {group} has no neighbours");
            self.groups.remove(&group);
            return;
        }
        if before == NIL {
            members.first = behind;
        } else {
            self.mates[before as usize][1] = behind;
        }
        if behind == NIL {
            members.last = before;
        } else {
            self.mates[behind as usize][0] = before;
        }
    }
}

/// The view of an operation of `group` that comes right behind `before`.
fn ahead(before: &Aggregate, group: GroupId) -> Ahead {
    let stays = before.last_group().is_none_or(|last| last == group);
    Ahead {
        operations: before.operations as usize,
        weight: before.weight,
        group_switches: before.runs.saturating_sub(1) as usize + usize::from(!stays),
    }
}
