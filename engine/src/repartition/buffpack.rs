//! BuffPack: go where the time that is useful is the largest part of the time it takes (section IV-A, formula 2).
//!
//! The efficiency of going from group i to group j is `useful / (useful + 2 T_sk + T_sw[i->j])`, where `useful` is the
//! time to write what is buffered for j and to read the input that then fits and is left on j. The group that is awake
//! costs no switch, so that it is left only when another one wins all the same.

use super::accounting::Accounting;
use super::fillpack::transfer_phase;
use super::strategy::{Step, Strategy};
use super::terms::Terms;
use model::transfer_time;

/// Visits the group with the best efficiency.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuffPack;

impl Strategy for BuffPack {
    fn next(&mut self, accounting: &Accounting, terms: &Terms) -> Step {
        if accounting.input_left() == 0 && accounting.offloaded_in_all() > 0 {
            return transfer_phase(accounting);
        }
        let Some(group) = best(accounting, terms) else { return Step::Done };
        let here = accounting.awake() == Some(group);
        if !here {
            return Step::Visit { group };
        }
        // Reading fills the buffer; only then is something written, so that as much of it as can be goes at once.
        let readable = accounting.readable(group, accounting.free());
        assert!(readable > 0 || accounting.buffered(group) > 0, "the best group has something to do");
        if readable > 0 { Step::Read { bytes: readable } } else { Step::Deliver }
    }
}

/// The group with the best efficiency, the awake one if it is no worse than others; none if there is nothing to do.
fn best(accounting: &Accounting, terms: &Terms) -> Option<usize> {
    let awake = accounting.awake();
    // Every other group takes the same switch, so that the one with most to do is the best of them.
    let (read, write) = (u128::from(terms.read_bytes_per_s), u128::from(terms.write_bytes_per_s));
    let much = |group: usize| {
        let (buffered, readable) = at(accounting, group);
        u128::from(terms.expansion.stored_of(buffered)) * read + u128::from(readable) * write
    };
    let others = (0..accounting.groups()).filter(|group| Some(*group) != awake);
    let most = others.map(|group| (much(group), core::cmp::Reverse(group))).max();
    let other = most.map(|(_, core::cmp::Reverse(group))| group);
    let mut best: Option<(usize, Efficiency)> = None;
    for group in awake.into_iter().chain(other) {
        let efficiency = Efficiency::of(accounting, terms, group);
        if efficiency.useful > 0 && best.is_none_or(|(_, so_far)| efficiency.beats(so_far)) {
            best = Some((group, efficiency));
        }
    }
    best.map(|(group, _)| group)
}

/// The bytes that would be written on a group, and those that would then be read.
fn at(accounting: &Accounting, group: usize) -> (u64, u64) {
    let buffered = accounting.buffered(group);
    (buffered, accounting.readable(group, accounting.free() + buffered))
}

/// Useful time and all of it, in nanoseconds.
#[derive(Clone, Copy)]
struct Efficiency {
    useful: u128,
    in_all: u128,
}

impl Efficiency {
    fn of(accounting: &Accounting, terms: &Terms, group: usize) -> Self {
        let (buffered, readable) = at(accounting, group);
        let write = transfer_time(terms.expansion.stored_of(buffered), terms.write_bytes_per_s);
        let read = transfer_time(readable, terms.read_bytes_per_s);
        let useful = (write + read).as_nanos();
        let switch = if accounting.awake() == Some(group) { 0 } else { terms.switch.as_nanos() };
        let in_all = useful + 2 * terms.seek.as_nanos() + switch;
        assert!(useful <= in_all, "no time is more than useful");
        Self { useful, in_all }
    }

    fn beats(self, other: Self) -> bool {
        self.useful * other.in_all > other.useful * self.in_all
    }
}
