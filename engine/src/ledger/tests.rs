//! The ledger against a recount from nothing but the states of drives, on random racks under random requests.

#![allow(clippy::unwrap_used)]

use super::{Domain, Ledger, PowerState};
use alloc::vec::Vec;
use model::{
    DomainId, DomainLimit, DriveId, DrivePower, DriveSpec, PoolDriveId, PoolDriveSpec, RackDraft, RackSpec, Resource,
    ResourceId, Watts,
};
use proptest::prelude::*;

const DRIVES: u32 = 12;

fn rack(resources: &[(DomainLimit, bool, u32)], watts: Watts) -> RackSpec {
    let box_of_eight = model::text::parse(include_str!("../../../racks/nas8.toml"), "nas8.toml").unwrap();
    let mut draft = RackDraft::clone(&box_of_eight);
    draft.profile.watts = watts;
    draft.failure_domains.clear();
    let named = |(i, (limit, hard, _)): (usize, &(DomainLimit, bool, u32))| Resource {
        name: std::format!("resource-{i}"),
        limit: *limit,
        hard: *hard,
    };
    draft.resources = resources.iter().enumerate().map(named).collect();
    let drive = |i: u32| DriveSpec {
        id: DriveId(i),
        slot: [i as u16, 0, 0],
        resource_domains: resources.iter().map(|(_, _, domains)| DomainId(i % domains)).collect(),
        failure_domains: Vec::new(),
        capacity_bytes: None,
        bytes_per_s: None,
        path: None,
        power: DrivePower::Own,
    };
    draft.drives = (0..DRIVES).map(drive).collect();
    RackSpec::validated(draft).unwrap()
}

fn resource() -> impl Strategy<Value = (DomainLimit, bool, u32)> {
    let drives = (1..6_u32, any::<bool>()).prop_map(|(limit, hard)| (DomainLimit::ActiveDrives(limit), hard));
    let watts = (40..120_u32, any::<bool>()).prop_map(|(limit, hard)| (DomainLimit::Watts(limit), hard));
    let starts = (1..4_u32, any::<bool>()).prop_map(|(limit, hard)| (DomainLimit::StartingDrives(limit), hard));
    let link = Just((DomainLimit::BytesPerS(1), false));
    (prop_oneof![3 => drives, 3 => watts, 2 => starts, 1 => link], 1..=DRIVES)
        .prop_map(|((limit, hard), n)| (limit, hard, n))
}

fn watts() -> impl Strategy<Value = Watts> {
    (0..2_000_u32, 0..25_000_u32, 0..25_000_u32).prop_map(|(standby_mw, spin_up_mw, active_mw)| Watts {
        standby_mw,
        spin_up_mw: standby_mw + spin_up_mw,
        active_mw: standby_mw + active_mw,
    })
}

/// The same rack with this number of pool drives, and these drives without power control, if its limits carry them.
fn with_always_on(rack: RackSpec, pool: u32, uncontrolled: &[u32]) -> RackSpec {
    let mut draft = RackDraft::clone(&rack);
    let domains = |i: u32| rack.drives[i as usize].resource_domains.iter().copied().map(Some).collect();
    draft.pool = (0..pool)
        .map(|i| PoolDriveSpec { slot: None, resource_domains: domains(i / 2), path: None, disk: None })
        .collect();
    for drive in uncontrolled {
        draft.drives[*drive as usize].power = DrivePower::None;
    }
    RackSpec::validated(draft).unwrap_or(rack)
}

fn is_uncontrolled(spec: &RackSpec, drive: DriveId) -> bool {
    spec.drives[drive.index()].power == DrivePower::None
}

/// Drives that spin or spin up in a domain, and what its drives draw, by looking at each; those of the pool included.
fn recount(spec: &RackSpec, states: &[PowerState], resource: ResourceId, domain: DomainId) -> (u64, u64) {
    let inside = spec.drives.iter().filter(|drive| spec.domain_of(drive.id, resource) == domain);
    let pool = spec.pool.iter().filter(|drive| drive.resource_domains[resource.index()] == Some(domain)).count() as u64;
    let most_mw = u64::from(spec.profile.watts.spin_up_mw.max(spec.profile.watts.active_mw));
    inside.fold((pool, pool * most_mw), |(active, mw), drive| match states[drive.id.index()] {
        _ if is_uncontrolled(spec, drive.id) => (active + 1, mw + most_mw),
        PowerState::Standby => (active, mw + u64::from(spec.profile.watts.standby_mw)),
        PowerState::SpinningUp => (active + 1, mw + u64::from(spec.profile.watts.spin_up_mw)),
        PowerState::Active => (active + 1, mw + u64::from(spec.profile.watts.active_mw)),
    })
}

/// Drives that spin up in a domain, by looking at each.
fn starting(spec: &RackSpec, states: &[PowerState], resource: ResourceId, domain: DomainId) -> u64 {
    let inside = spec.drives.iter().filter(|drive| spec.domain_of(drive.id, resource) == domain);
    let starts = |drive: &&DriveSpec| states[drive.id.index()] == PowerState::SpinningUp;
    inside.filter(starts).filter(|drive| !is_uncontrolled(spec, drive.id)).count() as u64
}

/// True if no hard limit is broken.
fn safe(spec: &RackSpec, states: &[PowerState]) -> bool {
    spec.resources_by_id().filter(|(_, resource)| resource.hard).all(|(id, resource)| {
        (0..DRIVES).map(DomainId).all(|domain| {
            let (active, mw) = recount(spec, states, id, domain);
            match resource.limit {
                DomainLimit::ActiveDrives(limit) => active <= u64::from(limit),
                DomainLimit::Watts(limit) => active == 0 || mw <= u64::from(limit) * 1_000,
                DomainLimit::StartingDrives(limit) => starting(spec, states, id, domain) <= u64::from(limit),
                DomainLimit::BytesPerS(_) => true,
            }
        })
    })
}

/// True if `drive` may spin up by the limits, now and when all drives that spin up now have got to full speed.
fn would_fit(spec: &RackSpec, states: &[PowerState], drive: DriveId) -> bool {
    if is_uncontrolled(spec, drive) {
        return true;
    }
    let mut worst = states.to_vec();
    worst[drive.index()] = PowerState::SpinningUp;
    let now = safe(spec, &worst);
    if spec.profile.watts.active_mw > spec.profile.watts.spin_up_mw {
        worst
            .iter_mut()
            .filter(|state| **state == PowerState::SpinningUp)
            .for_each(|state| *state = PowerState::Active);
    }
    now && safe(spec, &worst)
}

/// The first hard domain whose limit is too low for `drive` even if every other drive is asleep.
fn obstacle(ledger: &Ledger, drive: DriveId) -> Option<(ResourceId, DomainId)> {
    let standby_mw = u64::from(ledger.watts.standby_mw);
    if ledger.is_always_on(drive) {
        return None;
    }
    ledger.books.iter().filter(|book| book.hard).find_map(|book| {
        let domain = book.domain_of[drive.index()];
        // Nothing has a permit but what is always on.
        let others = *book.domain(drive);
        let alone = Domain {
            active: others.active + 1,
            starting: 1,
            draw_mw: others.draw_mw - standby_mw + ledger.draw_of(PowerState::SpinningUp),
        };
        (!book.holds(&alone)).then_some((book.resource, domain))
    })
}

fn check_books(spec: &RackSpec, ledger: &Ledger, states: &[PowerState]) {
    let controlled = spec.drives.iter().filter(|drive| !is_uncontrolled(spec, drive.id));
    let awake = controlled.filter(|drive| states[drive.id.index()] != PowerState::Standby).count();
    assert_eq!(ledger.active_drives(), awake);
    let in_use: Vec<_> = ledger.usage().collect();
    for (id, resource) in spec.resources_by_id() {
        for domain in (0..DRIVES).map(DomainId) {
            let (active, mw) = recount(spec, states, id, domain);
            let entry = in_use.iter().find(|entry| (entry.0, entry.1) == (id, domain));
            match resource.limit {
                DomainLimit::ActiveDrives(limit) => {
                    let expected = (active > 0).then_some((id, domain, active, u64::from(limit)));
                    assert_eq!(entry.copied(), expected);
                }
                DomainLimit::Watts(_) => {
                    assert_eq!(entry.is_some(), active > 0);
                    assert!(entry.is_none_or(|entry| entry.2 >= mw), "no less is booked than is drawn");
                }
                DomainLimit::StartingDrives(limit) => {
                    let starts = starting(spec, states, id, domain);
                    assert_eq!(entry.copied(), (active > 0).then_some((id, domain, starts, u64::from(limit))));
                }
                DomainLimit::BytesPerS(_) => assert_eq!(entry, None),
            }
        }
    }
}

proptest! {
    #[test]
    fn no_hard_domain_is_ever_above_its_limit_and_no_permit_is_lost(
        resources in prop::collection::vec(resource(), 1..4), watts in watts(), pool in 0..6_u32,
        uncontrolled in prop::collection::vec(0..DRIVES, 0..4),
        steps in prop::collection::vec((0..4_u8, prop::collection::vec(0..DRIVES, 1..DRIVES as usize)), 0..80),
    ) {
        let spec = with_always_on(rack(&resources, watts), pool, &uncontrolled);
        let mut ledger = Ledger::new(&spec);
        let mut states = std::vec![PowerState::Standby; DRIVES as usize];
        for (step, drives) in steps {
            let mut drives: Vec<_> = drives.into_iter().map(DriveId).collect();
            drives.sort_unstable();
            drives.dedup();
            let of = |state| drives.iter().copied().filter(|d| states[d.index()] == state).collect::<Vec<_>>();
            match step {
                0 | 1 => {
                    let asked = of(PowerState::Standby);
                    let granted = ledger.request(&asked);
                    for drive in asked {
                        prop_assert_eq!(granted.contains(&drive), would_fit(&spec, &states, drive));
                        if granted.contains(&drive) {
                            states[drive.index()] = PowerState::SpinningUp;
                        }
                    }
                }
                2 => for drive in of(PowerState::SpinningUp) {
                    ledger.spun_up(drive);
                    states[drive.index()] = PowerState::Active;
                },
                _ => for drive in &drives {
                    if states[drive.index()] != PowerState::Standby {
                        ledger.released(*drive);
                        states[drive.index()] = PowerState::Standby;
                    }
                },
            }
            prop_assert!(safe(&spec, &states), "a fuse has tripped");
            check_books(&spec, &ledger, &states);
        }
        for drive in (0..DRIVES).map(DriveId).filter(|d| states[d.index()] != PowerState::Standby) {
            ledger.released(drive);
        }
        let uncontrolled = (0..DRIVES).filter(|drive| is_uncontrolled(&spec, DriveId(*drive))).count() as u32;
        let on = u64::from(uncontrolled) + spec.pool.len() as u64;
        let uncontrolled_mw = u64::from(uncontrolled) * u64::from(watts.spin_up_mw.max(watts.active_mw));
        let on_mw = uncontrolled_mw + spec.pool.len() as u64 * u64::from(watts.active_mw);
        prop_assert_eq!(ledger.watts_mw(), u64::from((DRIVES - uncontrolled) * watts.standby_mw) + on_mw);
        prop_assert!(on > 0 || ledger.usage().next().is_none());
        for drive in (0..DRIVES).map(DriveId) {
            let obstacle = obstacle(&ledger, drive);
            let granted = !ledger.request(&[drive]).is_empty();
            prop_assert_eq!(granted, obstacle.is_none(), "alone, it gets its permit now or never");
            if granted {
                ledger.released(drive);
            }
        }
    }
}

const PAPER: Watts = Watts { standby_mw: 1_560, spin_up_mw: 21_530, active_mw: 9_420 };

fn drives(ids: core::ops::Range<u32>) -> Vec<DriveId> {
    ids.map(DriveId).collect()
}

#[test]
fn a_whole_group_starts_at_once_where_the_budgets_allow() {
    let spec = rack(&[(DomainLimit::ActiveDrives(1), true, DRIVES), (DomainLimit::ActiveDrives(2), true, 6)], PAPER);
    let mut ledger = Ledger::new(&spec);
    assert_eq!(ledger.request(&drives(0..DRIVES)), drives(0..DRIVES));
    assert_eq!(ledger.watts_mw(), 12 * 21_530);
}

#[test]
fn with_a_limit_of_watts_the_rest_starts_as_others_get_to_speed() {
    // Nine asleep 14.04 W, two starting 43.06 W; a third would need 76.64 W in all.
    let spec = rack(&[(DomainLimit::Watts(76), true, 1)], PAPER);
    let mut ledger = Ledger::new(&spec);
    assert_eq!(ledger.request(&drives(0..4)), drives(0..2));
    assert_eq!(ledger.request(&drives(2..4)), []);
    ledger.spun_up(DriveId(0));
    assert_eq!(ledger.request(&drives(2..4)), drives(2..3));
    assert_eq!(ledger.state(DriveId(3)), PowerState::Standby);
}

#[test]
fn a_drive_that_was_found_spinning_counts_as_starting_until_a_start_would_be_over() {
    let spec = with_always_on(rack(&[(DomainLimit::StartingDrives(1), true, 1)], PAPER), 1, &[]);
    let mut ledger = Ledger::new(&spec);
    let at_rest_mw = ledger.watts_mw();
    ledger.found_spinning(DriveId(0));
    let found_mw = ledger.watts_mw();
    assert_eq!(ledger.request(&drives(1..2)), []);
    ledger.found_at_speed(DriveId(0));
    assert_eq!(ledger.watts_mw(), found_mw, "its actual state is unknown");
    assert_eq!(ledger.request(&drives(1..2)), drives(1..2));
    // Beside a start that is under way, a drive that is found puts the domain above its limit.
    ledger.pool_stopped(PoolDriveId(0));
    ledger.pool_found_spinning(PoolDriveId(0));
    assert_eq!(ledger.usage().map(|(.., used, limit)| (used, limit)).collect::<Vec<_>>(), [(2, 1)]);
    ledger.pool_spun_up(PoolDriveId(0));
    ledger.spun_up(DriveId(1));
    (0..2).for_each(|drive| ledger.released(DriveId(drive)));
    assert_eq!(ledger.watts_mw(), at_rest_mw);
    // It is started in order now, and does not count as found.
    assert_eq!(ledger.request(&drives(0..1)), drives(0..1));
    ledger.found_at_speed(DriveId(0));
    assert_eq!(ledger.state(DriveId(0)), PowerState::SpinningUp);
}

#[test]
fn a_drive_that_nobody_controls_takes_its_part_at_all_times_and_needs_no_permit() {
    let spec = with_always_on(rack(&[(DomainLimit::ActiveDrives(2), true, 1)], PAPER), 0, &[3]);
    let mut ledger = Ledger::new(&spec);
    let asleep_mw = 11 * 1_560 + 21_530;
    assert_eq!(ledger.watts_mw(), asleep_mw);
    assert_eq!(ledger.request(&drives(0..4)), [DriveId(0), DriveId(3)], "one beside it, and it itself");
    assert_eq!((ledger.active_drives(), ledger.watts_mw()), (1, asleep_mw - 1_560 + 21_530));
    assert_eq!(ledger.usage().next(), Some((ResourceId(0), DomainId(0), 2, 2)));
    ledger.spun_up(DriveId(3));
    ledger.released(DriveId(3));
    assert_eq!(ledger.usage().next(), Some((ResourceId(0), DomainId(0), 2, 2)), "a stop gives nothing back");
    ledger.released(DriveId(0));
    assert_eq!((ledger.usage().next(), ledger.watts_mw()), (Some((ResourceId(0), DomainId(0), 1, 2)), asleep_mw));
}

#[test]
fn a_drive_that_does_not_fit_holds_no_other_back() {
    let spec = rack(&[(DomainLimit::ActiveDrives(1), true, 2)], PAPER);
    let granted = Ledger::new(&spec).request(&[DriveId(0), DriveId(2), DriveId(1)]);
    assert_eq!(granted, [DriveId(0), DriveId(1)]);
}

#[test]
fn soft_limits_hold_nobody_back_and_are_counted() {
    let spec = rack(&[(DomainLimit::ActiveDrives(1), false, 6)], PAPER);
    let mut ledger = Ledger::new(&spec);
    assert_eq!(ledger.request(&drives(0..8)).len(), 8);
    assert_eq!(ledger.soft_overruns(), 2);
}

#[test]
fn a_permit_that_can_never_be_given_is_known_with_its_reason() {
    let spec = rack(&[(DomainLimit::ActiveDrives(1), true, 3), (DomainLimit::Watts(30), true, 1)], PAPER);
    let ledger = Ledger::new(&spec);
    assert!(obstacle(&ledger, DriveId(5)).is_some());
    assert_eq!(obstacle(&ledger, DriveId(5)), Some((ResourceId(1), DomainId(0))));
}

#[test]
#[should_panic(expected = "has a permit already")]
fn asking_twice_is_a_fault() {
    let mut ledger = Ledger::new(&rack(&[(DomainLimit::ActiveDrives(2), true, 1)], PAPER));
    ledger.request(&[DriveId(0), DriveId(0)]);
}

#[test]
#[should_panic(expected = "no permit to give back")]
fn giving_back_what_one_does_not_have_is_a_fault() {
    Ledger::new(&rack(&[(DomainLimit::ActiveDrives(2), true, 1)], PAPER)).released(DriveId(0));
}
