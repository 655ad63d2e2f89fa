//! What the baselines decide, on racks small enough to follow by hand.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::action::Action;
use crate::event::{Event, Request, Work};
use crate::mind::Mind;
use crate::policy::{Lane, ReadPolicy};
use alloc::vec::Vec;
use model::{BlobId, DriveId, OpId, Rng, Time};

fn pelican() -> RackSpec {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
    model::text::parse(text, "pelican").unwrap()
}

fn read(mind: &mut RandomLayout, op: u64, drives: Vec<DriveId>) -> Vec<Action> {
    let work = Work::Read { blob: BlobId(op), group: GroupId(0), drives, bytes: 1 };
    let request = Request { op: OpId(op), lane: Lane::Client, overtake_limit: None, work };
    let mut actions = Vec::new();
    mind.apply(Time::ZERO, Event::Submitted(request), &mut actions);
    actions
}

#[test]
fn fully_provisioned_racks_have_a_class_for_each_group_and_nothing_to_trip() {
    let spec = pelican();
    let layout = crate::layout::synthesise(&spec).unwrap();
    let (free, layout) = fully_provisioned(&spec, &layout).unwrap();
    assert_eq!((layout.groups.len(), layout.classes.len()), (48, 48));
    assert!(free.resources.iter().all(|resource| !resource.hard));
    assert!(crate::check::layout(&free, &layout).is_ok());
}

#[test]
fn a_random_blob_lies_on_drives_that_may_all_spin_at_once() {
    let spec = pelican();
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        let drives = random_stacks(&spec, &mut rng).unwrap();
        assert_eq!(drives.len(), 18);
        let mut mind = RandomLayout::new(spec.clone(), 10, ReadPolicy::All);
        let started = read(&mut mind, 1, drives);
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
        let mut mind = RandomLayout::new(spec.clone(), 10, ReadPolicy::All);
        read(&mut mind, 1, first.clone());
        if !read(&mut mind, 2, drives.clone()).is_empty() {
            break drives;
        }
    };
    let mut mind = RandomLayout::new(spec, 10, ReadPolicy::All);
    assert!(!read(&mut mind, 1, first.clone()).is_empty());
    assert!(read(&mut mind, 2, first).is_empty(), "the same drives are taken");
    assert!(read(&mut mind, 3, apart).is_empty(), "and what would fit waits its turn");
}

#[test]
fn most_pairs_of_random_blobs_collide() {
    // (1 - 18/96)^18 by the columns alone: about one pair in fifty does not.
    let spec = pelican();
    let mut rng = Rng::new(3);
    let together = (0..500).filter(|_| {
        let mut mind = RandomLayout::new(spec.clone(), 10, ReadPolicy::All);
        let mut draw = || random_stacks(&spec, &mut rng).unwrap();
        read(&mut mind, 1, draw());
        !read(&mut mind, 2, draw()).is_empty()
    });
    assert!(together.count() < 25);
}
