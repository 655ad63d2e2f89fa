//! Waits of clients beside others that never stop, and their forecasts.

use super::*;
use engine::Forecast;
use model::Rng;
use std::collections::BTreeMap;

/// The server's own settings, with this limit in time.
fn as_served(wait_limit: Option<Duration>) -> impl FnOnce(&mut RackPolicy) {
    move |policy| {
        policy.scheduler.wait_limit = wait_limit;
        policy.scheduler.join_in_service = true;
        policy.scheduler.anticipation = Duration::from_secs(2);
    }
}

/// Blobs by group, for the groups of class 0.
fn blobs_of_class(world: &World) -> Vec<Vec<BlobId>> {
    let groups = world.rack.layout().classes[0].clone();
    let of = |group: GroupId| world.blobs.iter().filter(|(_, of)| *of == group).map(|(blob, _)| blob).collect();
    groups.into_iter().map(of).filter(|blobs: &Vec<_>| !blobs.is_empty()).collect()
}

/// Four readers loop over 1.5 GB objects of one group, and a client wants 16 KiB of another group of the class. Returns
/// its wait for the first byte (an hour if it is longer), and the forecast.
fn beside_four_readers(wait_limit: Option<Duration>) -> (Duration, Forecast) {
    let mut world = world_of("nas8", 4, as_served(wait_limit));
    with_blobs(&mut world, 12, 1_500 * MB);
    let groups = blobs_of_class(&world);
    assert!(groups.len() > 1, "the class has blobs in several groups");
    let wanted = world.blobs.iter().find(|(blob, _)| *blob == groups[1][0]).unwrap();
    for reader in 0..4 {
        world.read(groups[0][reader % groups[0].len()], 1_500 * MB).unwrap();
    }
    world.run_for(MINUTE);
    let ended = world.take_ended().len();
    for _ in 0..ended {
        world.read(groups[0][0], 1_500 * MB).unwrap();
    }
    let forecast = world.rack.forecast(wanted.1, world.now());
    let (asked_at, read) = (world.now(), world.read(wanted.0, 16 << 10).unwrap());
    while world.now().since(asked_at) < 60 * MINUTE {
        world.run_for(Duration::from_millis(100));
        for ended in world.take_ended() {
            assert_eq!(ended.outcome, Outcome::Read);
            if ended.op == read {
                return (ended.first_byte.unwrap().since(asked_at), forecast);
            }
            world.read(groups[0][ended.op.0 as usize % groups[0].len()], 1_500 * MB).unwrap();
        }
    }
    (60 * MINUTE, forecast)
}

#[test]
fn four_readers_of_one_group_do_not_starve_a_client_of_another() {
    let (unlimited, said) = beside_four_readers(None);
    assert!(unlimited > Duration::from_secs(230), "without a limit in time it waits {unlimited:?}");
    assert!(said.max >= unlimited.min(5 * MINUTE), "and that is not hidden: {said:?}");
    let (limited, said) = beside_four_readers(Some(2 * MINUTE));
    let spec = shipped("nas8");
    let (profile, code) = (&spec.profile, spec.code);
    let switch = profile.unmount.max + profile.spin_down.max + profile.spin_up.max + profile.mount_busy.max;
    let one = model::transfer_time(1_500 * MB / u64::from(code.data), profile.bytes_per_s) + profile.seek * 4;
    assert!(limited <= 2 * MINUTE + switch + one, "with it the wait is {limited:?}");
    assert!(limited >= 2 * MINUTE, "and it is overtaken before: {limited:?}");
    assert!((said.min..=said.max).contains(&limited), "{said:?} was forecast of {limited:?}");
    println!("four readers: {unlimited:?} without a limit, {limited:?} with one of 2 min, forecast as {said:?}");
}

/// Clients read at random, sometimes many at the same time, from all groups of a class: every wait for a first byte is
/// within the forecast at its submission. Returns the longest wait.
fn forecasts_hold(
    seed: u64,
    name: &str,
    wait_limit: Option<Duration>,
    change: impl FnOnce(&mut RackPolicy),
) -> Duration {
    let mut world = world_of(name, seed, |policy| {
        as_served(wait_limit)(policy);
        change(policy);
    });
    with_blobs(&mut world, 120, 400 * MB);
    let groups = blobs_of_class(&world);
    let group_of: BTreeMap<BlobId, GroupId> = world.blobs.iter().collect();
    let mut rng = Rng::new(seed);
    let mut said = BTreeMap::new();
    let mut longest = Duration::ZERO;
    // The longest possible operation is always known: one is queued or in service whenever others are.
    for _ in 0..300 {
        let hot = rng.below(groups.len() as u64) as usize;
        for _ in 0..rng.below(2) * rng.below(40) {
            let of = if rng.below(4) > 0 { hot } else { rng.below(groups.len() as u64) as usize };
            let blob = groups[of][rng.below(groups[of].len() as u64) as usize];
            let forecast = world.rack.forecast(group_of[&blob], world.now());
            said.insert(world.read(blob, 400 * MB).unwrap(), (forecast, world.now()));
        }
        world.run_for(Duration::from_millis(rng.between(100, 40_000)));
        for ended in world.take_ended() {
            assert_eq!(ended.outcome, Outcome::Read);
            let (forecast, asked_at) = said.remove(&ended.op).unwrap();
            let waited = ended.first_byte.unwrap().since(asked_at);
            longest = longest.max(waited);
            assert!(
                (forecast.min..=forecast.max).contains(&waited),
                "{forecast:?} was forecast of {waited:?}, seed {seed}"
            );
        }
    }
    println!("{name}, seed {seed}: the longest wait was {longest:?}");
    longest
}

#[test]
fn every_wait_lies_within_its_forecast() {
    let mut longest = [Duration::ZERO; 3];
    for seed in 0..6 {
        let waited = [
            forecasts_hold(seed, "nas8", Some(2 * MINUTE), |_| {}),
            forecasts_hold(seed, "pelican-mini", Some(MINUTE), |policy| policy.scheduler.quantum = MINUTE / 4),
            forecasts_hold(seed, "nas8", Some(2 * MINUTE), |policy| policy.scheduler.join_in_service = false),
        ];
        for (longest, waited) in longest.iter_mut().zip(waited) {
            *longest = waited.max(*longest);
        }
    }
    assert!(longest[0] > 2 * MINUTE && longest[1] > MINUTE, "the load is hostile enough: {longest:?}");
}

#[test]
fn an_idle_rack_forecasts_a_wake_and_nothing_more() {
    let mut world = world_of("pelican", 3, as_served(Some(2 * MINUTE)));
    let blobs = with_blobs(&mut world, 3, 100 * MB);
    let group = world.blobs.iter().next().unwrap().1;
    let said = world.rack.forecast(group, world.now());
    let profile = world.rack.spec().profile.clone();
    assert!(said.min >= profile.spin_up.min + profile.mount.min);
    assert!(said.max <= profile.spin_up.max + profile.mount_busy.max + Duration::from_secs(1), "{said:?}");
    let asked_at = world.now();
    world.read(blobs[0], 100 * MB).unwrap();
    world.run_for(MINUTE);
    let waited = world.take_ended()[0].first_byte.unwrap().since(asked_at);
    assert!((said.min..=said.max).contains(&waited), "{said:?} was forecast of {waited:?}");
}
