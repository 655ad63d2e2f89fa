//! The lengths of the parts that an object was uploaded in.
//!
//! Clients cut objects into parts of one length and a shorter last one, so lengths are stored as runs: two for nearly
//! every object, regardless of the number of parts.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Maximum number of parts of an upload, and the highest number of a part.
pub const PARTS_MAX: u32 = 10_000;

/// The lengths of an object's parts in order; empty for an object that was uploaded in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartLengths {
    /// The runs: a number of consecutive parts, and the length of each in bytes. Neighbours differ in length.
    runs: Vec<(u32, u64)>,
}

impl PartLengths {
    /// Adds a part of `bytes` bytes at the end.
    pub fn push(&mut self, bytes: u64) {
        self.push_run(1, bytes);
    }

    /// Adds `count` parts of `bytes` bytes each at the end.
    pub fn push_run(&mut self, count: u32, bytes: u64) {
        match self.runs.last_mut() {
            Some(last) if last.1 == bytes => last.0 = last.0.saturating_add(count),
            _ if count > 0 => self.runs.push((count, bytes)),
            _ => {}
        }
    }

    /// The runs: a number of consecutive parts, and the length of each in bytes.
    pub fn runs(&self) -> &[(u32, u64)] {
        &self.runs
    }

    /// The number of parts; 0 for an object that was uploaded in one piece.
    pub fn count(&self) -> u32 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.0))
    }

    /// True for an object that was uploaded in one piece.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The byte range of part `number`, counted from 1. `None` if there is no such part.
    pub fn range(&self, number: u32) -> Option<Range<u64>> {
        let mut before = number.checked_sub(1)?;
        let mut start = 0_u64;
        for &(count, bytes) in &self.runs {
            if before < count {
                start = start.saturating_add(bytes.saturating_mul(u64::from(before)));
                return Some(start..start.saturating_add(bytes));
            }
            before -= count;
            start = start.saturating_add(bytes.saturating_mul(u64::from(count)));
        }
        None
    }

    /// The number of the part that contains byte `at`, counted from 1. `None` after the end.
    pub fn part_at(&self, at: u64) -> Option<u32> {
        let (mut number, mut start) = (1_u32, 0_u64);
        for &(count, bytes) in &self.runs {
            let run_bytes = bytes.saturating_mul(u64::from(count));
            if at - start < run_bytes {
                return Some(number + ((at - start) / bytes) as u32);
            }
            number = number.saturating_add(count);
            start = start.saturating_add(run_bytes);
        }
        None
    }
}

impl FromIterator<u64> for PartLengths {
    fn from_iter<I: IntoIterator<Item = u64>>(lengths: I) -> Self {
        let mut parts = Self::default();
        lengths.into_iter().for_each(|bytes| parts.push(bytes));
        parts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_say_what_a_list_of_lengths_says(lengths in proptest::collection::vec(0_u64..4, 0..40)) {
            let parts: PartLengths = lengths.iter().copied().collect();
            prop_assert_eq!(parts.count() as usize, lengths.len());
            prop_assert!(parts.runs().windows(2).all(|two| two[0].1 != two[1].1));
            let mut start = 0;
            for (index, bytes) in lengths.iter().enumerate() {
                let number = index as u32 + 1;
                prop_assert_eq!(parts.range(number), Some(start..start + bytes));
                for at in start..start + bytes {
                    prop_assert_eq!(parts.part_at(at), Some(number));
                }
                start += bytes;
            }
            prop_assert_eq!(parts.part_at(start), None);
            prop_assert_eq!((parts.range(0), parts.range(lengths.len() as u32 + 1)), (None, None));
        }
    }

    #[test]
    fn ten_thousand_parts_of_one_length_are_two_runs() {
        let parts: PartLengths = std::iter::repeat_n(8 << 20, 9_999).chain([5]).collect();
        assert_eq!(parts.runs(), [(9_999, 8 << 20), (1, 5)]);
        assert_eq!(parts.range(10_000), Some(9_999 * (8 << 20)..9_999 * (8 << 20) + 5));
    }
}
