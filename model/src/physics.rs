//! The physics of drives: the truth of an emulated or simulated one, as opposed to what the engine believes.
//!
//! ```text
//!               spin_up                (time passes)
//!   Standby ---------------> SpinningUp ------------> Active --- mount / unmount / transfer
//!      ^                                                 |
//!      |  (time passes)                                  | stop
//!      +------------------- SpinningDown <---------------+          any state --lose--> Away --come_back--> Standby
//! ```
//!
//! A [`DrivePhysics`] is told of commands and the moment they are given, and answers with the moment they are done; the
//! caller does the waiting. [`Fuses`] know what spins in each hard domain of a rack and trip when that is too much.
//!
//! Invariants:
//! - Time never runs backwards for a drive; a moment before the last one counts as the last one.
//! - A drive draws its durations from a random stream of its own: what other drives do shifts none of them.
//! - Platters that still turn count as turning: a drive that spins down is active to the fuses and to the meter until
//!   it stands still.
//! - Energy is counted in whole picojoules (milliwatts x nanoseconds), so that it does not depend on how often one
//!   looks.

use crate::{DomainId, DomainLimit, DriveId, DriveProfile, RackSpec, ResourceId, Rng, Time, Watts, transfer_time};
use alloc::vec::Vec;
use core::time::Duration;

/// What the platters of a drive do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// They stand still; the electronics are on.
    Standby,
    /// They are on their way to speed.
    SpinningUp,
    /// They turn at speed.
    Active,
    /// They are on their way to a standstill.
    SpinningDown,
    /// The drive has no power, or has died: it does not answer.
    Away,
}

/// How busy the server is that mounts the drive (Pelican, section 5: two load regimes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// The profile's `mount`.
    #[default]
    Idle,
    /// The profile's `mount_busy`.
    Busy,
}

/// A command came while the drive could not obey it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What its platters did.
    pub state: PowerState,
    /// Whether its file system was mounted.
    pub mounted: bool,
}

/// Energy drawn so far, in millijoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// While the platters stood still.
    pub standby_mj: u64,
    /// While spinning up.
    pub spin_up_mj: u64,
    /// While turning, and while spinning down.
    pub active_mj: u64,
}

impl Energy {
    /// In all.
    pub fn total_mj(&self) -> u64 {
        self.standby_mj + self.spin_up_mj + self.active_mj
    }
}

impl core::ops::AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        self.standby_mj += other.standby_mj;
        self.spin_up_mj += other.spin_up_mj;
        self.active_mj += other.active_mj;
    }
}

impl Watts {
    /// What a drive draws in `state`, in milliwatts.
    pub fn in_state_mw(&self, state: PowerState) -> u32 {
        match state {
            PowerState::Standby => self.standby_mw,
            PowerState::SpinningUp => self.spin_up_mw,
            PowerState::Active | PowerState::SpinningDown => self.active_mw,
            PowerState::Away => 0,
        }
    }
}

/// Milliwatts x nanoseconds in a millijoule.
const PICOJOULES_PER_MJ: u128 = 1_000_000_000;

/// The truth of one drive.
#[derive(Clone, Debug)]
pub struct DrivePhysics {
    profile: DriveProfile,
    rng: Rng,
    state: PowerState,
    /// When `state` ends by itself; [`Time::MAX`] if it does not.
    state_ends: Time,
    mounted: bool,
    /// Up to when energy is counted.
    seen: Time,
    standby_pj: u128,
    spin_up_pj: u128,
    active_pj: u128,
    /// When the heads are free again.
    busy_until: Time,
    /// Where they are then: behind this byte of this file.
    position: Option<(u64, u64)>,
    starts: u32,
    losses: u32,
}

impl DrivePhysics {
    /// Drive `drive` of a rack under `seed`: in standby since [`Time::ZERO`], unmounted.
    pub fn new(profile: DriveProfile, seed: u64, drive: DriveId) -> Self {
        Self {
            profile,
            rng: Rng::for_thing(seed, u64::from(drive.0)),
            state: PowerState::Standby,
            state_ends: Time::MAX,
            mounted: false,
            seen: Time::ZERO,
            standby_pj: 0,
            spin_up_pj: 0,
            active_pj: 0,
            busy_until: Time::ZERO,
            position: None,
            starts: 0,
            losses: 0,
        }
    }

    /// Starts to count energy at `now` rather than at [`Time::ZERO`], for a drive that comes into being later.
    #[must_use]
    pub fn from(mut self, now: Time) -> Self {
        assert!(self.starts == 0 && self.seen == Time::ZERO, "a drive comes into being once");
        self.seen = now;
        self
    }

    /// Lets time pass until `now`: counts the energy, and ends states that end by themselves.
    fn settle(&mut self, now: Time) {
        if self.state_ends <= now {
            self.draw_until(self.state_ends);
            self.state = match self.state {
                PowerState::SpinningUp => PowerState::Active,
                PowerState::SpinningDown => PowerState::Standby,
                other => other,
            };
            self.state_ends = Time::MAX;
        }
        self.draw_until(now);
    }

    fn draw_until(&mut self, until: Time) {
        let drawn_pj = until.since(self.seen).as_nanos() * u128::from(self.profile.watts.in_state_mw(self.state));
        match self.state {
            PowerState::Standby => self.standby_pj += drawn_pj,
            PowerState::SpinningUp => self.spin_up_pj += drawn_pj,
            PowerState::Active | PowerState::SpinningDown => self.active_pj += drawn_pj,
            PowerState::Away => {}
        }
        self.seen = self.seen.max(until);
    }

    fn refused(&self) -> Refused {
        Refused { state: self.state, mounted: self.mounted }
    }

    /// What the platters do at `now`.
    pub fn state(&mut self, now: Time) -> PowerState {
        self.settle(now);
        self.state
    }

    /// Whether files can be reached at `now`.
    ///
    /// # Errors
    /// [`Refused`] if the platters do not turn at speed, or nothing is mounted.
    pub fn ready(&mut self, now: Time) -> Result<(), Refused> {
        self.settle(now);
        if self.state == PowerState::Active && self.mounted { Ok(()) } else { Err(self.refused()) }
    }

    /// Starts the platters; answers when they will turn at speed. A drive that turns already is there at once.
    ///
    /// # Errors
    /// [`Refused`] if the platters are on their way to a standstill, or the drive is away.
    pub fn spin_up(&mut self, now: Time) -> Result<Time, Refused> {
        self.settle(now);
        match self.state {
            PowerState::Active => Ok(now),
            PowerState::SpinningUp => Ok(self.state_ends),
            PowerState::Standby => {
                self.starts += 1;
                self.position = None;
                self.state = PowerState::SpinningUp;
                self.state_ends = now + self.profile.spin_up.sample(&mut self.rng);
                Ok(self.state_ends)
            }
            PowerState::SpinningDown | PowerState::Away => Err(self.refused()),
        }
    }

    /// Stops the platters; answers when they will stand still. The file system must be unmounted. A drive whose
    /// platters stand still already is done at once; one on its way to speed turns round.
    ///
    /// # Errors
    /// [`Refused`] if the file system is mounted, or the drive is away.
    pub fn stop(&mut self, now: Time) -> Result<Time, Refused> {
        self.settle(now);
        match self.state {
            PowerState::Standby => Ok(now),
            PowerState::SpinningDown => Ok(self.state_ends),
            PowerState::Active | PowerState::SpinningUp if !self.mounted => {
                self.state = PowerState::SpinningDown;
                self.state_ends = now.max(self.busy_until) + self.profile.spin_down.sample(&mut self.rng);
                Ok(self.state_ends)
            }
            _ => Err(self.refused()),
        }
    }

    /// Mounts the file system; answers when it will be mounted. It counts as mounted from now on; whoever does not wait
    /// reads from a drive whose heads are busy until then.
    ///
    /// # Errors
    /// [`Refused`] if the platters do not turn at speed.
    pub fn mount(&mut self, now: Time, load: Load) -> Result<Time, Refused> {
        self.settle(now);
        if self.state != PowerState::Active {
            return Err(self.refused());
        }
        if !self.mounted {
            let span = match load {
                Load::Idle => &self.profile.mount,
                Load::Busy => &self.profile.mount_busy,
            };
            self.busy_until = now.max(self.busy_until) + span.sample(&mut self.rng);
            self.position = None;
            self.mounted = true;
        }
        Ok(self.busy_until.max(now))
    }

    /// Unmounts the file system; answers when that will be done. Nothing can be reached from now on.
    ///
    /// # Errors
    /// [`Refused`] if the platters do not turn at speed.
    pub fn unmount(&mut self, now: Time) -> Result<Time, Refused> {
        self.settle(now);
        if self.state != PowerState::Active {
            return Err(self.refused());
        }
        if self.mounted {
            self.busy_until = now.max(self.busy_until) + self.profile.unmount.sample(&mut self.rng);
            self.mounted = false;
        }
        Ok(self.busy_until.max(now))
    }

    /// Transfers `bytes` bytes at `offset` of the file numbered `file`; answers when that will be done. Transfers
    /// follow each other; one that does not go on where the last one ended starts with a seek.
    ///
    /// # Errors
    /// [`Refused`] if the drive is not [`ready`](Self::ready).
    pub fn transfer(&mut self, now: Time, file: u64, offset: u64, bytes: u64) -> Result<Time, Refused> {
        self.ready(now)?;
        let seek = if self.position == Some((file, offset)) { Duration::ZERO } else { self.profile.seek };
        let start = now.max(self.busy_until);
        self.busy_until = start + seek + transfer_time(bytes, self.profile.bytes_per_s);
        self.position = Some((file, offset.saturating_add(bytes)));
        Ok(self.busy_until)
    }

    /// Changes something about the file system itself (a name, a sync): a seek, after which the heads are elsewhere.
    ///
    /// # Errors
    /// [`Refused`] if the drive is not [`ready`](Self::ready).
    pub fn touch(&mut self, now: Time) -> Result<Time, Refused> {
        self.ready(now)?;
        self.busy_until = now.max(self.busy_until) + self.profile.seek;
        self.position = None;
        Ok(self.busy_until)
    }

    /// The power is gone, or the drive died: it does not answer any more.
    pub fn lose(&mut self, now: Time) {
        self.settle(now);
        if self.state != PowerState::Away {
            self.losses += 1;
        }
        self.state = PowerState::Away;
        self.state_ends = Time::MAX;
        self.mounted = false;
        self.busy_until = now;
        self.position = None;
    }

    /// The drive answers again, in standby. Nothing happens to one that was not away.
    pub fn come_back(&mut self, now: Time) {
        self.settle(now);
        if self.state == PowerState::Away {
            self.state = PowerState::Standby;
        }
    }

    /// How often the platters were started.
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// How often the drive went away: whoever waits for it can tell by this that it was gone in between.
    #[inline]
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// What it draws at `now`, in milliwatts.
    pub fn draw_mw(&mut self, now: Time) -> u32 {
        self.settle(now);
        self.profile.watts.in_state_mw(self.state)
    }

    /// What it has drawn until `now`.
    pub fn energy(&mut self, now: Time) -> Energy {
        self.settle(now);
        let mj = |pj: u128| u64::try_from(pj / PICOJOULES_PER_MJ).unwrap_or(u64::MAX);
        Energy { standby_mj: mj(self.standby_pj), spin_up_mj: mj(self.spin_up_pj), active_mj: mj(self.active_pj) }
    }
}

/// A fuse that tripped: too much was asked of one domain of a hard resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The resource.
    pub resource: ResourceId,
    /// Which of its domains.
    pub domain: DomainId,
    /// Every drive of the domain: all of them are gone until the fuse resets.
    pub drives: Vec<DriveId>,
    /// When it resets; the drives then answer again, in standby.
    pub reset_at: Time,
}

/// What a drive means to the fuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turning {
    No,
    /// Started; at speed from this moment on.
    Since(Time),
    /// Stopped; standing still from this moment on.
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

/// One domain of a hard resource that limits what may spin.
#[derive(Clone, Debug)]
struct Fuse {
    resource: ResourceId,
    domain: DomainId,
    limit: DomainLimit,
    drives: Vec<DriveId>,
    /// When a tripped fuse resets; [`Time::ZERO`] if it never tripped.
    reset_at: Time,
}

/// The fuses of a rack: for each domain of each hard [`DomainLimit::ActiveDrives`], [`DomainLimit::StartingDrives`] or
/// [`DomainLimit::Watts`] resource, what really spins there. They know nothing of groups, classes or permits; no error
/// above can talk them out of tripping.
#[derive(Clone, Debug)]
pub struct Fuses {
    domains: Vec<Fuse>,
    /// The fuses of each drive, in the order of the resources.
    of_drive: Vec<Vec<usize>>,
    turning: Vec<Turning>,
    watts: Watts,
    reset_after: Duration,
}

impl Fuses {
    /// The fuses of `rack`, each of which resets `reset_after` after it tripped. Nothing spins.
    pub fn new(rack: &RackSpec, reset_after: Duration) -> Self {
        let mut domains = Vec::new();
        let mut of_drive = alloc::vec![Vec::new(); rack.drives.len()];
        for (resource, described) in rack.resources_by_id() {
            if !described.hard || matches!(described.limit, DomainLimit::BytesPerS(_)) {
                continue;
            }
            let first = domains.len();
            domains.extend((0..rack.domain_count(resource)).map(|domain| Fuse {
                resource,
                domain: DomainId(domain as u32),
                limit: described.limit,
                drives: Vec::new(),
                reset_at: Time::ZERO,
            }));
            for drive in &rack.drives {
                let fuse = first + rack.domain_of(drive.id, resource).index();
                domains[fuse].drives.push(drive.id);
                of_drive[drive.id.index()].push(fuse);
            }
        }
        let turning = alloc::vec![Turning::No; rack.drives.len()];
        Self { domains, of_drive, turning, watts: rack.profile.watts, reset_after }
    }

    /// Drive `drive` starts at `now` and will be at speed at `at_speed`. If that is too much for one of its domains,
    /// the fuse of that domain trips. Only the first one does, in the order of the resources: it takes this drive away,
    /// and thereby what was too much for the others.
    pub fn spin_up(&mut self, now: Time, drive: DriveId, at_speed: Time) -> Option<Trip> {
        assert!(self.tripped(now, drive).is_none(), "{drive} has no power");
        self.turning[drive.index()] = Turning::Since(at_speed);
        let broken = self.of_drive[drive.index()].iter().copied().find(|&fuse| self.overloaded(now, fuse))?;
        let reset_at = now + self.reset_after;
        let fuse = &mut self.domains[broken];
        fuse.reset_at = reset_at;
        for lost in &fuse.drives {
            self.turning[lost.index()] = Turning::No;
        }
        Some(Trip { resource: fuse.resource, domain: fuse.domain, drives: fuse.drives.clone(), reset_at })
    }

    /// Drive `drive` was stopped and will stand still at `still`.
    pub fn stop(&mut self, drive: DriveId, still: Time) {
        self.turning[drive.index()] = Turning::Until(still);
    }

    /// Drive `drive` has no power any more, for a reason of its own.
    pub fn lose(&mut self, drive: DriveId) {
        self.turning[drive.index()] = Turning::No;
    }

    /// The tripped fuse that keeps `drive` away at `now`, if there is one; the one that resets last, if there are
    /// several.
    pub fn tripped(&self, now: Time, drive: DriveId) -> Option<(ResourceId, DomainId, Time)> {
        let fuses = self.of_drive[drive.index()].iter().map(|&fuse| &self.domains[fuse]);
        let last = fuses.filter(|fuse| fuse.reset_at > now).max_by_key(|fuse| fuse.reset_at)?;
        Some((last.resource, last.domain, last.reset_at))
    }

    fn overloaded(&self, now: Time, fuse: usize) -> bool {
        let fuse = &self.domains[fuse];
        match fuse.limit {
            DomainLimit::ActiveDrives(limit) => {
                let turning =
                    fuse.drives.iter().filter(|d| self.turning[d.index()].at(now) != PowerState::Standby).count();
                turning > limit as usize
            }
            DomainLimit::StartingDrives(limit) => {
                let starting =
                    fuse.drives.iter().filter(|d| self.turning[d.index()].at(now) == PowerState::SpinningUp).count();
                starting > limit as usize
            }
            DomainLimit::Watts(limit) => {
                let drawn_mw: u64 = fuse.drives.iter().map(|d| u64::from(self.draw_mw(now, *d))).sum();
                drawn_mw > u64::from(limit) * 1000
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
    use super::*;
    use crate::{Code, Distribution, DriveSpec, RackDraft, Resource};
    use alloc::borrow::ToOwned;
    use alloc::vec;

    const MIB: u64 = 1 << 20;

    fn profile() -> DriveProfile {
        let seconds =
            |min, max| Distribution { min: Duration::from_secs(min), max: Duration::from_secs(max), draws: 4 };
        DriveProfile {
            capacity_bytes: 1_000_000_000_000,
            bytes_per_s: 100_000_000,
            seek: Duration::from_millis(4),
            spin_up: seconds(8, 12),
            mount: seconds(2, 3),
            mount_busy: seconds(20, 30),
            unmount: seconds(1, 2),
            spin_down: seconds(1, 1),
            watts: Watts { standby_mw: 1_560, spin_up_mw: 21_530, active_mw: 9_420 },
            rated_starts: 30_000,
            life_years: 8,
        }
    }

    fn drive() -> DrivePhysics {
        DrivePhysics::new(profile(), 1, DriveId(0))
    }

    fn ready_drive() -> (DrivePhysics, Time) {
        let mut drive = drive();
        let at_speed = drive.spin_up(Time::ZERO).unwrap();
        let mounted = drive.mount(at_speed, Load::Idle).unwrap();
        (drive, mounted)
    }

    /// Eight drives: trays of four (two may spin, or so many watts), columns of two (one may spin).
    fn rack(tray: DomainLimit) -> RackSpec {
        let resource = |name: &str, limit, hard| Resource { name: name.to_owned(), limit, hard };
        let one = |i: u32| DriveSpec {
            id: DriveId(i),
            slot: [i as u16, 0, 0],
            resource_domains: vec![DomainId(i / 4), DomainId(i % 4), DomainId(0)],
            failure_domains: vec![],
            capacity_bytes: None,
            path: None,
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
            profile: profile(),
        };
        RackSpec::validated(draft).unwrap()
    }

    #[test]
    fn a_drive_wakes_works_and_sleeps() {
        let mut drive = drive();
        let at_speed = drive.spin_up(Time::from_secs(10)).unwrap();
        assert!(at_speed >= Time::from_secs(18) && at_speed <= Time::from_secs(22));
        assert_eq!(drive.state(Time::from_secs(11)), PowerState::SpinningUp);
        assert_eq!(drive.spin_up(Time::from_secs(12)), Ok(at_speed));
        assert_eq!(drive.state(at_speed), PowerState::Active);
        let not_mounted = Refused { state: PowerState::Active, mounted: false };
        assert_eq!(drive.transfer(at_speed, 1, 0, 1), Err(not_mounted));
        let mounted = drive.mount(at_speed, Load::Idle).unwrap();
        assert_eq!(drive.mount(mounted, Load::Idle), Ok(mounted));
        let still_mounted = Refused { state: PowerState::Active, mounted: true };
        assert_eq!(drive.stop(mounted), Err(still_mounted));
        let unmounted = drive.unmount(mounted).unwrap();
        let still = drive.stop(unmounted).unwrap();
        assert_eq!(still, unmounted + Duration::from_secs(1));
        assert_eq!(drive.state(still - Duration::from_nanos(1)), PowerState::SpinningDown);
        assert_eq!(drive.state(still), PowerState::Standby);
        assert_eq!(drive.starts(), 1);
    }

    #[test]
    fn only_what_goes_on_where_the_last_transfer_ended_does_without_a_seek() {
        let (mut drive, start) = ready_drive();
        let (seek, transfer) = (Duration::from_millis(4), transfer_time(MIB, 100_000_000));
        let first = drive.transfer(start, 1, 0, MIB).unwrap();
        assert_eq!(first, start + seek + transfer);
        // Asked for at once, it waits for the first.
        let second = drive.transfer(start, 1, MIB, MIB).unwrap();
        assert_eq!(second, first + transfer);
        let other_file = drive.transfer(second, 2, 2 * MIB, MIB).unwrap();
        assert_eq!(other_file, second + seek + transfer);
        let touched = drive.touch(other_file).unwrap();
        assert_eq!(touched, other_file + seek);
        assert_eq!(drive.transfer(touched, 2, 3 * MIB, MIB), Ok(touched + seek + transfer));
    }

    #[test]
    fn energy_does_not_depend_on_how_often_one_looks() {
        let (mut seldom, mut often) = (drive(), drive());
        for second in 0..100 {
            often.energy(Time::from_secs(second));
        }
        let at = Time::from_secs(100);
        let slept = Energy { standby_mj: 156_000, ..Energy::default() };
        assert_eq!(seldom.energy(at), slept);
        assert_eq!(often.energy(at), slept);
        let ready = seldom.spin_up(at).unwrap();
        often.spin_up(at).unwrap();
        often.energy(at + Duration::from_secs(3));
        let end = ready + Duration::from_secs(1);
        assert_eq!(seldom.energy(end), often.energy(end));
        assert_eq!(seldom.energy(end).active_mj, 9_420);
        assert_eq!(seldom.draw_mw(end), 9_420);
    }

    #[test]
    fn what_other_drives_do_shifts_no_drive() {
        let times = |drive: u32| DrivePhysics::new(profile(), 9, DriveId(drive)).spin_up(Time::ZERO);
        assert_eq!(times(5), times(5));
        assert_ne!(times(5), times(6));
    }

    #[test]
    fn a_lost_drive_draws_nothing_and_comes_back_in_standby() {
        let (mut drive, now) = ready_drive();
        drive.lose(now);
        drive.lose(now);
        assert_eq!((drive.draw_mw(now), drive.losses()), (0, 1));
        let away = Refused { state: PowerState::Away, mounted: false };
        assert_eq!(drive.spin_up(now), Err(away));
        let before = drive.energy(now);
        let later = now + Duration::from_mins(1);
        assert_eq!(drive.energy(later), before);
        drive.come_back(later);
        assert_eq!(drive.state(later), PowerState::Standby);
        assert!(drive.spin_up(later).is_ok());
    }

    #[test]
    fn a_busy_server_mounts_slowly() {
        let mut drive = drive();
        let at_speed = drive.spin_up(Time::ZERO).unwrap();
        assert!(drive.mount(at_speed, Load::Busy).unwrap() >= at_speed + Duration::from_secs(20));
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
