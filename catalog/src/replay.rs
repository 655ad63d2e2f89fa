//! Replay: a store that is opened takes from its log the batches that it lacks.
//!
//! Each entry has the number of the batch that it follows, and the digest of all keys at that moment. From the store's
//! state on, each entry that follows the last applied one is applied; other entries are left alone. The store is
//! **behind** its log if the last entry of the log is not reached. Then it lacks acknowledged batches, since an older
//! copy of it was restored or the log belongs to another catalog, and the log must retain its entries for the newer
//! copy.
//!
//! The log also records which copy of the store logged each batch, and so which batches a copy lacks; `lineage`
//! decides.
//!
//! A store whose number is above all numbers in the log was remade from it without a note there: it is **ahead**, and
//! the log has nothing that it lacks. If the store's owner asks for it, the log is held unchanged until the owner has
//! copied the store elsewhere.
//!
//! A group that the store disowned (`committer.rs`) is followed by an entry that follows the same batch as the group
//! did. So a group is applied only when the next one is read, or at the end of the log.
//!
//! Replayed batches were already evaluated when they were logged: checks are not repeated. An interrupted replay
//! resumes where it stopped. Its time depends on the length of the log, its memory on the longest group and
//! transaction.

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

/// The relation of a store and its log at open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Batches that were taken from the log.
    pub(crate) batches: u64,
    /// The reason why the log has acknowledged batches that the store lacks, if so.
    pub(crate) behind: Option<String>,
}

/// A replay under way.
struct Replay<'a, R> {
    committer: &'a mut Committer<R>,
    /// The digest of the existing records.
    found: &'a mut KeyDigest,
    /// The group that was read last and is not applied yet.
    group: Vec<(Link, Vec<Write>)>,
    /// Writes of the open transaction; `None` if no transaction is open.
    open: Option<usize>,
    batches: u64,
    /// The copies that were used with the log, as recorded there.
    lineage: LogLineage,
}

impl<R: Records> Committer<R> {
    /// Takes from the log the batches that the store lacks, durably, and sets the next numbers above all in the log.
    /// `found` is the digest of the existing records; it equals the expected one unless records are missing.
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
        self.lineage.use_by(self.state.sequence);
        self.log_use.is_held.store(self.retains_log, Ordering::Relaxed);
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
        // If records are missing, a write changes other keys than it did when it was logged.
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
