//! Drives whose power cannot be controlled, among others that sleep: they always count, and are never started.

use super::*;
use model::{DrivePower, RackDraft};

/// The box of eight with these drives always on, and a supply for the given limit.
fn box_with(always_on: &[usize], limit: &str) -> RackSpec {
    let text = shipped_text("nas8").replace("active_drives = 4", limit);
    let mut draft = RackDraft::clone(&model::text::parse(&text, "nas8").unwrap());
    for drive in always_on {
        draft.drives[*drive].power = DrivePower::None;
    }
    RackSpec::validated(draft).unwrap()
}

#[test]
fn they_are_booked_while_everything_sleeps_and_their_starts_are_none() {
    let spec = box_with(&[0, 1], "active_drives = 6");
    let (watts, policy) = (spec.profile.watts, policy(&spec));
    let mut world = judged(spec, policy, 95, Vec::new());
    let asleep_mw = u64::from(6 * watts.standby_mw + 2 * watts.spin_up_mw.max(watts.active_mw));
    let blobs = with_blobs(&mut world, 12, 100 * MB);
    assert_eq!((world.rack.ledger().active_drives(), world.rack.ledger().watts_mw()), (0, asleep_mw));
    let used: Vec<_> = world.rack.ledger().usage().map(|(.., used, limit)| (used, limit)).collect();
    assert_eq!(used, [(2, 6)], "the two take their part of the supply, asleep or not");
    let wakes = world.rack.stats().group_wakes[0];
    for blob in blobs {
        world.read(blob, 100 * MB).unwrap();
        world.run_for(20 * MINUTE);
    }
    assert!(world.take_ended().iter().all(|ended| ended.outcome == Outcome::Read));
    assert!(world.rack.stats().group_wakes[0] > wakes && is_asleep(&world));
    let now = world.now();
    let starts = |drive: u32| world.rack.starts_today(DriveId(drive), now).0;
    assert_eq!((starts(0), starts(1)), (0, 0));
    let counted: u64 = (2..8).map(|drive| u64::from(starts(drive))).sum();
    assert!(counted > 0 && world.rack.stats().drive_starts == counted, "the others' starts, and no more");
    assert_eq!(world.counted().trips, 0);
}

#[test]
fn one_that_dies_is_read_around_and_is_none_that_would_not_stop() {
    // The supply is full with the four that always spin and the group of the others.
    let spec = box_with(&[0, 1, 2, 3], "active_drives = 8");
    let policy = policy(&spec);
    let mut world = judged(spec, policy, 96, Vec::new());
    let blobs = with_blobs(&mut world, 12, 100 * MB);
    world.kill(DriveId(2));
    for blob in &blobs {
        world.read(*blob, MB).unwrap();
    }
    world.run_for(30 * MINUTE);
    let ended = world.take_ended();
    assert!(ended.len() == 12 && ended.iter().all(|ended| ended.outcome == Outcome::Read), "{ended:?}");
    assert_eq!((world.rack.unstopped().count(), world.counted().trips), (0, 0));
    world.revive(DriveId(2));
    world.run_for(MINUTE);
    assert_eq!(world.rack.drive_phase(DriveId(2)), engine::DrivePhase::Standby);
}
