//! Inspections of a group's drives, as for a verification: they go group by group after clients, and those without a
//! wake wake no group.

use super::*;

fn wakes(world: &World) -> u64 {
    world.rack.stats().group_wakes.iter().sum()
}

fn world() -> World {
    let mut world = world_of("nas8", 4, |_| {});
    with_blobs(&mut world, 12, 200 * MB);
    world.run_for(60 * MINUTE);
    world.take_ended();
    world
}

#[test]
fn a_look_wakes_its_group_only_if_it_may_and_as_often_as_it_must() {
    let mut world = world();
    let group = world.rack.layout().classes[0][0];
    let before = wakes(&world);
    let asleep = world.inspect(group, true);
    world.run_for(60 * MINUTE);
    let ended = world.take_ended();
    assert_eq!((ended[0].op, &ended[0].outcome), (asleep, &Outcome::Failed(Rejection::Asleep)));
    assert_eq!(wakes(&world), before, "nobody is woken by a look that may not");
    let looks: Vec<OpId> = (0..20).map(|_| world.inspect(group, false)).collect();
    world.run_for(3 * MINUTE);
    let ended = world.take_ended();
    let inspected = |op: &OpId| ended.iter().any(|ended| ended.op == *op && ended.outcome == Outcome::Inspected);
    assert!(looks.iter().all(inspected), "{ended:?}");
    assert_eq!(wakes(&world), before + 1, "one wake is enough for all of them");
    assert!(world.rack.group_state(group) == GroupState::Idle, "the look behind finds it so");
    let riding = world.inspect(group, true);
    world.run_for(MINUTE);
    assert!(world.take_ended().iter().any(|ended| ended.op == riding && ended.outcome == Outcome::Inspected));
}

#[test]
fn looks_without_end_keep_no_client_of_their_class_from_its_group() {
    let mut world = world();
    let groups = world.rack.layout().classes[0].clone();
    let other = world.blobs.iter().find(|(_, of)| *of == groups[1]).unwrap();
    let mut looks = vec![world.inspect(groups[0], false), world.inspect(groups[0], false)];
    let (mut asked, mut looked) = (None, 0);
    let waited = loop {
        assert!(world.step() && world.now() < Time::ZERO + 3 * 60 * MINUTE, "the client waits for an hour");
        let mut served = None;
        for ended in world.take_ended() {
            if looks.contains(&ended.op) {
                assert_eq!(ended.outcome, Outcome::Inspected);
                looked += 1;
                looks.push(world.inspect(groups[0], false));
                asked = asked.or_else(|| (looked > 10).then(|| (world.now(), world.read(other.0, MB).unwrap())));
            } else if let Some((since, _)) = asked.filter(|(_, op)| *op == ended.op) {
                assert_eq!(ended.outcome, Outcome::Read);
                served = Some(ended.at.since(since));
            }
        }
        if let Some(waited) = served {
            break waited;
        }
    };
    assert!(waited < 2 * MINUTE, "a read beside looks is served within {waited:?}");
}

#[test]
fn a_group_of_which_no_drive_answers_is_not_looked_at() {
    let mut world = world();
    let group = world.rack.layout().classes[0][0];
    for drive in world.rack.layout().groups[group.index()].drives.clone() {
        world.fail(drive);
    }
    let look = world.inspect(group, false);
    world.run_for(30 * MINUTE);
    let ended = world.take_ended();
    let outcome = ended.iter().find(|ended| ended.op == look).map(|ended| &ended.outcome);
    assert_eq!(outcome, Some(&Outcome::Failed(Rejection::TooManyDrivesAway)), "{ended:?}");
}
