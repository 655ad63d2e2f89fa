//! Given-up drives are retried automatically, less and less often, and never block other drives permanently.

use super::*;

/// Drives execute every command, but answer none.
const MUTE: Faults =
    Faults { command_permille: 0, transfer_permille: 0, twice_permille: 0, mute_permille: 1000, hang_permille: 0 };

/// A rack in which the drives of one blob have stopped answering until all of them are out of service, and another blob
/// whose group needs power from the same domains.
fn silenced() -> (World, [BlobId; 2]) {
    let mut world = world_of("nas8", 61, |policy| policy.starts_per_day = 10_000);
    let blobs = one_blob_each(&mut world);
    world.set_faults(MUTE);
    for _ in 0..3 {
        world.read(blobs[0], MB).unwrap();
        world.run_for(10 * MINUTE);
    }
    let ended = world.take_ended();
    assert!(ended.iter().all(|ended| ended.outcome == Outcome::Failed(Rejection::TooManyDrivesAway)), "{ended:?}");
    assert_eq!(ended.len(), 3);
    world.set_faults(Faults::default());
    (world, blobs)
}

fn read(world: &mut World, blob: BlobId) -> Outcome {
    let op = world.read(blob, MB).unwrap();
    world.run_for(10 * MINUTE);
    outcome_of(world, op).unwrap()
}

#[test]
fn silent_drives_hold_the_permits_of_others_for_a_while_and_not_for_good() {
    let (mut world, blobs) = silenced();
    let held = world.rack.ledger().active_drives();
    assert!(held > 0, "a silent drive may still turn");
    let waits = read(&mut world, blobs[1]);
    world.run_for(24 * 60 * MINUTE);
    assert_eq!(world.rack.ledger().active_drives(), 0, "all were stopped once more");
    assert_eq!((waits, read(&mut world, blobs[1])), (Outcome::Failed(Rejection::TooManyDrivesAway), Outcome::Read));
    assert_eq!(world.counted().trips, 0);
}

#[test]
fn drives_that_are_out_of_service_come_back_unasked() {
    let (mut world, blobs) = silenced();
    world.run_for(24 * 60 * MINUTE);
    assert_eq!(read(&mut world, blobs[0]), Outcome::Read);
}

#[test]
fn a_drive_that_stays_broken_is_started_less_and_less_often() {
    let mut world = world_of("nas8", 62, |policy| policy.starts_per_day = 10_000);
    let blobs = one_blob_each(&mut world);
    world.set_faults(Faults { command_permille: 1000, ..Faults::default() });
    let mut starts = Vec::new();
    for _ in 0..6 {
        let before = world.rack.stats().drive_starts;
        for _ in 0..24 * 6 {
            read(&mut world, blobs[0]);
        }
        starts.push(world.rack.stats().drive_starts - before);
    }
    let members = world.blobs.drives_of(blobs[0]).len() as u64;
    assert!(starts[5] <= 2 * members && starts[5] < starts[0], "starts of each day: {starts:?}");
    world.set_faults(Faults::default());
    world.run_for(2 * 24 * 60 * MINUTE);
    assert_eq!(read(&mut world, blobs[0]), Outcome::Read, "and is used again once it is well");
}
