//! Layout synthesis: from a rack's description to groups and classes (Pelican, section 3, and its future work).
//!
//! A *group* is a set of drives that may all be awake at once and hold blobs together. A *class* is a set of groups of
//! which one is awake at a time; classes do not affect each other. Two drives conflict if they share a hard domain of
//! limit 1; for larger limits, any choice of one group per class stays within the limit. So the number of classes is
//! the number of groups that can be active at once, and the aim is as many as the limits allow, over as many drives as
//! possible.
//!
//! The synthesis has four steps, each in its own file:
//! 1. `constraints`: every limit becomes a number of awake drives per domain, every failure domain a number of stacks
//!    it may cost;
//! 2. `classes`: drives that share a domain of limit 1 must go to the same class (only one class may touch it), so
//!    these sets are assigned whole, evenly over the classes, so that the sum of the needs of the classes stays
//!    within each limit;
//! 3. `assignment`: within a class, one domain after the other is assigned to the groups, one drive to each: as a
//!    rotation (the paper's geometry allows an exact one), or at least cost (`hungarian`) where rotations collide;
//! 4. `search`: the other steps run for the bound and then for fewer classes, with and without keeping soft domains and
//!    servers whole, and the best result is used. Work is bounded for any description, and nothing is random.
//!
//! Invariants of a [`Layout`] (judged by [`check`](crate::check), which shares no code with this):
//! - every drive is in exactly one group or a spare; every group has exactly g drives; every group is in exactly one
//!   class;
//! - the worst choice of one group per class keeps every hard limit, while as many of its drives spin up at the same
//!   time as hard limits on starts allow.

mod assignment;
mod classes;
mod constraints;
mod hungarian;
mod search;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use constraints::{Constraints, Plan};
use core::fmt;
use model::{ClassId, DriveId, GroupId, RackSpec};
use serde::{Deserialize, Serialize};

/// A set of drives that are awake together and hold blobs together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The drives of the group, ascending.
    pub drives: Vec<DriveId>,
    /// The class of the group.
    pub class: ClassId,
}

/// The groups and classes of a rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Parts")]
pub struct Layout {
    /// The groups, by id.
    pub groups: Vec<Group>,
    /// The groups of each class, ascending.
    pub classes: Vec<Vec<GroupId>>,
    /// Drives in no group, ascending.
    pub spares: Vec<DriveId>,
    /// Properties of this layout that an operator should know.
    pub warnings: Vec<Warning>,
    /// The upper bound on the groups that can be active at once, and its reason.
    pub bound: Bound,
    #[serde(skip)]
    group_of: Vec<Option<GroupId>>,
}

/// A layout in its serialised form; the table by drive is recomputed.
#[derive(Deserialize)]
struct Parts {
    groups: Vec<Group>,
    classes: Vec<Vec<GroupId>>,
    spares: Vec<DriveId>,
    warnings: Vec<Warning>,
    bound: Bound,
}

impl From<Parts> for Layout {
    fn from(parts: Parts) -> Self {
        let Parts { groups, classes, spares, warnings, bound } = parts;
        let group_of = by_drive(&groups);
        Self { groups, classes, spares, warnings, bound, group_of }
    }
}

fn by_drive(groups: &[Group]) -> Vec<Option<GroupId>> {
    let drives = groups.iter().filter_map(|g| g.drives.last()).map(|d| d.index() + 1).max().unwrap_or(0);
    let mut table = vec![None; drives];
    for (id, group) in groups.iter().enumerate() {
        for drive in group.drives.iter().filter(|d| d.index() < drives) {
            table[drive.index()] = Some(GroupId(id as u32));
        }
    }
    table
}

/// An upper bound on the groups that can be active at once, with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// No layout has more groups active at once.
    pub groups: u32,
    /// The resource whose hard limits give the bound; `None` if it is the number of drives.
    pub resource: Option<String>,
    /// The number of drives that this resource allows to be awake at once (or the number of all drives).
    pub drives_awake: u64,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, drives_awake, .. } = self;
        let plural = if *groups == 1 { "" } else { "s" };
        write!(f, "at most {groups} group{plural}, since ")?;
        match &self.resource {
            Some(name) => write!(f, "`{name}` lets {drives_awake} drives be awake at once"),
            None => write!(f, "there are {drives_awake} drives"),
        }
    }
}

/// A property that an operator should know about a layout that is sound nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Warning {
    /// g = k + r: when a drive fails, its group has no other drive to rebuild on.
    #[error(
        "a group of {group_drives} has no drive beyond k + r, so that a failed drive cannot be rebuilt inside its \
         group; write a larger group_drives or a smaller k"
    )]
    NoRoomToRebuild {
        /// g.
        group_drives: u32,
    },
    /// A hard limit is too low for any drive of some of its domains to be awake; they are spares.
    #[error(
        "`{resource}` is too low for any of {drives} drives to be awake, which are therefore spares; raise its limit"
    )]
    NeverAwake {
        /// The resource.
        resource: String,
        /// The number of drives.
        drives: u32,
    },
    /// A soft limit can be exceeded by some choice of one group per class; this costs speed.
    #[error("the soft limit of `{resource}` can be exceeded in {domains} of its domains, which costs speed")]
    SoftLimit {
        /// The resource.
        resource: String,
        /// The number of its domains that can exceed it.
        domains: u32,
    },
    /// The loss of one failure domain can cost a blob of these groups more than r stacks.
    #[error(
        "in {groups} groups the loss of one `{failure_domain}` can cost a blob more than r of its stacks, and so the \
         blob; write a larger r, or describe smaller domains"
    )]
    Spread {
        /// The kind of failure domain.
        failure_domain: String,
        /// The number of groups.
        groups: u32,
    },
    /// Fewer groups can be active at once than the bound allows.
    #[error("{groups} groups can be active at once, {} fewer than the upper bound for this rack", .bound - .groups)]
    BelowBound {
        /// The number that can be active.
        groups: u32,
        /// The bound.
        bound: u32,
    },
}

/// The reason a rack has no layout, and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Fewer drives than a group has.
    #[error(
        "a group of {group_drives} cannot be made of {drives} drives; write group_drives = {drives} or less, and \
         k + r no larger than that"
    )]
    TooFewDrives {
        /// Drives of the rack that can be awake at all.
        drives: u64,
        /// g.
        group_drives: u32,
    },
    /// A resource allows fewer drives to be awake at once than a group has.
    #[error(
        "`{resource}` lets {drives_awake} drives be awake at once, and a group has {group_drives}; raise its limit, or \
         write group_drives = {drives_awake} or less, and k + r no larger than that{}",
        .starting_drives.map_or_else(String::new, staggered_hint)
    )]
    LimitTooLow {
        /// The resource.
        resource: String,
        /// The number of drives that the resource allows to be awake at once.
        drives_awake: u64,
        /// g.
        group_drives: u32,
        /// The number of drives of each domain that may start at once under `starting_drives` so that the limit carries
        /// a group after all, if that helps.
        starting_drives: Option<u32>,
    },
    /// Each resource alone would carry a group, but no group was found that all of them carry together.
    #[error(
        "no {group_drives} drives were found that may all be awake at once under every hard limit{}; write a smaller \
         group_drives, or raise the limits",
        .resource.as_deref().map_or_else(String::new, |name| format!(" (`{name}` leaves the least room)"))
    )]
    NoGroup {
        /// g.
        group_drives: u32,
        /// The resource with the least room.
        resource: Option<String>,
    },
}

fn staggered_hint(starts: u32) -> String {
    format!(
        "; or let drives start one after the other, which takes less power: a hard resource with the same domains and \
         starting_drives = {starts} or less"
    )
}

/// The groups and classes for `spec`: deterministic, and bounded in work by the number of drives.
///
/// # Errors
/// If no group can be formed; the error states what to change.
pub fn synthesise(spec: &RackSpec) -> Result<Layout, LayoutError> {
    let constraints = Constraints::of(spec);
    let bound = bound(spec, &constraints)?;
    let plan = search::best(spec, &constraints);
    if plan.is_empty() {
        return Err(LayoutError::NoGroup { group_drives: spec.group_drives, resource: bound.resource });
    }
    Ok(finished(spec, &constraints, &plan, bound))
}

fn bound(spec: &RackSpec, constraints: &Constraints) -> Result<Bound, LayoutError> {
    let (drives_awake, resource) = constraints.awake_max(&constraints.usable);
    let resource = resource.map(|r| spec.resources[r].name.clone());
    let group_drives = spec.group_drives;
    assert!(drives_awake <= constraints.usable.len() as u64, "no more drives are awake than can be");
    let groups = u32::try_from(drives_awake / u64::from(group_drives)).unwrap_or(u32::MAX);
    match (groups, resource) {
        (0, Some(resource)) => {
            let starting_drives = constraints.staggered(spec, &resource);
            Err(LayoutError::LimitTooLow { resource, drives_awake, group_drives, starting_drives })
        }
        (0, None) => Err(LayoutError::TooFewDrives { drives: drives_awake, group_drives }),
        (_, resource) => Ok(Bound { groups, resource, drives_awake }),
    }
}

/// Numbers the plan's groups by their first drive, class by class, and adds warnings.
fn finished(spec: &RackSpec, constraints: &Constraints, plan: &Plan, bound: Bound) -> Layout {
    let mut classes = plan.clone();
    for class in &mut classes {
        for group in class.iter_mut() {
            group.sort_unstable();
        }
        class.sort_unstable();
    }
    classes.sort_unstable();
    let mut layout =
        Layout { groups: vec![], classes: vec![], spares: vec![], warnings: vec![], bound, group_of: vec![] };
    for (class, groups) in classes.iter().enumerate() {
        let first = layout.groups.len();
        layout.classes.push((first..first + groups.len()).map(|id| GroupId(id as u32)).collect());
        let group = |drives: &Vec<u32>| Group {
            drives: drives.iter().map(|d| DriveId(*d)).collect(),
            class: ClassId(class as u32),
        };
        layout.groups.extend(groups.iter().map(group));
    }
    assert!(layout.groups.iter().all(|group| group.drives.len() == constraints.group_drives), "a group has g drives");
    assert!(layout.classes.iter().all(|groups| !groups.is_empty()), "a class has groups");
    layout.group_of = by_drive(&layout.groups);
    layout.spares = spec.drives.iter().map(|d| d.id).filter(|d| layout.group_of(*d).is_none()).collect();
    let grouped = layout.groups.len() * constraints.group_drives;
    assert!(grouped + layout.spares.len() == spec.drives.len(), "every drive is in one group or a spare");
    assert!(layout.active_groups_max() <= layout.bound.groups, "no layout has more groups active than the bound");
    layout.warnings = warnings(spec, constraints, plan, &layout);
    layout
}

fn warnings(spec: &RackSpec, constraints: &Constraints, plan: &Plan, layout: &Layout) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if spec.group_drives as usize == spec.code.stacks() {
        warnings.push(Warning::NoRoomToRebuild { group_drives: spec.group_drives });
    }
    for (resource, drives) in constraints.never_awake() {
        warnings.push(Warning::NeverAwake { resource: spec.resources[resource].name.clone(), drives });
    }
    let groups = layout.active_groups_max();
    if groups < layout.bound.groups {
        warnings.push(Warning::BelowBound { groups, bound: layout.bound.groups });
    }
    for (kind, domains) in constraints.soft_breaches(plan) {
        warnings.push(Warning::SoftLimit { resource: spec.resources[kind].name.clone(), domains });
    }
    for (kind, groups) in constraints.spread_shortfalls(plan) {
        warnings.push(Warning::Spread { failure_domain: spec.failure_domains[kind].name.clone(), groups });
    }
    warnings
}

impl Layout {
    /// The group that `drive` is in; `None` for spares and drives of other racks.
    pub fn group_of(&self, drive: DriveId) -> Option<GroupId> {
        self.group_of.get(drive.index()).copied().flatten()
    }

    /// The class of a group of this layout.
    pub fn class_of(&self, group: GroupId) -> ClassId {
        self.groups[group.index()].class
    }

    /// The number of groups that can be active at once: one of each class.
    pub fn active_groups_max(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The largest number of drives in groups that are awake at once, one of each class. Drives that are always on
    /// count only in these groups.
    pub fn drives_active_max(&self) -> u32 {
        let largest =
            |class: &Vec<GroupId>| class.iter().map(|g| self.groups[g.index()].drives.len()).max().unwrap_or(0);
        self.classes.iter().map(largest).sum::<usize>() as u32
    }

    /// The power that the drives draw when all sleep, in milliwatts.
    pub fn asleep_mw(&self, spec: &RackSpec) -> u64 {
        self.power_mw(spec, spec.profile.watts.standby_mw)
    }

    /// The most that the drives draw under the ledger's permits, in milliwatts: one group of every class is awake, and
    /// as many of its drives spin up at once as hard limits on starts allow. Pelican, which has no such limit: 3.7 kW.
    pub fn waking_mw(&self, spec: &RackSpec) -> u64 {
        let (active, spin_up) = (spec.profile.watts.active_mw, spec.profile.watts.spin_up_mw);
        self.active_mw(spec) + self.drives_starting_max(spec) * u64::from(spin_up.saturating_sub(active))
    }

    /// The largest number of drives that may spin up at once.
    pub fn drives_starting_max(&self, spec: &RackSpec) -> u64 {
        let active = self.drives_started_max(spec);
        let starting = spec.starts_max(active, |resource| {
            let mut most = vec![0_u64; spec.domain_count(resource)];
            for class in &self.classes {
                let mut of_class = vec![0_u64; most.len()];
                for group in class {
                    let mut counts = vec![0_u64; most.len()];
                    let drives = &self.groups[group.index()].drives;
                    for drive in drives.iter().filter(|drive| !spec.is_always_on(**drive)) {
                        counts[spec.domain_of(*drive, resource).index()] += 1;
                    }
                    of_class.iter_mut().zip(counts).for_each(|(most, count)| *most = count.max(*most));
                }
                most.iter_mut().zip(of_class).for_each(|(sum, most)| *sum += most);
            }
            most
        });
        assert!(starting <= active, "no more drives start than are awake in the end");
        starting
    }

    /// The power that the drives draw while one group of every class is active, in milliwatts. Pelican: 2.6 kW.
    pub fn active_mw(&self, spec: &RackSpec) -> u64 {
        self.power_mw(spec, spec.profile.watts.active_mw)
    }

    /// The largest number of drives that are awake at once and were started for that: drives that are always on do not
    /// count.
    pub fn drives_started_max(&self, spec: &RackSpec) -> u64 {
        let started = |group: &GroupId| {
            let drives = &self.groups[group.index()].drives;
            drives.iter().filter(|drive| !spec.is_always_on(**drive)).count() as u64
        };
        self.classes.iter().map(|class| class.iter().map(started).max().unwrap_or(0)).sum()
    }

    fn power_mw(&self, spec: &RackSpec, awake_mw: u32) -> u64 {
        let (awake, always_on) = (self.drives_started_max(spec), spec.always_on_drives());
        let sleep = (spec.drives.len() + spec.pool.len()) as u64 - always_on;
        assert!(awake <= sleep, "no more drives are awake than there are");
        let asleep_mw = (sleep - awake) * u64::from(spec.profile.watts.standby_mw);
        awake * u64::from(awake_mw) + asleep_mw + always_on * spec.always_on_mw()
    }
}
