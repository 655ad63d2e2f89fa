//! Drives that hang: operations continue without them after a deadline, and drives that hang again are left alone.

use super::*;
use engine::{DrivePhase, Loss};

const SECOND: Duration = Duration::from_secs(1);

/// The outcome of an operation, and its duration.
fn done(world: &mut World, op: OpId) -> (Outcome, Duration) {
    let began = world.now();
    world.run_for(10 * MINUTE);
    let ended = world.take_ended().into_iter().find(|ended| ended.op == op).unwrap();
    (ended.outcome, ended.at.since(began))
}

fn read(world: &mut World, blob: BlobId) -> (Outcome, Duration) {
    let op = world.read(blob, MB).unwrap();
    done(world, op)
}

/// A world whose groups stay up for an hour, and a blob in it.
fn awake(seed: u64) -> (World, BlobId) {
    let mut world = world_of("nas8", seed, |policy| policy.idle_timeout = IdleTimeout::After(60 * MINUTE));
    world.write(100 * MB, PinnedTo::Anywhere);
    world.run_for(30 * MINUTE);
    world.take_ended();
    let blob = world.blobs.iter().next().unwrap().0;
    (world, blob)
}

#[test]
fn a_read_goes_on_after_one_deadline_and_others_do_not_wait_at_all() {
    let (mut world, blob) = awake(81);
    let drive = world.blobs.drives_of(blob)[1];
    world.hang(drive);
    let deadline = world.rack.drive_deadlines().requests.read;
    let (outcome, took) = read(&mut world, blob);
    assert_eq!(outcome, Outcome::Read);
    assert!((deadline..deadline + SECOND).contains(&took), "{took:?}");
    assert_eq!(world.rack.drive_phase(drive), DrivePhase::Away(Loss::NoAnswer));
    assert_eq!((world.rack.missed_deadlines(drive), world.rack.stats().missed_deadlines), (1, 1));
    let (outcome, took) = read(&mut world, blob);
    assert_eq!(outcome, Outcome::Read);
    assert!(took < SECOND, "it is not asked again: {took:?}");
    // Its group sleeps, and wakes with all its members.
    world.run_for(3 * 60 * MINUTE);
    assert!(is_asleep(&world));
    read(&mut world, blob);
    assert_eq!((world.rack.drive_phase(drive), world.rack.missed_deadlines(drive)), (DrivePhase::Ready, 1));
}

#[test]
fn a_write_is_placed_on_other_drives_after_one_deadline() {
    let mut missed = 0;
    for member in 0..4 {
        let (mut world, blob) = awake(82);
        let group = world.rack.layout().group_of(world.blobs.drives_of(blob)[0]).unwrap();
        world.hang(world.rack.layout().groups[group.index()].drives[member]);
        let op = world.write(MB, PinnedTo::Group(group));
        let (outcome, took) = done(&mut world, op);
        assert!(matches!(outcome, Outcome::Written { .. }), "{outcome:?}");
        let deadline = world.rack.drive_deadlines().requests.write;
        assert!(took < deadline + SECOND, "{took:?}");
        missed += world.rack.stats().missed_deadlines;
    }
    assert_eq!(missed, 3, "three of the four drives were meant");
}

#[test]
fn a_drive_that_hangs_in_three_wakes_in_a_row_is_left_alone_and_tried_again_later() {
    let (mut world, blob) = awake(83);
    let drive = world.blobs.drives_of(blob)[0];
    for wake in 1..=3 {
        read(&mut world, blob);
        assert_eq!(world.rack.drive_phase(drive), DrivePhase::Ready, "wake {wake}");
        world.hang(drive);
        read(&mut world, blob);
        assert_eq!(world.rack.missed_deadlines(drive), wake);
        world.run_until(world.now() + 75 * MINUTE);
        assert!(is_asleep(&world));
    }
    assert!(matches!(world.rack.drive_phase(drive), DrivePhase::Away(_)), "{:?}", world.rack.drive_phase(drive));
    read(&mut world, blob);
    assert!(matches!(world.rack.drive_phase(drive), DrivePhase::Away(_)), "nobody starts it");
    world.run_for(24 * 60 * MINUTE);
    assert_eq!(world.rack.drive_phase(drive), DrivePhase::Standby);
    // A drive without a failure from a start to a stop is trusted again.
    read(&mut world, blob);
    world.run_for(3 * 60 * MINUTE);
    world.hang(drive);
    assert_eq!(world.rack.drive_phase(drive), DrivePhase::Standby);
    assert_eq!(read(&mut world, blob).0, Outcome::Read);
}

#[test]
fn a_group_wakes_in_time_without_a_member_that_hangs() {
    let (mut world, blob) = awake(84);
    world.run_for(3 * 60 * MINUTE);
    assert!(is_asleep(&world));
    let drive = world.blobs.drives_of(blob)[0];
    world.hang(drive);
    let (outcome, took) = read(&mut world, blob);
    let deadline = world.rack.drive_deadlines().spin_up;
    assert_eq!(outcome, Outcome::Read);
    assert!(took < deadline + 2 * SECOND, "{took:?}");
    assert_eq!(world.rack.missed_deadlines(drive), 1);
}
