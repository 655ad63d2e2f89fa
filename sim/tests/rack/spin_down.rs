//! The reasons to keep an idle group spinning: its drives' starts of the day, the gap between two of them, and imminent
//! rebuilds in it or writes to it.

use super::rebuild::{all_whole, fullest, mates, view};
use super::*;
use engine::PriorityClass;

const DAY: Duration = Duration::from_hours(24);
const SECOND: Duration = Duration::from_secs(1);

fn keeping(rack: &str) -> World {
    world_of(rack, 10, |policy| {
        policy.starts_per_day = 3;
        policy.spin_down.keeps_exhausted = true;
    })
}

/// Reads a blob until its group has no starts left on this day.
fn exhaust(world: &mut World, blob: BlobId) {
    world.run_until(Time::start_of_day(world.now().day() + 1));
    for read in 0..3 {
        assert!(is_asleep(world), "read {read}");
        world.read(blob, MB).unwrap();
        world.run_for(20 * MINUTE);
    }
}

#[test]
fn a_group_without_starts_left_spins_until_tomorrow_and_serves_at_once() {
    let mut world = keeping("nas8");
    let blobs = with_blobs(&mut world, 1, 100 * MB);
    exhaust(&mut world, blobs[0]);
    assert!(!is_asleep(&world), "it has no starts left");
    let kept = |world: &World| world.rack.kept_spinning(model::ClassId(0), world.now());
    assert_eq!(kept(&world), world.blobs.iter().next().map(|(_, group)| group), "and the status says so");
    let starts = world.rack.stats().drive_starts;
    for _ in 0..5 {
        world.run_for(60 * MINUTE);
        world.read(blobs[0], MB).unwrap();
    }
    world.run_for(MINUTE);
    assert_eq!(world.rack.stats().drive_starts, starts, "whoever comes costs no start");
    assert!(world.take_ended().iter().all(|ended| ended.outcome == Outcome::Read));
    world.run_for(DAY);
    assert!(is_asleep(&world), "a new day, a new budget");
    assert_eq!(kept(&world), None);
}

#[test]
fn a_group_without_starts_left_makes_room_for_another_of_its_class() {
    let mut world = keeping("pelican-mini");
    let blobs = with_blobs(&mut world, 40, 100 * MB);
    let groups: std::collections::BTreeMap<BlobId, GroupId> = world.blobs.iter().collect();
    let first = groups[&blobs[0]];
    let class_of = |group| world.rack.layout().class_of(group);
    let is_other = |group: GroupId| group != first && class_of(group) == class_of(first);
    let other = groups.iter().find(|(_, group)| is_other(**group)).map(|(blob, _)| *blob);
    let other = other.expect("a class has six groups, and most have blobs");
    exhaust(&mut world, blobs[0]);
    world.take_ended();
    world.read(other, MB).unwrap();
    world.run_for(2 * MINUTE);
    assert_eq!(world.take_ended()[0].outcome, Outcome::Read, "it waits for no day");
    assert_eq!(world.rack.group_state(first), GroupState::Asleep);
}

#[test]
fn a_group_stays_awake_for_the_gap_at_least() {
    let mut world = world_of("nas8", 10, |policy| {
        policy.idle_timeout = IdleTimeout::After(MINUTE);
        policy.spin_down.min_gap = 30 * MINUTE;
    });
    let blobs = with_blobs(&mut world, 1, 100 * MB);
    world.read(blobs[0], MB).unwrap();
    world.run_for(29 * MINUTE);
    assert!(!is_asleep(&world), "it was ready less than the gap ago");
    world.run_for(3 * MINUTE);
    assert!(is_asleep(&world));
}

/// A world whose catalog takes longer to answer than an idle group waits.
fn slow_to_look_up(seed: u64, change: impl FnOnce(&mut RackPolicy)) -> World {
    let spec = shipped("nas8");
    let mut policy = policy(&spec);
    policy.idle_timeout = IdleTimeout::After(10 * SECOND);
    change(&mut policy);
    let layout = engine::layout::synthesise(&spec).unwrap();
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    World::with(Rack::new(spec, layout, policy, seed), seed, Setting { judge, look_up: MINUTE, ..Setting::default() })
}

#[test]
fn a_group_spins_on_between_the_pages_of_its_rebuild() {
    let mut world = slow_to_look_up(11, |_| {});
    // More than two pages of each drive.
    with_blobs(&mut world, 700, 10 * MB);
    let (drive, blobs) = fullest(&world);
    assert!(blobs.len() > 2 * 128, "{} blobs", blobs.len());
    let before = world.rack.stats();
    world.fail(drive);
    world.run_for(120 * MINUTE);
    let after = world.rack.stats();
    assert_eq!((view(&world, drive).left_bytes, view(&world, drive).waiting_blobs), (0, 0));
    assert!(all_whole(&world) && is_asleep(&world), "and sleeps when the last page is through");
    let rebuild = PriorityClass::Rebuild as usize;
    assert_eq!(after.group_wakes[rebuild] - before.group_wakes[rebuild], 1, "one wake for all pages");
}

#[test]
fn a_rebuild_that_waits_for_drives_keeps_nothing_spinning() {
    let mut world = slow_to_look_up(12, |_| {});
    with_blobs(&mut world, 300, 10 * MB);
    let (drive, _) = fullest(&world);
    let mate = mates(&world, drive)[0];
    world.kill(mate);
    world.fail(drive);
    world.run_for(60 * MINUTE);
    assert!(view(&world, drive).left_bytes > 0, "too few drives are there");
    let mut spinning = Duration::ZERO;
    for _ in 0..24 * 60 {
        world.run_for(MINUTE);
        spinning += if is_asleep(&world) { Duration::ZERO } else { MINUTE };
    }
    assert!(spinning < 30 * MINUTE, "{spinning:?} of a day");
    world.revive(mate);
    world.run_for(120 * MINUTE);
    assert!(view(&world, drive).left_bytes == 0 && is_asleep(&world));
}

#[test]
fn a_group_spins_on_while_the_next_pack_for_it_is_composed() {
    let wakes = |group_choice| {
        let mut world = slow_to_look_up(13, |policy| {
            policy.group_choice = group_choice;
            // One pack after the other.
            (policy.migration.window, policy.migration.pack_bytes) = (1, 100 * MB);
        });
        world.set_staging(100_000 * MB);
        for version in 0..5 {
            world.stage(version, 100 * MB, PinnedTo::Anywhere);
        }
        world.run_for(60 * MINUTE);
        assert!(world.staging.versions().is_empty() && is_asleep(&world));
        world.rack.stats().group_wakes[PriorityClass::Background as usize]
    };
    assert_eq!(wakes(GroupChoice::Batch { bytes: 1_000_000 * MB }), 1, "all of them go to one group");
    assert!(wakes(GroupChoice::Random) > 1, "nobody knows where the next one goes");
}
