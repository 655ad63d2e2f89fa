//! A judge of layouts and traces that shares no code with the parts that make them.
//!
//! Everything is recomputed from the description. Each broken rule is a [`Violation`].
//!
//! The worst choice of one awake group per class is exact: classes choose independently, so a domain's worst case is
//! the sum over classes of the most drives that any one group of the class has in it.

#[cfg(test)]
pub(crate) mod tests;
mod trace;

pub use trace::{RebuildFault, TraceCheck, TraceFault};

use crate::layout::Layout;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use model::{ClassId, DomainId, DomainLimit, DriveId, DrivePower, GroupId, RackSpec, Resource, ResourceId};

/// A rule that a layout breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The drive is not one of the rack's.
    #[error("{0} is not a drive of this rack")]
    UnknownDrive(DriveId),
    /// The drive is in two groups, or twice in one, or both in a group and a spare.
    #[error("{0} is there twice")]
    DriveTwice(DriveId),
    /// The drive is in no group and no spare.
    #[error("{0} is in no group and no spare")]
    DriveMissing(DriveId),
    /// The group does not have exactly g drives (and so may have fewer than k + r).
    #[error("{group} has {drives} drives")]
    GroupSize {
        /// The group.
        group: GroupId,
        /// Its number of drives.
        drives: usize,
    },
    /// The table of classes does not list the group exactly once, in the group's class.
    #[error("{0} is not exactly once in the table of classes")]
    ClassTable(GroupId),
    /// The table of classes lists a group that does not exist.
    #[error("{0} is in the table of classes and does not exist")]
    UnknownGroup(GroupId),
    /// The class has no group.
    #[error("{0} has no group")]
    EmptyClass(ClassId),
    /// Two drives of the group share a hard domain of limit 1.
    #[error("{drive} and {other} of {group} share a domain of {resource}, which carries one")]
    Conflict {
        /// The group.
        group: GroupId,
        /// One drive.
        drive: DriveId,
        /// The other.
        other: DriveId,
        /// The resource with the shared domain.
        resource: ResourceId,
    },
    /// Some choice of one group per class exceeds a hard limit.
    #[error("{domain} of {resource} carries {limit}, and some choice of groups takes {worst}")]
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

/// Judges a layout.
///
/// # Errors
/// Every violation.
pub fn layout(spec: &RackSpec, layout: &Layout) -> Result<(), Vec<Violation>> {
    let mut violations = drives_once(spec, layout);
    violations.extend(group_sizes(spec, layout));
    violations.extend(class_table(layout));
    if !violations.is_empty() {
        return Err(violations);
    }
    violations.extend(conflicts(spec, layout));
    for (resource, what) in spec.resources_by_id().filter(|(_, what)| what.hard) {
        let exceeded = Uses::of(spec, layout, resource).exceeded(spec, what).into_iter();
        violations.extend(exceeded.map(|(domain, worst, limit)| Violation::HardLimit {
            resource,
            domain,
            worst,
            limit,
        }));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
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
            for drive in group.drives.iter().filter(|drive| spec.drive(**drive).power != DrivePower::None) {
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

/// A domain of a resource: its drives that can sleep, and the maximum number that may spin up at once.
#[derive(Clone, Copy, Default)]
struct Extent {
    size: u64,
    starts: u64,
    /// Drives without power control, and drives of the pool: these are active at all times.
    always_on: u64,
}

/// The worst demand on the resource if `awake` of a domain's drives are awake, and its limit. Links carry any number of
/// drives; a limit on starts allows any number one after the other.
fn taken(spec: &RackSpec, resource: &Resource, domain: Extent, awake: u64) -> (u64, u64) {
    let watts = spec.profile.watts;
    match resource.limit {
        DomainLimit::ActiveDrives(limit) => (awake + domain.always_on, u64::from(limit)),
        DomainLimit::StartingDrives(_) | DomainLimit::BytesPerS(_) => (0, 0),
        DomainLimit::Watts(limit) => {
            let starting = awake.min(domain.starts);
            assert!(domain.starts <= domain.size, "no more drives start than there are");
            let each = u64::from(watts.spin_up_mw.max(watts.active_mw));
            let asleep = domain.size.saturating_sub(awake) * u64::from(watts.standby_mw);
            let spinning = (awake - starting) * u64::from(watts.active_mw);
            (starting * each + spinning + asleep + domain.always_on * spec.always_on_mw(), u64::from(limit) * 1000)
        }
    }
}

fn carries(spec: &RackSpec, resource: &Resource, domain: Extent, awake: u64) -> bool {
    let (taken, limit) = taken(spec, resource, domain, awake.min(domain.size));
    awake > domain.size || taken <= limit
}

/// The domains of a resource. If there are two limits on starts, each one separately bounds what may start.
fn extents(spec: &RackSpec, resource: ResourceId) -> Vec<Extent> {
    let always_on = spec.pool.iter().filter_map(|drive| drive.resource_domains[resource.index()]);
    let mut extents = vec![Extent::default(); spec.domain_count(resource)];
    always_on.for_each(|domain| extents[domain.index()].always_on += 1);
    for drive in &spec.drives {
        let extent = &mut extents[spec.domain_of(drive.id, resource).index()];
        if drive.power == DrivePower::None {
            extent.always_on += 1;
            continue;
        }
        (extent.size, extent.starts) = (extent.size + 1, extent.starts + 1);
    }
    for (other, what) in spec.resources_by_id().filter(|(_, what)| what.hard) {
        let DomainLimit::StartingDrives(limit) = what.limit else { continue };
        let mut shared: BTreeMap<(DomainId, DomainId), u64> = BTreeMap::new();
        for drive in spec.drives.iter().filter(|drive| drive.power != DrivePower::None) {
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

/// The use of one resource by the groups: for each domain and class, the most sleeping-capable drives of any one group.
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

    /// The domains that some choice of groups exceeds, with demand and limit.
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
    for drive in drives.iter().filter(|drive| spec.drive(**drive).power != DrivePower::None) {
        *counts.entry(spec.domain_of(*drive, resource)).or_insert(0) += 1;
    }
    counts
}
