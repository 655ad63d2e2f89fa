//! OffPack: write a full buffer to the group that is awake, wherever it belongs, and deliver it when all input is read
//! (section IV-B).

use super::accounting::Accounting;
use super::strategy::{Step, Strategy};
use super::terms::Terms;
use super::transfer_phase;

/// Offloads first, delivers afterwards.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffPack {
    /// Whether the buffer was full and is being written out.
    emptying: bool,
}

impl Strategy for OffPack {
    fn next(&mut self, accounting: &Accounting, _terms: &Terms) -> Step {
        if accounting.input_left() == 0 {
            return transfer_phase::next(accounting);
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
fn visit_input(accounting: &Accounting, start: usize) -> Step {
    assert!(accounting.input_left() > 0, "there is input left");
    let mut around = (0..accounting.groups()).map(|step| (start + step) % accounting.groups());
    let group = around.find(|group| accounting.input(*group) > 0).expect("there is input left");
    Step::Visit { group }
}
