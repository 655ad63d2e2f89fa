//! The settings of an intake, and its limits.

use crate::driver::Driver;
use crate::record::Sequence;
use model::Time;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of drives of a pool.
pub const DRIVES_MAX: usize = 64;

/// Number of a rotation's dead logs, retained for a caller that does not catch up, from which on nothing is taken in.
/// The rotation's other logs may follow them, at most one on each drive.
pub const RETAINED_MAX: usize = 64;

/// Number of drives from which on every record is written twice: two rotations of at least three drives each.
pub const COPIES_FROM_DRIVES: usize = 6;

/// Maximum length of an entry in bytes.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// A source of time that never runs backwards.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The settings of an intake. [`Config::new`] has defaults for all but those that must come from outside.
#[derive(Clone)]
pub struct Config {
    /// Random bits, drawn again each time an intake is opened; identities are made of them.
    pub entropy: u128,
    /// The time, for the rotation.
    pub clock: Clock,
    /// The driver that runs its work. Threads.
    pub driver: Driver,
    /// The size in bytes at which a log is left. 32 MiB; above 0.
    pub log_bytes: u64,
    /// A log on duty grows to this multiple of its size while logging outruns transformation; then writers wait. 4.
    pub stretch: u32,
    /// A drive of a pool with several drives sleeps after this time without work; `None` (the default) is never.
    pub idle_timeout: Option<Duration>,
    /// A request to a drive that takes longer than this counts as failed, and the drive as lost. 30 s.
    pub deadline: Duration,
    /// Bytes that may wait for their write. Writers are slowed from half of it on, and refused beyond it. 64 MiB.
    pub queue_bytes: usize,
    /// Maximum bytes per sync, unless a single record is longer. 4 MiB.
    pub batch_bytes: usize,
    /// Maximum length of a value in bytes. 16 MiB, and never above 512 MiB.
    pub value_bytes_max: usize,
    /// Number of shelves of one size on one drive that are merged into one. 8; at least 2.
    pub fan_in: usize,
    /// The last change that the caller knows. It receives all later ones when the intake is opened; their logs are
    /// retained until [`crate::Intake::covered`] raises this number. `None`: the caller needs none.
    pub covered: Option<Sequence>,
    /// The pool is opened read-only, over [`crate::medium::overlay`]: logs stay logs, and shelves stay. Not set.
    pub is_look: bool,
    /// While every rotation lacks a drive, the pool is not opened, and nothing on it is changed: the missing drives may
    /// be the only ones with the last acknowledged changes. Not set.
    pub needs_all: bool,
    /// Missing files of the manifest, and a missing or older manifest, are given up: reading a key that they may have
    /// held is then an error. If not set (the default), a pool with one of these losses is not opened.
    pub accepts_losses: bool,
}

impl Config {
    /// The defaults. `entropy` is random bits from the operating system.
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

    /// Panics if a setting has a value that its doc line excludes.
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
