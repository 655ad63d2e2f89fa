//! OffPack's transfer phase, in which offloaded runs are delivered. Every strategy that offloads ends with it.
//!
//! On the group that is awake, what is buffered for it is written, then the buffer is filled from the runs that lie
//! there, the next target's first. The next group is the one for which most is buffered.
//!
//! The paper fills the buffer with "the target with the most offloaded data" first, so that no group is left early
//! with nothing to carry back. Here the next target is, among those for which this group can fill most of the buffer,
//! the one that has most to give in its turn.

use super::accounting::Accounting;
use super::strategy::Step;

/// The next step, once all input is read.
pub(super) fn next(accounting: &Accounting) -> Step {
    assert_eq!(accounting.input_left(), 0, "offloaded runs are delivered once all input is read");
    let Some(awake) = accounting.awake() else { return visit_next(accounting, None) };
    if accounting.buffered(awake) > 0 {
        return Step::Deliver;
    }
    if let Some(target) = next_target(accounting, awake) {
        return Step::Refill { target, bytes: accounting.refillable(awake, target) };
    }
    visit_next(accounting, Some(awake))
}

/// The target whose runs to read on `awake`: first one for which something is buffered already, so that the buffer
/// holds as few targets as can be.
fn next_target(accounting: &Accounting, awake: usize) -> Option<usize> {
    let targets = 0..accounting.groups();
    targets.filter(|target| accounting.refillable(awake, *target) > 0).max_by_key(|&target| {
        let carried = accounting.buffered(target) + accounting.refillable(awake, target);
        (carried, accounting.offloaded_on(target), core::cmp::Reverse(target))
    })
}

fn visit_next(accounting: &Accounting, awake: Option<usize>) -> Step {
    let others = (0..accounting.groups()).filter(|group| Some(*group) != awake);
    let next = others
        .max_by_key(|&group| (accounting.buffered(group), accounting.offloaded_on(group), core::cmp::Reverse(group)));
    match next {
        Some(group) if accounting.buffered(group) > 0 || accounting.offloaded_on(group) > 0 => Step::Visit { group },
        _ => Step::Done,
    }
}
