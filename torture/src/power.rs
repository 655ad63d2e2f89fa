//! Power that fails at a chosen step: every call of a drive and every commit of the catalog is a step before it is done
//! and one after.

use catalog::{Batch, Entry, KeyRange, MemoryStore, Sealed, Sequence, Store, StoreError, StoreFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Steps at one moment of virtual time after which time is taken to stand still.
const STANDSTILL_STEPS: u64 = 3_000_000;

/// The power of a site. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Power(Arc<Wires>);

#[derive(Default)]
struct Wires {
    taken: AtomicU64,
    /// The step at which it fails; 0 is never.
    fails_at: AtomicU64,
    failed: Notify,
    /// Commits until one is done and answered with an error; 0 is never.
    unanswered_in: AtomicU64,
    /// The last moment at which a step was taken, since `epoch`, and the steps of that moment.
    epoch: std::sync::OnceLock<Instant>,
    moment_ns: AtomicU64,
    at_moment: AtomicU64,
}

impl Power {
    /// It fails `steps` steps from now.
    pub(crate) fn fail_in(&self, steps: u64) {
        assert!(steps > 0, "a step that lies ahead");
        self.0.fails_at.store(self.steps() + steps, Ordering::Relaxed);
    }

    /// The `commits`th commit from now is done, and answered with an error: 1 is the next one.
    pub(crate) fn leave_unanswered(&self, commits: u64) {
        self.0.unanswered_in.store(commits, Ordering::Relaxed);
    }

    fn is_unanswered(&self) -> bool {
        let count = |left: u64| left.checked_sub(1);
        self.0.unanswered_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1)
    }

    /// It is there again, and stays.
    pub(crate) fn restore(&self) {
        self.0.fails_at.store(0, Ordering::Relaxed);
        self.0.unanswered_in.store(0, Ordering::Relaxed);
    }

    /// Steps that were taken.
    pub(crate) fn steps(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Returns when it has failed.
    pub(crate) async fn failed(&self) {
        loop {
            self.0.failed.notified().await;
            // Notified by a failure of old, otherwise.
            if self.0.fails_at.load(Ordering::Relaxed) != 0 {
                return;
            }
        }
    }

    /// One step. Without power there is no next one.
    pub(crate) async fn step(&self) {
        let taken = self.0.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.time_goes_on();
        let fails_at = self.0.fails_at.load(Ordering::Relaxed);
        if fails_at != 0 && taken >= fails_at {
            self.0.failed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Panics if so many steps are taken at one moment that no more can be meant to come of them.
    pub(crate) fn time_goes_on(&self) {
        let epoch = *self.0.epoch.get_or_init(disk::clock::monotonic);
        let now = disk::clock::monotonic().saturating_duration_since(epoch).as_nanos() as u64;
        if self.0.moment_ns.swap(now, Ordering::Relaxed) != now {
            self.0.at_moment.store(0, Ordering::Relaxed);
        }
        let steps = self.0.at_moment.fetch_add(1, Ordering::Relaxed);
        assert!(steps < STANDSTILL_STEPS, "time stands still: {steps} steps at one moment");
    }
}

/// A store in memory under a site's power.
pub(crate) struct PoweredStore {
    pub(crate) store: MemoryStore,
    pub(crate) power: Power,
}

impl Store for PoweredStore {
    fn sequence(&self) -> Sequence {
        self.store.sequence()
    }

    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        self.store.get(key)
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        self.store.get_many(keys)
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.store.scan(range, limit)
    }

    fn takes_payloads(&self) -> bool {
        self.store.takes_payloads()
    }

    fn behind_log(&self) -> Option<&str> {
        self.store.behind_log()
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.power.step().await;
            let answer = self.store.commit(batch).await;
            self.power.step().await;
            if self.power.is_unanswered() && answer.is_ok() {
                return Err(StoreError::Failed("an error that was asked for".into()));
            }
            answer
        })
    }
}

/// Long enough for whatever was begun beside an answer to be over, at the same moment of virtual time.
pub(crate) const SETTLED: Duration = Duration::from_millis(1);
