//! Layouts of shipped and random racks, every one of them sound.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::check::tests::{Shortfall, shortfalls};
use alloc::string::ToString;
use model::{
    DomainId, DomainLimit, DrivePower, DriveSpec, FailureDomains, PoolDriveSpec, RackDraft, Resource, ResourceId, Rng,
};
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use std::collections::BTreeMap;

fn shipped_text(name: &str) -> &'static str {
    model::text::SHIPPED.iter().find(|(n, _)| *n == name).unwrap().1
}

fn shipped(name: &str) -> RackSpec {
    model::text::parse(shipped_text(name), name).unwrap()
}

/// The most drives of any group that have in common what `key` makes of their slot.
fn most_per_group(spec: &RackSpec, layout: &Layout, key: impl Fn([u16; 3]) -> (u16, u16)) -> usize {
    let most = |group: &Group| {
        let mut counts: BTreeMap<(u16, u16), usize> = BTreeMap::new();
        group.drives.iter().for_each(|d| *counts.entry(key(spec.drive(*d).slot)).or_default() += 1);
        counts.into_values().max().unwrap()
    };
    layout.groups.iter().map(most).max().unwrap()
}

#[test]
fn pelican_gets_the_papers_layout() {
    let spec = shipped("pelican");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.groups.len(), 48);
    assert!(layout.groups.iter().all(|group| group.drives.len() == 24));
    assert_eq!(layout.classes.iter().map(Vec::len).collect::<Vec<_>>(), [12, 12, 12, 12]);
    assert_eq!((layout.active_groups_max(), layout.drives_active_max()), (4, 96));
    assert_eq!((layout.spares.len(), layout.warnings.len()), (0, 0), "every soft limit kept, nothing left over");
    assert_eq!(most_per_group(&spec, &layout, |[w, _, h]| (w, h)), 1, "drives a tray");
    assert_eq!(most_per_group(&spec, &layout, |[_, _, h]| (h, 0)), 2, "drives a height row");
    assert_eq!(most_per_group(&spec, &layout, |[_, _, h]| (h / 2, 0)), 4, "drives a chassis");
    for class in &layout.classes {
        let halves = |g: &GroupId| {
            layout.groups[g.index()].drives.iter().map(|d| spec.drive(*d).slot[0] / 3).collect::<Vec<_>>()
        };
        let mut halves: Vec<u16> = class.iter().flat_map(halves).collect();
        halves.dedup();
        assert_eq!(halves.len(), 1, "a class lies within one server's half");
    }
    assert_eq!(layout.bound.to_string(), "at most 4 groups, since `cooling` lets 96 drives be awake at once");
}

#[test]
fn pelican_draws_what_the_paper_says() {
    let spec = shipped("pelican");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.asleep_mw(&spec), 1_797_120);
    assert_eq!(layout.waking_mw(&spec), 3_714_240, "the paper: peak 3.7 kW");
    assert_eq!(layout.active_mw(&spec), 2_551_680, "the paper: average 2.6 kW");
}

#[test]
fn pelican_mini_is_pelican_in_small() {
    let spec = shipped("pelican-mini");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.classes.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    assert!(layout.warnings.is_empty() && layout.spares.is_empty());
    assert_eq!(most_per_group(&spec, &layout, |[w, _, h]| (w, h)), 1, "drives a tray");
    assert_eq!(most_per_group(&spec, &layout, |[_, _, h]| (h, 0)), 2, "drives a chassis, which r = 2 survives");
}

#[test]
fn nas8_gets_two_groups_of_four_in_one_class() {
    let spec = shipped("nas8");
    let layout = synthesise(&spec).unwrap();
    assert_eq!(layout.groups.iter().map(|g| g.drives.len()).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(layout.classes, [[GroupId(0), GroupId(1)]]);
    assert_eq!(layout.bound.resource.as_deref(), Some("power"));
}

#[test]
fn a_layout_survives_serde_with_its_table() {
    let layout = synthesise(&shipped("nas8")).unwrap();
    let text = serde_json::to_string(&layout).unwrap();
    let back: Layout = serde_json::from_str(&text).unwrap();
    assert_eq!(back, layout);
    assert_eq!(back.group_of(layout.groups[1].drives[2]), Some(GroupId(1)));
    assert_eq!(back.group_of(DriveId(8)), None);
}

/// A small rack of any shape: rules, random domains, limits of every kind, sound but often impossible.
fn random_rack(seed: u64, side_max: u64) -> RackSpec {
    let mut rng = Rng::for_thing(0x6c61_796f_7574, seed);
    let sides: [u64; 3] = core::array::from_fn(|_| rng.between(1, side_max));
    let slots = (0..sides[0]).flat_map(|w| (0..sides[1]).flat_map(move |d| (0..sides[2]).map(move |h| [w, d, h])));
    let slots: Vec<[u16; 3]> = slots.map(|slot| slot.map(|c| c as u16)).collect();
    let mut draft = (*shipped("nas8")).clone();
    draft.code.data = rng.between(1, 3) as u8;
    draft.code.parity = rng.below(3) as u8;
    draft.group_drives = draft.code.stacks() as u32 + rng.below(3) as u32;
    let resources: Vec<Vec<DomainId>> = (0..rng.below(4)).map(|_| random_domains(&mut rng, &slots)).collect();
    let kinds: Vec<Vec<DomainId>> = (0..rng.below(3)).map(|_| random_domains(&mut rng, &slots)).collect();
    draft.resources = (0..resources.len()).map(|i| random_resource(&mut rng, i, slots.len() as u64)).collect();
    let kind = |i: usize| FailureDomains { name: std::format!("f{i}"), loses_media: i > 0 || seed.is_multiple_of(2) };
    draft.failure_domains = (0..kinds.len()).map(kind).collect();
    let drive = |(id, slot): (usize, &[u16; 3])| DriveSpec {
        id: DriveId(id as u32),
        slot: *slot,
        resource_domains: resources.iter().map(|column| column[id]).collect(),
        failure_domains: kinds.iter().map(|column| column[id]).collect(),
        capacity_bytes: None,
        bytes_per_s: None,
        path: None,
        power: DrivePower::Own,
    };
    draft.drives = slots.iter().enumerate().map(drive).collect();
    let alone = RackSpec::validated(draft.clone()).unwrap();
    let mut pooled = || PoolDriveSpec {
        slot: None,
        resource_domains: resources
            .iter()
            .map(|c| (rng.below(3) > 0).then(|| c[rng.below(c.len() as u64) as usize]))
            .collect(),
        path: None,
        disk: None,
    };
    draft.pool = (0..seed % 3).map(|_| pooled()).collect();
    let mut uncontrolled = Rng::for_thing(0x6f6e, seed);
    for drive in draft.drives.iter_mut().filter(|_| seed.is_multiple_of(4) && uncontrolled.below(4) == 0) {
        drive.power = DrivePower::None;
    }
    // Limits that do not carry what is always on are refused.
    RackSpec::validated(draft).unwrap_or(alone)
}

fn random_resource(rng: &mut Rng, index: usize, drives: u64) -> Resource {
    let limit = match rng.below(6) {
        0 => DomainLimit::Watts((drives + 24 * rng.between(0, 5)) as u32),
        1 => DomainLimit::ActiveDrives(rng.between(3, 8) as u32),
        2 => DomainLimit::StartingDrives(rng.between(1, 3) as u32),
        _ => DomainLimit::ActiveDrives(rng.between(1, 2) as u32),
    };
    Resource { name: std::format!("r{index}"), limit, hard: rng.below(4) > 0 }
}

/// Domains by a rule over the slots, or by chance.
fn random_domains(rng: &mut Rng, slots: &[[u16; 3]]) -> Vec<DomainId> {
    let by: [u16; 3] = core::array::from_fn(|_| [1, 2, 99][rng.below(3) as usize]);
    let count = rng.between(1, slots.len() as u64);
    let chance = rng.below(4) == 0;
    let mut key = |slot: &[u16; 3]| {
        if chance { [rng.below(count) as u16, 0, 0] } else { core::array::from_fn(|i| slot[i] / by[i]) }
    };
    let keys: Vec<[u16; 3]> = slots.iter().map(&mut key).collect();
    let mut ranks = keys.clone();
    ranks.sort_unstable();
    ranks.dedup();
    keys.iter().map(|key| DomainId(ranks.binary_search(key).unwrap() as u32)).collect()
}

/// The number of drives of a domain that may spin up at once, by summing over every other domain with a limit.
fn starts_in(spec: &RackSpec, resource: ResourceId, domain: DomainId) -> u64 {
    let sleeps = |drive: &&DriveSpec| drive.power != DrivePower::None;
    let here = || spec.drives.iter().filter(|d| d.resource_domains[resource.index()] == domain).filter(sleeps);
    let hard = spec.resources_by_id().filter(|(_, other)| other.hard);
    let limited = hard.filter_map(|(id, other)| match other.limit {
        DomainLimit::StartingDrives(limit) => Some((id, u64::from(limit))),
        _ => None,
    });
    let starts = limited.map(|(id, limit)| {
        let in_domain =
            |other: usize| here().filter(|d| d.resource_domains[id.index()].index() == other).count() as u64;
        (0..spec.domain_count(id)).map(|other| in_domain(other).min(limit)).sum()
    });
    starts.min().unwrap_or(u64::MAX)
}

/// True if some g drives may be awake at once, by trying all choices.
fn some_group_exists(spec: &RackSpec, next: usize, chosen: &mut Vec<DriveId>) -> bool {
    let within = |(id, resource): (ResourceId, &Resource)| {
        let is_in = |drive: &DriveSpec, domain, sleeps: bool| {
            drive.resource_domains[id.index()] == domain && sleeps == (drive.power != DrivePower::None)
        };
        let awake = |domain| chosen.iter().filter(|d| is_in(spec.drive(**d), domain, true)).count() as u64;
        let pool = |domain| spec.pool.iter().filter(|d| d.resource_domains[id.index()] == Some(domain)).count() as u64;
        let always_on = |domain| pool(domain) + spec.drives.iter().filter(|d| is_in(d, domain, false)).count() as u64;
        let size = |domain| spec.drives.iter().filter(|d| is_in(d, domain, true)).count() as u64;
        !resource.hard
            || chosen.iter().all(|drive| {
                let domain = spec.domain_of(*drive, id);
                match resource.limit {
                    DomainLimit::ActiveDrives(limit) => awake(domain) + always_on(domain) <= u64::from(limit),
                    DomainLimit::StartingDrives(_) | DomainLimit::BytesPerS(_) => true,
                    DomainLimit::Watts(watts) => {
                        let profile = spec.profile.watts;
                        let starting = awake(domain).min(starts_in(spec, id, domain));
                        let asleep_mw = (size(domain) - awake(domain)) * u64::from(profile.standby_mw);
                        let spinning_mw = (awake(domain) - starting) * u64::from(profile.active_mw);
                        let starting_mw = starting * u64::from(profile.spin_up_mw);
                        let on_mw = always_on(domain) * u64::from(profile.spin_up_mw.max(profile.active_mw));
                        starting_mw + spinning_mw + asleep_mw + on_mw <= u64::from(watts) * 1000
                    }
                }
            })
    };
    if !spec.resources_by_id().all(within) {
        return false;
    }
    if chosen.len() == spec.group_drives as usize {
        return true;
    }
    (next..spec.drives.len()).any(|drive| {
        chosen.push(DriveId(drive as u32));
        let found = some_group_exists(spec, drive + 1, chosen);
        chosen.pop();
        found
    })
}

/// Synthesises a layout, and compares the result with the judge and with its own warnings.
fn judged(spec: &RackSpec) -> Result<Layout, LayoutError> {
    let layout = synthesise(spec)?;
    let shortfalls = shortfalls(spec, &layout);
    assert!(layout.active_groups_max() <= layout.bound.groups);
    let soft = shortfalls.iter().filter(|s| matches!(s, Shortfall::SoftLimit { .. })).count();
    let spread = shortfalls.iter().filter(|s| matches!(s, Shortfall::Spread { .. })).count();
    let mut message = (0, 0);
    for warning in &layout.warnings {
        match warning {
            Warning::SoftLimit { domains, .. } => message.0 += *domains as usize,
            Warning::Spread { groups, .. } => message.1 += *groups as usize,
            _ => {}
        }
    }
    assert_eq!(message, (soft, spread), "the warnings are what the judge finds");
    Ok(layout)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_layout_of_a_random_rack_passes_the_judge(seed in any::<u64>(), side_max in 2_u64..9) {
        let spec = random_rack(seed, side_max);
        prop_assert_eq!(judged(&spec), synthesise(&spec), "the same description gives the same layout");
    }
}

#[test]
fn a_rack_is_refused_only_if_no_group_exists() {
    let mut refused = 0;
    for seed in 0..4_000 {
        let spec = random_rack(seed, 3);
        if let Err(error) = judged(&spec) {
            refused += 1;
            assert!(!some_group_exists(&spec, 0, &mut vec![]), "seed {seed}: {error}");
            assert!(error.to_string().contains("; "), "no fix in: {error}");
        }
    }
    assert!(refused > 500, "the random racks must try this");
}

#[test]
fn cuboids_by_pelicans_rule_reach_the_bound() {
    for (width, depth, height, group) in [(6, 16, 12, 16), (4, 8, 6, 8), (2, 24, 12, 24), (6, 8, 4, 12), (8, 6, 8, 12)]
    {
        let text = shipped_text("pelican-mini")
            .replace("width = 4", &std::format!("width = {width}"))
            .replace("depth = 4", &std::format!("depth = {depth}"))
            .replace("height = 6", &std::format!("height = {height}"))
            .replace("width/2", &std::format!("width/{}", width / 2))
            .replace("group_drives = 8", &std::format!("group_drives = {group}"));
        let layout = judged(&model::text::parse(&text, "cuboid").unwrap()).unwrap();
        let groups = width * depth * height / group;
        assert_eq!(layout.groups.len(), groups, "{width} x {depth} x {height} by {group}");
        assert_eq!(layout.active_groups_max(), layout.bound.groups, "{width} x {depth} x {height} by {group}");
    }
}

#[test]
fn a_group_without_room_to_rebuild_is_warned_of() {
    let text = shipped_text("nas8").replace("k = 2", "k = 3");
    let layout = judged(&model::text::parse(&text, "x").unwrap()).unwrap();
    assert_eq!(layout.warnings, [Warning::NoRoomToRebuild { group_drives: 4 }]);
}

#[test]
fn drives_that_fit_no_group_are_spares() {
    let text = shipped_text("nas8").replace("group_drives = 4", "group_drives = 3");
    let layout = judged(&model::text::parse(&text, "x").unwrap()).unwrap();
    assert_eq!((layout.groups.len(), layout.spares.len()), (2, 2));
    assert!(layout.spares.iter().all(|drive| layout.group_of(*drive).is_none()));
}

#[test]
fn drives_that_nobody_controls_leave_the_others_less_and_need_no_room_themselves() {
    let on = |drives: &[usize], limit: u32| {
        let text = shipped_text("nas8").replace("active_drives = 4", &std::format!("active_drives = {limit}"));
        let mut draft = RackDraft::clone(&model::text::parse(&text, "x").unwrap());
        for drive in drives {
            draft.drives[*drive].power = DrivePower::None;
        }
        RackSpec::validated(draft).unwrap()
    };
    let of_groups = |spec: &RackSpec| {
        let layout = judged(spec).unwrap();
        let on = |group: &Group| group.drives.iter().filter(|drive| spec.is_always_on(**drive)).count();
        (layout.active_groups_max(), layout.groups.iter().map(on).collect::<Vec<_>>())
    };
    // Four of the other six, or two of them: a group with the two that are always on, and no other group.
    assert_eq!(of_groups(&on(&[0, 1], 6)).1.iter().sum::<usize>(), 2);
    assert_eq!(of_groups(&on(&[0, 1], 4)), (1, vec![2]));
    let error = synthesise(&on(&[0, 1], 3)).unwrap_err().to_string();
    assert!(error.starts_with("`power` lets 3 drives be awake at once, and a group has 4"), "{error}");
    let spec = on(&[0, 1], 4);
    let layout = judged(&spec).unwrap();
    let (standby, most, active) = (800, 24_000, 6_500);
    let watts = spec.profile.watts;
    assert_eq!((watts.standby_mw, watts.spin_up_mw, watts.active_mw), (standby, most, active));
    assert_eq!(layout.asleep_mw(&spec), u64::from(6 * standby + 2 * most));
    assert_eq!(layout.active_mw(&spec), u64::from(4 * standby + 2 * active + 2 * most));
    assert_eq!(layout.waking_mw(&spec), u64::from(4 * standby + 4 * most));
}

#[test]
fn a_rack_that_carries_no_group_is_told_why() {
    let message = |from: &str, to: &str| {
        let spec = model::text::parse(&shipped_text("nas8").replacen(from, to, 1), "x").unwrap();
        synthesise(&spec).unwrap_err().to_string()
    };
    let expected =
        "`power` lets 3 drives be awake at once, and a group has 4; raise its limit, or write group_drives = 3";
    assert!(message("active_drives = 4", "active_drives = 3").starts_with(expected));
    let expected = "a group of 9 cannot be made of 8 drives; write group_drives = 8 or less";
    let limitless = message("group_drives = 4 ", "group_drives = 9 ");
    assert!(limitless.starts_with("`power` lets 4 drives"), "{limitless}");
    let spec =
        model::text::parse(&shipped_text("nas8").replace("active_drives = 4", "active_drives = 9"), "x").unwrap();
    let mut draft = (*spec).clone();
    draft.group_drives = 9;
    let error = synthesise(&RackSpec::validated(draft).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with(expected), "{error}");
}

/// Sixty bays on 260 W; four drives start at once.
fn sixty_bays(watts: u32, starting_drives: &str) -> RackSpec {
    let text = std::format!(
        "name = \"bays\"\ngroup_drives = 15\npack = \"1 GB\"\n[code]\nk = 12\nr = 2\nfragment = \"128 KiB\"\n\
         [geometry]\nwidth = 60\ndepth = 1\nheight = 1\n\
         [resources.power]\nsame = []\nwatts = {watts}\nhard = true\n{starting_drives}\
         [drive]\ncapacity = \"4 TB\"\nbytes_per_s = \"180 MB/s\"\nseek = \"8 ms\"\nspin_up = \"10 s\"\n\
         mount = \"1 s\"\nmount_busy = \"1 s\"\nunmount = \"1 s\"\nspin_down = \"1 s\"\n\
         watts = {{ standby = 0.8, spin_up = 24, active = 6.4 }}\nrated_starts = 50000\nlife_years = 5\n"
    );
    model::text::parse(&text, "bays").unwrap()
}

const FOUR_START: &str = "[resources.inrush]\nsame = []\nstarting_drives = 4\nhard = true\n";

#[test]
fn drives_that_start_one_after_the_other_are_charged_so() {
    let spec = sixty_bays(260, FOUR_START);
    let layout = judged(&spec).unwrap();
    assert_eq!((layout.groups.len(), layout.active_groups_max()), (4, 1), "15 of 60 awake, and no 15 more");
    assert_eq!((layout.drives_starting_max(&spec), layout.waking_mw(&spec)), (4, 202_400));
    // The ledger allows that much, and no more: whenever one drive spins, the next one starts.
    let mut ledger = crate::ledger::Ledger::new(&spec);
    let (mut left, mut starting, mut worst_mw) = (layout.groups[0].drives.clone(), vec![], 0);
    while !left.is_empty() {
        let granted = ledger.request(&left);
        assert!(!granted.is_empty(), "the watts never hold a start back");
        left.retain(|drive| !granted.contains(drive));
        starting.extend(granted);
        worst_mw = ledger.watts_mw().max(worst_mw);
        assert_eq!(starting.len(), 4);
        ledger.spun_up(starting.remove(0));
    }
    for drive in starting {
        ledger.spun_up(drive);
    }
    assert_eq!((worst_mw, ledger.watts_mw()), (layout.waking_mw(&spec), layout.active_mw(&spec)));
}

#[test]
fn a_limit_on_starts_that_is_soft_or_missing_holds_nobody_back() {
    for starting in ["", &FOUR_START.replace("true", "false")] {
        let message = synthesise(&sixty_bays(260, starting)).unwrap_err().to_string();
        assert!(
            message.starts_with("`power` lets 9 drives be awake at once, and a group has 15; raise its limit"),
            "{message}"
        );
        assert!(message.ends_with("with the same domains and starting_drives = 7 or less"), "{message}");
    }
    let carried = |starts: u32| {
        let starting = FOUR_START.replace("= 4", &std::format!("= {starts}"));
        synthesise(&sixty_bays(260, &starting)).is_ok()
    };
    assert!(carried(7) && !carried(8), "what the refusal says is true");
    let message = synthesise(&sixty_bays(100, "")).unwrap_err().to_string();
    assert!(!message.contains("starting_drives"), "that would not help: {message}");
}

#[test]
fn limits_on_starts_count_by_their_domains() {
    let rows = FOUR_START.replace("same = []", "same = [\"width/10\"]").replace("= 4", "= 1");
    let spec = sixty_bays(260, &rows);
    let layout = judged(&spec).unwrap();
    let most = layout.drives_starting_max(&spec);
    assert!((1..=6).contains(&most), "one of each ten: {most}");
    assert_eq!(layout.waking_mw(&spec), layout.active_mw(&spec) + most * (24_000 - 6_400));
}

#[test]
fn a_hundred_thousand_drives_are_laid_out() {
    let text = shipped_text("pelican").replace("width = 6", "width = 522");
    let spec = model::text::parse(&text, "x").unwrap();
    let layout = judged(&spec).unwrap();
    assert_eq!(spec.drives.len(), 100_224);
    assert_eq!((layout.groups.len(), layout.active_groups_max()), (4176, 348), "87 Pelicans");
    assert!(layout.warnings.is_empty() && layout.spares.is_empty());
}
