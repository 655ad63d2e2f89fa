//! Replay: a store that is opened takes from its log what it does not have.
//!
//! Entries name the batch that they follow on, and the digest of all keys at that moment. Beginning at the store's
//! state, each entry that follows on the last one is applied. Entries that follow on nothing stay where they are, and
//! the store is **behind** its log if the last entry of all is not reached: then batches were acknowledged that it does
//! not have, since an older copy of it was put back, or the log is another catalog's. Then the log is to retain what it
//! has, for the newer copy.
//!
//! The log also says which copy of the store logged what, and so which batches a copy lacks; `lineage` judges that.
//!
//! A store whose number is above all in the log was made again from it, without a word there: it is **ahead**, and the
//! log lacks nothing for it. The log is held as it is, if the store's owner asks for that, until the owner has kept the
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
use crate::log_entry::{self, Link};
use crate::store::Write;
use lineage::LogLineage;
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
    /// What the log says of the copies that were used with it.
    lineage: LogLineage,
}

impl<R: Records> Committer<R> {
    /// Takes from the log what the store does not have, durably, and numbers what follows above all that the log has.
    /// `found` is the digest of the records that are there: that of those which should be, unless some are missing.
    pub(crate) fn replay(&mut self, found: &mut KeyDigest) -> Result<Replayed, StoreError> {
        let Some(log) = self.log.clone() else { return Ok(Replayed::default()) };
        let (group, open, batches, lineage) = (Vec::new(), None, 0, LogLineage::default());
        let mut replay = Replay { committer: self, found, group, open, batches, lineage };
        let done = replay.run(&*log);
        let (batches, lineage) = (replay.batches, replay.lineage);
        done.map_err(|failure| self.break_after(failure))?;
        let replayed = Replayed { batches, behind: lineage.behind(self.state.sequence) };
        self.use_log_of(lineage, &replayed);
        if self.lineage.is_aside() && replayed.behind.is_some() {
            log.retain();
        }
        if replayed.batches > 0 {
            tracing::info!(batches = replayed.batches, "batches were taken from the catalog's log");
        }
        Ok(replayed)
    }

    /// Uses a log of this lineage from here on.
    fn use_log_of(&mut self, lineage: LogLineage, replayed: &Replayed) {
        self.lineage = lineage;
        (self.floor, self.logged) = (self.floor.max(self.lineage.last()), self.lineage.last());
        // Neither may be in the journal: what the log does not lead to, and what was just taken from the log.
        let is_new = self.lineage.use_by(self.state.sequence) || replayed.batches > 0;
        self.log_use.is_held.store(self.holds_log && is_new, Ordering::Relaxed);
        self.log_use.is_aside.store(replayed.behind.is_some(), Ordering::Relaxed);
        self.log_use.ended_aside.store(self.lineage.is_aside(), Ordering::Relaxed);
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

    fn take(&mut self, entry: &[u8]) -> Result<(), Failure> {
        let (link, writes) = match log_entry::decode(entry) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::error!(%error, "an entry of the catalog's log is damaged");
                self.lineage.read_damaged();
                return Ok(());
            }
        };
        self.lineage.read(link.sequence, link.mark, self.committer.state.sequence);
        if self.group.first().is_some_and(|(first, _)| first.before == link.before) {
            self.group.clear();
        } else if self.group.last().is_some_and(|(last, _)| last.is_group_end) {
            self.apply_group()?;
        }
        if self.follows(&link) {
            self.lineage.follows();
            self.group.push((link, writes));
        }
        Ok(())
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
