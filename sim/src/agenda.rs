//! Future events, ordered by time.

use crate::places::Places;
use model::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events planned for later, returned in the order of their times; events of the same time in the order of planning.
///
/// The heap holds times and places; the events themselves, which may be large, are not moved.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Reverse<Planned>>,
    events: Places<T>,
    planned: u64,
    /// The time of the last event that was returned.
    reached: Time,
}

/// The time of an event, its sequence number, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    when: Time,
    number: u64,
    place: u32,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), events: Places::default(), planned: 0, reached: Time::ZERO }
    }
}

impl<T> Agenda<T> {
    /// Plans `event` for `when`.
    pub fn plan(&mut self, when: Time, event: T) {
        assert!(when >= self.reached, "an event is planned for {when}, and it is {}", self.reached);
        let (place, number) = (self.events.put(event), self.planned);
        self.planned += 1;
        self.heap.push(Reverse(Planned { when, number, place }));
    }

    /// The time of the next event.
    pub fn next_moment(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(planned)| planned.when)
    }

    /// Removes the next event; returns it with its time.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse(Planned { when, place, .. }) = self.heap.pop()?;
        assert!(when >= self.reached, "time runs forward");
        self.reached = when;
        Some((when, self.events.take(place)))
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
