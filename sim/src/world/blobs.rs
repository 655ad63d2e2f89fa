//! The blobs of a simulated rack, in place of the catalog: their drives, their dead bytes, their space.
//!
//! Invariants:
//! - a blob has each of its stacks on a different drive (asserted);
//! - the space of a stack is counted on exactly one drive, and released once (asserted);
//! - a blob is removed only when all of its bytes are dead (asserted).

use engine::scrub::ScrubPage;
use engine::{BlobOnDrive, BlobWithDead};
use model::{BlobId, DriveId, GroupId, OpId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A blob in the rack.
#[derive(Clone, Debug)]
pub(super) struct SimBlob {
    pub group: GroupId,
    pub drives: Vec<DriveId>,
    pub stack_bytes: u64,
    pub bytes: u64,
    pub dead_bytes: u64,
}

impl SimBlob {
    fn is_living(&self) -> bool {
        self.dead_bytes < self.bytes
    }
}

/// A stack that moves to another drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackMove {
    pub blob: BlobId,
    pub index: u8,
    pub from: DriveId,
    pub to: DriveId,
}

/// The blobs of a rack.
#[derive(Debug, Default)]
pub struct Blobs {
    known: BTreeMap<BlobId, SimBlob>,
    next: u64,
    /// The bytes of stacks on each drive.
    used_bytes: Vec<u64>,
    /// The permanently failed drives, with the number of blobs that still have a stack on each.
    failed: BTreeMap<DriveId, u64>,
    /// Working drives that are being emptied.
    retiring: BTreeSet<DriveId>,
    /// Stacks on failed drives that have been replaced since.
    lost: BTreeSet<(DriveId, BlobId)>,
    /// Unreadable stacks on drives that answer.
    corrupt: BTreeSet<(BlobId, DriveId)>,
    /// The blobs with dead bytes, by group.
    dead: BTreeMap<GroupId, BTreeSet<BlobId>>,
    /// The last listed blob with dead bytes of each group.
    dead_after: BTreeMap<GroupId, BlobId>,
    /// The blobs that operations are removing.
    deleting: BTreeMap<OpId, BlobId>,
    /// The time when a stack was last rebuilt.
    rebuilt_at: Time,
}

impl Blobs {
    /// No known blobs, on drives with these used bytes.
    pub(super) fn new(used_bytes: Vec<u64>) -> Self {
        Self { next: 1, used_bytes, ..Self::default() }
    }

    pub(super) fn get(&self, blob: BlobId) -> Option<&SimBlob> {
        self.known.get(&blob)
    }

    /// The blobs, with their groups.
    pub fn iter(&self) -> impl Iterator<Item = (BlobId, GroupId)> + '_ {
        self.known.iter().map(|(id, blob)| (*id, blob.group))
    }

    /// The drive of each stack of a blob.
    pub fn drives_of(&self, blob: BlobId) -> &[DriveId] {
        self.known.get(&blob).map_or(&[], |blob| &blob.drives)
    }

    /// The time when a stack was last rebuilt.
    pub fn rebuilt_at(&self) -> Time {
        self.rebuilt_at
    }

    /// The id of the next blob.
    pub(super) fn next(&self) -> BlobId {
        BlobId::numbered(self.next)
    }

    /// Numbers new blobs from `first` on.
    pub(super) fn number_from(&mut self, first: BlobId) {
        self.next = self.next.max(first.number);
    }

    pub(super) fn used_bytes(&self, drive: DriveId) -> u64 {
        self.used_bytes[drive.index()]
    }

    /// Adds a blob whose space is already counted.
    pub(super) fn place(&mut self, blob: SimBlob) -> BlobId {
        let distinct: BTreeSet<&DriveId> = blob.drives.iter().collect();
        assert!(distinct.len() == blob.drives.len(), "two stacks of a blob on one drive: {:?}", blob.drives);
        let living = blob.bytes.checked_sub(blob.dead_bytes);
        let room = blob.stack_bytes.saturating_mul(blob.drives.len() as u64);
        assert!(living.is_some_and(|living| living <= room), "{living:?} living bytes lie in {room}");
        let number = self.next();
        self.next += 1;
        let before = self.known.insert(number, blob);
        assert!(before.is_none(), "{number} is the number of two blobs");
        number
    }

    /// Adds a written blob.
    pub(super) fn add(&mut self, blob: SimBlob) {
        for drive in &blob.drives {
            self.used_bytes[drive.index()] += blob.stack_bytes;
            if let Some(left) = self.failed.get_mut(drive) {
                *left += 1;
            }
        }
        self.place(blob);
    }

    /// Marks more bytes of a blob as dead; returns its group and the number of newly dead bytes. `None` if it does not
    /// exist.
    pub(super) fn mark_dead(&mut self, blob: BlobId, bytes: u64) -> Option<(GroupId, u64)> {
        let found = self.known.get_mut(&blob)?;
        assert!(found.dead_bytes <= found.bytes, "more of {blob} is dead than there is");
        let bytes = bytes.min(found.bytes - found.dead_bytes);
        found.dead_bytes += bytes;
        if found.dead_bytes > 0 {
            self.dead.entry(found.group).or_default().insert(blob);
        }
        Some((found.group, bytes))
    }

    pub(super) fn begin_delete(&mut self, op: OpId, blob: BlobId) {
        let before = self.deleting.insert(op, blob);
        assert!(before.is_none(), "{op} deletes {blob} and {before:?}");
    }

    /// Removes the blob that `op` has deleted.
    pub(super) fn deleted(&mut self, op: OpId) {
        let deleted = self.deleting.remove(&op);
        let Some((id, blob)) = deleted.and_then(|id| Some((id, self.known.remove(&id)?))) else { return };
        assert!(!blob.is_living(), "{id} was deleted, and {} of its bytes live", blob.bytes - blob.dead_bytes);
        self.dead.entry(blob.group).or_default().remove(&id);
        for drive in blob.drives {
            if !self.lost.remove(&(drive, id)) {
                self.give_back(drive, blob.stack_bytes);
            }
            self.left_less(drive);
        }
    }

    fn give_back(&mut self, drive: DriveId, bytes: u64) {
        let used = &mut self.used_bytes[drive.index()];
        assert!(*used >= bytes, "{bytes} bytes of {drive} are given back, of {used} that are used");
        *used -= bytes;
    }

    fn left_less(&mut self, drive: DriveId) {
        if let Some(left) = self.failed.get_mut(&drive) {
            assert!(*left > 0, "{drive} has fewer stacks than none");
            *left -= 1;
        }
    }

    /// Marks a drive as permanently failed. The stacks lost with its predecessor count as its stacks again.
    pub(super) fn fail(&mut self, drive: DriveId) {
        let blobs = self.known.values().filter(|blob| blob.drives.contains(&drive)).count() as u64;
        self.failed.insert(drive, blobs);
        let again: Vec<BlobId> = self.lost.iter().filter(|(of, _)| *of == drive).map(|(_, blob)| *blob).collect();
        for blob in again {
            self.lost.remove(&(drive, blob));
            self.used_bytes[drive.index()] += self.known[&blob].stack_bytes;
        }
    }

    /// Replaces a failed drive with an empty one; returns the bytes of the stacks that are lost with it.
    pub(super) fn replace(&mut self, drive: DriveId) -> u64 {
        self.failed.remove(&drive);
        self.retiring.remove(&drive);
        let mut lost_bytes = 0;
        for (id, blob) in self.known.iter().filter(|(_, blob)| blob.drives.contains(&drive)) {
            self.lost.insert((drive, *id));
            self.corrupt.insert((*id, drive));
            lost_bytes += blob.stack_bytes;
        }
        self.used_bytes[drive.index()] = 0;
        lost_bytes
    }

    /// Takes a failed drive back with all its stacks, which count as lost until they are found; returns the bytes of
    /// these stacks.
    pub(super) fn take_back(&mut self, drive: DriveId) -> u64 {
        let corrupt = self.corrupt.clone();
        let lost_bytes = self.replace(drive);
        self.corrupt = corrupt;
        lost_bytes
    }

    /// Marks a working drive for emptying.
    pub(super) fn retire(&mut self, drive: DriveId) {
        self.retiring.insert(drive);
    }

    /// The number of blobs that still have a stack on a permanently failed drive, or that had one on the predecessor of
    /// this drive.
    pub fn left_on(&self, drive: DriveId) -> u64 {
        let lost = || self.lost.iter().filter(|(of, _)| *of == drive).count() as u64;
        self.failed.get(&drive).copied().unwrap_or_else(lost)
    }

    /// True if the stack of `blob` was on the failed predecessor of this drive.
    pub fn is_lost(&self, blob: BlobId, drive: DriveId) -> bool {
        self.lost.contains(&(drive, blob))
    }

    /// Makes the stack of `blob` on `drive` unreadable; the drive itself works.
    pub fn corrupt(&mut self, blob: BlobId, drive: DriveId) {
        self.corrupt.insert((blob, drive));
    }

    pub(super) fn is_corrupt(&self, blob: BlobId, drive: DriveId) -> bool {
        self.corrupt.contains(&(blob, drive))
    }

    /// Records that an unreadable stack, or one lost with the predecessor of its drive, is in its place again; false if
    /// its blob is gone.
    pub(super) fn repair(&mut self, now: Time, blob: BlobId, drive: DriveId) -> bool {
        self.corrupt.remove(&(blob, drive));
        let Some(found) = self.known.get(&blob) else { return false };
        if self.lost.remove(&(drive, blob)) {
            self.used_bytes[drive.index()] += found.stack_bytes;
            assert!(now >= self.rebuilt_at, "time runs forward");
            self.rebuilt_at = now;
        }
        true
    }

    /// A page of the live blobs of a group, above one number and below another.
    pub(super) fn page_to_scrub(
        &self,
        group: GroupId,
        (after, end): (Option<BlobId>, Option<u64>),
        limit: u32,
    ) -> ScrubPage {
        let end = end.unwrap_or(self.next);
        let from = after.map_or(BlobId::NONE, BlobId::next_number);
        let of_group = self.known.range(from.min(BlobId::numbered(end))..BlobId::numbered(end));
        let living = of_group.filter(|(_, blob)| blob.group == group && blob.is_living());
        let to_scrub = living.map(|(id, blob)| BlobOnDrive {
            blob: *id,
            drives: blob.drives.clone(),
            stack_bytes: blob.stack_bytes,
            bytes: blob.bytes,
            living: true,
            lost: Vec::new(),
            left_there: false,
        });
        let (blobs, more) = page(to_scrub, limit);
        let next = blobs.last().filter(|_| more).map(|last: &BlobOnDrive| last.blob);
        ScrubPage { blobs, next, end }
    }

    /// Moves a stack to another drive; false if its blob is gone.
    pub(super) fn move_stack(&mut self, now: Time, moved: StackMove) -> bool {
        let StackMove { blob, index, from, to } = moved;
        let Some(found) = self.known.get_mut(&blob) else { return false };
        assert!(found.drives[usize::from(index)] == from, "{blob} has no stack {index} on {from}");
        assert!(!found.drives.contains(&to), "{blob} has a stack on {to} already");
        found.drives[usize::from(index)] = to;
        let stack_bytes = found.stack_bytes;
        self.used_bytes[to.index()] += stack_bytes;
        if self.lost.remove(&(from, blob)) {
            self.corrupt.remove(&(blob, from));
        } else {
            self.give_back(from, stack_bytes);
        }
        self.left_less(from);
        if let Some(left) = self.failed.get_mut(&to) {
            *left += 1;
        }
        assert!(now >= self.rebuilt_at, "time runs forward");
        self.rebuilt_at = now;
        true
    }

    /// A page of the blobs with a stack on a failed or retiring `drive`, or else with a stack that was lost on it, and
    /// the last blob of the page if more follow.
    pub(super) fn page_on_drive(
        &self,
        drive: DriveId,
        after: Option<BlobId>,
        limit: u32,
    ) -> (Vec<BlobOnDrive>, Option<BlobId>) {
        let from = after.map_or(BlobId::NONE, BlobId::next_number);
        let failed = self.failed.contains_key(&drive) || self.retiring.contains(&drive);
        let on_drive = |(id, blob): (&BlobId, &SimBlob)| {
            let there = if failed { blob.drives.contains(&drive) } else { self.is_lost(*id, drive) };
            there.then(|| BlobOnDrive {
                blob: *id,
                drives: blob.drives.clone(),
                lost: blob.drives.iter().copied().filter(|drive| self.is_lost(*id, *drive)).collect(),
                stack_bytes: blob.stack_bytes,
                bytes: blob.bytes,
                living: blob.is_living(),
                // A rebuilt stack is always recorded or absent here.
                left_there: false,
            })
        };
        let (blobs, more) = page(self.known.range(from..).filter_map(on_drive), limit);
        let next = blobs.last().filter(|_| more).map(|last| last.blob);
        (blobs, next)
    }

    /// A page of the blobs of a group with dead bytes, and true if more follow.
    pub(super) fn page_dead(&mut self, group: GroupId, limit: u32, restart: bool) -> (Vec<BlobWithDead>, bool) {
        if restart {
            self.dead_after.remove(&group);
        }
        let from = self.dead_after.get(&group).map_or(BlobId::NONE, |after| after.next_number());
        let dead = |id: &BlobId| {
            let blob = self.known.get(id)?;
            Some(BlobWithDead {
                blob: *id,
                drives: blob.drives.clone(),
                lost: blob.drives.iter().copied().filter(|drive| self.is_lost(*id, *drive)).collect(),
                stack_bytes: blob.stack_bytes,
                bytes: blob.bytes,
                dead_bytes: blob.dead_bytes,
                living: blob.is_living(),
                readable: true,
            })
        };
        let of_group = self.dead.get(&group).into_iter().flat_map(|blobs| blobs.range(from..));
        let (blobs, more) = page(of_group.filter_map(dead), limit);
        if let Some(last) = blobs.last() {
            self.dead_after.insert(group, last.blob);
        }
        (blobs, more)
    }
}

/// The first `limit` of `items`, and true if more follow.
fn page<T>(items: impl Iterator<Item = T>, limit: u32) -> (Vec<T>, bool) {
    let mut page: Vec<T> = items.take(limit as usize + 1).collect();
    let more = page.len() > limit as usize;
    page.truncate(limit as usize);
    (page, more)
}
