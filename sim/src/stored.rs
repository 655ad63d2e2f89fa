//! What lies in the rack when a run begins, without simulating how it got there.
//!
//! Blobs are placed by the engine's own placement until the rack is as full as it shall be. So that this need not be
//! done for the millions of blobs of a full rack, each placed blob stands for many: the rack is divided among `count`
//! of them. Where requests fall is the same, since what matters of a blob is its group and its drives; and groups are
//! as evenly filled as in a full rack.
//!
//! Invariants: memory is one number for each stack of each blob placed.

use crate::baseline::random_stacks;
use engine::layout::Layout;
use engine::placement::{DriveRule, Placement, Wanted};
use model::{ClassId, DriveId, GroupId, RackSpec, Rng};

/// Where the stored blobs lie.
#[derive(Clone, Debug)]
pub struct Stored {
    stacks: usize,
    drives: Vec<DriveId>,
    groups: Vec<GroupId>,
    used_bytes: Vec<u64>,
}

impl Stored {
    /// Fills so many thousandths of a rack with `count` blobs of equal size by the engine's placement, or with as many
    /// as find room.
    pub fn in_groups(spec: &RackSpec, layout: &Layout, count: u32, permille: u32, rng: &mut Rng) -> Self {
        let groups: Vec<Vec<DriveId>> = layout.groups.iter().map(|group| group.drives.clone()).collect();
        let class_of: Vec<ClassId> = layout.groups.iter().map(|group| group.class).collect();
        let mut placement = Placement::new(spec, &groups, &class_of);
        let mut stored = Self::nothing(spec);
        let grouped = layout.groups.iter().flat_map(|group| &group.drives);
        let capacity_bytes: u64 = grouped.map(|drive| spec.capacity_bytes(*drive)).sum();
        let filled_bytes = capacity_bytes / 1_000 * u64::from(permille.min(1_000));
        let stack_bytes = (filled_bytes / (u64::from(count.max(1)) * stored.stacks as u64)).max(1);
        for _ in 0..count {
            let chosen = placement.choose(&Wanted::anywhere(stack_bytes, stack_bytes), rng);
            let Some((group, drives)) = chosen else { break };
            placement.settle(&drives, stack_bytes, stack_bytes);
            stored.add(group, &drives, stack_bytes);
        }
        stored
    }

    /// `count` blobs on random drives, as random layout has them.
    pub fn at_random(spec: &RackSpec, count: u32, rng: &mut Rng) -> Self {
        let mut stored = Self::nothing(spec);
        for _ in 0..count {
            if let Some(drives) = random_stacks(spec, rng) {
                stored.add(GroupId(0), &drives, 0);
            }
        }
        stored
    }

    /// The drives of `count` blobs of `group`, each of which has a stack on `drive`, its other stacks being on any
    /// drives that the rule of domains allows. Nothing if the drive is not of the group.
    pub fn sharing(
        spec: &RackSpec,
        layout: &Layout,
        group: GroupId,
        drive: DriveId,
        count: u32,
        rng: &mut Rng,
    ) -> Vec<Vec<DriveId>> {
        let drives = layout.groups[group.index()].drives.clone();
        if !drives.contains(&drive) {
            return Vec::new();
        }
        let mut placement = Placement::new(spec, &[drives], &[ClassId(0)]).with_rule(DriveRule::Random);
        let mut blobs = Vec::with_capacity(count as usize);
        while blobs.len() < count as usize {
            let chosen = placement.choose(&Wanted::anywhere(1, 1), rng);
            let Some((_, drives)) = chosen else { break };
            placement.release(&drives, 1);
            if drives.contains(&drive) {
                blobs.push(drives);
            }
        }
        blobs
    }

    fn nothing(spec: &RackSpec) -> Self {
        let used_bytes = vec![0; spec.drives.len()];
        Self { stacks: spec.code.stacks(), drives: Vec::new(), groups: Vec::new(), used_bytes }
    }

    fn add(&mut self, group: GroupId, drives: &[DriveId], stack_bytes: u64) {
        self.groups.push(group);
        self.drives.extend_from_slice(drives);
        for drive in drives {
            self.used_bytes[drive.index()] += stack_bytes;
        }
    }

    /// How many blobs there are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group and the drives of blob `index`.
    pub fn blob(&self, index: usize) -> (GroupId, &[DriveId]) {
        (self.groups[index], &self.drives[index * self.stacks..][..self.stacks])
    }

    /// For each group that holds any, one of its blobs.
    pub fn one_of_each_group(&self) -> Vec<usize> {
        let mut first = std::collections::BTreeMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            first.entry(*group).or_insert(index);
        }
        first.into_values().collect()
    }

    /// What they take of each drive, in bytes.
    pub fn used_bytes(&self) -> &[u64] {
        &self.used_bytes
    }
}
