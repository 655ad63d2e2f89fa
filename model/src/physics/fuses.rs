//! The fuses of a rack: they know the drives that spin in each domain of a hard resource, and trip when its limit is
//! exceeded.
//!
//! Invariants:
//! - A drive that spins down counts as active until its platters stand still.
//! - A fuse that trips takes every drive of its domain away.

use super::drive::PowerState;
use crate::id::{DomainId, DriveId, PoolDriveId, ResourceId};
use crate::rack::{DomainLimit, RackSpec, Watts};
use crate::time::Time;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

/// A fuse that tripped: the load on one domain of a hard resource was too high.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The resource.
    pub resource: ResourceId,
    /// The number of its domain.
    pub domain: DomainId,
    /// Every drive of the domain: all of them are away until the fuse resets.
    pub drives: Vec<DriveId>,
    /// When it resets; the drives then answer again, in standby.
    pub reset_at: Time,
}

/// The state of a drive's platters for the fuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turning {
    No,
    /// Started; at speed from this time on.
    Since(Time),
    /// Stopped; standing still from this time on.
    Until(Time),
}

impl Turning {
    fn at(self, now: Time) -> PowerState {
        match self {
            Self::Since(at_speed) if now < at_speed => PowerState::SpinningUp,
            Self::Since(_) => PowerState::Active,
            Self::Until(still) if now < still => PowerState::SpinningDown,
            Self::Until(_) | Self::No => PowerState::Standby,
        }
    }
}

/// One domain of a hard resource.
#[derive(Clone, Debug)]
struct Fuse {
    resource: ResourceId,
    domain: DomainId,
    limit: DomainLimit,
    drives: Vec<DriveId>,
    /// The drives of the domain that were started, without those that stood still at the last start.
    started: Vec<DriveId>,
    /// The number of drives of the rack, and of the pool of small records, that count as active at all times.
    always_on: u64,
    /// The times at which started drives of the pool reach speed, without those that had reached it at the last start.
    pool_at_speed: Vec<Time>,
    /// When a tripped fuse resets; [`Time::ZERO`] if it never tripped.
    reset_at: Time,
}

/// The fuses of a rack, one for each domain of each hard [`DomainLimit::ActiveDrives`], [`DomainLimit::StartingDrives`]
/// or [`DomainLimit::Watts`] resource. They know nothing of groups, classes or permits, so no error in those keeps a
/// fuse from tripping.
#[derive(Clone, Debug)]
pub struct Fuses {
    domains: Vec<Fuse>,
    /// The fuses of each drive, in the order of the resources, drive after drive: one for each resource.
    of_drive: Vec<usize>,
    each_hangs_on: usize,
    /// The fuses that limit the starts of each drive of the pool. For the other fuses it counts as active at all times.
    of_pool_drive: Vec<Vec<usize>>,
    turning: Vec<Turning>,
    /// By drive: true if it counts at all times, regardless of the commands that it gets.
    is_always_on: Vec<bool>,
    /// When the last fuse that ever tripped resets.
    all_reset_at: Time,
    watts: Watts,
    always_on_mw: u64,
    reset_after: Duration,
}

impl Fuses {
    /// The fuses of `rack`; each resets `reset_after` after it tripped. Nothing spins.
    pub fn new(rack: &RackSpec, reset_after: Duration) -> Self {
        let mut domains = Vec::new();
        let mut firsts = Vec::new();
        let mut of_pool_drive = alloc::vec![Vec::new(); rack.pool.len()];
        for (resource, described) in rack.resources_by_id() {
            if !described.hard || matches!(described.limit, DomainLimit::BytesPerS(_)) {
                continue;
            }
            let first = domains.len();
            firsts.push((resource, first));
            let always_on = rack.always_on_in(resource).into_iter();
            domains.extend(always_on.enumerate().map(|(domain, always_on)| Fuse {
                resource,
                domain: DomainId(domain as u32),
                limit: described.limit,
                drives: Vec::new(),
                always_on,
                started: Vec::new(),
                pool_at_speed: Vec::new(),
                reset_at: Time::ZERO,
            }));
            if matches!(described.limit, DomainLimit::StartingDrives(_)) {
                for (drive, fuses) in rack.pool.iter().zip(&mut of_pool_drive) {
                    fuses.extend(drive.resource_domains[resource.index()].map(|domain| first + domain.index()));
                }
            }
            for drive in &rack.drives {
                let fuse = first + rack.domain_of(drive.id, resource).index();
                domains[fuse].drives.push(drive.id);
            }
        }
        let fuse_of = |drive, &(resource, first): &(_, usize)| first + rack.domain_of(drive, resource).index();
        let of_drive = rack.drives.iter().flat_map(|drive| firsts.iter().map(|at| fuse_of(drive.id, at))).collect();
        let turning = alloc::vec![Turning::No; rack.drives.len()];
        let each_hangs_on = firsts.len();
        Self {
            domains,
            of_drive,
            each_hangs_on,
            of_pool_drive,
            turning,
            is_always_on: rack.drives.iter().map(|drive| rack.is_always_on(drive.id)).collect(),
            all_reset_at: Time::ZERO,
            watts: rack.profile.watts,
            always_on_mw: rack.always_on_mw(),
            reset_after,
        }
    }

    /// The positions of the fuses of `drive` among those of all drives.
    fn of(&self, drive: DriveId) -> Range<usize> {
        let first = drive.index() * self.each_hangs_on;
        first..first + self.each_hangs_on
    }

    /// Drive `drive` starts at `now` and will be at speed at `at_speed`. The fuse of the first of its domains, in the
    /// order of the resources, that is overloaded trips. No other fuse trips, since this drive is away then.
    pub fn spin_up(&mut self, now: Time, drive: DriveId, at_speed: Time) -> Option<Trip> {
        assert!(self.tripped(now, drive).is_none(), "{drive} has no power");
        assert!(at_speed >= now, "{drive} is at speed after it started");
        if self.is_always_on[drive.index()] {
            return None;
        }
        self.turning[drive.index()] = Turning::Since(at_speed);
        let fuses = self.of(drive);
        for fuse in &self.of_drive[fuses.clone()] {
            let started = &mut self.domains[*fuse].started;
            started.retain(|other| *other != drive && self.turning[other.index()].at(now) != PowerState::Standby);
            started.push(drive);
        }
        let broken = self.of_drive[fuses].iter().copied().find(|&fuse| self.overloaded(now, fuse))?;
        assert!(self.domains[broken].drives.contains(&drive), "a fuse trips for a drive of its domain");
        Some(self.trip(now, broken))
    }

    /// Drive `drive` of the pool starts at `now` and will be at speed at `at_speed`. Of the domains that limit its
    /// starts, the first that is overloaded trips its fuse.
    pub fn pool_spin_up(&mut self, now: Time, drive: PoolDriveId, at_speed: Time) -> Option<Trip> {
        assert!(at_speed >= now, "{drive} is at speed after it started");
        let fuses = self.of_pool_drive[drive.index()].clone();
        for fuse in &fuses {
            let starting = &mut self.domains[*fuse].pool_at_speed;
            starting.retain(|at_speed| *at_speed > now);
            starting.push(at_speed);
        }
        let broken = fuses.into_iter().find(|&fuse| self.overloaded(now, fuse))?;
        Some(self.trip(now, broken))
    }

    /// Trips the fuse of `resource` for `drive` without a reason; `None` if the drive has no such fuse.
    pub fn trip_around(&mut self, now: Time, resource: ResourceId, drive: DriveId) -> Option<Trip> {
        let mut fuses = self.of_drive[self.of(drive)].iter().copied();
        let fuse = fuses.find(|&fuse| self.domains[fuse].resource == resource)?;
        Some(self.trip(now, fuse))
    }

    fn trip(&mut self, now: Time, fuse: usize) -> Trip {
        let reset_at = now + self.reset_after;
        let fuse = &mut self.domains[fuse];
        fuse.reset_at = reset_at;
        self.all_reset_at = self.all_reset_at.max(reset_at);
        fuse.pool_at_speed.clear();
        for lost in &fuse.drives {
            self.turning[lost.index()] = Turning::No;
        }
        Trip { resource: fuse.resource, domain: fuse.domain, drives: fuse.drives.clone(), reset_at }
    }

    /// Drive `drive` was stopped and will stand still at `still`.
    pub fn stop(&mut self, drive: DriveId, still: Time) {
        if !self.is_always_on[drive.index()] {
            self.turning[drive.index()] = Turning::Until(still);
        }
    }

    /// Drive `drive` loses its power, although no fuse tripped.
    pub fn lose(&mut self, drive: DriveId) {
        self.turning[drive.index()] = Turning::No;
    }

    /// The tripped fuse that keeps `drive` away at `now`; if there are several, the one that resets last.
    pub fn tripped(&self, now: Time, drive: DriveId) -> Option<(ResourceId, DomainId, Time)> {
        if self.all_reset_at <= now {
            return None;
        }
        let fuses = self.of_drive[self.of(drive)].iter().map(|&fuse| &self.domains[fuse]);
        let last = fuses.filter(|fuse| fuse.reset_at > now).max_by_key(|fuse| fuse.reset_at)?;
        Some((last.resource, last.domain, last.reset_at))
    }

    fn overloaded(&self, now: Time, fuse: usize) -> bool {
        let fuse = &self.domains[fuse];
        let states = fuse.started.iter().map(|drive| self.turning[drive.index()].at(now));
        match fuse.limit {
            DomainLimit::ActiveDrives(limit) => {
                let active = states.filter(|state| *state != PowerState::Standby).count() as u64;
                active + fuse.always_on > u64::from(limit)
            }
            DomainLimit::StartingDrives(limit) => {
                let of_pool = fuse.pool_at_speed.iter().filter(|at_speed| **at_speed > now).count();
                states.filter(|state| *state == PowerState::SpinningUp).count() + of_pool > limit as usize
            }
            DomainLimit::Watts(limit) => {
                let others = fuse.drives.iter().filter(|drive| !self.is_always_on[drive.index()]);
                let drawn_mw: u64 = others.map(|drive| u64::from(self.draw_mw(now, *drive))).sum();
                drawn_mw + fuse.always_on * self.always_on_mw > u64::from(limit) * 1000
            }
            DomainLimit::BytesPerS(_) => false,
        }
    }

    fn draw_mw(&self, now: Time, drive: DriveId) -> u32 {
        match self.turning[drive.index()].at(now) {
            PowerState::Standby if self.tripped(now, drive).is_some() => 0,
            state => self.watts.in_state_mw(state),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::drive::tests::profile;
    use super::*;
    use crate::rack::{Code, DrivePower, DriveSpec, PoolDriveSpec, RackDraft, Resource};
    use alloc::borrow::ToOwned;
    use alloc::vec;

    /// Eight drives: trays of four (two may spin, or a limit on watts), columns of two (one may spin).
    fn rack(tray: DomainLimit) -> RackSpec {
        let resource = |name: &str, limit, hard| Resource { name: name.to_owned(), limit, hard };
        let one = |i: u32| DriveSpec {
            id: DriveId(i),
            slot: [i as u16, 0, 0],
            resource_domains: vec![DomainId(i / 4), DomainId(i % 4), DomainId(0)],
            failure_domains: vec![],
            capacity_bytes: None,
            bytes_per_s: None,
            path: None,
            power: DrivePower::Own,
        };
        let draft = RackDraft {
            name: "small".to_owned(),
            code: Code { data: 1, parity: 1, fragment_bytes: 4096 },
            group_drives: 2,
            pack_bytes: 1_000_000,
            resources: vec![
                resource("power", tray, true),
                resource("cooling", DomainLimit::ActiveDrives(1), true),
                resource("vibration", DomainLimit::ActiveDrives(1), false),
            ],
            failure_domains: vec![],
            drives: (0..8).map(one).collect(),
            pool: Vec::new(),
            profile: profile(),
        };
        RackSpec::validated(draft).unwrap()
    }

    #[test]
    fn the_third_drive_of_a_tray_for_two_trips_its_fuse() {
        let mut fuses = Fuses::new(&rack(DomainLimit::ActiveDrives(2)), Duration::from_secs(30));
        let (now, at_speed) = (Time::from_secs(1), Time::from_secs(9));
        assert_eq!(fuses.spin_up(now, DriveId(0), at_speed), None);
        assert_eq!(fuses.spin_up(now, DriveId(1), at_speed), None);
        let trip = fuses.spin_up(now, DriveId(2), at_speed).unwrap();
        assert_eq!((trip.resource, trip.domain), (ResourceId(0), DomainId(0)));
        assert_eq!(trip.drives, [0, 1, 2, 3].map(DriveId));
        assert_eq!(trip.reset_at, Time::from_secs(31));
        assert_eq!(fuses.tripped(now, DriveId(3)), Some((ResourceId(0), DomainId(0), trip.reset_at)));
        assert_eq!(fuses.tripped(now, DriveId(4)), None);
        assert_eq!(fuses.tripped(trip.reset_at, DriveId(3)), None);
        // The columns of the lost drives are free again.
        assert_eq!(fuses.spin_up(now, DriveId(4), at_speed), None);
    }

    #[test]
    fn a_drive_that_spins_down_still_counts() {
        let mut fuses = Fuses::new(&rack(DomainLimit::ActiveDrives(2)), Duration::from_secs(30));
        assert_eq!(fuses.spin_up(Time::ZERO, DriveId(0), Time::from_secs(8)), None);
        fuses.stop(DriveId(0), Time::from_secs(20));
        let trip = fuses.clone().spin_up(Time::from_secs(19), DriveId(4), Time::MAX).unwrap();
        assert_eq!((trip.resource, trip.drives), (ResourceId(1), vec![DriveId(0), DriveId(4)]));
        assert_eq!(fuses.spin_up(Time::from_secs(20), DriveId(4), Time::MAX), None);
        fuses.lose(DriveId(4));
        assert_eq!(fuses.spin_up(Time::from_secs(20), DriveId(0), Time::MAX), None);
    }

    #[test]
    fn a_limit_on_starts_trips_for_two_that_start_and_not_for_two_that_turn() {
        let mut fuses = Fuses::new(&rack(DomainLimit::StartingDrives(1)), Duration::from_secs(30));
        assert_eq!(fuses.spin_up(Time::ZERO, DriveId(0), Time::from_secs(8)), None);
        let trip = fuses.clone().spin_up(Time::from_secs(7), DriveId(1), Time::from_secs(15)).unwrap();
        assert_eq!((trip.resource, trip.drives.len()), (ResourceId(0), 4));
        assert_eq!(fuses.spin_up(Time::from_secs(8), DriveId(1), Time::from_secs(16)), None);
        assert_eq!(fuses.spin_up(Time::from_secs(16), DriveId(2), Time::from_secs(24)), None, "three turn, one starts");
    }

    #[test]
    fn a_start_in_the_pool_counts_where_starts_are_limited() {
        let mut draft = RackDraft::clone(&rack(DomainLimit::StartingDrives(1)));
        let resource_domains = vec![Some(DomainId(0)), None, None];
        let inside = PoolDriveSpec { slot: None, resource_domains, path: None, disk: None };
        let outside = PoolDriveSpec { resource_domains: vec![None; 3], ..inside.clone() };
        draft.pool = vec![inside, outside];
        let mut fuses = Fuses::new(&RackSpec::validated(draft).unwrap(), Duration::from_secs(30));
        assert_eq!(fuses.pool_spin_up(Time::ZERO, PoolDriveId(0), Time::from_secs(8)), None);
        assert_eq!(fuses.pool_spin_up(Time::ZERO, PoolDriveId(1), Time::from_secs(8)), None);
        assert_eq!(fuses.spin_up(Time::from_secs(8), DriveId(0), Time::from_secs(16)), None);
        let trip = fuses.clone().pool_spin_up(Time::from_secs(9), PoolDriveId(0), Time::from_secs(17)).unwrap();
        assert_eq!((trip.resource, trip.drives.len()), (ResourceId(0), 4));
        assert_eq!(fuses.pool_spin_up(Time::from_secs(16), PoolDriveId(0), Time::from_secs(24)), None);
        assert!(fuses.spin_up(Time::from_secs(17), DriveId(1), Time::from_secs(25)).is_some());
    }

    #[test]
    fn drives_of_the_pool_count_at_all_times() {
        let mut draft = RackDraft::clone(&rack(DomainLimit::ActiveDrives(2)));
        let domains = vec![Some(DomainId(0)), None, None];
        draft.pool = vec![PoolDriveSpec { slot: None, resource_domains: domains, path: None, disk: None }];
        let mut fuses = Fuses::new(&RackSpec::validated(draft).unwrap(), Duration::from_secs(30));
        let (now, at_speed) = (Time::from_secs(1), Time::from_secs(9));
        assert_eq!(fuses.spin_up(now, DriveId(0), at_speed), None);
        assert_eq!(fuses.spin_up(now, DriveId(1), at_speed).map(|trip| trip.resource), Some(ResourceId(0)));
    }

    #[test]
    fn drives_that_nobody_controls_count_at_all_times_and_trip_nothing() {
        let mut draft = RackDraft::clone(&rack(DomainLimit::ActiveDrives(2)));
        draft.drives[3].power = DrivePower::None;
        let mut fuses = Fuses::new(&RackSpec::validated(draft).unwrap(), Duration::from_secs(30));
        let (now, at_speed) = (Time::from_secs(1), Time::from_secs(9));
        assert_eq!(fuses.spin_up(now, DriveId(0), at_speed), None);
        assert_eq!(fuses.spin_up(now, DriveId(3), now), None, "it turned all the while");
        fuses.stop(DriveId(3), now);
        let trip = fuses.spin_up(now, DriveId(1), at_speed).unwrap();
        assert_eq!((trip.resource, trip.drives.len()), (ResourceId(0), 4), "it still turns, and loses its power too");
    }

    #[test]
    fn watts_are_added_up_with_those_asleep() {
        // Two spinning up and two asleep draw 46.18 W; one at speed, one spinning up, 34.07 W; soft vibration never
        // trips.
        let rack = rack(DomainLimit::Watts(40));
        let mut fuses = Fuses::new(&rack, Duration::from_secs(30));
        assert_eq!(fuses.spin_up(Time::ZERO, DriveId(0), Time::from_secs(8)), None);
        let at_once = fuses.clone().spin_up(Time::from_secs(7), DriveId(1), Time::from_secs(15));
        assert_eq!(at_once.map(|trip| trip.resource), Some(ResourceId(0)));
        assert_eq!(fuses.spin_up(Time::from_secs(8), DriveId(1), Time::from_secs(16)), None);
    }
}
