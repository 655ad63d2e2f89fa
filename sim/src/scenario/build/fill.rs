//! From the values of one case to a filled rack.

use super::hardware::rack;
use super::system::Wrong;
use crate::chance::Sizes;
use crate::fill::{Capacities, DriveRule, Filling};
use crate::scenario::case::Case;
use crate::scenario::sources::Sources;

pub(super) fn filling(case: &Case, seeds: &[u64], sources: &mut Sources<'_>) -> Result<Filling, Wrong> {
    let rack = rack(case, sources)?;
    let described = rack.profile.capacity_bytes;
    let min_bytes = case.bytes("fill.capacity_min").unwrap_or(described);
    let max_bytes = case.bytes("fill.capacity_max").unwrap_or(described.max(min_bytes));
    if max_bytes < min_bytes {
        return Err((
            "fill.capacity_max",
            "is less than the smallest; write what is at least fill.capacity_min".into(),
        ));
    }
    Ok(Filling {
        rack,
        capacities: Capacities { min_bytes, max_bytes, draws: case.whole("fill.capacity_draws") as u8 },
        clipped: case.flag("fill.clipped"),
        sizes: case.bytes("fill.size").map_or(Sizes::VHD, Sizes::Fixed),
        rule: if case.word("fill.drives") == "random" { DriveRule::Random } else { DriveRule::MostSpare },
        seeds: seeds.to_vec(),
    })
}
