//! Checkpoints: the progress of a job, as the catalog stores it (`restore.rs` saves and restores it).
//!
//! A checkpoint is taken when the engine asks for one. Nothing is buffered then and no step is under way, so every
//! record that was read is in an object of the output or in an offloaded run. Those are durable, in the hidden bucket.
//! The checkpoint adds which input was read, and what the job has learned about its records. Input that was read to its
//! end is listed object by object; an open object, with the number of its records taken.
//!
//! Invariant: at a checkpoint the records read are the records written and offloaded, by count and checksum.

use super::report::{Progress, Sample};
use batch::MultisetChecksum;
use catalog::VersionId;
use engine::repartition::Choice;
use model::{ClassId, GroupId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Open objects of the input, with the number of records taken from each.
pub(super) type OpenInputs = BTreeMap<VersionId, u64>;

/// The format of [`Checkpoint`]; other formats are not read.
pub(super) const VERSION: u32 = 1;

/// The durable progress of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub version: u32,
    /// Objects of the hidden bucket from this version on were written after the checkpoint.
    pub objects_below: VersionId,
    pub plan: FixedPlan,
    /// Objects of the input, as first listed.
    pub planned_objects: u64,
    /// Those that were read to their end.
    pub inputs_read: u64,
    /// Those that are open, with the number of records taken from each.
    pub open: Vec<(VersionId, u64)>,
    /// The number of each partition's next object.
    pub numbers: BTreeMap<usize, u64>,
    pub next_run: u64,
    /// Offloaded runs.
    pub runs: u64,
    /// Runs that were refilled, and are removed once this checkpoint is durable.
    pub refilled: Vec<u64>,
    /// The records read.
    pub read: Tally,
    /// Those that are in objects of the output.
    pub written: Tally,
    pub progress: Progress,
    pub spent: Spent,
    /// Columns and values of the records, once some were read.
    pub records: Option<RecordsLearned>,
}

/// The part of a plan that does not change when a job resumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FixedPlan {
    /// Versions from this one on are not part of the input.
    pub input_below: VersionId,
    pub format: String,
    /// The groups of each class that takes part.
    pub classes: Vec<(ClassId, Vec<GroupId>)>,
    pub destinations: Vec<GroupId>,
    pub chunk_bytes: u64,
    pub forced: Option<Choice>,
    pub sample: Option<Sample>,
}

/// The columns of a job's records, and the values and keys that its partitioner has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordsLearned {
    /// The object whose columns are the reference for the others.
    pub first: String,
    /// Its schema, and that of the output, as base64.
    pub schema: String,
    pub output: Option<String>,
    pub learned: batch::Learned,
}

/// A checksum of records; its sum is hexadecimal, since JSON has no numbers of that length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    rows: u64,
    sum: String,
}

impl From<MultisetChecksum> for Tally {
    fn from(tally: MultisetChecksum) -> Self {
        Self { rows: tally.rows, sum: format!("{:x}", tally.sum) }
    }
}

impl Tally {
    /// The checksum, if this is one.
    pub fn checksum(&self) -> Option<MultisetChecksum> {
        Some(MultisetChecksum { rows: self.rows, sum: u128::from_str_radix(&self.sum, 16).ok()? })
    }
}

/// Hardware time that a job has taken, in seconds, and the work done in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    pub whole_s: f64,
    pub reading_s: f64,
    pub writing_s: f64,
    pub verifying_s: f64,
    pub switching_s: f64,
    pub waiting_s: f64,
    #[serde(default)]
    pub processing_s: f64,
    /// Groups woken for the background, and for others.
    pub wakes: [u64; 2],
    pub strategy_changes: u32,
    pub offloaded_bytes: u64,
}

/// The note on a run that each of its members carries, so that the run is found again after a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunNote {
    /// The member's partition.
    pub partition: usize,
    /// The destination group.
    pub target: GroupId,
    /// The bytes that the run counts for in the buffer.
    pub counted: u64,
    /// Members of the run.
    pub members: u64,
    /// The checksum of the records of all members.
    pub tally: Tally,
}
