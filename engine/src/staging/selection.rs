//! Selects the staged versions that a listing takes ([`Action::ListStaged`](crate::Action::ListStaged)).
//!
//! 1. Versions that are due by a rule are taken, and are counted first.
//! 2. Cold versions are taken in the order of moving until the requested bytes are reached.
//! 3. If all of these make fewer bytes than must leave, hot versions are taken in the same order until they suffice.
//!
//! A world passes its versions in this order, then asks which of them a listing takes; the selection stores none of
//! them.

use super::MoveRank;
use crate::thermometer::Heat;

/// Counts versions up to the last one that is taken. See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    coldest_bytes: Option<u64>,
    hot_bytes: u64,
    sum_bytes: u64,
    /// The last rank that is taken.
    last: Option<MoveRank>,
}

impl Selection {
    /// For the parameters of [`Action::ListStaged`](crate::Action::ListStaged).
    pub fn new(coldest_bytes: Option<u64>, hot_bytes: u64) -> Self {
        assert!(coldest_bytes.is_some() || hot_bytes == 0, "hot versions move for a threshold's sake alone");
        let last = if coldest_bytes.is_none() { Some(MoveRank::LAST) } else { None };
        Self { coldest_bytes, hot_bytes, sum_bytes: 0, last }
    }

    /// True if due versions have to be counted. They are counted before all others.
    pub fn counts(&self) -> bool {
        self.coldest_bytes.is_some()
    }

    /// Counts the bytes of versions that are due by a rule.
    pub fn add_due(&mut self, bytes: u64) {
        self.sum_bytes = self.sum_bytes.saturating_add(bytes);
    }

    /// True while cold versions are still to be counted.
    pub fn wants_cold(&self) -> bool {
        self.coldest_bytes.is_some_and(|wanted| self.sum_bytes < wanted)
    }

    /// True while hot versions are still to be counted, after all cold ones.
    pub fn wants_hot(&self) -> bool {
        self.wants_cold() && self.sum_bytes < self.hot_bytes
    }

    /// Takes the next version in the order of moving.
    pub fn add(&mut self, rank: MoveRank, bytes: u64) {
        assert!(if rank.is_hot() { self.wants_hot() } else { self.wants_cold() }, "only what is wanted is counted");
        self.sum_bytes = self.sum_bytes.saturating_add(bytes);
        self.last = self.last.max(Some(rank));
    }

    /// True if a version is taken. All versions of the last rank are taken.
    pub fn takes(&self, heat: Heat, rank: MoveRank) -> bool {
        matches!(heat, Heat::Due(_)) || Some(rank) <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MoveOrder;
    use alloc::vec::Vec;
    use core::time::Duration;
    use model::Time;

    const DUE: Heat = Heat::Due(Duration::ZERO);

    /// Counts versions of 10 bytes each, and returns the numbers of those that are taken.
    fn taken(coldest_bytes: Option<u64>, hot_bytes: u64, versions: &[(Heat, u64)]) -> Vec<u64> {
        let mut selection = Selection::new(coldest_bytes, hot_bytes);
        let rank = |heat: Heat, second| {
            let rank = MoveRank::new(MoveOrder::Processed, false, Time::from_secs(second));
            if heat == Heat::Hot { rank.hot() } else { rank }
        };
        if selection.counts() {
            versions.iter().filter(|(heat, _)| *heat == DUE).for_each(|_| selection.add_due(10));
        }
        for (_, at) in versions.iter().filter(|(heat, _)| *heat == Heat::Cold) {
            if selection.wants_cold() {
                selection.add(rank(Heat::Cold, *at), 10);
            }
        }
        for (_, at) in versions.iter().filter(|(heat, _)| *heat == Heat::Hot) {
            if selection.wants_hot() {
                selection.add(rank(Heat::Hot, *at), 10);
            }
        }
        let is_taken = |(heat, at): &&(Heat, u64)| selection.takes(*heat, rank(*heat, *at));
        versions.iter().filter(is_taken).map(|(_, at)| *at).collect()
    }

    #[test]
    fn what_is_due_goes_first_then_the_coldest_and_hot_data_last() {
        let versions = [(Heat::Hot, 1), (Heat::Cold, 2), (DUE, 3), (Heat::Cold, 4), (Heat::Hot, 5)];
        assert_eq!(taken(None, 0, &versions), [2, 3, 4], "all that is cold or due");
        assert_eq!(taken(Some(0), 0, &versions), [3], "what is due goes in any case");
        assert_eq!(taken(Some(10), 10, &versions), [3], "and is enough if it is as much");
        assert_eq!(taken(Some(20), 10, &versions), [2, 3]);
        assert_eq!(taken(Some(90), 30, &versions), [2, 3, 4], "hot data only for what must go");
        assert_eq!(taken(Some(90), 31, &versions), [1, 2, 3, 4]);
        assert_eq!(taken(Some(90), 90, &versions), [1, 2, 3, 4, 5]);
    }
}
