//! Decisions of the baselines, on racks small enough to follow by hand.
#![allow(clippy::unwrap_used)]
use super::*;
use engine::{Action, Controller, Event, Loss, PriorityClass, ReadPolicy, Request, Work};
use model::{BlobId, DriveId, OpId, Rng, Time};

fn pelican() -> RackSpec {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
    model::text::parse(text, "pelican").unwrap()
}

fn read(controller: &mut RandomLayout, op: u64, drives: Vec<DriveId>) -> Vec<Action> {
    let work = Work::Read { blob: BlobId::numbered(op), group: GroupId(0), drives: drives.into(), bytes: 1 };
    let request = Request { op: OpId(op), priority: PriorityClass::Client, overtake_limit: None, work };
    let mut actions = Vec::new();
    controller.apply(Time::ZERO, Event::Submitted(Box::new(request)), &mut actions);
    actions
}

#[test]
fn fully_provisioned_racks_have_a_class_for_each_group_and_nothing_to_trip() {
    let spec = pelican();
    let layout = engine::layout::synthesise(&spec).unwrap();
    let (free, layout) = fully_provisioned(&spec, &layout).unwrap();
    assert_eq!((layout.groups.len(), layout.classes.len()), (48, 48));
    assert!(free.resources.iter().all(|resource| !resource.hard));
    assert!(engine::check::layout(&free, &layout).is_ok());
}

#[test]
fn a_random_blob_lies_on_drives_that_may_all_spin_at_once() {
    let spec = pelican();
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        let drives = random_stacks(&spec, &mut rng).unwrap();
        assert_eq!(drives.len(), 18);
        let mut controller = RandomLayout::new(spec.clone(), 10, ReadPolicy::All);
        let started = read(&mut controller, 1, drives);
        assert_eq!(started.iter().filter(|action| matches!(action, Action::SpinUp { .. })).count(), 18);
    }
}

#[test]
fn a_request_whose_drives_do_not_fit_holds_back_everything_behind_it() {
    let spec = pelican();
    let mut rng = Rng::new(2);
    let first = random_stacks(&spec, &mut rng).unwrap();
    let apart = loop {
        let drives = random_stacks(&spec, &mut rng).unwrap();
        let mut controller = RandomLayout::new(spec.clone(), 10, ReadPolicy::All);
        read(&mut controller, 1, first.clone());
        if !read(&mut controller, 2, drives.clone()).is_empty() {
            break drives;
        }
    };
    let mut controller = RandomLayout::new(spec, 10, ReadPolicy::All);
    assert!(!read(&mut controller, 1, first.clone()).is_empty());
    assert!(read(&mut controller, 2, first).is_empty(), "the same drives are taken");
    assert!(read(&mut controller, 3, apart).is_empty(), "and what would fit waits its turn");
}

/// A rack of random layout, and the drives of a blob.
fn with_a_blob() -> (RandomLayout, Vec<DriveId>) {
    let spec = pelican();
    let drives = random_stacks(&spec, &mut Rng::new(4)).unwrap();
    (RandomLayout::new(spec, 10, ReadPolicy::All), drives)
}

fn notify(controller: &mut RandomLayout, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    controller.apply(Time::ZERO, event, &mut actions);
    actions
}

/// Everything that is started starts and mounts; returns the actions that remain in the end.
fn wake_all(controller: &mut RandomLayout, mut actions: Vec<Action>) -> Vec<Action> {
    loop {
        let answer = |action: &Action| match *action {
            Action::SpinUp { drive, attempt } => Some(Event::SpunUp { drive, attempt }),
            Action::Mount { drive, attempt } => Some(Event::Mounted { drive, attempt, free_bytes: 0 }),
            Action::Unmount { drive, attempt } => Some(Event::Unmounted { drive, attempt }),
            Action::Stop { drive, attempt } => Some(Event::Stopped { drive, attempt }),
            _ => None,
        };
        let answers: Vec<Event> = actions.iter().filter_map(answer).collect();
        if answers.is_empty() {
            return actions;
        }
        actions.retain(|action| answer(action).is_none());
        for event in answers {
            actions.extend(notify(controller, event));
        }
    }
}

fn stacks_read(actions: &[Action]) -> Option<usize> {
    actions.iter().find_map(|action| match action {
        Action::Transfer { transfer: engine::Transfer::Read { stacks, .. }, .. } => Some(stacks.len()),
        _ => None,
    })
}

#[test]
fn a_read_does_without_drives_that_are_lost_until_too_few_are_left() {
    for (lost, read_of) in [(0, Some(18)), (1, Some(17)), (3, Some(15)), (4, None)] {
        let (mut controller, drives) = with_a_blob();
        for drive in drives.iter().take(lost) {
            notify(&mut controller, Event::DriveLost { drive: *drive, loss: Loss::Died });
        }
        let asked = read(&mut controller, 1, drives.clone());
        let asked = wake_all(&mut controller, asked);
        assert_eq!(stacks_read(&asked), read_of, "{lost} lost");
        let refused = asked.iter().any(|action| matches!(action, Action::Finished { .. }));
        assert_eq!(refused, read_of.is_none());
    }
}

#[test]
fn drives_behind_a_tripped_fuse_give_their_permits_back_and_are_woken_when_it_resets() {
    let (mut controller, drives) = with_a_blob();
    let asked = read(&mut controller, 1, drives.clone());
    assert_eq!(stacks_read(&wake_all(&mut controller, asked)), Some(18));
    for drive in &drives {
        notify(&mut controller, Event::DriveLost { drive: *drive, loss: Loss::FuseTripped });
    }
    notify(
        &mut controller,
        Event::TransferEnded { op: OpId(1), attempt: model::Attempt(1), done: false, outcomes: vec![] },
    );
    let refused = read(&mut controller, 2, drives.clone());
    assert!(matches!(refused[..], [Action::Finished { .. }]), "no drive of it is there");
    for drive in drives.iter().chain(&drives) {
        notify(&mut controller, Event::DriveBack { drive: *drive });
    }
    let asked = read(&mut controller, 3, drives);
    assert_eq!(stacks_read(&wake_all(&mut controller, asked)), Some(18));
}

#[test]
fn a_dead_drive_that_may_still_turn_keeps_its_column_from_others_until_it_is_back() {
    let (mut controller, drives) = with_a_blob();
    let asked = read(&mut controller, 1, drives.clone());
    wake_all(&mut controller, asked);
    notify(
        &mut controller,
        Event::TransferEnded { op: OpId(1), attempt: model::Attempt(1), done: true, outcomes: vec![] },
    );
    notify(&mut controller, Event::DriveLost { drive: drives[0], loss: Loss::Died });
    // Another drive of the dead one's column, in place of it.
    let spec = pelican();
    let [width, depth, height] = spec.drive(drives[0]).slot;
    let below = spec.drives.iter().find(|d| d.slot == [width, depth, (height + 1) % 12]).unwrap().id;
    let mut moved = drives.clone();
    moved[0] = below;
    let asked = read(&mut controller, 2, moved.clone());
    assert_eq!(stacks_read(&wake_all(&mut controller, asked)), Some(17), "it is not waited for");
    notify(
        &mut controller,
        Event::TransferEnded { op: OpId(2), attempt: model::Attempt(1), done: true, outcomes: vec![] },
    );
    notify(&mut controller, Event::DriveBack { drive: drives[0] });
    let asked = read(&mut controller, 3, moved);
    assert_eq!(stacks_read(&wake_all(&mut controller, asked)), Some(18));
}

#[test]
fn a_drive_that_fails_to_start_is_tried_three_times_and_then_done_without() {
    let (mut controller, drives) = with_a_blob();
    let mut asked = read(&mut controller, 1, drives.clone());
    for _ in 0..3 {
        let start = |action: &Action| match action {
            Action::SpinUp { drive, attempt } if *drive == drives[0] => Some(*attempt),
            _ => None,
        };
        let attempt = asked.iter().find_map(start).unwrap();
        asked.retain(|action| start(action).is_none());
        asked.extend(notify(
            &mut controller,
            Event::DriveCommandFailed { drive: drives[0], attempt, loss: Loss::SpinUpFailed },
        ));
        let stop = |action: &Action| matches!(action, Action::Stop { .. });
        let stopped = asked.iter().position(stop).map(|at| asked.remove(at)).unwrap();
        let Action::Stop { drive, attempt } = stopped else { unreachable!("found as a stop") };
        asked.extend(notify(&mut controller, Event::Stopped { drive, attempt }));
    }
    assert_eq!(stacks_read(&wake_all(&mut controller, asked)), Some(17));
}

#[test]
fn most_pairs_of_random_blobs_collide() {
    // (1 - 18/96)^18 by the columns alone: about one pair in fifty does not.
    let spec = pelican();
    let mut rng = Rng::new(3);
    let together = (0..500).filter(|_| {
        let mut controller = RandomLayout::new(spec.clone(), 10, ReadPolicy::All);
        let mut draw = || random_stacks(&spec, &mut rng).unwrap();
        read(&mut controller, 1, draw());
        !read(&mut controller, 2, draw()).is_empty()
    });
    assert!(together.count() < 25);
}
