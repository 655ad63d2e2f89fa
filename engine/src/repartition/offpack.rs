//! OffPack: write a full buffer to the group that is awake, wherever it belongs, and deliver it when all input is read
//! (section IV-B).
//!
//! In the transfer phase offloaded runs are delivered; every strategy that offloads ends with it. On the group that is
//! awake, what is buffered for it is written, then the buffer is filled from the runs that lie there, the next target's
//! first. The next group is the one for which most is buffered.
//!
//! The paper fills the buffer with "the target with the most offloaded data" first, so that no group is left early
//! with nothing to carry back. Here the next target is, among those for which this group can fill most of the buffer,
//! the one that has most to give in its turn.

use super::accounting::Accounting;
use super::strategy::{Step, Strategy};
use super::terms::Terms;

/// Offloads first, delivers afterwards.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffPack {
    /// Whether the buffer was full and is being written out.
    emptying: bool,
}

impl Strategy for OffPack {
    fn next(&mut self, accounting: &Accounting, _terms: &Terms) -> Step {
        if accounting.input_left() == 0 {
            return transfer_phase(accounting);
        }
        let Some(awake) = accounting.awake() else { return visit_input(accounting, 0) };
        self.emptying = (self.emptying || accounting.full()) && accounting.buffered_in_all() > 0;
        if self.emptying {
            return empty(accounting, awake);
        }
        match accounting.readable(awake, accounting.free()) {
            0 => visit_input(accounting, awake),
            bytes => Step::Read { bytes },
        }
    }
}

/// Writes something of the buffer to the group that is awake; the buffer is not empty.
fn empty(accounting: &Accounting, awake: usize) -> Step {
    assert!(accounting.buffered_in_all() > 0, "the buffer is not empty");
    if accounting.buffered(awake) > 0 {
        return Step::Deliver;
    }
    let target = (0..accounting.groups()).find(|target| accounting.buffered(*target) > 0);
    Step::Offload { target: target.expect("the buffer is not empty") }
}

/// The next group with input behind `start`, counted around. There must be one.
pub(super) fn visit_input(accounting: &Accounting, start: usize) -> Step {
    assert!(accounting.input_left() > 0, "there is input left");
    Step::Visit { group: accounting.next_input(start).expect("there is input left") }
}

/// The next step of the transfer phase, once all input is read; or of a strategy that has offloaded nothing and cannot
/// read on, since its buffer is full of what came from elsewhere.
pub(super) fn transfer_phase(accounting: &Accounting) -> Step {
    let may_deliver = accounting.input_left() == 0 || accounting.offloaded_in_all() == 0;
    assert!(may_deliver, "offloaded runs are delivered once all input is read");
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
