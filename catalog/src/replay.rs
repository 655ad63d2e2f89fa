//! Replay: a store that is opened takes from its log what it does not have.
//!
//! Entries name the batch that they follow on, and the digest of all keys at that moment. Beginning at the store's
//! state, each entry that follows on the last one is applied. Where several follow on the same batch only the last of
//! them counts: the store has disowned the others (`committer.rs`). Entries that follow on nothing stay where they are,
//! and the store is **behind** its log if the last entry of all is not reached: then batches were acknowledged that it
//! does not have, since an older copy of it was put back, or the log is another catalog's.
//!
//! What is replayed is what was evaluated when it was logged: checks are not repeated. A replay that is cut short goes
//! on where it was. Its time and memory follow from the length of the log: 16 bytes for each entry, and a transaction.

use crate::committer::{Committer, Failure, Records, failure_of_log};
use crate::error::StoreError;
use crate::key_digest::KeyDigest;
use crate::log::CommitLog;
use crate::log_entry::{self, Link};
use crate::seal::Sequence;
use crate::store::Write;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

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

/// The entries of a log behind a store's last batch.
#[derive(Default)]
struct Chain {
    /// By number before: the number of the last entry that follows on it.
    next: BTreeMap<Sequence, Sequence>,
    /// The highest number.
    last: Sequence,
    /// Entries that cannot be read.
    damaged: u64,
}

impl Chain {
    fn of(log: &dyn CommitLog, after: Sequence) -> Result<Self, Failure> {
        let mut chain = Self::default();
        let replayed = log.replay(after, &mut |entry| {
            match log_entry::link(entry) {
                Ok(Link { before, sequence, .. }) => {
                    chain.next.insert(before, sequence);
                    chain.last = chain.last.max(sequence);
                }
                Err(error) => {
                    tracing::error!(%error, "an entry of the log is damaged");
                    chain.damaged += 1;
                }
            }
            ControlFlow::Continue(())
        });
        replayed.map(|()| chain).map_err(failure_of_log)
    }

    /// Why a store that is at `at` when everything is replayed is behind the log, if it is.
    fn behind(&self, at: Sequence) -> Option<String> {
        if self.damaged > 0 {
            return Some(format!("{} entries of the catalog's log cannot be read", self.damaged));
        }
        let text = || {
            let (last, at) = (self.last.0, at.0);
            format!("its log has batches up to number {last} that do not follow on its own last one, number {at}")
        };
        (self.last > at).then(text)
    }
}

/// A replay under way.
struct Replay<'a, R> {
    committer: &'a mut Committer<R>,
    /// The digest of the records that are there.
    found: &'a mut KeyDigest,
    /// Writes of the open transaction; `None` if there is none.
    open: Option<usize>,
    batches: u64,
}

impl<R: Records> Committer<R> {
    /// Takes from the log what the store does not have, durably, and numbers what follows above all that the log has.
    /// `found` is the digest of the records that are there: that of those which should be, unless some are missing.
    pub(crate) fn replay(&mut self, found: &mut KeyDigest) -> Result<Replayed, StoreError> {
        let Some(log) = self.log.clone() else { return Ok(Replayed::default()) };
        let chain = Chain::of(&*log, self.state.sequence).map_err(|failure| self.break_after(failure))?;
        let mut replay = Replay { committer: self, found, open: None, batches: 0 };
        let done = replay.run(&*log, &chain);
        let batches = replay.batches;
        done.map_err(|failure| self.break_after(failure))?;
        self.floor = self.floor.max(chain.last);
        if batches > 0 {
            tracing::info!(batches, "batches were taken from the catalog's log");
        }
        Ok(Replayed { batches, behind: chain.behind(self.state.sequence) })
    }
}

impl<R: Records> Replay<'_, R> {
    fn run(&mut self, log: &dyn CommitLog, chain: &Chain) -> Result<(), Failure> {
        let mut applied = Ok(());
        let read = log.replay(self.committer.state.sequence, &mut |entry| {
            // Damaged entries are counted already.
            let Ok((link, writes)) = log_entry::decode(entry) else { return ControlFlow::Continue(()) };
            if !self.follows(&link, chain) {
                return ControlFlow::Continue(());
            }
            applied = self.apply(&link, &writes);
            if applied.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let done = applied.and(read.map_err(failure_of_log)).and_then(|()| self.end_transaction());
        if done.is_err() {
            self.committer.records.roll_back()?;
        }
        done
    }

    fn follows(&self, link: &Link, chain: &Chain) -> bool {
        let state = &self.committer.state;
        link.before == state.sequence
            && link.keys_before == state.expected.keys
            && link.sequence > state.sequence
            && chain.next.get(&link.before) == Some(&link.sequence)
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
