//! Workload Shifting (Pan, Yue and Xiong) and its baselines on an array of disks: one client puts one record after the
//! other, and logged data is transformed meanwhile.
//!
//! Three systems take the same puts. *Workload Shifting* is [`engine::shift`], the same rotation that intake runs.
//! *Log+RAID0* is the same log and the same trees over a stripe of all disks. *LevelDB* on the stripe has its own
//! levels, triggers and stalls (`levels.rs`), so its write amplification is an outcome. Disks of a pool sleep when the
//! rotation decides it, and start by the permits of the power ledger (`power.rs`).
//!
//! Places of data: each disk stores its part of the data set twice, first logs and then trees. LevelDB's log and tables
//! are mixed.
//!
//! Invariants: a disk serves requests in the order of their arrival; keys have their own random stream, and so has the
//! angle of each platter after a seek, so the same parameters and seed give the same outcome.

mod array;
mod levels;
mod log;
mod power;
mod spindle;
mod task;

pub use array::{ArrayOutcome, Stage, StageSpan, run};
pub(crate) use spindle::seek_time;
pub use spindle::{DiskPower, DiskSpec, PutCost};
pub use task::Requests;

use core::time::Duration;
use engine::shift::{Model, Overrun};

/// The system that takes the puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArraySystem {
    /// A log that rotates over the disks.
    WorkloadShifting {
        /// The place where a log becomes a tree.
        model: Model,
        /// The effect of logging that outruns transformation; the paper's is `Overlap`.
        overrun: Overrun,
    },
    /// A log and its trees, on a stripe over all disks (section IV A).
    LogRaid0,
    /// LevelDB on a stripe over all disks.
    LevelDb,
}

/// The order of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// All keys are equally likely.
    Random,
    /// Ascending: a log is already in order, and is not transformed.
    Sequential,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct ArrayRun {
    /// The system.
    pub system: ArraySystem,
    /// The number of disks, at least one.
    pub disks: u32,
    /// The description of a disk.
    pub disk: DiskSpec,
    /// The cost of a synced put on one disk.
    pub alone: PutCost,
    /// The cost of a synced put on each disk of a stripe.
    pub striped: PutCost,
    /// The number of puts.
    pub puts: u64,
    /// Bytes of each put, including its key.
    pub put_bytes: u64,
    /// The order of their keys.
    pub keys: KeyOrder,
    /// True if each put is synced.
    pub sync: bool,
    /// True if logs are transformed. LevelDB always compacts.
    pub transform: bool,
    /// The size of a log, in bytes.
    pub log_bytes: u64,
    /// The minimum time from one put to the next; `None` is a client that puts as fast as it can.
    pub pace: Option<Duration>,
    /// The idle time after which disks of Workload Shifting sleep.
    pub idle_timeout: Option<Duration>,
    /// The requests of background work.
    pub requests: Requests,
    /// Memory for pages of LevelDB's tables, in bytes.
    pub cache_bytes: u64,
    /// The seed of keys and platter angles.
    pub seed: u64,
}
