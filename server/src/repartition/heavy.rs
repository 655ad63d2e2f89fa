//! Work that takes the processor for a while, off the runtime's threads.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does `work` where it keeps nobody waiting. On a runtime of one thread, where nothing runs beside anything, in place.
pub(super) async fn heavy<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
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
