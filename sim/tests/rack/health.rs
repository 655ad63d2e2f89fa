//! Drives report their number of bad sectors when their group is awake anyway. A drive that wears out is emptied before
//! it dies, if its group allows it.

use super::*;
use crate::rebuild::{all_whole, fullest, mates, reads};
use engine::{HealthPolicy, HealthView};

const DAY: Duration = Duration::from_hours(24);

fn watched(seed: u64, drain_above: Option<u64>) -> World {
    world_of("pelican-mini", seed, |policy| policy.health = HealthPolicy { every: Some(DAY), drain_above })
}

/// Wakes the group of `blob` a day later, and lets it fall asleep again.
fn read_a_day_later(world: &mut World, blob: BlobId) {
    world.run_for(DAY);
    assert_eq!(reads(world, blob), Some(Outcome::Read));
    world.run_for(60 * MINUTE);
}

fn health(world: &World, drive: DriveId) -> Option<(u64, u64, bool)> {
    let view = world.rack.drive_health(drive)?;
    let HealthView { bad_sectors, first_bad_sectors, waits_for_drain } = view;
    Some((first_bad_sectors, bad_sectors, waits_for_drain))
}

#[test]
fn a_drive_whose_bad_sectors_rise_is_emptied_and_one_that_keeps_its_own_is_not() {
    let mut world = watched(91, Some(10));
    with_blobs(&mut world, 240, 100 * MB);
    let (drive, blobs) = fullest(&world);
    let old = mates(&world, drive)[0];
    world.wear(drive, 3);
    world.wear(old, 500);
    read_a_day_later(&mut world, blobs[0]);
    assert_eq!((health(&world, drive), health(&world, old)), (Some((3, 3, false)), Some((500, 500, false))));
    world.wear(drive, 11);
    assert!(!world.rack.is_retiring(drive), "it sleeps, and nobody asks it");
    read_a_day_later(&mut world, blobs[0]);
    assert!(world.rack.is_retiring(drive) && !world.rack.is_retiring(old));
    world.run_for(2 * DAY);
    assert!(world.rack.has_failed(drive), "it is empty, and given up");
    assert!(all_whole(&world) && is_asleep(&world));
    assert_eq!(health(&world, drive), Some((3, 11, false)), "what it said is known still");
}

#[test]
fn without_a_limit_nothing_follows_but_the_count() {
    let mut world = watched(92, None);
    with_blobs(&mut world, 60, 10 * MB);
    let (drive, blobs) = fullest(&world);
    for bad_sectors in [0, 1000] {
        world.wear(drive, bad_sectors);
        read_a_day_later(&mut world, blobs[0]);
    }
    assert_eq!(health(&world, drive), Some((0, 1000, false)));
    assert!(!world.rack.is_retiring(drive));
}

#[test]
fn worn_drives_are_emptied_one_at_a_time_the_worst_first_and_no_more_than_the_group_bears() {
    let mut world = watched(93, Some(0));
    with_blobs(&mut world, 240, 100 * MB);
    let (drive, blobs) = fullest(&world);
    let group = std::iter::once(drive).chain(mates(&world, drive)).collect::<Vec<_>>();
    let stacks = world.rack.spec().code.stacks();
    let worn = &group[..=group.len() - stacks];
    assert!(worn.len() > 1, "more wear out than the group can do without");
    for rise in [0, 1] {
        worn.iter().zip(1_u64..).for_each(|(drive, nth)| world.wear(*drive, rise * 100 * nth));
        read_a_day_later(&mut world, blobs[0]);
    }
    // From the last one on, the worst first.
    let retiring = |world: &World| worn.iter().filter(|drive| world.rack.is_retiring(**drive)).count();
    for gone in 1..worn.len() {
        let until = world.now() + 3 * DAY;
        while world.now() < until && worn.iter().filter(|drive| world.rack.has_failed(**drive)).count() < gone {
            assert!(retiring(&world) <= gone, "one at a time");
            world.step();
        }
        assert!(world.rack.has_failed(worn[worn.len() - gone]), "the worst of those that are left");
    }
    world.run_for(3 * DAY);
    assert_eq!(retiring(&world), worn.len() - 1, "what is left is what a blob takes");
    assert_eq!(health(&world, drive).map(|(_, _, waits)| waits), Some(true));
    assert!(all_whole(&world));
}
