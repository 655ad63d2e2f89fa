//! The savings of batched migration: group wakes and drive starts per GB that moves to the rack, for one group that
//! takes many packs in turn, compared with a random group per pack. Results are in modelled time, so a run gives the
//! same numbers on every machine.
//!
//! `cargo bench -p sim --bench migration`

#![allow(clippy::unwrap_used)]

#[path = "../tests/racks/mod.rs"]
mod racks;

use engine::{GroupChoice, IdleTimeout, MigrationPolicy, PinnedTo, Rack, RackPolicy, SchedulerPolicy, Shares};
use model::RackSpec;
use sim::{Experiment, Setting, World};
use std::time::Duration;

const MB: u64 = 1_000_000;
const GB: u64 = 1000 * MB;
const MINUTE: Duration = Duration::from_mins(1);
const OBJECT_BYTES: u64 = 4 * MB;
const SEEDS: u64 = 5;

fn policy(spec: &RackSpec, group_choice: GroupChoice, pack_bytes: u64) -> RackPolicy {
    let papers = Experiment::pelican(spec.clone()).policy;
    RackPolicy {
        scheduler: SchedulerPolicy {
            join_in_service: true,
            shares: Shares { client: 60, rebuild: 30, background: 10 },
            ..papers.scheduler
        },
        group_choice,
        idle_timeout: IdleTimeout::After(5 * MINUTE),
        migration: MigrationPolicy {
            due_age: Some(Duration::from_secs(30)),
            pack_bytes,
            pack_members: 50_000,
            window: 32,
            scan_interval: Duration::from_secs(5),
            ..papers.migration
        },
        evacuate_permille: 500,
        give_up_after: None,
        rebuild_read_back: true,
        ..papers
    }
}

/// Migrates `bytes` of small objects; returns the wakes and drive starts per GB, and the modelled minutes.
fn migrate(group_choice: GroupChoice, pack_bytes: u64, bytes: u64, seed: u64) -> [f64; 3] {
    let spec = racks::shipped("pelican");
    let layout = engine::layout::synthesise(&spec).unwrap();
    let policy = policy(&spec, group_choice, pack_bytes);
    let mut world = World::with(Rack::new(spec, layout, policy, seed), seed, Setting::default());
    world.set_staging(10 * bytes);
    for version in 0..bytes / OBJECT_BYTES {
        world.stage(version, OBJECT_BYTES, PinnedTo::Anywhere);
    }
    let mut minutes = 0;
    while !world.staging.versions().is_empty() {
        world.run_for(MINUTE);
        minutes += 1;
        assert!(minutes < 7 * 24 * 60, "a migration comes to its end");
    }
    let stats = world.rack.stats();
    assert_eq!(stats.migrated_bytes, bytes, "all of it lies in the rack");
    let gb = bytes as f64 / GB as f64;
    [stats.group_wakes[2] as f64 / gb, stats.drive_starts as f64 / gb, f64::from(minutes)]
}

/// Prints the means over the seeds; returns the wakes.
fn report(name: &str, group_choice: GroupChoice, pack_bytes: u64, bytes: u64) -> f64 {
    let mut sums = [0.0; 3];
    for seed in 1..=SEEDS {
        let one = migrate(group_choice, pack_bytes, bytes, seed);
        sums.iter_mut().zip(one).for_each(|(sum, value)| *sum += value / SEEDS as f64);
    }
    let [wakes, starts, minutes] = sums;
    println!("  {name:<30} {wakes:>7.2} wakes/GB {starts:>7.1} drive starts/GB {minutes:>6.0} modelled min");
    wakes
}

fn main() {
    for (pack_bytes, bytes) in [(200 * MB, 10 * GB), (GB, 40 * GB)] {
        println!(
            "{} GB in objects of {} MB, packs of {} MB, mean of {SEEDS} seeds",
            bytes / GB,
            OBJECT_BYTES / MB,
            pack_bytes / MB
        );
        let batch = report("one group for 20 packs", GroupChoice::Batch { bytes: 20 * pack_bytes }, pack_bytes, bytes);
        let random = report("a random group for each pack", GroupChoice::Random, pack_bytes, bytes);
        println!("  batching: {:.1} times fewer wakes", random / batch);
    }
}
