//! What is going to happen: a heap of moments.

use model::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Things planned for later, given back in the order of their moments; of one moment, in the order of planning.
#[derive(Clone, Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
}

#[derive(Clone, Debug)]
struct Planned<T> {
    when: Time,
    number: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<T> Agenda<T> {
    /// Plans `what` for `when`.
    pub fn plan(&mut self, when: Time, what: T) {
        let number = self.planned;
        self.planned += 1;
        self.heap.push(Planned { when, number, what });
    }

    /// When the next thing happens.
    pub fn next_moment(&self) -> Option<Time> {
        self.heap.peek().map(|planned| planned.when)
    }

    /// The next thing and its moment.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|planned| (planned.when, planned.what))
    }

    /// How many things are planned.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is planned.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<T> Planned<T> {
    fn key(&self) -> (Time, u64) {
        (self.when, self.number)
    }
}

/// Reversed: the heap gives its greatest, and the earliest is wanted.
impl<T> Ord for Planned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Planned<T> {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn moments_come_in_order_and_one_moment_keeps_its_order() {
        let mut agenda = Agenda::default();
        for (when, what) in [(3, 'd'), (1, 'a'), (2, 'b'), (2, 'c')] {
            agenda.plan(Time::from_secs(when), what);
        }
        assert_eq!(agenda.next_moment(), Some(Time::from_secs(1)));
        let order: String = std::iter::from_fn(|| agenda.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
