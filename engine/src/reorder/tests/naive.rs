//! Pelican's insertion rule in the paper's words (section 3, "Reordering"), in one vector: the judge of the fast queue,
//! and the reference of its benchmark. Every step looks at every operation that it concerns, and counts every switch.

use super::Queued;
use model::GroupId;
use std::vec::Vec;

/// A queued operation with the paper's two counters.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The operation.
    pub item: Queued,
    /// t_r: the queue's counter when it came.
    pub t: i128,
    /// o_r: its reordering counter.
    pub o: i128,
}

impl Place {
    fn stands(&self, later: i128) -> bool {
        let limit = self.item.overtake_limit;
        limit == u64::MAX || self.o + later - self.t <= i128::from(limit)
    }
}

/// 1 if serving `next` after `before` takes a switch, otherwise 0.
fn change(before: Option<GroupId>, next: GroupId) -> i128 {
    i128::from(before.is_some_and(|before| before != next))
}

/// The queue of the paper.
#[derive(Debug, Default)]
pub struct NaiveQueue {
    /// In the order of service.
    pub places: Vec<Place>,
    t: i128,
    depth: usize,
    /// The group that was served last.
    served: Option<GroupId>,
}

impl NaiveQueue {
    /// A queue for at most `depth` operations.
    pub fn new(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Queues an operation, if there is room.
    pub fn push(&mut self, item: Queued) -> bool {
        if self.places.len() >= self.depth {
            return false;
        }
        let item = Queued { weight: item.weight.max(1), ..item };
        let last = self.places.iter().rposition(|p| p.item.group == item.group);
        let may_go = |at: &usize| {
            let later = self.later_by(*at, item);
            self.places[*at..].iter().all(|i| i.stands(later))
        };
        let at = last.map(|l| l + 1).filter(may_go).unwrap_or(self.places.len());
        let later = self.later_by(at, item);
        let passed = self.passed(at, item);
        for i in &mut self.places[at..] {
            i.o += later;
        }
        self.places.insert(at, Place { item, t: self.t, o: self.t - passed });
        self.t += i128::from(item.weight);
        true
    }

    /// The amount by which `item` at place `at` begins sooner than in the order of arrival, or at the end if that is
    /// later.
    fn passed(&self, at: usize, item: Queued) -> i128 {
        if item.switch_weight == 0 {
            // The paper's rule: the weight overtaken.
            return self.places[at..].iter().map(|p| i128::from(p.item.weight)).sum();
        }
        let order: Vec<Queued> = self.places.iter().map(|p| p.item).collect();
        let mut arrived = self.places.clone();
        arrived.sort_by_key(|p| p.t);
        let arrived: Vec<Queued> = arrived.iter().map(|p| p.item).collect();
        let begin = |before: &[Queued]| self.expected_begin(before, item);
        begin(&arrived).max(begin(&order)) - begin(&order[..at])
    }

    /// The weight before `item`, and that of every change of group up to it, from the group that was served last.
    fn expected_begin(&self, before: &[Queued], item: Queued) -> i128 {
        let weight: i128 = before.iter().map(|item| i128::from(item.weight)).sum();
        let mut at = self.served;
        let groups = before.iter().chain([&item]).map(|item| item.group);
        let changes: i128 = groups.map(|group| change(at.replace(group), group)).sum();
        weight + i128::from(item.switch_weight) * changes
    }

    /// The amount by which `item` at place `at` delays the expected begin of everything after it.
    fn later_by(&self, at: usize, item: Queued) -> i128 {
        let before = self.places[..at].last().map(|p| p.item.group).or(self.served);
        let next = self.places.get(at).map(|next| next.item.group);
        let from_item = next.map_or(0, |next| change(Some(item.group), next));
        let without = next.map_or(0, |next| change(before, next));
        i128::from(item.weight) + i128::from(item.switch_weight) * (change(before, item.group) + from_item - without)
    }

    /// Takes the first operation.
    pub fn pop(&mut self) -> Option<Queued> {
        (!self.places.is_empty()).then(|| self.serve(0))
    }

    fn serve(&mut self, at: usize) -> Queued {
        let item = self.places.remove(at).item;
        self.served = Some(item.group);
        item
    }
}

#[cfg(test)]
impl NaiveQueue {
    /// Takes the first operation of `group`, if everything before it may be overtaken by it.
    pub fn pop_of_group(&mut self, group: GroupId) -> Option<Queued> {
        let at = self.places.iter().position(|p| p.item.group == group)?;
        let weight = self.places[at].item.weight;
        if !self.places[..at].iter().all(|i| i.stands(i128::from(weight))) {
            return None;
        }
        for i in &mut self.places[..at] {
            i.o += i128::from(weight);
        }
        Some(self.serve(at))
    }

    /// Takes `op` out and serves it.
    pub fn serve_op(&mut self, op: super::OpId) -> Option<Queued> {
        let at = self.places.iter().position(|p| p.item.op == op)?;
        Some(self.serve(at))
    }

    /// Takes `op` out.
    pub fn remove(&mut self, op: super::OpId) -> Option<Queued> {
        let at = self.places.iter().position(|p| p.item.op == op)?;
        Some(self.places.remove(at).item)
    }
}
