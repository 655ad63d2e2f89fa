//! FillPack: OffPack, but in the transfer phase the buffer is filled for as few targets as can be. Ours; not in the
//! paper.
//!
//! OffPack reads back first what is for the group with most offloaded data, however little of that lies on the group
//! that is awake, and gives the room that is left to another target: from then on a switch delivers a part of the
//! buffer only. FillPack chooses, among the targets for which the group that is awake can fill most of the buffer, the
//! one with most offloaded data. So a switch carries more, above all where a run is not many times the buffer: many
//! groups, much memory, skewed input or output. Where every run fills the buffer a whole number of times, both do the
//! same.
//!
//! Every strategy of ours that offloads ends with this transfer phase.

use super::accounting::Accounting;
use super::offpack::{OffloadPhase, transfer};
use super::strategy::{Step, Strategy};
use super::terms::Terms;

/// Offloads first, delivers afterwards, reading back first what fills the buffer for one target.
#[derive(Clone, Copy, Debug, Default)]
pub struct FillPack {
    phase: OffloadPhase,
}

impl Strategy for FillPack {
    fn next(&mut self, accounting: &Accounting, _terms: &Terms) -> Step {
        if accounting.input_left() == 0 { transfer_phase(accounting) } else { self.phase.next(accounting) }
    }
}

/// The next step of the transfer phase, for any strategy of ours, and for those of the paper that did not offload.
pub(super) fn transfer_phase(accounting: &Accounting) -> Step {
    transfer(accounting, most_carried)
}

/// First one for which something is buffered already, so that the buffer holds as few targets as can be.
fn most_carried(accounting: &Accounting, target: usize) -> [u64; 2] {
    let awake = accounting.awake().expect("targets are ranked on the group that is awake");
    [accounting.buffered(target) + accounting.refillable(awake, target), accounting.offloaded_on(target)]
}
