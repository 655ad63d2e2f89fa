//! An intake without threads, whose caller lets it work: the same calls do the same, and a crash in the middle of any
//! of it leaves what was acknowledged.

mod common;

use common::{Run, check, config, contents};
use intake::medium::memory::{Fault, World};
use intake::{Change, Config, Driver, Intake, OpenError, PutError, Sequence};
use model::{Rng, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OPERATIONS: u64 = 250;

/// Settings of an intake that the caller drives, with a clock of the caller's.
fn driven(seed: u64, now_ms: &Arc<AtomicU64>) -> Config {
    let now_ms = Arc::clone(now_ms);
    let clock = Arc::new(move || Time::from_nanos(now_ms.load(Ordering::Relaxed) * 1_000_000));
    Config { driver: Driver::Caller, clock, ..config(seed) }
}

/// Random operations on `drives` drives, and between them tasks and time.
fn live(seed: u64, world: &World) -> Run {
    let (mut rng, mut run, now_ms) = (Rng::for_thing(seed, 5), Run::new(), Arc::new(AtomicU64::new(0)));
    let opened = Intake::open(world.home(), world.directories(), driven(seed, &now_ms));
    let (intake, _) = opened.expect("it is new");
    for _ in 0..OPERATIONS {
        run.step(&intake, world, &mut rng);
        now_ms.fetch_add(rng.below(2_000), Ordering::Relaxed);
        if rng.below(3) == 0 {
            intake.work(rng.below(3) as usize);
        }
    }
    assert_eq!(contents(&intake), run.reference(), "seed {seed}");
    run
}

#[test]
fn the_same_calls_leave_the_same_bytes() {
    for (seed, drives) in [(1, 1), (2, 3), (3, 4), (4, 6)] {
        let worlds = [World::new(drives), World::new(drives)];
        for world in &worlds {
            live(seed, world);
        }
        for drive in 0..=drives {
            assert_eq!(worlds[0].files(drive), worlds[1].files(drive), "seed {seed}, drive {drive}");
        }
        let shelves: usize = (0..drives).map(|drive| worlds[0].made(drive, ".new")).sum();
        assert!(shelves > 2, "logs became shelves");
    }
}

#[test]
fn a_crash_or_a_kill_leaves_every_acknowledged_change_and_no_other() {
    for (seed, drives) in [(11, 1), (12, 2), (13, 4), (14, 7)] {
        let (world, mut rng) = (World::new(drives), Rng::for_thing(seed, 6));
        let run = live(seed, &world);
        for round in 0..60 {
            let position = rng.below(world.position() as u64 + 1) as usize;
            let left = if round % 3 == 0 { world.kill(position) } else { world.crash(position, &mut rng) };
            let opened = Intake::open(left.home(), left.directories(), driven(seed + round, &Arc::default()));
            let (intake, _) = opened.expect("a crash leaves a pool");
            let found = contents(&intake);
            assert!(run.allowed(position).contains(&found), "seed {seed}, at {position}");
            assert_eq!(intake.take_losses(), [], "a crash is no rot");
            check(&intake, &found);
        }
    }
}

#[test]
fn nobody_waits_for_room_that_does_not_come() {
    let world = World::new(1);
    let now_ms = Arc::default();
    let (intake, _) = Intake::open(world.home(), world.directories(), driven(21, &now_ms)).expect("it is new");
    intake.put(b"before", b"", &[1; 500]).expect("there is room");
    world.set_fault(0, Fault::Full);
    let refused = intake.put(b"key", b"", &[2; 500]);
    assert!(matches!(refused, Err(PutError::NoSpace)), "{refused:?}");
    world.set_fault(0, Fault::None);
    now_ms.fetch_add(60_000, Ordering::Relaxed);
    intake.put(b"key", b"", &[2; 500]).expect("there is room again");
    let more = (0..200_u8).map(|key| Change::Put { key: vec![key], entry: Vec::new(), value: vec![key; 900].into() });
    for ack in intake.submit_all(more.collect()).expect("they are taken in") {
        ack.wait().expect("tasks make room");
    }
    assert_eq!(contents(&intake).len(), 202);
}

/// The name of the first log of the first drive.
fn first_log(world: &World) -> Option<String> {
    world
        .files(0)
        .into_iter()
        .map(|(name, _)| name)
        .find(|name| name.rsplit_once('.').is_some_and(|(_, kind)| kind == "log"))
}

/// Numbers of the changes that an intake on `world` shows to a caller who knows none.
fn replayed(world: &World, seed: u64) -> (Vec<u64>, Intake) {
    let config = Config { covered: Some(Sequence(0)), needs_all: true, ..driven(seed, &Arc::default()) };
    let (intake, opened) = Intake::open(world.home(), world.directories(), config).expect("it opens");
    (opened.replay.map(|change| change.expect("nothing is damaged").sequence.0).collect(), intake)
}

#[test]
fn a_caller_who_knows_nothing_is_shown_everything_again_however_often_a_log_goes_missing() {
    let world = World::new(6);
    let (_, intake) = replayed(&world, 1);
    for number in 1..=15_u8 {
        let change = Change::Delete { key: b"c".to_vec(), entry: vec![number; 40] };
        intake.submit(change, None).expect("there is room").wait().expect("the drives work");
    }
    drop(intake);
    let name = first_log(&world);
    world.put_file(0, &name.expect("it has a log"), None);
    for seed in 2..6 {
        let (numbers, intake) = replayed(&world, seed);
        assert!(numbers.iter().copied().eq(1..=15), "start {seed}: {numbers:?}");
        intake.work(seed as usize);
    }
}

/// A start finds `left` incomplete.
fn is_refused(left: &World) -> bool {
    let config = Config { needs_all: true, ..driven(9, &Arc::default()) };
    matches!(Intake::open(left.home(), left.directories(), config), Err(OpenError::Incomplete(_)))
}

#[test]
fn a_log_that_was_begun_a_moment_ago_is_missed_as_well() {
    // Its length is nowhere yet, since no time has passed; its name is in the manifest.
    let world = World::new(1);
    let (intake, _) = Intake::open(world.home(), world.directories(), driven(31, &Arc::default())).expect("it is new");
    intake.put(b"key", b"entry", &[1; 500]).expect("there is room");
    let position = world.position();
    let name = first_log(&world);
    let name = name.expect("there is a log");
    assert!(!is_refused(&world.kill(position)), "nothing is missing");
    for bytes in [None, Some(Vec::new()), Some(vec![0; 4_000])] {
        let left = world.kill(position);
        left.put_file(0, &name, bytes.clone());
        assert!(is_refused(&left), "{:?} bytes", bytes.map(|bytes| bytes.len()));
    }
}

#[test]
fn a_caller_learns_what_it_is_not_shown_of_a_retained_log_unless_another_rotation_has_it() {
    for (drives, is_unshown) in [(1, true), (6, false)] {
        let world = World::new(drives);
        let (_, intake) = replayed(&world, 41);
        let before = first_log(&world);
        for number in 0..60_u8 {
            intake.put(&[number], b"entry", &[number; 400]).expect("there is room");
        }
        while intake.work(1) {}
        let name = before.expect("there was a log");
        let left = world.kill(world.position());
        assert!(left.files(0).iter().any(|(there, _)| *there == name), "it is retained");
        for bytes in [None, Some(vec![0; 5_000])] {
            let left = world.kill(world.position());
            left.put_file(0, &name, bytes);
            let config = Config { covered: Some(Sequence(0)), needs_all: true, ..driven(42, &Arc::default()) };
            let opened = Intake::open(left.home(), left.directories(), config.clone());
            let (intake, opened) = opened.expect("its records are in a shelf");
            assert_eq!(opened.unshown.is_some(), is_unshown, "{drives} drives");
            assert_eq!(contents(&intake).len(), 60);
            drop(intake);
            let (_, opened) =
                Intake::open(left.home(), left.directories(), Config { needs_all: false, ..config }).expect("again");
            assert_eq!(opened.unshown, None, "nobody needs it");
        }
    }
}

#[test]
fn a_pool_whose_first_manifest_was_cut_short_has_none() {
    let world = World::new(1);
    drop(Intake::open(world.home(), world.directories(), driven(51, &Arc::default())).expect("it is new"));
    let label = world.files(0).into_iter().find(|(name, _)| name == intake::LABEL).expect("it has a label").1;
    // As of a Larder that knew no manifest: the version in the label, and the checksum of the block.
    let mut earlier = label;
    earlier[8..12].copy_from_slice(&1_u32.to_le_bytes());
    let seal = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &earlier[..4092]) as u32;
    earlier[4092..4096].copy_from_slice(&seal.to_le_bytes());
    for cut in [0, 100, 5_000] {
        let left = world.kill(world.position());
        left.put_file(0, intake::LABEL, Some(earlier.clone()));
        let (slot, bytes) = left.files(1).into_iter().next().expect("it has a slot");
        left.files(1).iter().for_each(|(name, _)| left.put_file(1, name, None));
        left.put_file(1, &slot, Some(bytes[..cut].to_vec()));
        let config = Config { needs_all: true, ..driven(52, &Arc::default()) };
        let opened = Intake::open(left.home(), left.directories(), config);
        assert!(opened.is_ok(), "{cut} bytes of the first slot: {:?}", opened.err());
    }
}
