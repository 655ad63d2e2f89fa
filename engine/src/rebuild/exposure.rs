//! How exposed blobs are: of how many stacks each lacks, and whose turn it is to be rebuilt.
//!
//! A blob that has lost two stacks is nearer to its end than one that has lost one, so it comes first, whatever is lost
//! of others. That needs no list of blobs. A pass over a failed drive goes by *levels*, the highest first: at each it
//! is listed anew, and only blobs of that level are rebuilt. The first listing of a pass counts the blobs of every
//! level, so that a level without any is left out; with one lossy drive in its group a drive has one level, and is
//! listed once.
//!
//! A blob that has lost several stacks is listed with several drives. It belongs to the first of them that lacks its
//! stack: that one alone counts it, and rebuilds its own stack of it. The blob is one level lower then, and belongs to
//! the next drive. So at each moment one stack of a blob is being rebuilt, and it is one of the most exposed ones.
//!
//! Invariants: memory is a count for each level of each drive; a level is never higher than r.

use alloc::vec;
use alloc::vec::Vec;

/// How many blobs have lost how many stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// By the number of stacks that they have lost, from 1 on, as many numbers as the code bears losses (r).
    pub blobs: Vec<u64>,
    /// Blobs that have lost more than that: data is lost.
    pub lost_blobs: u64,
}

impl Exposure {
    /// None, for a code that bears `parity` losses.
    pub(crate) fn none(parity: u8) -> Self {
        Self { blobs: vec![0; usize::from(parity)], lost_blobs: 0 }
    }

    /// The count of blobs that have lost so many stacks, one at least.
    fn of(&mut self, losses: usize) -> &mut u64 {
        assert!(losses > 0, "a blob that lacks nothing is not exposed");
        self.blobs.get_mut(losses - 1).unwrap_or(&mut self.lost_blobs)
    }

    /// One more has lost so many stacks.
    pub(super) fn add(&mut self, losses: usize) {
        *self.of(losses) += 1;
    }

    /// One has lost one stack less than so many, or is forgotten. Saturates: what died meanwhile may be counted still.
    pub(super) fn remove(&mut self, losses: usize) {
        let count = self.of(losses);
        *count = count.saturating_sub(1);
    }

    /// The highest level below `level` at which there are blobs.
    pub(super) fn next_below(&self, level: u8) -> Option<u8> {
        (1..level).rev().find(|below| self.blobs.get(usize::from(*below) - 1).is_some_and(|blobs| *blobs > 0))
    }

    /// The greater count of both at each level.
    pub(super) fn at_least(mut self, other: &Self) -> Self {
        self.blobs.iter_mut().zip(&other.blobs).for_each(|(own, others)| *own = (*own).max(*others));
        self.lost_blobs = self.lost_blobs.max(other.lost_blobs);
        self
    }

    /// The counts of both together.
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
