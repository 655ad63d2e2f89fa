//! Pelican's insertion rule as the paper words it (section 3, "Reordering"), in one vector: the judge of the fast
//! queue, and the reference of its benchmark. Every step looks at every operation that it speaks of, and counts every
//! switch.

use super::Queued;
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

/// Whether serving `next` after `before` takes a switch.
fn change(before: Option<&Place>, next: Queued) -> i128 {
    i128::from(before.is_some_and(|before| before.item.group != next.group))
}

/// The queue of the paper.
#[derive(Debug, Default)]
pub struct NaiveQueue {
    /// In the order of service.
    pub places: Vec<Place>,
    t: i128,
    depth: usize,
}

impl NaiveQueue {
    /// A queue for so many operations.
    pub fn new(depth: usize) -> Self {
        Self { places: Vec::new(), t: 0, depth }
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
        let passed = self.expected_begin(self.places.len(), item) - self.expected_begin(at, item);
        for i in &mut self.places[at..] {
            i.o += later;
        }
        self.places.insert(at, Place { item, t: self.t, o: self.t - passed });
        self.t += i128::from(item.weight);
        true
    }

    /// The weight before `item` at place `at`, and that of every change of group up to it.
    fn expected_begin(&self, at: usize, item: Queued) -> i128 {
        let before = &self.places[..at];
        let weight: i128 = before.iter().map(|p| i128::from(p.item.weight)).sum();
        let changes = before.windows(2).map(|pair| change(Some(&pair[0]), pair[1].item)).sum::<i128>();
        weight + i128::from(item.switch_weight) * (changes + change(before.last(), item))
    }

    /// By how much `item` at place `at` puts off the expected begin of everything behind it.
    fn later_by(&self, at: usize, item: Queued) -> i128 {
        let (before, next) = (self.places[..at].last(), self.places.get(at).map(|next| next.item));
        let from_item = next.map_or(0, |next| i128::from(next.group != item.group));
        let without = next.map_or(0, |next| change(before, next));
        i128::from(item.weight) + i128::from(item.switch_weight) * (change(before, item) + from_item - without)
    }

    /// Takes the first operation.
    pub fn pop(&mut self) -> Option<Queued> {
        (!self.places.is_empty()).then(|| self.places.remove(0).item)
    }
}

#[cfg(test)]
impl NaiveQueue {
    /// Takes the first operation of `group`, if everything before it may be overtaken by it.
    pub fn pop_of_group(&mut self, group: super::GroupId) -> Option<Queued> {
        let at = self.places.iter().position(|p| p.item.group == group)?;
        let weight = self.places[at].item.weight;
        if !self.places[..at].iter().all(|i| i.stands(i128::from(weight))) {
            return None;
        }
        for i in &mut self.places[..at] {
            i.o += i128::from(weight);
        }
        Some(self.places.remove(at).item)
    }

    /// Takes `op` out.
    pub fn remove(&mut self, op: super::OpId) -> Option<Queued> {
        let at = self.places.iter().position(|p| p.item.op == op)?;
        Some(self.places.remove(at).item)
    }
}
