//! The catalog's store: in memory, dependent on its site's power, with the faults of a disk and of its log.
//!
//! A commit is a step of the power before it is done and one after. A read of a record may be wrong once. The sync of a
//! commit may fail, which is modelled as Linux and SQLite do it: the commit is answered with an error, the store
//! accepts no commits until the next start, and that start finds a whole batch in the log that the medium may not have.
//! Unless the start syncs the log before it trusts any of it ([`Log::open`]), all later commits depend on that batch
//! and are lost with it when the power fails.

use crate::power::Power;
use catalog::{Batch, Entry, KeyRange, MemoryStore, Sealed, Sequence, Store, StoreError, StoreFuture};
use futures::FutureExt;
use model::sabotage::{Sabotage, is_on};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::RwLock;

/// The end of the store's log that may not be on the medium. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<LogEnd>>);

#[derive(Default)]
struct LogEnd {
    /// A batch in the log whose sync failed: the next start finds it.
    unsynced: Option<Batch>,
    /// No commit is accepted until the next start.
    stopped: bool,
    /// The store without the changes that depend on the unsynced batch.
    durable: Option<MemoryStore>,
}

impl Log {
    /// Reads the log at a start, and syncs it before it trusts the contents.
    pub(crate) async fn open(&self, store: &MemoryStore) {
        let found = {
            let mut end = self.0.lock();
            end.stopped = false;
            end.unsynced.take()
        };
        if let Some(batch) = found {
            let durable = store.snapshot();
            // Its checks passed when it was written to the log, and nothing was written since.
            let replayed = store.commit(batch).await;
            assert!(replayed.is_ok(), "what is in the log can be read from it: {replayed:?}");
            self.0.lock().durable = Some(durable);
        }
        if !is_on(Sabotage::SweepBeforeCheckpoint) {
            self.0.lock().durable = None;
        }
    }

    /// The part of `store` that survives a power failure, without the log in front. That log has the last `lost` of the
    /// transactions that only it has made durable.
    pub(crate) fn crash(&self, store: &MemoryStore, lost: usize) -> MemoryStore {
        let LogEnd { durable, .. } = std::mem::take(&mut *self.0.lock());
        let left = store.crash_losing(lost);
        durable.unwrap_or(left)
    }

    /// True after a failed sync: nothing is committed until the next start.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Takes the log away, so another store can replace this one.
    pub(crate) fn take(&self) -> Self {
        Self(Arc::new(Mutex::new(std::mem::take(&mut *self.0.lock()))))
    }
}

/// A store in memory with faults. See the head of this file.
pub(crate) struct FaultyStore {
    pub(crate) store: MemoryStore,
    pub(crate) power: Power,
    pub(crate) log: Log,
    /// Held by every commit, so a commit whose sync fails can wait for the earlier ones.
    committing: RwLock<()>,
    /// Records before their last change, for a bug that a test switches on.
    before: Mutex<BTreeMap<Vec<u8>, Option<Sealed>>>,
    reads: AtomicU64,
}

/// One of this number of reads returns the record before its last change, where that bug is switched on.
const STALE_OF: u64 = 8;

impl FaultyStore {
    pub(crate) fn new(store: MemoryStore, power: Power, log: Log) -> Self {
        let (before, reads) = (Mutex::default(), AtomicU64::default());
        Self { store, power, log, committing: RwLock::new(()), before, reads }
    }

    /// The result of a wrong read of the record at `key`: the record with a flipped bit, or the next one of its kind.
    async fn misread(&self, key: &[u8], found: Option<Sealed>) -> Result<Option<Sealed>, StoreError> {
        let Some(found) = found else { return Ok(None) };
        let reads = self.reads.load(Ordering::Relaxed);
        if reads.is_multiple_of(2) {
            let others = self.store.scan(KeyRange::prefix_after(&key[..1], key), 1).await?;
            if let Some(other) = others.into_iter().next() {
                return Ok(Some(other.value));
            }
        }
        let mut bytes = found.as_bytes().to_vec();
        let bit = reads as usize % (8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        Ok(Some(Sealed::from_bytes(bytes)))
    }

    fn note_before(&self, batch: &Batch) {
        for write in &batch.writes {
            if let catalog::Write::Put(key, _) | catalog::Write::Delete(key) = write {
                let was = self.store.get(key).now_or_never().and_then(Result::ok).flatten();
                self.before.lock().insert(key.clone(), was);
            }
        }
    }
}

impl Store for FaultyStore {
    fn sequence(&self) -> Sequence {
        self.store.sequence()
    }

    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        let key = key.to_vec();
        Box::pin(async move {
            let reads = self.reads.fetch_add(1, Ordering::Relaxed);
            if is_on(Sabotage::StaleCatalogRead)
                && reads.is_multiple_of(STALE_OF)
                && let Some(stale) = self.before.lock().get(&key)
            {
                return Ok(stale.clone());
            }
            let found = self.store.get(&key).await?;
            if self.power.is_misread() { self.misread(&key, found).await } else { Ok(found) }
        })
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        Box::pin(async move {
            let mut values = self.store.get_many(keys.clone()).await?;
            for (key, value) in keys.iter().zip(&mut values) {
                if self.power.is_misread() {
                    *value = self.misread(key, value.take()).await?;
                }
            }
            Ok(values)
        })
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        if self.power.is_unlisted() {
            return Box::pin(async { Err(StoreError::Failed("a listing that was asked to fail".into())) });
        }
        self.store.scan(range, limit)
    }

    fn takes_payloads(&self) -> bool {
        self.store.takes_payloads()
    }

    fn behind_log(&self) -> Option<&str> {
        self.store.behind_log()
    }

    fn retain_log(&self) {
        self.store.retain_log();
    }

    fn set_aside(&self, is_aside: bool) {
        self.store.set_aside(is_aside);
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.power.step().await;
            let committing = self.committing.read().await;
            if self.log.0.lock().stopped {
                return Err(StoreError::Failed("a sync failed before; nothing is written until the next start".into()));
            }
            if is_on(Sabotage::StaleCatalogRead) {
                self.note_before(&batch);
            }
            // With a log in front, the sync of that log counts, and tests of the catalog let it fail.
            if self.power.is_unsynced() && !self.store.takes_payloads() {
                drop(committing);
                return self.fail_to_sync(batch).await;
            }
            let answer = self.store.commit(batch).await;
            self.power.step().await;
            if self.power.is_unanswered() && answer.is_ok() {
                return Err(StoreError::Failed("an error that was asked for".into()));
            }
            answer
        })
    }
}

impl FaultyStore {
    /// Writes `batch` to the log, and fails to sync it. Its checks are evaluated on a copy.
    async fn fail_to_sync(&self, batch: Batch) -> Result<(), StoreError> {
        // Later commits are after it in the log, and fail like it.
        self.log.0.lock().stopped = true;
        drop(self.committing.write().await);
        self.store.snapshot().commit(batch.clone()).await?;
        self.log.0.lock().unsynced = Some(batch);
        self.power.step().await;
        Err(StoreError::Failed("a sync that was asked to fail".into()))
    }
}
