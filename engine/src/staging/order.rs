//! The order in which staged data moves.
//!
//! SOHO moves processed data: what was written once and read through once will hardly be read again, however young it
//! is. What nobody has read through yet comes after it, the coldest first, since its read would have to go to the
//! warehouse.
//!
//! Both worlds order staged versions by this rank when [`Action::ListStaged`](crate::Action::ListStaged) asks for the
//! first of them. The server does not record yet that a version was read through; there the order is that of ages.

use model::Time;

/// The place of a staged version in the order of moving: the least moves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveRank {
    // The order of the fields is the order of the ranks.
    is_unprocessed: bool,
    staged: Time,
}

impl MoveRank {
    /// After all others.
    pub const LAST: Self = Self { is_unprocessed: true, staged: Time::MAX };

    /// The rank of a version that was staged at `staged`; `is_processed` says whether it was read through since.
    pub const fn new(is_processed: bool, staged: Time) -> Self {
        Self { is_unprocessed: !is_processed, staged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processed_data_goes_first_and_then_the_coldest() {
        let rank = |is_processed, second| MoveRank::new(is_processed, Time::from_secs(second));
        let mut ranks = [rank(false, 1), rank(true, 9), rank(false, 3), rank(true, 2), MoveRank::LAST];
        ranks.sort();
        assert_eq!(ranks, [rank(true, 2), rank(true, 9), rank(false, 1), rank(false, 3), MoveRank::LAST]);
    }
}
