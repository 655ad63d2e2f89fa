//! Reads of single records, by separate threads.
//!
//! A PUT looks up two records, which takes microseconds; waking a thread for each would take longer than the look-up.
//! So look-ups that arrive while a thread works are left to it, and another thread is woken only when more look-ups
//! wait than this one will finish in a moment: if the medium is slow, all threads work.

use super::failure::store_error;
use super::statements::Statements;
use crate::error::StoreError;
use crate::store::StoreFuture;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// Look-ups that may wait per working thread before another thread is woken.
const BACKLOG: usize = 8;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The threads, each with a connection. They end when this is dropped.
pub(super) struct Lookups {
    path: Arc<Path>,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that work, or were woken for it.
    awake: usize,
    /// Those of them that were woken and have not noticed it yet.
    calls: usize,
    closed: bool,
}

impl Lookups {
    /// A thread for each of `connections`, all to the file at `path`.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if threads cannot be started.
    pub(super) fn start(path: Arc<Path>, connections: Vec<Connection>) -> Result<Self, StoreError> {
        assert!(!connections.is_empty(), "a store without readers answers nothing");
        let queue = Arc::new(Queue::default());
        *queue.state.lock() = State { threads: connections.len(), awake: connections.len(), ..State::default() };
        let mut lookups = Self { path, queue: Arc::clone(&queue), threads: Vec::new() };
        for connection in connections {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new().name("catalog-reader".into()).spawn(move || queue.work(&connection));
            lookups.threads.push(thread.map_err(|error| StoreError::Failed(error.to_string()))?);
        }
        Ok(lookups)
    }

    /// Runs `read`, which must be short, on one of the threads.
    pub(super) fn read<T, F>(&self, read: F) -> StoreFuture<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Statements<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let path = Arc::clone(&self.path);
        self.queue.push(Box::new(move |connection| {
            // A caller that no longer waits needs no answer.
            let _ = answer.send(read(&Statements::new(connection)).map_err(|error| store_error(&path, &error)));
        }));
        Box::pin(async move {
            let gone = || StoreError::Failed("a thread that reads the catalog has failed".into());
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.woken.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads the catalog panicked");
            }
        }
    }
}

impl Queue {
    fn push(&self, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.awake < state.threads && state.jobs.len() > BACKLOG * state.awake {
            state.awake += 1;
            state.calls += 1;
            drop(state);
            self.woken.notify_one();
        }
    }

    fn work(&self, connection: &Connection) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(|| job(connection))).is_err() {
                    tracing::error!("a look-up in the catalog panicked");
                }
                state = self.state.lock();
                continue;
            }
            if state.closed {
                return;
            }
            state.awake -= 1;
            while state.calls == 0 && !state.closed {
                self.woken.wait(&mut state);
            }
            if state.calls > 0 {
                state.calls -= 1;
            } else {
                state.awake += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn every_look_up_is_answered_however_many_there_are_and_after_one_that_panics() {
        let connections = (0..3).map(|_| Connection::open_in_memory().unwrap()).collect();
        let lookups = Lookups::start(Path::new("catalog").into(), connections).unwrap();
        for round in 0..50 {
            let asked = (0..round * 7).map(|number| lookups.read(move |_| Ok(number)));
            let answers = futures::future::join_all(asked).await;
            assert!(answers.into_iter().map(Result::unwrap).eq(0..round * 7));
        }
        for _ in 0..5 {
            assert!(lookups.read(|_| -> rusqlite::Result<()> { panic!("as planned") }).await.is_err());
        }
        let unanswered = lookups.read(|_| Ok(7));
        drop(lookups);
        assert_eq!(unanswered.await.unwrap(), 7, "what was asked before the end is answered");
    }
}
