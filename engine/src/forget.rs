//! Forgetting what has moved: which small records of the log go by ranges of keys, and how few ranges that takes.
//!
//! A log forgets a range of keys by one record of its own: everything in it with a number up to a limit is gone. What
//! moved to the rack in one pack are records in key order, among others that stay: too young, pinned elsewhere, being
//! read. So a range may not have any record that stays with a number up to its limit.
//!
//! 1. The records are passed in key order, those that stay among those that go.
//! 2. A few ranges are open at a time. A record that goes joins one of them, if no record that stays between the two
//!    ends of that would be hidden then; of several, the one that can join the fewest others. Else it begins a range
//!    of its own, if need be in the place of the open one that can join the fewest others.
//! 3. Where far more records stay than go, looking for ranges costs more than it saves: the rest goes one by one.
//!
//! What moves is mostly older than what stays, and older records have smaller numbers: then all of a pack is one range.
//! Those that came back from the rack are old and have large numbers; this is why several ranges are open.

use alloc::vec::Vec;

/// Ranges that are open at a time.
const OPEN_MAX: usize = 4;

/// Records that stay and are passed before the search is given up, beside [`STAY_PER_RECORD`] for each that goes.
const STAY_MIN: u64 = 4096;

/// Records that stay and may be passed for each that goes.
const STAY_PER_RECORD: u64 = 16;

/// What becomes of a record that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// It belongs to the open range of this number.
    Open(usize),
    /// It begins a range, which has this number from now on.
    New {
        /// The number of the open range.
        range: usize,
        /// The range that had this number before is complete, and hides numbers up to this one.
        completed: Option<u64>,
    },
}

/// An open range.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// The largest number that goes by it.
    up_to: u64,
    /// The smallest number that stays, of all records since its first.
    least_that_stays: u64,
}

/// The ranges of one pack. See the head of this file.
#[derive(Clone, Debug)]
pub struct Ranges {
    open: Vec<Range>,
    /// Records that stay and may still be passed over.
    passes: u64,
}

impl Ranges {
    /// For a pack of which `records` records are to go.
    pub fn new(records: u64) -> Self {
        let passes = records.saturating_mul(STAY_PER_RECORD).saturating_add(STAY_MIN);
        Self { open: Vec::with_capacity(OPEN_MAX), passes }
    }

    /// The next record in key order stays. False if the search is given up: all that follow go one by one.
    pub fn stays(&mut self, number: u64) -> bool {
        for range in &mut self.open {
            range.least_that_stays = range.least_that_stays.min(number);
        }
        self.passes = self.passes.saturating_sub(1);
        self.passes > 0
    }

    /// The next record in key order goes.
    pub fn goes(&mut self, number: u64) -> Joins {
        let bears = |range: &Range| range.up_to.max(number) < range.least_that_stays;
        let bearing = (0..self.open.len()).filter(|at| bears(&self.open[*at]));
        if let Some(at) = bearing.min_by_key(|at| self.open[*at].least_that_stays) {
            self.open[at].up_to = self.open[at].up_to.max(number);
            return Joins::Open(at);
        }
        let new = Range { up_to: number, least_that_stays: u64::MAX };
        if self.open.len() < OPEN_MAX {
            self.open.push(new);
            return Joins::New { range: self.open.len() - 1, completed: None };
        }
        let least = (0..OPEN_MAX).min_by_key(|at| self.open[*at].least_that_stays).unwrap_or(0);
        let completed = self.up_to(least);
        self.open[least] = new;
        Joins::New { range: least, completed: Some(completed) }
    }

    /// The largest number that goes by the open range of this number.
    pub fn up_to(&self, range: usize) -> u64 {
        self.open[range].up_to
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::vec::Vec;
    use model::Rng;

    /// The ranges of `records` (number, goes), each by its first and last position and its limit.
    fn ranges(records: &[(u64, bool)]) -> Vec<(usize, usize, u64)> {
        let mut search = Ranges::new(records.iter().filter(|(_, goes)| *goes).count() as u64);
        let (mut complete, mut open): (Vec<_>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        for (at, (number, goes)) in records.iter().enumerate() {
            if !goes {
                assert!(search.stays(*number), "short lists are gone through");
                continue;
            }
            match search.goes(*number) {
                Joins::Open(range) => open[range].1 = at,
                Joins::New { range, completed: None } => {
                    assert_eq!(range, open.len());
                    open.push((at, at));
                }
                Joins::New { range, completed: Some(up_to) } => {
                    let (first, last) = core::mem::replace(&mut open[range], (at, at));
                    complete.push((first, last, up_to));
                }
            }
        }
        let rest = open.iter().enumerate().map(|(range, (first, last))| (*first, *last, search.up_to(range)));
        complete.into_iter().chain(rest).collect()
    }

    fn is_allowed(records: &[(u64, bool)]) -> bool {
        let up_to = records.iter().filter(|(_, goes)| *goes).map(|(number, _)| *number).max();
        records.iter().all(|(number, goes)| *goes || Some(*number) > up_to)
    }

    /// The fewest ranges one behind the other, by trying all.
    fn fewest(records: &[(u64, bool)]) -> usize {
        let Some(first) = records.iter().position(|(_, goes)| *goes) else { return 0 };
        let ends = (first..records.len()).filter(|end| records[*end].1 && is_allowed(&records[first..=*end]));
        1 + ends.map(|end| fewest(&records[end + 1..])).min().unwrap()
    }

    #[test]
    fn what_is_older_than_all_that_stays_is_one_range_wherever_it_lies() {
        let mut rng = Rng::for_thing(1, 0);
        let mut records: Vec<(u64, bool)> = (1..=5_000).map(|number| (number, number <= 3_000)).collect();
        for at in (1..records.len()).rev() {
            records.swap(at, rng.below(at as u64 + 1) as usize);
        }
        assert_eq!(ranges(&records).len(), 1);
        // One that stays although it is old splits it, and no more; those that go though they are young cost one each.
        let old = records.iter().position(|(number, _)| *number == 17).unwrap();
        records[old].1 = false;
        assert_eq!(ranges(&records).len(), 2);
        for number in [4_000, 4_500, 5_000] {
            let young = records.iter().position(|(found, _)| *found == number).unwrap();
            records[young].1 = true;
        }
        assert!(ranges(&records).len() <= 5);
    }

    #[test]
    fn nothing_that_stays_is_hidden_everything_else_is_and_no_ranges_one_behind_the_other_are_fewer() {
        let mut rng = Rng::for_thing(2, 0);
        for round in 0..3_000 {
            let mut numbers: Vec<u64> = (1..=rng.below(11)).collect();
            for at in (1..numbers.len()).rev() {
                numbers.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let records: Vec<(u64, bool)> = numbers.into_iter().map(|number| (number, rng.below(3) > 0)).collect();
            let found = ranges(&records);
            for (at, (number, goes)) in records.iter().enumerate() {
                let hides =
                    |(first, last, up_to): &(usize, usize, u64)| (*first..=*last).contains(&at) && number <= up_to;
                assert_eq!(found.iter().any(hides), *goes, "round {round}: {at} of {records:?}, {found:?}");
            }
            assert!(found.len() <= fewest(&records), "round {round}: {records:?}");
        }
    }

    #[test]
    fn a_few_among_very_many_are_not_looked_for() {
        let mut search = Ranges::new(2);
        assert_eq!(search.goes(1), Joins::New { range: 0, completed: None });
        let passed = (0..2 * STAY_MIN).take_while(|number| search.stays(10 + number)).count() as u64;
        assert!(passed < STAY_MIN + 2 * STAY_PER_RECORD, "{passed}");
        assert_eq!(search.up_to(0), 1);
    }
}
