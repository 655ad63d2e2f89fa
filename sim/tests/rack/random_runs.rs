//! Randomised runs of racks: in every run, no fuse trips and nothing waits forever.

use super::*;
use engine::{Controller, DrivePhase, ScrubPolicy, Weighing};
use model::Rng;
use proptest::prelude::*;
use sim::baseline::{RandomLayout, random_stacks};

/// A randomised run: reads, writes, cancels, deletes, deaths and revivals of drives, all with faults.
fn random_run(name: &str, seed: u64, faults: Faults, deaths: bool) -> World {
    let mut world = world_of(name, seed, |policy| policy.idle_timeout = IdleTimeout::After(MINUTE));
    let mut rng = Rng::for_thing(seed, 99);
    world.set_staging(2000 * MB);
    world.set_faults(faults);
    let mut version = 0;
    let mut away: Vec<DriveId> = Vec::new();
    for _ in 0..300 {
        world.run_for(Duration::from_millis(rng.below(20_000)));
        let blobs: Vec<BlobId> = world.blobs.iter().map(|(blob, _)| blob).collect();
        match rng.below(10) {
            0..=2 => drop(world.write(MB * (1 + rng.below(50)), PinnedTo::Anywhere)),
            3..=6 if !blobs.is_empty() => {
                let op = world.read(blobs[rng.below(blobs.len() as u64) as usize], MB);
                if rng.below(5) == 0 {
                    world.cancel(op.unwrap());
                }
            }
            7 => {
                version += 1;
                world.stage(version, MB * (1 + rng.below(300)), PinnedTo::Anywhere);
            }
            8 if !blobs.is_empty() => world.mark_dead(blobs[0], 400 * MB),
            9 if deaths => {
                let drives = world.rack.spec().drives.len() as u64;
                let drive = DriveId(rng.below(drives) as u32);
                world.kill(drive);
                away.push(drive);
                if away.len() > 2 {
                    world.revive(away.remove(0));
                }
            }
            _ => {}
        }
    }
    // The world heals; everything that remains must come to rest.
    heal(&mut world);
    world.run_for(3 * 24 * 60 * MINUTE);
    world
}

fn came_to_rest(world: &World) {
    assert_eq!(world.counted().trips, 0, "no fuse ever trips");
    assert_eq!(world.open_ops(), 0, "every operation is answered");
    assert_eq!(world.rack.open_operations(), 0, "and forgotten");
    assert!(is_asleep(world), "and everything sleeps");
}

/// The small rack as the prototype in Pelican's cross-validation: one drive of a tray starts at a time.
fn small_prototype() -> RackSpec {
    let text = shipped_text("pelican-mini");
    let starts = "[resources.starts]\nsame = [\"width\", \"height\"]\nstarting_drives = 1\nhard = true\n\n";
    model::text::parse(&text.replacen("[resources.power]", &(starts.to_owned() + "[resources.power]"), 1), "mini")
        .unwrap()
}

/// The box of eight, limited by watts instead of drives, and so small that it is soon full.
fn small_box_of_watts() -> RackSpec {
    let changed = shipped_text("nas8").replace("active_drives = 4", "watts = 100").replace("\"12 TB\"", "\"2 GB\"");
    model::text::parse(&changed, "nas8").unwrap()
}

/// The box of eight with a supply for six, two of them without power control.
fn small_mixed_box() -> RackSpec {
    let changed =
        shipped_text("nas8").replace("active_drives = 4", "active_drives = 6").replace("\"12 TB\"", "\"2 GB\"");
    let mut draft = model::RackDraft::clone(&model::text::parse(&changed, "nas8").unwrap());
    (draft.drives[2].power, draft.drives[5].power) = (model::DrivePower::None, model::DrivePower::None);
    RackSpec::validated(draft).unwrap()
}

/// Scrubs in every second run, with a period so short that all of their steps meet everything else.
fn scrubs(seed: u64) -> ScrubPolicy {
    let mut rng = Rng::for_thing(seed, 94);
    if rng.below(2) == 0 {
        return ScrubPolicy::default();
    }
    ScrubPolicy {
        period: Some(MINUTE * (20 + rng.below(400) as u32)),
        ride_along: Duration::from_secs(rng.below(300)),
        starts_per_day: rng.below(30) as u32,
        step_bytes: [1, 50 * MB, 1 << 40][rng.below(3) as usize],
    }
}

/// A stack of a blob that has none yet goes bad; or the operator commands something.
fn rot_or_command(world: &mut World, rng: &mut Rng, blobs: &[BlobId]) {
    match rng.below(6) {
        0 => world.scrub(None),
        1 => world.scrub(Some(GroupId(rng.below(14) as u32))),
        2 => world.pause_scrub(true),
        3 => world.pause_scrub(false),
        // Always the same stack of a blob, so there are never too many.
        _ => {
            let Some(blob) = blobs.get(rng.below(blobs.len().max(1) as u64) as usize) else { return };
            let drive = world.blobs.drives_of(*blob)[0];
            world.blobs.corrupt(*blob, drive);
        }
    }
}

/// A rougher run: drives that never answer, fuses that trip by themselves, full racks, pins, and a rack that may close
/// at any time.
fn rough_run(spec: RackSpec, seed: u64, closes: bool) -> World {
    let mut rng = Rng::for_thing(seed, 98);
    let mut policy = policy(&spec);
    policy.idle_timeout =
        if rng.below(3) == 0 { IdleTimeout::Never } else { IdleTimeout::After(Duration::from_secs(rng.below(120))) };
    let (weighing, some) =
        if seed.is_multiple_of(2) { (Weighing::Bytes, 100 * MB) } else { (Weighing::ServiceTime, 5_000) };
    policy.scheduler.weighing = weighing;
    policy.scheduler.overtake_limit = [0, some, u64::MAX][rng.below(3) as usize];
    policy.scheduler.join_in_service = rng.below(2) == 0;
    policy.scheduler.anticipation = Duration::from_secs(rng.below(4));
    policy.scheduler.queue_depth = 20;
    policy.starts_per_day = 1 + rng.below(20) as u32;
    policy.scrub = scrubs(seed);
    let mut world =
        if rng.below(2) == 0 { judged(spec, policy, seed, Vec::new()) } else { never_seen(spec, policy, seed, None) };
    let layout = world.rack.layout();
    let (classes, groups) = (layout.classes.len() as u64, layout.groups.len() as u64);
    world.set_staging(2000 * MB);
    let bad = Faults {
        command_permille: 30,
        transfer_permille: 30,
        twice_permille: 100,
        mute_permille: 20,
        hang_permille: 20,
    };
    let hard: Vec<_> = world.rack.spec().resources_by_id().filter(|(_, r)| r.hard).map(|(id, _)| id).collect();
    let steps = if closes { rng.below(200) } else { 200 };
    let mut scrubbing = Rng::for_thing(seed, 95);
    for version in 0..steps {
        if rng.below(20) == 0 {
            world.set_faults(if rng.below(2) == 0 { bad } else { Faults::default() });
        }
        let longest_ms = 1 << rng.below(17);
        world.run_for(Duration::from_millis(rng.below(longest_ms)));
        let blobs: Vec<BlobId> = world.blobs.iter().map(|(blob, _)| blob).collect();
        if version % 16 == 7 && world.rack.policy().scrub.period.is_some() {
            rot_or_command(&mut world, &mut scrubbing, &blobs);
        }
        let any_blob = |rng: &mut Rng| blobs.get(rng.below(blobs.len().max(1) as u64) as usize).copied();
        let drive = DriveId(rng.below(world.rack.spec().drives.len() as u64) as u32);
        let pin = match rng.below(6) {
            0 => PinnedTo::Class(model::ClassId(rng.below(classes) as u32)),
            1 => PinnedTo::Group(GroupId(rng.below(groups) as u32)),
            _ => PinnedTo::Anywhere,
        };
        match rng.below(13) {
            0..=1 => drop(world.write(MB * (1 + rng.below(400)), pin)),
            2..=5 => {
                for _ in 0..rng.below(6) {
                    let priority = engine::PriorityClass::ALL[rng.below(3) as usize];
                    let op = any_blob(&mut rng).and_then(|blob| world.read_for(priority, blob, MB));
                    if let Some(op) = op.filter(|_| rng.below(5) == 0) {
                        world.cancel(op);
                    }
                }
            }
            6..=7 => world.stage(version, MB * (1 + rng.below(300)), pin),
            8 => drop(any_blob(&mut rng).map(|blob| world.mark_dead(blob, MB * (1 + rng.below(400))))),
            9 => world.kill(drive),
            10 => world.revive(drive),
            11 => world.trip(hard[rng.below(hard.len() as u64) as usize], drive),
            // Only drives that the fuses can carry: a fuse that trips otherwise is no fault of the engine.
            _ if world.rack.ledger().blocking(drive).next().is_none() => world.wake_by_others(drive),
            _ => {}
        }
        let group = GroupId(rng.below(world.rack.layout().groups.len() as u64) as u32);
        let forecast = world.rack.forecast(group, world.now());
        assert!(forecast.min <= forecast.max);
    }
    if closes {
        world.close();
    }
    heal(&mut world);
    world.run_for(2 * 24 * 60 * MINUTE);
    // A step of a scrub may be in progress at this time.
    for _ in 0..120 {
        if (world.open_ops(), world.rack.open_operations()) == (0, 0) {
            break;
        }
        world.run_for(MINUTE);
    }
    world
}

/// A run of a random layout: reads of random drives, deaths, revivals, fuses that trip by themselves, and commands that
/// fail or are answered twice.
fn random_layout_run(spec: RackSpec, seed: u64) -> World<RandomLayout> {
    let mut rng = Rng::for_thing(seed, 97);
    let judge = Some(TraceCheck::without_classes(&spec));
    let setting = Setting { judge, ..Setting::default() };
    let mut world = World::with(RandomLayout::new(spec, 20, ReadPolicy::All), seed, setting);
    let bad =
        Faults { command_permille: 30, transfer_permille: 30, twice_permille: 100, mute_permille: 0, hang_permille: 0 };
    let hard: Vec<_> = world.rack.spec().resources_by_id().filter(|(_, r)| r.hard).map(|(id, _)| id).collect();
    for blob in 0..200 {
        if rng.below(20) == 0 {
            world.set_faults(if rng.below(2) == 0 { bad } else { Faults::default() });
        }
        let longest_ms = 1 << rng.below(17);
        world.run_for(Duration::from_millis(rng.below(longest_ms)));
        let drive = DriveId(rng.below(world.rack.spec().drives.len() as u64) as u32);
        match rng.below(10) {
            0 => world.kill(drive),
            1 | 2 => world.revive(drive),
            3 => world.trip(hard[rng.below(hard.len() as u64) as usize], drive),
            _ => {
                let drives = random_stacks(world.rack.spec(), &mut rng).unwrap();
                let op = world.read_at(BlobId::numbered(blob), GroupId(0), drives, MB);
                if rng.below(5) == 0 {
                    world.cancel(op);
                }
            }
        }
    }
    heal(&mut world);
    world.run_for(24 * 60 * MINUTE);
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn under_random_load_no_fuse_trips_and_every_operation_is_answered(seed in any::<u64>()) {
        for name in ["pelican-mini", "nas8"] {
            let world = random_run(name, seed, Faults::default(), false);
            came_to_rest(&world);
            prop_assert!(world.staging.versions().is_empty(), "everything staged has migrated");
        }
    }

    #[test]
    fn faults_lose_no_operation_and_trip_no_fuse(seed in any::<u64>()) {
        let faults = Faults {
            command_permille: 20,
            transfer_permille: 20,
            twice_permille: 100,
            hang_permille: 20,
            ..Faults::default()
        };
        for name in ["pelican-mini", "nas8"] {
            let mut world = random_run(name, seed, faults, true);
            came_to_rest(&world);
            world.take_ended();
            // Liveness: once the world is well, every written blob can be read.
            let op = world.write(MB, PinnedTo::Anywhere);
            world.run_for(30 * MINUTE);
            let ended = world.take_ended();
            let written = ended.iter().find(|ended| ended.op == op).unwrap();
            prop_assert!(matches!(written.outcome, Outcome::Written { .. }), "{:?}", written);
            let blob = world.blobs.iter().last().unwrap().0;
            world.read(blob, MB).unwrap();
            world.run_for(30 * MINUTE);
            prop_assert_eq!(&world.take_ended()[0].outcome, &Outcome::Read);
        }
    }

    #[test]
    fn a_rough_run_trips_no_fuse_and_leaves_nothing_waiting(seed in any::<u64>(), closes in any::<bool>()) {
        let small = [small_prototype(), small_box_of_watts(), small_mixed_box()];
        for spec in [shipped("pelican-mini"), shipped("nas8")].into_iter().chain(small) {
            let mut world = rough_run(spec, seed, closes);
            prop_assert_eq!(world.counted().trips, 0, "no fuse trips by the engine's doing");
            prop_assert_eq!((world.open_ops(), world.rack.open_operations()), (0, 0), "every operation is answered");
            if closes {
                prop_assert!(world.rack.is_closed(), "whatever never answered is given up on");
                continue;
            }
            prop_assert_eq!(world.rack.uninitialised_groups(), 0, "every group is initialised in the end");
            // Now that there are no more failures, every drive is back, and everything can be read.
            let away = |drive: &&model::DriveSpec| matches!(world.rack.drive_phase(drive.id), DrivePhase::Away(_));
            prop_assert_eq!(world.rack.spec().drives.iter().find(away), None);
            world.take_ended();
            let blobs: Vec<BlobId> = world.blobs.iter().map(|(blob, _)| blob).collect();
            for blob in blobs.into_iter().take(5) {
                if world.blobs.iter().all(|(there, _)| there != blob) {
                    continue; // reclaimed while another was read
                }
                let op = world.read(blob, MB).unwrap();
                world.run_for(60 * MINUTE);
                prop_assert_eq!(outcome_of(&mut world, op), Some(Outcome::Read));
            }
        }
    }

    #[test]
    fn a_random_layout_trips_no_fuse_and_answers_everything_whatever_is_lost(seed in any::<u64>()) {
        for spec in [shipped("pelican-mini"), small_prototype(), shipped("nas8"), small_box_of_watts()] {
            let mut world = random_layout_run(spec, seed);
            prop_assert_eq!((world.counted().trips, world.open_ops()), (0, 0));
            let mut rng = Rng::for_thing(seed, 96);
            let drives = random_stacks(world.rack.spec(), &mut rng).unwrap();
            world.take_ended();
            world.read_at(BlobId::numbered(1), GroupId(0), drives, MB);
            world.run_for(60 * MINUTE);
            prop_assert_eq!(&world.take_ended()[0].outcome, &Outcome::Read, "a rack that is well again reads");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_trace(seed in any::<u64>()) {
        let faults = Faults { command_permille: 20, transfer_permille: 20, twice_permille: 50, ..Faults::default() };
        let once = random_run("nas8", seed, faults, true).trace_hash();
        prop_assert_eq!(once, random_run("nas8", seed, faults, true).trace_hash());
    }
}

/// A drive that another program had started two seconds before did not count as starting, so the engine started another
/// one beside it.
#[test]
fn a_rough_run_that_tripped_a_fuse_trips_none() {
    let world = rough_run(small_prototype(), 5_331_843_658_390_586_571, false);
    assert_eq!(world.counted().trips, 0);
}
