//! Who lets the writer and its tasks run.
//!
//! The writer is a state machine: each turn takes what waits, and does it. What takes long it hands over as a task,
//! which ends with a message. Two drivers let both run; neither decides anything.
//! - **Threads**: one for the writer, one for each drive, and one for each task.
//! - **The caller**, for virtual time: a change is taken in before its submission returns. A task runs when
//!   [`crate::Intake::work`] says so, or when a change has no room before it ends. One thing happens after another, so
//!   that the same calls over the same media always do the same. A drive that hangs hangs the caller.

use crate::shared::Shared;
use crate::writer::{Turned, Writer};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Who does the work of an intake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// Threads of its own.
    #[default]
    Threads,
    /// Whoever calls it: it has no thread.
    Caller,
}

type Task = Box<dyn FnOnce() + Send>;

/// Tasks that wait for a caller.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<VecDeque<Task>>);

/// The thread of a task, if it has one.
pub(crate) struct Handle(Option<JoinHandle<()>>);

impl Handle {
    /// Waits for its end, where it has a thread. `what` is named if it panicked.
    pub(crate) fn join(self, what: &str) {
        if self.0.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("{what} panicked");
        }
    }
}

impl Tasks {
    /// Begins `task`, by a thread of that name, or when the caller says so.
    pub(crate) fn begin(&self, driver: Driver, name: &str, task: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
        match driver {
            Driver::Threads => thread::Builder::new().name(name.into()).spawn(task).map(|thread| Handle(Some(thread))),
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

    fn wait(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Gives up all that wait.
    fn clear(&self) {
        // What they hold may be the last to hold something that takes a lock.
        drop(std::mem::take(&mut *self.0.lock()));
    }
}

/// A writer along with its driver.
pub(crate) enum Driven {
    Thread(Option<JoinHandle<()>>),
    Caller(Mutex<Option<Writer>>),
}

impl Driven {
    pub(crate) fn begin(driver: Driver, mut writer: Writer) -> io::Result<Self> {
        match driver {
            Driver::Threads => {
                let run = move || {
                    let shared = Arc::clone(&writer.shared);
                    // Also if this thread panics, nobody waits for ever.
                    let _closing = Closing(&shared);
                    while writer.turn(writer.patience(), false) != Turned::End {}
                    writer.end();
                };
                Ok(Self::Thread(Some(thread::Builder::new().name("intake-writer".into()).spawn(run)?)))
            }
            Driver::Caller => Ok(Self::Caller(Mutex::new(Some(writer)))),
        }
    }

    /// Takes in what waits, and runs so many tasks, where it is the caller who does that. Whether tasks wait still.
    pub(crate) fn work(&self, shared: &Shared, mut tasks: usize) -> bool {
        let Self::Caller(writer) = self else { return false };
        let mut writer = writer.lock();
        let Some(writer) = writer.as_mut() else { return false };
        let (mut has_looked, mut forced) = (false, false);
        loop {
            match writer.turn(Duration::ZERO, forced) {
                Turned::Worked => forced = false,
                Turned::End => break,
                Turned::Idle if !has_looked && writer.patience().is_zero() => {
                    has_looked = true;
                    writer.look_around();
                }
                Turned::Idle => {
                    let is_awaited = shared.queue.bytes() > 0 || writer.has_flushes();
                    if (tasks > 0 || is_awaited) && shared.tasks.run_one() {
                        tasks = tasks.saturating_sub(1);
                    } else if forced || shared.queue.bytes() == 0 {
                        break;
                    } else {
                        // Nothing is under way after which there would be room.
                        forced = true;
                    }
                }
            }
        }
        shared.tasks.wait()
    }

    /// Writes what waits, and ends. Nothing is taken in any more.
    pub(crate) fn end(&mut self, shared: &Shared) {
        self.work(shared, 0);
        match self {
            Self::Thread(writer) => Handle(writer.take()).join("the intake's writer"),
            Self::Caller(writer) => {
                shared.tasks.clear();
                if let Some(writer) = writer.lock().take() {
                    writer.end();
                }
                shared.queue.abort();
            }
        }
    }
}

/// Ends the queue when it is dropped.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.queue.abort();
    }
}
