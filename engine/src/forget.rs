//! Choosing the ranges of keys by which a log forgets small records that have moved, and keeping those ranges few.
//!
//! A log forgets a range of keys with one record: every record in the range with a number up to a limit is gone. The
//! records that moved to the rack in one pack are in key order, among others that stay: too young, pinned elsewhere, or
//! being read. So a range must not contain a record that stays and has a number up to the range's limit.
//!
//! 1. The records are passed in key order, both those that stay and those that go.
//! 2. A few ranges are open at a time. A record that goes joins one of them, if that hides no record that stays between
//!    the ends of the range. Of several such ranges it takes the one that the fewest other records can join. Otherwise
//!    it starts a new range, if necessary in place of the open range that the fewest other records can join.
//! 3. If far more records stay than go, the search for ranges costs more than it saves: the remaining records go one by
//!    one.
//!
//! Records that move are mostly older than those that stay, and older records have smaller numbers: then all of a pack
//! is one range. Records that came back from the rack are old but have large numbers; for their sake several ranges are
//! open.

use alloc::vec::Vec;

/// Ranges that are open at a time.
const OPEN_MAX: usize = 4;

/// The records that stay and may be passed in any case before the search stops, in addition to [`STAY_PER_RECORD`].
const STAY_MIN: u64 = 4096;

/// The records that stay and may be passed for each record that goes.
const STAY_PER_RECORD: u64 = 16;

/// The range of a record that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// It belongs to the open range of this number.
    Open(usize),
    /// It begins a range, which has this number from now on.
    New {
        /// The number of the open range.
        range: usize,
        /// The range that had this number before is complete, and hides record numbers up to this one.
        completed: Option<u64>,
    },
}

/// An open range.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// The smallest number among the records that stay, from the range's first record on.
    up_to: u64,
    /// The smallest number that stays, of all records since its first.
    least_that_stays: u64,
}

/// The ranges of one pack. See the head of this file.
#[derive(Clone, Debug)]
pub struct Ranges {
    open: Vec<Range>,
    /// The records that stay and may still be passed.
    passes: u64,
}

impl Ranges {
    /// The search for a pack with `records` records that go.
    pub fn new(records: u64) -> Self {
        let passes = records.saturating_mul(STAY_PER_RECORD).saturating_add(STAY_MIN);
        Self { open: Vec::with_capacity(OPEN_MAX), passes }
    }

    /// The next record in key order stays. False if the search stops: all following records go one by one.
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

    /// The largest number that goes by the open range `range`.
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

    /// The fewest ranges one after the other, by trying all.
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
