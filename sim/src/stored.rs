//! The content of a rack when a run begins, without simulating how it got there.
//!
//! Blobs are placed by the engine's own placement until the rack is as full as it shall be. A full rack has millions of
//! blobs, so each placed blob stands for many: the rack is divided among `count` of them. Requests fall where they
//! would in the full rack, since only the group and the drives of a blob matter, and groups are filled as evenly.
//!
//! Invariants: memory is one number for each stack of each blob placed.

use crate::baseline::random_stacks;
use engine::layout::Layout;
use engine::placement::{DriveRule, Placement, Wanted};
use model::{ClassId, DriveId, GroupId, RackSpec, Rng};

/// The engine's placement over the groups of `layout`, all of them empty.
pub(crate) fn placement(spec: &RackSpec, layout: &Layout) -> Placement {
    let (drives, class_of): (Vec<Vec<DriveId>>, Vec<ClassId>) =
        layout.groups.iter().map(|group| (group.drives.clone(), group.class)).unzip();
    Placement::new(spec, &drives, &class_of)
}

/// The places of the stored blobs.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    stacks: usize,
    drives: Vec<DriveId>,
    groups: Vec<GroupId>,
    /// The bytes that they take on each drive.
    pub used_bytes: Vec<u64>,
}

impl Stored {
    /// Fills `permille` thousandths of a rack with `count` blobs of equal size by the engine's placement, or with as
    /// many as find room.
    pub fn in_groups(spec: &RackSpec, layout: &Layout, count: u32, permille: u32, rng: &mut Rng) -> Self {
        let mut placement = placement(spec, layout);
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

    /// `count` blobs on random drives, as in the random layout.
    pub fn at_random(spec: &RackSpec, count: u32, rng: &mut Rng) -> Self {
        let mut stored = Self::nothing(spec);
        for _ in 0..count {
            if let Some(drives) = random_stacks(spec, rng) {
                stored.add(GroupId(0), &drives, 0);
            }
        }
        stored
    }

    /// The drives of `count` blobs of the group with these members. Each blob has a stack on `drive`, and its others on
    /// any members that the rule of domains allows.
    pub fn sharing(
        spec: &RackSpec,
        members: &[DriveId],
        drive: DriveId,
        count: u32,
        rng: &mut Rng,
    ) -> Vec<Vec<DriveId>> {
        assert!(members.contains(&drive), "{drive} is no member of the group");
        let mut placement = Placement::new(spec, &[members.to_vec()], &[ClassId(0)]).with_rule(DriveRule::Random);
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
        assert!(drives.len() == self.stacks, "a blob of {} stacks", drives.len());
        self.groups.push(group);
        self.drives.extend_from_slice(drives);
        for drive in drives {
            self.used_bytes[drive.index()] += stack_bytes;
        }
    }

    /// The number of blobs.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// The group and the drives of blob `index`.
    pub fn blob(&self, index: usize) -> (GroupId, &[DriveId]) {
        (self.groups[index], &self.drives[index * self.stacks..][..self.stacks])
    }
}
