//! The settings of an intake, and its limits.

use crate::driver::Driver;
use crate::record::Sequence;
use model::Time;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Drives of a pool at most.
pub const DRIVES_MAX: usize = 64;

/// Dead logs of a rotation that are retained for a caller who does not catch up; then nothing more is taken in.
pub const RETAINED_MAX: usize = 64;

/// Drives from which on every record is written twice: two rotations of at least three drives each.
pub const COPIES_FROM_DRIVES: usize = 6;

/// Bytes of an entry at most.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// A source of time, which never runs backwards.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The settings of an intake. [`Config::new`] has defaults for all but what must come from outside.
#[derive(Clone)]
pub struct Config {
    /// Random bits, drawn anew each time an intake is opened: identities are made of them.
    pub entropy: u128,
    /// The time, for the rotation.
    pub clock: Clock,
    /// Who does its work. Threads.
    pub driver: Driver,
    /// The size at which a log is left, in bytes. 32 MiB; above 0.
    pub log_bytes: u64,
    /// A log on duty grows to so many times its size while logging outruns transformation; then writers wait. 4.
    pub stretch: u32,
    /// A drive of a pool of several sleeps after so long without work; `None` is never, and the default.
    pub idle_timeout: Option<Duration>,
    /// A request to a drive that takes longer counts as failed, and the drive as lost. 30 s.
    pub deadline: Duration,
    /// Bytes that may wait to be written. Writers are slowed from half of it on, and refused beyond it. 64 MiB.
    pub queue_bytes: usize,
    /// Bytes that are written with one sync, unless one record alone is longer. 4 MiB.
    pub batch_bytes: usize,
    /// Bytes of a value at most. 16 MiB, and never above 512 MiB.
    pub value_bytes_max: usize,
    /// Shelves of one size on one drive that are merged into one. 8; at least 2.
    pub fan_in: usize,
    /// The changes up to this one are known to the caller, who gets the others when the intake is opened; their logs
    /// are retained until [`crate::Intake::covered`] says more. `None`: the caller needs none.
    pub covered: Option<Sequence>,
    /// The pool is only looked at, over [`crate::medium::overlay`]: logs stay logs, and shelves as they are. Not set.
    pub is_look: bool,
    /// The pool is not opened, and nothing on it is changed, while every rotation lacks a drive: what was acknowledged
    /// last may be there alone. Not set.
    pub needs_all: bool,
    /// Missing files of the manifest, and a manifest that is older or gone, are given up: a read of a key that they may
    /// have held is an error. Not set: such a pool is not opened.
    pub accepts_losses: bool,
}

impl Config {
    /// The defaults. `entropy` are random bits from the operating system.
    pub fn new(entropy: u128, clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self {
            entropy,
            clock: Arc::new(clock),
            driver: Driver::Threads,
            log_bytes: 32 << 20,
            stretch: 4,
            idle_timeout: None,
            deadline: Duration::from_secs(30),
            queue_bytes: 64 << 20,
            batch_bytes: 4 << 20,
            value_bytes_max: 16 << 20,
            fan_in: 8,
            covered: None,
            is_look: false,
            needs_all: false,
            accepts_losses: false,
        }
    }

    /// Panics if a setting has a value that its line rules out.
    pub(crate) fn check(&self) {
        assert!(self.log_bytes > 0 && self.stretch > 0, "a log has a size");
        assert!(self.value_bytes_max <= 512 << 20, "a record is read as a whole");
        assert!(self.fan_in >= 2, "one shelf is not merged");
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("log_bytes", &self.log_bytes).finish_non_exhaustive()
    }
}
