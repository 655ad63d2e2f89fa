//! Lists and removes the dead blobs of the awake group ([`crate::reclaim`]).
//!
//! Invariant: a blob is removed as a whole or not at all, since a stack on a missing drive would otherwise remain there
//! for ever after its blob is forgotten. Nothing is removed from a permanently failed drive.

use super::Rack;
use crate::action::{Outcome, Transfer};
use crate::event::{BlobWithDead, Request, Work};
use crate::ops::Op;
use crate::policy::PriorityClass;
use crate::reclaim::{Evacuation, Next};
use crate::step::Step;
use alloc::vec::Vec;
use model::{Attempt, ClassId, DriveId, GroupId, OpId};

impl Rack {
    /// Payload bytes of `group` are dead. They are reclaimed at once where something waits for room.
    pub(super) fn space_dead(&mut self, group: GroupId, bytes: u64, step: &mut Step) {
        self.reclaim.add_dead(group, bytes);
        self.reclaim_if_full(step);
        let policy = &self.setup.policy;
        // The dead part of a whole pack that is evacuated.
        let pack_bytes = policy.migration.pack_bytes / 1000 * u64::from(policy.evacuate_permille);
        if self.reclaim.is_worth_a_visit(group, pack_bytes) {
            self.reclaim_for_rebuilds(group, step);
        }
    }

    /// On a group that is ready: asks for its dead blobs, unless a listing is under way.
    pub(super) fn begin_reclaim(&mut self, class: ClassId, group: GroupId, step: &mut Step) {
        assert!(self.classes[class.index()].awake() == Some(group), "a group is reclaimed while it is awake");
        if self.reclaim.needs_listing(class, group) {
            let attempt = self.ops.own_attempt();
            step.ask(self.reclaim.list(class, group, attempt, true));
        }
    }

    /// The class whose awake group waits for this page of its dead blobs; `None` if the page is late.
    fn awaits_dead_blobs(&self, group: GroupId, attempt: Attempt) -> Option<ClassId> {
        let class = self.setup.layout.groups.get(group.index())?.class;
        let awake = self.classes[class.index()].awake() == Some(group);
        (awake && self.reclaim.awaits(class, attempt)).then_some(class)
    }

    /// A page of the dead blobs of `group`: the blobs, the dead bytes that are still held, and whether more follow.
    pub(super) fn dead_page(
        &mut self,
        (group, attempt): (GroupId, Attempt),
        blobs: Vec<BlobWithDead>,
        (held_bytes, more): (u64, bool),
        step: &mut Step,
    ) {
        if let Some(class) = self.awaits_dead_blobs(group, attempt) {
            self.dead_blobs(class, group, blobs, step);
            self.reclaim.end_page(class, group, held_bytes, more);
        }
    }

    /// The dead blobs of `group` could not be listed.
    pub(super) fn dead_unlisted(&mut self, group: GroupId, attempt: Attempt) {
        if let Some(class) = self.awaits_dead_blobs(group, attempt) {
            self.reclaim.unlisted(class);
        }
    }

    fn dead_blobs(&mut self, class: ClassId, group: GroupId, blobs: Vec<BlobWithDead>, step: &mut Step) {
        let dead_permille = self.setup.policy.evacuate_permille;
        let evacuation = Evacuation { allowed: !self.migrator.is_critical(), dead_permille };
        for action in self.reclaim.page(class, group, blobs, &evacuation) {
            step.ask(action);
        }
    }

    /// Continues to reclaim on the awake group. True while there is something to wait for.
    pub(super) fn reclaim_next(&mut self, class: ClassId, group: GroupId, step: &mut Step) -> bool {
        assert!(self.classes[class.index()].in_service.is_none(), "one operation in service per class");
        loop {
            match self.reclaim.next(class) {
                Next::Wait => return true,
                Next::Done => return false,
                Next::Page => {
                    let attempt = self.ops.own_attempt();
                    step.ask(self.reclaim.list(class, group, attempt, false));
                    return true;
                }
                Next::Blob(blob) => {
                    let stacks = self.drives.ready_stacks(&blob.drives);
                    let failed = blob.drives.iter().filter(|drive| self.drives.has_failed(**drive)).count();
                    assert!(stacks.len() + failed <= blob.drives.len(), "a drive that failed is not ready");
                    if stacks.len() + failed == blob.drives.len() {
                        self.remove_blob(group, blob, stacks, step);
                        return true;
                    }
                    self.reclaim.defer(group, blob.dead_bytes);
                }
            }
        }
    }

    fn remove_blob(&mut self, group: GroupId, dead: BlobWithDead, stacks: Vec<(u8, DriveId)>, step: &mut Step) {
        let op = self.ops.own_number();
        assert!(dead.drives.len() >= stacks.len(), "no more stacks are removed than {} has", dead.blob);
        let BlobWithDead { blob, drives, lost, stack_bytes, dead_bytes: bytes, .. } = dead;
        let work = Work::Delete { blob, group, drives, lost, stack_bytes, bytes };
        let request = Request { op, priority: PriorityClass::Background, overtake_limit: None, work };
        self.ops.insert(Op::new(request, self.setup.class_of(group), group));
        self.begin_transfer(op, Transfer::Delete { blob, stacks }, step);
    }

    /// The catalog counts stacks of a dead blob that did not count here. They count as used from now on, and are
    /// subtracted when the blob is removed.
    pub(super) fn dead_stacks(&mut self, drives: &[DriveId], lost: &[DriveId], stack_bytes: u64) {
        for drive in drives.iter().copied().filter(|drive| self.drives.knows(*drive)) {
            if self.drives.has_failed(drive) || !lost.contains(&drive) {
                self.placement.settle(&[drive], 0, stack_bytes);
            }
        }
    }

    /// Records that the stacks of a blob, and with them the blob, are removed.
    pub(super) fn delete_ended(&mut self, op: OpId, step: &mut Step) {
        let Some(state) = self.ops.get(op) else { return };
        let Work::Delete { blob, group, ref drives, ref lost, stack_bytes, bytes } = state.request.work else { return };
        for drive in drives {
            if self.drives.has_failed(*drive) || !lost.contains(drive) {
                self.placement.freed(*drive, stack_bytes);
            } else {
                self.rebuilder.removed(*drive, blob, stack_bytes);
            }
        }
        assert!(state.group == group, "{op} was served in the group of its blob");
        self.reclaim.removed(self.setup.class_of(group), group, bytes);
        self.rebuilder.room_freed(group, step.now);
        self.stats.reclaimed_bytes += bytes;
        self.finish(op, Outcome::Deleted, step);
    }
}
