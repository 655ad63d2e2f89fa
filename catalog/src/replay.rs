//! Replay: a store that is opened takes from its log what it does not have.
//!
//! Entries name the batch that they follow on, and the digest of all keys at that moment. Beginning at the store's
//! state, each entry that follows on the last one is applied. Entries that follow on nothing stay where they are, and
//! the store is **behind** its log if the last entry of all is not reached: then batches were acknowledged that it does
//! not have, since an older copy of it was put back, or the log is another catalog's. Then the log is to retain what it
//! has, for the newer copy.
//!
//! An older copy that goes on with the log marks its first batch: from there on batches are **aside**, those of a copy
//! that is not the newest one, of which the log knows the number that it had reached at least. So the newest one knows,
//! when it is put back, that what was logged since is not its own, and that it lacks nothing; and marks its own first
//! batch in turn. A copy that was found to be older by other signs, later, has shown until then that everything in the
//! log leads to it, so its mark says that the log knows nothing of the newest one. Numbers grow along the log whatever
//! copies use it: of each number in it it is known if it is aside.
//!
//! A store whose number is above all in the log was made again from it, without a word there: it is **ahead**, and the
//! log lacks nothing for it. Nothing in the log leads to it: so its mark aside, if it is found to be older, says what
//! the newest one has; and the log is held as it is, if the store's owner asks for that, until the owner has kept the
//! store otherwise.
//!
//! A group that the store disowned (`committer.rs`) is followed by an entry that follows on the same batch as the group
//! did. So a group is applied only when the next one is seen, or the end of the log.
//!
//! What is replayed is what was evaluated when it was logged: checks are not repeated. A replay that is cut short goes
//! on where it was. Its time follows from the length of the log, its memory from the longest group and transaction.

use crate::committer::{Committer, Failure, Records, failure_of_log};
use crate::error::StoreError;
use crate::key_digest::KeyDigest;
use crate::log::CommitLog;
use crate::log_entry::{self, Link, Mark};
use crate::seal::Sequence;
use crate::store::Write;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Writes of a transaction, unless a single batch has more.
const TRANSACTION_WRITES: usize = 16_384;

/// How a store and its log fitted when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Batches that were taken from the log.
    pub(crate) batches: u64,
    /// Why the log has acknowledged batches that the store has not, if that is so.
    pub(crate) behind: Option<String>,
}

/// A replay under way.
struct Replay<'a, R> {
    committer: &'a mut Committer<R>,
    /// The digest of the records that are there.
    found: &'a mut KeyDigest,
    /// The group that was read last, and is not applied yet.
    group: Vec<(Link, Vec<Write>)>,
    /// Writes of the open transaction; `None` if there is none.
    open: Option<usize>,
    batches: u64,
    /// The highest number in the log.
    last: Sequence,
    /// The highest one that the newest copy has, as far as the log shows.
    newest: Sequence,
    /// The numbers that are aside: from the first one of each range to before the second.
    aside: Vec<(Sequence, Option<Sequence>)>,
    /// Entries that cannot be read, and may be of batches that the store has not.
    damaged: u64,
}

impl<R: Records> Committer<R> {
    /// Takes from the log what the store does not have, durably, and numbers what follows above all that the log has.
    /// `found` is the digest of the records that are there: that of those which should be, unless some are missing.
    pub(crate) fn replay(&mut self, found: &mut KeyDigest) -> Result<Replayed, StoreError> {
        let Some(log) = self.log.clone() else { return Ok(Replayed::default()) };
        let (group, aside, zero) = (Vec::new(), Vec::new(), Sequence(0));
        let (open, batches, last, newest, damaged) = (None, 0, zero, zero, 0);
        let mut replay = Replay { committer: self, found, group, open, batches, last, newest, aside, damaged };
        let done = replay.run(&*log);
        let (replayed, last, newest) = (replay.replayed(), replay.last, replay.newest);
        let is_log_aside = replay.aside.last().is_some_and(|(_, end)| end.is_none());
        done.map_err(|failure| self.break_after(failure))?;
        (self.floor, self.logged) = (self.floor.max(last), last);
        let is_ahead = self.state.sequence > last;
        self.log_use.is_held.store(self.holds_log && is_ahead, Ordering::Relaxed);
        let leads_here = replayed.behind.is_none() && !is_ahead;
        (self.newest, self.is_log_aside) = (if leads_here { zero } else { newest }, is_log_aside);
        self.log_use.is_aside.store(replayed.behind.is_some(), Ordering::Relaxed);
        self.log_use.ended_aside.store(is_log_aside, Ordering::Relaxed);
        if is_log_aside && replayed.behind.is_some() {
            log.retain();
        }
        if replayed.batches > 0 {
            tracing::info!(batches = replayed.batches, "batches were taken from the catalog's log");
        }
        Ok(replayed)
    }
}

impl<R: Records> Replay<'_, R> {
    fn run(&mut self, log: &dyn CommitLog) -> Result<(), Failure> {
        let mut applied = Ok(());
        let read = log.replay(&mut |entry| {
            applied = self.take(entry);
            if applied.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let done = applied.and(read.map_err(failure_of_log));
        let done = done.and_then(|()| self.apply_group()).and_then(|()| self.end_transaction());
        if done.is_err() {
            self.committer.records.roll_back()?;
        }
        done
    }

    fn replayed(&self) -> Replayed {
        let (at, newest) = (self.committer.state.sequence, self.newest);
        let behind = if self.damaged > 0 {
            Some(format!("{} entries of the catalog's log cannot be read", self.damaged))
        } else if newest > at {
            let (newest, at) = (newest.0, at.0);
            Some(format!(
                "its log has batches up to number {newest} that do not follow on its own last one, number {at}"
            ))
        } else {
            let mut ranges = self.aside.iter().map(|(from, to)| *from..to.unwrap_or(Sequence(u64::MAX)));
            let is_aside = at <= self.last && ranges.any(|range| range.contains(&at));
            is_aside.then(|| "its log says that it went on from a copy that was not the newest one".to_owned())
        };
        Replayed { batches: self.batches, behind }
    }

    fn take(&mut self, entry: &[u8]) -> Result<(), Failure> {
        let (link, writes) = match log_entry::decode(entry) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::error!(%error, "an entry of the catalog's log is damaged");
                self.damaged += 1;
                return Ok(());
            }
        };
        self.last = self.last.max(link.sequence);
        self.note(&link);
        if self.group.first().is_some_and(|(first, _)| first.before == link.before) {
            self.group.clear();
        } else if self.group.last().is_some_and(|(last, _)| last.is_group_end) {
            self.apply_group()?;
        }
        if self.follows(&link) {
            // What follows on it shows that nothing is missing in between.
            self.damaged = 0;
            self.group.push((link, writes));
        }
        Ok(())
    }

    /// What `link` says of the copies that were used with the log.
    fn note(&mut self, link: &Link) {
        match link.mark {
            Some(Mark::Aside { newest }) => {
                self.newest = newest;
                self.aside.push((link.sequence, None));
            }
            Some(Mark::Newest) => self.aside.iter_mut().for_each(|(_, end)| *end = end.or(Some(link.sequence))),
            None => {}
        }
        let is_aside = self.aside.last().is_some_and(|(_, end)| end.is_none());
        if !is_aside {
            self.newest = self.newest.max(link.sequence);
        }
        if link.sequence <= self.committer.state.sequence {
            self.damaged = 0;
        }
    }

    fn follows(&self, link: &Link) -> bool {
        let state = &self.committer.state;
        let end = (state.sequence, state.expected.keys);
        let end = self.group.last().map_or(end, |(last, _)| (last.sequence, last.keys_after));
        (link.before, link.keys_before) == end && link.sequence > link.before
    }

    fn apply_group(&mut self) -> Result<(), Failure> {
        for (link, writes) in std::mem::take(&mut self.group) {
            self.apply(&link, &writes)?;
        }
        Ok(())
    }

    fn apply(&mut self, link: &Link, writes: &[Write]) -> Result<(), Failure> {
        if self.open.is_none() {
            self.committer.records.begin()?;
        }
        for write in writes {
            self.committer.records.write(write, link.sequence, self.found)?;
        }
        let state = &mut self.committer.state;
        state.sequence = link.sequence;
        // Where records are missing, a write changes other keys than it did then.
        state.expected.keys = link.keys_after;
        state.expected.missing = link.keys_after.minus(*self.found);
        self.batches += 1;
        let open = self.open.unwrap_or_default() + writes.len();
        self.open = Some(open);
        if open < TRANSACTION_WRITES { Ok(()) } else { self.end_transaction() }
    }

    fn end_transaction(&mut self) -> Result<(), Failure> {
        if self.open.take().is_none() {
            return Ok(());
        }
        let state = self.committer.state;
        self.committer.records.set_state(state)?;
        self.committer.records.commit()
    }
}
