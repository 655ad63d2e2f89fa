//! The utilisation of a rack: writes until the first one is rejected (Pelican, section 5, figure 9(c)).
//!
//! Only the engine's placement decides which blob fits where, so no time is simulated. Drives of unequal size come from
//! a distribution of ours between two bounds: the paper's distribution is not known, only its mean (4.55 TB) and its
//! smallest drive (4.2 TB).
//!
//! Invariants: a run stops at the first rejection, and a write is rejected only when no group has room.

use crate::chance::Sizes;
use crate::experiment::ExperimentError;
use crate::point::half_width;
use crate::stored::placement;
use engine::layout::Layout;
use engine::placement::Wanted;
use model::{RackDraft, RackSpec, Rng, SpecError};
use serde::{Deserialize, Serialize};

pub use engine::placement::DriveRule;

/// A distribution of the sizes of drives: the mean of several uniform draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacities {
    /// The smallest drive, in bytes.
    pub min_bytes: u64,
    /// The largest drive, in bytes. The mean is halfway between the two.
    pub max_bytes: u64,
    /// The number of uniform draws that are averaged: 1 is uniform, 4 is bell-shaped.
    pub draws: u8,
}

impl Capacities {
    /// The paper's smallest drive and mean, in our own shape.
    pub const PELICAN: Self = Self { min_bytes: 4_200_000_000_000, max_bytes: 4_900_000_000_000, draws: 2 };
}

/// `spec` with drives of varying size.
///
/// # Errors
/// [`SpecError`] if no rack can have drives of these sizes.
pub fn varied(spec: &RackSpec, capacities: Capacities, seed: u64) -> Result<RackSpec, SpecError> {
    let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"capacity"));
    let draws = u64::from(capacities.draws.max(1));
    let max_bytes = capacities.max_bytes.max(capacities.min_bytes);
    let mut draft = RackDraft::clone(spec);
    for drive in &mut draft.drives {
        let sum: u128 = (0..draws).map(|_| u128::from(rng.between(capacities.min_bytes, max_bytes))).sum();
        drive.capacity_bytes = Some((sum / u128::from(draws)) as u64);
    }
    RackSpec::validated(draft)
}

/// A rack that has rejected a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Blobs that were stored.
    pub blobs: u64,
    /// Their payload, in bytes.
    pub payload_bytes: u64,
    /// Their space on the drives, in bytes.
    pub used_bytes: u64,
    /// The capacity of the drives, in bytes.
    pub capacity_bytes: u64,
    /// The used share of each drive, ascending: the curve of the paper's figure 9(c).
    pub drive_utilisation: Vec<f64>,
}

impl Filled {
    /// The used share of the rack.
    pub fn utilisation(&self) -> f64 {
        self.used_bytes as f64 / self.capacity_bytes as f64
    }
}

/// A rack to fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The rack.
    pub rack: RackSpec,
    /// The distribution of its drives' sizes.
    pub capacities: Capacities,
    /// True if every drive is used as if it were the smallest, as in a design for equal drives.
    pub clipped: bool,
    /// The sizes of the written blobs.
    pub sizes: Sizes,
    /// The rule that chooses the drives of a blob within a group.
    pub rule: DriveRule,
    /// The seeds, at least one.
    pub seeds: Vec<u64>,
}

/// The results of a filling, each a mean over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FillPoint {
    /// The used share of the rack at the first rejection, of the capacity in use.
    pub utilisation: f64,
    /// Half the width of its 95 % confidence interval; `None` for a single seed.
    pub utilisation_ci95: Option<f64>,
    /// The used space, as a multiple of the capacity of a rack with only drives of the minimum size.
    pub over_clipped: f64,
    /// Half the width of its 95 % confidence interval; `None` for a single seed.
    pub over_clipped_ci95: Option<f64>,
    /// The used share of the least used drive.
    pub least_used: f64,
    /// Blobs that were stored.
    pub blobs: f64,
}

/// Fills a rack with every seed.
///
/// # Errors
/// [`ExperimentError`] if there is no seed, or the rack cannot have drives of these sizes.
pub fn run_fill(filling: &Filling) -> Result<FillPoint, ExperimentError> {
    let each: Result<Vec<Filled>, ExperimentError> = filling.seeds.iter().map(|seed| filling.once(*seed)).collect();
    let each = each?;
    if each.is_empty() {
        return Err(ExperimentError::NoSeed);
    }
    let mean = |of: &dyn Fn(&Filled) -> f64| each.iter().map(of).sum::<f64>() / each.len() as f64;
    let half = |of: &dyn Fn(&Filled) -> f64| half_width(each.iter().map(of));
    let over_clipped = |filled: &Filled| filling.over_clipped(filled);
    Ok(FillPoint {
        utilisation: mean(&Filled::utilisation),
        utilisation_ci95: half(&Filled::utilisation),
        over_clipped: mean(&over_clipped),
        over_clipped_ci95: half(&over_clipped),
        least_used: mean(&|filled| filled.drive_utilisation.first().copied().unwrap_or(0.0)),
        blobs: mean(&|filled| filled.blobs as f64),
    })
}

impl Filling {
    /// Fills the rack with one seed.
    ///
    /// # Errors
    /// [`ExperimentError`] if the rack cannot have drives of these sizes.
    pub fn once(&self, seed: u64) -> Result<Filled, ExperimentError> {
        let sized = varied(&self.rack, self.capacities, seed)?;
        let sized = if self.clipped { to_size(&sized, self.capacities.min_bytes)? } else { sized };
        let layout = engine::layout::synthesise(&sized)?;
        Ok(fill(&sized, &layout, self.sizes, self.rule, seed))
    }

    /// The used space, as a multiple of the capacity of a rack with only drives of the minimum size.
    pub fn over_clipped(&self, filled: &Filled) -> f64 {
        let clipped_bytes = self.capacities.min_bytes as f64 * self.rack.drives.len() as f64;
        filled.used_bytes as f64 / clipped_bytes
    }
}

/// `spec` with every drive clipped to `bytes`.
fn to_size(spec: &RackSpec, bytes: u64) -> Result<RackSpec, SpecError> {
    let mut draft = RackDraft::clone(spec);
    for drive in &mut draft.drives {
        drive.capacity_bytes = Some(bytes);
    }
    RackSpec::validated(draft)
}

/// Writes blobs of these sizes until the first one is rejected.
pub fn fill(spec: &RackSpec, layout: &Layout, sizes: Sizes, rule: DriveRule, seed: u64) -> Filled {
    let mut placement = placement(spec, layout).with_rule(rule);
    let mut sizes_rng = Rng::for_thing(seed, u64::from_le_bytes(*b"sizes   "));
    let mut placing_rng = Rng::for_thing(seed, u64::from_le_bytes(*b"placing "));
    let (mut blobs, mut payload_bytes) = (0, 0);
    loop {
        let bytes = sizes.draw(&mut sizes_rng);
        let stack_bytes = bytes.div_ceil(u64::from(spec.code.data));
        let chosen = placement.choose(&Wanted::anywhere(bytes, stack_bytes), &mut placing_rng);
        let Some((_, drives)) = chosen else { break };
        placement.settle(&drives, stack_bytes, stack_bytes);
        blobs += 1;
        payload_bytes += bytes;
    }
    let grouped = layout.groups.iter().flat_map(|group| &group.drives);
    let used_and_capacity: Vec<(u64, u64)> =
        grouped.map(|drive| (placement.used_bytes(*drive), spec.capacity_bytes(*drive))).collect();
    let mut drive_utilisation: Vec<f64> =
        used_and_capacity.iter().map(|(used, capacity)| *used as f64 / *capacity as f64).collect();
    drive_utilisation.sort_unstable_by(f64::total_cmp);
    assert!(drive_utilisation.last().is_none_or(|used| *used <= 1.0), "a drive holds more than its capacity");
    let used_bytes = used_and_capacity.iter().map(|(used, _)| used).sum();
    assert!(payload_bytes <= used_bytes, "{payload_bytes} bytes lie in {used_bytes}");
    Filled {
        blobs,
        payload_bytes,
        used_bytes,
        capacity_bytes: used_and_capacity.iter().map(|(_, capacity)| capacity).sum(),
        drive_utilisation,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The paper's rack with drives a two-hundredth as large, and blobs a tenth.
    fn small() -> (RackSpec, Layout) {
        let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
        let spec = model::text::parse(text, name).unwrap();
        let capacities = Capacities { min_bytes: 21_000_000_000, max_bytes: 24_500_000_000, draws: 2 };
        let spec = varied(&spec, capacities, 1).unwrap();
        let layout = engine::layout::synthesise(&spec).unwrap();
        (spec, layout)
    }

    const SIZES: Sizes = Sizes::Spread { min: 20_000_000, max: 900_000_000, mean: 330_000_000 };

    #[test]
    fn most_spare_fills_a_rack_of_unequal_drives_better_than_random_choice_and_than_clipping() {
        let (spec, layout) = small();
        let ours = fill(&spec, &layout, SIZES, DriveRule::MostSpare, 1);
        let random = fill(&spec, &layout, SIZES, DriveRule::Random, 1);
        let smallest = spec.drives.iter().map(|drive| spec.capacity_bytes(drive.id)).min().unwrap();
        let equal = to_size(&spec, smallest).unwrap();
        let clipped = fill(&equal, &layout, SIZES, DriveRule::MostSpare, 1);
        println!(
            "used: most spare {:.5}, random {:.5}, clipped {:.5}; against clipping {:.4}",
            ours.utilisation(),
            random.utilisation(),
            clipped.utilisation(),
            ours.payload_bytes as f64 / clipped.payload_bytes as f64
        );
        assert!(ours.utilisation() > random.utilisation());
        assert!(ours.payload_bytes > clipped.payload_bytes);
        assert!(clipped.utilisation() > ours.utilisation(), "equal drives leave less over");
        assert!(ours.drive_utilisation.iter().all(|used| *used <= 1.0));
        assert_eq!(ours, fill(&spec, &layout, SIZES, DriveRule::MostSpare, 1));
    }

    #[test]
    fn a_filling_says_by_how_much_it_beats_clipping() {
        let capacities = Capacities { min_bytes: 21_000_000_000, max_bytes: 24_500_000_000, draws: 2 };
        let filling = Filling {
            rack: small().0,
            capacities,
            clipped: false,
            sizes: SIZES,
            rule: DriveRule::MostSpare,
            seeds: vec![1, 2, 3],
        };
        let (varied, clipped) = (run_fill(&filling), run_fill(&Filling { clipped: true, ..filling.clone() }));
        let (varied, clipped) = (varied.unwrap(), clipped.unwrap());
        assert!(varied.over_clipped > 1.05 && clipped.over_clipped <= 1.0, "{varied:?} {clipped:?}");
        assert!(varied.utilisation_ci95.is_some_and(|half| half < 0.01));
        assert_eq!(run_fill(&Filling { seeds: vec![], ..filling }), Err(ExperimentError::NoSeed));
    }
}
