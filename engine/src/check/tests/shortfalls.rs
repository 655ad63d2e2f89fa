//! Shortfalls of a layout: properties that are merely worse than desired, and may be forced by the geometry. The worst
//! choice of groups is that of the judge.

use super::super::{Uses, carries, counts, layout as judge};
use super::placement;
use crate::layout::Layout;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use model::{ClassId, DomainId, DriveId, GroupId, RackSpec, Resource, ResourceId};

/// Maximum number of pairs of groups of a class that are examined for collision; a class of 400 groups is examined in
/// full.
const PAIRS_MAX: usize = 80_000;

/// A desired property that a layout does not have.
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
    /// Two groups of the class collide only partly: some of their drives are in no hard domain that the two would
    /// exceed, together with the worst case of the other classes. The first such pair of the class.
    PartialCollision {
        /// The class.
        class: ClassId,
        /// The pair.
        groups: [GroupId; 2],
    },
    /// Two groups of the class do not collide at all, and yet only one of them may be awake. The first such pair.
    NoCollision {
        /// The class.
        class: ClassId,
        /// The pair.
        groups: [GroupId; 2],
    },
    /// No choice of k + r drives of the group has at most r of them in each domain of the kind.
    Spread {
        /// The group.
        group: GroupId,
        /// The kind of failure domain, by its place in the description.
        kind: usize,
        /// True if the number and size of its domains would allow it for every group of the layout at once, ignoring
        /// other limits.
        domains_allow: bool,
    },
}

/// The shortfalls of a valid layout; none if it has all desired properties.
pub fn shortfalls(spec: &RackSpec, layout: &Layout) -> Vec<Shortfall> {
    assert_eq!(judge(spec, layout), Ok(()), "a layout that is sound");
    let mut shortfalls = Vec::new();
    for (id, resource) in spec.resources_by_id().filter(|(_, resource)| !resource.hard) {
        for (domain, worst, limit) in Uses::of(spec, layout, id).exceeded(spec, resource) {
            shortfalls.push(Shortfall::SoftLimit { resource: id, domain, worst, limit });
        }
    }
    shortfalls.extend(collisions(spec, layout));
    shortfalls.extend(spread(spec, layout));
    shortfalls
}

impl Uses {
    /// The worst demand of classes other than `class` on `domain`.
    fn others(&self, domain: DomainId, class: ClassId) -> u64 {
        assert!(self.worst(domain) <= self.sizes[domain.index()].size, "groups share no drives");
        self.worst(domain) - self.by_class[domain.index()].get(&class).copied().unwrap_or(0)
    }
}

/// The relation of two groups.
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

/// True if `groups` groups at once could each have k + r drives with at most r in a domain of the kind: a domain has at
/// most r for each group, and no more than its drives.
fn domains_allow(spec: &RackSpec, groups: usize, kind: usize) -> bool {
    let mut sizes: BTreeMap<DomainId, usize> = BTreeMap::new();
    spec.drives.iter().for_each(|drive| *sizes.entry(drive.failure_domains[kind]).or_insert(0) += 1);
    let room: usize = sizes.values().map(|size| (*size).min(groups * spec.code.parity as usize)).sum();
    room >= groups * spec.code.stacks()
}
