//! The drivers that run the writer and its tasks.
//!
//! The writer is a state machine: each step takes one message or batch, and handles it. Long work becomes a task, which
//! ends with a message. Two drivers run both; neither decides anything.
//! - **Threads**: one for the writer, one for each drive, and one for each task.
//! - **The caller**, for virtual time: a change is taken in before its submission returns. A task runs when
//!   [`crate::Intake::work`] is called, or when a change has no room until it ends. Everything happens in sequence, so
//!   the same calls over the same media always do the same. A drive that hangs hangs the caller.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::thread::{self, JoinHandle};

/// The driver of an intake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// Separate threads.
    #[default]
    Threads,
    /// The caller: the intake has no thread.
    Caller,
}

type Task = Box<dyn FnOnce() + Send>;

/// Tasks that wait for a caller.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<VecDeque<Task>>);

/// The thread of a task, if it has one.
pub(crate) struct Handle(Option<JoinHandle<()>>);

impl Handle {
    /// The handle of a thread.
    pub(crate) fn of(thread: JoinHandle<()>) -> Self {
        Self(Some(thread))
    }

    /// Waits for the end of the thread, if it has one. `what` is logged if it panicked.
    pub(crate) fn join(self, what: &str) {
        if self.0.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("{what} panicked");
        }
    }
}

impl Tasks {
    /// Starts `task` in a thread of that name, or queues it for the caller.
    pub(crate) fn begin(&self, driver: Driver, name: &str, task: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
        match driver {
            Driver::Threads => thread::Builder::new().name(name.into()).spawn(task).map(Handle::of),
            Driver::Caller => {
                self.0.lock().push_back(Box::new(task));
                Ok(Handle(None))
            }
        }
    }

    /// Runs the task that has waited longest; `false` if none waits.
    pub(crate) fn run_one(&self) -> bool {
        let task = self.0.lock().pop_front();
        task.map(|task| task()).is_some()
    }

    /// True if a task waits.
    pub(crate) fn wait(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Drops all waiting tasks.
    pub(crate) fn clear(&self) {
        // Their contents may be the last handles of something that takes a lock.
        drop(std::mem::take(&mut *self.0.lock()));
    }
}
