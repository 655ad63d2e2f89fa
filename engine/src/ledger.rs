//! The power ledger: no drive spins up without a permit from every domain it is in.
//!
//! It knows nothing of groups and classes, so no mistake above it can trip a fuse. A drive holds its permit from the
//! moment it is granted until it is released, when the platters have stopped. A domain that limits active drives counts
//! permits. A domain that limits starts counts the permits of drives that spin up. A domain that limits watts
//! sums the draw of its drives: standby, spin-up, active. Drives without power control count as active in their domains
//! at all times: they always have their permits, and commands to them change nothing in the books.
//!
//! Drives of the pool of small records are also booked in their domains as active, or as starting if that draws more,
//! even while they sleep. Their need is reserved, since a client that writes must not wait until some group sleeps.
//! Only their starts need permits, from the domains that limit starts. The total draw of all drives
//! ([`Ledger::watts_mw`]) counts them by their actual state.
//!
//! Invariants:
//! - no domain with a hard limit is ever above it, provided that its sleeping drives alone are not, and that none of
//!   its drives was found spinning;
//! - a drive that spins up is booked at the larger of spin-up and active power, so getting ready never breaks a limit;
//! - a domain's books match exactly the permits that are out.
//!
//! A drive that was found spinning without a permit is booked anyway: it draws power whether or not any is left. It may
//! put its domains above their limits; they grant nothing until they are below again. It counts as starting for as long
//! as a start takes, since something else may have started it a moment ago.
//!
//! A soft limit blocks no drive; grants that break it are counted. The ledger ignores limits on bytes/s.

#[cfg(test)]
mod tests;

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use model::sabotage::{Sabotage, is_on};
use model::{DomainId, DomainLimit, DriveId, PoolDriveId, RackSpec, ResourceId, Watts};

/// The state of a drive's platters, as far as power is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// They stand still: no permit.
    Standby,
    /// They are being started under a permit.
    SpinningUp,
    /// They spin under a permit.
    Active,
}

#[derive(Clone, Copy, Default)]
struct Domain {
    active: u64,
    starting: u64,
    draw_mw: u64,
}

/// A resource that limits drives or watts.
struct Book {
    resource: ResourceId,
    limit: DomainLimit,
    hard: bool,
    /// The domain of each drive.
    domain_of: Vec<DomainId>,
    /// The domain of each drive of the pool, if it is in one.
    pool_domain_of: Vec<Option<DomainId>>,
    domains: Vec<Domain>,
    /// All drives in each domain, those of the pool included.
    drives_in: Vec<u64>,
}

impl Book {
    fn new(spec: &RackSpec, resource: ResourceId, limit: DomainLimit, hard: bool) -> Self {
        let domain_of: Vec<_> = spec.drives.iter().map(|drive| spec.domain_of(drive.id, resource)).collect();
        let always_on = spec.always_on_in(resource);
        let mut drives_in = vec![0; always_on.len()];
        for drive in spec.drives.iter().filter(|drive| !spec.is_always_on(drive.id)) {
            drives_in[domain_of[drive.id.index()].index()] += 1;
        }
        let standby_mw = u64::from(spec.profile.watts.standby_mw);
        let drawn_mw = |(count, always_on): (&u64, &u64)| count * standby_mw + always_on * spec.always_on_mw();
        let at_rest = |of: (&u64, &u64)| Domain { active: *of.1, draw_mw: drawn_mw(of), starting: 0 };
        let domains = drives_in.iter().zip(&always_on).map(at_rest).collect();
        drives_in.iter_mut().zip(always_on).for_each(|(drives, always_on)| *drives += always_on);
        let pool_domain_of = spec.pool.iter().map(|drive| drive.resource_domains[resource.index()]).collect();
        Self { resource, limit, hard, domain_of, pool_domain_of, domains, drives_in }
    }

    /// The amount of the limited quantity that is used in a domain, and its limit. The ledger ignores bytes/s.
    fn usage(&self, domain: &Domain) -> (u64, u64) {
        let more = u64::from(is_on(Sabotage::LedgerOffByOne));
        match self.limit {
            DomainLimit::ActiveDrives(limit) => (domain.active, u64::from(limit) + more),
            DomainLimit::StartingDrives(limit) => (domain.starting, u64::from(limit) + more),
            DomainLimit::Watts(limit) => (domain.draw_mw, u64::from(limit) * 1_000),
            DomainLimit::BytesPerS(_) => (0, 0),
        }
    }

    fn holds(&self, domain: &Domain) -> bool {
        let (used, limit) = self.usage(domain);
        used <= limit
    }

    fn domain(&self, drive: DriveId) -> &Domain {
        &self.domains[self.domain_of[drive.index()].index()]
    }

    fn domain_mut(&mut self, drive: DriveId) -> &mut Domain {
        &mut self.domains[self.domain_of[drive.index()].index()]
    }
}

/// The ledger of a rack. See the head of this file.
pub struct Ledger {
    watts: Watts,
    states: Vec<PowerState>,
    /// The states of the drives of the pool.
    pool: Vec<PowerState>,
    /// By drive: true if it has no power control.
    always_on: Vec<bool>,
    books: Vec<Book>,
    /// Drives that were found spinning: their permits were never granted.
    found: BTreeSet<DriveId>,
    /// Drives of the pool that were found spinning and count as starting.
    found_in_pool: BTreeSet<PoolDriveId>,
    draw_mw: u64,
    active: usize,
    soft_overruns: u64,
}

impl Ledger {
    /// The ledger of a rack at boot: all drives are in standby, except those without power control, and those of the
    /// pool, which spin.
    pub fn new(spec: &RackSpec) -> Self {
        let watts = spec.profile.watts;
        let limited = spec.resources_by_id().filter(|(_, r)| !matches!(r.limit, DomainLimit::BytesPerS(_)));
        let books = limited.map(|(id, r)| Book::new(spec, id, r.limit, r.hard)).collect();
        let always_on: Vec<bool> = spec.drives.iter().map(|drive| spec.is_always_on(drive.id)).collect();
        let uncontrolled = always_on.iter().filter(|always_on| **always_on).count();
        Self {
            watts,
            states: vec![PowerState::Standby; spec.drives.len()],
            pool: vec![PowerState::Active; spec.pool.len()],
            books,
            found: BTreeSet::new(),
            found_in_pool: BTreeSet::new(),
            draw_mw: (always_on.len() - uncontrolled) as u64 * u64::from(watts.standby_mw)
                + uncontrolled as u64 * spec.always_on_mw()
                + spec.pool.len() as u64 * u64::from(watts.active_mw),
            always_on,
            active: 0,
            soft_overruns: 0,
        }
    }

    /// Grants permits to as many of `drives` as fit now, one after the other; a drive that does not fit blocks no later
    /// one. The others may be requested again when a drive has spun up or was released. None of `drives` may have a
    /// permit.
    pub fn request(&mut self, drives: &[DriveId]) -> Vec<DriveId> {
        assert!(drives.len() <= self.states.len(), "a drive asks once");
        let mut granted = Vec::with_capacity(drives.len());
        for &drive in drives {
            assert!(self.state(drive) == PowerState::Standby, "{drive} has a permit already");
            if self.blocking(drive).next().is_none() {
                self.enter(drive, PowerState::SpinningUp);
                if self.is_always_on(drive) {
                    granted.push(drive);
                    continue;
                }
                let holds = |book: &Book| !book.hard || book.holds(book.domain(drive));
                assert!(self.books.iter().all(holds), "no permit for {drive} breaks a hard limit");
                let broken = |book: &&Book| !book.hard && !book.holds(book.domain(drive));
                self.soft_overruns += self.books.iter().filter(broken).count() as u64;
                granted.push(drive);
            }
        }
        granted
    }

    /// The platters of `drive`, which was spinning up, turn.
    pub fn spun_up(&mut self, drive: DriveId) {
        assert!(self.state(drive) == PowerState::SpinningUp, "{drive} was not spinning up");
        if self.found.contains(&drive) {
            return self.found_at_speed(drive);
        }
        let before_mw = self.draw_mw;
        self.enter(drive, PowerState::Active);
        assert!(self.draw_mw <= before_mw, "getting ready never breaks a limit");
    }

    /// `drive`, which has no permit, spins or may spin. It is booked whether or not there is room, and counts as
    /// starting until [`found_at_speed`](Self::found_at_speed): something else may have started it a moment ago.
    pub fn found_spinning(&mut self, drive: DriveId) {
        assert!(self.state(drive) == PowerState::Standby, "{drive} spins under a permit");
        if self.is_always_on(drive) {
            self.enter(drive, PowerState::Active);
            return;
        }
        self.enter(drive, PowerState::SpinningUp);
        self.found.insert(drive);
        assert!(self.active > 0, "a drive that was found spinning is booked");
    }

    /// A start of `drive` would be over by now, if `drive` was found spinning: it no longer counts as starting, though
    /// it may never stop. It is still booked at the power of a drive that spins up, since its actual state is unknown.
    pub fn found_at_speed(&mut self, drive: DriveId) {
        if self.state(drive) == PowerState::SpinningUp && self.found.contains(&drive) {
            self.enter(drive, PowerState::Active);
            let more_mw = self.unknown_mw();
            self.draw(drive, |draw_mw| draw_mw + more_mw);
        }
    }

    /// The platters of `drive`, which has a permit, stand still, or it has no power: the permit is released.
    pub fn released(&mut self, drive: DriveId) {
        assert!(self.state(drive) != PowerState::Standby, "{drive} has no permit to give back");
        if self.found.remove(&drive) && self.state(drive) == PowerState::Active {
            let less_mw = self.unknown_mw();
            self.draw(drive, |draw_mw| draw_mw - less_mw);
        }
        self.enter(drive, PowerState::Standby);
    }

    /// Requests a permit to start for `drive` of the pool, which stands still; false if one of its domains has none
    /// left. It may be requested again when a drive has spun up.
    pub fn request_pool(&mut self, drive: PoolDriveId) -> bool {
        assert!(self.pool_state(drive) == PowerState::Standby, "{drive} has a permit already");
        let more = u64::from(is_on(Sabotage::LedgerOffByOne));
        let mut soft = 0;
        for book in &self.books {
            let (Some(domain), DomainLimit::StartingDrives(limit)) = (book.pool_domain_of[drive.index()], book.limit)
            else {
                continue;
            };
            let is_full = book.domains[domain.index()].starting >= u64::from(limit) + more;
            if is_full && book.hard {
                return false;
            }
            soft += u64::from(is_full);
        }
        self.soft_overruns += soft;
        self.enter_pool(drive, PowerState::SpinningUp);
        true
    }

    /// The platters of `drive` of the pool, which was starting, turn.
    pub fn pool_spun_up(&mut self, drive: PoolDriveId) {
        assert!(self.pool_state(drive) == PowerState::SpinningUp, "{drive} was not spinning up");
        self.enter_pool(drive, PowerState::Active);
    }

    /// The platters of `drive` of the pool, which had no permit to start, turn: something else started it, perhaps a
    /// moment ago. It counts as starting until [`pool_spun_up`](Self::pool_spun_up).
    pub fn pool_found_spinning(&mut self, drive: PoolDriveId) {
        assert!(self.pool_state(drive) == PowerState::Standby, "{drive} was supposed to stand still");
        self.enter_pool(drive, PowerState::SpinningUp);
        self.found_in_pool.insert(drive);
    }

    /// The platters of `drive` of the pool stand still, or its start failed.
    pub fn pool_stopped(&mut self, drive: PoolDriveId) {
        assert!(self.pool_state(drive) != PowerState::Standby, "{drive} has no permit to give back");
        self.enter_pool(drive, PowerState::Standby);
    }

    /// The state that `drive` of the pool is booked in.
    pub fn pool_state(&self, drive: PoolDriveId) -> PowerState {
        self.pool[drive.index()]
    }

    /// True if a drive of the pool starts in this domain; it will release its permit to start.
    pub fn pool_starts_in(&self, resource: ResourceId, domain: DomainId) -> bool {
        let starts =
            |(of, state): (&Option<DomainId>, &PowerState)| *of == Some(domain) && *state == PowerState::SpinningUp;
        let books = self.books.iter().filter(|book| book.resource == resource);
        books.flat_map(|book| book.pool_domain_of.iter().zip(&self.pool)).any(starts)
    }

    fn enter_pool(&mut self, drive: PoolDriveId, state: PowerState) {
        let old = core::mem::replace(&mut self.pool[drive.index()], state);
        self.found_in_pool.remove(&drive);
        let starts = |state| u64::from(state == PowerState::SpinningUp);
        for book in &mut self.books {
            let Some(domain) = book.pool_domain_of[drive.index()] else { continue };
            let domain = &mut book.domains[domain.index()];
            assert!(domain.starting >= starts(old), "the start of {drive} was in the books");
            domain.starting = domain.starting - starts(old) + starts(state);
            assert!(domain.starting <= domain.active, "whoever starts is reserved for");
        }
        let (less_mw, more_mw) = (self.draw_of(old), self.draw_of(state));
        assert!(self.draw_mw >= less_mw, "{drive} was counted");
        self.draw_mw = self.draw_mw - less_mw + more_mw;
    }

    /// The state that `drive` is booked in.
    pub fn state(&self, drive: DriveId) -> PowerState {
        self.states[drive.index()]
    }

    /// True if `drive` has no power control: it has its permits at all times and releases none.
    pub fn is_always_on(&self, drive: DriveId) -> bool {
        self.always_on[drive.index()]
    }

    /// The hard domains that have no permit left for `drive`, which has none.
    pub fn blocking(&self, drive: DriveId) -> impl Iterator<Item = (ResourceId, DomainId)> + '_ {
        let more_mw = self.draw_of(PowerState::SpinningUp);
        assert!(more_mw >= self.draw_of(PowerState::Active), "a start is booked at the larger of both");
        let less_mw = self.draw_of(PowerState::Standby);
        let full = move |book: &&Book| {
            let Domain { active, starting, draw_mw } = *book.domain(drive);
            assert!(draw_mw >= less_mw, "{drive} draws as much as in standby at least");
            let with = Domain { active: active + 1, starting: starting + 1, draw_mw: draw_mw - less_mw + more_mw };
            !book.holds(&with)
        };
        let needs_one = !self.is_always_on(drive);
        self.books
            .iter()
            .filter(move |book| book.hard && needs_one)
            .filter(full)
            .map(move |book| (book.resource, book.domain_of[drive.index()]))
    }

    /// The booked power of all drives, including those of the pool, in milliwatts.
    pub fn watts_mw(&self) -> u64 {
        self.draw_mw
    }

    /// The number of drives with a permit; drives without power control and drives of the pool need none.
    pub fn active_drives(&self) -> usize {
        self.active
    }

    /// The number of grants so far that put a domain above a soft limit.
    pub fn soft_overruns(&self) -> u64 {
        self.soft_overruns
    }

    /// Domains with active drives, including drives that always count as active: resource, domain, amount used, and
    /// limit. The amounts are drives or milliwatts, by the resource.
    pub fn usage(&self) -> impl Iterator<Item = (ResourceId, DomainId, u64, u64)> + '_ {
        self.books.iter().flat_map(|book| {
            let used = book.domains.iter().enumerate().filter(|(_, domain)| domain.active > 0);
            used.map(|(id, domain)| {
                let (used, limit) = book.usage(domain);
                let id = DomainId(id as u32);
                assert!(
                    !book.hard || used <= limit || self.has_found(book, id),
                    "no domain of a hard limit is above it by permits"
                );
                (book.resource, id, used, limit)
            })
        })
    }

    /// True if a drive of `domain` was found spinning: it may be above its limits.
    fn has_found(&self, book: &Book, domain: DomainId) -> bool {
        self.found.iter().any(|drive| book.domain_of[drive.index()] == domain)
            || self.found_in_pool.iter().any(|drive| book.pool_domain_of[drive.index()] == Some(domain))
    }

    fn draw_of(&self, state: PowerState) -> u64 {
        let Watts { standby_mw, spin_up_mw, active_mw } = self.watts;
        u64::from(match state {
            PowerState::Standby => standby_mw,
            PowerState::SpinningUp => spin_up_mw.max(active_mw),
            PowerState::Active => active_mw,
        })
    }

    /// The power that is booked on top for an active drive whose actual state is unknown, in milliwatts.
    fn unknown_mw(&self) -> u64 {
        self.draw_of(PowerState::SpinningUp) - self.draw_of(PowerState::Active)
    }

    /// Changes the power that is booked for `drive`, in each of its domains and in the total.
    fn draw(&mut self, drive: DriveId, change: impl Fn(u64) -> u64) {
        for book in &mut self.books {
            let domain = &mut book.domains[book.domain_of[drive.index()].index()];
            domain.draw_mw = change(domain.draw_mw);
        }
        self.draw_mw = change(self.draw_mw);
    }

    fn enter(&mut self, drive: DriveId, state: PowerState) {
        let old = core::mem::replace(&mut self.states[drive.index()], state);
        if self.is_always_on(drive) {
            return;
        }
        let (less_mw, more_mw) = (self.draw_of(old), self.draw_of(state));
        let permits = |state| u64::from(state != PowerState::Standby);
        let starts = |state| u64::from(state == PowerState::SpinningUp);
        for book in &mut self.books {
            let drives = book.drives_in[book.domain_of[drive.index()].index()];
            let domain = book.domain_mut(drive);
            assert!(domain.draw_mw >= less_mw && domain.active >= permits(old), "{drive} was in the books");
            assert!(domain.starting >= starts(old), "the start of {drive} was in the books");
            domain.draw_mw = domain.draw_mw - less_mw + more_mw;
            domain.active = domain.active - permits(old) + permits(state);
            domain.starting = domain.starting - starts(old) + starts(state);
            assert!(domain.active <= drives, "no more permits are out than there are drives");
            assert!(domain.starting <= domain.active, "whoever starts has a permit");
        }
        self.draw_mw = self.draw_mw - less_mw + more_mw;
        self.active = self.active - permits(old) as usize + permits(state) as usize;
        assert!(self.active <= self.states.len(), "no more drives are active than there are");
    }
}
