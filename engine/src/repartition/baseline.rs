//! The baseline: fill the buffer, then visit every group and flush.
//!
//! Reading continues on the group that was flushed last (section III-C). The round starts after that group, so a full
//! buffer costs K switches, as in formula (1).

use super::accounting::Accounting;
use super::fillpack::transfer_phase;
use super::strategy::{Step, Strategy};
use super::terms::Terms;

/// Visits every group whenever the buffer is full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    /// The number of groups still to be visited in this round.
    round: usize,
    /// The group of the round that the last [`Step::Visit`] named, until it is awake and flushed.
    at: Option<usize>,
}

impl Strategy for Baseline {
    fn next(&mut self, accounting: &Accounting, _terms: &Terms) -> Step {
        if accounting.input_left() == 0 && accounting.buffered_in_all() == 0 {
            return transfer_phase(accounting);
        }
        if self.round == 0 {
            if let Some(step) = fill(accounting) {
                return step;
            }
            self.round = accounting.groups();
            self.at = None;
        }
        self.flush(accounting)
    }
}

impl Baseline {
    /// The next step of the round: wake the next group, or flush to it.
    fn flush(&mut self, accounting: &Accounting) -> Step {
        match (self.at, accounting.awake()) {
            (Some(at), Some(awake)) if at == awake => {
                if accounting.buffered(at) > 0 {
                    return Step::Deliver;
                }
                assert!(self.round > 0 && self.round <= accounting.groups(), "a round visits each group once");
                self.round -= 1;
                self.at = None;
                if self.round == 0 {
                    if let Some(step) = fill(accounting) {
                        return step;
                    }
                    if accounting.input_left() == 0 || accounting.offloaded_in_all() == 0 {
                        return transfer_phase(accounting);
                    }
                    // Runs of an earlier strategy wait until all input is read.
                    self.round = accounting.groups();
                }
                self.flush(accounting)
            }
            (Some(group), _) => Step::Visit { group },
            (None, awake) => {
                let group = awake.map_or(0, |awake| (awake + 1) % accounting.groups());
                self.at = Some(group);
                if awake == Some(group) { self.flush(accounting) } else { Step::Visit { group } }
            }
        }
    }
}

/// Continues to read, here or at the next group that has input; none if the buffer is full or no input is left.
fn fill(accounting: &Accounting) -> Option<Step> {
    let group = accounting.next_input(accounting.awake().unwrap_or(0))?;
    let bytes = accounting.readable(group, accounting.free());
    if bytes == 0 {
        return None;
    }
    Some(if accounting.awake() == Some(group) { Step::Read { bytes } } else { Step::Visit { group } })
}
