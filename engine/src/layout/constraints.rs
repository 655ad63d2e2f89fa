//! The rack in the form that synthesis uses: drives as numbers, and domains with a limit in drives.
//!
//! All domains of all resources and media-losing failure domains have consecutive numbers, so that a drive is just a
//! row of domain numbers. A limit in watts becomes a number of drives for the worst case that the ledger's permits
//! allow: as many of the awake drives spin up as limits on starts allow, and the others are active. Links (bytes/s) and
//! limits on starts never keep a drive asleep permanently and do not appear themselves. A drive that is always on
//! reduces the limit for the other drives in its domains, in any group; it needs nothing itself, and
//! appears in its own domains.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use model::{DomainLimit, DriveId, RackSpec, ResourceId};

/// Classes of groups of drives: the result of synthesis, before groups and classes are numbered.
pub(super) type Plan = Vec<Vec<Vec<u32>>>;

/// The purpose of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A hard limit on awake drives; the index of its resource.
    Hard(usize),
    /// A soft limit on awake drives; the index of its resource.
    Soft(usize),
    /// A failure domain that loses media, of this kind; the limit is r.
    Media(usize),
}

/// A domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    pub(super) role: Role,
    /// Drives that may be awake (at most `size`), or stacks that may be lost.
    pub(super) limit: u32,
    /// The number of its drives.
    pub(super) size: u32,
}

impl Domain {
    pub(super) fn hard(self) -> bool {
        matches!(self.role, Role::Hard(_))
    }

    pub(super) fn media(self) -> bool {
        matches!(self.role, Role::Media(_))
    }
}

/// The rack as numbers.
pub(super) struct Constraints {
    pub(super) group_drives: usize,
    /// k + r.
    stacks: u32,
    pub(super) domains: Vec<Domain>,
    /// Domains of each drive: `width` numbers a drive.
    rows: Vec<u32>,
    width: usize,
    /// Drives that may be awake at all.
    pub(super) usable: Vec<u32>,
}

impl Constraints {
    pub(super) fn of(spec: &RackSpec) -> Self {
        let mut columns: Vec<(Role, Vec<u32>)> = Vec::new();
        for (index, resource) in spec.resources.iter().enumerate() {
            let role = if resource.hard { Role::Hard(index) } else { Role::Soft(index) };
            if resource.limit.limits_awake() {
                columns.push((role, spec.drives.iter().map(|d| d.resource_domains[index].0).collect()));
            }
        }
        for (index, kind) in spec.failure_domains.iter().enumerate() {
            let column: Vec<u32> = spec.drives.iter().map(|d| d.failure_domains[index].0).collect();
            // If every drive fails alone, there is nothing to spread.
            let shared = column.iter().collect::<BTreeSet<_>>().len() < column.len();
            if kind.loses_media && shared && spec.code.parity > 0 {
                columns.push((Role::Media(index), column));
            }
        }
        let mut constraints = Self {
            group_drives: spec.group_drives as usize,
            stacks: spec.code.stacks() as u32,
            domains: Vec::new(),
            rows: vec![0; spec.drives.len() * columns.len()],
            width: columns.len(),
            usable: Vec::new(),
        };
        for (place, (role, column)) in columns.iter().enumerate() {
            constraints.add(spec, place, *role, column);
        }
        let awake = |drive: &u32| constraints.of_drive(*drive).iter().all(|d| !constraints.never(*d));
        assert!(
            constraints.rows.iter().all(|domain| (*domain as usize) < constraints.domains.len()),
            "a domain is known"
        );
        constraints.usable = (0..spec.drives.len() as u32).filter(awake).collect();
        constraints
    }

    fn add(&mut self, spec: &RackSpec, place: usize, role: Role, column: &[u32]) {
        assert!(place < self.width && column.len() == spec.drives.len(), "a column has a domain for each drive");
        let first = self.domains.len() as u32;
        let count = column.iter().max().map_or(0, |most| *most as usize + 1);
        let limited = !matches!(role, Role::Media(_));
        let (mut sizes, mut alone) = (vec![0_u32; count], 0);
        for (drive, domain) in spec.drives.iter().zip(column) {
            let number = if limited && spec.is_always_on(drive.id) {
                alone += 1;
                count as u32 + alone - 1
            } else {
                sizes[*domain as usize] += 1;
                *domain
            };
            self.rows[drive.id.index() * self.width + place] = first + number;
        }
        let always_on = match role {
            Role::Hard(index) | Role::Soft(index) => spec.always_on_in(ResourceId(index as u32)),
            Role::Media(_) => Vec::new(),
        };
        let limit = |domain: usize, size: u32| match role {
            Role::Hard(index) | Role::Soft(index) => {
                let starts = || starts_max(spec, column, domain as u32, size);
                awake_limit(spec, spec.resources[index].limit, size, always_on[domain], starts)
            }
            Role::Media(_) => u32::from(spec.code.parity),
        };
        let domains = sizes.into_iter().enumerate();
        self.domains.extend(domains.map(|(domain, size)| Domain { role, limit: limit(domain, size), size }));
        self.domains.extend((0..alone).map(|_| Domain { role, limit: 1, size: 1 }));
        let within = |domain: &Domain| domain.media() || domain.limit <= domain.size;
        assert!(self.domains.iter().all(within), "no more drives of a domain may be awake than it has");
    }

    /// The largest number of simultaneous starts in each domain of `resource` with which its hard limit in watts would
    /// carry a group.
    pub(super) fn staggered(&self, spec: &RackSpec, resource: &str) -> Option<u32> {
        let index = spec.resources.iter().position(|other| other.name == resource)?;
        let limit = spec.resources[index].limit;
        let of_resource = |domain: &&Domain| domain.role == Role::Hard(index);
        let sizes = self.domains.iter().filter(of_resource).map(|domain| domain.size);
        // The domains of drives that are always on come after these.
        let sizes: Vec<(u32, u64)> = sizes.zip(spec.always_on_in(ResourceId(index as u32))).collect();
        let always_on = spec.drives.iter().filter(|drive| spec.is_always_on(drive.id)).count() as u64;
        let carried = |starts: u32| -> u64 {
            let awake = |(size, always_on): &(u32, u64)| awake_limit(spec, limit, *size, *always_on, || starts);
            always_on + sizes.iter().map(|of| u64::from(awake(of))).sum::<u64>()
        };
        let is_watts = matches!(limit, DomainLimit::Watts(_));
        let enough = |starts: &u32| carried(*starts) >= self.group_drives as u64;
        (1..=self.group_drives as u32).rev().find(enough).filter(|_| is_watts)
    }

    /// The domains of a drive.
    pub(super) fn of_drive(&self, drive: u32) -> &[u32] {
        &self.rows[drive as usize * self.width..][..self.width]
    }

    pub(super) fn domain(&self, number: u32) -> Domain {
        self.domains[number as usize]
    }

    fn never(&self, number: u32) -> bool {
        let domain = self.domain(number);
        domain.hard() && domain.limit == 0
    }

    /// Resources with drives that may never be awake, and the number of these drives.
    pub(super) fn never_awake(&self) -> BTreeMap<usize, u32> {
        let mut counts = BTreeMap::new();
        for domain in self.domains.iter().filter(|d| d.limit == 0 && d.size > 0) {
            if let Role::Hard(resource) = domain.role {
                *counts.entry(resource).or_insert(0) += domain.size;
            }
        }
        counts
    }

    /// An upper bound on the number of `drives` that may be awake at once: the least over all hard resources, and the
    /// resource that imposes it. `None` for the resource if the number of drives itself is the limit.
    pub(super) fn awake_max(&self, drives: &[u32]) -> (u64, Option<usize>) {
        let counts = self.counts(drives);
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        for (number, count) in counts {
            let domain = self.domain(number);
            if let Role::Hard(resource) = domain.role {
                *sums.entry(resource).or_insert(0) += u64::from(count.min(domain.limit));
            }
        }
        let all = drives.len() as u64;
        assert!(sums.values().all(|sum| *sum <= all), "no more drives are awake than there are");
        let least = sums.into_iter().map(|(resource, sum)| (sum, resource)).min();
        let unusable_count = || self.never_awake().into_keys().next();
        match least {
            Some((sum, resource)) if sum < all => (sum, Some(resource)),
            _ if drives.is_empty() => (0, unusable_count()),
            _ => (all, None),
        }
    }

    /// The number of `drives` in each domain.
    pub(super) fn counts(&self, drives: &[u32]) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for number in drives.iter().flat_map(|d| self.of_drive(*d)) {
            *counts.entry(*number).or_insert(0) += 1;
        }
        counts
    }

    /// The largest number of drives in each domain that any one group of the class has.
    pub(super) fn needs(&self, class: &[Vec<u32>]) -> BTreeMap<u32, u32> {
        let mut needs = BTreeMap::new();
        for group in class {
            for (number, count) in self.counts(group) {
                let need = needs.entry(number).or_insert(0);
                *need = count.max(*need);
            }
        }
        needs
    }

    /// The number of domains of each soft resource that some choice of groups exceeds.
    pub(super) fn soft_breaches(&self, plan: &Plan) -> BTreeMap<usize, u32> {
        let mut totals = vec![0_u32; self.domains.len()];
        for class in plan {
            self.needs(class).into_iter().for_each(|(number, need)| totals[number as usize] += need);
        }
        let mut breaches = BTreeMap::new();
        for (domain, total) in self.domains.iter().zip(totals) {
            match domain.role {
                Role::Soft(resource) if total > domain.limit => *breaches.entry(resource).or_insert(0) += 1,
                _ => {}
            }
        }
        breaches
    }

    /// The number of groups that cannot place k + r stacks with at most r in a domain, by kind of failure domain.
    pub(super) fn spread_shortfalls(&self, plan: &Plan) -> BTreeMap<usize, u32> {
        let mut shortfalls = BTreeMap::new();
        for group in plan.iter().flatten() {
            let mut room: BTreeMap<usize, u32> = BTreeMap::new();
            for (number, count) in self.counts(group) {
                let domain = self.domain(number);
                if let Role::Media(kind) = domain.role {
                    *room.entry(kind).or_insert(0) += count.min(domain.limit);
                }
            }
            for (kind, _) in room.into_iter().filter(|(_, room)| *room < self.stacks) {
                *shortfalls.entry(kind).or_insert(0) += 1;
            }
        }
        shortfalls
    }
}

/// The largest number of the `size` drives of a domain that can sleep and may be awake at once under `limit`, beside
/// `always_on` drives that are always on; at most `starts_max` of them spin up.
fn awake_limit(
    spec: &RackSpec,
    limit: DomainLimit,
    size: u32,
    always_on: u64,
    starts_max: impl FnOnce() -> u32,
) -> u32 {
    let watts = spec.profile.watts;
    match limit {
        DomainLimit::ActiveDrives(drives) => u64::from(drives).saturating_sub(always_on).min(size.into()) as u32,
        DomainLimit::StartingDrives(_) | DomainLimit::BytesPerS(_) => size,
        DomainLimit::Watts(most) => {
            // Power beyond standby: while a drive spins up, and then as long as it spins.
            let standby = u64::from(watts.standby_mw);
            let starting = u64::from(watts.spin_up_mw.max(watts.active_mw)) - standby;
            let active = u64::from(watts.active_mw) - standby;
            let taken = standby * u64::from(size) + always_on * spec.always_on_mw();
            let left = (u64::from(most) * 1000).saturating_sub(taken);
            let starts = u64::from(starts_max().min(size));
            let all_start = left.checked_div(starting).unwrap_or(u64::from(size));
            if all_start < starts {
                return all_start as u32;
            }
            let rest = (left - starts * starting).checked_div(active).unwrap_or(u64::from(size));
            starts.saturating_add(rest).min(u64::from(size)) as u32
        }
    }
}

/// The largest number of the `size` drives in `domain` of a resource that can sleep and may spin up at once; `column`
/// has the domain of each drive.
fn starts_max(spec: &RackSpec, column: &[u32], domain: u32, size: u32) -> u32 {
    let most = spec.starts_max(size.into(), |starting| {
        let mut counts = vec![0_u64; spec.domain_count(starting)];
        let sleeps = |drive: DriveId| !spec.is_always_on(drive);
        let here = spec.drives.iter().zip(column).filter(|(drive, other)| **other == domain && sleeps(drive.id));
        here.for_each(|(drive, _)| counts[drive.resource_domains[starting.index()].index()] += 1);
        counts
    });
    assert!(most <= u64::from(size), "no more drives start than there are");
    most as u32
}
