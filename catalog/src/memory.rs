//! A store in memory, for virtual time: no threads, no sync, and crashes on demand.
//!
//! Without a delay every future is ready at once. With a delay, a batch becomes durable (and visible, as in any store)
//! after half of it and is answered after the other half, on tokio's clock; so a crash finds batches that were never
//! applied and batches that were applied and never answered. [`MemoryStore::crash`] passes the durable state to a new
//! store and makes the old one return only errors.
//!
//! With a log in front ([`MemoryStore::with_log`]) the last transactions are durable only in the log until the store
//! itself is made durable. [`MemoryStore::crash_losing`] removes some of them, as a power loss does.

use crate::committer::{Committer, Failure, Records, State};
use crate::error::StoreError;
use crate::follower::{FollowedFrom, Follower};
use crate::key_digest::KeyDigest;
use crate::log::CommitLog;
use crate::seal::Sealed;
use crate::store::{Batch, Check, Entry, KeyRange, Store, StoreFuture, Write};
use lineage::Sequence;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that are logged before the store is made durable: few, so crashes occur at all stages.
const COVER_AFTER_BYTES: u64 = 64 << 10;

/// A [`Store`] in memory. A clone is another handle on the same entries.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<MemoryState>>,
    delay: Duration,
    behind_log: Option<Arc<str>>,
}

struct MemoryState {
    committer: Committer<MemoryRecords>,
    crashed: bool,
}

/// The entries, and their earlier values for the transactions that are not durable.
#[derive(Default)]
pub(crate) struct MemoryRecords {
    entries: BTreeMap<Vec<u8>, Sealed>,
    /// The state after the last transaction.
    state: State,
    /// The open transaction.
    open: Option<Undo>,
    /// Transactions that are committed and not durable.
    unsynced: Vec<Undo>,
    /// True if there is a log; then a commit is not durable by itself.
    with_log: bool,
    full: bool,
}

/// A transaction, stored as the state before it.
struct Undo {
    state: State,
    /// The values before its writes, the first write first.
    values: Vec<(Vec<u8>, Option<Sealed>)>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::of(MemoryRecords::default(), Duration::ZERO)
    }
}

impl MemoryStore {
    /// An empty store that answers at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same entries with a handle whose commits take `delay` of tokio's time and are durable half-way.
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn of(records: MemoryRecords, delay: Duration) -> Self {
        let state = records.state;
        let committer = Committer::new(records, state, state.sequence);
        Self { state: Arc::new(Mutex::new(MemoryState { committer, crashed: false })), delay, behind_log: None }
    }

    /// The store with `log` in front, from which it takes the batches that it lacks. This handle can no longer be used.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the log cannot be read.
    pub fn with_log(self, log: Arc<dyn CommitLog>) -> Result<Self, StoreError> {
        let mut store = self.crash();
        {
            let mut state = store.state.lock();
            let MemoryRecords { entries, state: known, full, .. } = std::mem::take(&mut state.committer.records);
            let records = MemoryRecords { entries, state: known, full, with_log: true, ..MemoryRecords::default() };
            let mut committer = Committer::new(records, known, known.sequence).behind(log, COVER_AFTER_BYTES);
            let mut found = known.expected.keys;
            let replayed = committer.replay(&mut found)?;
            assert_eq!(found, committer.state.expected.keys, "nothing is missing in memory");
            // As on a medium, the replayed batches are now durable.
            committer.records.unsynced.clear();
            state.committer = committer;
            store.behind_log = replayed.behind.map(Into::into);
        }
        Ok(store)
    }

    /// The store after a power loss now, without its log: batches that are not durable are gone, and the old handles
    /// are dead. Batches that are durable only in the log may survive a power loss; here they do.
    #[must_use]
    pub fn crash(&self) -> Self {
        self.crash_losing(0)
    }

    /// As [`MemoryStore::crash`], without the last `transactions` of those that are durable only in the log.
    #[must_use]
    pub fn crash_losing(&self, transactions: usize) -> Self {
        let mut old = self.state.lock();
        old.crashed = true;
        let mut records = std::mem::take(&mut old.committer.records);
        for _ in 0..transactions {
            let Some(undo) = records.unsynced.pop() else { break };
            records.undo(undo);
        }
        let MemoryRecords { entries, state, .. } = records;
        Self::of(MemoryRecords { entries, state, ..MemoryRecords::default() }, self.delay)
    }

    /// The store after a crash, opened again with its log, if it has one. The last `lost` of the transactions that were
    /// durable only in the log are taken from there.
    ///
    /// # Errors
    /// As [`MemoryStore::with_log`].
    pub fn restarted(&self, lost: usize) -> Result<Self, StoreError> {
        let log = self.state.lock().committer.log.clone();
        let crashed = self.crash_losing(lost);
        log.map_or_else(|| Ok(crashed.clone()), |log| crashed.clone().with_log(log))
    }

    /// The store, whose batches get numbers above `floor` from now on, as those of a server do from its clock.
    #[must_use]
    pub fn numbered_above(self, floor: Sequence) -> Self {
        {
            let mut state = self.state.lock();
            state.committer.floor = state.committer.floor.max(floor);
        }
        self
    }

    /// The number of transactions that are durable only in the log.
    pub fn unsynced(&self) -> usize {
        self.state.lock().committer.records.unsynced.len()
    }

    /// A copy of the store's present state, without its log: a backup.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let now = self.state.lock();
        let MemoryRecords { entries, state, .. } = &now.committer.records;
        Self::of(MemoryRecords { entries: entries.clone(), state: *state, ..MemoryRecords::default() }, self.delay)
    }

    /// Sets whether the medium counts as full: then batches that set anything return [`StoreError::Full`].
    pub fn set_full(&self, full: bool) {
        self.state.lock().committer.records.full = full;
    }

    /// Changes the stored bytes under `key`, as bit rot or another program would.
    pub fn corrupt(&self, key: &[u8], corrupt: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        if let Some(value) = state.committer.records.entries.get_mut(key) {
            let mut bytes = value.as_bytes().to_vec();
            corrupt(&mut bytes);
            *value = Sealed::from_bytes(bytes);
        }
    }

    fn read<T>(&self, read: impl FnOnce(&MemoryRecords) -> T) -> Result<T, StoreError> {
        let state = self.state.lock();
        state.alive()?;
        Ok(read(&state.committer.records))
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        let answer = self.read(|records| records.entries.get(key).cloned());
        Box::pin(std::future::ready(answer))
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        let answer = self.read(|records| keys.iter().map(|key| records.entries.get(key).cloned()).collect());
        Box::pin(std::future::ready(answer))
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        let answer = self.read(|records| records.range(range).take(limit).map(entry).collect());
        Box::pin(std::future::ready(answer))
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        assert!(self.takes_payloads() || batch.payload.is_none(), "a payload travels only where a log takes it");
        if self.delay.is_zero() {
            return Box::pin(std::future::ready(self.state.lock().apply(&batch)));
        }
        Box::pin(async move {
            tokio::time::sleep(self.delay / 2).await;
            let answer = self.state.lock().apply(&batch);
            tokio::time::sleep(self.delay / 2).await;
            self.state.lock().alive()?;
            answer
        })
    }

    fn view(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        let view: Arc<dyn Store> = Arc::new(self.snapshot());
        Box::pin(std::future::ready(Ok(view)))
    }

    fn sequence(&self) -> Sequence {
        self.state.lock().committer.state.sequence
    }

    fn takes_payloads(&self) -> bool {
        self.state.lock().committer.log.is_some()
    }

    fn behind_log(&self) -> Option<&str> {
        self.behind_log.as_deref()
    }

    fn retain_log(&self) {
        self.state.lock().committer.log_use.forgets_nothing.store(true, Ordering::Relaxed);
    }

    fn set_aside(&self, is_aside: bool) {
        self.state.lock().committer.log_use.is_aside.store(is_aside, Ordering::Relaxed);
    }

    fn follow(&self, follower: &Arc<dyn Follower>) -> Option<FollowedFrom> {
        let MemoryState { committer, .. } = &*self.state.lock();
        committer.followers.begin(committer.state.followed());
        Some(committer.followers.add(follower))
    }
}

impl MemoryState {
    fn alive(&self) -> Result<(), StoreError> {
        if self.crashed { Err(StoreError::Failed("the store lost its power".into())) } else { Ok(()) }
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.alive()?;
        match self.committer.commit(&[batch])?[..] {
            [None] => Ok(()),
            [Some(check)] => Err(StoreError::CheckFailed(check)),
            _ => unreachable!("one batch has one verdict"),
        }
    }
}

impl Records for MemoryRecords {
    fn begin(&mut self) -> Result<(), Failure> {
        assert!(self.open.is_none(), "one transaction after another");
        self.open = Some(Undo { state: self.state, values: Vec::new() });
        Ok(())
    }

    fn failed_check(&self, batch: &Batch) -> Result<Option<usize>, Failure> {
        Ok(batch.checks.iter().position(|check| !self.holds(check)))
    }

    fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure> {
        match write {
            Write::Put(..) if self.full => return Err(Failure::Harmless(StoreError::Full)),
            Write::Put(key, body) => {
                let value = Sealed::seal(key, body.clone(), sequence);
                self.set(key.clone(), Some(value), keys);
            }
            Write::Delete(key) => self.set(key.clone(), None, keys),
            Write::DeleteRange(range) => {
                let removed: Vec<_> = self.range(range.clone()).map(|(key, _)| key.clone()).collect();
                for key in removed {
                    self.set(key, None, keys);
                }
            }
        }
        Ok(())
    }

    fn set_state(&mut self, state: State) -> Result<(), Failure> {
        assert!(self.open.is_some(), "the state changes in a transaction");
        self.state = state;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let done = self.open.take();
        assert!(done.is_some(), "there is a transaction to commit");
        if self.with_log {
            self.unsynced.extend(done);
        }
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        if let Some(undo) = self.open.take() {
            self.undo(undo);
        }
        Ok(())
    }

    fn make_durable(&mut self) -> Result<(), Failure> {
        self.unsynced.clear();
        Ok(())
    }

    fn is_due(&self) -> Result<bool, Failure> {
        Ok(false)
    }
}

impl MemoryRecords {
    /// Empty records, whose commits are durable only in a log.
    #[cfg(test)]
    pub(crate) fn before_a_log() -> Self {
        Self { with_log: true, ..Self::default() }
    }

    /// The records without the transactions that are durable only in the log.
    #[cfg(test)]
    pub(crate) fn durable(mut self) -> Self {
        while let Some(undo) = self.unsynced.pop() {
            self.undo(undo);
        }
        self
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.entries.keys().cloned().collect()
    }

    fn holds(&self, check: &Check) -> bool {
        match check {
            Check::Absent(key) => !self.entries.contains_key(key),
            Check::Present(key) => self.entries.contains_key(key),
            Check::Is(key, body) => self.entries.get(key).is_some_and(|value| value.has_body(body)),
            Check::Empty(range) => self.range(range.clone()).next().is_none(),
        }
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Sealed>, keys: &mut KeyDigest) {
        let is_there = value.is_some();
        let before = match value {
            Some(value) => self.entries.insert(key.clone(), value),
            None => self.entries.remove(&key),
        };
        match (before.is_some(), is_there) {
            (false, true) => keys.add(&key),
            (true, false) => keys.remove(&key),
            _ => {}
        }
        let open = self.open.as_mut().expect("records change in a transaction");
        open.values.push((key, before));
    }

    fn undo(&mut self, Undo { state, values }: Undo) {
        for (key, before) in values.into_iter().rev() {
            match before {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        self.state = state;
    }

    /// The entries of `range`. The map would panic for a range that ends before it begins; here that range is empty.
    fn range(&self, range: KeyRange) -> impl Iterator<Item = (&Vec<u8>, &Sealed)> {
        let (start, end) = range.half_open();
        let backwards = end.as_ref().is_some_and(|end| *end <= start);
        let end = match end {
            _ if backwards => Bound::Excluded(start.clone()),
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        self.entries.range::<Vec<u8>, _>((Bound::Included(start), end))
    }
}

fn entry((key, value): (&Vec<u8>, &Sealed)) -> Entry {
    Entry { key: key.clone(), value: value.clone() }
}
