//! Drives that spin without a permit to start: they count against every budget, and are stopped.

use super::*;
use engine::{DrivePhase, Event};

fn standing_by(world: &World) -> usize {
    let drives = world.rack.spec().drives.iter();
    drives.filter(|drive| world.rack.drive_phase(drive.id) == DrivePhase::Standby).count()
}

#[test]
fn a_drive_that_another_program_woke_is_booked_and_stopped() {
    let mut world = world_of("nas8", 91, |_| {});
    with_blobs(&mut world, 1, MB);
    let (before, starts) = (world.rack.ledger().watts_mw(), world.rack.stats().drive_starts);
    world.wake_by_others(DriveId(5));
    assert_eq!(world.rack.ledger().active_drives(), 1);
    assert!(world.rack.ledger().watts_mw() > before);
    world.run_for(MINUTE);
    assert_eq!((world.rack.ledger().active_drives(), world.rack.ledger().watts_mw()), (0, before));
    assert_eq!((standing_by(&world), world.rack.stats().drive_starts), (8, starts));
}

/// The box of eight with a supply that carries one start at a time.
fn box_that_starts_one_at_a_time() -> RackSpec {
    let mut draft = model::RackDraft::clone(&shipped("nas8"));
    let limit = model::DomainLimit::StartingDrives(1);
    draft.resources.push(model::Resource { name: "starts".to_owned(), limit, hard: true });
    draft.drives.iter_mut().for_each(|drive| drive.resource_domains.push(model::DomainId(0)));
    RackSpec::validated(draft).unwrap()
}

#[test]
fn no_drive_starts_beside_one_that_another_program_has_just_started() {
    let spec = box_that_starts_one_at_a_time();
    let policy = policy(&spec);
    let mut world = judged(spec, policy, 96, Vec::new());
    let blob = with_blobs(&mut world, 1, MB)[0];
    world.run_for(60 * MINUTE);
    let (other, drives) = (DriveId(5), world.blobs.drives_of(blob).to_vec());
    let starts = world.rack.stats().drive_starts;
    world.wake_by_others(other);
    world.read(blob, MB).unwrap();
    assert_eq!(
        (world.counted().trips, world.rack.stats().drive_starts),
        (0, starts),
        "the start of {other} is not over"
    );
    world.run_for(5 * MINUTE);
    assert_eq!(world.counted().trips, 0);
    assert!(drives.iter().all(|drive| world.rack.drive_phase(*drive) == DrivePhase::Ready));
}

#[test]
fn a_drive_that_was_found_spinning_and_never_stops_counts_as_starting_no_longer_than_a_start_takes() {
    let spec = box_that_starts_one_at_a_time();
    let longest = spec.profile.spin_up.longest();
    let policy = policy(&spec);
    let mut world = judged(spec, policy, 97, Vec::new());
    let blob = with_blobs(&mut world, 1, MB)[0];
    world.run_for(60 * MINUTE);
    let in_use = world.blobs.drives_of(blob).to_vec();
    let layout = world.rack.layout();
    let group = layout.group_of(in_use[0]);
    let other = (0..8).map(DriveId).find(|drive| layout.group_of(*drive) != group).unwrap();
    world.hang(other);
    world.wake_by_others(other);
    let starts = world.rack.stats().drive_starts;
    world.read(blob, MB).unwrap();
    world.run_for(longest + Duration::from_secs(1));
    assert_eq!(world.rack.stats().drive_starts, starts + 1);
    world.run_for(10 * MINUTE);
    assert_eq!(world.counted().trips, 0);
    assert_eq!(world.take_ended().last().unwrap().outcome, Outcome::Read);
}

#[test]
fn a_group_some_of_which_spins_wakes_as_a_whole_when_it_stands_still() {
    let mut world = world_of("nas8", 92, |_| {});
    let blob = with_blobs(&mut world, 1, 100 * MB)[0];
    let drives = world.blobs.drives_of(blob).to_vec();
    for drive in &drives[..2] {
        world.wake_by_others(*drive);
    }
    world.read(blob, 100 * MB).unwrap();
    world.run_for(2 * MINUTE);
    assert_eq!(world.take_ended()[0].outcome, Outcome::Read);
    assert!(drives.iter().all(|drive| world.rack.drive_phase(*drive) == DrivePhase::Ready));
}

#[test]
fn a_drive_that_will_not_stop_keeps_its_permits_and_is_named() {
    let mut world = world_of("nas8", 93, |_| {});
    let blob = with_blobs(&mut world, 1, 100 * MB)[0];
    let drives = world.blobs.drives_of(blob).to_vec();
    let other = (0..8).map(DriveId).find(|drive| {
        let layout = world.rack.layout();
        layout.group_of(*drive) != layout.group_of(drives[0])
    });
    let other = other.unwrap();
    world.hang(other);
    world.wake_by_others(other);
    world.run_for(MINUTE);
    let named: Vec<_> = world.rack.unstopped().map(|(drive, _, _, used, limit)| (drive, used, limit)).collect();
    assert_eq!(named, [(other, 1, 4)], "one of four drives that the supply carries");
    world.read(blob, MB).unwrap();
    world.run_for(MINUTE);
    assert_eq!(world.take_ended()[0].outcome, Outcome::Read, "three drives of the group are enough");
    assert_eq!(world.rack.ledger().active_drives(), 4);
    // When it answers again, it is stopped, and no longer blocks anything.
    world.run_for(60 * MINUTE);
    assert_eq!((world.rack.unstopped().count(), standing_by(&world)), (0, 8));
}

#[test]
fn more_drives_than_a_limit_allows_are_booked_and_nothing_starts_before_they_stop() {
    let spec = shipped("nas8");
    let layout = engine::layout::synthesise(&spec).unwrap();
    let mut rack = Rack::new(spec.clone(), layout.clone(), policy(&spec), 94);
    let mut judge = TraceCheck::new(&spec, &layout, &policy(&spec));
    let mut apply = |event: Event| {
        let mut actions = Vec::new();
        judge.event(Time::ZERO, &event).unwrap();
        rack.apply(Time::ZERO, event, &mut actions);
        for action in &actions {
            judge.action(action).unwrap();
        }
        (actions, rack.ledger().active_drives())
    };
    for drive in &spec.drives {
        let (capacity_bytes, used_bytes) = (spec.capacity_bytes(drive.id), 0);
        apply(Event::DriveReported(engine::DriveReport {
            drive: drive.id,
            capacity_bytes,
            used_bytes,
            day: 0,
            starts: 0,
            present: true,
            initialised: false,
        }));
    }
    for drive in &spec.drives {
        let (actions, _) = apply(Event::DriveSpins { drive: drive.id });
        assert!(matches!(actions[..], [engine::Action::Unmount { .. }]), "{actions:?}");
    }
    let (actions, active) = apply(Event::Booted);
    assert_eq!(active, 8, "twice as many as the supply carries");
    assert!(!actions.iter().any(|action| matches!(action, engine::Action::SpinUp { .. })), "{actions:?}");
}

#[test]
fn a_drive_that_was_given_up_turns_and_is_lost_counts_as_pulled_only_if_the_operator_gave_it_up() {
    let spec = shipped("nas8");
    let layout = engine::layout::synthesise(&spec).unwrap();
    for by_the_rack in [false, true] {
        // A retry makes no difference.
        for tries_given_up in [false, true] {
            let policy = RackPolicy { tries_given_up, ..policy(&spec) };
            let mut rack = Rack::new(spec.clone(), layout.clone(), policy, 95);
            let mut apply = |event: Event| {
                rack.apply(Time::ZERO, event, &mut Vec::new());
                rack.ledger().active_drives()
            };
            let drive = DriveId(3);
            apply(Event::DriveFailed { drive, pulled: true });
            if by_the_rack {
                apply(Event::DriveMayReturn { drive });
            }
            apply(Event::Booted);
            assert_eq!(apply(Event::DriveSpins { drive }), 1, "it takes its share");
            let held = apply(Event::DriveLost { drive, loss: engine::Loss::Died });
            assert_eq!(held, usize::from(by_the_rack), "nobody said that it was pulled: it may turn on");
        }
    }
}
