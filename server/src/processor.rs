//! Work that takes the processor for a while, off the runtime's threads, and the time it takes.
//!
//! That time is the rack's: on an emulated rack that runs `time_scale` times as fast as real time, host time counts
//! `time_scale` times. Where work is done in place and the clock stands still meanwhile, the rate of a processor can be
//! set.

use disk::Clock;
use model::transfer_time;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The processor for the work on records of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// The host's: work takes its real time.
    #[default]
    Host,
    /// A processor with this rate for each class, in bytes per second of modelled time; above 0. The host must take no
    /// time for the work.
    Modelled {
        /// The rate.
        bytes_per_s: u64,
    },
}

impl Processor {
    /// Does `work`, and returns its result and its duration in modelled time. `bytes` returns the number of bytes
    /// processed.
    pub(crate) async fn work<T: Send + 'static>(
        self,
        clock: &dyn Clock,
        work: impl FnOnce() -> T + Send + 'static,
        bytes: impl FnOnce(&T) -> u64,
    ) -> (T, Duration) {
        let began = clock.now();
        let done = heavy(work).await;
        if let Self::Modelled { bytes_per_s } = self {
            clock.sleep_until(began + transfer_time(bytes(&done), bytes_per_s)).await;
        }
        (done, clock.now().since(began))
    }
}

/// Does `work` where it blocks no other task. On a runtime of one thread, where nothing runs in parallel, in place.
pub(crate) async fn heavy<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and this task with it.
        Err(_) => std::future::pending().await,
    }
}
