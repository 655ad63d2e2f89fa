//! The state of an intake, for people and metrics. Nothing here asks a drive.

use crate::names::DriveUuid;
use crate::record::Sequence;
use engine::shift::{Alternation, ShiftStats, Stages};

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// Which one.
    pub uuid: DriveUuid,
    /// Where it is, for people.
    pub place: String,
    /// Its work at the moment.
    pub stages: Stages,
    /// It sleeps.
    pub asleep: bool,
    /// It is missing, or has failed.
    pub lost: bool,
    /// Shelves on it.
    pub shelves: usize,
    /// Bytes of these shelves.
    pub shelf_bytes: u64,
    /// Bytes that were written to it since it was opened.
    pub written: u64,
    /// Syncs of it since it was opened.
    pub syncs: u64,
}

/// A rotation over some drives of the pool: all records are in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleStatus {
    /// Its drives, in their order.
    pub drives: Vec<DriveStatus>,
    /// How stages alternated when a log last had its size.
    pub alternation: Option<Alternation>,
    /// Counts of the rotation.
    pub stats: ShiftStats,
    /// Logs that are not shelves yet, the one on duty apart.
    pub backlog: usize,
    /// Logs that are shelves and retained all the same, for a caller who does not have what is in them.
    pub retained: usize,
    /// Bytes of the log on duty.
    pub log_bytes: u64,
    /// It takes records.
    pub admits: bool,
    /// Something of it was lost, or a drive of it is missing.
    pub incomplete: bool,
}

/// An intake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The rotations: as many as there are copies.
    pub cycles: Vec<CycleStatus>,
    /// Copies of each record that a drive holds at the moment: rotations that take records.
    pub copies: usize,
    /// The last number that was given.
    pub last: Sequence,
    /// Bytes that wait to be written.
    pub queued_bytes: usize,
    /// Bytes of keys, entries and values that were acknowledged since it was opened.
    pub accepted_bytes: u64,
    /// Batches that were written since it was opened: one sync each, and for each copy.
    pub batches: u64,
    /// Changes that were acknowledged since it was opened.
    pub accepted: u64,
    /// Losses since it was opened, those that were found then included.
    pub losses: u64,
}

impl Status {
    /// Bytes written to all drives for each byte accepted; 0 if nothing was.
    pub fn write_amplification(&self) -> f64 {
        let written: u64 = self.cycles.iter().flat_map(|cycle| &cycle.drives).map(|drive| drive.written).sum();
        if self.accepted_bytes == 0 { 0.0 } else { written as f64 / self.accepted_bytes as f64 }
    }
}
