//! Choosing the B+trees (shelves) of a rotating log that are merged, rewritten or removed.
//!
//! 1. A shelf that contains nothing needed is removed without being read.
//! 2. A shelf is rewritten if at least half of it is forgotten.
//! 3. Shelves form tiers by size: below twice the size of a log, below that times the fan-in, and so on. As soon as a
//!    tier has as many shelves as the fan-in, that number of its oldest shelves become one. So each record is rewritten
//!    at most once per tier, and each tier has fewer shelves than the fan-in.
//!
//! Merges are not one of the stages of [`crate::shift`]. The world lets a merge use a drive only while the drive is in
//! no stage.

use crate::shift::PoolDrive;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// The facts about a shelf that matter here. Shelves are given oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShelfFacts {
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes of its forgotten records.
    pub forgotten_bytes: u64,
    /// Nothing in it is needed.
    pub removable: bool,
}

/// A step on shelves, which are given by their positions in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Remove it.
    Remove(usize),
    /// Merge these shelves into one. A single shelf is rewritten.
    Merge(Vec<usize>),
}

/// The settings of merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergePolicy {
    /// The size of a log, in bytes. Above 0.
    pub log_bytes: u64,
    /// Shelves of a tier that become one. At least 2.
    pub fan_in: usize,
}

/// The next step; `None` if there is nothing to do.
pub fn choose(policy: MergePolicy, shelves: &[ShelfFacts]) -> Option<Choice> {
    assert!(policy.log_bytes > 0 && policy.fan_in >= 2, "tiers grow");
    if let Some(removable) = shelves.iter().position(|shelf| shelf.removable) {
        return Some(Choice::Remove(removable));
    }
    let is_wasted = |shelf: &ShelfFacts| shelf.forgotten_bytes > 0 && shelf.forgotten_bytes >= shelf.bytes.div_ceil(2);
    if let Some(wasted) = shelves.iter().position(is_wasted) {
        return Some(Choice::Merge(vec![wasted]));
    }
    let mut tiers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, shelf) in shelves.iter().enumerate() {
        tiers.entry(tier(policy, shelf.bytes)).or_default().push(at);
    }
    let full = tiers.into_values().find(|tier| tier.len() >= policy.fan_in)?;
    let oldest: Vec<usize> = full.into_iter().take(policy.fan_in).collect();
    assert!(oldest.is_sorted_by(|older, newer| older < newer), "a shelf is merged once, the oldest first");
    Some(Choice::Merge(oldest))
}

/// The tier of a shelf of `bytes`.
fn tier(policy: MergePolicy, bytes: u64) -> u32 {
    // A shelf is somewhat larger than the log that it was made from.
    let logs = bytes / policy.log_bytes / 2;
    let tier = logs.checked_ilog(policy.fan_in as u64).map_or(0, |tier| tier + 1);
    let bound = (policy.fan_in as u128).saturating_pow(tier);
    assert!(u128::from(logs) < bound, "a shelf of {bytes} bytes is below the bound of tier {tier}");
    tier
}

/// A drive, as the target of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// It takes writes.
    pub writable: bool,
    /// It stores a shelf of the merge.
    pub is_read: bool,
    /// The total size of its shelves in bytes.
    pub bytes: u64,
}

/// The drive for the result of a merge: one that takes writes; preferably one that the merge does not read; and of
/// these the one with the fewest bytes.
pub fn target(drives: &[TargetFacts]) -> Option<PoolDrive> {
    let able = drives.iter().enumerate().filter(|(_, drive)| drive.writable);
    able.min_by_key(|(_, drive)| (drive.is_read, drive.bytes)).map(|(position, _)| PoolDrive(position as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    const POLICY: MergePolicy = MergePolicy { log_bytes: 100, fan_in: 4 };

    fn shelf(bytes: u64) -> ShelfFacts {
        ShelfFacts { bytes, forgotten_bytes: 0, removable: false }
    }

    #[test]
    fn shelves_of_a_size_are_merged_oldest_first() {
        assert_eq!(choose(POLICY, &[shelf(100); 3]), None);
        assert_eq!(choose(POLICY, &[shelf(100); 5]), Some(Choice::Merge(vec![0, 1, 2, 3])));
        let mixed = [shelf(900), shelf(100), shelf(90), shelf(110), shelf(101)];
        assert_eq!(choose(POLICY, &mixed), Some(Choice::Merge(vec![1, 2, 3, 4])));
    }

    #[test]
    fn what_is_forgotten_goes_first() {
        let half = ShelfFacts { forgotten_bytes: 50, ..shelf(100) };
        assert_eq!(choose(POLICY, &[shelf(100), half]), Some(Choice::Merge(vec![1])));
        let less = ShelfFacts { forgotten_bytes: 49, ..shelf(100) };
        assert_eq!(choose(POLICY, &[shelf(100), less]), None);
        let gone = ShelfFacts { removable: true, ..shelf(100) };
        assert_eq!(choose(POLICY, &[half, gone]), Some(Choice::Remove(1)));
    }

    #[test]
    fn a_thousand_logs_are_rewritten_a_few_times_each() {
        let mut shelves: VecDeque<ShelfFacts> = VecDeque::new();
        let mut rewritten = 0;
        for _ in 0..1000 {
            shelves.push_back(shelf(104));
            while let Some(Choice::Merge(inputs)) = choose(POLICY, shelves.make_contiguous()) {
                let bytes: u64 = inputs.iter().map(|at| shelves[*at].bytes).sum();
                let first = inputs[0];
                for at in inputs.iter().rev() {
                    shelves.remove(*at);
                }
                shelves.insert(first, shelf(bytes));
                rewritten += bytes;
            }
        }
        assert!(shelves.len() <= 15, "{} shelves", shelves.len());
        assert!(rewritten <= 5 * 104_000, "five tiers of four: {rewritten}");
    }

    #[test]
    fn the_emptiest_drive_gets_the_result() {
        let drive = |writable, is_read, bytes| TargetFacts { writable, is_read, bytes };
        let drives = [drive(true, true, 1), drive(false, false, 0), drive(true, false, 5), drive(true, false, 3)];
        assert_eq!(target(&drives), Some(PoolDrive(3)));
        assert_eq!(target(&drives[..2]), Some(PoolDrive(0)));
        assert_eq!(target(&drives[1..2]), None);
    }
}
