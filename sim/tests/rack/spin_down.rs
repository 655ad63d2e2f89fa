//! What keeps an idle group spinning: its drives' starts of the day, and the gap between two of them.

use super::*;

const DAY: Duration = Duration::from_hours(24);

fn keeping(rack: &str) -> World {
    world_of(rack, 10, |policy| {
        policy.starts_per_day = 3;
        policy.spin_down.keeps_exhausted = true;
    })
}

/// Has a blob read so often that its group has no starts left on this day.
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
