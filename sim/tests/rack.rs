//! The engine in the simulated world: sleep and wake, power, faults, migration, reclaiming, closing.

#![allow(clippy::unwrap_used, missing_docs)]

use engine::check::TraceCheck;
use engine::trace::{Record, Replay};
use engine::{
    Controller, GroupChoice, GroupState, IdleTimeout, MigrationPolicy, Outcome, PinnedTo, Rack, RackPolicy, ReadPolicy,
    Rejection, SchedulerPolicy, Shares,
};
use model::{BlobId, DriveId, GroupId, OpId, RackSpec, Time};
use sim::{Experiment, Faults, Recorder, Setting, World};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

mod racks;

use racks::{shipped, shipped_text};

#[path = "rack/always_on.rs"]
mod always_on;
#[path = "rack/anticipation.rs"]
mod anticipation;
#[path = "rack/backoff.rs"]
mod backoff;
#[path = "rack/checks.rs"]
mod checks;
#[path = "rack/forecasts.rs"]
mod forecasts;
#[path = "rack/found_spinning.rs"]
mod found_spinning;
#[path = "rack/giving_up.rs"]
mod giving_up;
#[path = "rack/hangs.rs"]
mod hangs;
#[path = "rack/health.rs"]
mod health;
#[path = "rack/initialising.rs"]
mod initialising;
#[path = "rack/inspecting.rs"]
mod inspecting;
#[path = "rack/random_runs.rs"]
mod random_runs;
#[path = "rack/reading_ahead.rs"]
mod reading_ahead;
#[path = "rack/rebuild.rs"]
mod rebuild;
#[path = "rack/scrubbing.rs"]
mod scrubbing;
#[path = "rack/spin_down.rs"]
mod spin_down;
#[path = "rack/thermometer.rs"]
mod thermometer;
#[path = "rack/waiting.rs"]
mod waiting;

const MB: u64 = 1_000_000;
const MINUTE: Duration = Duration::from_mins(1);

fn policy(spec: &RackSpec) -> RackPolicy {
    let papers = Experiment::pelican(spec.clone()).policy;
    RackPolicy {
        scheduler: SchedulerPolicy { shares: Shares { client: 60, rebuild: 30, background: 10 }, ..papers.scheduler },
        idle_timeout: IdleTimeout::After(5 * MINUTE),
        migration: MigrationPolicy {
            due_age: Some(Duration::from_secs(30)),
            min_age: Duration::from_secs(30),
            pack_bytes: 200 * MB,
            scan_interval: Duration::from_secs(5),
            ..papers.migration
        },
        evacuate_permille: 500,
        give_up_after: None,
        rebuild_read_back: true,
        ..papers
    }
}

/// A world with its judge around a rack of these settings.
fn judged(spec: RackSpec, policy: RackPolicy, seed: u64, used_bytes: Vec<u64>) -> World {
    let layout = engine::layout::synthesise(&spec).unwrap();
    engine::check::layout(&spec, &layout).unwrap();
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    World::with(Rack::new(spec, layout, policy, seed), seed, Setting { judge, used_bytes, ..Setting::default() })
}

/// The same with new drives, so every group needs initialisation.
fn never_seen(spec: RackSpec, policy: RackPolicy, seed: u64, recorder: Option<Recorder>) -> World {
    let layout = engine::layout::synthesise(&spec).unwrap();
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    let setting = Setting { judge, first_boot: true, recorder, ..Setting::default() };
    World::with(Rack::new(spec, layout, policy, seed), seed, setting)
}

fn world_of(name: &str, seed: u64, change: impl FnOnce(&mut RackPolicy)) -> World {
    let spec = shipped(name);
    let mut policy = policy(&spec);
    change(&mut policy);
    judged(spec, policy, seed, Vec::new())
}

/// Writes `count` blobs and lets the rack fall asleep again.
fn with_blobs(world: &mut World, count: u64, bytes: u64) -> Vec<BlobId> {
    for _ in 0..count {
        world.write(bytes, PinnedTo::Anywhere);
    }
    world.run_for(60 * MINUTE);
    let ended = world.take_ended();
    assert!(ended.iter().all(|ended| matches!(ended.outcome, Outcome::Written { .. })), "{ended:?}");
    assert!(is_asleep(world));
    world.blobs.iter().map(|(blob, _)| blob).collect()
}

/// Ends all faults, and brings every drive back.
fn heal<M: Controller>(world: &mut World<M>) {
    world.set_faults(Faults::default());
    for index in 0..world.rack.spec().drives.len() {
        world.revive(DriveId(index as u32));
    }
}

fn is_asleep(world: &World) -> bool {
    let groups = world.rack.layout().groups.len();
    world.rack.ledger().active_drives() == 0
        && (0..groups).all(|group| world.rack.group_state(GroupId(group as u32)) == GroupState::Asleep)
}

#[test]
fn a_cold_read_wakes_its_group_all_members_at_once_and_lets_it_sleep_again() {
    let mut world = world_of("pelican", 1, |_| {});
    let blobs = with_blobs(&mut world, 1, 1000 * MB);
    let started = world.now();
    let before = world.rack.stats();
    world.read(blobs[0], 1000 * MB).unwrap();
    assert_eq!(world.rack.ledger().active_drives(), 24, "all drives of the group start together");
    world.run_for(MINUTE);
    let ended = world.take_ended();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].outcome, Outcome::Read);
    let took = ended[0].at.since(started).as_secs_f64();
    assert!((8.0..20.0).contains(&took), "a spin-up, a mount and 0.64 s of transfer took {took} s");
    let after = world.rack.stats();
    assert_eq!(after.drive_starts - before.drive_starts, 24);
    assert_eq!(after.group_wakes[0] - before.group_wakes[0], 1);
    assert_eq!(world.rack.ledger().active_drives(), 24, "it stays awake for a while");
    world.run_for(5 * MINUTE);
    assert!(is_asleep(&world), "and then sleeps");
    assert_eq!(world.counted().trips, 0);
}

#[test]
fn without_an_idle_timeout_a_group_stays_up_until_another_of_its_class_is_wanted() {
    let mut world = world_of("pelican-mini", 2, |policy| policy.idle_timeout = IdleTimeout::Never);
    for _ in 0..40 {
        world.write(10 * MB, PinnedTo::Anywhere);
    }
    world.run_for(24 * 60 * MINUTE);
    let classes = world.rack.layout().classes.len();
    let group = world.rack.layout().groups[0].drives.len();
    assert_eq!(world.rack.ledger().active_drives(), classes * group);
    assert_eq!(world.take_ended().len(), 40);
}

#[test]
fn reads_of_one_group_share_one_wake() {
    let wakes = |join_in_service| {
        let mut world = world_of("nas8", 3, |policy| policy.scheduler.join_in_service = join_in_service);
        let blobs = with_blobs(&mut world, 40, 100 * MB);
        let before = world.rack.stats().group_wakes[0];
        for blob in &blobs {
            world.read(*blob, 100 * MB).unwrap();
        }
        world.run_for(10 * MINUTE);
        assert_eq!(world.take_ended().len(), 40);
        world.rack.stats().group_wakes[0] - before
    };
    assert_eq!(wakes(true), 2, "two groups, one wake each");
    assert_eq!(
        wakes(false),
        3,
        "the paper's rule does not let the second read join the group that wakes for the first"
    );
}

#[test]
fn a_broken_ledger_would_trip_a_fuse_and_the_engine_lives_through_it() {
    let mut world = world_of("pelican", 4, |_| {});
    let blobs = with_blobs(&mut world, 1, 100 * MB);
    world.read(blobs[0], 100 * MB).unwrap();
    world.run_for(MINUTE);
    assert_eq!(world.counted().trips, 0);
    // Another drive of a cooling column in which one already spins: there is one permit, and it is taken.
    let cooling = world.rack.spec().resources_by_id().find(|(_, r)| r.name == "cooling").unwrap().0;
    let (_, domain, ..) = world.rack.ledger().usage().find(|(resource, ..)| *resource == cooling).unwrap();
    let spec = world.rack.spec();
    let sleeping =
        spec.drives.iter().map(|d| d.id).find(|d| {
            spec.domain_of(*d, cooling) == domain && world.rack.drive_phase(*d) == engine::DrivePhase::Standby
        });
    world.spin_up_without_permit(sleeping.unwrap());
    assert_eq!(world.counted().trips, 1, "the fuse tripped");
    world.run_for(Duration::from_millis(1));
    let away = |world: &World| {
        let spec = world.rack.spec();
        spec.drives.iter().filter(|d| matches!(world.rack.drive_phase(d.id), engine::DrivePhase::Away(_))).count()
    };
    assert_eq!(away(&world), 12, "and took its whole column");
    world.take_ended();
    world.read(blobs[0], 100 * MB).unwrap();
    world.run_for(MINUTE);
    assert_eq!(world.take_ended()[0].outcome, Outcome::Read, "one drive of a group away is no loss");
    assert_eq!(away(&world), 0, "and the fuse resets");
}

#[test]
fn a_read_with_too_many_drives_away_is_refused_and_works_again_when_they_are_back() {
    let mut world = world_of("nas8", 5, |_| {});
    let blobs = with_blobs(&mut world, 1, 100 * MB);
    let (_, group) = world.blobs.iter().next().unwrap();
    let members = world.rack.layout().groups[group.index()].drives.clone();
    for drive in &members[..3] {
        world.kill(*drive);
    }
    world.read(blobs[0], 100 * MB).unwrap();
    assert_eq!(world.take_ended()[0].outcome, Outcome::Failed(Rejection::TooManyDrivesAway));
    for drive in &members[..3] {
        world.revive(*drive);
    }
    world.read(blobs[0], 100 * MB).unwrap();
    world.run_for(MINUTE);
    assert_eq!(world.take_ended()[0].outcome, Outcome::Read);
}

#[test]
fn small_objects_migrate_in_packs_that_share_wakes() {
    let mut world = world_of("pelican", 6, |policy| {
        policy.group_choice = GroupChoice::Batch { bytes: 20_000 * MB };
    });
    world.set_staging(100_000 * MB);
    for version in 0..20_000 {
        world.stage(version, MB / 2, PinnedTo::Anywhere);
    }
    world.run_for(20 * MINUTE);
    assert!(world.staging.versions().is_empty());
    let stats = world.rack.stats();
    assert_eq!(stats.migrated_bytes, 10_000 * MB);
    let blobs = world.blobs.iter().count();
    assert!((50..=60).contains(&blobs), "{blobs} packs of 200 MB hold 20,000 objects");
    let wakes_per_gb = stats.group_wakes[2] as f64 / 10.0;
    println!("one group for 20 GB: {wakes_per_gb} wakes per GB migrated, {} drive starts", stats.drive_starts);
    assert!(wakes_per_gb <= 0.2, "{wakes_per_gb} wakes per GB");
}

#[test]
fn spread_at_random_the_same_migration_costs_a_wake_for_nearly_every_group() {
    let mut world = world_of("pelican", 6, |_| {});
    world.set_staging(100_000 * MB);
    for version in 0..20_000 {
        world.stage(version, MB / 2, PinnedTo::Anywhere);
    }
    world.run_for(60 * MINUTE);
    assert!(world.staging.versions().is_empty());
    let stats = world.rack.stats();
    let wakes_per_gb = stats.group_wakes[2] as f64 / 10.0;
    println!("a random group each: {wakes_per_gb} wakes per GB migrated, {} drive starts", stats.drive_starts);
    assert!(stats.group_wakes[2] > 20, "this is what batching saves");
}

#[test]
fn staged_versions_that_cannot_be_read_cost_one_wake_and_hold_nobody_up() {
    for (seed, choice) in [(6, GroupChoice::Random), (7, GroupChoice::Batch { bytes: 20_000 * MB })] {
        let mut world = world_of("pelican", seed, |policy| policy.group_choice = choice);
        world.set_staging(100_000 * MB);
        for version in 0..100 {
            world.stage(version, MB, PinnedTo::Anywhere);
        }
        for version in [3, 50, 99] {
            world.staging.corrupt(version);
        }
        world.run_for(10 * MINUTE);
        assert!(world.staging.versions().keys().eq([3, 50, 99].iter()), "all others are in the rack");
        assert!(world.staging.quarantined().iter().eq([3, 50, 99].iter()));
        world.run_for(24 * 60 * MINUTE);
        let stats = world.rack.stats();
        assert_eq!(stats.group_wakes, [0, 0, 1], "the pack is composed anew for the group that is awake");
        assert_eq!(stats.migrated_bytes, 97 * MB);
        assert!(is_asleep(&world));
    }
}

#[test]
fn pinned_data_lies_in_its_class() {
    let mut world = world_of("pelican-mini", 7, |_| {});
    world.set_staging(1000 * MB);
    let class = model::ClassId(1);
    for version in 0..100 {
        world.stage(version, MB, PinnedTo::Class(class));
    }
    world.run_for(20 * MINUTE);
    assert!(world.staging.versions().is_empty());
    for (_, group) in world.blobs.iter() {
        assert_eq!(world.rack.layout().class_of(group), class);
    }
}

#[test]
fn dead_blobs_go_at_their_groups_next_wake_and_wake_nothing_themselves() {
    let mut world = world_of("nas8", 8, |_| {});
    let blobs = with_blobs(&mut world, 6, 100 * MB);
    let group_of = |world: &World, blob| world.blobs.iter().find(|(b, _)| *b == blob).unwrap().1;
    let group = group_of(&world, blobs[0]);
    let mates: Vec<BlobId> = blobs.iter().copied().filter(|blob| group_of(&world, *blob) == group).collect();
    assert!(mates.len() >= 2, "of six blobs in two groups, some share one");
    world.mark_dead(mates[0], 100 * MB);
    world.run_for(60 * MINUTE);
    assert!(is_asleep(&world));
    assert_eq!(world.rack.dead_bytes(group), 100 * MB, "nobody wakes a group to delete");
    let used = |world: &World| -> u64 {
        let spec = world.rack.spec();
        spec.drives.iter().map(|d| spec.capacity_bytes(d.id) - world.rack.placement().free_bytes(d.id)).sum()
    };
    let before = used(&world);
    world.read(mates[1], 100 * MB).unwrap();
    world.run_for(MINUTE);
    assert!(world.blobs.iter().all(|(blob, _)| blob != mates[0]), "gone at the next wake");
    assert_eq!(world.rack.dead_bytes(group), 0);
    assert_eq!(before - used(&world), 3 * 50 * MB, "and its space is back: three stacks of a 2+1 code");
}

#[test]
fn a_full_rack_refuses_and_takes_again_what_was_reclaimed() {
    let mut world = world_of("nas8", 9, |_| {});
    let spec = world.rack.spec().clone();
    let blob = spec.profile.capacity_bytes / 4;
    let mut blobs = Vec::new();
    loop {
        world.write(blob, PinnedTo::Anywhere);
        world.run_for(600 * MINUTE);
        match world.take_ended().remove(0).outcome {
            Outcome::Written { .. } => blobs = world.blobs.iter().map(|(blob, _)| blob).collect(),
            Outcome::Failed(Rejection::NoRoom) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(blobs.len() >= 8, "{} blobs fit", blobs.len());
    world.mark_dead(blobs[0], blob);
    world.write(blob, PinnedTo::Anywhere);
    assert_eq!(world.take_ended()[0].outcome, Outcome::Failed(Rejection::NoRoom));
    world.run_for(60 * MINUTE);
    world.take_ended();
    world.write(blob, PinnedTo::Anywhere);
    world.run_for(600 * MINUTE);
    assert!(matches!(world.take_ended()[0].outcome, Outcome::Written { .. }), "the refused write had room made");
}

#[test]
fn background_work_stays_within_the_start_budget_and_clients_do_not_wait_for_it() {
    let mut world = world_of("nas8", 10, |policy| policy.starts_per_day = 2);
    let blobs = with_blobs(&mut world, 4, 100 * MB);
    for _ in 0..4 {
        world.read(blobs[0], MB).unwrap();
        world.run_for(20 * MINUTE);
    }
    assert!(world.take_ended().iter().all(|ended| ended.outcome == Outcome::Read), "clients may exceed it");
    let starts = world.rack.stats().drive_starts;
    world.set_staging(1000 * MB);
    for version in 0..10 {
        world.stage(version, MB, PinnedTo::Anywhere);
    }
    world.run_until(Time::from_secs(86_000));
    let spent = world.rack.stats().drive_starts - starts;
    assert!(spent <= 4, "migration waits for a group with starts left, or for tomorrow: {spent} starts");
    world.run_until(Time::from_secs(2 * 86_400));
    assert!(world.staging.versions().is_empty(), "and goes on the next day");
}

#[test]
fn everything_asked_of_groups_that_are_gone_as_a_whole_is_refused_at_once() {
    let mut world = world_of("pelican-mini", 3, |policy| policy.scheduler.overtake_limit = 0);
    let blobs = with_blobs(&mut world, 60, MB);
    let homes: std::collections::BTreeMap<_, _> = world.blobs.iter().collect();
    let groups = world.rack.layout().groups.clone();
    let class = groups[homes[&blobs[0]].index()].class;
    let one_of = |group: GroupId| blobs.iter().find(|blob| homes[blob] == group).copied();
    let of_class =
        (0..groups.len()).map(|group| GroupId(group as u32)).filter(|group| groups[group.index()].class == class);
    let there: Vec<BlobId> = of_class.filter_map(one_of).collect();
    let [served, ref gone @ ..] = there[..] else { panic!("a class has groups") };
    world.read(served, MB).unwrap();
    for _ in 0..20 {
        for &blob in gone {
            world.read(blob, MB).unwrap();
        }
    }
    for &blob in gone {
        groups[homes[&blob].index()].drives.iter().for_each(|drive| world.kill(*drive));
    }
    world.run_for(60 * MINUTE);
    let ended = world.take_ended();
    assert_eq!(ended.len(), 1 + 20 * gone.len());
    let refused = ended.iter().filter(|ended| ended.outcome == Outcome::Failed(Rejection::TooManyDrivesAway)).count();
    assert_eq!(refused, 20 * gone.len());
}

#[test]
fn closing_lets_what_is_in_service_end_and_puts_everything_to_sleep() {
    let mut world = world_of("pelican-mini", 11, |_| {});
    let blobs = with_blobs(&mut world, 30, 10 * MB);
    for blob in &blobs {
        world.read(*blob, 10 * MB).unwrap();
    }
    world.run_for(Duration::from_secs(15));
    world.close();
    world.run_for(10 * MINUTE);
    assert!(world.rack.is_closed() && is_asleep(&world));
    assert_eq!(world.open_ops(), 0, "every operation was answered");
    assert_eq!(world.counted().trips, 0);
}

#[test]
fn a_trace_replays_through_a_fresh_rack_and_any_change_to_it_is_noticed() {
    let rack = || {
        let spec = shipped("pelican-mini");
        let layout = engine::layout::synthesise(&spec).unwrap();
        let policy = policy(&spec);
        Rack::new(spec, layout, policy, 12)
    };
    let records = Rc::new(RefCell::new(Vec::<Record>::new()));
    let recorder = Rc::clone(&records);
    let mut world = World::with(
        rack(),
        12,
        Setting { recorder: Some(Box::new(move |record| recorder.borrow_mut().push(record))), ..Setting::default() },
    );
    let blobs = with_blobs(&mut world, 10, 10 * MB);
    world.read(blobs[0], MB).unwrap();
    world.run_for(10 * MINUTE);
    let replayed = |records: &[Record]| {
        let mut replay = Replay::new(rack());
        records.iter().try_for_each(|record| replay.take(record))
    };
    let records = records.borrow();
    assert_eq!(replayed(&records), Ok(()));
    for index in (100..records.len()).step_by(97) {
        let mut changed = records.clone();
        changed.remove(index);
        assert!(replayed(&changed).is_err(), "without record {index}: {:?}", records[index]);
    }
}

/// A blob in each of the two groups of a box of eight drives.
fn one_blob_each(world: &mut World) -> [BlobId; 2] {
    let blobs = with_blobs(world, 12, 10 * MB);
    let of =
        |world: &World, group| world.blobs.iter().find(|(b, g)| *g == GroupId(group) && blobs.contains(b)).unwrap().0;
    [of(world, 0), of(world, 1)]
}

fn outcome_of(world: &mut World, op: OpId) -> Option<Outcome> {
    world.take_ended().into_iter().find(|ended| ended.op == op).map(|ended| ended.outcome)
}

#[test]
fn a_write_that_fails_while_the_rack_closes_ends_with_it() {
    let mut world = world_of("pelican-mini", 21, |_| {});
    let op = world.write(50 * MB, PinnedTo::Anywhere);
    while world.rack.class_view(model::ClassId(0)).in_service.is_none()
        && world.rack.class_view(model::ClassId(1)).in_service.is_none()
    {
        world.run_for(Duration::from_millis(1));
    }
    world.set_faults(Faults { transfer_permille: 1000, ..Faults::default() });
    world.close();
    world.run_for(10 * MINUTE);
    assert!(outcome_of(&mut world, op).is_some());
    assert!(world.rack.is_closed() && is_asleep(&world));
}

#[test]
fn drives_that_come_back_while_their_group_is_awake_are_used_again() {
    let mut world = world_of("nas8", 23, |policy| policy.idle_timeout = IdleTimeout::Never);
    let blobs = {
        for _ in 0..12 {
            world.write(10 * MB, PinnedTo::Anywhere);
        }
        world.run_for(10 * MINUTE);
        world.take_ended();
        world.blobs.iter().next().unwrap().0
    };
    world.read(blobs, MB).unwrap();
    world.run_for(MINUTE);
    let power = world.rack.spec().resources_by_id().find(|(_, r)| r.name == "power").unwrap().0;
    world.trip(power, DriveId(0));
    world.run_for(MINUTE);
    world.take_ended();
    let op = world.read(blobs, MB).unwrap();
    world.run_for(10 * MINUTE);
    assert_eq!(outcome_of(&mut world, op), Some(Outcome::Read));
}

#[test]
fn a_queue_of_two_groups_in_turn_ends_when_all_its_drives_are_gone() {
    let mut world = world_of("nas8", 22, |policy| policy.scheduler.overtake_limit = 0);
    let blobs = one_blob_each(&mut world);
    for index in 0..200 {
        world.read(blobs[index % 2], MB).unwrap();
    }
    world.run_for(Duration::from_secs(5));
    let power = world.rack.spec().resources_by_id().find(|(_, r)| r.name == "power").unwrap().0;
    world.trip(power, DriveId(0));
    world.run_for(10 * MINUTE);
    assert_eq!(world.open_ops(), 0);
}

#[test]
fn a_dead_drive_does_not_slow_every_wake_of_another_group() {
    let mut world = world_of("nas8", 24, |_| {});
    let blobs = one_blob_each(&mut world);
    world.read(blobs[0], MB).unwrap();
    world.run_for(MINUTE);
    let dead = world.blobs.drives_of(blobs[0])[0];
    world.kill(dead);
    world.run_for(10 * MINUTE);
    world.take_ended();
    world.read(blobs[1], MB).unwrap();
    let before = world.now();
    world.run_for(10 * MINUTE);
    let ended = world.take_ended();
    let took = ended[0].at.since(before);
    println!("{took:?} {:?}", ended[0].outcome);
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn a_permit_that_a_dead_drive_holds_sends_no_other_class_to_sleep() {
    let mut world = world_of("pelican", 25, |_| {});
    for _ in 0..200 {
        world.write(10 * MB, PinnedTo::Anywhere);
    }
    world.run_for(120 * MINUTE);
    world.take_ended();
    let of = |world: &World, group: GroupId| world.blobs.iter().find(|(_, g)| *g == group).unwrap().0;
    let groups: Vec<GroupId> = world.blobs.iter().map(|(_, g)| g).collect();
    let class = |world: &World, g: &GroupId| world.rack.layout().class_of(*g);
    let a = groups[0];
    let b = *groups.iter().find(|g| **g != a && class(&world, g) == class(&world, &a)).unwrap();
    let c = *groups.iter().find(|g| class(&world, g) != class(&world, &a)).unwrap();
    let blob = of(&world, a);
    world.read(blob, MB).unwrap();
    world.run_for(MINUTE);
    let dead = world.rack.layout().groups[a.index()].drives[0];
    world.kill(dead);
    world.run_for(10 * MINUTE);
    let blob = of(&world, c);
    world.read(blob, MB).unwrap();
    world.run_for(MINUTE);
    assert_eq!(world.rack.group_state(c), GroupState::Idle);
    let blob = of(&world, b);
    world.read(blob, MB).unwrap();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.rack.group_state(c), GroupState::Idle, "its five minutes are not over");
}

#[test]
fn work_given_up_for_the_start_budget_is_charged_for_no_switch() {
    let mut world = world_of("nas8", 26, |policy| policy.starts_per_day = 3);
    let blobs = one_blob_each(&mut world);
    for _ in 0..4 {
        world.read(blobs[0], MB).unwrap();
        world.run_for(20 * MINUTE);
    }
    world.read(blobs[1], MB).unwrap();
    world.run_for(MINUTE);
    world.read_for(engine::PriorityClass::Background, blobs[0], MB).unwrap();
    world.run_for(Duration::from_secs(1));
    let awake = world.rack.group_state(GroupId(1));
    assert_eq!(awake, GroupState::Idle, "nothing is put to sleep for what may not wake");
    world.run_for(60 * MINUTE);
    let before = world.rack.stats().group_wakes;
    world.read(blobs[0], MB).unwrap();
    world.run_for(MINUTE);
    let after = world.rack.stats().group_wakes;
    assert_eq!((after[0] - before[0], after[2] - before[2]), (1, 0));
}

#[test]
fn dead_bytes_are_right_after_more_than_one_page_of_them() {
    let mut world = world_of("nas8", 27, |_| {});
    let blobs = with_blobs(&mut world, 300, 10 * MB);
    let living = one_blob_each(&mut world);
    for blob in &blobs {
        if !living.contains(blob) {
            world.mark_dead(*blob, 10 * MB);
        }
    }
    world.read(living[0], MB).unwrap();
    world.read(living[1], MB).unwrap();
    world.run_for(60 * MINUTE);
    assert!(world.blobs.iter().count() <= 14, "{}", world.blobs.iter().count());
    assert_eq!([0, 1].map(|group| world.rack.dead_bytes(GroupId(group))), [0, 0]);
}

/// Fills the box; returns the blobs of each group.
fn filled(world: &mut World) -> [Vec<BlobId>; 2] {
    let blob = world.rack.spec().profile.capacity_bytes / 4;
    loop {
        world.write(blob, PinnedTo::Anywhere);
        world.run_for(2000 * MINUTE);
        match world.take_ended().pop().unwrap().outcome {
            Outcome::Written { .. } => {}
            Outcome::Failed(Rejection::NoRoom) => break,
            other => panic!("{other:?}"),
        }
    }
    [0, 1].map(|group| world.blobs.iter().filter(|(_, g)| *g == GroupId(group)).map(|(blob, _)| blob).collect())
}

#[test]
fn room_is_made_on_a_group_that_is_awake_already() {
    let mut world = world_of("nas8", 28, |policy| policy.idle_timeout = IdleTimeout::Never);
    let blob = world.rack.spec().profile.capacity_bytes / 4;
    let [of_0, of_1] = filled(&mut world);
    let awake = if world.rack.group_state(GroupId(0)) == GroupState::Idle { &of_0 } else { &of_1 };
    world.mark_dead(awake[0], blob);
    world.write(blob, PinnedTo::Anywhere);
    world.run_for(60 * MINUTE);
    world.take_ended();
    let op = world.write(blob, PinnedTo::Anywhere);
    world.run_for(2000 * MINUTE);
    assert!(matches!(outcome_of(&mut world, op), Some(Outcome::Written { .. })));
}

#[test]
fn room_is_made_where_some_can_be_made() {
    let mut world = world_of("nas8", 29, |policy| policy.evacuate_permille = 1000);
    let blob = world.rack.spec().profile.capacity_bytes / 4;
    let [of_0, of_1] = filled(&mut world);
    for partly in &of_0 {
        world.mark_dead(*partly, blob / 2);
    }
    world.mark_dead(of_1[0], blob);
    let mut written = false;
    for _ in 0..5 {
        let op = world.write(blob, PinnedTo::Anywhere);
        world.run_for(2000 * MINUTE);
        written |= matches!(outcome_of(&mut world, op), Some(Outcome::Written { .. }));
    }
    assert!(written, "one blob of the other group can go");
}

#[test]
fn a_client_of_another_group_does_not_wait_for_all_that_is_dead() {
    let spec = model::text::parse(&shipped_text("nas8").replace("8.5 ms", "200 ms"), "nas8").unwrap();
    let mut policy = policy(&spec);
    policy.scheduler.quantum = Duration::from_secs(2);
    let mut world = judged(spec, policy, 30, Vec::new());
    let blobs = with_blobs(&mut world, 900, MB);
    let living = one_blob_each(&mut world);
    for blob in &blobs {
        if !living.contains(blob) {
            world.mark_dead(*blob, MB);
        }
    }
    world.read(living[0], MB).unwrap();
    world.run_for(Duration::from_secs(1));
    let op = world.read(living[1], MB).unwrap();
    let before = world.now();
    world.run_for(60 * MINUTE);
    let at = world.take_ended().into_iter().find(|ended| ended.op == op).unwrap().at;
    let waited = at.since(before);
    println!("{waited:?}");
    assert!(waited < Duration::from_secs(50), "{waited:?}");
}

#[test]
fn a_wait_is_not_longer_than_forecast() {
    let mut world = world_of("nas8", 31, |policy| policy.scheduler.overtake_limit = 0);
    let blobs = one_blob_each(&mut world);
    world.read(blobs[0], 10 * MB).unwrap();
    world.run_for(MINUTE);
    world.take_ended();
    // Group 0 is awake and serves; then one client wants group 1, and another one group 0 again.
    world.read(blobs[0], 10 * MB).unwrap();
    world.read(blobs[1], 10 * MB).unwrap();
    let forecast = world.rack.forecast(GroupId(0), world.now());
    let op = world.read(blobs[0], MB).unwrap();
    let before = world.now();
    world.run_for(10 * MINUTE);
    let waited = world.take_ended().into_iter().find(|ended| ended.op == op).unwrap().at.since(before);
    println!("{forecast:?} {waited:?}");
    assert!(
        forecast.min <= waited && waited <= forecast.max + Duration::from_secs(3),
        "{forecast:?}, and it took {waited:?}"
    );
}

#[test]
fn extreme_shares_forecast_something() {
    let mut world = world_of("nas8", 33, |policy| {
        policy.scheduler.shares = Shares { client: 1, rebuild: u32::MAX, background: u32::MAX };
    });
    let blobs = one_blob_each(&mut world);
    for blob in blobs {
        world.read_for(engine::PriorityClass::Background, blob, MB).unwrap();
        world.read_for(engine::PriorityClass::Rebuild, blob, MB).unwrap();
        world.read_for(engine::PriorityClass::Background, blob, MB).unwrap();
        world.read_for(engine::PriorityClass::Rebuild, blob, MB).unwrap();
    }
    let forecast = world.rack.forecast(GroupId(0), world.now());
    assert!(forecast.min <= forecast.max);
}

#[test]
fn a_group_whose_drives_once_did_not_answer_is_read_again() {
    let mut world = world_of("nas8", 32, |_| {});
    let blobs = one_blob_each(&mut world);
    world.read(blobs[0], MB).unwrap();
    world.run_for(MINUTE);
    world.set_faults(Faults { mute_permille: 1000, ..Faults::default() });
    world.run_for(20 * MINUTE);
    world.set_faults(Faults::default());
    world.take_ended();
    let mut read = false;
    for _ in 0..5 {
        let op = world.read(blobs[0], MB).unwrap();
        world.run_for(20 * MINUTE);
        let outcome = outcome_of(&mut world, op);
        println!("{outcome:?}");
        read |= outcome == Some(Outcome::Read);
    }
    assert!(read);
}

#[test]
fn writes_wear_no_drives_down_that_get_no_permit() {
    let mut world = world_of("nas8", 34, |_| {});
    let blobs = one_blob_each(&mut world);
    world.read(blobs[0], MB).unwrap();
    world.run_for(MINUTE);
    for drive in &world.rack.layout().groups[0].drives.clone()[..2] {
        world.kill(*drive);
    }
    let before = world.rack.stats().drive_starts;
    world.set_staging(10_000 * MB);
    world.stage(1, 200 * MB, PinnedTo::Anywhere);
    world.run_for(12 * 60 * MINUTE);
    let starts = world.rack.stats().drive_starts - before;
    assert!(starts <= 4, "two of four permits are left, and a blob needs three: {starts} starts");
    for drive in 0..8 {
        world.revive(DriveId(drive));
    }
    world.run_for(60 * MINUTE);
    assert!(world.staging.versions().is_empty(), "and when they are there again it is written");
}
