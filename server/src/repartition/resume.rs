//! A checkpoint from which a job resumes, with everything that it counts on.

use super::checkpoint::{Checkpoint, OpenInputs};
use super::input::ReadInput;
use super::writer::OffloadedRun;
use catalog::VersionId;
use engine::repartition::Offloaded;
use model::GroupId;
use std::collections::{BTreeMap, BTreeSet};

/// A checkpoint from which a job can resume.
#[derive(Debug)]
pub(super) struct Resume {
    pub serial: u64,
    pub checkpoint: Checkpoint,
    pub read: Vec<ReadInput>,
    pub runs: BTreeMap<(GroupId, GroupId), Vec<OffloadedRun>>,
}

impl Resume {
    /// The offloaded runs, for the engine.
    pub fn offloaded(&self) -> Vec<Offloaded> {
        let of = |((on, target), runs): (&(GroupId, GroupId), &Vec<OffloadedRun>)| {
            let bytes = runs.iter().map(|run| run.counted).sum();
            Offloaded { on: *on, target: *target, bytes, pieces: runs.len() as u64 }
        };
        self.runs.iter().map(of).collect()
    }

    /// Versions that were read to their end.
    pub fn versions(&self) -> BTreeSet<VersionId> {
        self.read.iter().map(|(version, _)| *version).collect()
    }

    /// The open objects of the input.
    pub fn open(&self) -> OpenInputs {
        self.checkpoint.open.iter().copied().collect()
    }
}
