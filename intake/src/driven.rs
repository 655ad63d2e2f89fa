//! The writer and its driver ([`crate::driver`]).

use crate::driver::{Driver, Handle};
use crate::shared::Shared;
use crate::writer::{StepResult, Writer};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A writer with its driver.
pub(crate) enum Driven {
    Thread(Mutex<Option<Handle>>),
    Caller(Mutex<Option<Writer>>),
}

impl Driven {
    pub(crate) fn begin(driver: Driver, mut writer: Writer) -> io::Result<Self> {
        match driver {
            Driver::Threads => {
                let run = move || {
                    let shared = Arc::clone(&writer.shared);
                    // So that no caller waits forever even if this thread panics.
                    let _closing = Closing(&shared);
                    while writer.step(writer.patience(), false) != StepResult::End {}
                    writer.end();
                };
                let thread = thread::Builder::new().name("intake-writer".into()).spawn(run)?;
                Ok(Self::Thread(Mutex::new(Some(Handle::of(thread)))))
            }
            Driver::Caller => Ok(Self::Caller(Mutex::new(Some(writer)))),
        }
    }

    /// If the caller drives: takes in all waiting changes, and runs `tasks` waiting tasks, and more if a change waits
    /// for room or a flush is awaited. True if tasks still wait.
    pub(crate) fn work(&self, shared: &Shared, mut tasks: usize) -> bool {
        let Self::Caller(writer) = self else { return false };
        let mut writer = writer.lock();
        let Some(writer) = writer.as_mut() else { return false };
        let (mut has_looked, mut forced) = (false, false);
        loop {
            match writer.step(Duration::ZERO, forced) {
                StepResult::Worked => forced = false,
                StepResult::End => break,
                StepResult::Idle if !has_looked && writer.patience().is_zero() => {
                    has_looked = true;
                    writer.look_around();
                }
                StepResult::Idle => {
                    let is_awaited = shared.queue.bytes() > 0 || writer.has_flushes();
                    if (tasks > 0 || is_awaited) && shared.tasks.run_one() {
                        tasks = tasks.saturating_sub(1);
                    } else if forced || shared.queue.bytes() == 0 {
                        break;
                    } else {
                        // No task is left that could make room.
                        forced = true;
                    }
                }
            }
        }
        shared.tasks.wait()
    }

    /// Writes the waiting changes, and ends. Nothing is taken in any more.
    pub(crate) fn end(&self, shared: &Shared) {
        shared.queue.close();
        self.work(shared, 0);
        match self {
            Self::Thread(thread) => {
                if let Some(thread) = thread.lock().take() {
                    thread.join("the intake's writer");
                }
            }
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
