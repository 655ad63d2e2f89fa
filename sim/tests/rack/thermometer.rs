//! The server's rules about hot and cold data, in the simulator's world.

use super::*;
use engine::thermometer::{Rule, Temperature, Thermometer};

const HOUR: Duration = Duration::from_hours(1);

/// Everything is hot, except data older than 2 minutes and larger than 10 KB (Serviceable cold storage).
fn ruled(workshop_bytes: u64) -> World {
    let mut world = world_of("nas8", 1, |policy| {
        let line = Rule { larger_than_bytes: Some(10_000), older_than: 2 * MINUTE, ..Rule::default() };
        policy.migration.thermometer = Thermometer { rules: vec![line], default: Temperature::Hot };
        policy.migration.pack_bytes = MB;
        policy.migration.linger = Duration::ZERO;
    });
    world.set_staging(workshop_bytes);
    world
}

#[test]
fn objects_move_by_rule_and_hot_ones_stay() {
    let mut world = ruled(1000 * MB);
    for number in 0..200 {
        world.stage(number, if number % 2 == 0 { 10_000 } else { 60_000 }, PinnedTo::Anywhere);
    }
    world.run_for(MINUTE + Duration::from_secs(59));
    assert_eq!(world.staging.versions().len(), 200, "all are young");
    world.run_for(HOUR);
    let small = |world: &World| world.staging.versions().values().filter(|staged| staged.bytes == 10_000).count();
    assert_eq!((world.staging.versions().len(), small(&world)), (100, 100));
    world.run_for(24 * HOUR);
    assert_eq!(small(&world), 100, "what no rule names is never cold");
    assert!(is_asleep(&world));
    assert_eq!(world.rack.hot_moved_bytes(), 0);
}

#[test]
fn above_the_critical_threshold_hot_data_moves_last_and_as_little_as_it_must() {
    let mut world = ruled(10 * MB);
    for number in 0..700 {
        world.stage(number, 10_000, PinnedTo::Anywhere);
        world.run_for(Duration::from_millis(1));
    }
    world.run_for(24 * HOUR);
    assert_eq!(world.staging.versions().len(), 700, "7 of 10 MB are hot");
    for number in 700..850 {
        world.stage(number, 10_000, PinnedTo::Anywhere);
        world.run_for(Duration::from_millis(1));
    }
    world.run_for(24 * HOUR);
    // Half a megabyte too much, in whole packs of a megabyte: the oldest versions.
    assert!(world.staging.versions().keys().copied().eq(100..850), "{} are left", world.staging.versions().len());
    assert_eq!(world.rack.hot_moved_bytes(), MB);
}
