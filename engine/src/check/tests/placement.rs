//! Rules for the drives that store a blob's stacks.

use crate::layout::Layout;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use model::{DomainId, DriveId, GroupId, RackSpec};

/// Maximum number of partial choices examined, to find out if several kinds of failure domain can be kept at once.
const CHOICES_MAX: u32 = 100_000;

/// A fault of the drives that store a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementFault {
    /// There is no such group.
    UnknownGroup(GroupId),
    /// Not exactly k + r drives.
    Count {
        /// The number of drives.
        drives: usize,
        /// k + r.
        stacks: usize,
    },
    /// The drive is not one of the group.
    NotInGroup(DriveId),
    /// The drive holds two stacks.
    Twice(DriveId),
    /// More than r stacks are in one failure domain, although that is avoidable.
    Spread {
        /// The kind of failure domain, by its place in the description.
        kind: usize,
        /// The domain.
        domain: DomainId,
        /// The number of stacks in it.
        stacks: usize,
    },
}

/// Judges the drives of a blob, in any order: k + r different drives of `group`, and at most r of them in any domain
/// whose loss loses media, *where the geometry allows it*.
///
/// It allows it for a kind of failure domain if the sum over the group's domains of min(drives of the group in it, r)
/// is at least k + r: then some choice of k + r drives has at most r in each. Kinds for which this fails are not
/// judged. If the kinds left cannot all be kept by one choice (they may cross each other), spread is not judged at all.
/// All drives of the group are taken to be healthy and to have room.
///
/// # Errors
/// Every fault.
pub fn blob_placement(
    spec: &RackSpec,
    layout: &Layout,
    group: GroupId,
    drives: &[DriveId],
) -> Result<(), Vec<PlacementFault>> {
    let Some(members) = layout.groups.get(group.index()).map(|g| &g.drives) else {
        return Err(Vec::from([PlacementFault::UnknownGroup(group)]));
    };
    let mut faults = Vec::new();
    if drives.len() != spec.code.stacks() {
        faults.push(PlacementFault::Count { drives: drives.len(), stacks: spec.code.stacks() });
    }
    let mut seen = BTreeSet::new();
    for drive in drives {
        if !members.contains(drive) {
            faults.push(PlacementFault::NotInGroup(*drive));
        }
        if !seen.insert(*drive) {
            faults.push(PlacementFault::Twice(*drive));
        }
    }
    if faults.is_empty() {
        faults = crowded(spec, members, drives);
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn crowded(spec: &RackSpec, members: &[DriveId], drives: &[DriveId]) -> Vec<PlacementFault> {
    let kinds: Vec<usize> = (0..spec.failure_domains.len())
        .filter(|kind| spec.failure_domains[*kind].loses_media && allows(spec, members, *kind))
        .collect();
    let mut faults = Vec::new();
    for kind in &kinds {
        for (domain, stacks) in per_domain(spec, drives, *kind) {
            if stacks > spec.code.parity as usize {
                faults.push(PlacementFault::Spread { kind: *kind, domain, stacks });
            }
        }
    }
    if faults.is_empty() || possible(spec, members, &kinds) { faults } else { Vec::new() }
}

fn per_domain(spec: &RackSpec, drives: &[DriveId], kind: usize) -> BTreeMap<DomainId, usize> {
    let mut counts = BTreeMap::new();
    for drive in drives {
        *counts.entry(spec.drive(*drive).failure_domains[kind]).or_insert(0) += 1;
    }
    counts
}

/// True if some k + r of `members` have at most r in each domain of the kind.
pub(super) fn allows(spec: &RackSpec, members: &[DriveId], kind: usize) -> bool {
    let counts = per_domain(spec, members, kind);
    counts.values().map(|count| (*count).min(spec.code.parity as usize)).sum::<usize>() >= spec.code.stacks()
}

/// True if some k + r of `members` have at most r in each domain of all `kinds` at once, by a bounded search.
fn possible(spec: &RackSpec, members: &[DriveId], kinds: &[usize]) -> bool {
    let mut search = Search { spec, members, kinds, counts: BTreeMap::new(), budget: CHOICES_MAX };
    search.choose(0, spec.code.stacks())
}

struct Search<'a> {
    spec: &'a RackSpec,
    members: &'a [DriveId],
    kinds: &'a [usize],
    counts: BTreeMap<(usize, DomainId), usize>,
    budget: u32,
}

impl Search<'_> {
    /// True if `wanted` more drives can be chosen from the members from `next` on.
    fn choose(&mut self, next: usize, wanted: usize) -> bool {
        if wanted == 0 {
            return true;
        }
        if self.budget == 0 || self.members.len() - next < wanted {
            return false;
        }
        assert!(next < self.members.len(), "there are members to choose from");
        self.budget -= 1;
        let domains = &self.spec.drive(self.members[next]).failure_domains;
        let keys: Vec<(usize, DomainId)> = self.kinds.iter().map(|kind| (*kind, domains[*kind])).collect();
        let limit = self.spec.code.parity as usize;
        if keys.iter().all(|key| self.counts.get(key).is_none_or(|count| *count < limit)) {
            for key in &keys {
                *self.counts.entry(*key).or_insert(0) += 1;
            }
            if self.choose(next + 1, wanted - 1) {
                return true;
            }
            for key in &keys {
                *self.counts.entry(*key).or_insert(1) -= 1;
            }
        }
        self.choose(next + 1, wanted)
    }
}
