//! Exposure of blobs: the number of stacks that each lacks, and the order of their rebuilds.
//!
//! A blob that has lost two stacks is nearer to data loss than one that has lost one, so it is rebuilt first. That
//! needs no list of blobs. A pass over a failed drive goes by *levels*, the highest first: at each level the drive is
//! listed again, and only blobs of that level are rebuilt. The first listing of a pass counts the blobs of every level,
//! so that empty levels are skipped. If only one drive of a group has losses, that drive has one level and is listed
//! once.
//!
//! A blob that has lost several stacks is listed with several drives. It belongs to the first of them that lacks its
//! stack: only the pass over that drive counts it, and rebuilds that drive's stack of it. Then the blob is one level
//! lower, and belongs to the next drive. So at each moment one stack of a blob is being rebuilt, and the blob is among
//! the most exposed ones.
//!
//! Invariants: memory is a count for each level of each drive; a level is never higher than r.

use alloc::vec;
use alloc::vec::Vec;

/// Numbers of blobs by lost stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// Index i counts blobs that have lost i + 1 stacks, up to the number of losses that the code tolerates (r).
    pub blobs: Vec<u64>,
    /// Blobs that have lost more than r stacks: data is lost.
    pub lost_blobs: u64,
}

impl Exposure {
    /// No blobs, for a code that tolerates `parity` losses.
    pub(crate) fn none(parity: u8) -> Self {
        Self { blobs: vec![0; usize::from(parity)], lost_blobs: 0 }
    }

    /// The count of blobs that have lost this number of stacks, at least one.
    fn of(&mut self, losses: usize) -> &mut u64 {
        assert!(losses > 0, "a blob that lacks nothing is not exposed");
        self.blobs.get_mut(losses - 1).unwrap_or(&mut self.lost_blobs)
    }

    /// Adds a blob that has lost this number of stacks.
    pub(super) fn add(&mut self, losses: usize) {
        *self.of(losses) += 1;
    }

    /// Removes a blob that had lost this number of stacks, and regained one or is forgotten. Saturates: a blob that
    /// died may still be counted.
    pub(super) fn remove(&mut self, losses: usize) {
        let count = self.of(losses);
        *count = count.saturating_sub(1);
    }

    /// The highest level below `level` that has blobs.
    pub(super) fn next_below(&self, level: u8) -> Option<u8> {
        (1..level).rev().find(|below| self.blobs.get(usize::from(*below) - 1).is_some_and(|blobs| *blobs > 0))
    }

    /// The maximum of both counts at each level.
    pub(super) fn at_least(mut self, other: &Self) -> Self {
        self.blobs.iter_mut().zip(&other.blobs).for_each(|(own, others)| *own = (*own).max(*others));
        self.lost_blobs = self.lost_blobs.max(other.lost_blobs);
        self
    }

    /// The sum of both.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.blobs.iter_mut().zip(&other.blobs).for_each(|(own, others)| *own = own.saturating_add(*others));
        self.lost_blobs = self.lost_blobs.saturating_add(other.lost_blobs);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_code_and_what_is_beyond_it_is_lost() {
        let mut exposure = Exposure::none(3);
        for losses in [1, 3, 3, 4, 9] {
            exposure.add(losses);
        }
        assert_eq!(exposure, Exposure { blobs: vec![1, 0, 2], lost_blobs: 2 });
        assert_eq!([4, 3, 2, 1].map(|level| exposure.next_below(level)), [Some(3), Some(1), Some(1), None]);
        for losses in [1, 1, 4] {
            exposure.remove(losses);
        }
        assert_eq!(exposure, Exposure { blobs: vec![0, 0, 2], lost_blobs: 1 }, "it saturates");
        assert_eq!(exposure.next_below(3), None);
    }

    #[test]
    fn a_code_without_parity_has_no_level() {
        let mut exposure = Exposure::none(0);
        exposure.add(1);
        assert_eq!((exposure.lost_blobs, exposure.next_below(1)), (1, None));
    }
}
