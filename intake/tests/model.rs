//! Random operations against a reference map, with crashes after any write, and with faults.
//!
//! `LARDER_SEEDS` is how often the runs of each test are repeated, with other seeds: 1 unless it is set.

mod common;

use common::{Reference, Run, check, config, contents};
use intake::Intake;
use intake::medium::memory::World;
use model::Rng;

/// Operations of a run, and crashes of each.
const OPERATIONS: u64 = 250;
const CRASHES: u64 = 40;

/// Runs random operations on `drives` drives, crashes the drives in many ways, and compares what is found.
fn crash_often(seed: u64, drives: usize) {
    let mut rng = Rng::for_thing(seed, 1);
    let world = World::new(drives);
    let mut run = Run::new();
    {
        let (intake, _) = Intake::open(world.home(), world.directories(), config(seed)).expect("it is new");
        for _ in 0..OPERATIONS {
            run.step(&intake, &world, &mut rng);
        }
        assert_eq!(contents(&intake), run.reference(), "seed {seed}");
    }
    for crash in 0..CRASHES {
        let position = rng.below(world.position() as u64 + 1) as usize;
        let after = world.crash(position, &mut rng);
        let allowed = run.allowed(position);
        reopen(&after, &allowed, seed + crash + 1, &mut rng, 2);
    }
}

/// Opens `world`, which must hold one of `allowed`, continues for a while, and crashes again.
fn reopen(world: &World, allowed: &[Reference], seed: u64, rng: &mut Rng, depth: u32) {
    let begin = world.position();
    let run = {
        let (intake, opened) =
            Intake::open(world.home(), world.directories(), config(seed)).expect("a crash leaves a pool");
        let found = contents(&intake);
        assert!(allowed.contains(&found), "seed {seed}: {} keys, none of {} states", found.len(), allowed.len());
        assert_eq!(intake.take_losses(), [], "a crash is no rot");
        check(&intake, &found);
        let mut run = Run::after(found, opened.last);
        for _ in 0..20 {
            run.step(&intake, world, rng);
        }
        assert_eq!(contents(&intake), run.reference(), "seed {seed}");
        run
    };
    if depth > 0 {
        // Opening it again may have been cut short as well.
        let position = begin + rng.below((world.position() - begin) as u64 + 1) as usize;
        let after = world.crash(position, rng);
        reopen(&after, &run.allowed(position), seed + 1000, rng, depth - 1);
    }
}

/// The offset that is added to the seeds of each repetition.
fn repetitions() -> impl Iterator<Item = u64> {
    let times = std::env::var("LARDER_SEEDS").map_or(1, |times| times.parse().expect("LARDER_SEEDS is a number"));
    (0..times).map(|number: u64| number * 1_000_000)
}

#[test]
fn a_crash_of_one_drive_leaves_every_acknowledged_change_and_no_other() {
    for seed in repetitions().flat_map(|base| (0..6).map(move |seed| base + 100 * seed)) {
        crash_often(seed, 1);
    }
}

#[test]
fn a_crash_of_several_drives_leaves_every_acknowledged_change_and_no_other() {
    for base in repetitions() {
        for (seed, drives) in [(11, 2), (12, 3), (13, 4), (14, 4), (15, 5)] {
            crash_often(base + 100 * seed, drives);
        }
    }
}

#[test]
fn a_crash_of_two_rotations_leaves_every_acknowledged_change_and_no_other() {
    for base in repetitions() {
        for (seed, drives) in [(21, 6), (22, 7), (23, 10)] {
            crash_often(base + 100 * seed, drives);
        }
    }
}

#[test]
fn a_pool_can_be_made_again_wherever_making_it_was_cut_short() {
    let mut rng = Rng::for_thing(7, 7);
    let world = World::new(6);
    drop(Intake::open(world.home(), world.directories(), config(1)).expect("it is new"));
    for position in 0..=world.position() {
        let after = world.crash(position, &mut rng);
        let (intake, opened) =
            Intake::open(after.home(), after.directories(), config(2)).expect("a crash leaves a pool, or none");
        assert_eq!((opened.missing.len(), opened.copies, contents(&intake).len()), (0, 2, 0), "at {position}");
    }
}

#[test]
fn after_a_crash_each_rotation_alone_has_the_same() {
    repetitions().for_each(|base| crash_and_compare(base + 31));
}

/// Crashes two rotations in many ways, and opens each of them alone.
fn crash_and_compare(seed: u64) {
    let mut rng = Rng::for_thing(seed, 31);
    let world = World::new(6);
    let mut run = Run::new();
    {
        let (intake, _) = Intake::open(world.home(), world.directories(), config(seed)).expect("it is new");
        for _ in 0..100 {
            run.step(&intake, &world, &mut rng);
        }
    }
    for round in 0..60 {
        let position = world.position() / 2 + rng.below(world.position() as u64 / 2) as usize;
        let after = world.crash(position, &mut rng);
        let (intake, _) =
            Intake::open(after.home(), after.directories(), config(1000 + round)).expect("a crash leaves a pool");
        let found = contents(&intake);
        drop(intake);
        for half in [0..3, 3..6] {
            let there = half.map(|drive| after.directory(drive)).collect();
            let (intake, opened) =
                Intake::open(after.home(), there, config(2000 + round)).expect("half of it is there");
            assert_eq!(opened.missing.len(), 3);
            let numbers = |contents: &Reference| contents.values().map(|(sequence, ..)| sequence.0).collect::<Vec<_>>();
            assert_eq!(numbers(&contents(&intake)), numbers(&found), "round {round}");
            check(&intake, &found);
        }
    }
}
