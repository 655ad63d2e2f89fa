//! Reads that justify no wake, like read-ahead: they are admitted while their group wakes, they wake no group, and an
//! endless series of them delays no client beyond the bound.

use super::*;
use engine::{GroupState, Rejection};

/// The server's own settings.
fn as_served(policy: &mut RackPolicy) {
    policy.scheduler.wait_limit = Some(2 * MINUTE);
    policy.scheduler.join_in_service = true;
    policy.scheduler.anticipation = Duration::from_secs(2);
}

/// Two groups of one class, each with one of its blobs.
fn two_groups(world: &World) -> [(BlobId, GroupId); 2] {
    let groups = world.rack.layout().classes[0].clone();
    let of = |group: GroupId| world.blobs.iter().find(|(_, of)| *of == group);
    let found: Vec<_> = groups.into_iter().filter_map(of).collect();
    [found[0], found[1]]
}

fn ahead(world: &mut World, (blob, group): (BlobId, GroupId)) -> OpId {
    let drives = world.blobs.drives_of(blob).to_vec();
    world.read_while_awake(blob, group, drives.as_slice(), 64 * MB)
}

/// A world with the server's settings, with blobs, and asleep.
fn with_a_dozen_blobs() -> World {
    let mut world = world_of("nas8", 4, as_served);
    with_blobs(&mut world, 12, 200 * MB);
    world.run_for(60 * MINUTE);
    world.take_ended();
    world
}

fn wakes(world: &World) -> u64 {
    world.rack.stats().group_wakes.iter().sum()
}

#[test]
fn a_read_ahead_comes_in_while_its_group_gets_up_and_never_wakes_it() {
    let mut world = with_a_dozen_blobs();
    let [one, _] = two_groups(&world);
    let (before, asleep) = (wakes(&world), ahead(&mut world, one));
    world.run_for(60 * MINUTE);
    let ended = world.take_ended();
    assert_eq!((ended[0].op, &ended[0].outcome), (asleep, &Outcome::Failed(Rejection::Asleep)));
    assert_eq!(wakes(&world), before, "nobody else wants the group");
    world.read(one.0, MB).unwrap();
    assert_eq!(world.rack.group_state(one.1), GroupState::Waking);
    let early = ahead(&mut world, one);
    world.run_for(5 * MINUTE);
    let ended = world.take_ended();
    assert!(ended.iter().any(|ended| ended.op == early && ended.outcome == Outcome::Read), "{ended:?}");
    assert_eq!(wakes(&world), before + 1);
}

#[test]
fn reading_ahead_without_end_keeps_nobody_waiting_beyond_the_bound() {
    let mut world = with_a_dozen_blobs();
    let [one, other] = two_groups(&world);
    world.read(one.0, MB).unwrap();
    let mut under_way: Vec<OpId> = (0..4).map(|_| ahead(&mut world, one)).collect();
    let (mut asked, mut answered) = (None, None);
    let waited = loop {
        assert!(world.step() && world.now() < Time::ZERO + 3 * 60 * MINUTE, "it waits for an hour");
        for ended in world.take_ended() {
            if under_way.contains(&ended.op) {
                // Its group is awake, and always has more to read.
                asked = asked.or_else(|| Some((world.now(), world.read(other.0, MB)?)));
                under_way.push(ahead(&mut world, one));
            }
            if let Some((at, wanted)) = asked.filter(|(_, wanted)| *wanted == ended.op) {
                assert_eq!(ended.outcome, Outcome::Read, "{wanted} is answered");
                answered = Some(ended.first_byte.unwrap().since(at));
            }
        }
        if let Some(waited) = answered {
            break waited;
        }
    };
    let spec = shipped("nas8");
    let (profile, code) = (&spec.profile, spec.code);
    let switch = profile.unmount.max + profile.spin_down.max + profile.spin_up.max + profile.mount_busy.max;
    let read = model::transfer_time(64 * MB / u64::from(code.data), profile.bytes_per_s) + profile.seek * 4;
    println!("beside reading ahead without end it waits {waited:?}");
    assert!(waited <= 2 * MINUTE + switch + read, "it waits {waited:?}");
    assert!(waited > MINUTE, "there is something to be bounded: it waits {waited:?}");
}
