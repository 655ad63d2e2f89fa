//! From the values of one case to its trial: the trial of a serving rack is here, that of a repartition in `job.rs`, of
//! a filled rack in `fill.rs`, of a copy in `copy.rs`; `hardware.rs` and `system.rs` have the common parts.

mod copy;
mod fill;
mod hardware;
mod job;
mod system;

use self::hardware::rack;
use self::system::{Wrong, network, policy};
use super::case::Case;
use super::sources::Sources;
use super::trial::Trial;
use super::value::Meaning;
use crate::chance::{Popularity, Sizes};
use crate::experiment::{Arrivals, Experiment, Fault, System, Workload};
use model::{DriveId, RackSpec};
use std::time::Duration;

/// The trial of `case`.
pub(super) fn trial(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Trial, Wrong> {
    Ok(match case.word("kind") {
        "repartition" => Trial::Repartition(Box::new(job::job(case, seeds, sources)?)),
        "copy" => Trial::Copy(Box::new(copy::copying(case, seeds, sources)?)),
        "fill" => Trial::Fill(Box::new(fill::filling(case, seeds, sources)?)),
        _ => Trial::Service(Box::new(experiment(case, seeds, sources)?)),
    })
}

fn experiment(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Experiment, Wrong> {
    let mut experiment = Experiment::pelican(rack(case, sources)?);
    experiment.system = match case.word("system") {
        "fully_provisioned" => System::FullyProvisioned,
        "random_layout" => System::RandomLayout,
        _ => System::Engine,
    };
    policy(case, &experiment.rack, &mut experiment.policy)?;
    experiment.network = network(case);
    experiment.workload = workload(case, sources)?;
    experiment.stored_blobs = case.whole("stored_blobs") as u32;
    experiment.stored_permille = (case.number("stored_share") * 1000.0).round() as u32;
    experiment.warm_up = case.span("warm_up").unwrap_or(Duration::ZERO);
    experiment.duration = case.span("duration").unwrap_or(experiment.duration);
    experiment.fault = fault(case, &experiment.rack)?;
    experiment.seeds = seeds.to_vec();
    Ok(experiment)
}

fn fault(case: &Case, rack: &RackSpec) -> Result<Option<Fault>, Wrong> {
    if case.word("fault.kind") == "none" {
        return Ok(None);
    }
    let (drive, drives) = (case.whole("fault.drive"), rack.drives.len());
    if drive >= drives as u64 {
        return Err(("fault.drive", format!("the rack has no drive {drive}; write a number from 0 to {}", drives - 1)));
    }
    if case.word("system") == "random_layout" {
        return Err(("fault.kind", "the random layout rebuilds nothing; leave it out of `system`".to_owned()));
    }
    let bytes = case.bytes("fault.stored").unwrap_or(0);
    let blobs = case.whole("fault.blobs") as u32;
    Ok(Some(Fault { drive: DriveId(drive as u32), blobs, bytes }))
}

fn workload(case: &Case, sources: &mut Sources<'_>) -> Result<Workload, Wrong> {
    let arrivals = match case.word("workload.arrivals") {
        "burst" => Arrivals::Burst {
            reads: case.whole("workload.reads") as u32,
            over: case.span("workload.over").unwrap_or(Duration::from_mins(1)),
        },
        "replay" => {
            let Some(Meaning::Word(path)) = case.meaning_of("workload.trace") else {
                let why = "a replay needs a trace; write workload.trace = \"trace.csv\"";
                return Err(("workload.arrivals", why.to_owned()));
            };
            Arrivals::Replay(sources.trace(path).map_err(|why| ("workload.trace", why))?)
        }
        _ => Arrivals::poisson(match case.meaning("workload.rate") {
            Meaning::PerS(rate) => *rate,
            _ => 0.0,
        }),
    };
    let sizes = match case.meaning_of("workload.size") {
        Some(Meaning::Bytes(bytes)) => Sizes::Fixed(*bytes),
        Some(_) => Sizes::VHD,
        None => Sizes::Fixed(1_000_000_000),
    };
    let popularity = match case.meaning_of("workload.zipf_exponent") {
        Some(Meaning::Number(exponent)) => Popularity::Zipf { exponent_permille: (exponent * 1000.0).round() as u32 },
        _ => Popularity::Uniform,
    };
    let backlog = case.whole_or_word("workload.backlog").unwrap_or(0) as u32;
    Ok(Workload { arrivals, sizes, popularity, backlog })
}
