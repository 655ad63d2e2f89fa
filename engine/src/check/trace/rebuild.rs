//! The rules of every rebuild, recounted from the events and actions of a trace: it is of a drive that failed, it reads
//! what is left, it writes to a drive of the group that has none of the blob (or, of a stack that a scrub has found
//! damaged or that was lost with a drive that was replaced, to where that lies), and the catalog is asked to count only
//! what was written, and read back from where it was written if the policy says so. The stack itself is read only from
//! a good drive that is retired, from one that came back, or from where an earlier rebuild may have left it. Nothing is
//! written to a drive that is retired, and it is given up only once all that its last listing showed has moved.

use crate::action::{Action, Outcome, Transfer};
use crate::event::BlobOnDrive;
use crate::layout::Layout;
use crate::scrub_pass::Scrubbed;
use alloc::collections::{BTreeMap, BTreeSet};
use model::{Attempt, BlobId, DriveId, GroupId, OpId};

/// A rule that a rebuild broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildFault {
    /// The drive has not failed, and is listed or regenerated as if it had.
    #[error("{0} has not failed")]
    NotFailed(DriveId),
    /// A stack is read that is lost, or lies elsewhere.
    #[error("it reads a stack from {0} that is not there")]
    ReadsLost(DriveId),
    /// Fewer stacks are read than the code needs.
    #[error("it reads fewer stacks than the code needs")]
    TooFew,
    /// The drive, of the blob or its target, is not one of the group.
    #[error("{0} is not of its group")]
    OtherGroup(DriveId),
    /// The drive would have two stacks of the blob.
    #[error("{0} would have two stacks of the blob")]
    TwoStacks(DriveId),
    /// The drive has failed, and is written to.
    #[error("it writes to {0}, which failed")]
    ToFailed(DriveId),
    /// The drive is to be empty, and a new blob is written to it.
    #[error("it writes to {0}, which is to be empty")]
    ToRetiring(DriveId),
    /// The catalog is asked to count a stack that was not written there.
    #[error("what it wrote, if anything, is not on {0}")]
    NotWritten(DriveId),
    /// A stack is regenerated in its place, and no scrub has found it damaged, nor was it lost with another drive.
    #[error("the stack on {0} was not found damaged, nor lost")]
    NotDamaged(DriveId),
    /// The catalog is asked to count a stack that nobody has read back, though the policy says so.
    #[error("what it wrote on {0} was not read back")]
    NotReadBack(DriveId),
}

/// A rebuild that has been in service and is not answered.
struct Open {
    group: GroupId,
    blob: BlobId,
    lost: u8,
    from: DriveId,
    target: DriveId,
    written: bool,
    verify: Verify,
}

/// The last listing of a drive.
#[derive(Default)]
struct Listing {
    /// The page that is awaited.
    awaited: Option<Attempt>,
    /// The blobs shown that live and have not moved away since.
    there: BTreeSet<BlobId>,
}

/// The reading back of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verify {
    /// It has not begun.
    NotBegun,
    /// It is under way, or failed.
    UnderWay,
    /// All of it was right.
    Done,
}

/// The judge of rebuilds.
#[derive(Default)]
pub(super) struct Rebuilds {
    group_of: BTreeMap<DriveId, GroupId>,
    failed: BTreeSet<DriveId>,
    /// Drives in the place of one that failed: what that one held may still have to be rebuilt.
    replaced: BTreeSet<DriveId>,
    /// Of those, the drives that are the very ones that were given up.
    returned: BTreeSet<DriveId>,
    /// Good drives that are to be empty.
    retiring: BTreeSet<DriveId>,
    /// Lost stacks that an earlier rebuild may have left in their place.
    left_there: BTreeSet<(BlobId, DriveId)>,
    open: BTreeMap<OpId, Open>,
    listings: BTreeMap<DriveId, Listing>,
    /// The blobs that are being scrubbed.
    scrubbed: BTreeMap<OpId, BlobId>,
    /// Stacks that a scrub has found damaged.
    damaged: BTreeSet<(BlobId, u8)>,
    /// Whether what is rebuilt is read back before it counts.
    read_back: bool,
}

impl Rebuilds {
    pub fn of(layout: &Layout, read_back: bool) -> Self {
        let groups = layout.groups.iter().enumerate();
        let group_of = groups.flat_map(|(id, group)| group.drives.iter().map(move |d| (*d, GroupId(id as u32))));
        Self { group_of: group_of.collect(), read_back, ..Self::default() }
    }

    pub fn drive_failed(&mut self, drive: DriveId) {
        self.failed.insert(drive);
        self.replaced.remove(&drive);
        self.returned.remove(&drive);
    }

    /// `drive` is in the place of one that failed, or is that one and `back`: it lacks stacks that count on it.
    pub fn drive_lacks(&mut self, drive: DriveId, back: bool) {
        self.replaced.insert(drive);
        if back {
            self.returned.insert(drive);
        }
    }

    /// `drive` is in service from now on, and nobody has said of it that it is to be empty.
    pub fn drive_taken_in(&mut self, drive: DriveId) {
        self.failed.remove(&drive);
        self.retiring.remove(&drive);
    }

    pub fn drive_retiring(&mut self, drive: DriveId) {
        self.retiring.insert(drive);
    }

    /// The blobs of `drive` are asked for, from the first one on or from where the page before ended.
    pub fn lists(&mut self, drive: DriveId, attempt: Attempt, from_first: bool) {
        let listing = self.listings.entry(drive).or_default();
        listing.awaited = Some(attempt);
        if from_first {
            listing.there.clear();
        }
    }

    /// These blobs were listed for `drive`.
    pub fn listed(&mut self, drive: DriveId, attempt: Attempt, blobs: &[BlobOnDrive]) {
        let left = blobs.iter().filter(|blob| blob.left_there);
        self.left_there.extend(left.map(|blob| (blob.blob, drive)));
        let Some(listing) = self.listings.get_mut(&drive) else { return };
        if listing.awaited.take_if(|awaited| *awaited == attempt).is_some() {
            let there = blobs.iter().filter(|blob| blob.living && blob.drives.contains(&drive));
            listing.there.extend(there.map(|blob| blob.blob));
        }
    }

    /// The catalog counts the stack that `op` wrote.
    pub fn moved(&mut self, op: OpId) {
        if let Some(open) = self.open.get(&op)
            && let Some(listing) = self.listings.get_mut(&open.from)
        {
            listing.there.remove(&open.blob);
        }
    }

    /// Whether the last listing of `drive` has shown a blob that has not moved away.
    pub fn holds_some(&self, drive: DriveId) -> bool {
        self.listings.get(&drive).is_some_and(|listing| !listing.there.is_empty())
    }

    /// Whether a stack of a blob on `drive` may be lost, or is to move away.
    pub fn may_have_lost(&self, drive: DriveId) -> bool {
        self.failed.contains(&drive) || self.replaced.contains(&drive) || self.retiring.contains(&drive)
    }

    /// The group that `op`, a rebuild that was in service, is in.
    pub fn group(&self, op: OpId) -> Option<GroupId> {
        self.open.get(&op).map(|open| open.group)
    }

    pub fn transfer_ended(&mut self, op: OpId, done: bool) {
        if let Some(open) = self.open.get_mut(&op) {
            open.written = done;
            if done && open.verify == Verify::UnderWay {
                open.verify = Verify::Done;
            }
        }
    }

    pub fn answered(&mut self, op: OpId, outcome: Option<&Outcome>) {
        self.open.remove(&op);
        let Some(blob) = self.scrubbed.remove(&op) else { return };
        if let Some(Outcome::Scrubbed(Scrubbed::Damaged(stacks))) = outcome {
            self.damaged.extend(stacks.iter().map(|index| (blob, *index)));
        }
    }

    pub fn begun(&mut self, op: OpId, transfer: &Transfer) -> Result<(), RebuildFault> {
        match transfer {
            Transfer::Rebuild { blob, group, drives, lost, target, .. } => {
                self.judge(transfer)?;
                assert!(usize::from(*lost) < drives.len(), "the judge has seen which stack is lost");
                let from = drives[usize::from(*lost)];
                let open = Open {
                    group: *group,
                    blob: *blob,
                    lost: *lost,
                    from,
                    target: *target,
                    written: false,
                    // Who looks for a stack reads all of it.
                    verify: if transfer.itself() == Some(*target) { Verify::Done } else { Verify::NotBegun },
                };
                self.open.insert(op, open);
            }
            Transfer::Write { drives, .. } => {
                let retiring = drives.iter().find(|drive| self.retiring.contains(drive));
                retiring.map_or(Ok(()), |drive| Err(RebuildFault::ToRetiring(*drive)))?;
            }
            Transfer::Scrub { blob, .. } => {
                self.scrubbed.insert(op, *blob);
            }
            Transfer::Verify { .. } => {
                if let Some(open) = self.open.get_mut(&op) {
                    (open.written, open.verify) = (false, Verify::UnderWay);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the stack that the catalog is asked to count was written, and read back.
    pub fn may_move(&self, action: &Action) -> Result<(), RebuildFault> {
        let Action::MoveStack { op, blob, index, from, to, .. } = action else { return Ok(()) };
        let fits =
            |open: &Open| open.written && (open.blob, open.lost, open.from, open.target) == (*blob, *index, *from, *to);
        match self.open.get(op).filter(|open| fits(open)) {
            None => Err(RebuildFault::NotWritten(*to)),
            Some(open) if (self.read_back || open.from == open.target) && open.verify != Verify::Done => {
                Err(RebuildFault::NotReadBack(*to))
            }
            Some(_) => Ok(()),
        }
    }

    fn judge(&self, transfer: &Transfer) -> Result<(), RebuildFault> {
        let Transfer::Rebuild { blob, group, drives, lost, stacks, need, target, spare, .. } = transfer else {
            return Ok(());
        };
        let in_place = drives.get(usize::from(*lost)) == Some(target);
        let may_lie_there =
            if *spare { self.damaged.contains(&(*blob, *lost)) } else { self.replaced.contains(target) };
        if (in_place && !may_lie_there) || (*spare && !in_place) {
            return Err(RebuildFault::NotDamaged(*target));
        }
        let may_read_itself = |drive| {
            let is_left = self.returned.contains(drive) || self.left_there.contains(&(*blob, *drive));
            let there = if in_place { is_left } else { self.retiring.contains(drive) };
            there && stacks.len() == 1
        };
        let from = drives.get(usize::from(*lost)).filter(|drive| in_place || self.may_have_lost(**drive));
        if from.is_none() {
            return Err(RebuildFault::NotFailed(drives.get(usize::from(*lost)).copied().unwrap_or(*target)));
        }
        for (index, drive) in stacks {
            let there = drives.get(usize::from(*index)) == Some(drive);
            if !there || (index == lost && !may_read_itself(drive)) || self.failed.contains(drive) {
                return Err(RebuildFault::ReadsLost(*drive));
            }
        }
        let distinct: BTreeSet<u8> = stacks.iter().map(|(index, _)| *index).collect();
        if distinct.len() < usize::from(*need) {
            return Err(RebuildFault::TooFew);
        }
        if let Some(stranger) = drives.iter().chain([target]).find(|d| self.group_of.get(d) != Some(group)) {
            return Err(RebuildFault::OtherGroup(*stranger));
        }
        let also = |open: &Open| open.blob == *blob && open.target == *target && open.lost != *lost;
        if (drives.contains(target) && !in_place) || self.open.values().any(also) {
            return Err(RebuildFault::TwoStacks(*target));
        }
        if self.failed.contains(target) || self.retiring.contains(target) {
            Err(RebuildFault::ToFailed(*target))
        } else {
            Ok(())
        }
    }
}
