//! From the values of one case to a repartition job.

use super::hardware::rack;
use super::system::{Wrong, network, policy};
use crate::experiment::pelican_policy;
use crate::links::Network;
use crate::repartition::{Groups, Method, Reads, Repartition};
use crate::scenario::case::Case;
use crate::scenario::sources::Sources;
use engine::repartition::Alpha;
use model::RackSpec;
use std::time::Duration;

/// The denominator of alpha as a fraction.
const MILLIONTHS: u64 = 1_000_000;

pub(super) fn job(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Repartition, Wrong> {
    let made = case.word("repartition.hardware") == "groups";
    let rack = if made { groups(case)? } else { rack(case, sources)? };
    let mut settings = pelican_policy(rack.profile.starts_per_day());
    policy(case, &rack, &mut settings)?;
    settings.write_read_back = case.flag("repartition.read_back");
    let output = (case.number("repartition.alpha") * MILLIONTHS as f64).round() as u64;
    Ok(Repartition {
        policy: settings,
        rack,
        network: if made { Network::UNBOUNDED } else { network(case) },
        data_bytes: case.bytes("repartition.data").unwrap_or(0),
        memory_bytes: memory(case)?,
        alpha: Alpha { output, input: MILLIONTHS },
        input_skew_permille: permille(case, "repartition.input_skew"),
        output_skew_permille: permille(case, "repartition.output_skew"),
        method: method(case.word("repartition.strategy")),
        operation_bytes: case.bytes("repartition.operation"),
        reads: reads(case),
        seeds: seeds.to_vec(),
    })
}

fn method(word: &str) -> Method {
    Method::ALL.into_iter().find(|method| method.word() == word).unwrap_or(Method::Planner)
}

fn permille(case: &Case, key: &'static str) -> u32 {
    (case.number(key) * 1_000.0).round() as u32
}

/// A buffer that is large enough for a planner to divide among pieces.
fn memory(case: &Case) -> Result<u64, Wrong> {
    const LEAST_BYTES: u64 = 1_000_000;
    match case.bytes("repartition.memory") {
        Some(bytes) if bytes >= LEAST_BYTES => Ok(bytes),
        _ => Err(("repartition.memory", "this is too little for any job; write at least \"1 MB\"".to_owned())),
    }
}

fn groups(case: &Case) -> Result<RackSpec, Wrong> {
    let groups = Groups {
        groups: case.whole("repartition.groups") as u32,
        switch: case.span("repartition.switch").unwrap_or_default(),
        spread_permille: permille(case, "repartition.switch_spread"),
        seek: case.span("repartition.seek").unwrap_or_default(),
        bytes_per_s: case.bytes_per_s("repartition.rate").unwrap_or(0),
    };
    groups.rack().map_err(|error| {
        let key = match error.key.as_str() {
            "drive.bytes_per_s" => "repartition.rate",
            "drive.seek" => "repartition.seek",
            _ => "repartition.switch",
        };
        (key, error.message)
    })
}

fn reads(case: &Case) -> Option<Reads> {
    let per_s = case.number("repartition.reads_per_s");
    let mean_gap = Duration::try_from_secs_f64(per_s.recip()).ok()?;
    Some(Reads { mean_gap, bytes: case.bytes("repartition.read_size")? })
}
