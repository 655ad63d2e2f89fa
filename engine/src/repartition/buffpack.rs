//! BuffPack: go where the time that is useful is the largest part of the time it takes (section IV-A, formula 2).
//!
//! The efficiency of going from group i to group j is `useful / (useful + 2 T_sk + T_sw[i->j])`, where `useful` is the
//! time to write what is buffered for j and to read the input that then fits and is left on j. The group that is awake
//! costs no switch, so that it is left only when another one wins all the same.

use super::{Books, Step, Strategy, Terms, home};
use ::model::transfer_time;

/// Visits the group with the best efficiency.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuffPack;

impl Strategy for BuffPack {
    fn next(&mut self, books: &Books, terms: &Terms) -> Step {
        if books.input_left() == 0 && books.offloaded_in_all() > 0 {
            return home::next(books);
        }
        let Some(group) = best(books, terms) else { return Step::Done };
        let here = books.awake() == Some(group);
        if !here {
            return Step::Visit { group };
        }
        // What is read fills the buffer; only then is something written, so that as much of it as can be goes at once.
        let readable = books.readable(group, books.free());
        if readable > 0 { Step::Read { bytes: readable } } else { Step::BringHome }
    }
}

/// The group with the best efficiency, the awake one if it is no worse than others; none if there is nothing to do.
fn best(books: &Books, terms: &Terms) -> Option<usize> {
    let mut best: Option<(usize, Efficiency)> = None;
    let awake = books.awake();
    for group in awake.into_iter().chain((0..books.groups()).filter(|group| Some(*group) != awake)) {
        let efficiency = Efficiency::of(books, terms, group);
        if efficiency.useful > 0 && best.is_none_or(|(_, so_far)| efficiency.beats(so_far)) {
            best = Some((group, efficiency));
        }
    }
    best.map(|(group, _)| group)
}

/// Useful time and all of it, in nanoseconds.
#[derive(Clone, Copy)]
struct Efficiency {
    useful: u128,
    in_all: u128,
}

impl Efficiency {
    fn of(books: &Books, terms: &Terms, group: usize) -> Self {
        let buffered = books.buffered(group);
        let readable = books.readable(group, books.free() + buffered);
        let write = transfer_time(buffered, terms.write_bytes_per_s);
        let read = transfer_time(readable, terms.read_bytes_per_s);
        let useful = (write + read).as_nanos();
        let switch = if books.awake() == Some(group) { 0 } else { terms.switch.as_nanos() };
        Self { useful, in_all: useful + 2 * terms.seek.as_nanos() + switch }
    }

    fn beats(self, other: Self) -> bool {
        self.useful * other.in_all > other.useful * self.in_all
    }
}
