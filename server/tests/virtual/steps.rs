//! Power that fails at a chosen step: every call of a drive and every commit of the catalog counts one step before it
//! is done and one after.

use async_trait::async_trait;
use catalog::{Batch, Entry, KeyRange, MemoryStore, Sealed, Sequence, Store, StoreError, StoreFuture};
use disk::{Buffer, Drive, DriveError, DriveFuture, FileName, MemoryDrive, Space};
use futures::future::BoxFuture;
use model::Smart;
use server::intake_log::IntakeLog;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, watch};
use workshop::{NamedSlot, Removal, SmallRecord, SmallRecords};

/// The next step at which the power fails in a history that is repeated: `stride` steps further, or one step if
/// `LARDER_STEPS` is `all`.
pub fn next_step(step: u64, stride: u64) -> u64 {
    assert!(stride > 0, "a step that lies ahead");
    let goes_through_all = std::env::var("LARDER_STEPS").is_ok_and(|steps| steps == "all");
    step + if goes_through_all { 1 } else { stride }
}

/// The power of a site. Clones share it.
#[derive(Clone, Default)]
pub struct Power(Arc<Wires>);

#[derive(Default)]
struct Wires {
    taken: AtomicU64,
    /// The step at which it fails; 0 is never.
    fails_at: AtomicU64,
    failed: Notify,
    /// The step at which a waiter is notified; 0 is never.
    notifies_at: AtomicU64,
    reached: Notify,
}

impl Power {
    /// Makes the power fail `steps` steps from now.
    pub fn fail_in(&self, steps: u64) {
        assert!(steps > 0, "a step that lies ahead");
        self.0.fails_at.store(self.steps() + steps, Ordering::Relaxed);
    }

    /// Returns `steps` steps from now, between that step and the next one of the task that took it.
    pub async fn after(&self, steps: u64) {
        self.0.notifies_at.store(self.steps() + steps, Ordering::Relaxed);
        self.0.reached.notified().await;
    }

    /// Restores the power; it does not fail until the next `fail_in`.
    pub fn restore(&self) {
        self.0.fails_at.store(0, Ordering::Relaxed);
    }

    /// Steps that were taken.
    pub fn steps(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Returns when it has failed.
    pub async fn failed(&self) {
        loop {
            self.0.failed.notified().await;
            // Otherwise the notification is of an earlier failure.
            if self.0.fails_at.load(Ordering::Relaxed) != 0 {
                return;
            }
        }
    }

    /// Takes one step. Without power it never returns.
    async fn step(&self) {
        let taken = self.0.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if taken == self.0.notifies_at.load(Ordering::Relaxed) {
            self.0.reached.notify_one();
            tokio::task::yield_now().await;
        }
        let fails_at = self.0.fails_at.load(Ordering::Relaxed);
        if fails_at != 0 && taken >= fails_at {
            self.0.failed.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// A switch that makes a drive silent: a silent drive executes no call until the silence ends. Clones share it.
#[derive(Clone)]
pub struct Silence(Arc<watch::Sender<bool>>);

impl Default for Silence {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Silence {
    pub fn set(&self, silent: bool) {
        self.0.send_replace(silent);
    }

    async fn ends(&self) {
        let _ = self.0.subscribe().wait_for(|silent| !silent).await;
    }
}

/// A drive in memory under a site's power.
pub struct Powered {
    pub drive: Arc<MemoryDrive>,
    pub power: Power,
    pub silence: Silence,
    /// Bytes that were written to it and read from it.
    pub moved_bytes: Arc<AtomicU64>,
    /// Bytes per second that it takes; `None` is unlimited.
    pub bytes_s: Option<u64>,
}

impl Powered {
    async fn move_bytes(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(bytes_s) = self.bytes_s {
            tokio::time::sleep(model::transfer_time(bytes as u64, bytes_s)).await;
        }
    }

    async fn stepped<T>(&self, call: DriveFuture<'_, T>) -> Result<T, DriveError> {
        self.power.step().await;
        self.silence.ends().await;
        let answer = call.await;
        self.power.step().await;
        answer
    }
}

#[async_trait]
impl Drive for Powered {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        self.stepped(self.drive.create(name, bytes)).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        self.move_bytes(data.len()).await;
        self.stepped(self.drive.write_at(name, offset, data)).await
    }

    async fn read_at(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError> {
        self.move_bytes(into.len()).await;
        self.stepped(self.drive.read_at(name, offset, into)).await
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        self.stepped(self.drive.sync(name)).await
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        self.stepped(self.drive.remove(name)).await
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        self.stepped(self.drive.replace(from, to)).await
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        self.drive.len(name).await
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.drive.list().await
    }

    async fn space(&self) -> Result<Space, DriveError> {
        self.drive.space().await
    }

    async fn health(&self) -> Result<Option<Smart>, DriveError> {
        self.stepped(self.drive.health()).await
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        self.stepped(self.drive.spin_up()).await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        self.stepped(self.drive.mount()).await
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.stepped(self.drive.unmount()).await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        self.stepped(self.drive.stop()).await
    }
}

/// The records of small files under a site's power: their removal is a step.
pub struct PoweredRecords {
    pub records: Arc<dyn SmallRecords>,
    pub power: Power,
}

impl SmallRecords for PoweredRecords {
    fn bytes(&self, at: &NamedSlot) -> BoxFuture<'_, io::Result<Option<u64>>> {
        self.records.bytes(at)
    }

    fn read(&self, at: &NamedSlot, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        self.records.read(at, range)
    }

    fn read_end(&self, at: &NamedSlot, bytes: u64) -> BoxFuture<'_, io::Result<Option<workshop::RecordEnd>>> {
        self.records.read_end(at, bytes)
    }

    fn remove(&self, removals: Vec<Removal>) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.power.step().await;
            for removal in removals {
                self.records.remove(vec![removal]).await?;
                self.power.step().await;
            }
            Ok(())
        })
    }

    fn page(&self, from: &NamedSlot, limit: usize) -> BoxFuture<'_, io::Result<Vec<SmallRecord>>> {
        self.records.page(from, limit)
    }

    fn slots_end(&self) -> u64 {
        self.records.slots_end()
    }

    fn are_all_known(&self) -> bool {
        self.records.are_all_known()
    }
}

/// The records of the intake's own log, whose thread answers a removal in no virtual time: the caller of `remove`
/// blocks the thread until the answer, and no timer advances meanwhile. Reads wait in tokio as usual.
pub struct OwnRecords(pub Arc<IntakeLog>);

impl SmallRecords for OwnRecords {
    fn bytes(&self, at: &NamedSlot) -> BoxFuture<'_, io::Result<Option<u64>>> {
        self.0.bytes(at)
    }

    fn read(&self, at: &NamedSlot, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        self.0.read(at, range)
    }

    fn read_end(&self, at: &NamedSlot, bytes: u64) -> BoxFuture<'_, io::Result<Option<workshop::RecordEnd>>> {
        self.0.read_end(at, bytes)
    }

    fn remove(&self, removals: Vec<Removal>) -> BoxFuture<'_, io::Result<()>> {
        let mut removed = self.0.remove(removals);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match removed.as_mut().poll(&mut context) {
                Poll::Ready(done) => return Box::pin(std::future::ready(done)),
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    fn page(&self, from: &NamedSlot, limit: usize) -> BoxFuture<'_, io::Result<Vec<SmallRecord>>> {
        self.0.page(from, limit)
    }

    fn slots_end(&self) -> u64 {
        self.0.slots_end()
    }

    fn are_all_known(&self) -> bool {
        self.0.are_all_known()
    }
}

/// The faults of a site's store. Clones share them.
#[derive(Clone, Default)]
pub struct StoreFaults(Arc<Faults>);

#[derive(Default)]
struct Faults {
    /// The next commit is done and not answered, and from then on nothing is listed.
    breaks: AtomicBool,
    /// Nothing is listed.
    broken: AtomicBool,
}

impl StoreFaults {
    /// Breaks the store with the next commit, which is still done.
    pub fn break_at_next_commit(&self) {
        self.0.breaks.store(true, Ordering::Relaxed);
    }

    /// Ends all faults.
    pub fn repair(&self) {
        self.0.breaks.store(false, Ordering::Relaxed);
        self.0.broken.store(false, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Relaxed)
    }

    /// True if the commit that is done now breaks it.
    fn break_now(&self) -> bool {
        let breaks = self.0.breaks.swap(false, Ordering::Relaxed);
        self.0.broken.fetch_or(breaks, Ordering::Relaxed);
        breaks
    }
}

/// A store in memory under a site's power.
pub struct PoweredStore {
    pub store: MemoryStore,
    pub power: Power,
    /// The number of reads of records.
    pub reads: Arc<AtomicU64>,
    pub faults: StoreFaults,
}

impl Store for PoweredStore {
    fn sequence(&self) -> Sequence {
        self.store.sequence()
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

    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.get(key)
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.get_many(keys)
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.faults.is_broken() {
            return Box::pin(async { Err(StoreError::Failed("the listing fails".into())) });
        }
        self.store.scan(range, limit)
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.power.step().await;
            let answer = self.store.commit(batch).await;
            self.power.step().await;
            if self.faults.break_now() { Err(StoreError::Failed("no answer".into())) } else { answer }
        })
    }
}
