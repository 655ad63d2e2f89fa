//! Committing batches: evaluate, log, make visible, answer. One implementation for every store.
//!
//! A group of batches is one transaction of the store. The checks of each batch are evaluated on what the ones before it
//! left, the writes of those whose checks hold are done, and the number of the last one is stored. Where a log stands in
//! front, the group is then appended to it, which makes it durable; only then does the store commit, without a sync, so
//! that readers never see what may still vanish. So checks, rights, numbers and the log's order are decided in one place.
//!
//! No savepoint is needed between the batches of a transaction: the checks of a batch are evaluated before its first
//! write, and a write that then fails can only be the medium's fault, for which the whole transaction is rolled back.
//!
//! **Failures.** Before the append, and if the log has no room, nothing has happened: the store goes on. If the append
//! fails otherwise, or the commit behind it, it is unknown what a restart finds: nothing is written any more until then.
//! But if the store had no room for its commit (its file may grow only then), an empty entry is logged that
//! follows on the same batch as the refused ones do. Of two entries that follow on the same batch only the last one
//! is replayed (`replay.rs`), so the refused batches are gone for good, and the store goes on.

use crate::error::StoreError;
use crate::key_digest::{ExpectedKeys, KeyDigest};
use crate::log::{CommitLog, LogError, LogRecord};
use crate::log_entry::{self, Link};
use crate::seal::Sequence;
use crate::store::{Batch, Write};
use std::sync::Arc;

/// The records of a store, which are changed in transactions, one after another.
pub(crate) trait Records {
    /// Begins a transaction.
    fn begin(&mut self) -> Result<(), Failure>;
    /// The first check of `batch` that does not hold.
    fn failed_check(&self, batch: &Batch) -> Result<Option<usize>, Failure>;
    /// Does one write in the transaction, and updates `keys`, the digest of all keys.
    fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure>;
    /// Stores `state` with the transaction.
    fn set_state(&mut self, state: State) -> Result<(), Failure>;
    /// Makes the transaction visible; durable as well, unless there is a log.
    fn commit(&mut self) -> Result<(), Failure>;
    /// Leaves everything as it was before the transaction, if one is open.
    fn roll_back(&mut self) -> Result<(), Failure>;
    /// Makes every transaction that was committed durable.
    fn make_durable(&mut self) -> Result<(), Failure>;
    /// True if so much is committed and not durable yet that it is time for it.
    fn is_due(&self) -> Result<bool, Failure>;
}

/// The reason why a transaction failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Everything is as it was: the medium is full, or a tool holds the file.
    Harmless(StoreError),
    /// It is unknown what is durable.
    Fatal(StoreError),
}

/// What a store knows of its batches as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The number of the last batch.
    pub(crate) sequence: Sequence,
    /// The records that the store should hold.
    pub(crate) expected: ExpectedKeys,
}

/// The result of a batch within a transaction: the check that failed, if one did.
pub(crate) type Verdict = Option<usize>;

/// The one that commits, and its records.
pub(crate) struct Committer<R> {
    pub(crate) records: R,
    pub(crate) state: State,
    pub(crate) log: Option<Arc<dyn CommitLog>>,
    /// Batches get numbers above this.
    pub(crate) floor: Sequence,
    /// Bytes that were logged since the store was durable last.
    uncovered_bytes: u64,
    /// So many of them that it is time for it.
    cover_after_bytes: u64,
    /// True if the log knows a later number than the store: that of an empty entry.
    is_state_behind: bool,
    /// Why nothing more may be written.
    broken: Option<String>,
    /// How often the store was made durable for the log.
    pub(crate) covers: u64,
}

/// A group as far as it is a transaction that is open.
struct Evaluated {
    verdicts: Vec<Verdict>,
    state: State,
    records: Vec<LogRecord>,
}

impl<R: Records> Committer<R> {
    /// A committer of `records`, which are in `state`, without a log.
    pub(crate) fn new(records: R, state: State, floor: Sequence) -> Self {
        Self {
            records,
            state,
            log: None,
            floor,
            uncovered_bytes: 0,
            cover_after_bytes: 0,
            is_state_behind: false,
            broken: None,
            covers: 0,
        }
    }

    /// The same one behind `log`, which may forget what was logged whenever that is `cover_after_bytes` or more.
    pub(crate) fn behind(self, log: Arc<dyn CommitLog>, cover_after_bytes: u64) -> Self {
        Self { log: Some(log), cover_after_bytes, ..self }
    }

    /// Commits all of `group` whose checks hold, in one transaction; the verdict on each.
    ///
    /// # Errors
    /// [`StoreError::Full`], which changes nothing. After any other one nothing is written any more.
    pub(crate) fn commit(&mut self, group: &[&Batch]) -> Result<Vec<Verdict>, StoreError> {
        assert!(!group.is_empty(), "a transaction has batches");
        let mut done = self.try_commit(group);
        // What the log holds for the store's sake may be what fills it.
        if matches!(done, Err(Failure::Harmless(StoreError::Full))) && self.uncovered_bytes > 0 {
            done = self.cover().and_then(|()| self.try_commit(group));
        }
        let verdicts = done.map_err(|failure| self.break_after(failure))?;
        assert_eq!(verdicts.len(), group.len(), "every batch has its verdict");
        assert!(self.broken.is_none(), "nothing is acknowledged after a failed sync");
        self.cover_if_due();
        Ok(verdicts)
    }

    /// As before a crash, in order: the store is durable, and needs its log no more. False if that cannot be.
    pub(crate) fn close(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let covered = self.cover();
        covered.map_err(|failure| self.break_after(failure)).is_ok() && !self.is_state_behind
    }

    /// Makes the store durable, so that the log may forget.
    pub(crate) fn cover(&mut self) -> Result<(), Failure> {
        let Some(log) = self.log.clone() else { return Ok(()) };
        if self.is_state_behind && !self.catch_up()? {
            return Ok(());
        }
        self.records.make_durable()?;
        log.covered(self.state.sequence);
        self.uncovered_bytes = 0;
        self.covers += 1;
        Ok(())
    }

    /// Stores the state, though nothing else changes; durable only with what follows. False if there is no room for it.
    pub(crate) fn catch_up(&mut self) -> Result<bool, Failure> {
        let state = self.state;
        let stored = self.records.begin().and_then(|()| self.records.set_state(state));
        match stored.and_then(|()| self.records.commit()) {
            Ok(()) => {
                self.is_state_behind = false;
                Ok(true)
            }
            Err(failure) => {
                self.records.roll_back()?;
                if let Failure::Harmless(_) = failure { Ok(false) } else { Err(failure) }
            }
        }
    }

    /// The group is committed and durable already: a failure now concerns only those that follow.
    fn cover_if_due(&mut self) {
        if self.log.is_none() {
            return;
        }
        let is_due = if self.uncovered_bytes >= self.cover_after_bytes { Ok(true) } else { self.records.is_due() };
        let covered = is_due.and_then(|is_due| if is_due { self.cover() } else { Ok(()) });
        if let Err(failure) = covered {
            self.break_after(failure);
        }
    }

    fn try_commit(&mut self, group: &[&Batch]) -> Result<Vec<Verdict>, Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::Harmless(StoreError::Failed(why.clone())));
        }
        let logged = self.evaluate(group).and_then(|done| self.append(done));
        let done = match logged {
            Ok(done) if done.state.sequence > self.state.sequence => done,
            Ok(done) => {
                self.records.roll_back()?;
                return Ok(done.verdicts);
            }
            Err(failure) => {
                self.records.roll_back()?;
                return Err(failure);
            }
        };
        if let Err(failure) = self.records.commit() {
            self.records.roll_back()?;
            return Err(self.disown(&done, failure));
        }
        let payloads = done.records.iter().filter_map(|record| record.payload.as_ref());
        let bytes = done.records.iter().map(|record| record.entry.len()).sum::<usize>()
            + payloads.map(|payload| payload.bytes.len()).sum::<usize>();
        self.uncovered_bytes += bytes as u64;
        (self.state, self.is_state_behind) = (done.state, false);
        Ok(done.verdicts)
    }

    /// Evaluates and applies `group` in a transaction that stays open.
    fn evaluate(&mut self, group: &[&Batch]) -> Result<Evaluated, Failure> {
        self.records.begin()?;
        let mut done = Evaluated { verdicts: Vec::with_capacity(group.len()), state: self.state, records: Vec::new() };
        for batch in group {
            let failed = self.records.failed_check(batch)?;
            if failed.is_none() {
                self.apply(batch, &mut done)?;
            }
            done.verdicts.push(failed);
        }
        Ok(done)
    }

    fn apply(&mut self, batch: &Batch, done: &mut Evaluated) -> Result<(), Failure> {
        let (before, state) = (done.state, &mut done.state);
        state.sequence = Sequence(before.sequence.max(self.floor).0 + 1);
        assert!(state.sequence > before.sequence, "sequence numbers grow");
        for write in &batch.writes {
            self.records.write(write, state.sequence, &mut state.expected.keys)?;
        }
        if self.log.is_none() {
            assert!(batch.payload.is_none(), "a payload travels only where a log takes it");
            return Ok(());
        }
        let entry = log_entry::encode(&link(before, *state), &batch.writes);
        done.records.push(LogRecord { sequence: state.sequence, entry, payload: batch.payload.clone() });
        Ok(())
    }

    /// Stores the state of the open transaction, and logs it.
    fn append(&mut self, done: Evaluated) -> Result<Evaluated, Failure> {
        if done.state.sequence == self.state.sequence {
            return Ok(done);
        }
        self.records.set_state(done.state)?;
        if let Some(log) = &self.log {
            log.append(&done.records).map_err(failure_of_log)?;
        }
        Ok(done)
    }

    /// The commit of `done`, which is logged, failed. Has the log leave it out, if it is certain that it did not happen.
    fn disown(&mut self, done: &Evaluated, failure: Failure) -> Failure {
        let (Some(log), Failure::Harmless(error)) = (&self.log, &failure) else { return failure };
        let after = State { sequence: Sequence(done.state.sequence.0 + 1), ..self.state };
        let entry = log_entry::encode(&link(self.state, after), &[]);
        if let Err(of_log) = log.append(&[LogRecord { sequence: after.sequence, entry, payload: None }]) {
            return Failure::Fatal(StoreError::Failed(format!("{error}, and what was logged stays there: {of_log}")));
        }
        (self.state, self.is_state_behind) = (after, true);
        failure
    }

    /// The error of `failure`, after which nothing more is written unless it was harmless.
    pub(crate) fn break_after(&mut self, failure: Failure) -> StoreError {
        let error = match failure {
            Failure::Harmless(error) => return error,
            Failure::Fatal(error) => error,
        };
        let why = format!("{error}; nothing more is written until Larder is started anew");
        tracing::error!("{why}");
        self.broken.get_or_insert(why);
        error
    }
}

/// The place of a batch that makes `after` of `before`.
fn link(before: State, after: State) -> Link {
    let (keys_before, keys_after) = (before.expected.keys, after.expected.keys);
    Link { before: before.sequence, sequence: after.sequence, keys_before, keys_after }
}

pub(crate) fn failure_of_log(error: LogError) -> Failure {
    match error {
        LogError::Full => Failure::Harmless(StoreError::Full),
        LogError::Failed(error) => Failure::Fatal(StoreError::Failed(format!("its log: {error}"))),
    }
}
