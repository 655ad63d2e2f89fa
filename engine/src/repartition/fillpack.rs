//! FillPack: OffPack, but the transfer phase fills the buffer for as few targets as possible. Ours; not in the paper.
//!
//! OffPack first reads back the bytes for the group with most offloaded data, even if few of them are stored on the
//! awake group, and uses the rest of the buffer for another target: from then on a switch delivers only a part of the
//! buffer. FillPack considers the targets for which the awake group can fill most of the buffer, and chooses the one
//! with most offloaded data. So a switch carries more, above all where a run is not many times the buffer: many groups,
//! much memory, skewed input or output. Where every run fills the buffer a whole number of times, both take the same
//! steps.
//!
//! Each of our strategies that offload ends with this transfer phase.

use super::accounting::Accounting;
use super::offpack::{OffloadPhase, transfer};
use super::strategy::{Step, Strategy};
use super::terms::Terms;

/// Offloads first and delivers afterwards; reads back first the runs that fill the buffer for one target.
#[derive(Clone, Copy, Debug, Default)]
pub struct FillPack {
    phase: OffloadPhase,
}

impl Strategy for FillPack {
    fn next(&mut self, accounting: &Accounting, _terms: &Terms) -> Step {
        if accounting.input_left() == 0 { transfer_phase(accounting) } else { self.phase.next(accounting) }
    }
}

/// The next step of the transfer phase, for each of our strategies, and for those of the paper that did not offload.
pub(super) fn transfer_phase(accounting: &Accounting) -> Step {
    transfer(accounting, most_carried)
}

/// Ranks targets that already have buffered bytes higher, so that the buffer holds as few targets as possible.
fn most_carried(accounting: &Accounting, target: usize) -> [u64; 2] {
    let awake = accounting.awake().expect("targets are ranked on the group that is awake");
    [accounting.buffered(target) + accounting.refillable(awake, target), accounting.offloaded_on(target)]
}
