//! Every kind of fault, planted, is found.

#![allow(clippy::unwrap_used)]

mod placement;
mod shortfalls;

pub(crate) use shortfalls::{Shortfall, shortfalls};

use super::*;
use crate::layout::{Group, synthesise};
use crate::placement::{Placement, Wanted};
use alloc::string::ToString;
use model::Rng;
use placement::{PlacementFault, blob_placement};

fn shipped(name: &str) -> RackSpec {
    let text = model::text::SHIPPED.iter().find(|(n, _)| *n == name).unwrap().1;
    model::text::parse(text, name).unwrap()
}

/// The violations after `plant` has broken the layout of pelican-mini.
fn found(plant: impl FnOnce(&mut Layout)) -> Vec<Violation> {
    let spec = shipped("pelican-mini");
    let mut broken = synthesise(&spec).unwrap();
    plant(&mut broken);
    layout(&spec, &broken).unwrap_err()
}

#[test]
fn the_shipped_racks_have_layouts_without_any_shortfall() {
    for (name, _) in model::text::SHIPPED {
        let spec = shipped(name);
        assert_eq!(shortfalls(&spec, &synthesise(&spec).unwrap()), [], "{name}");
    }
}

#[test]
fn lost_doubled_and_foreign_drives_are_found() {
    let first = |l: &mut Layout| l.groups[0].drives[0];
    let mut drive = DriveId(0);
    let missing = found(|l| {
        drive = first(l);
        l.groups[0].drives[0] = DriveId(9999);
    });
    assert_eq!(missing, [Violation::UnknownDrive(DriveId(9999)), Violation::DriveMissing(drive)]);
    let twice = found(|l| {
        drive = first(l);
        l.spares.push(drive);
    });
    assert_eq!(twice, [Violation::DriveTwice(drive)]);
}

#[test]
fn groups_of_the_wrong_size_are_found() {
    let violations = found(|l| {
        let drive = l.groups[3].drives.pop().unwrap();
        l.spares.push(drive);
    });
    assert_eq!(violations, [Violation::GroupSize { group: GroupId(3), drives: 7 }]);
}

#[test]
fn a_table_of_classes_that_lies_is_found() {
    let group = GroupId(0);
    assert_eq!(found(|l| l.classes[0].retain(|g| *g != group)), [Violation::ClassTable(group)]);
    assert_eq!(found(|l| l.classes[0].push(GroupId(0))), [Violation::ClassTable(group)]);
    let violations = found(|l| l.groups[0].class = ClassId(1));
    assert_eq!(violations, [Violation::ClassTable(group), Violation::ClassTable(group)]);
    assert_eq!(found(|l| l.classes.push(vec![])), [Violation::EmptyClass(ClassId(2))]);
    assert_eq!(found(|l| l.classes[1].push(GroupId(77))), [Violation::UnknownGroup(GroupId(77))]);
}

#[test]
fn drives_that_conflict_inside_a_group_are_found() {
    let spec = shipped("pelican-mini");
    let cooling = ResourceId(1);
    let violations = found(|l| {
        // Exchange a drive of group 0 for one of group 1 that is in a column group 0 has a drive in already.
        let column = spec.domain_of(l.groups[0].drives[1], cooling);
        let place = l.groups[1].drives.iter().position(|d| spec.domain_of(*d, cooling) == column).unwrap();
        let (a, b) = (l.groups[0].drives[0], l.groups[1].drives[place]);
        (l.groups[0].drives[0], l.groups[1].drives[place]) = (b, a);
    });
    let conflict =
        |v: &Violation| matches!(v, Violation::Conflict { group: GroupId(0), resource, .. } if *resource == cooling);
    assert!(violations.iter().any(conflict), "{violations:?}");
}

#[test]
fn a_choice_of_groups_that_breaks_a_hard_limit_is_found() {
    let split = |l: &mut Layout| {
        let group = l.classes[0].pop().unwrap();
        l.groups[group.index()].class = ClassId(2);
        l.classes.push(vec![group]);
    };
    let violations = found(split);
    let cooling = |v: &Violation| matches!(v, Violation::HardLimit { resource: ResourceId(1), worst: 2, limit: 1, .. });
    assert_eq!(violations.iter().filter(|v| cooling(v)).count(), 8, "one for each column of the class: {violations:?}");
    assert_eq!(violations[0].to_string(), "dom0 of r1 carries 1, and some choice of groups takes 2");
}

#[test]
fn watts_are_judged_with_every_drive_spinning_up() {
    let mut draft = (*shipped("nas8")).clone();
    // Four spinning up and four asleep: 4 x 24 + 4 x 0.8 = 99.2 W.
    draft.resources[0].limit = DomainLimit::Watts(100);
    let spec = RackSpec::validated(draft.clone()).unwrap();
    let made = synthesise(&spec).unwrap();
    assert_eq!(shortfalls(&spec, &made), []);
    draft.resources[0].limit = DomainLimit::Watts(99);
    let tighter = RackSpec::validated(draft).unwrap();
    let expected = Violation::HardLimit { resource: ResourceId(0), domain: DomainId(0), worst: 99_200, limit: 99_000 };
    assert_eq!(layout(&tighter, &made), Err(vec![expected]));
    assert!(synthesise(&tighter).is_err());
}

#[test]
fn broken_soft_limits_are_told() {
    let mut draft = (*shipped("nas8")).clone();
    draft.resources[1].limit = DomainLimit::ActiveDrives(1);
    let spec = RackSpec::validated(draft).unwrap();
    let shortfalls = shortfalls(&spec, &synthesise(&spec).unwrap());
    let soft = |domain| Shortfall::SoftLimit { resource: ResourceId(1), domain: DomainId(domain), worst: 2, limit: 1 };
    assert_eq!(shortfalls, [soft(0), soft(1)]);
}

#[test]
fn groups_kept_in_one_class_for_nothing_are_told() {
    let mut draft = (*shipped("nas8")).clone();
    draft.resources[0].limit = DomainLimit::ActiveDrives(8);
    let free = RackSpec::validated(draft).unwrap();
    let made = synthesise(&shipped("nas8")).unwrap();
    let pair = [GroupId(0), GroupId(1)];
    assert_eq!(shortfalls(&free, &made), [Shortfall::NoCollision { class: ClassId(0), groups: pair }]);
    let mut draft = (*shipped("nas8")).clone();
    draft.resources[1] = Resource { limit: DomainLimit::ActiveDrives(3), hard: true, ..draft.resources[1].clone() };
    draft.resources[0].limit = DomainLimit::ActiveDrives(8);
    draft.drives.iter_mut().for_each(|d| d.resource_domains[1] = DomainId(u32::from(d.id.0 >= 5)));
    let partly = RackSpec::validated(draft).unwrap();
    assert_eq!(shortfalls(&partly, &made), [Shortfall::PartialCollision { class: ClassId(0), groups: pair }]);
}

#[test]
fn groups_that_a_chassis_could_take_down_are_told() {
    let mut draft = (*shipped("nas8")).clone();
    draft.failure_domains[1].loses_media = true;
    let spec = RackSpec::validated(draft).unwrap();
    let shortfalls = shortfalls(&spec, &synthesise(&spec).unwrap());
    let short = |group| Shortfall::Spread { group: GroupId(group), kind: 1, domains_allow: false };
    assert_eq!(shortfalls, [short(0), short(1)], "three stacks in two cages: one cage has two, and r is 1");
}

/// The first k + r drives of group 0 of pelican-mini that keep every failure domain.
fn placed(spec: &RackSpec, layout: &Layout) -> Vec<DriveId> {
    let chassis = 2;
    let mut chosen: Vec<DriveId> = Vec::new();
    for drive in &layout.groups[0].drives {
        let domain = spec.drive(*drive).failure_domains[chassis];
        let there = chosen.iter().filter(|d| spec.drive(**d).failure_domains[chassis] == domain).count();
        if there < 2 && chosen.len() < 6 {
            chosen.push(*drive);
        }
    }
    chosen
}

#[test]
fn what_placement_chooses_in_the_shipped_racks_has_no_fault() {
    for (name, _) in model::text::SHIPPED {
        let spec = shipped(name);
        let layout = synthesise(&spec).unwrap();
        let groups: Vec<Vec<DriveId>> = layout.groups.iter().map(|group| group.drives.clone()).collect();
        let class_of: Vec<ClassId> = layout.groups.iter().map(|group| group.class).collect();
        let mut placement = Placement::new(&spec, &groups, &class_of);
        let mut rng = Rng::new(1);
        for bytes in (1..100).map(|count| count << 30) {
            let (group, drives) = placement.choose(&Wanted::anywhere(bytes, bytes), &mut rng).unwrap();
            assert_eq!(blob_placement(&spec, &layout, group, &drives), Ok(()), "{name}");
        }
    }
}

#[test]
fn wrong_placements_are_found() {
    let spec = shipped("pelican-mini");
    let layout = synthesise(&spec).unwrap();
    let good = placed(&spec, &layout);
    let judge = |drives: &[DriveId]| blob_placement(&spec, &layout, GroupId(0), drives);
    assert_eq!(judge(&good), Ok(()));
    let unknown = blob_placement(&spec, &layout, GroupId(99), &good);
    assert_eq!(unknown, Err(vec![PlacementFault::UnknownGroup(GroupId(99))]));
    assert_eq!(judge(&good[1..]), Err(vec![PlacementFault::Count { drives: 5, stacks: 6 }]));
    let foreign = layout.groups[1].drives[0];
    let with = |drive| [&good[1..], &[drive]].concat();
    assert_eq!(judge(&with(foreign)), Err(vec![PlacementFault::NotInGroup(foreign)]));
    assert_eq!(judge(&with(good[1])), Err(vec![PlacementFault::Twice(good[1])]));
}

#[test]
fn a_crowded_chassis_is_a_fault_only_where_it_need_not_be() {
    let mut draft = (*shipped("pelican-mini")).clone();
    // Heights 0 to 2 are one chassis, the others one each.
    draft.drives.iter_mut().for_each(|d| d.failure_domains[2] = DomainId(u32::from(d.slot[2].saturating_sub(2))));
    let spec = RackSpec::validated(draft.clone()).unwrap();
    let mut made = synthesise(&spec).unwrap();
    let at = |spec: &RackSpec, domain: u32, count: usize| -> Vec<DriveId> {
        spec.drives.iter().filter(|d| d.failure_domains[2] == DomainId(domain)).map(|d| d.id).take(count).collect()
    };
    let members = [at(&spec, 0, 3), at(&spec, 1, 2), at(&spec, 2, 2), at(&spec, 3, 1)].concat();
    made.groups[0] = Group { drives: members.clone(), class: ClassId(0) };
    let crowded = [&members[..5], &members[7..]].concat();
    let fault = PlacementFault::Spread { kind: 2, domain: DomainId(0), stacks: 3 };
    assert!(blob_placement(&spec, &made, GroupId(0), &crowded).unwrap_err().contains(&fault));
    draft.failure_domains[2].loses_media = false;
    let harmless = RackSpec::validated(draft).unwrap();
    let faults = blob_placement(&harmless, &made, GroupId(0), &crowded);
    assert!(!faults.is_err_and(|f| f.contains(&fault)), "a domain that loses no media is not judged");
}
