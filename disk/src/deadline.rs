//! A drive with a deadline for every call.
//!
//! A drive that hangs does not report it: a request never ends, or ends minutes later. [`DeadlineDrive`] answers
//! [`DriveError::NoAnswer`] in its place when the deadline of a request has passed. The request itself cannot be
//! cancelled; it continues in the background, with its buffer and the thread that it blocks, until the drive answers
//! after all.
//!
//! 1. A request waits for one of the drive's [`REQUESTS_MAX`] places, starts, and runs in a separate task.
//! 2. The caller gets the answer, or at the deadline `NoAnswer`. A request that has missed its deadline is *overdue*.
//! 3. While any request is overdue, no other one is sent to the drive: it is answered with `NoAnswer` at once.
//!
//! Invariants:
//! - every call ends within its deadline, for any behaviour of the drive;
//! - a drive holds at most [`REQUESTS_MAX`] buffers, threads and open files that it does not release;
//! - no request reaches a drive after one that it has not answered in time, so a late answer is never overtaken: a file
//!   that is created late is not removed before it is created.
//!
//! The times are the caller's; this module decides nothing.

use crate::{Buffer, Clock, Drive, DriveError, FileName, Space, finished};
use async_trait::async_trait;
use model::sabotage::{Sabotage, is_on};
use model::{Smart, Time};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Maximum number of running requests to one drive, including overdue ones. Further requests wait.
pub const REQUESTS_MAX: usize = 4;

/// The time allowed for each kind of call, in modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For a read of at most [`REQUEST_BYTES`](crate::REQUEST_BYTES), a length, a list of files.
    pub read: Duration,
    /// For a write of this size, and for creating or removing a file.
    pub write: Duration,
    /// For a sync.
    pub sync: Duration,
    /// For a start.
    pub spin_up: Duration,
    /// For a mount.
    pub mount: Duration,
    /// For an unmount.
    pub unmount: Duration,
    /// For a stop.
    pub stop: Duration,
}

/// A drive that answers in time, if only with an error. See the header of this file.
pub struct DeadlineDrive {
    inner: Arc<dyn Drive>,
    clock: Arc<dyn Clock>,
    deadlines: Deadlines,
    places: Arc<Semaphore>,
    overdue: Arc<Mutex<Overdue>>,
}

/// The requests that have missed their deadlines and were not answered yet.
#[derive(Default)]
struct Overdue {
    count: usize,
    /// Start of the first of them.
    since: Time,
}

impl DeadlineDrive {
    /// `inner`, with `deadlines`.
    pub fn new(inner: Arc<dyn Drive>, clock: Arc<dyn Clock>, deadlines: Deadlines) -> Self {
        let places = Arc::new(Semaphore::new(REQUESTS_MAX));
        Self { inner, clock, deadlines, places, overdue: Arc::default() }
    }

    /// Requests that have missed their deadlines and were not answered yet.
    pub fn overdue_requests(&self) -> usize {
        self.overdue.lock().count
    }

    /// The error of a drive that owes an answer, with the time since the request.
    fn silence(&self) -> Option<DriveError> {
        let overdue = self.overdue.lock();
        (overdue.count > 0).then(|| DriveError::NoAnswer(self.clock.now().since(overdue.since)))
    }

    /// Starts a request when it is awaited, and waits for its answer until the deadline.
    async fn ask<T, C>(&self, deadline: Duration, call: impl FnOnce(Arc<dyn Drive>) -> C) -> Result<T, DriveError>
    where
        T: Send + 'static,
        C: Future<Output = Result<T, DriveError>> + Send + 'static,
    {
        let began = self.clock.now();
        let place = self.place(began + deadline).await.ok_or(DriveError::NoAnswer(deadline))?;
        if let Some(silence) = self.silence() {
            return Err(silence);
        }
        let request = DriveRequest {
            began,
            deadline,
            clock: Arc::clone(&self.clock),
            overdue: Arc::clone(&self.overdue),
            _place: place,
        };
        let (answer, answered) = oneshot::channel();
        let task = tokio::spawn(request.run(call(Arc::clone(&self.inner)), answer));
        if let Ok(answer) = answered.await {
            return answer;
        }
        finished(task.await);
        Err(DriveError::NotReady("shutting down"))
    }

    /// A place for a request; `None` if none is free by `until`.
    async fn place(&self, until: Time) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        tokio::select! {
            biased;
            place = Arc::clone(&self.places).acquire_owned() => place.ok(),
            () = self.clock.sleep_until(until) => None,
        }
    }
}

/// A running request.
struct DriveRequest {
    began: Time,
    deadline: Duration,
    clock: Arc<dyn Clock>,
    overdue: Arc<Mutex<Overdue>>,
    /// Held until the drive has answered.
    _place: OwnedSemaphorePermit,
}

impl DriveRequest {
    /// Runs until the drive answers, however late that is. At the deadline the caller gets `NoAnswer`.
    async fn run<T>(
        self,
        call: impl Future<Output = Result<T, DriveError>>,
        answer: oneshot::Sender<Result<T, DriveError>>,
    ) {
        tokio::pin!(call);
        // The caller may be gone; that changes nothing.
        tokio::select! {
            biased;
            answered = &mut call => {
                let _ = answer.send(answered);
                return;
            }
            () = self.clock.sleep_until(self.began + self.deadline), if !is_on(Sabotage::NoDeadline) => {}
        }
        self.is_overdue();
        let _ = answer.send(Err(DriveError::NoAnswer(self.deadline)));
        let late = call.await.err();
        let after = self.clock.now().since(self.began);
        let mut overdue = self.overdue.lock();
        assert!(overdue.count > 0, "a request that missed its deadline counts until it is answered");
        overdue.count -= 1;
        drop(overdue);
        tracing::warn!(?after, error = ?late, "a drive answered long after its deadline");
    }

    fn is_overdue(&self) {
        let mut overdue = self.overdue.lock();
        if overdue.count == 0 {
            overdue.since = self.began;
        }
        overdue.count += 1;
        assert!(overdue.count <= REQUESTS_MAX, "every request under way has its place");
    }
}

#[async_trait]
impl Drive for DeadlineDrive {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.write, move |inner| async move { inner.create(&name, bytes).await }).await
    }

    async fn create_sparse(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.write, move |inner| async move { inner.create_sparse(&name, bytes).await }).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.write, move |inner| async move { inner.write_at(&name, offset, data).await }).await
    }

    async fn read_at(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.read, move |inner| async move { inner.read_at(&name, offset, into).await }).await
    }

    async fn pass(&self, name: &FileName, offset: u64, bytes: u64) -> Result<(), DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.read, move |inner| async move { inner.pass(&name, offset, bytes).await }).await
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.sync, move |inner| async move { inner.sync(&name).await }).await
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.write, move |inner| async move { inner.remove(&name).await }).await
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        let (from, to) = (from.clone(), to.clone());
        self.ask(self.deadlines.write, move |inner| async move { inner.replace(&from, &to).await }).await
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        let name = name.clone();
        self.ask(self.deadlines.read, move |inner| async move { inner.len(&name).await }).await
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.ask(self.deadlines.read, move |inner| async move { inner.list().await }).await
    }

    async fn space(&self) -> Result<Space, DriveError> {
        self.ask(self.deadlines.read, move |inner| async move { inner.space().await }).await
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        self.ask(self.deadlines.spin_up, move |inner| async move { inner.spin_up().await }).await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        self.ask(self.deadlines.mount, move |inner| async move { inner.mount().await }).await
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.ask(self.deadlines.unmount, move |inner| async move { inner.unmount().await }).await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        self.ask(self.deadlines.stop, move |inner| async move { inner.stop().await }).await
    }

    async fn health(&self) -> Result<Option<Smart>, DriveError> {
        // Several commands; some of them access the medium.
        self.ask(self.deadlines.mount, move |inner| async move { inner.health().await }).await
    }
}
