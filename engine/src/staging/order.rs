//! The order in which staged data moves.
//!
//! SOHO moves processed data: what was written once and read through once will hardly be read again, however young it
//! is. What nobody has read through yet comes after it, the coldest first, since its read would have to go to the
//! warehouse.
//!
//! What is hot by the rules of a thermometer comes after all else ([`Selection`](super::Selection)).
//!
//! Both worlds order staged versions by this rank when [`Action::ListStaged`](crate::Action::ListStaged) asks for the
//! first of them.

use model::Time;

/// The place of a staged version in the order of moving: the least moves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveRank {
    // The order of the fields is the order of the ranks.
    is_hot: bool,
    is_unprocessed: bool,
    staged: Time,
}

impl MoveRank {
    /// After all others that are not hot.
    pub const LAST: Self = Self { is_hot: false, is_unprocessed: true, staged: Time::MAX };

    /// The rank of a version that was staged at `staged`; `is_processed` says whether it was read through since.
    pub const fn new(is_processed: bool, staged: Time) -> Self {
        Self { is_hot: false, is_unprocessed: !is_processed, staged }
    }

    /// The same of a version that is hot.
    #[must_use]
    pub const fn hot(self) -> Self {
        Self { is_hot: true, ..self }
    }

    /// Whether it is that of a hot version.
    pub const fn is_hot(self) -> bool {
        self.is_hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processed_data_goes_first_and_then_the_coldest_and_hot_data_last() {
        let rank = |is_processed, second| MoveRank::new(is_processed, Time::from_secs(second));
        let hot = rank(true, 0).hot();
        let mut ranks = [hot, rank(false, 1), rank(true, 9), rank(false, 3), rank(true, 2), MoveRank::LAST];
        ranks.sort();
        assert_eq!(ranks, [rank(true, 2), rank(true, 9), rank(false, 1), rank(false, 3), MoveRank::LAST, hot]);
    }
}
