//! Bringing home what was offloaded: OffPack's transfer phase, which every strategy that offloads ends with.
//!
//! On the group that is awake, what is buffered for it is written, then the buffer is filled from the runs that lie
//! there, the next target's first. The next group is the one for which most is buffered.
//!
//! The paper fills the buffer with "the target with the most offloaded data" first, so that no group is left early
//! with nothing to carry back. Here the next target is, among those for which this group can fill most of the buffer,
//! the one that has most to give in its turn.

use super::{Books, Step};

/// The next step, once all input is read.
pub(super) fn next(books: &Books) -> Step {
    let Some(awake) = books.awake() else { return visit_next(books, None) };
    if books.buffered(awake) > 0 {
        return Step::BringHome;
    }
    if let Some(target) = next_target(books, awake) {
        return Step::Refill { target, bytes: books.refillable(awake, target) };
    }
    visit_next(books, Some(awake))
}

/// Whose runs to read on `awake`: first those of a target for which something is buffered already, so that the buffer
/// is for as few targets as can be.
fn next_target(books: &Books, awake: usize) -> Option<usize> {
    let targets = 0..books.groups();
    targets.filter(|target| books.refillable(awake, *target) > 0).max_by_key(|&target| {
        let carried = books.buffered(target) + books.refillable(awake, target);
        (carried, books.offloaded_on(target), core::cmp::Reverse(target))
    })
}

fn visit_next(books: &Books, awake: Option<usize>) -> Step {
    let others = (0..books.groups()).filter(|group| Some(*group) != awake);
    let next =
        others.max_by_key(|&group| (books.buffered(group), books.offloaded_on(group), core::cmp::Reverse(group)));
    match next {
        Some(group) if books.buffered(group) > 0 || books.offloaded_on(group) > 0 => Step::Visit { group },
        _ => Step::Done,
    }
}
