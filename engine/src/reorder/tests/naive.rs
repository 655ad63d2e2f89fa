//! Pelican's insertion rule as the paper words it (section 3, "Reordering"), in one vector: the judge of the fast
//! queue, and the reference of its benchmark. Every step looks at every operation that it speaks of.

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
    fn stands(&self, weight: u64) -> bool {
        let limit = self.item.overtake_limit;
        limit == u64::MAX || self.o + i128::from(weight) - self.t <= i128::from(limit)
    }
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
        let at = match last {
            Some(l) if self.places[l + 1..].iter().all(|i| i.stands(item.weight)) => l + 1,
            _ => self.places.len(),
        };
        let mut overtaken = 0;
        for i in &mut self.places[at..] {
            i.o += i128::from(item.weight);
            overtaken += i128::from(i.item.weight);
        }
        self.places.insert(at, Place { item, t: self.t, o: self.t - overtaken });
        self.t += i128::from(item.weight);
        true
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
        if !self.places[..at].iter().all(|i| i.stands(weight)) {
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
