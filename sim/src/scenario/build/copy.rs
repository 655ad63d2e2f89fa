//! From the values of one case to a copy of a tree.

use super::hardware::rack;
use super::system::{Wrong, network, policy};
use crate::copying::Copying;
use crate::experiment::Experiment;
use crate::scenario::case::Case;
use crate::scenario::sources::Sources;
use std::time::Duration;

pub(super) fn copying(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Copying, Wrong> {
    let mut experiment = Experiment::pelican(rack(case, sources)?);
    policy(case, &experiment.rack, &mut experiment.policy)?;
    let others_per_s = case.number("copy.others_per_s");
    let others_gap = if others_per_s > 0.0 { Duration::from_secs_f64(others_per_s.recip()) } else { Duration::ZERO };
    Ok(Copying {
        rack: experiment.rack,
        policy: experiment.policy,
        network: network(case),
        objects: case.whole("copy.objects") as u32,
        object_bytes: case.bytes("copy.object").unwrap_or(0).max(1),
        at_once: case.whole("copy.at_once") as u32,
        by_place: case.word("copy.order") == "place",
        spool_bytes: case.bytes("copy.spool").unwrap_or(0),
        read_ahead: case.flag("copy.read_ahead"),
        others_gap,
        others_bytes: case.bytes("copy.others_size").unwrap_or(0).max(1),
        seeds: seeds.to_vec(),
    })
}
