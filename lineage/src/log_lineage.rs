//! The log in front of a catalog: which of its batches are of which copy.
//!
//! An older copy that goes on with the log marks its first batch: from there on batches are **aside**, those of a copy
//! that is not the newest one. The log knows the number that the newest one had reached at least. So the newest one
//! knows, when it is put back, that what was logged since is not its own, and that it lacks nothing; and marks its own
//! batches in turn: all of them, as long as the log may have batches aside, since a log forgets its files in any order,
//! and a mark that is gone must not make the newest copy an older one. A copy that was found to be older by other signs, later, has shown until then that everything
//! in the log leads to it, so its mark says that the log knows nothing of the newest one. Numbers grow along the log
//! whatever copies use it: of each number in it it is known if it is aside.

use crate::run::Sequence;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A statement on the copy of the store that a log is used with from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is not the newest one: its batches are of no concern to any other copy.
    Aside {
        /// The newest one has this batch, and every one of its own before. 0 if the log does not know it.
        newest: Sequence,
    },
    /// It is the newest one.
    Newest,
}

/// What a log says of the copies that were used with it: first read from it, then kept while a copy goes on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLineage {
    /// The highest number in the log.
    last: Sequence,
    /// The highest one that the newest copy has, as far as the log shows that it is not this one.
    newest: Sequence,
    /// The numbers that are aside: from the first one of each range to before the second.
    aside: Vec<(Sequence, Option<Sequence>)>,
    /// Entries that cannot be read, and may be of batches that the store has not.
    damaged: u64,
}

impl LogLineage {
    /// The next entry of the log: batch `sequence`. The store itself is at `at`.
    pub fn read(&mut self, sequence: Sequence, mark: Option<Mark>, at: Sequence) {
        self.last = self.last.max(sequence);
        match mark {
            Some(Mark::Aside { newest }) => {
                self.newest = newest;
                self.aside.push((sequence, None));
            }
            Some(Mark::Newest) => self.end_aside(sequence),
            None => {}
        }
        if !self.is_aside() {
            self.newest = self.newest.max(sequence);
        }
        if sequence <= at {
            self.damaged = 0;
        }
    }

    fn end_aside(&mut self, sequence: Sequence) {
        for (_, end) in &mut self.aside {
            *end = end.or(Some(sequence));
        }
    }

    /// The next entry of the log cannot be read.
    pub fn read_damaged(&mut self) {
        self.damaged += 1;
    }

    /// The entry that was read last follows on what the store has: nothing is missing in between.
    pub fn follows(&mut self) {
        self.damaged = 0;
    }

    /// The highest number in the log.
    pub fn last(&self) -> Sequence {
        self.last
    }

    /// True if what was logged last was logged aside.
    pub fn is_aside(&self) -> bool {
        self.aside.last().is_some_and(|(_, end)| end.is_none())
    }

    /// Why the log has acknowledged batches that the store at `at` has not, if that is so.
    pub fn behind(&self, at: Sequence) -> Option<String> {
        if self.damaged > 0 {
            return Some(format!("{} entries of the catalog's log cannot be read", self.damaged));
        }
        if self.newest > at {
            let (newest, at) = (self.newest.0, at.0);
            return Some(format!(
                "its log has batches up to number {newest} that do not follow on its own last one, number {at}"
            ));
        }
        let mut ranges = self.aside.iter().map(|(from, to)| *from..to.unwrap_or(Sequence(u64::MAX)));
        let is_aside = at <= self.last && ranges.any(|range| range.contains(&at));
        is_aside.then(|| "its log says that it went on from a copy that was not the newest one".to_owned())
    }

    /// The store at `at` goes on with the log. True if nothing in the log leads to it: it is **ahead**, made again from
    /// the log without a word there.
    pub fn go_on(&mut self, at: Sequence) -> bool {
        let is_ahead = at > self.last;
        if self.behind(at).is_none() && !is_ahead {
            // All of it leads here: if this copy is found to be older, the log knows nothing of the newest one.
            self.newest = Sequence(0);
        }
        is_ahead
    }

    /// The mark that the next batch of the store needs; `is_aside` if the store is not the newest copy. Its first batch
    /// says so, and the log retains that. Each batch of the newest copy says so while the log has batches aside.
    pub fn mark_due(&self, is_aside: bool) -> Option<Mark> {
        match (is_aside, self.is_aside()) {
            (true, false) => Some(Mark::Aside { newest: self.newest }),
            (true, true) => None,
            (false, _) => (!self.aside.is_empty()).then_some(Mark::Newest),
        }
    }

    /// The store logged batch `sequence` with `mark`. What the log had before a mark aside is to be retained.
    pub fn marked(&mut self, sequence: Sequence, mark: Mark) {
        match mark {
            Mark::Aside { .. } => self.aside.push((sequence, None)),
            Mark::Newest => self.end_aside(sequence),
        }
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

    fn aside(newest: u64) -> Option<Mark> {
        Some(Mark::Aside { newest: Sequence(newest) })
    }

    #[test]
    fn a_copy_is_behind_if_the_newest_one_is_further_or_it_is_aside_itself() {
        let plain = read(&[(5, None), (6, None)], 6);
        for (at, is_behind) in [(5, true), (6, false), (9, false)] {
            assert_eq!(plain.behind(Sequence(at)).is_some(), is_behind, "at {at}");
        }
        // One that had 6, and then an older one, and the newest again.
        let both = read(&[(6, None), (7, aside(6)), (8, None), (9, Some(Mark::Newest))], 9);
        for (at, is_behind) in [(6, true), (7, true), (8, true), (9, false), (10, false)] {
            assert_eq!(both.behind(Sequence(at)).is_some(), is_behind, "at {at}");
        }
        let unended = read(&[(6, None), (7, aside(6)), (8, None)], 6);
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
    fn the_newest_copy_marks_each_batch_while_the_log_has_batches_aside() {
        let newest = Some(Mark::Newest);
        // The log has forgotten the batches 8 to 10, and has an older file still.
        let mut lineage = read(&[(6, None), (7, aside(6)), (11, newest), (12, newest)], 12);
        assert_eq!(lineage.behind(Sequence(12)), None);
        assert!(!lineage.go_on(Sequence(12)));
        for sequence in 13..15 {
            assert_eq!(lineage.mark_due(false), newest);
            lineage.marked(Sequence(sequence), Mark::Newest);
        }
        assert!(lineage.behind(Sequence(7)).is_some() && lineage.behind(Sequence(14)).is_none());
        assert_eq!(read(&[(11, newest)], 11).mark_due(false), None, "no batch is aside any more");
    }

    #[test]
    fn each_change_of_copies_is_marked() {
        let mut lineage = read(&[(5, None), (6, None)], 5);
        assert!(lineage.behind(Sequence(5)).is_some() && !lineage.go_on(Sequence(5)));
        assert_eq!(lineage.mark_due(false), None);
        assert_eq!(lineage.mark_due(true), aside(6));
        lineage.marked(Sequence(7), Mark::Aside { newest: Sequence(6) });
        assert_eq!((lineage.mark_due(true), lineage.mark_due(false)), (None, Some(Mark::Newest)));
        lineage.marked(Sequence(8), Mark::Newest);
        assert_eq!(lineage.mark_due(true), aside(6), "it is put back, and the older one again");
        // A copy to which everything leads, and which is found to be older later.
        let mut lineage = read(&[(5, None)], 5);
        assert!(!lineage.go_on(Sequence(5)));
        assert_eq!(lineage.mark_due(true), aside(0));
        // A copy that was made again from the log keeps what the log says of the newest one.
        let mut lineage = read(&[(5, None)], 5);
        assert!(lineage.go_on(Sequence(9)));
        assert_eq!(lineage.mark_due(true), aside(5));
    }
}
