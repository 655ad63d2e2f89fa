//! The rules of every rebuild, recounted from the events and actions of a trace. It is for a failed drive, and reads
//! the remaining stacks. It writes to a drive of the group that has no stack of the blob, or in place if a scrub has
//! found the stack damaged or it was lost with a drive that was replaced. The catalog is asked to count only a stack
//! that was written, and was read back from its place if the policy requires that. The stack itself is read only from a
//! good drive that is retired, from a drive that came back, or from its place if an earlier rebuild may have left it
//! there. Nothing is written to a retired drive, and it is given up only after all blobs of its last listing have
//! moved.

use crate::action::{Action, Outcome, Transfer};
use crate::event::BlobOnDrive;
use crate::layout::Layout;
use crate::scrub_pass::Scrubbed;
use alloc::collections::{BTreeMap, BTreeSet};
use model::{Attempt, BlobId, DriveId, GroupId, OpId};

/// A rule that a rebuild broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildFault {
    /// The drive is listed or regenerated as failed, but it has not failed.
    #[error("{0} has not failed")]
    NotFailed(DriveId),
    /// A stack is read that is lost, or is stored elsewhere.
    #[error("it reads a stack from {0} that is not there")]
    ReadsLost(DriveId),
    /// Fewer stacks are read than the code needs.
    #[error("it reads fewer stacks than the code needs")]
    TooFew,
    /// A drive of the blob, or the target, is not in the group.
    #[error("{0} is not of its group")]
    OtherGroup(DriveId),
    /// The drive would have two stacks of the blob.
    #[error("{0} would have two stacks of the blob")]
    TwoStacks(DriveId),
    /// A rebuild writes to a drive that failed or is to be empty.
    #[error("it writes to {0}, which failed")]
    ToFailed(DriveId),
    /// A new blob is written to a drive that is to be empty.
    #[error("it writes to {0}, which is to be empty")]
    ToRetiring(DriveId),
    /// The catalog is asked to count a stack that was not written there.
    #[error("what it wrote, if anything, is not on {0}")]
    NotWritten(DriveId),
    /// A stack is regenerated in place, but no scrub has found it damaged, and it was not lost with another drive.
    #[error("the stack on {0} was not found damaged, nor lost")]
    NotDamaged(DriveId),
    /// The catalog is asked to count a stack that was not read back, although that is required.
    #[error("what it wrote on {0} was not read back")]
    NotReadBack(DriveId),
}

/// A rebuild that was in service and is not answered.
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
    /// The awaited page.
    awaited: Option<Attempt>,
    /// The listed live blobs that have not moved away since.
    there: BTreeSet<BlobId>,
}

/// The reading back of a written stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verify {
    /// It has not started.
    NotBegun,
    /// It is under way, or failed.
    UnderWay,
    /// All of the stack was right.
    Done,
}

/// The judge of rebuilds.
#[derive(Default)]
pub(super) struct Rebuilds {
    group_of: BTreeMap<DriveId, GroupId>,
    failed: BTreeSet<DriveId>,
    /// Drives in the place of a failed one, whose stacks may still have to be rebuilt.
    replaced: BTreeSet<DriveId>,
    /// Of those, the drives that were given up and came back themselves.
    returned: BTreeSet<DriveId>,
    /// Good drives that are to be emptied.
    retiring: BTreeSet<DriveId>,
    /// Lost stacks that an earlier rebuild may have left in their place.
    left_there: BTreeSet<(BlobId, DriveId)>,
    open: BTreeMap<OpId, Open>,
    listings: BTreeMap<DriveId, Listing>,
    /// Blobs that are being scrubbed.
    scrubbed: BTreeMap<OpId, BlobId>,
    /// Stacks that a scrub has found damaged.
    damaged: BTreeSet<(BlobId, u8)>,
    /// True if a rebuilt stack is read back before it counts.
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

    /// `drive` replaces a failed drive, or is that drive and `back`: it lacks stacks that count on it.
    pub fn drive_lacks(&mut self, drive: DriveId, back: bool) {
        self.replaced.insert(drive);
        if back {
            self.returned.insert(drive);
        }
    }

    /// `drive` is in service from now on, and is not to be emptied.
    pub fn drive_taken_in(&mut self, drive: DriveId) {
        self.failed.remove(&drive);
        self.retiring.remove(&drive);
    }

    pub fn drive_retiring(&mut self, drive: DriveId) {
        self.retiring.insert(drive);
    }

    /// The blobs of `drive` are requested, from the first one or from the end of the last page.
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

    /// True if the last listing of `drive` has shown a blob that has not moved away.
    pub fn holds_some(&self, drive: DriveId) -> bool {
        self.listings.get(&drive).is_some_and(|listing| !listing.there.is_empty())
    }

    /// True if a stack of a blob on `drive` may be lost, or is to move away.
    pub fn may_have_lost(&self, drive: DriveId) -> bool {
        self.failed.contains(&drive) || self.replaced.contains(&drive) || self.retiring.contains(&drive)
    }

    /// The group of `op`, a rebuild that was in service.
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
                    // A stack that is checked in place is read completely.
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

    /// Ok if the stack that the catalog is asked to count was written, and read back if required.
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
