//! Work that takes the processor for a while, off the runtime's threads, and the time it takes.
//!
//! That time is the rack's: on an emulated rack that runs `time_scale` times as fast as life, the host's counts as
//! often. Where work is done in place and the clock stands still meanwhile, it may be said how fast a processor is.

use disk::Clock;
use model::transfer_time;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The processor that records of jobs are worked on by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// The host's: work takes as long as it takes.
    #[default]
    Host,
    /// One that works on so many bytes in a second of modelled time, for each class; above 0. The host must take no
    /// time for it.
    Modelled {
        /// The rate.
        bytes_per_s: u64,
    },
}

impl Processor {
    /// Does `work`, and returns how long it took in modelled time. `bytes` says what it was done to.
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

/// Does `work` where it keeps nobody waiting. On a runtime of one thread, where nothing runs beside anything, in place.
pub(crate) async fn heavy<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and with it whoever waits here.
        Err(_) => std::future::pending().await,
    }
}
