//! One queue of a class's scheduler: batches operations of a group, within a bound on the overtaking of any operation.
//!
//! Pelican, section 3, "Reordering", with weights instead of counts. The queue has a counter t, the weight admitted so
//! far.
//! 1. A new operation r of weight w gets t_r = o_r = t; then t grows by w.
//! 2. Let l be the last queued operation of r's group. If no l exists, r goes to the end.
//! 3. If o_i + w - t_i <= u_i for every operation i after l, then r goes right after l, every such o_i grows by w, and
//!    o_r becomes t_r less the weight overtaken. Otherwise r goes to the end.
//!
//! **Switches.** The paper measures "the delay compared to FIFO order", in "wall clock time", estimated from "the
//! number of group spin ups and the volume of data" before an operation. For that purpose a switch has a weight as
//! well, v; it is 0 where switches do not count. The *expected begin* of an operation in some order is the weight
//! before it, and v for each change of group on the way to it, from the group that was served last. Then t_r is r's
//! expected begin if the whole queue were served in the order of arrival, or at the end of the queue as it is, if that
//! is later; o_r is its expected begin at its place; and o_i grows by the weight added before i. So o - t <= u means
//! that no operation is served more than u later than in the order of arrival, as far as this queue decides.
//!
//! The check of rule 3 stays as it is: an operation that goes after the last one of its group extends a batch, and adds
//! no switch for those it overtakes. But batches before an operation have saved it switches, and it is early by their
//! weight: it may be overtaken by that much more. This matters for operations that found a queue in batches and went to
//! its end. The weight that r itself overtakes counts as well, but never decides, since an operation that overtakes r
//! also overtakes the first of its batch.
//!
//! The paper's u is one number for the queue; here each operation has its own, which is the same rule if all are equal.
//! Beyond the paper, [`ReorderQueue::pop_of_group`] serves a later operation of the group in service first, and charges
//! everything it passes in the same way. And an operation may be *overdue*: [`ReorderQueue::pop_overdue`] takes the
//! first of its group from any place and charges no other operation, as if it had been cancelled; the weight that it
//! had itself overtaken stays charged.
//!
//! The queue is stored as its runs of one group, since these are overtaken as wholes (`runs.rs`).
//!
//! Invariants:
//! - o - t <= u for every queued operation, always;
//! - operations of one group leave in the order of their arrival (except for cancelled ones);
//! - a refused push changes nothing;
//! - no call but [`ReorderQueue::iter`] and [`ReorderQueue::ahead_of`] looks at more than the runs that are overtaken,
//!   or the first operation of each group; cancelling an operation looks at the operations of its run.

mod runs;
#[cfg(test)]
mod tests;

use crate::numbered::{Numbered, PlacesByOp};
use alloc::vec::Vec;
use model::{GroupId, OpId, Time};
use runs::{NIL, RunId, Runs, Slot, Span};

/// The largest sum of weights in one queue, and the largest limit that is enforced; a higher limit means no limit.
const WEIGHT_SUM_MAX: u64 = 1 << 61;

/// An operation as the queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The number of the operation.
    pub op: OpId,
    /// The group it needs awake.
    pub group: GroupId,
    /// Its share of u, in the unit of [`Weighing`](crate::Weighing). Fixed at admission. 0 counts as 1, since otherwise
    /// an operation without weight could overtake without end; a weight above 2^61 over the queue's depth (2 PB at
    /// 1,000) counts as that maximum, so that sums fit.
    pub weight: u64,
    /// The weight of a switch to another group, as expected at its admission; 0 where switches do not count. A weight
    /// above 2^61 over the queue's depth counts as that maximum.
    pub switch_weight: u64,
    /// u: the weight that may overtake it, in the same unit. Above 2^61 (for example `u64::MAX`) it is unlimited.
    pub overtake_limit: u64,
    /// The time at which it is overdue; [`Time::MAX`] is never. Never earlier than that of an operation queued before.
    pub due: Time,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// The operations that are served before another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// The number of operations.
    pub operations: usize,
    /// Their weight.
    pub weight: u64,
    /// The number of changes of group from the head of the queue to the operation itself, including the change to it
    /// and excluding the one to the head. Exact for the current order.
    pub group_switches: usize,
}

/// The first and the last queued operation of a group, and the number of its queued operations.
#[derive(Clone, Copy)]
struct Members {
    first: Slot,
    last: Slot,
    count: usize,
}

/// A queued operation in the arena, in one cache line.
#[repr(align(64))]
struct Node {
    item: Queued,
    /// o - t, less the weight by which its run is overtaken.
    delay: i128,
}

const _: () = assert!(size_of::<Node>() == 64, "a node fills its line");

/// The neighbours of a queued operation. Stored apart from the operation itself: an operation that joins or leaves
/// needs only the links of its neighbours, which are anywhere in memory.
#[derive(Clone, Copy)]
struct Links {
    group: GroupId,
    run: RunId,
    /// Its neighbours of the same group: [before, after].
    mates: [Slot; 2],
    /// Its neighbours in the order of arrival.
    arrivals: [Slot; 2],
}

/// One queue. See the head of this file.
pub struct ReorderQueue {
    depth: u32,
    /// The operations. Slots of operations that have left are used again, so it has the largest size that the queue
    /// ever had.
    nodes: Vec<Node>,
    /// The links of each slot.
    links: Vec<Links>,
    free: Vec<Slot>,
    runs: Runs,
    slots: PlacesByOp,
    groups: Numbered<GroupId, Members>,
    arrivals: Arrivals,
    /// The group that was served last.
    served: Option<GroupId>,
}

/// The queued operations in the order of arrival.
struct Arrivals {
    first: Slot,
    last: Slot,
    /// The number of changes of group from the first to the last.
    changes: u32,
}

impl ReorderQueue {
    /// An empty queue for at most `depth` operations; one more is refused.
    pub fn new(depth: u32) -> Self {
        Self {
            depth,
            nodes: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            runs: Runs::new(),
            slots: PlacesByOp::default(),
            groups: Numbered::default(),
            arrivals: Arrivals { first: NIL, last: NIL, changes: 0 },
            served: None,
        }
    }

    /// Queues an operation by the insertion rule. Its number must not be queued already.
    ///
    /// # Errors
    /// [`QueueFull`] if `depth` operations are queued; nothing has changed then.
    pub fn push(&mut self, item: Queued) -> Result<(), QueueFull> {
        if self.is_full() {
            return Err(QueueFull);
        }
        let item = Queued { weight: self.weight_of(item.weight), ..item };
        let joined = self.joinable(item.group, item.weight);
        let overtaken = joined.map_or(0, |(_, behind)| behind.weight);
        let passed = (overtaken + self.switches_saved_weight(joined, &item)).min(WEIGHT_SUM_MAX);
        let run = match joined {
            Some((run, _)) => run,
            None => self.runs.open(item.group),
        };
        self.runs.delay_behind(run, item.weight);
        let delay = -i128::from(passed) - self.runs.get(run).delay;
        let links = Links { group: item.group, run, mates: [NIL; 2], arrivals: [NIL; 2] };
        let slot = self.allocate(Node { item, delay }, links);
        self.runs.append(run, slot, item.weight);
        self.note_headroom(slot);
        assert!(!self.contains(item.op), "{} is queued already", item.op);
        let nodes = &self.nodes;
        self.slots.insert(item.op, slot, |slot| nodes[slot as usize].item.op);
        self.join_mates(item.group, slot);
        self.join_arrivals(slot);
        assert!(self.slots.len() == self.len(), "every queued operation is found by its number");
        Ok(())
    }

    /// Takes the first operation.
    pub fn pop(&mut self) -> Option<Queued> {
        let first = self.runs.first()?.first;
        Some(self.serve(first))
    }

    /// The operation that [`Self::pop`] would take.
    pub fn head(&self) -> Option<Queued> {
        Some(self.node(self.runs.first()?.first).item)
    }

    /// Takes the first operation of `group` from any place, unless one before it may not be overtaken by its weight.
    pub fn pop_of_group(&mut self, group: GroupId) -> Option<Queued> {
        let first = self.groups.get(&group)?.first;
        let (weight, run) = (self.node(first).item.weight, self.links(first).run);
        assert!(self.runs.get(run).first == first, "the first operation of a group is the first one of a run");
        if !self.runs.bear_before(run, weight) {
            return None;
        }
        self.runs.delay_before(run, weight);
        let item = self.serve(first);
        assert!(item.group == group, "the first operation of {group} is one of its own");
        Some(item)
    }

    /// The group whose first operation has been overdue longest, except for those in `but`.
    pub fn overdue_group(&self, now: Time, but: &[GroupId]) -> Option<GroupId> {
        if self.first_due() > now {
            return None;
        }
        self.groups.first_by(|group, members| {
            let first = self.node(members.first).item;
            (first.due <= now && !but.contains(group)).then_some((first.due, first.op))
        })
    }

    /// True if an operation of `group` is overdue.
    pub fn is_overdue(&self, group: GroupId, now: Time) -> bool {
        self.groups.get(&group).is_some_and(|members| self.node(members.first).item.due <= now)
    }

    /// The time at which the first operation will be overdue, or became so: the one that arrived first.
    pub fn first_due(&self) -> Time {
        self.nodes.get(self.arrivals.first as usize).map_or(Time::MAX, |first| first.item.due)
    }

    /// Takes the first operation of `group` from any place. No other operation is charged.
    pub fn pop_overdue(&mut self, group: GroupId) -> Option<Queued> {
        let first = self.groups.get(&group)?.first;
        let item = self.serve(first);
        assert!(item.group == group, "the first operation of {group} is one of its own");
        Some(item)
    }

    /// Removes `op`, if it is queued. The weight that it overtook stays charged: no operation regains a used-up bound.
    pub fn remove(&mut self, op: OpId) -> Option<Queued> {
        let slot = self.slot_of(op)?;
        Some(self.take(slot))
    }

    /// The number of queued operations.
    pub fn len(&self) -> usize {
        self.runs.whole.operations as usize
    }

    /// True if the number of queued operations is the limit.
    pub fn is_full(&self) -> bool {
        self.len() >= self.depth as usize
    }

    /// True if no operation is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if `op` is queued.
    pub fn contains(&self, op: OpId) -> bool {
        self.slot_of(op).is_some()
    }

    /// The number of queued operations of `group`.
    pub fn len_of_group(&self, group: GroupId) -> usize {
        let count = self.groups.get(&group).map_or(0, |members| members.count);
        assert!(count <= self.len(), "a group has no more than there are");
        count
    }

    /// The operations before `op`, if it is queued.
    pub fn ahead_of(&self, op: OpId) -> Option<Ahead> {
        let slot = self.slot_of(op)?;
        let run = self.links(slot).run;
        let Span { operations, mut weight, changes } = self.runs.before(run);
        let mut operations = operations as usize;
        for before in self.of_run(run).take_while(|before| *before != slot) {
            operations += 1;
            weight += self.node(before).item.weight;
        }
        assert!(operations < self.len(), "{op} does not lie before itself");
        Some(Ahead { operations, weight, group_switches: changes as usize })
    }

    /// The operations that would be before an operation of this group and weight if it were queued now, full or not.
    /// Its own overtaking limit does not influence its place, only which operations may overtake it afterwards.
    pub fn ahead_of_new(&self, group: GroupId, weight: u64) -> Ahead {
        let whole = self.runs.whole;
        let (behind, changes) = match self.joinable(group, self.weight_of(weight)) {
            Some((_, behind)) => (behind, whole.changes - behind.changes),
            None => (Span::default(), whole.changes + self.changes_at_end(None, group)),
        };
        Ahead {
            operations: (whole.operations - behind.operations) as usize,
            weight: whole.weight - behind.weight,
            group_switches: changes as usize,
        }
    }

    /// Every operation in the order of service, each with its o - t.
    pub fn iter(&self) -> impl Iterator<Item = (Queued, i64)> {
        let runs = core::iter::successors(self.runs.first(), |run| self.runs.next(run));
        runs.flat_map(move |run| {
            self.of_run(self.links(run.first).run).map(move |slot| {
                let Node { item, delay } = self.node(slot);
                // Only the delay of operations that are overtaken without limit exceeds 64 bits.
                (*item, i64::try_from(delay + run.delay).unwrap_or(i64::MAX))
            })
        })
    }

    fn slot_of(&self, op: OpId) -> Option<Slot> {
        self.slots.get(op, |slot| self.nodes[slot as usize].item.op)
    }

    fn node(&self, slot: Slot) -> &Node {
        &self.nodes[slot as usize]
    }

    fn links(&self, slot: Slot) -> &Links {
        &self.links[slot as usize]
    }

    fn links_mut(&mut self, slot: Slot) -> &mut Links {
        &mut self.links[slot as usize]
    }

    fn allocate(&mut self, node: Node, links: Links) -> Slot {
        if let Some(slot) = self.free.pop() {
            (self.nodes[slot as usize], self.links[slot as usize]) = (node, links);
            return slot;
        }
        let slot = u32::try_from(self.nodes.len()).expect("a queue is bounded by its depth, a u32");
        assert!(slot != NIL, "the last slot number means none");
        self.nodes.push(node);
        self.links.push(links);
        slot
    }

    /// The operations of a run, in its order.
    fn of_run(&self, run: RunId) -> impl Iterator<Item = Slot> {
        let run = self.runs.get(run);
        core::iter::successors(Some(run.first), move |slot| (*slot != run.last).then(|| self.links(*slot).mates[1]))
    }

    /// Records in the run of an operation by how much the operation may be overtaken, unless that is unlimited.
    fn note_headroom(&mut self, slot: Slot) {
        let (Node { item, delay }, run) = (self.node(slot), self.links(slot).run);
        let (item, delay) = (*item, *delay);
        if item.overtake_limit <= WEIGHT_SUM_MAX {
            self.runs.get_mut(run).note_headroom(slot, i128::from(item.overtake_limit) - delay);
        }
    }

    fn weight_of(&self, weight: u64) -> u64 {
        let weight = weight.clamp(1, WEIGHT_SUM_MAX / u64::from(self.depth.max(1)));
        assert!(weight > 0, "nothing weightless overtakes without end");
        weight
    }

    /// The weight of the switches by which the begin of a new operation, at the end of the run that it `joined` or at
    /// the end of the queue, is earlier than in the order of arrival, or than at the end of the queue where that is
    /// later.
    fn switches_saved_weight(&self, joined: Option<(RunId, Span)>, item: &Queued) -> u64 {
        if item.switch_weight == 0 {
            return 0;
        }
        let arrived = |slot: Slot| (slot != NIL).then(|| self.links(slot).group);
        let to_first = |first: Option<GroupId>| first.map_or(0, |first| changes(self.served, first));
        let by_arrival = to_first(arrived(self.arrivals.first))
            + self.arrivals.changes
            + changes(arrived(self.arrivals.last).or(self.served), item.group);
        let to_head = to_first(self.runs.first().map(|run| run.group));
        let at_end = to_head + self.runs.whole.changes + self.changes_at_end(self.served, item.group);
        let place = joined.map_or(at_end, |(_, behind)| to_head + self.runs.whole.changes - behind.changes);
        assert!(place <= at_end, "the way to the end leads through every place");
        let switch_weight = item.switch_weight.min(WEIGHT_SUM_MAX / u64::from(self.depth.max(1)));
        switch_weight * u64::from(by_arrival.max(at_end) - place)
    }

    /// 1 if the group changes to `group` at the end, otherwise 0; from `served`, if nothing is queued.
    fn changes_at_end(&self, served: Option<GroupId>, group: GroupId) -> u32 {
        changes(self.runs.last().map(|run| run.group).or(served), group)
    }

    /// The last run of `group` and the span after it, if an operation of `weight` may join that run.
    fn joinable(&self, group: GroupId, weight: u64) -> Option<(RunId, Span)> {
        let last = self.groups.get(&group)?.last;
        let run = self.links(last).run;
        assert!(self.runs.get(run).last == last, "the last operation of a group is the last one of a run");
        Some((run, self.runs.behind_bearing(run, weight)?))
    }

    fn serve(&mut self, slot: Slot) -> Queued {
        let item = self.take(slot);
        self.served = Some(item.group);
        item
    }

    fn take(&mut self, slot: Slot) -> Queued {
        let count = self.len();
        self.leave_arrivals(slot);
        let (item, Links { run, mates, .. }) = (self.node(slot).item, *self.links(slot));
        let note_anew = self.runs.leave(run, slot, item.weight, mates);
        self.leave_mates(item.group, slot);
        if note_anew {
            let left: Vec<Slot> = self.of_run(run).collect();
            for slot in left {
                self.note_headroom(slot);
            }
        }
        self.free.push(slot);
        assert!(self.len() + 1 == count, "one operation leaves");
        let nodes = &self.nodes;
        let known = self.slots.remove(item.op, |slot| nodes[slot as usize].item.op);
        assert!(known == Some(slot), "{} lies where it was put", item.op);
        item
    }

    /// 1 if both slots exist and the group changes from one to the other, otherwise 0.
    fn differ(&self, before: Slot, behind: Slot) -> u32 {
        let both = before != NIL && behind != NIL;
        u32::from(both && self.links(before).group != self.links(behind).group)
    }

    fn join_arrivals(&mut self, slot: Slot) {
        let before = core::mem::replace(&mut self.arrivals.last, slot);
        self.links_mut(slot).arrivals = [before, NIL];
        if before == NIL {
            self.arrivals.first = slot;
        } else {
            assert!(self.node(before).item.due <= self.node(slot).item.due, "who comes first is overdue first");
            self.links_mut(before).arrivals[1] = slot;
        }
        self.arrivals.changes += self.differ(before, slot);
        assert!((self.arrivals.changes as usize) < self.len(), "a change has an operation before it");
    }

    fn leave_arrivals(&mut self, slot: Slot) {
        let [before, behind] = self.links(slot).arrivals;
        let (with, without) = (self.differ(before, slot) + self.differ(slot, behind), self.differ(before, behind));
        assert!(self.arrivals.changes + without >= with, "the changes around {slot} were counted");
        self.arrivals.changes = self.arrivals.changes + without - with;
        if before == NIL {
            self.arrivals.first = behind;
        } else {
            self.links_mut(before).arrivals[1] = behind;
        }
        if behind == NIL {
            self.arrivals.last = before;
        } else {
            self.links_mut(behind).arrivals[0] = before;
        }
    }

    /// Links a new operation, which is always the last of its group: it goes after the last one, or to the end.
    fn join_mates(&mut self, group: GroupId, slot: Slot) {
        let members = self.groups.get_or_insert_with(group, || Members { first: slot, last: NIL, count: 0 });
        let before = core::mem::replace(&mut members.last, slot);
        assert!((before == NIL) == (members.count == 0), "the first member of {group} comes after none");
        members.count += 1;
        self.links_mut(slot).mates = [before, NIL];
        if before != NIL {
            self.links_mut(before).mates[1] = slot;
        }
    }

    fn leave_mates(&mut self, group: GroupId, slot: Slot) {
        let [before, behind] = self.links(slot).mates;
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
        }
        if behind == NIL {
            members.last = before;
        }
        if before != NIL {
            self.links_mut(before).mates[1] = behind;
        }
        if behind != NIL {
            self.links_mut(behind).mates[0] = before;
        }
    }
}

/// 1 if there is a switch from one group to the other, otherwise 0.
fn changes(from: Option<GroupId>, to: GroupId) -> u32 {
    u32::from(from.is_some_and(|from| from != to))
}
