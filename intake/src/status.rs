//! The state of an intake, for people and metrics. Reading it sends no request to a drive.

use crate::names::DriveUuid;
use crate::record::Sequence;
use engine::shift::{Alternation, ShiftStats, Stages};

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// The drive.
    pub uuid: DriveUuid,
    /// Its location, for people.
    pub place: String,
    /// Its present work.
    pub stages: Stages,
    /// True if it sleeps.
    pub asleep: bool,
    /// True if it is missing, or has failed.
    pub lost: bool,
    /// Shelves on it.
    pub shelves: usize,
    /// Bytes of these shelves.
    pub shelf_bytes: u64,
    /// Bytes written to it since it was opened.
    pub written: u64,
    /// Syncs of it since it was opened.
    pub syncs: u64,
}

/// A rotation over some drives of the pool; each rotation has all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleStatus {
    /// Its drives, in their order.
    pub drives: Vec<DriveStatus>,
    /// The alternation of stages when a log last reached its size.
    pub alternation: Option<Alternation>,
    /// Counts of the rotation.
    pub stats: ShiftStats,
    /// Logs that are not shelves yet, without the one on duty.
    pub backlog: usize,
    /// Logs that are already shelves, and are retained for a caller that does not have their changes.
    pub retained: usize,
    /// Bytes of the log on duty.
    pub log_bytes: u64,
    /// True if it takes records.
    pub admits: bool,
    /// True if some of its content was lost, or one of its drives is missing.
    pub incomplete: bool,
}

/// An intake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The rotations; their number is the number of copies.
    pub cycles: Vec<CycleStatus>,
    /// Copies of each record that are made at present: rotations that take records.
    pub copies: usize,
    /// The last number that was given.
    pub last: Sequence,
    /// Bytes that wait for their write.
    pub queued_bytes: usize,
    /// Bytes of keys, entries and values that were acknowledged since it was opened.
    pub accepted_bytes: u64,
    /// Batches written since it was opened; each takes one sync per copy.
    pub batches: u64,
    /// Changes that were acknowledged since it was opened.
    pub accepted: u64,
    /// Losses since it was opened, including those found at that time.
    pub losses: u64,
}

impl Status {
    /// Bytes written to all drives for each byte accepted; 0 if nothing was.
    pub fn write_amplification(&self) -> f64 {
        let written: u64 = self.cycles.iter().flat_map(|cycle| &cycle.drives).map(|drive| drive.written).sum();
        if self.accepted_bytes == 0 { 0.0 } else { written as f64 / self.accepted_bytes as f64 }
    }
}
