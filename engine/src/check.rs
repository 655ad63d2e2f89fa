//! A judge of layouts, placements and traces that shares no code with what makes them.
//!
//! Everything is recomputed from the description. What must hold is a [`Violation`] where it does not; what is merely
//! worse than one would wish, and may be forced by the geometry, is a [`Shortfall`].
//!
//! The worst choice of one awake group per class is exact: classes choose independently, so a domain's worst case is
//! the sum over classes of the most drives that any one group of the class has in it.

mod placement;
#[cfg(test)]
mod tests;
mod trace;

pub use placement::{PlacementFault, blob_placement};
pub use trace::{RebuildFault, TraceCheck, TraceFault};

use crate::layout::Layout;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use model::{ClassId, DomainId, DomainLimit, DriveId, GroupId, RackSpec, Resource, ResourceId};

/// Pairs of groups of a class that are looked at for collision; a class of 400 groups is looked at in full.
const PAIRS_MAX: usize = 80_000;

/// A rule that a layout breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The drive is not one of the rack's.
    UnknownDrive(DriveId),
    /// The drive is in two groups, or twice in one, or both in a group and a spare.
    DriveTwice(DriveId),
    /// The drive is in no group and no spare.
    DriveMissing(DriveId),
    /// The group does not have exactly g drives (and so perhaps fewer than k + r).
    GroupSize {
        /// Which group.
        group: GroupId,
        /// How many it has.
        drives: usize,
    },
    /// The table of classes does not have the group exactly once, in the class it names.
    ClassTable(GroupId),
    /// The table of classes has a group that does not exist.
    UnknownGroup(GroupId),
    /// The class has no group.
    EmptyClass(ClassId),
    /// Two drives of the group share a hard domain of limit 1.
    Conflict {
        /// Which group.
        group: GroupId,
        /// One drive.
        drive: DriveId,
        /// The other.
        other: DriveId,
        /// The resource they share a domain of.
        resource: ResourceId,
    },
    /// Some choice of one group per class exceeds a hard limit.
    HardLimit {
        /// The resource.
        resource: ResourceId,
        /// The domain.
        domain: DomainId,
        /// The demand of the worst choice: drives, or milliwatts with all of them spinning up.
        worst: u64,
        /// The limit, in the same unit.
        limit: u64,
    },
}

/// A wish that a layout does not fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortfall {
    /// Some choice of one group per class exceeds a soft limit.
    SoftLimit {
        /// The resource.
        resource: ResourceId,
        /// The domain.
        domain: DomainId,
        /// The demand of the worst choice: drives, or milliwatts with all of them spinning up.
        worst: u64,
        /// The limit, in the same unit.
        limit: u64,
    },
    /// Two groups of the class collide only in part: some of their drives are in no hard domain that the two, beside
    /// the other classes at their worst, would exceed. The first such pair of the class.
    PartialCollision {
        /// Which class.
        class: ClassId,
        /// The pair.
        groups: [GroupId; 2],
    },
    /// Two groups of the class do not collide at all, and yet only one of them may be awake. The first such pair.
    NoCollision {
        /// Which class.
        class: ClassId,
        /// The pair.
        groups: [GroupId; 2],
    },
    /// No choice of k + r drives of the group has at most r of them in each domain of the kind.
    Spread {
        /// Which group.
        group: GroupId,
        /// The kind of failure domain, by its place in the description.
        kind: usize,
        /// Whether the number and size of its domains would allow it to every group of the layout at once, other limits
        /// left aside.
        domains_allow: bool,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownDrive(drive) => write!(f, "{drive} is not a drive of this rack"),
            Self::DriveTwice(drive) => write!(f, "{drive} is there twice"),
            Self::DriveMissing(drive) => write!(f, "{drive} is in no group and no spare"),
            Self::GroupSize { group, drives } => write!(f, "{group} has {drives} drives"),
            Self::ClassTable(group) => write!(f, "{group} is not exactly once in the table of classes"),
            Self::UnknownGroup(group) => write!(f, "{group} is in the table of classes and does not exist"),
            Self::EmptyClass(class) => write!(f, "{class} has no group"),
            Self::Conflict { group, drive, other, resource } => {
                write!(f, "{drive} and {other} of {group} share a domain of {resource}, which carries one")
            }
            Self::HardLimit { resource, domain, worst, limit } => {
                write!(f, "{domain} of {resource} carries {limit}, and some choice of groups takes {worst}")
            }
        }
    }
}

/// Judges a layout.
///
/// # Errors
/// Everything that must hold and does not. Otherwise the shortfalls are the answer; none means the layout is as one
/// would wish.
pub fn layout(spec: &RackSpec, layout: &Layout) -> Result<Vec<Shortfall>, Vec<Violation>> {
    let mut violations = drives_once(spec, layout);
    violations.extend(group_sizes(spec, layout));
    violations.extend(class_table(layout));
    if !violations.is_empty() {
        return Err(violations);
    }
    violations.extend(conflicts(spec, layout));
    let mut shortfalls = Vec::new();
    for (id, resource) in spec.resources_by_id() {
        let uses = Uses::of(spec, layout, id);
        for (domain, worst, limit) in uses.exceeded(spec, resource) {
            if resource.hard {
                violations.push(Violation::HardLimit { resource: id, domain, worst, limit });
            } else {
                shortfalls.push(Shortfall::SoftLimit { resource: id, domain, worst, limit });
            }
        }
    }
    if !violations.is_empty() {
        return Err(violations);
    }
    shortfalls.extend(collisions(spec, layout));
    shortfalls.extend(spread(spec, layout));
    Ok(shortfalls)
}

fn drives_once(spec: &RackSpec, layout: &Layout) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen = vec![false; spec.drives.len()];
    let grouped = layout.groups.iter().flat_map(|group| &group.drives);
    for drive in grouped.chain(&layout.spares) {
        match seen.get_mut(drive.index()) {
            None => violations.push(Violation::UnknownDrive(*drive)),
            Some(true) => violations.push(Violation::DriveTwice(*drive)),
            Some(slot) => *slot = true,
        }
    }
    let missing = seen.iter().enumerate().filter(|(_, seen)| !**seen);
    violations.extend(missing.map(|(drive, _)| Violation::DriveMissing(DriveId(drive as u32))));
    violations
}

fn group_sizes(spec: &RackSpec, layout: &Layout) -> Vec<Violation> {
    let wrong = |drives: usize| drives != spec.group_drives as usize || drives < spec.code.stacks();
    let sizes = layout.groups.iter().enumerate().map(|(id, group)| (GroupId(id as u32), group.drives.len()));
    sizes.filter(|(_, drives)| wrong(*drives)).map(|(group, drives)| Violation::GroupSize { group, drives }).collect()
}

fn class_table(layout: &Layout) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut listed = vec![0_u32; layout.groups.len()];
    for (class, groups) in layout.classes.iter().enumerate() {
        if groups.is_empty() {
            violations.push(Violation::EmptyClass(ClassId(class as u32)));
        }
        for group in groups {
            match layout.groups.get(group.index()) {
                None => violations.push(Violation::UnknownGroup(*group)),
                Some(found) if found.class.index() == class => listed[group.index()] += 1,
                Some(_) => violations.push(Violation::ClassTable(*group)),
            }
        }
    }
    let wrong = listed.iter().enumerate().filter(|(_, times)| **times != 1);
    violations.extend(wrong.map(|(group, _)| Violation::ClassTable(GroupId(group as u32))));
    violations
}

fn conflicts(spec: &RackSpec, layout: &Layout) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (resource, what) in spec.resources_by_id().filter(|(_, what)| what.hard) {
        let sizes = extents(spec, resource);
        for (id, group) in layout.groups.iter().enumerate() {
            let mut holders: BTreeMap<DomainId, DriveId> = BTreeMap::new();
            for drive in &group.drives {
                let domain = spec.domain_of(*drive, resource);
                if !carries(spec, what, sizes[domain.index()], 2)
                    && let Some(other) = holders.insert(domain, *drive)
                {
                    let group = GroupId(id as u32);
                    violations.push(Violation::Conflict { group, drive: *drive, other, resource });
                }
            }
        }
    }
    violations
}

fn domain_sizes(spec: &RackSpec, resource: ResourceId) -> Vec<u64> {
    let mut sizes = vec![0; spec.domain_count(resource)];
    spec.drives.iter().for_each(|drive| sizes[drive.resource_domains[resource.index()].index()] += 1);
    sizes
}

/// A domain of a resource: its drives, and how many of them may spin up at once.
#[derive(Clone, Copy, Default)]
struct Extent {
    size: u64,
    starts: u64,
}

/// The demand of `awake` of a domain's drives on the resource at worst, and its limit. Links carry any number, and a
/// limit on starts any number one after the other.
fn taken(spec: &RackSpec, resource: &Resource, domain: Extent, awake: u64) -> (u64, u64) {
    let watts = spec.profile.watts;
    match resource.limit {
        DomainLimit::ActiveDrives(limit) => (awake, u64::from(limit)),
        DomainLimit::StartingDrives(_) | DomainLimit::BytesPerS(_) => (0, 0),
        DomainLimit::Watts(limit) => {
            let starting = awake.min(domain.starts);
            assert!(domain.starts <= domain.size, "no more drives start than there are");
            let each = u64::from(watts.spin_up_mw.max(watts.active_mw));
            let asleep = domain.size.saturating_sub(awake) * u64::from(watts.standby_mw);
            let spinning = (awake - starting) * u64::from(watts.active_mw);
            (starting * each + spinning + asleep, u64::from(limit) * 1000)
        }
    }
}

fn carries(spec: &RackSpec, resource: &Resource, domain: Extent, awake: u64) -> bool {
    let (taken, limit) = taken(spec, resource, domain, awake.min(domain.size));
    awake > domain.size || taken <= limit
}

/// The domains of a resource. Of two limits on starts each alone bounds what may start.
fn extents(spec: &RackSpec, resource: ResourceId) -> Vec<Extent> {
    let mut extents: Vec<Extent> =
        domain_sizes(spec, resource).into_iter().map(|size| Extent { size, starts: size }).collect();
    for (other, what) in spec.resources_by_id().filter(|(_, what)| what.hard) {
        let DomainLimit::StartingDrives(limit) = what.limit else { continue };
        let mut shared: BTreeMap<(DomainId, DomainId), u64> = BTreeMap::new();
        for drive in &spec.drives {
            let pair = (spec.domain_of(drive.id, resource), spec.domain_of(drive.id, other));
            *shared.entry(pair).or_insert(0) += 1;
        }
        let mut starts = vec![0; extents.len()];
        for ((domain, _), drives) in shared {
            starts[domain.index()] += drives.min(limit.into());
        }
        extents.iter_mut().zip(starts).for_each(|(extent, starts)| extent.starts = extent.starts.min(starts));
    }
    extents
}

/// How the groups use one resource: for each domain, the most drives any group of each class has in it.
struct Uses {
    sizes: Vec<Extent>,
    by_class: Vec<BTreeMap<ClassId, u64>>,
}

impl Uses {
    fn of(spec: &RackSpec, layout: &Layout, resource: ResourceId) -> Self {
        let sizes = extents(spec, resource);
        let mut by_class: Vec<BTreeMap<ClassId, u64>> = vec![BTreeMap::new(); sizes.len()];
        for group in &layout.groups {
            for (domain, count) in counts(spec, &group.drives, resource) {
                let most = by_class[domain.index()].entry(group.class).or_insert(0);
                *most = count.max(*most);
            }
        }
        Self { sizes, by_class }
    }

    fn worst(&self, domain: DomainId) -> u64 {
        self.by_class[domain.index()].values().sum()
    }

    /// The demand of classes other than `class` on `domain` at their worst.
    fn others(&self, domain: DomainId, class: ClassId) -> u64 {
        assert!(self.worst(domain) <= self.sizes[domain.index()].size, "groups share no drives");
        self.worst(domain) - self.by_class[domain.index()].get(&class).copied().unwrap_or(0)
    }

    /// The domains that some choice of groups exceeds, what it takes and what there is.
    fn exceeded(&self, spec: &RackSpec, resource: &Resource) -> Vec<(DomainId, u64, u64)> {
        let worst = |(index, size): (usize, &Extent)| {
            let domain = DomainId(index as u32);
            let (worst, limit) = taken(spec, resource, *size, self.worst(domain));
            (domain, worst, limit)
        };
        let awake = |(domain, _, _): &(DomainId, u64, u64)| self.worst(*domain) > 0;
        self.sizes.iter().enumerate().map(worst).filter(awake).filter(|(_, worst, limit)| worst > limit).collect()
    }
}

fn counts(spec: &RackSpec, drives: &[DriveId], resource: ResourceId) -> BTreeMap<DomainId, u64> {
    let mut counts = BTreeMap::new();
    for drive in drives {
        *counts.entry(spec.domain_of(*drive, resource)).or_insert(0) += 1;
    }
    counts
}

/// How two groups stand to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collision {
    Full,
    Partial,
    None,
}

fn collisions(spec: &RackSpec, layout: &Layout) -> Vec<Shortfall> {
    let hard: Vec<(ResourceId, &Resource)> = spec.resources_by_id().filter(|(_, what)| what.hard).collect();
    let uses: Vec<Uses> = hard.iter().map(|(id, _)| Uses::of(spec, layout, *id)).collect();
    let mut shortfalls = Vec::new();
    for (index, groups) in layout.classes.iter().enumerate() {
        let class = ClassId(index as u32);
        let pairs = groups.iter().enumerate().flat_map(|(i, a)| groups[i + 1..].iter().map(move |b| [*a, *b]));
        let mut partial = None;
        let mut none = None;
        for pair in pairs.take(PAIRS_MAX) {
            let found = collision(spec, layout, (&hard, &uses), class, pair);
            let place = if found == Collision::None { &mut none } else { &mut partial };
            if found != Collision::Full && place.is_none() {
                *place = Some(pair);
            }
        }
        shortfalls.extend(partial.map(|groups| Shortfall::PartialCollision { class, groups }));
        shortfalls.extend(none.map(|groups| Shortfall::NoCollision { class, groups }));
    }
    shortfalls
}

fn collision(
    spec: &RackSpec,
    layout: &Layout,
    (hard, uses): (&[(ResourceId, &Resource)], &[Uses]),
    class: ClassId,
    pair: [GroupId; 2],
) -> Collision {
    let drives: Vec<DriveId> = pair.iter().flat_map(|g| layout.groups[g.index()].drives.iter().copied()).collect();
    let mut colliding: BTreeSet<DriveId> = BTreeSet::new();
    for ((id, resource), uses) in hard.iter().zip(uses) {
        let exceeded = |domain: DomainId, count: u64| {
            !carries(spec, resource, uses.sizes[domain.index()], count + uses.others(domain, class))
        };
        let counts = counts(spec, &drives, *id);
        let over: BTreeSet<DomainId> = counts.into_iter().filter(|(d, c)| exceeded(*d, *c)).map(|(d, _)| d).collect();
        colliding.extend(drives.iter().filter(|drive| over.contains(&spec.domain_of(**drive, *id))));
    }
    assert!(colliding.len() <= drives.len(), "only drives of the pair collide");
    match colliding.len() {
        0 => Collision::None,
        all if all == drives.len() => Collision::Full,
        _ => Collision::Partial,
    }
}

fn spread(spec: &RackSpec, layout: &Layout) -> Vec<Shortfall> {
    let mut shortfalls = Vec::new();
    for kind in 0..spec.failure_domains.len() {
        if !spec.failure_domains[kind].loses_media || spec.code.parity == 0 {
            continue;
        }
        let domains_allow = domains_allow(spec, layout.groups.len(), kind);
        for (id, group) in layout.groups.iter().enumerate() {
            if !placement::allows(spec, &group.drives, kind) {
                shortfalls.push(Shortfall::Spread { group: GroupId(id as u32), kind, domains_allow });
            }
        }
    }
    shortfalls
}

/// Whether `groups` groups at once could each have k + r drives with at most r in a domain of the kind: a domain has at
/// most r for each group, and no more than its drives.
fn domains_allow(spec: &RackSpec, groups: usize, kind: usize) -> bool {
    let mut sizes: BTreeMap<DomainId, usize> = BTreeMap::new();
    spec.drives.iter().for_each(|drive| *sizes.entry(drive.failure_domains[kind]).or_insert(0) += 1);
    let room: usize = sizes.values().map(|size| (*size).min(groups * spec.code.parity as usize)).sum();
    room >= groups * spec.code.stacks()
}
