//! A store in memory, for virtual time: no threads, no sync, and crashes on demand.
//!
//! Without a delay every future is ready at once. With one, a batch becomes durable (and visible, as in any store)
//! after half of it and is answered after the other half, on tokio's clock; so a crash finds batches that were never
//! applied and batches that were applied and never answered. [`MemoryStore::crash`] leaves what was durable to a new
//! store and makes the old one answer nothing but errors.

use crate::error::StoreError;
use crate::seal::{Sealed, Sequence};
use crate::store::{Batch, Check, Entry, KeyRange, Store, StoreFuture, Write};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// A [`Store`] in memory. A clone is another handle on the same entries.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<MemoryState>>,
    delay: Duration,
}

#[derive(Debug, Default)]
struct MemoryState {
    entries: BTreeMap<Vec<u8>, Sealed>,
    sequence: Sequence,
    crashed: bool,
    full: bool,
}

impl MemoryStore {
    /// An empty store that answers at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same entries behind a handle whose commits take `delay` of tokio's time, durable half-way.
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { state: self.state, delay }
    }

    /// The store after a power loss now: batches that are not durable are gone, and the old handles are dead.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut old = self.state.lock();
        old.crashed = true;
        let (entries, sequence) = (std::mem::take(&mut old.entries), old.sequence);
        let state = MemoryState { entries, sequence, ..MemoryState::default() };
        Self { state: Arc::new(Mutex::new(state)), delay: self.delay }
    }

    /// A copy of the store as it is durable now: a backup.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let now = self.state.lock();
        let state = MemoryState { entries: now.entries.clone(), sequence: now.sequence, ..MemoryState::default() };
        Self { state: Arc::new(Mutex::new(state)), delay: self.delay }
    }

    /// Sets if the medium counts as full: then batches that set anything answer [`StoreError::Full`].
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Sets the bytes under `key` as they lie on the medium, as bit rot or another program would.
    pub fn corrupt(&self, key: &[u8], corrupt: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        if let Some(value) = state.entries.get_mut(key) {
            let mut bytes = value.as_bytes().to_vec();
            corrupt(&mut bytes);
            *value = Sealed::from_bytes(bytes);
        }
    }

    fn read<T>(&self, read: impl FnOnce(&MemoryState) -> T) -> Result<T, StoreError> {
        let state = self.state.lock();
        state.alive()?;
        Ok(read(&state))
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        let answer = self.read(|state| state.entries.get(key).cloned());
        Box::pin(std::future::ready(answer))
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        let answer = self.read(|state| keys.iter().map(|key| state.entries.get(key).cloned()).collect());
        Box::pin(std::future::ready(answer))
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        let answer = self.read(|state| state.range(range).take(limit).map(entry).collect());
        Box::pin(std::future::ready(answer))
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        if self.delay.is_zero() {
            return Box::pin(std::future::ready(self.state.lock().apply(batch)));
        }
        Box::pin(async move {
            tokio::time::sleep(self.delay / 2).await;
            let answer = self.state.lock().apply(batch);
            tokio::time::sleep(self.delay / 2).await;
            self.state.lock().alive()?;
            answer
        })
    }

    fn sequence(&self) -> Sequence {
        self.state.lock().sequence
    }
}

impl MemoryState {
    fn alive(&self) -> Result<(), StoreError> {
        if self.crashed { Err(StoreError::Failed("the store lost its power".into())) } else { Ok(()) }
    }

    fn apply(&mut self, batch: Batch) -> Result<(), StoreError> {
        self.alive()?;
        if let Some(failed) = batch.checks.into_iter().position(|check| !self.holds(check)) {
            return Err(StoreError::CheckFailed(failed));
        }
        if self.full && batch.writes.iter().any(|write| matches!(write, Write::Put(..))) {
            return Err(StoreError::Full);
        }
        assert!(!self.crashed, "a store without power takes nothing");
        self.sequence.0 += 1;
        for write in batch.writes {
            self.write(write);
        }
        Ok(())
    }

    fn holds(&self, check: Check) -> bool {
        match check {
            Check::Absent(key) => !self.entries.contains_key(&key),
            Check::Present(key) => self.entries.contains_key(&key),
            Check::Is(key, body) => self.entries.get(&key).is_some_and(|value| value.has_body(&body)),
            Check::Empty(range) => self.range(range).next().is_none(),
        }
    }

    fn write(&mut self, write: Write) {
        match write {
            Write::Put(key, body) => {
                let value = Sealed::seal(&key, body, self.sequence);
                self.entries.insert(key, value);
            }
            Write::Delete(key) => {
                self.entries.remove(&key);
            }
            Write::DeleteRange(range) => {
                let removed: Vec<_> = self.range(range).map(|(key, _)| key.clone()).collect();
                for key in removed {
                    self.entries.remove(&key);
                }
            }
        }
    }

    /// The entries of `range`. The map would panic at a range that ends before it begins; here it is empty.
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
