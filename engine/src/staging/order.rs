//! The order in which staged data moves.
//!
//! SOHO moves processed data first: data that was written once and read through once is unlikely to be read again, even
//! if it is young. Data that was not read through comes after it, the coldest first, since a read of it would have to
//! go to the warehouse. [`MoveOrder::Age`] switches that order off, to measure its benefit and for data that is read
//! repeatedly.
//!
//! Data that the rules of a thermometer call hot comes last ([`Selection`](super::Selection)).
//!
//! Both worlds order staged versions by this rank to select the first ones for
//! [`Action::ListStaged`](crate::Action::ListStaged).

use crate::policy::MoveOrder;
use model::Time;

/// The rank of a staged version in the order of moving: the lowest moves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveRank {
    // The order of the fields is the order of the ranks.
    is_hot: bool,
    is_unprocessed: bool,
    staged: Time,
}

impl MoveRank {
    /// Follows all other versions that are not hot.
    pub const LAST: Self = Self { is_hot: false, is_unprocessed: true, staged: Time::MAX };

    /// The rank of a version that was staged at `staged`; `is_processed` is true if it was read through since.
    pub const fn new(order: MoveOrder, is_processed: bool, staged: Time) -> Self {
        let is_unprocessed = match order {
            MoveOrder::Processed => !is_processed,
            MoveOrder::Age => true,
        };
        Self { is_hot: false, is_unprocessed, staged }
    }

    /// The same rank for a hot version.
    #[must_use]
    pub const fn hot(self) -> Self {
        Self { is_hot: true, ..self }
    }

    /// True for a hot version.
    pub const fn is_hot(self) -> bool {
        self.is_hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processed_data_goes_first_and_then_the_coldest_and_hot_data_last() {
        let rank = |is_processed, second| MoveRank::new(MoveOrder::Processed, is_processed, Time::from_secs(second));
        let hot = rank(true, 0).hot();
        let mut ranks = [hot, rank(false, 1), rank(true, 9), rank(false, 3), rank(true, 2), MoveRank::LAST];
        ranks.sort();
        assert_eq!(ranks, [rank(true, 2), rank(true, 9), rank(false, 1), rank(false, 3), MoveRank::LAST, hot]);
    }

    #[test]
    fn by_age_the_oldest_goes_first_whether_it_was_read_or_not_and_hot_data_last() {
        let rank = |is_processed, second| MoveRank::new(MoveOrder::Age, is_processed, Time::from_secs(second));
        let hot = rank(true, 0).hot();
        let mut ranks = [hot, rank(true, 9), rank(false, 1), MoveRank::LAST, rank(false, 3), rank(true, 2)];
        ranks.sort();
        assert_eq!(ranks, [rank(false, 1), rank(true, 2), rank(false, 3), rank(true, 9), MoveRank::LAST, hot]);
        assert_eq!(rank(true, 4), rank(false, 4));
    }
}
