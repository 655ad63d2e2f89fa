//! What is going to happen: a heap of moments.

use model::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Things planned for later, given back in the order of their moments; of one moment, in the order of planning.
///
/// The heap holds moments and places; the things themselves, which may be large, stay where they were put.
#[derive(Clone, Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<Planned>>,
    things: Vec<Option<T>>,
    free: Vec<u32>,
    planned: u64,
}

/// A moment, the number of its planning, and the place of what is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    when: Time,
    number: u64,
    place: u32,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), things: Vec::new(), free: Vec::new(), planned: 0 }
    }
}

impl<T> Agenda<T> {
    /// Plans `what` for `when`.
    pub fn plan(&mut self, when: Time, what: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.things.push(None);
            (self.things.len() - 1) as u32
        });
        self.things[place as usize] = Some(what);
        let number = self.planned;
        self.planned += 1;
        self.heap.push(Reverse(Planned { when, number, place }));
    }

    /// When the next thing happens.
    pub fn next_moment(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(planned)| planned.when)
    }

    /// The next thing and its moment.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse(Planned { when, place, .. }) = self.heap.pop()?;
        self.free.push(place);
        Some((when, self.things[place as usize].take()?))
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
