//! Committing batches: evaluate, log, make visible, answer. One implementation for every store.
//!
//! A group of batches is one transaction of the store. The checks of each batch are evaluated on what the ones before
//! it left, the writes of those whose checks hold are done, and the number of the last one is stored. Where a log
//! stands in front, the group is then appended to it, which makes it durable; only then does the store commit, without
//! a sync, so that readers never see what may still vanish. So checks, rights, numbers and the log's order are decided
//! in one place.
//!
//! No savepoint is needed between the batches of a transaction: the checks of a batch are evaluated before its first
//! write, and a write that then fails can only be the medium's fault, for which the whole transaction is rolled back.
//!
//! **Failures.** Before the append, and if the log has no room, nothing has happened: the store goes on. If the append
//! fails otherwise, or the commit behind it, it is unknown what a restart finds: nothing is written any more until
//! then. But if the store had no room for its commit (its file may grow only then), an empty entry is logged that
//! follows on the same batch as the refused ones do. A group before such an entry is not replayed (`replay.rs`), so the
//! refused batches are gone for good, and the store goes on.

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

impl State {
    /// As whoever begins to follow the store sees it.
    pub(crate) fn followed(&self) -> FollowedFrom {
        FollowedFrom { sequence: self.sequence, keys: self.expected.keys }
    }
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
    /// The last number in the log.
    pub(crate) logged: Sequence,
    /// A log that does not lead to the store is held at first.
    pub(crate) holds_log: bool,
    /// Bytes that were logged since the store was durable last.
    uncovered_bytes: u64,
    /// So many of them that it is time for it.
    cover_after_bytes: u64,
    /// The use of the log, as far as the store's owner may say.
    pub(crate) log_use: Arc<LogUse>,
    /// What the log says of the copies of the store that were used with it.
    pub(crate) lineage: LogLineage,
    /// True if the log knows a later number than the store: that of an empty entry.
    is_state_behind: bool,
    /// Why nothing more may be written.
    broken: Option<String>,
    /// How often the store was made durable for the log.
    pub(crate) covers: u64,
    /// Who gets every batch that is committed.
    pub(crate) followers: Arc<Followers>,
}

/// The use of a log, which may change while the store is open.
#[derive(Debug, Default)]
pub(crate) struct LogUse {
    /// The log is to forget nothing: what another copy of the store needs may be there.
    pub(crate) forgets_nothing: AtomicBool,
    /// This is not the newest copy of the store: its batches are logged aside.
    pub(crate) is_aside: AtomicBool,
    /// When the store was opened, the log ended with batches that a copy which is not the newest one logged aside.
    pub(crate) ended_aside: AtomicBool,
    /// The log does not lead to the store, and is to forget nothing before the store is kept otherwise.
    pub(crate) is_held: AtomicBool,
}

/// A group as far as it is a transaction that is open.
struct Evaluated {
    verdicts: Vec<Verdict>,
    state: State,
    /// What is to be logged: the batches that change something, by their positions in the group, and their places.
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
            holds_log: false,
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

    /// Why nothing is committed any more, if a failure left open what is durable.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// As before a crash, in order: the store is durable, and needs its log no more. False if that cannot be.
    pub(crate) fn close(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let covered = self.cover();
        covered.map_err(|failure| self.break_after(failure)).is_ok() && !self.is_state_behind
    }

    /// Makes the store durable, so that the log may forget, unless it is to retain everything.
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
        // What the newest copy needs is retained from the first mark aside on, and not before.
        let begins_aside = self.log_use.is_aside.load(Ordering::Relaxed) && !self.lineage.is_aside();
        if !keeps_all && !begins_aside {
            // The last number stays there: an older copy sees by it that it is behind, whatever is forgotten.
            log.covered(Sequence(self.state.sequence.min(self.logged).0.saturating_sub(1)));
        }
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

    /// The log has a group that begins with `first`.
    fn marked(&mut self, first: Option<Link>) {
        let Some((link, mark)) = first.and_then(|link| Some((link, link.mark?))) else { return };
        let begins_aside = self.lineage.marked(link.sequence, mark);
        if let Some(log) = self.log.as_ref().filter(|_| begins_aside) {
            log.retain();
        }
    }

    /// Evaluates and applies `group` in a transaction that stays open.
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

    /// The commit of `done`, which is logged, failed. Has the log leave it out, if it is certain that it did not
    /// happen.
    fn disown(&mut self, done: &Evaluated, failure: Failure) -> Failure {
        let (Some(log), Failure::Harmless(error)) = (&self.log, &failure) else { return failure };
        let after = State { sequence: Sequence(done.state.sequence.0 + 1), ..self.state };
        let mark = done.links.first().and_then(|(_, link)| link.mark);
        let skipped = Link { is_group_end: true, mark, ..link(self.state, after) };
        let entry = log_entry::encode(&skipped, &[]);
        if let Err(of_log) = log.append(&[LogRecord { sequence: after.sequence, entry, payload: None }]) {
            return Failure::Fatal(StoreError::Failed(format!("{error}, and what was logged stays there: {of_log}")));
        }
        (self.state, self.is_state_behind, self.logged) = (after, true, after.sequence);
        self.followers.skipped(&skipped);
        self.marked(Some(skipped));
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

/// The place of a batch that makes `after` of `before`, within its group.
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

    /// Records whose next commits fail so.
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

    /// The keys after a power loss that took all that only the log had.
    fn after_a_crash(committer: Committer<Faulty>, log: &MemoryLog) -> Vec<Vec<u8>> {
        let records = committer.records.records.durable();
        let state = records.state();
        let mut again = Committer::new(records, state, Sequence(0)).behind(Arc::new(log.reopened(0)), 1 << 20);
        let replayed = again.replay(&mut state.expected.keys.clone()).unwrap();
        assert_eq!(replayed.behind, None);
        again.records.keys()
    }
}
