//! The clock of modelled time, as an argument; and the only place where the system's clocks are read.
//!
//! One implementation serves real and simulated time: tokio's clock, which a paused runtime turns into virtual time.
//! With a time scale above 1 modelled time runs faster than wall time.

use futures::future::BoxFuture;
use model::Time;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The process's clock for spans of wall time, which never runs backwards. Virtual if tokio's clock is paused.
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The wall clock: the time since the Unix epoch; 0 before it.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The wall clock in milliseconds of the Unix epoch.
pub fn wall_ms() -> u64 {
    since_epoch().as_millis() as u64
}

/// A source of modelled time.
pub trait Clock: Send + Sync + 'static {
    /// The current modelled time.
    fn now(&self) -> Time;

    /// Waits until `when`; returns at once if it has passed. Never returns for [`Time::MAX`].
    fn sleep_until(&self, when: Time) -> BoxFuture<'static, ()>;

    /// Modelled seconds per second of wall time.
    fn scale(&self) -> u32;

    /// `modelled` in wall time, rounded up, so that a wait of this length is long enough.
    fn to_wall(&self, modelled: Duration) -> Duration {
        let wall = modelled / self.scale();
        if self.to_modelled(wall) < modelled { wall + Duration::from_nanos(1) } else { wall }
    }

    /// `wall` in modelled time.
    fn to_modelled(&self, wall: Duration) -> Duration {
        wall.saturating_mul(self.scale())
    }
}

/// [`Clock`] over tokio's clock, which never runs backwards.
#[derive(Clone, Debug)]
pub struct TokioClock {
    started: Instant,
    origin: Time,
    scale: u32,
}

impl TokioClock {
    /// A clock that shows `origin` now and runs `scale` times as fast as wall time. `scale` must be above 0.
    pub fn starting_at(origin: Time, scale: u32) -> Self {
        assert!(scale > 0, "time must go on");
        Self { started: Instant::now(), origin, scale }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        self.origin + self.to_modelled(self.started.elapsed())
    }

    fn sleep_until(&self, when: Time) -> BoxFuture<'static, ()> {
        if when == Time::MAX {
            return Box::pin(std::future::pending());
        }
        let wall = self.to_wall(when.since(self.origin));
        Box::pin(tokio::time::sleep_until(self.started + wall))
    }

    fn scale(&self) -> u32 {
        self.scale
    }
}
