//! The rate at which room becomes free, and the retry hint of a refusal.

use disk::clock;
use std::time::Duration;
use tokio::time::Instant;

/// The time over which the rate is averaged: long enough to see more than one pack being freed, short enough to follow
/// the load.
const MEMORY: Duration = Duration::from_mins(2);
/// The shortest retry hint.
const RETRY_MIN: Duration = Duration::from_secs(5);
/// The longest retry hint, which is also used if nothing was freed recently.
const RETRY_MAX: Duration = Duration::from_mins(2);

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for {wanted_bytes} bytes: {free_bytes} are free")]
pub struct Full {
    /// The requested room, with everything that the file takes on the disk, in bytes.
    pub wanted_bytes: u64,
    /// The free room, in bytes.
    pub free_bytes: u64,
    /// The capacity, in bytes.
    pub capacity_bytes: u64,
    /// Time until the next attempt, in wall time, by the rate at which room became free recently. `None`: it will never
    /// fit.
    pub retry_after: Option<Duration>,
}

/// The rate at which room becomes free, as an exponential average.
#[derive(Debug)]
pub(crate) struct Drain {
    bytes: f64,
    at: Instant,
}

impl Drain {
    /// A drain from which nothing has become free so far.
    pub(crate) fn new() -> Self {
        Self { bytes: 0.0, at: clock::monotonic() }
    }

    /// Records that `bytes` became free now.
    pub(crate) fn note(&mut self, bytes: u64) {
        let now = clock::monotonic();
        self.bytes = self.remembered(now) + bytes as f64;
        self.at = now;
    }

    /// The refusal of `wanted_bytes` where `free_bytes` of `capacity_bytes` are free.
    pub(crate) fn full(&self, wanted_bytes: u64, free_bytes: u64, capacity_bytes: u64) -> Full {
        let retry_after = (wanted_bytes <= capacity_bytes).then(|| {
            let rate = self.remembered(clock::monotonic()) / MEMORY.as_secs_f64();
            let seconds = wanted_bytes.saturating_sub(free_bytes) as f64 / rate;
            Duration::try_from_secs_f64(seconds).map_or(RETRY_MAX, |wait| wait.clamp(RETRY_MIN, RETRY_MAX))
        });
        Full { wanted_bytes, free_bytes, capacity_bytes, retry_after }
    }

    fn remembered(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at);
        self.bytes * (-age.as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_hint_follows_how_fast_room_becomes_free() {
        let mut drain = Drain::new();
        assert_eq!(drain.full(10, 0, 100).retry_after, Some(RETRY_MAX), "nothing was ever freed");
        drain.note(1200);
        assert_eq!(drain.full(300, 0, 1000).retry_after, Some(Duration::from_secs(30)));
        assert_eq!(drain.full(1, 0, 1000).retry_after, Some(RETRY_MIN));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(drain.full(300, 0, 1000).retry_after, Some(RETRY_MAX), "that was long ago");
        assert_eq!(drain.full(1001, 1000, 1000).retry_after, None, "larger than everything");
    }
}
