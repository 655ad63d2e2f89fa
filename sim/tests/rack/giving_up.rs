//! The rack itself gives up drives that stay away, and empties working ones.

use super::*;
use crate::rebuild::{all_whole, fullest, mates, reads, view};
use engine::{HeldBack, PriorityClass};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const ALMOST_A_DAY: Duration = Duration::from_hours(23);

fn patient(seed: u64) -> World {
    world_of("pelican-mini", seed, |policy| policy.give_up_after = Some(DAY))
}

#[test]
fn a_drive_that_stays_away_for_a_day_is_given_up_and_rebuilt() {
    let mut world = patient(71);
    with_blobs(&mut world, 60, 10 * MB);
    let (drive, blobs) = fullest(&world);
    world.kill(drive);
    world.run_for(ALMOST_A_DAY);
    assert_eq!((world.rack.rebuilds().count(), world.blobs.left_on(drive)), (0, 0));
    assert_eq!(world.rack.absences()[0].drive, drive);
    world.run_for(2 * HOUR);
    assert!(world.rack.has_failed(drive) && world.rack.absences().is_empty());
    assert_eq!((world.blobs.left_on(drive), view(&world, drive).rebuilt_stacks), (0, blobs.len() as u64));
    assert!(all_whole(&world) && is_asleep(&world));
}

#[test]
fn a_drive_that_was_given_up_and_is_back_is_recognised_when_its_group_wakes() {
    let mut world = world_of("pelican-mini", 78, |policy| {
        (policy.give_up_after, policy.tries_given_up) = (Some(DAY), true);
    });
    with_blobs(&mut world, 240, 100 * MB);
    let (drive, blobs) = fullest(&world);
    world.kill(drive);
    world.run_for(ALMOST_A_DAY);
    while world.blobs.left_on(drive) < 2 || world.blobs.left_on(drive) * 2 > blobs.len() as u64 {
        assert!(world.step(), "it is given up, and half of it rebuilt");
    }
    world.revive(drive);
    assert!(world.rack.has_failed(drive), "nobody has said that it is the one that it was");
    world.run_for(HOUR);
    let read = |world: &mut World| assert_eq!(reads(world, blobs[0]), Some(Outcome::Read));
    read(&mut world);
    world.run_for(HOUR);
    read(&mut world);
    world.run_for(HOUR);
    assert!(!world.rack.has_failed(drive), "{:?}", world.rack.drive_phase(drive));
    assert_eq!(world.blobs.left_on(drive), 0);
    assert!(all_whole(&world) && is_asleep(&world));
    // The operator declares that it was pulled: it is not retried.
    world.fail(drive);
    world.revive(drive);
    for _ in 0..3 {
        world.run_for(HOUR);
        read(&mut world);
    }
    assert!(world.rack.has_failed(drive));
}

#[test]
fn one_that_is_back_in_time_was_never_away() {
    let mut world = patient(72);
    with_blobs(&mut world, 60, 10 * MB);
    let (drive, _) = fullest(&world);
    let starts = world.rack.stats().drive_starts;
    for _ in 0..5 {
        world.kill(drive);
        world.run_for(ALMOST_A_DAY);
        world.revive(drive);
        world.run_for(HOUR);
    }
    assert_eq!((world.rack.rebuilds().count(), world.rack.stats().drive_starts), (0, starts));
}

#[test]
fn a_tray_that_loses_its_power_is_not_given_up_and_the_one_drive_that_stays_away_is() {
    let mut world = patient(73);
    with_blobs(&mut world, 60, 10 * MB);
    let (drive, _) = fullest(&world);
    let spec = world.rack.spec().clone();
    let tray = spec.failure_domains.iter().position(|kind| kind.name == "tray").unwrap();
    let domain = spec.drive(drive).failure_domains[tray];
    let tray: Vec<DriveId> =
        spec.drives.iter().filter(|other| other.failure_domains[tray] == domain).map(|other| other.id).collect();
    for drive in &tray {
        world.kill(*drive);
    }
    world.run_for(20 * DAY);
    assert_eq!(world.rack.rebuilds().count(), 0);
    assert!(world.rack.absences().iter().all(|view| view.held_back == Some(HeldBack::ManyAway)));
    assert_eq!(world.rack.absences().len(), 4);
    tray.iter().filter(|other| **other != drive).for_each(|other| world.revive(*other));
    world.run_for(HOUR);
    assert!(world.rack.has_failed(drive) && all_whole(&world));
    assert_eq!(world.rack.rebuilds().count(), 1);
}

#[test]
fn never_are_more_drives_of_a_group_given_up_than_r_beyond_what_is_rebuilt() {
    let mut world = patient(74);
    with_blobs(&mut world, 60, 10 * MB);
    let (drive, blobs) = fullest(&world);
    let dying: Vec<DriveId> = [drive].into_iter().chain(mates(&world, drive)).take(6).collect();
    for drive in &dying {
        world.kill(*drive);
        world.run_for(3 * DAY);
    }
    // Two are rebuilt on the six remaining drives. Five have no place for a whole blob: the next two stay lossy, which
    // is r.
    let given_up: Vec<bool> = dying.iter().map(|drive| world.rack.has_failed(*drive)).collect();
    assert_eq!(given_up, [true, true, true, true, false, false]);
    assert!(world.rack.absences().iter().all(|view| view.held_back == Some(HeldBack::TooManyOfGroup)));
    assert_eq!(world.rack.exposure().lost_blobs, 0);
    for drive in &dying {
        world.revive(*drive);
    }
    for blob in blobs {
        assert_eq!(reads(&mut world, blob), Some(Outcome::Read));
    }
}

#[test]
fn a_good_drive_is_emptied_and_may_be_replaced_while_everything_stays_whole() {
    for (name, seed) in [("pelican-mini", 75), ("nas8", 76)] {
        let mut world = world_of(name, seed, |_| {});
        with_blobs(&mut world, 60, 10 * MB);
        let (drive, blobs) = fullest(&world);
        world.retire(drive);
        let mut given_up = false;
        while !given_up {
            assert!(world.step(), "{:?}", world.rack.rebuilds().collect::<Vec<_>>());
            assert!(world.rack.exposure().blobs.iter().all(|blobs| *blobs == 0), "nothing is missing");
            given_up = world.rack.has_failed(drive);
        }
        assert_eq!(view(&world, drive).rebuilt_stacks, blobs.len() as u64);
        assert!(world.rack.is_retiring(drive) && all_whole(&world));
        let wakes = world.rack.stats().group_wakes;
        assert_eq!(wakes[PriorityClass::Rebuild as usize], 0, "{wakes:?}: background work");
        world.run_for(30 * MINUTE);
        assert!(is_asleep(&world) && world.replace(drive));
        assert!(!world.rack.is_retiring(drive));
        for _ in 0..60 {
            world.write(10 * MB, PinnedTo::Anywhere);
        }
        world.run_for(3 * HOUR);
        assert!(
            world.blobs.iter().any(|(blob, _)| world.blobs.drives_of(blob).contains(&drive)),
            "new blobs lie on it"
        );
        assert!(all_whole(&world));
    }
}

#[test]
fn what_waits_to_be_written_when_a_drive_is_retired_is_written_to_others() {
    // Two of a group of four leave none for the three stacks of a blob: waiting writes go to the other group.
    for (name, retired, seed) in [("pelican-mini", 1, 80), ("nas8", 1, 81), ("nas8", 2, 82)] {
        let mut world = world_of(name, seed, |_| {});
        for _ in 0..24 {
            world.write(10 * MB, PinnedTo::Anywhere); // placed, but its group has yet to wake
        }
        let reserved = |drive: &DriveId| world.rack.placement().reserved_bytes(*drive);
        let drives = (0..world.rack.spec().drives.len()).map(|drive| DriveId(drive as u32));
        let first = drives.max_by_key(reserved).unwrap();
        let second = mates(&world, first).into_iter().max_by_key(reserved).unwrap();
        assert!(reserved(&first) > 0 && reserved(&second) > 0);
        let retired = &[first, second][..retired];
        for drive in retired {
            world.retire(*drive);
        }
        world.run_for(6 * HOUR);
        let ended = world.take_ended();
        assert!(ended.iter().all(|ended| matches!(ended.outcome, Outcome::Written { .. })), "none moved: {ended:?}");
        assert_eq!(ended.len(), 24);
        assert!(retired.iter().all(|drive| world.rack.has_failed(*drive)), "they were empty, and nothing waits");
        assert!(all_whole(&world) && is_asleep(&world));
    }
}

#[test]
fn a_good_drive_is_emptied_by_itself_where_too_few_others_are_there_to_make_up_for_it() {
    let mut world = world_of("nas8", 79, |_| {});
    with_blobs(&mut world, 24, 10 * MB);
    let (drive, blobs) = fullest(&world);
    let mates = mates(&world, drive);
    let dead = *mates.iter().find(|mate| world.blobs.drives_of(blobs[0]).contains(mate)).unwrap();
    world.kill(dead);
    world.retire(drive);
    world.run_for(6 * HOUR);
    let beside = |blob: &&BlobId| !world.blobs.drives_of(**blob).contains(&drive);
    let moved = blobs.iter().filter(beside).count();
    assert!(moved > 0, "k = 2 of a blob are there, and one of them is the retired one");
    world.revive(dead);
    world.run_for(48 * HOUR);
    assert!(world.rack.has_failed(drive) && all_whole(&world), "{:?}", world.rack.rebuilds().collect::<Vec<_>>());
}

#[test]
fn a_drive_that_took_the_place_of_another_is_emptied_with_what_it_lacks() {
    let mut world = world_of("pelican-mini", 80, |_| {});
    with_blobs(&mut world, 120, 100 * MB);
    let (drive, _) = fullest(&world);
    world.fail(drive);
    assert!(world.replace(drive));
    let lost = world.blobs.left_on(drive);
    while world.blobs.left_on(drive) > lost / 2 {
        assert!(world.step());
    }
    world.retire(drive);
    world.run_for(48 * HOUR);
    assert!(world.rack.has_failed(drive), "{:?}", world.rack.rebuilds().collect::<Vec<_>>());
    assert!(all_whole(&world) && world.blobs.left_on(drive) == 0);
}

#[test]
fn failures_come_before_what_is_retired_and_a_retiring_drive_may_fail_itself() {
    for itself in [false, true] {
        let mut world = world_of("pelican-mini", 77, |_| {});
        with_blobs(&mut world, 240, 100 * MB);
        let (drive, blobs) = fullest(&world);
        world.retire(drive);
        while view(&world, drive).rebuilt_stacks < blobs.len() as u64 / 3 {
            assert!(world.step());
        }
        let fails = if itself { drive } else { mates(&world, drive)[0] };
        world.fail(fails);
        let moved = view(&world, drive).rebuilt_stacks;
        while world.blobs.left_on(fails) > 0 {
            assert!(world.step());
            let more = view(&world, drive).rebuilt_stacks - moved;
            assert!(itself || more <= 1, "{more} moved off a good drive while stacks were missing");
        }
        world.run_for(6 * HOUR);
        assert!(all_whole(&world) && is_asleep(&world), "{:?}", world.rack.rebuilds().collect::<Vec<_>>());
        assert!(world.rack.has_failed(drive), "six drives are left, which is what a blob takes");
    }
}
