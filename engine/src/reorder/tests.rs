//! The fast queue compared with the naive one, and the guarantees of the rule.

#![allow(clippy::unwrap_used)]

mod naive;

use super::{Ahead, QueueFull, Queued, ReorderQueue};
use alloc::vec::Vec;
use model::{GroupId, OpId, Rng, Time};
use naive::NaiveQueue;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push { group: u32, weight: u64, switch_weight: u64, overtake_limit: u64 },
    Pop,
    PopOfGroup(u32),
    PopOverdue(u64),
    Remove(u64),
}

fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..20_u64, 20..2_000_u64, Just(u64::MAX - 1), Just(u64::MAX)]
}

fn weights() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..20_u64, 1 => Just(1 << 40)]
}

fn switch_weights() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0_u64), 4 => 0..50_u64, 1 => Just(1 << 40)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push =
        (0..6_u32, weights(), switch_weights(), limits()).prop_map(|(group, weight, switch_weight, overtake_limit)| {
            Step::Push { group, weight, switch_weight, overtake_limit }
        });
    let step = prop_oneof![
        6 => push,
        2 => Just(Step::Pop),
        1 => (0..6_u32).prop_map(Step::PopOfGroup),
        1 => (0..300_u64).prop_map(Step::PopOverdue),
        1 => (0..300_u64).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..300)
}

fn item(op: u64, group: u32, weight: u64, overtake_limit: u64) -> Queued {
    Queued { op: OpId(op), group: GroupId(group), weight, switch_weight: 0, overtake_limit, due: Time::from_secs(op) }
}

fn order(queue: &ReorderQueue) -> Vec<(Queued, i64)> {
    queue.iter().collect()
}

/// The operations before place `at` of an order, counted one by one.
fn counted_ahead(order: &[Queued], at: usize) -> Ahead {
    let weight = order[..at].iter().map(|i| i.weight).sum();
    let group_switches = order[..=at].windows(2).filter(|pair| pair[0].group != pair[1].group).count();
    Ahead { operations: at, weight, group_switches }
}

fn check_equal(fast: &ReorderQueue, naive: &NaiveQueue) {
    let places: Vec<_> = naive.places.iter().map(|p| (p.item, (p.o - p.t) as i64)).collect();
    assert_eq!(order(fast), places);
    assert_eq!((fast.len(), fast.is_empty()), (places.len(), places.is_empty()));
    assert_eq!(fast.head(), places.first().map(|p| p.0));
    for (item, delay) in &places {
        let unbounded = item.overtake_limit == u64::MAX;
        assert!(unbounded || i128::from(*delay) <= i128::from(item.overtake_limit), "o - t <= u for {item:?}");
    }
    for group in (0..6).map(GroupId) {
        let count = places.iter().filter(|p| p.0.group == group).count();
        assert_eq!((fast.len_of_group(group), fast.groups.get(&group).is_some()), (count, count > 0));
    }
}

fn check_ahead(fast: &ReorderQueue) {
    let items: Vec<_> = fast.iter().map(|(item, _)| item).collect();
    for (at, item) in items.iter().enumerate() {
        let counted = counted_ahead(&items, at);
        assert_eq!(fast.ahead_of(item.op), Some(counted));
        assert_eq!(fast.ahead_of(item.op).map(|ahead| ahead.weight), Some(counted.weight));
    }
}

proptest! {
    #[test]
    fn the_fast_queue_is_the_papers_queue(steps in steps(), depth in prop_oneof![Just(20_u32), Just(10_000)]) {
        let (mut fast, mut naive) = (ReorderQueue::new(depth), NaiveQueue::new(depth as usize));
        for (op, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { group, weight, switch_weight, overtake_limit } => {
                    let item = Queued { switch_weight, ..item(op as u64, group, weight, overtake_limit) };
                    let forecast = fast.ahead_of_new(item.group, item.weight);
                    let pushed = fast.push(item);
                    prop_assert_eq!(pushed.is_ok(), naive.push(item));
                    if pushed.is_ok() {
                        prop_assert_eq!(fast.ahead_of(item.op), Some(forecast));
                    }
                }
                Step::Pop => prop_assert_eq!(fast.pop(), naive.pop()),
                Step::PopOfGroup(group) => {
                    prop_assert_eq!(fast.pop_of_group(GroupId(group)), naive.pop_of_group(GroupId(group)));
                }
                Step::PopOverdue(s) => {
                    let now = Time::from_secs(s);
                    let first = naive.places.iter().map(|p| p.item).min_by_key(|item| item.due);
                    prop_assert_eq!(fast.first_due(), first.map_or(Time::MAX, |first| first.due));
                    let overdue = first.filter(|first| first.due <= now);
                    prop_assert_eq!(fast.overdue_group(now, &[]), overdue.map(|first| first.group));
                    if let Some(first) = overdue {
                        prop_assert!(fast.is_overdue(first.group, now));
                        prop_assert_eq!(fast.pop_overdue(first.group), naive.serve_op(first.op));
                    }
                }
                Step::Remove(op) => {
                    let held = fast.contains(OpId(op));
                    let removed = fast.remove(OpId(op));
                    prop_assert_eq!(removed, naive.remove(OpId(op)));
                    prop_assert_eq!(held, removed.is_some());
                }
            }
            check_equal(&fast, &naive);
        }
        check_ahead(&fast);
    }

    #[test]
    fn with_switches_counted_nobody_begins_more_than_u_later_than_in_the_order_of_arrival(
        arrivals in arrivals(),
        switch in 0..40_u64,
        u in limits_in_time(),
        joins in any::<bool>(),
        cancels in any::<bool>(),
    ) {
        let mut server = Server::new(switch, u);
        for (op, (gap, group, weight)) in arrivals.into_iter().enumerate() {
            let op = op as u64;
            server.run_until(server.now + gap, joins);
            if cancels && op % 7 == 6 {
                server.cancel(op - 1 - u64::from(group) % 3);
            } else {
                server.arrives(op, group, weight);
            }
        }
        server.run_until(u64::MAX, joins);
        prop_assert!(server.expected.is_empty(), "everything is served");
        for (begun, expected, delay) in server.begun {
            prop_assert!(i128::from(begun) <= i128::from(expected) + i128::from(u), "{begun} instead of {expected}");
            // The queue's own count for it is exact, and operations that join or are cancelled only advance it.
            let later = i128::from(begun) - i128::from(expected);
            let forward = joins || cancels;
            prop_assert!(later == i128::from(delay) || (forward && later < i128::from(delay)), "{later}, not {delay}");
        }
    }

    #[test]
    fn with_no_overtaking_the_order_is_that_of_arrival(groups in prop::collection::vec((0..5_u32, weights()), 0..200)) {
        let mut queue = ReorderQueue::new(1_000);
        for (op, (group, weight)) in groups.iter().enumerate() {
            queue.push(item(op as u64, *group, *weight, 0)).unwrap();
        }
        let served: Vec<_> = core::iter::from_fn(|| queue.pop()).map(|i| i.op.0).collect();
        prop_assert!(served.into_iter().eq(0..groups.len() as u64));
    }

    #[test]
    fn without_bound_each_group_is_one_run(groups in prop::collection::vec((0..9_u32, 1..50_u64), 1..300)) {
        let mut queue = ReorderQueue::new(1_000);
        for (op, (group, weight)) in groups.iter().enumerate() {
            queue.push(item(op as u64, *group, *weight, u64::MAX)).unwrap();
        }
        let mut present: Vec<_> = groups.iter().map(|(group, _)| *group).collect();
        present.sort_unstable();
        present.dedup();
        prop_assert_eq!(switches(&mut queue), present.len());
    }
}

fn limits_in_time() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 4 => 1..400_u64, 1 => Just(100_000)]
}

/// Gaps, groups and service times.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32, u64)>> {
    prop::collection::vec((prop_oneof![3 => 0..6_u64, 1 => 0..120_u64], 0..4_u32, 1..20_u64), 0..150)
}

/// One server that takes operations from a queue: each takes its weight, and a switch where the group changes.
struct Server {
    queue: ReorderQueue,
    switch: u64,
    u: u64,
    now: u64,
    /// The group of the operation in service, and the end of that operation.
    serves: Option<(GroupId, u64)>,
    /// The time when each queued operation would begin in the order of arrival, or at the end of the queue that it
    /// found.
    expected: Vec<(OpId, u64)>,
    /// The time when each operation began, the time when it was expected to, and its o - t at that time.
    begun: Vec<(u64, u64, i64)>,
}

impl Server {
    fn new(switch: u64, u: u64) -> Self {
        let (serves, expected, begun) = (None, Vec::new(), Vec::new());
        Self { queue: ReorderQueue::new(1_000), switch, u, now: 0, serves, expected, begun }
    }

    fn arrives(&mut self, op: u64, group: u32, weight: u64) {
        let item = Queued { switch_weight: self.switch, ..item(op, group, weight, self.u) };
        let mut queued: Vec<Queued> = self.queue.iter().map(|(item, _)| item).collect();
        let at_end = self.begin_behind(&queued, group);
        queued.sort_by_key(|item| item.op);
        let begin = at_end.max(self.begin_behind(&queued, group));
        self.expected.push((item.op, begin));
        self.queue.push(item).unwrap();
    }

    /// The time when an operation of `group` begins after those.
    fn begin_behind(&self, before: &[Queued], group: u32) -> u64 {
        let (mut awake, mut begin) = match self.serves {
            Some((awake, until)) => (Some(awake), until.max(self.now)),
            None => (None, self.now),
        };
        for (group, weight) in before.iter().map(|item| (item.group, item.weight)).chain([(GroupId(group), 0)]) {
            begin += weight + if awake.is_some_and(|awake| awake != group) { self.switch } else { 0 };
            awake = Some(group);
        }
        begin
    }

    fn cancel(&mut self, op: u64) {
        if self.queue.remove(OpId(op)).is_some() {
            self.expected.retain(|(known, _)| *known != OpId(op));
        }
    }

    /// Serves until then; with `joins`, operations queued for the group in service first, as far as u allows.
    fn run_until(&mut self, then: u64, joins: bool) {
        while self.serves.is_none_or(|(_, until)| until <= then) && !self.queue.is_empty() {
            let awake = self.serves.map(|(group, _)| group);
            let free_at = self.serves.map_or(self.now, |(_, until)| until.max(self.now));
            if free_at > then {
                break;
            }
            let delays: Vec<_> = self.queue.iter().map(|(item, delay)| (item.op, delay)).collect();
            let joined = awake.filter(|_| joins).and_then(|group| self.queue.pop_of_group(group));
            let Some(item) = joined.or_else(|| self.queue.pop()) else { break };
            let delay = delays.iter().find(|(op, _)| *op == item.op).map(|(_, delay)| *delay).unwrap();
            let at = self.expected.iter().position(|(op, _)| *op == item.op).unwrap();
            let (_, expected) = self.expected.remove(at);
            let begun = free_at + if awake.is_some_and(|awake| awake != item.group) { self.switch } else { 0 };
            self.begun.push((begun, expected, delay));
            self.serves = Some((item.group, begun + item.weight));
        }
        self.now = then.max(self.now);
    }
}

#[test]
fn what_batches_saved_an_operation_it_may_be_overtaken_by() {
    // A, B and A, which goes behind the first one; then C comes to the end. In the order of arrival three switches are
    // before it, now there are two. By the transfers alone it may be overtaken by 5, else by 10 more.
    for (switch_weight, headroom) in [(0, [5, 6, 4, 5]), (10, [5, 26, 4, 15])] {
        let mut queue = ReorderQueue::new(100);
        for (op, group) in [(0, 0), (1, 1), (2, 0), (3, 2)] {
            queue.push(Queued { switch_weight, ..item(op, group, 1, 5) }).unwrap();
        }
        assert_eq!(queue.iter().map(|(item, _)| item.op.0).collect::<Vec<_>>(), [0, 2, 1, 3]);
        let left = queue.iter().map(|(item, delay)| item.overtake_limit.cast_signed() - delay);
        assert_eq!(left.collect::<Vec<_>>(), headroom);
    }
}

/// The number of changes of group while the queue is served, the first one included.
fn switches(queue: &mut ReorderQueue) -> usize {
    let (mut awake, mut count) = (None, 0);
    while let Some(item) = queue.pop() {
        count += usize::from(awake != Some(item.group));
        awake = Some(item.group);
    }
    count
}

fn random_queue(overtake_limit: u64, operations: u32) -> ReorderQueue {
    random_queue_with_switches(overtake_limit, operations, 0)
}

fn random_queue_with_switches(overtake_limit: u64, operations: u32, switch_weight: u64) -> ReorderQueue {
    let (mut queue, mut rng) = (ReorderQueue::new(operations), Rng::new(7));
    for op in 0..operations {
        let item = item(u64::from(op), rng.below(12) as u32, 1, overtake_limit);
        queue.push(Queued { switch_weight, ..item }).unwrap();
    }
    queue
}

#[test]
fn switches_that_count_make_fewer_of_them_at_the_same_bound_and_none_may_be_overtaken_without_one() {
    let counts = [0, 5, 20].map(|weight| switches(&mut random_queue_with_switches(30, 5_000, weight)));
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
    let mut queue = random_queue_with_switches(0, 100, 20);
    let served: Vec<_> = core::iter::from_fn(|| queue.pop()).map(|item| item.op.0).collect();
    assert!(served.into_iter().eq(0..100), "u = 0 is the order of arrival");
}

#[test]
fn a_full_queue_refuses_and_stays_as_it_is() {
    let mut queue = random_queue(5, 100);
    let before = order(&queue);
    assert_eq!(queue.push(item(1_000, 3, 1, 5)), Err(QueueFull));
    assert_eq!(order(&queue), before);
    assert!(!queue.contains(OpId(1_000)));
    assert_eq!(ReorderQueue::new(0).push(item(0, 0, 1, 0)), Err(QueueFull));
}

#[test]
fn fifo_wakes_a_group_for_eleven_of_twelve_requests_and_no_bound_for_twelve_in_all() {
    // Pelican, section 5.4: FIFO over the 12 groups of a class costs ~0.92 q spin-ups for q requests.
    let q = 20_000;
    let fifo = switches(&mut random_queue(0, q)) as f64 / f64::from(q);
    assert!((fifo - 11.0 / 12.0).abs() < 0.01, "{fifo} is not 11/12");
    assert_eq!(switches(&mut random_queue(u64::MAX, q)), 12);
}

#[test]
fn switches_fall_as_the_bound_grows() {
    let counts: Vec<_> = [0, 10, 100, 1_000].map(|u| switches(&mut random_queue(u, 5_000))).into();
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
}

#[test]
fn the_arena_is_no_larger_than_the_queue_ever_was() {
    let (mut queue, mut rng) = (ReorderQueue::new(64), Rng::new(3));
    for op in 0..10_000_u64 {
        if queue.len() == 64 {
            queue.pop().unwrap();
        }
        queue.push(item(op, rng.below(8) as u32, 1, 40)).unwrap();
    }
    assert!(queue.nodes.len() <= 64);
}

#[test]
fn a_hundred_thousand_operations_come_out_in_their_order() {
    let mut queue = random_queue(2_000, 100_000);
    let expected: Vec<_> = queue.iter().map(|(item, _)| item.op).collect();
    let served: Vec<_> = core::iter::from_fn(|| queue.pop()).map(|item| item.op).collect();
    assert_eq!(served, expected);
}

#[test]
fn absurd_weights_and_limits_are_taken_for_large_ones() {
    let mut queue = ReorderQueue::new(1_000);
    for op in 0..1_000 {
        let limit = if op % 3 == 0 { 1 << 61 } else { u64::MAX - op };
        queue.push(item(op, (op % 2) as u32, u64::MAX, limit)).unwrap();
    }
    assert_eq!(queue.len(), 1_000);
    for op in 1_000..20_000 {
        queue.pop_of_group(GroupId(1)).or_else(|| queue.pop()).unwrap();
        queue.push(item(op, 1, u64::MAX, u64::MAX)).unwrap();
    }
    assert!(queue.iter().all(|(item, delay)| item.overtake_limit > 1 << 61 || delay <= 1 << 61));
}

#[test]
#[should_panic(expected = "queued already")]
fn queuing_an_operation_twice_is_a_fault() {
    let mut queue = ReorderQueue::new(10);
    queue.push(item(1, 0, 1, 0)).unwrap();
    let _ = queue.push(item(1, 1, 1, 0));
}
