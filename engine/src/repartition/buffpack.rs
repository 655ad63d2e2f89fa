//! BuffPack: go where the useful time is the largest part of the total time (section IV-A, formula 2).
//!
//! The efficiency of going from group i to group j is `useful / (useful + 2 T_sk + T_sw[i->j])`, where `useful` is the
//! time to write the bytes buffered for j and to read the input that then fits and is left on j. The awake group costs
//! no switch, so it is left only when another one wins in spite of its switch.

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
        // Reading fills the buffer. Only then is anything written, so that each write is as large as possible.
        let readable = accounting.readable(group, accounting.free());
        assert!(readable > 0 || accounting.buffered(group) > 0, "the best group has something to do");
        if readable > 0 { Step::Read { bytes: readable } } else { Step::Deliver }
    }
}

/// The group with the best efficiency, the awake one if it is no worse than others; none if there is no work.
fn best(accounting: &Accounting, terms: &Terms) -> Option<usize> {
    let awake = accounting.awake();
    // All other groups cost the same switch, so the one with most work is the best of them.
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

/// The bytes that would be written on a group, and the bytes that would then be read.
fn at(accounting: &Accounting, group: usize) -> (u64, u64) {
    let buffered = accounting.buffered(group);
    (buffered, accounting.readable(group, accounting.free() + buffered))
}

/// Useful time and total time, in nanoseconds.
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
