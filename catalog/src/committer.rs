//! Committing batches: evaluate, log, make visible, answer. One implementation for every store.
//!
//! A group of batches is one transaction of the store. The checks of each batch are evaluated on the result of the
//! batches before it, the writes of the batches whose checks hold are applied, and the number of the last one is
//! stored. If a log is in front of the store, the group is then appended to it, which makes the group durable. Only
//! then does the store commit, without a sync, so readers never see data that may still vanish. So checks, rights,
//! numbers and the log's order are decided in one place.
//!
//! No savepoint is needed between the batches of a transaction. The checks of a batch are evaluated before its first
//! write, and a write that then fails can only be the medium's fault, for which the whole transaction is rolled back.
//!
//! **Failures.** If a failure comes before the append, or the log has no room, nothing has happened, and the store
//! continues. If the append fails otherwise, or the commit after it fails, it is unknown what a restart finds: nothing
//! is written until then. But if the store had no room for its commit (its file may grow only then), an empty entry is
//! logged that follows the same batch as the refused ones do. Replay skips a group that is followed by an entry of this
//! kind (`replay.rs`), so the refused batches are permanently gone, and the store continues.

use crate::error::StoreError;
use crate::follow::Followers;
use crate::follower::FollowedFrom;
use crate::key_digest::{ExpectedKeys, KeyDigest};
use crate::log::{CommitLog, LogError, LogRecord};
use crate::log_entry::{self, Link};
use crate::store::{Batch, Write};
use lineage::{LogLineage, Mark, Sequence};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The records of a store, which change in transactions, one after another.
pub(crate) trait Records {
    /// Begins a transaction.
    fn begin(&mut self) -> Result<(), Failure>;
    /// The first check of `batch` that does not hold.
    fn failed_check(&self, batch: &Batch) -> Result<Option<usize>, Failure>;
    /// Applies one write in the transaction, and updates `keys`, the digest of all keys.
    fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure>;
    /// Stores `state` with the transaction.
    fn set_state(&mut self, state: State) -> Result<(), Failure>;
    /// Makes the transaction visible, and also durable unless there is a log.
    fn commit(&mut self) -> Result<(), Failure>;
    /// Restores the state before the transaction, if one is open.
    fn roll_back(&mut self) -> Result<(), Failure>;
    /// Makes every committed transaction durable.
    fn make_durable(&mut self) -> Result<(), Failure>;
    /// True if the amount of committed data that is not durable calls for `make_durable`.
    fn is_due(&self) -> Result<bool, Failure>;
}

/// The kind of a transaction's failure.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing has changed: the medium is full, or a tool holds the file.
    Harmless(StoreError),
    /// It is unknown what is durable.
    Fatal(StoreError),
}

/// The state of a store's batches as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The number of the last batch.
    pub(crate) sequence: Sequence,
    /// The records that the store should hold.
    pub(crate) expected: ExpectedKeys,
}

impl State {
    /// The state in the form that a new follower of the store receives.
    pub(crate) fn followed(&self) -> FollowedFrom {
        FollowedFrom { sequence: self.sequence, keys: self.expected.keys }
    }
}

/// The result of a batch within a transaction: the index of the check that failed, if any.
pub(crate) type Verdict = Option<usize>;

/// The committer and its records.
pub(crate) struct Committer<R> {
    pub(crate) records: R,
    pub(crate) state: State,
    pub(crate) log: Option<Arc<dyn CommitLog>>,
    /// Batches get numbers above this.
    pub(crate) floor: Sequence,
    /// The last number in the log.
    pub(crate) logged: Sequence,
    /// True if a log that does not lead to the store is held at first.
    pub(crate) retains_log: bool,
    /// Bytes that were logged since the store was last made durable.
    uncovered_bytes: u64,
    /// Uncovered bytes at which the store is made durable.
    cover_after_bytes: u64,
    /// The use of the log, as far as the owner of the store decides it.
    pub(crate) log_use: Arc<LogUse>,
    /// The copies of the store that were used with the log, as recorded in the log.
    pub(crate) lineage: LogLineage,
    /// True if the last number in the log, that of an empty entry, is later than the store's.
    is_state_behind: bool,
    /// The reason why nothing more may be written.
    broken: Option<String>,
    /// Number of times that the store was made durable for the log.
    pub(crate) covers: u64,
    /// The followers, which receive every committed batch.
    pub(crate) followers: Arc<Followers>,
}

/// The use of a log, which may change while the store is open.
#[derive(Debug, Default)]
pub(crate) struct LogUse {
    /// True if the log must forget nothing: it may hold what another copy of the store needs.
    pub(crate) forgets_nothing: AtomicBool,
    /// True if this is not the newest copy of the store: its batches are logged aside.
    pub(crate) is_aside: AtomicBool,
    /// True if, when the store was opened, the log ended with batches that a copy other than the newest one logged
    /// aside.
    pub(crate) ended_aside: AtomicBool,
    /// True if the log does not lead to the store, and must forget nothing before the store is copied elsewhere.
    pub(crate) is_held: AtomicBool,
}

/// A group whose transaction is still open.
struct Evaluated {
    verdicts: Vec<Verdict>,
    state: State,
    /// The entries to log: the batches that change something, by their positions in the group, with their links.
    links: Vec<(usize, Link)>,
    logged_bytes: u64,
}

impl<R: Records> Committer<R> {
    /// A committer of `records`, which are in `state`, without a log.
    pub(crate) fn new(records: R, state: State, floor: Sequence) -> Self {
        Self {
            records,
            state,
            log: None,
            floor,
            logged: Sequence(0),
            retains_log: false,
            uncovered_bytes: 0,
            cover_after_bytes: 0,
            log_use: Arc::default(),
            lineage: LogLineage::default(),
            is_state_behind: false,
            broken: None,
            covers: 0,
            followers: Arc::default(),
        }
    }

    /// The same committer with `log` in front. It lets the log forget after every `cover_after_bytes` logged bytes or
    /// more.
    pub(crate) fn behind(self, log: Arc<dyn CommitLog>, cover_after_bytes: u64) -> Self {
        Self { log: Some(log), cover_after_bytes, ..self }
    }

    /// Commits all batches of `group` whose checks hold, in one transaction, and returns the verdict on each.
    ///
    /// # Errors
    /// [`StoreError::Full`], which changes nothing. After any other error nothing more is written.
    pub(crate) fn commit(&mut self, group: &[&Batch]) -> Result<Vec<Verdict>, StoreError> {
        assert!(!group.is_empty(), "a transaction has batches");
        let mut done = self.try_commit(group);
        // The log may be full of entries that it holds only for this store.
        if matches!(done, Err(Failure::Harmless(StoreError::Full))) && self.uncovered_bytes > 0 {
            done = self.cover().and_then(|()| self.try_commit(group));
        }
        let verdicts = done.map_err(|failure| self.break_after(failure))?;
        assert_eq!(verdicts.len(), group.len(), "every batch has its verdict");
        assert!(self.broken.is_none(), "nothing is acknowledged after a failed sync");
        self.cover_if_due();
        Ok(verdicts)
    }

    /// The reason why nothing is committed, if a failure left it unknown what is durable.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Shuts down in order: makes the store durable, so that it no longer needs its log. False if that is not possible.
    pub(crate) fn close(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let covered = self.cover();
        covered.map_err(|failure| self.break_after(failure)).is_ok() && !self.is_state_behind
    }

    /// Makes the store durable, so that the log may forget, unless it must retain everything.
    pub(crate) fn cover(&mut self) -> Result<(), Failure> {
        let Some(log) = self.log.clone() else { return Ok(()) };
        if self.is_state_behind && !self.catch_up()? {
            return Ok(());
        }
        self.records.make_durable()?;
        self.followers.sync();
        self.uncovered_bytes = 0;
        self.covers += 1;
        let LogUse { forgets_nothing, is_held, .. } = &*self.log_use;
        let keeps_all = forgets_nothing.load(Ordering::Relaxed) || is_held.load(Ordering::Relaxed);
        // From the first mark aside on, the log itself retains what the newest copy needs; before that it does not.
        let begins_aside = self.log_use.is_aside.load(Ordering::Relaxed) && !self.lineage.is_aside();
        if !keeps_all && !begins_aside {
            // The last number stays in the log: an older copy sees from it that it is outdated, even if all else is
            // forgotten.
            log.covered(Sequence(self.state.sequence.min(self.logged).0.saturating_sub(1)));
        }
        Ok(())
    }

    /// Stores the state alone; it becomes durable only with what follows. False if there is no room for it.
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

    /// Covers the log if that is due. Called after a group of batches is committed and durable, so a failure affects
    /// only later batches.
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

    /// Covers, unless nothing is committed any more.
    pub(crate) fn cover_now(&mut self) {
        if self.broken.is_none()
            && let Err(failure) = self.cover()
        {
            self.break_after(failure);
        }
    }

    fn try_commit(&mut self, group: &[&Batch]) -> Result<Vec<Verdict>, Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::Harmless(StoreError::Failed(why.clone())));
        }
        let logged = self.evaluate(group).and_then(|done| self.append(group, done));
        let done = match logged {
            Ok(done) if !done.links.is_empty() => done,
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
        self.uncovered_bytes += done.logged_bytes;
        (self.state, self.is_state_behind) = (done.state, false);
        self.followers.committed(group, &done.links);
        self.marked(done.links.first().map(|(_, link)| *link));
        Ok(done.verdicts)
    }

    /// The mark that the next batches need in the log.
    fn mark(&self) -> Option<Mark> {
        self.lineage.mark_due(self.log_use.is_aside.load(Ordering::Relaxed))
    }

    /// Notes that the log has a group that begins with `first`.
    fn marked(&mut self, first: Option<Link>) {
        let Some((link, mark)) = first.and_then(|link| Some((link, link.mark?))) else { return };
        let begins_aside = self.lineage.marked(link.sequence, mark);
        if let Some(log) = self.log.as_ref().filter(|_| begins_aside) {
            log.retain();
        }
    }

    /// Evaluates and applies `group` in a transaction, which stays open.
    fn evaluate(&mut self, group: &[&Batch]) -> Result<Evaluated, Failure> {
        self.records.begin()?;
        let verdicts = Vec::with_capacity(group.len());
        let mut done = Evaluated { verdicts, state: self.state, links: Vec::new(), logged_bytes: 0 };
        for (position, batch) in group.iter().enumerate() {
            let failed = self.records.failed_check(batch)?;
            if failed.is_none() {
                let before = done.state;
                self.apply(batch, &mut done.state)?;
                done.links.push((position, link(before, done.state)));
            }
            done.verdicts.push(failed);
        }
        if let Some((_, last)) = done.links.last_mut() {
            last.is_group_end = true;
        }
        let mark = self.mark().filter(|_| self.log.is_some());
        for (_, link) in &mut done.links {
            link.mark = mark;
        }
        Ok(done)
    }

    fn apply(&mut self, batch: &Batch, state: &mut State) -> Result<(), Failure> {
        assert!(self.log.is_some() || batch.payload.is_none(), "a payload travels only where a log takes it");
        let before = state.sequence;
        state.sequence = Sequence(before.max(self.floor).0 + 1);
        assert!(state.sequence > before, "sequence numbers grow");
        batch.writes.iter().try_for_each(|to| self.records.write(to, state.sequence, &mut state.expected.keys))
    }

    /// Stores the state of the open transaction, and logs it.
    fn append(&mut self, group: &[&Batch], mut done: Evaluated) -> Result<Evaluated, Failure> {
        if done.links.is_empty() {
            return Ok(done);
        }
        self.records.set_state(done.state)?;
        let Some(log) = &self.log else { return Ok(done) };
        let record = |(position, link): &(usize, Link)| {
            let Batch { writes, payload, .. } = group[*position];
            let entry = log_entry::encode(link, writes);
            LogRecord { sequence: link.sequence, entry, payload: payload.clone() }
        };
        let records: Vec<LogRecord> = done.links.iter().map(record).collect();
        done.logged_bytes = records.iter().map(LogRecord::bytes).sum();
        log.append(&records).map_err(failure_of_log)?;
        self.logged = done.state.sequence;
        Ok(done)
    }

    /// Handles the failed commit of `done`, which is logged. If the commit certainly did not happen, an empty entry
    /// makes the log leave it out.
    fn disown(&mut self, done: &Evaluated, failure: Failure) -> Failure {
        let (Some(log), Failure::Harmless(error)) = (&self.log, &failure) else { return failure };
        let after = State { sequence: Sequence(done.state.sequence.0 + 1), ..self.state };
        let mark = done.links.first().and_then(|(_, link)| link.mark);
        let skipped = Link { is_group_end: true, mark, ..link(self.state, after) };
        let entry = log_entry::encode(&skipped, &[]);
        if let Err(of_log) = log.append(&[LogRecord { sequence: after.sequence, entry, payload: None }]) {
            return Failure::Fatal(StoreError::Failed(format!(
                "{error}, and the changes in the log stay there: {of_log}"
            )));
        }
        (self.state, self.is_state_behind, self.logged) = (after, true, after.sequence);
        self.followers.skipped(&skipped);
        self.marked(Some(skipped));
        failure
    }

    /// Returns the error in `failure`. After a fatal failure nothing more is written.
    pub(crate) fn break_after(&mut self, failure: Failure) -> StoreError {
        let error = match failure {
            Failure::Harmless(error) => return error,
            Failure::Fatal(error) => error,
        };
        let why = format!("{error}; nothing more is written until Larder is restarted");
        tracing::error!("{why}");
        self.broken.get_or_insert(why);
        error
    }
}

/// The link of a batch that changes the state from `before` to `after`, within its group.
fn link(before: State, after: State) -> Link {
    let (keys_before, keys_after) = (before.expected.keys, after.expected.keys);
    let (before, sequence) = (before.sequence, after.sequence);
    Link { before, sequence, keys_before, keys_after, is_group_end: false, mark: None }
}

pub(crate) fn failure_of_log(error: LogError) -> Failure {
    match error {
        LogError::Full => Failure::Harmless(StoreError::Full),
        LogError::Failed(error) => Failure::Fatal(StoreError::Failed(format!("its log: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memory::MemoryRecords;
    use crate::memory_log::MemoryLog;

    /// Records whose next commits fail with these failures.
    struct Faulty {
        records: MemoryRecords,
        fails: Vec<Failure>,
    }

    impl Records for Faulty {
        fn begin(&mut self) -> Result<(), Failure> {
            self.records.begin()
        }
        fn failed_check(&self, batch: &Batch) -> Result<Option<usize>, Failure> {
            self.records.failed_check(batch)
        }
        fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure> {
            self.records.write(write, sequence, keys)
        }
        fn set_state(&mut self, state: State) -> Result<(), Failure> {
            self.records.set_state(state)
        }
        fn commit(&mut self) -> Result<(), Failure> {
            self.fails.pop().map_or_else(|| self.records.commit(), Err)
        }
        fn roll_back(&mut self) -> Result<(), Failure> {
            self.records.roll_back()
        }
        fn make_durable(&mut self) -> Result<(), Failure> {
            self.records.make_durable()
        }
        fn is_due(&self) -> Result<bool, Failure> {
            Ok(false)
        }
    }

    fn put(key: &str) -> Batch {
        Batch::new(Vec::new(), vec![Write::Put(key.into(), b"1".to_vec())])
    }

    fn full() -> Failure {
        Failure::Harmless(StoreError::Full)
    }

    #[test]
    fn batches_that_were_logged_and_then_refused_for_want_of_room_never_come_back() {
        let log = MemoryLog::new();
        let faulty = Faulty { records: MemoryRecords::before_a_log(), fails: Vec::new() };
        let mut committer =
            Committer::new(faulty, State::default(), Sequence(0)).behind(Arc::new(log.clone()), 1 << 20);
        assert_eq!(committer.commit(&[&put("a")]).unwrap(), [None]);
        // It tries to make itself durable, so that the log may forget, and then once more.
        committer.records.fails = vec![full(), full(), full()];
        assert!(matches!(committer.commit(&[&put("b"), &put("c")]), Err(StoreError::Full)));
        assert_eq!((committer.records.records.keys(), committer.covers), (vec![b"a".to_vec()], 0));
        assert_eq!(committer.commit(&[&put("d")]).unwrap(), [None]);
        committer.records.fails = vec![full()];
        assert_eq!(committer.commit(&[&put("e"), &put("f")]).unwrap(), [None, None]);
        assert_eq!(committer.covers, 1);
        assert_eq!(committer.commit(&[&put("g")]).unwrap(), [None]);
        assert_eq!(after_a_crash(committer, &log), [b"a", b"d", b"e", b"f", b"g"]);
    }

    #[test]
    fn a_batch_whose_commit_failed_otherwise_may_come_back_and_nothing_is_written_until_then() {
        let log = MemoryLog::new();
        let faulty = Faulty { records: MemoryRecords::before_a_log(), fails: Vec::new() };
        let mut committer =
            Committer::new(faulty, State::default(), Sequence(0)).behind(Arc::new(log.clone()), 1 << 20);
        committer.commit(&[&put("a")]).unwrap();
        committer.records.fails = vec![Failure::Fatal(StoreError::Failed("a disk".into()))];
        assert!(matches!(committer.commit(&[&put("b")]), Err(StoreError::Failed(_))));
        assert!(matches!(committer.commit(&[&put("c")]), Err(StoreError::Failed(_))));
        assert!(!committer.close(), "nothing is known to be durable");
        assert_eq!(committer.records.records.keys(), [b"a"]);
        assert_eq!(after_a_crash(committer, &log), [b"a", b"b"]);
    }

    /// The keys after a power loss that destroyed everything that only the log had.
    fn after_a_crash(committer: Committer<Faulty>, log: &MemoryLog) -> Vec<Vec<u8>> {
        let records = committer.records.records.durable();
        let state = records.state();
        let mut again = Committer::new(records, state, Sequence(0)).behind(Arc::new(log.reopened(0)), 1 << 20);
        let replayed = again.replay(&mut state.expected.keys.clone()).unwrap();
        assert_eq!(replayed.behind, None);
        again.records.keys()
    }
}
