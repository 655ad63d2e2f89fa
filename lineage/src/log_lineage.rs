//! The log in front of a catalog: the copy of the catalog that logged each batch.
//!
//! An older copy that uses the log marks its batches as **aside**: they belong to a copy that is not the newest one.
//! Each mark has the last number of the newest copy, as far as the log has shown it. So when the newest copy is
//! restored, it knows that these batches are not its own, and that it lacks nothing. It marks its own batches as
//! **newest** as long as the log may have batches aside. If a copy is found to be older only later, by other signs,
//! then everything in the log led to it until then: its mark says that the log does not know the newest copy.
//!
//! Every batch has a mark, not the first one alone. A log forgets its files in any order, and a pool may lack a drive
//! for a while, so any entry may be missing at a start. In the entries of an earlier Larder only the first one of a
//! copy has a mark: entries after it belong to the same copy. Numbers increase along the log whichever copy uses it, so
//! the log determines for each of its numbers if it is aside.

use crate::run::Sequence;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A statement about the copy of the store that uses the log from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is not the newest one: its batches do not concern any other copy.
    Aside {
        /// The newest copy has this batch and every one of its own before. 0 if the log does not know it.
        newest: Sequence,
    },
    /// It is the newest one.
    Newest,
}

/// The log's record of the copies that were used with it, as read when the store was opened, and of the copy that has
/// used it since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLineage {
    /// The highest number in the log.
    last: Sequence,
    /// The last mark is [`Mark::Newest`]: a part of the log that cannot be read now may have batches aside.
    is_marked_newest: bool,
    /// The highest number that the newest copy has, as far as the log shows that it is not this copy.
    newest: Sequence,
    /// The numbers that are aside: from the first one of each range to before the second. A range without a second one
    /// is open.
    aside: Vec<(Sequence, Option<Sequence>)>,
    /// Entries that cannot be read, and may contain batches that the store lacks.
    damaged: u64,
}

impl LogLineage {
    /// Adds the next entry of the log: batch `sequence`. The store itself is at `at`.
    pub fn read(&mut self, sequence: Sequence, mark: Option<Mark>, at: Sequence) {
        self.last = self.last.max(sequence);
        if let Some(Mark::Aside { newest }) = mark {
            self.newest = newest;
        }
        if let Some(mark) = mark {
            self.marked(sequence, mark);
        }
        if !self.is_aside() {
            self.newest = self.newest.max(sequence);
        }
        if sequence <= at {
            self.damaged = 0;
        }
    }

    /// The next entry of the log cannot be read.
    pub fn read_damaged(&mut self) {
        self.damaged += 1;
    }

    /// The last entry that was read follows on the state of the store: nothing is missing in between.
    pub fn follows(&mut self) {
        self.damaged = 0;
    }

    /// The highest number in the log.
    pub fn last(&self) -> Sequence {
        self.last
    }

    /// True if the last batch was logged aside.
    pub fn is_aside(&self) -> bool {
        self.aside.last().is_some_and(|(_, end)| end.is_none())
    }

    /// Why the log has acknowledged batches that the store at `at` lacks; `None` if it has none.
    pub fn behind(&self, at: Sequence) -> Option<String> {
        if self.damaged > 0 {
            return Some(format!("{} entries of the catalog's log cannot be read", self.damaged));
        }
        if self.newest > at {
            let (newest, at) = (self.newest.0, at.0);
            return Some(format!(
                "its log has batches up to number {newest} that do not follow its own last batch, number {at}"
            ));
        }
        let mut ranges = self.aside.iter().map(|(from, to)| *from..to.unwrap_or(Sequence(u64::MAX)));
        let is_aside = at <= self.last && ranges.any(|range| range.contains(&at));
        is_aside.then(|| "its log shows that it continued from a copy that was not the newest one".to_owned())
    }

    /// The store at `at` uses the log from here on. True if nothing in the log leads to it: the store is **ahead**,
    /// because it was remade from the log and the log has no entry for that.
    pub fn use_by(&mut self, at: Sequence) -> bool {
        let is_ahead = at > self.last;
        if self.behind(at).is_none() && !is_ahead {
            // The whole log leads to this copy: if it is found to be older, the log does not know the newest one.
            self.newest = Sequence(0);
        }
        is_ahead
    }

    /// The mark of the next batches of the store; `is_aside` if it is not the newest copy.
    pub fn mark_due(&self, is_aside: bool) -> Option<Mark> {
        if is_aside {
            return Some(Mark::Aside { newest: self.newest });
        }
        (self.is_marked_newest || !self.aside.is_empty()).then_some(Mark::Newest)
    }

    /// Batch `sequence` has this mark. True if batches aside begin with it: the earlier content of the log is to be
    /// retained.
    pub fn marked(&mut self, sequence: Sequence, mark: Mark) -> bool {
        let begins_aside = mark != Mark::Newest && !self.is_aside();
        self.is_marked_newest = mark == Mark::Newest;
        if begins_aside {
            self.aside.push((sequence, None));
        } else if self.is_marked_newest {
            for (_, end) in &mut self.aside {
                *end = end.or(Some(sequence));
            }
        }
        begins_aside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(u64, Option<Mark>)], at: u64) -> LogLineage {
        let mut lineage = LogLineage::default();
        for (sequence, mark) in entries {
            lineage.read(Sequence(*sequence), *mark, Sequence(at));
        }
        lineage
    }

    fn aside_of(newest: u64) -> Mark {
        Mark::Aside { newest: Sequence(newest) }
    }

    #[test]
    fn a_copy_is_behind_if_the_newest_one_is_further_or_it_is_aside_itself() {
        let plain = read(&[(5, None), (6, None)], 6);
        for (at, is_behind) in [(5, true), (6, false), (9, false)] {
            assert_eq!(plain.behind(Sequence(at)).is_some(), is_behind, "at {at}");
        }
        // One that had 6, and then an older one, and the newest again.
        let both = read(&[(6, None), (7, Some(aside_of(6))), (8, None), (9, Some(Mark::Newest))], 9);
        for (at, is_behind) in [(6, true), (7, true), (8, true), (9, false), (10, false)] {
            assert_eq!(both.behind(Sequence(at)).is_some(), is_behind, "at {at}");
        }
        let unended = read(&[(6, None), (7, Some(aside_of(6))), (8, None)], 6);
        assert!(unended.is_aside() && unended.behind(Sequence(6)).is_none() && unended.behind(Sequence(8)).is_some());
    }

    #[test]
    fn what_cannot_be_read_counts_unless_the_store_has_what_follows() {
        let mut lineage = read(&[(5, None)], 5);
        lineage.read_damaged();
        assert!(lineage.behind(Sequence(5)).is_some_and(|why| why.contains("cannot be read")));
        lineage.read(Sequence(7), None, Sequence(7));
        assert_eq!(lineage.behind(Sequence(7)), None);
        lineage.read_damaged();
        lineage.follows();
        assert_eq!(lineage.behind(Sequence(7)), None);
    }

    #[test]
    fn any_entry_of_a_log_with_marks_may_be_missing() {
        let newest = Some(Mark::Newest);
        let all = [
            (6, None),
            (7, Some(aside_of(6))),
            (8, Some(aside_of(6))),
            (9, newest),
            (10, newest),
            (11, Some(aside_of(10))),
            (12, newest),
        ];
        for left in 0..1_u32 << all.len() {
            let there = all.iter().enumerate().filter(|(at, _)| left & (1 << at) != 0).map(|(_, entry)| *entry);
            let there: Vec<(u64, Option<Mark>)> = there.collect();
            assert_eq!(read(&there, 12).behind(Sequence(12)), None, "the newest copy and {there:?}");
            for of_older in [7, 8, 11] {
                // The last entry of all is never forgotten.
                let shown = there.iter().any(|(at, _)| *at == 12);
                assert!(!shown || read(&there, of_older).behind(Sequence(of_older)).is_some(), "{of_older}: {there:?}");
            }
            let follows = there.iter().any(|(at, _)| *at > 6);
            assert_eq!(read(&there, 12).mark_due(false).is_some(), follows, "{there:?}");
        }
    }

    #[test]
    fn a_log_of_an_earlier_larder_has_its_first_marks_alone() {
        let mut lineage =
            read(&[(6, None), (7, Some(aside_of(6))), (8, None), (9, Some(Mark::Newest)), (10, None)], 10);
        assert!(lineage.behind(Sequence(8)).is_some() && lineage.behind(Sequence(10)).is_none());
        assert_eq!(lineage.mark_due(false), Some(Mark::Newest));
        assert!(lineage.marked(Sequence(11), Mark::Aside { newest: Sequence(10) }));
    }

    #[test]
    fn what_was_there_is_retained_when_batches_aside_begin() {
        let mut lineage = read(&[(5, None), (6, None)], 5);
        assert!(lineage.behind(Sequence(5)).is_some() && !lineage.use_by(Sequence(5)));
        assert_eq!((lineage.mark_due(false), lineage.mark_due(true)), (None, Some(aside_of(6))));
        let mark = Mark::Aside { newest: Sequence(6) };
        assert!(lineage.marked(Sequence(7), mark) && !lineage.marked(Sequence(8), mark));
        assert_eq!((lineage.mark_due(true), lineage.mark_due(false)), (Some(mark), Some(Mark::Newest)));
        assert!(!lineage.marked(Sequence(9), Mark::Newest));
        assert!(lineage.marked(Sequence(10), mark), "the older one is put back once more");
        // A copy to which everything leads, and which is found to be older later.
        let mut lineage = read(&[(5, None)], 5);
        assert!(!lineage.use_by(Sequence(5)));
        assert_eq!(lineage.mark_due(true), Some(aside_of(0)));
        // A copy that was made again from the log keeps the log's knowledge of the newest one.
        let mut lineage = read(&[(5, None)], 5);
        assert!(lineage.use_by(Sequence(9)));
        assert_eq!(lineage.mark_due(true), Some(aside_of(5)));
    }
}
