//! OffPack: write a full buffer to the group that is awake, wherever it belongs, and bring it home when all input is
//! read (section IV-B).

use super::{Books, Step, Strategy, Terms, home};

/// Offloads first, brings home afterwards.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffPack {
    /// Whether the buffer was full and is being written out.
    emptying: bool,
}

impl Strategy for OffPack {
    fn next(&mut self, books: &Books, _terms: &Terms) -> Step {
        if books.input_left() == 0 {
            return home::next(books);
        }
        let Some(awake) = books.awake() else { return visit_input(books, 0) };
        self.emptying = (self.emptying || books.full()) && books.buffered_in_all() > 0;
        if self.emptying {
            return empty(books, awake);
        }
        match books.readable(awake, books.free()) {
            0 => visit_input(books, awake),
            bytes => Step::Read { bytes },
        }
    }
}

/// Writes something of the buffer to the group that is awake; the buffer is not empty.
fn empty(books: &Books, awake: usize) -> Step {
    if books.buffered(awake) > 0 {
        return Step::BringHome;
    }
    let target = (0..books.groups()).find(|target| books.buffered(*target) > 0);
    Step::Offload { target: target.expect("the buffer is not empty") }
}

/// The next group with input behind `start`, counted around. There must be one.
fn visit_input(books: &Books, start: usize) -> Step {
    let mut around = (0..books.groups()).map(|step| (start + step) % books.groups());
    let group = around.find(|group| books.input(*group) > 0).expect("there is input left");
    Step::Visit { group }
}
