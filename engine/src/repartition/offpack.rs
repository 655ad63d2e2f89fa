//! OffPack: write a full buffer to the awake group, for any destination, and deliver it when all input is read
//! (section IV-B).
//!
//! The transfer phase delivers the offloaded bytes: the bytes buffered for the awake group are written to it, then the
//! buffer is filled from the runs that are stored there. As in the paper, "the target disk group with the most
//! offloaded data" comes first. That is the group that stores most bytes for others, so the groups finish together, and
//! no group becomes empty early and then has nothing to carry back. The next group is the one for which most is
//! buffered; the paper states only that this choice is not crucial.
//!
//! [`FillPack`](super::FillPack) differs only in the target that comes first.

use super::accounting::Accounting;
use super::strategy::{Step, Strategy};
use super::terms::Terms;
use core::cmp::Reverse;

/// Offloads first and delivers afterwards; reads the bytes for the group with most offloaded data back first.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffPack {
    phase: OffloadPhase,
}

impl Strategy for OffPack {
    fn next(&mut self, accounting: &Accounting, _terms: &Terms) -> Step {
        if accounting.input_left() == 0 { transfer(accounting, most_offloaded) } else { self.phase.next(accounting) }
    }
}

fn most_offloaded(accounting: &Accounting, target: usize) -> [u64; 2] {
    [accounting.offloaded_on(target), accounting.buffered(target)]
}

/// The first phase: input is read, and a full buffer is written to the group that is awake.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OffloadPhase {
    /// True from when the buffer is full until it is written out.
    emptying: bool,
}

impl OffloadPhase {
    /// The next step; there must be input left.
    pub fn next(&mut self, accounting: &Accounting) -> Step {
        assert!(accounting.input_left() > 0, "input is left as long as more is offloaded");
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

/// The first group with input at or after `start`, counted around. There must be one.
pub(super) fn visit_input(accounting: &Accounting, start: usize) -> Step {
    assert!(accounting.input_left() > 0, "there is input left");
    Step::Visit { group: accounting.next_input(start).expect("there is input left") }
}

/// Ranks the targets whose run on the awake group may be read back next: the highest rank comes first, and of equal
/// ranks the one with the lowest number.
pub(super) type TargetRank = fn(&Accounting, target: usize) -> [u64; 2];

/// The next step of the transfer phase, once all input is read. Also the next step of a strategy that has offloaded
/// nothing and cannot read more, since its buffer is full of output read elsewhere.
pub(super) fn transfer(accounting: &Accounting, rank: TargetRank) -> Step {
    let may_deliver = accounting.input_left() == 0 || accounting.offloaded_in_all() == 0;
    assert!(may_deliver, "offloaded runs are delivered once all input is read");
    let Some(awake) = accounting.awake() else { return visit_next(accounting, None) };
    if accounting.buffered(awake) > 0 {
        return Step::Deliver;
    }
    let targets = (0..accounting.groups()).filter(|target| accounting.refillable(awake, *target) > 0);
    match targets.max_by_key(|&target| (rank(accounting, target), Reverse(target))) {
        Some(target) => Step::Refill { target, bytes: accounting.refillable(awake, target) },
        None => visit_next(accounting, Some(awake)),
    }
}

fn visit_next(accounting: &Accounting, awake: Option<usize>) -> Step {
    let others = (0..accounting.groups()).filter(|group| Some(*group) != awake);
    let next = others.max_by_key(|&group| (accounting.buffered(group), accounting.offloaded_on(group), Reverse(group)));
    match next {
        Some(group) if accounting.buffered(group) > 0 || accounting.offloaded_on(group) > 0 => Step::Visit { group },
        _ => Step::Done,
    }
}
