//! The baseline: fill the buffer, then visit every group and flush.
//!
//! It goes on reading at the group it flushed last (section III-C). The round begins behind that group, so that a full
//! buffer costs K switches, as formula (1) counts.

use super::{Books, Step, Strategy, Terms, home};

/// Visits every group whenever the buffer is full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    /// How many groups of the round are still to be visited.
    round: usize,
    /// The group of the round that was asked for last, until it is awake and flushed.
    at: Option<usize>,
}

impl Strategy for Baseline {
    fn next(&mut self, books: &Books, _terms: &Terms) -> Step {
        if books.input_left() == 0 && books.buffered_in_all() == 0 {
            return home::next(books);
        }
        if self.round == 0 {
            if let Some(step) = fill(books) {
                return step;
            }
            self.round = books.groups();
            self.at = None;
        }
        self.flush(books)
    }
}

impl Baseline {
    /// The next step of the round: wake the next group, or flush to it.
    fn flush(&mut self, books: &Books) -> Step {
        match (self.at, books.awake()) {
            (Some(at), Some(awake)) if at == awake => {
                if books.buffered(at) > 0 {
                    return Step::BringHome;
                }
                self.round -= 1;
                self.at = None;
                if self.round == 0 {
                    return fill(books).unwrap_or_else(|| home::next(books));
                }
                self.flush(books)
            }
            (Some(group), _) => Step::Visit { group },
            (None, awake) => {
                let group = awake.map_or(0, |awake| (awake + 1) % books.groups());
                self.at = Some(group);
                if awake == Some(group) { self.flush(books) } else { Step::Visit { group } }
            }
        }
    }
}

/// Reads on, here or at the next group that has input; nothing if the buffer is full or there is no more input.
fn fill(books: &Books) -> Option<Step> {
    let start = books.awake().unwrap_or(0);
    let around = (0..books.groups()).map(|step| (start + step) % books.groups());
    let group = around.into_iter().find(|group| books.input(*group) > 0)?;
    let bytes = books.readable(group, books.free());
    if bytes == 0 {
        return None;
    }
    Some(if books.awake() == Some(group) { Step::Read { bytes } } else { Step::Visit { group } })
}
