//! Workload Shifting (Pan, Yue and Xiong) and its baselines on an array of disks: one client puts records one after the
//! other, and what was logged is transformed meanwhile.
//!
//! Three systems take the same puts. *Workload Shifting* is [`engine::shift`], the very rotation that intake runs.
//! *Log+RAID0* is the same log and the same trees over a stripe of all disks. *LevelDB* on the stripe is its levels,
//! triggers and stalls (`levels.rs`), so that its write amplification is an outcome. Disks of a pool sleep where the
//! rotation says so, and start by the permits of the power ledger (`power.rs`).
//!
//! Where data lies: each disk holds its part of the data set twice, logs first and trees behind them. LevelDB's log and
//! tables lie among each other.
//!
//! Invariants: every request is served by a disk in the order in which it came; keys, and the angle of each platter
//! after a seek, are drawn from streams of their own, so that the same parameters and seed give the same outcome.

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
        /// Where a log becomes a tree.
        model: Model,
        /// What becomes of logging that outruns transformation; the paper's is `Overlap`.
        overrun: Overrun,
    },
    /// A log, and its trees, on a stripe over all disks (section IV A).
    LogRaid0,
    /// LevelDB on a stripe over all disks.
    LevelDb,
}

/// The order of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Each as likely as any other.
    Random,
    /// Ascending: a log is in order already, and is not transformed.
    Sequential,
}

/// What one run puts, and where.
#[derive(Clone, Debug)]
pub struct ArrayRun {
    /// The system.
    pub system: ArraySystem,
    /// The disks. At least one.
    pub disks: u32,
    /// Each of them.
    pub disk: DiskSpec,
    /// The cost of a synced put on one disk.
    pub alone: PutCost,
    /// The cost of a synced put on each disk of a stripe.
    pub striped: PutCost,
    /// Puts.
    pub puts: u64,
    /// Bytes of each, its key counted.
    pub put_bytes: u64,
    /// The order of their keys.
    pub keys: KeyOrder,
    /// Whether each put is synced.
    pub sync: bool,
    /// Whether logs are transformed. LevelDB compacts in any case.
    pub transform: bool,
    /// The size of a log, in bytes.
    pub log_bytes: u64,
    /// The least time from one put to the next; a client without one puts as fast as it can.
    pub pace: Option<Duration>,
    /// Disks of Workload Shifting sleep after so long without work.
    pub idle_timeout: Option<Duration>,
    /// The requests of background work.
    pub requests: Requests,
    /// Memory that holds pages of LevelDB's tables, in bytes.
    pub cache_bytes: u64,
    /// The seed of keys and of platters.
    pub seed: u64,
}
