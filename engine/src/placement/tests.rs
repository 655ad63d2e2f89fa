//! Placement against brute force on small racks, and the paper's fill-up on its geometry.

#![allow(clippy::unwrap_used)]

use super::{Placement, Wanted};
use crate::policy::{GroupChoice, PinnedTo};
use alloc::vec;
use alloc::vec::Vec;
use model::{ClassId, Code, DomainId, DriveId, DriveSpec, FailureDomains, GroupId, RackDraft, RackSpec, Rng};
use proptest::prelude::*;

fn draft(code: (u8, u8), capacities: &[u64], kinds: &[Vec<u32>]) -> RackDraft {
    let box_of_eight = model::text::parse(include_str!("../../../racks/nas8.toml"), "nas8.toml").unwrap();
    let mut draft = RackDraft::clone(&box_of_eight);
    draft.code = Code { data: code.0, parity: code.1, fragment_bytes: 4096 };
    draft.group_drives = u32::from(code.0) + u32::from(code.1);
    draft.resources.clear();
    let kind = |i| FailureDomains { name: std::format!("kind-{i}"), loses_media: true };
    draft.failure_domains = (0..kinds.len()).map(kind).collect();
    let drive = |(i, capacity): (usize, &u64)| DriveSpec {
        id: DriveId(i as u32),
        slot: [i as u16, 0, 0],
        resource_domains: Vec::new(),
        failure_domains: kinds.iter().map(|domain_of| DomainId(domain_of[i])).collect(),
        capacity_bytes: Some(*capacity),
        bytes_per_s: None,
        path: None,
        power: model::DrivePower::Own,
    };
    draft.drives = capacities.iter().enumerate().map(drive).collect();
    draft
}

/// Consecutive domain numbers, as a rack requires them.
fn dense(raw: &[u32]) -> Vec<u32> {
    let mut used = raw.to_vec();
    used.sort_unstable();
    used.dedup();
    raw.iter().map(|domain| used.binary_search(domain).unwrap() as u32).collect()
}

fn groups_of(drives: usize, each: usize) -> Vec<Vec<DriveId>> {
    let ids: Vec<_> = (0..drives as u32).map(DriveId).collect();
    ids.chunks(each).map(<[_]>::to_vec).collect()
}

/// The largest number of `drives` in one domain beyond r.
fn excess(spec: &RackSpec, drives: &[DriveId]) -> usize {
    let count =
        |kind: usize, domain| drives.iter().filter(|drive| spec.drive(**drive).failure_domains[kind] == domain).count();
    let kinds = 0..spec.failure_domains.len();
    let all = kinds.flat_map(|kind| drives.iter().map(move |d| count(kind, spec.drive(*d).failure_domains[kind])));
    all.max().unwrap_or(0).saturating_sub(usize::from(spec.code.parity))
}

/// Every choice of k + r of `from`.
fn choices(from: &[DriveId], stacks: usize) -> Vec<Vec<DriveId>> {
    let masks = 0..1_u32 << from.len();
    let chosen = |mask: u32| from.iter().enumerate().filter(move |(i, _)| mask >> i & 1 == 1).map(|(_, d)| *d);
    masks.filter(|mask| mask.count_ones() as usize == stacks).map(|mask| chosen(mask).collect()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Choose { stack: u64, pin: Option<u32>, excluded: Option<u32>, batch: bool },
    Away(u32, bool),
    SetFree(u32, u64),
    End { which: usize, settled: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let choose = (1..6_u64, prop::option::of(0..2_u32), prop::option::of(0..3_u32), any::<bool>())
        .prop_map(|(stack, pin, excluded, batch)| Step::Choose { stack: stack * 4096, pin, excluded, batch });
    let step = prop_oneof![
        8 => choose,
        1 => (0..21_u32, any::<bool>()).prop_map(|(drive, away)| Step::Away(drive, away)),
        1 => (0..21_u32, 0..20_u64).prop_map(|(drive, free)| Step::SetFree(drive, free * 4096)),
        2 => (0..50_usize, any::<bool>()).prop_map(|(which, settled)| Step::End { which, settled }),
    ];
    prop::collection::vec(step, 1..60)
}

/// Three groups of seven drives; classes are groups 0 and 2, and group 1. Two kinds of domains, which may cross.
fn small_rack() -> impl Strategy<Value = RackSpec> {
    let kind = || prop::collection::vec(0..6_u32, 21).prop_map(|raw| dense(&raw));
    let nested = kind().prop_map(|inner| {
        let outer: Vec<_> = inner.iter().map(|domain| domain / 2).collect();
        vec![dense(&outer), inner]
    });
    let crossing = (kind(), kind()).prop_map(|(a, b)| vec![a, b]);
    let kinds = prop_oneof![nested, crossing, Just(vec![])];
    let code = prop_oneof![Just((2, 1)), Just((3, 2)), Just((2, 2)), Just((3, 0)), Just((1, 1))];
    (kinds, code, prop::collection::vec(1..20_u64, 21)).prop_map(|(kinds, code, capacities)| {
        let capacities: Vec<_> = capacities.into_iter().map(|blocks| blocks * 4096).collect();
        RackSpec::validated(draft(code, &capacities, &kinds)).unwrap()
    })
}

/// One drive in a plain account of the same calls.
#[derive(Clone, Copy)]
struct Account {
    free: u64,
    away: bool,
}

proptest! {
    #[test]
    fn a_write_is_refused_only_without_room_and_spread_as_well_as_any_choice(
        spec in small_rack(), steps in steps(), seed: u64,
    ) {
        let (groups, class_of) = (groups_of(21, 7), [ClassId(0), ClassId(1), ClassId(0)]);
        let mut placement = Placement::new(&spec, &groups, &class_of);
        let mut accounts: Vec<_> = spec.drives.iter()
            .map(|drive| Account { free: spec.capacity_bytes(drive.id), away: false }).collect();
        let (mut rng, mut open) = (Rng::new(seed), Vec::new());
        for step in steps {
            match step {
                Step::Choose { stack, pin, excluded, batch } => {
                    let choice = if batch { GroupChoice::Batch { bytes: 10_000 } } else { GroupChoice::Random };
                    let excluded: Vec<_> = excluded.into_iter().map(GroupId).collect();
                    let wanted = Wanted {
                        pin: pin.map(ClassId).into(), choice, excluded_groups: &excluded,
                        ..Wanted::anywhere(stack, stack)
                    };
                    let got = placement.choose(&wanted, &mut rng);
                    let possible: Vec<_> = (0..3_u32).map(GroupId)
                        .filter(|g| pin.is_none_or(|class| class_of[g.index()] == ClassId(class)))
                        .filter(|g| !excluded.contains(g))
                        .flat_map(|g| {
                            let fits = |d: &DriveId| !accounts[d.index()].away && accounts[d.index()].free >= stack;
                            let fitting: Vec<_> = groups[g.index()].iter().copied().filter(fits).collect();
                            choices(&fitting, spec.code.stacks()).into_iter().map(move |drives| (g, drives))
                        }).collect();
                    let Some((group, drives)) = got else {
                        prop_assert!(possible.is_empty(), "{} choices were left", possible.len());
                        continue;
                    };
                    prop_assert!(possible.contains(&(group, drives.clone())), "{drives:?} of {group} is no choice");
                    if spec.code.parity > 0 {
                        let best = possible.iter().map(|(_, drives)| excess(&spec, drives)).min();
                        prop_assert_eq!(Some(excess(&spec, &drives)), best);
                    }
                    for d in &drives {
                        accounts[d.index()].free -= stack;
                    }
                    open.push((drives, stack));
                }
                Step::Away(drive, away) => {
                    placement.set_away(DriveId(drive), away);
                    accounts[drive as usize].away = away;
                }
                Step::SetFree(drive, free) => {
                    let id = DriveId(drive);
                    placement.set_free(id, free);
                    let believed = spec.capacity_bytes(id) - placement.used_bytes(id);
                    accounts[drive as usize].free = believed.min(free).saturating_sub(placement.reserved_bytes(id));
                }
                Step::End { which, settled } if !open.is_empty() => {
                    let (drives, stack) = open.swap_remove(which % open.len());
                    if settled {
                        placement.settle(&drives, stack, stack);
                    } else {
                        placement.release(&drives, stack);
                    }
                    // The first bytes that a short drive gets back make up for those it lacks.
                    for d in &drives {
                        accounts[d.index()].free = placement.free_bytes(*d);
                    }
                }
                Step::End { .. } => {}
            }
            for drive in &spec.drives {
                prop_assert_eq!(placement.free_bytes(drive.id), accounts[drive.id.index()].free);
            }
        }
    }
}

/// Two groups of the paper's geometry: six chassis, two trays of two drives each in a group.
fn paper_rack(capacities: &[u64]) -> RackSpec {
    let chassis = (0..48).map(|i| i % 24 / 4).collect();
    let trays = (0..48).map(|i| i / 2).collect();
    let drives = (0..48).collect();
    RackSpec::validated(draft((15, 3), capacities, &[drives, trays, chassis])).unwrap()
}

const PAPER_MEAN: u64 = 4_550_000_000_000;

/// Payload from 200 MB to 9 GB with a mean of 3.3 GB: the mean of two uniform draws, the smaller ones more often.
fn blob_bytes(rng: &mut Rng) -> u64 {
    let mega = rng.between(0, 8_800).min(rng.between(0, 8_800)) + rng.between(0, 333);
    (200 + mega.min(8_800)) * 1_000_000
}

/// Writes until the first refusal; returns the used share of the rack. Pelican, section 5.6.
fn fill(spec: &RackSpec, mut place: impl FnMut(&mut Placement, u64, &mut Rng) -> bool) -> f64 {
    let classes = [ClassId(0), ClassId(0)];
    let mut placement = Placement::new(spec, &groups_of(48, 24), &classes);
    let mut rng = Rng::new(11);
    loop {
        let stack = blob_bytes(&mut rng).div_ceil(15);
        if !place(&mut placement, stack, &mut rng) {
            break;
        }
    }
    let used: u64 = spec.drives.iter().map(|drive| placement.used_bytes(drive.id)).sum();
    used as f64 / spec.drives.iter().map(|drive| spec.capacity_bytes(drive.id)).sum::<u64>() as f64
}

fn place_by_rule(placement: &mut Placement, stack: u64, rng: &mut Rng) -> bool {
    let Some((_, drives)) = placement.choose(&Wanted::anywhere(stack * 15, stack), rng) else { return false };
    placement.settle(&drives, stack, stack);
    true
}

/// The random choice: any 18 drives of a group with enough spare capacity.
fn place_at_random(placement: &mut Placement, stack: u64, rng: &mut Rng) -> bool {
    let group = rng.below(2) as usize;
    for group in [group, 1 - group].map(|g| GroupId(g as u32)) {
        if placement.has_room(group, stack) {
            let members = placement.groups[group.index()].clone();
            let mut fitting: Vec<_> = members.into_iter().filter(|d| placement.free_bytes(*d) >= stack).collect();
            while fitting.len() > 18 {
                fitting.swap_remove(rng.below(fitting.len() as u64) as usize);
            }
            placement.settle(&fitting, 0, stack);
            return true;
        }
    }
    false
}

#[test]
fn equal_drives_fill_to_999_thousandths_before_the_first_refusal() {
    let share = fill(&paper_rack(&[PAPER_MEAN; 48]), place_by_rule);
    assert!(share >= 0.999, "{share}");
}

#[test]
fn with_drives_of_varying_size_the_rule_fills_more_than_random_choice() {
    // Mean 4.55 TB, smallest 4.2 TB; the distribution of the paper's sizes is not known.
    let mut rng = Rng::new(5);
    let capacities: Vec<_> = (0..48).map(|_| rng.between(4_200, 4_900) * 1_000_000_000).collect();
    let spec = paper_rack(&capacities);
    let (rule, random) = (fill(&spec, place_by_rule), fill(&spec, place_at_random));
    assert!(rule > random, "{rule} by the rule, {random} at random");
    assert!(rule > 0.97, "{rule}");
}

#[test]
fn the_papers_geometry_gets_the_three_emptiest_drives_of_each_chassis() {
    let capacities: Vec<_> = (0..48_u64).map(|i| PAPER_MEAN + (i * 7 % 24) * 1_000_000_000).collect();
    let spec = paper_rack(&capacities);
    let mut placement = Placement::new(&spec, &groups_of(48, 24), &[ClassId(0), ClassId(1)]);
    let wanted = Wanted { pin: PinnedTo::Class(ClassId(1)), ..Wanted::anywhere(15_000, 1_000) };
    let (group, drives) = placement.choose(&wanted, &mut Rng::new(1)).unwrap();
    assert_eq!((group, drives.len()), (GroupId(1), 18));
    assert!(drives.is_sorted());
    for chassis in 0..6_u32 {
        let mut members: Vec<_> = (24 + chassis * 4..28 + chassis * 4).map(DriveId).collect();
        members.sort_by_key(|drive| core::cmp::Reverse(capacities[drive.index()]));
        assert!(members[..3].iter().all(|drive| drives.contains(drive)));
        assert!(!drives.contains(&members[3]));
    }
    assert_eq!(placement.relaxed_total(), 0);
}

#[test]
fn when_members_are_away_the_rule_is_relaxed_by_as_little_as_possible() {
    let spec = paper_rack(&[PAPER_MEAN; 48]);
    let mut placement = Placement::new(&spec, &groups_of(48, 24), &[ClassId(0), ClassId(1)]);
    // Chassis 0 keeps two drives of group 0: the other five must take 16, so one of them takes four.
    placement.set_away(DriveId(0), true);
    placement.set_away(DriveId(1), true);
    let wanted = Wanted { pin: PinnedTo::Class(ClassId(0)), ..Wanted::anywhere(15_000, 1_000) };
    let (_, drives) = placement.choose(&wanted, &mut Rng::new(1)).unwrap();
    assert_eq!((excess(&spec, &drives), placement.relaxed_total()), (1, 1));
    let anywhere = placement.choose(&Wanted::anywhere(15_000, 1_000), &mut Rng::new(1)).unwrap();
    assert_eq!(anywhere.0, GroupId(1), "a group that can keep the rule comes first");
}

#[test]
fn a_batch_stays_with_its_group_until_its_bytes_are_used_up() {
    let capacities = [1 << 40; 40];
    let spec = RackSpec::validated(draft((2, 1), &capacities, &[])).unwrap();
    let mut placement = Placement::new(&spec, &groups_of(40, 4), &[ClassId(0); 10]);
    let (mut rng, choice) = (Rng::new(2), GroupChoice::Batch { bytes: 1_000 });
    let mut next = |placement: &mut Placement, excluded: &[GroupId]| {
        let wanted = Wanted { choice, excluded_groups: excluded, ..Wanted::anywhere(100, 50) };
        placement.choose(&wanted, &mut rng).unwrap().0
    };
    let groups: Vec<_> = (0..40).map(|_| next(&mut placement, &[])).collect();
    assert!(groups.chunks(10).all(|batch| batch.iter().all(|group| *group == batch[0])));
    let mut distinct = groups.clone();
    distinct.dedup();
    assert!(distinct.len() > 1, "batches are drawn at random");
    let current = next(&mut placement, &[]);
    assert_ne!(next(&mut placement, &[current]), current, "an excluded group is left");
}

#[test]
fn a_mount_that_finds_less_free_than_believed_is_heeded_until_another_finds_more() {
    let spec = RackSpec::validated(draft((1, 1), &[100_000; 2], &[])).unwrap();
    let mut placement = Placement::new(&spec, &groups_of(2, 2), &[ClassId(0)]);
    placement.restate(DriveId(0), 90_000, 40_000);
    assert_eq!(placement.free_bytes(DriveId(0)), 50_000);
    placement.set_free(DriveId(0), 10_000);
    assert_eq!(placement.free_bytes(DriveId(0)), 10_000);
    let write = |placement: &mut Placement| {
        placement.choose(&Wanted::anywhere(20_000, 20_000), &mut Rng::new(0)).map(|(_, drives)| drives)
    };
    assert_eq!(write(&mut placement), None);
    placement.set_free(DriveId(0), 70_000);
    assert_eq!(placement.free_bytes(DriveId(0)), 50_000, "never more than the catalog leaves");
    let drives = write(&mut placement).unwrap();
    placement.settle(&drives, 20_000, 15_000);
    assert_eq!((placement.used_bytes(DriveId(0)), placement.reserved_bytes(DriveId(0))), (55_000, 0));
    placement.freed(DriveId(0), 15_000);
    assert_eq!(placement.free_bytes(DriveId(0)), 50_000);
}

#[test]
fn a_lost_stack_stays_in_its_chassis_while_that_has_room_and_goes_where_most_is_spare_otherwise() {
    let spec = paper_rack(&[PAPER_MEAN; 48]);
    let mut placement = Placement::new(&spec, &groups_of(48, 24), &[ClassId(0), ClassId(1)]);
    // Three drives of each chassis; the first of all is lost.
    let holders: Vec<DriveId> = (0..24).filter(|drive| drive % 4 < 3).map(DriveId).collect();
    placement.retire(DriveId(0));
    let another =
        |placement: &Placement, unfit: &[DriveId]| placement.choose_another(GroupId(0), &holders, unfit, 1_000);
    assert_eq!(another(&placement, &[]), Some(DriveId(3)), "the one drive of its chassis that has none of the blob");
    placement.reserve_another(&holders, DriveId(3), 1_000);
    assert_eq!((placement.reserved_bytes(DriveId(3)), placement.relaxed_total()), (1_000, 0));
    // Without it, some chassis gets a fourth stack: that of the drive with most to spare.
    placement.restate(DriveId(7), PAPER_MEAN, 10);
    placement.restate(DriveId(11), PAPER_MEAN, 5);
    let others: Vec<DriveId> = [15, 19, 23].map(DriveId).to_vec();
    for drive in &others {
        placement.restate(*drive, PAPER_MEAN, 20);
    }
    assert_eq!(another(&placement, &[DriveId(3)]), Some(DriveId(11)));
    placement.reserve_another(&holders, DriveId(11), 1_000);
    assert_eq!(placement.relaxed_total(), 1);
    placement.set_away(DriveId(11), true);
    assert_eq!(another(&placement, &[DriveId(3)]), Some(DriveId(7)));
    let all: Vec<DriveId> = (0..24).map(DriveId).collect();
    assert_eq!(another(&placement, &all), None);
    assert_eq!(placement.choose_another(GroupId(0), &holders, &[], PAPER_MEAN + 1), None);
    placement.set_away(DriveId(0), false);
    assert!(placement.choose_another(GroupId(0), &[], &[], 1_000).is_some_and(|drive| drive != DriveId(0)));
}

#[test]
fn a_blob_fits_where_the_shared_disk_has_room_for_all_its_stacks() {
    let spec = RackSpec::validated(draft((2, 1), &[100_000; 7], &[])).unwrap();
    let mut placement = Placement::new(&spec, &groups_of(7, 7), &[ClassId(0)]);
    let all: Vec<_> = (0..7).map(DriveId).collect();
    assert_eq!(placement.free_total(), 700_000);
    placement.set_host_free(0, &all, 30_000);
    assert_eq!(placement.free_total(), 30_000);
    assert!(placement.has_room(GroupId(0), 10_000) && !placement.has_room(GroupId(0), 10_001));
    let mut rng = Rng::new(1);
    let mut choose = |placement: &mut Placement, stack| placement.choose(&Wanted::anywhere(stack, stack), &mut rng);
    let (_, drives) = choose(&mut placement, 6_000).unwrap();
    assert_eq!(placement.free_total(), 12_000);
    assert!(choose(&mut placement, 5_000).is_none());
    placement.settle(&drives, 6_000, 6_000);
    assert_eq!(placement.free_total(), 12_000);
    placement.freed(drives[0], 6_000);
    assert_eq!(placement.free_total(), 18_000);
    // A mount that finds all that is free on the disk is no evidence about the drive; one that finds less is none about
    // others.
    placement.set_free(drives[1], 18_000);
    assert_eq!((placement.free_total(), placement.free_bytes(drives[1])), (18_000, 18_000));
    placement.set_free(drives[1], 1_000);
    assert_eq!((placement.free_total(), placement.free_bytes(drives[1])), (18_000, 1_000));
    assert_eq!(placement.free_bytes(DriveId(6)), 18_000);
    placement.set_free(drives[1], 100_000);
    placement.set_host_free(0, &all, 60_000);
    assert_eq!(placement.free_total(), 60_000);
    placement.retire(DriveId(6));
    assert_eq!(placement.free_total(), 60_000);
    placement.set_host_free(0, &all, 600_000);
    assert_eq!(placement.free_total(), 588_000, "what failed has no room");
    assert!(choose(&mut placement, 20_000).is_some());
}

/// One stack after the other is lost on Pelican's rack and goes elsewhere. Compared with all possible choices, none
/// holds fewer beyond r in a domain, nor is any domain of the target less crowded.
#[test]
fn a_rebuilt_stack_breaks_no_rule_of_domains_that_another_choice_would_keep() {
    let pelican = model::text::parse(include_str!("../../../racks/pelican.toml"), "pelican.toml").unwrap();
    let layout = crate::layout::synthesise(&pelican).unwrap();
    let groups: Vec<Vec<DriveId>> = layout.groups.iter().map(|group| group.drives.clone()).collect();
    let class_of: Vec<ClassId> = layout.groups.iter().map(|group| group.class).collect();
    let shared: Vec<usize> = (0..pelican.failure_domains.len())
        .filter(|kind| {
            let one_each = pelican.failure_domains[*kind].name == "drive";
            pelican.failure_domains[*kind].loses_media && !one_each
        })
        .collect();
    assert!(shared.len() >= 2, "trays and chassis");
    let in_domain = |drives: &[DriveId], kind: usize, of: DriveId| {
        let domain = |drive: DriveId| pelican.drive(drive).failure_domains[kind];
        drives.iter().filter(|drive| domain(**drive) == domain(of)).count()
    };
    let worst = |drives: &[DriveId]| {
        let all = shared.iter().flat_map(|kind| drives.iter().map(|of| in_domain(drives, *kind, *of)));
        all.max().unwrap_or(0).saturating_sub(3)
    };
    let beside = |others: &[DriveId], target: DriveId| -> usize {
        shared.iter().map(|kind| in_domain(others, *kind, target)).sum()
    };
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut placement = Placement::new(&pelican, &groups, &class_of);
        let (group, mut holders) = placement.choose(&Wanted::anywhere(15_000, 1_000), &mut rng).unwrap();
        assert_eq!(worst(&holders), 0);
        let mut failed = Vec::new();
        // Six drives are left over: no more losses than that are made up for.
        for _ in 0..6 {
            let lost = holders.remove(rng.below(holders.len() as u64) as usize);
            placement.retire(lost);
            failed.push(lost);
            let target = placement.choose_another(group, &holders, &[], 1_000).unwrap();
            let fits = |drive: &&DriveId| !holders.contains(drive) && !failed.contains(drive);
            let score = |target: DriveId| {
                let after: Vec<DriveId> = holders.iter().copied().chain([target]).collect();
                (worst(&after), beside(&holders, target))
            };
            let best = groups[group.index()].iter().filter(fits).map(|drive| score(*drive)).min().unwrap();
            assert_eq!(score(target), best, "seed {seed}: {target} beside {holders:?}");
            holders.push(target);
        }
    }
}
