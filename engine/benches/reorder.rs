//! Insertions into a scheduler queue, the queue of runs against the plain transcription of Pelican's rule, at the
//! paper's depth (1,000) and a hundred times it. Both get the same operations and must give the same order.
//!
//! `cargo bench -p engine --bench reorder`. Each queue is kept at its depth: every measured insertion follows a removal
//! of the head, whose time is left out of neither.

#[allow(dead_code, reason = "the queue's tests use more of it")]
#[path = "../src/reorder/tests/naive.rs"]
mod naive;

use engine::reorder::{Queued, ReorderQueue};
use model::{GroupId, OpId, Rng, Time};
use naive::NaiveQueue;
use std::time::{Duration, Instant};

const GROUPS: u64 = 12;

fn operations(count: usize, overtake_limit: u64) -> Vec<Queued> {
    let mut rng = Rng::new(42);
    let one = |op| Queued {
        op: OpId(op),
        group: GroupId(rng.below(GROUPS) as u32),
        weight: 1 + op % 7,
        switch_weight: 0,
        overtake_limit,
        due: Time::MAX,
    };
    (0..count as u64).map(one).collect()
}

/// Time of the insertions behind the first `depth`, each with the removal of the head before it; and what was served.
fn measure(
    operations: &[Queued],
    depth: usize,
    push: &mut dyn FnMut(Queued),
    pop: &mut dyn FnMut() -> Option<Queued>,
) -> (Duration, Vec<OpId>) {
    let (filling, measured) = operations.split_at(depth);
    for item in filling {
        push(*item);
    }
    let mut served = Vec::with_capacity(measured.len());
    let begun = Instant::now();
    for item in measured {
        served.extend(pop().map(|item| item.op));
        push(*item);
    }
    (begun.elapsed(), served)
}

fn compare(depth: usize, insertions: usize) {
    // Half the queue may overtake: deep enough for long batches, tight enough for refusals.
    let operations = operations(depth + insertions, 2 * depth as u64);
    let fast = core::cell::RefCell::new(ReorderQueue::new(depth as u32));
    let naive = core::cell::RefCell::new(NaiveQueue::new(depth));
    let (fast_took, fast_order) = measure(
        &operations,
        depth,
        &mut |item| fast.borrow_mut().push(item).expect("a place was freed before"),
        &mut || fast.borrow_mut().pop(),
    );
    let (naive_took, naive_order) = measure(
        &operations,
        depth,
        &mut |item| assert!(naive.borrow_mut().push(item), "a place was freed before"),
        &mut || naive.borrow_mut().pop(),
    );
    assert_eq!(fast_order, naive_order, "both queues serve in the same order");
    let each = |took: Duration| took.as_nanos() as f64 / insertions as f64;
    println!(
        "depth {depth:>7}: runs {:>7.0} ns, plain rule {:>10.0} ns an insertion: {:.1} times faster",
        each(fast_took),
        each(naive_took),
        each(naive_took) / each(fast_took),
    );
}

fn main() {
    compare(1_000, 100_000);
    compare(100_000, 2_000);
}
