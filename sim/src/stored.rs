//! The content of a rack at the beginning of a run, without a simulation of its past.
//!
//! The engine's own placement places blobs until the rack has the wanted fill level. A full rack has millions of blobs,
//! so each placed blob represents many: the rack is divided among `count` of them. Requests go to the same places as in
//! the full rack, since only the group and the drives of a blob matter, and groups are filled as evenly.
//!
//! Invariants: in groups of up to 32 drives, memory is eight bytes per placed blob, so reads of random blobs find most
//! of them in the processor's cache; for blobs on any drives, memory is a number per stack.

use crate::baseline::random_stacks;
use engine::DriveList;
use engine::layout::Layout;
use engine::placement::{DriveRule, Placement, Wanted};
use model::{ClassId, DriveId, GroupId, RackSpec, Rng};

/// The engine's placement over the groups of `layout`, all empty.
pub(crate) fn placement(spec: &RackSpec, layout: &Layout) -> Placement {
    let (drives, class_of): (Vec<Vec<DriveId>>, Vec<ClassId>) =
        layout.groups.iter().map(|group| (group.drives.clone(), group.class)).unzip();
    Placement::new(spec, &drives, &class_of)
}

/// The group of each blob, and its drives.
#[derive(Clone, Debug)]
enum Blobs {
    /// Blobs on any drives; the drives of all blobs are consecutive.
    OnAny {
        groups: Vec<GroupId>,
        drives: Vec<DriveId>,
    },
    InGroups(BlobsInGroups),
}

/// Blobs within their groups, each with its stacks in the order of its drives' ids.
#[derive(Clone, Debug)]
struct BlobsInGroups {
    /// The drives of each group, by id.
    members: Vec<Vec<DriveId>>,
    /// A row for each blob: the number of its group, then a bit for each member.
    rows: Vec<u32>,
    row_words: usize,
}

const WORD_BITS: usize = u32::BITS as usize;

impl BlobsInGroups {
    fn none(layout: &Layout) -> Self {
        let mut members: Vec<Vec<DriveId>> = layout.groups.iter().map(|group| group.drives.clone()).collect();
        for members in &mut members {
            members.sort_unstable();
        }
        let most = members.iter().map(Vec::len).max().unwrap_or(0);
        Self { members, rows: Vec::new(), row_words: 1 + most.div_ceil(WORD_BITS) }
    }

    fn add(&mut self, group: GroupId, drives: &[DriveId]) {
        assert!(drives.is_sorted(), "stacks lie in the order of their drives' ids");
        let bits = self.rows.len() + 1;
        self.rows.push(group.0);
        self.rows.resize(bits + self.row_words - 1, 0);
        for drive in drives {
            let member = self.members[group.index()].binary_search(drive).expect("a blob lies within its group");
            self.rows[bits + member / WORD_BITS] |= 1 << (member % WORD_BITS);
        }
    }

    fn get(&self, index: usize, stacks: usize) -> (GroupId, DriveList) {
        let row = &self.rows[index * self.row_words..][..self.row_words];
        let group = GroupId(row[0]);
        let mut drives = DriveList::new();
        for (members, bits) in self.members[group.index()].chunks(WORD_BITS).zip(&row[1..]) {
            let mut left = *bits;
            while left != 0 {
                drives.push(members[left.trailing_zeros() as usize]);
                left &= left - 1;
            }
        }
        assert!(drives.len() == stacks, "a blob of {stacks} stacks has {} drives", drives.len());
        (group, drives)
    }
}

/// The places of the stored blobs.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    stacks: usize,
    blobs: Blobs,
    /// The bytes that the blobs take on each drive.
    pub used_bytes: Vec<u64>,
}

impl Stored {
    /// Fills `permille` thousandths of a rack with `count` blobs of equal size by the engine's placement, or with as
    /// many as there is space for.
    pub fn in_groups(spec: &RackSpec, layout: &Layout, count: u32, permille: u32, rng: &mut Rng) -> Self {
        let mut placement = placement(spec, layout);
        let mut stored = Self::nothing(spec, Blobs::InGroups(BlobsInGroups::none(layout)));
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
        let mut stored = Self::nothing(spec, Blobs::OnAny { groups: Vec::new(), drives: Vec::new() });
        for _ in 0..count {
            if let Some(drives) = random_stacks(spec, rng) {
                stored.add(GroupId(0), &drives, 0);
            }
        }
        stored
    }

    /// The drives of `count` blobs of the group with these members. Each blob has a stack on `drive`, and its other
    /// stacks on any members that the domain rule allows.
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

    fn nothing(spec: &RackSpec, blobs: Blobs) -> Self {
        Self { stacks: spec.code.stacks(), blobs, used_bytes: vec![0; spec.drives.len()] }
    }

    fn add(&mut self, group: GroupId, drives: &[DriveId], stack_bytes: u64) {
        assert!(drives.len() == self.stacks, "a blob of {} stacks", drives.len());
        match &mut self.blobs {
            Blobs::OnAny { groups, drives: all } => {
                groups.push(group);
                all.extend_from_slice(drives);
            }
            Blobs::InGroups(blobs) => blobs.add(group, drives),
        }
        for drive in drives {
            self.used_bytes[drive.index()] += stack_bytes;
        }
    }

    /// The number of blobs.
    pub fn len(&self) -> usize {
        match &self.blobs {
            Blobs::OnAny { groups, .. } => groups.len(),
            Blobs::InGroups(blobs) => blobs.rows.len() / blobs.row_words,
        }
    }

    /// The group of blob `index`, and the drive of each of its stacks.
    pub fn blob(&self, index: usize) -> (GroupId, DriveList) {
        match &self.blobs {
            Blobs::OnAny { groups, drives } => (groups[index], drives[index * self.stacks..][..self.stacks].into()),
            Blobs::InGroups(blobs) => blobs.get(index, self.stacks),
        }
    }
}
