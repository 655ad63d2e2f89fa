//! What the catalog and the workshop would remember, in its smallest form: blobs, staged versions, what is doomed.

use super::{Ended, OpenOp, World};
use engine::{BlobOnDrive, DoomedBlob, Event, Lane, Mind, Outcome, PinnedTo, Request, StagedEntry, Usage, Work};
use model::{Attempt, BlobId, DriveId, GroupId, OpId, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// A blob in the rack.
#[derive(Clone, Debug)]
pub(super) struct SimBlob {
    pub group: GroupId,
    pub drives: Vec<DriveId>,
    pub stack_bytes: u64,
    pub bytes: u64,
    pub doomed_bytes: u64,
}

/// A version in the workshop.
#[derive(Clone, Copy, Debug)]
pub struct StagedVersion {
    /// Its length.
    pub bytes: u64,
    /// When it was staged.
    pub since: Time,
    /// The class it is pinned to.
    pub pin: PinnedTo,
}

impl<M: Mind> World<M> {
    /// Gives the workshop a size.
    pub fn set_staging(&mut self, capacity_bytes: u64) {
        self.staged_capacity_bytes = capacity_bytes;
        self.staging_changed();
    }

    /// Stages a version; numbers are in key order.
    pub fn stage(&mut self, version: u64, bytes: u64, pin: PinnedTo) {
        self.unstage(version);
        self.staged.insert(version, StagedVersion { bytes, since: self.now, pin });
        self.staged_by_age.insert((self.now, version));
        self.staged_bytes += bytes;
        self.staging_changed();
    }

    /// Takes a version out of the workshop, if it is there.
    fn unstage(&mut self, version: u64) -> bool {
        let Some(StagedVersion { bytes, since, .. }) = self.staged.remove(&version) else { return false };
        self.staged_by_age.remove(&(since, version));
        self.staged_bytes -= bytes;
        true
    }

    fn usage(&self) -> Usage {
        Usage { staged_bytes: self.staged_bytes, capacity_bytes: self.staged_capacity_bytes }
    }

    fn staging_changed(&mut self) {
        self.tell(Event::StagingChanged(self.usage()));
    }

    /// Dooms so many bytes of a blob.
    pub fn doom(&mut self, blob: BlobId, bytes: u64) {
        if let Some(found) = self.blobs.get_mut(&blob) {
            let bytes = bytes.min(found.bytes - found.doomed_bytes);
            found.doomed_bytes += bytes;
            let group = found.group;
            if found.doomed_bytes > 0 {
                self.doomed.entry(group).or_default().insert(blob);
            }
            self.tell(Event::SpaceDoomed { group, bytes });
        }
    }

    /// Puts a blob into the rack without writing it, under a number that is new: what lay there when the run began.
    /// What it takes of its drives is counted already ([`Setting`](super::Setting)).
    pub fn place(&mut self, group: GroupId, drives: Vec<DriveId>, stack_bytes: u64) -> BlobId {
        let blob = BlobId::numbered(self.next_blob);
        self.next_blob += 1;
        let bytes = stack_bytes * u64::from(self.rack.spec().code.data);
        self.blobs.insert(blob, SimBlob { group, drives, stack_bytes, bytes, doomed_bytes: 0 });
        blob
    }

    /// The numbers below `first` are left to whoever reads by them.
    pub fn number_blobs_from(&mut self, first: BlobId) {
        self.next_blob = self.next_blob.max(first.number);
    }

    pub(super) fn list_on_drive(&mut self, drive: DriveId, attempt: Attempt, after: Option<BlobId>, limit: u32) {
        let from = after.map_or(BlobId::NONE, BlobId::next_number);
        let failed = self.failed.contains_key(&drive);
        let on_drive = |(id, blob): (&BlobId, &SimBlob)| {
            let there = if failed { blob.drives.contains(&drive) } else { self.lost.contains(&(drive, *id)) };
            there.then(|| BlobOnDrive {
                blob: *id,
                drives: blob.drives.clone(),
                stack_bytes: blob.stack_bytes,
                bytes: blob.bytes,
                living: blob.doomed_bytes < blob.bytes,
            })
        };
        let mut blobs: Vec<BlobOnDrive> =
            self.blobs.range(from..).filter_map(on_drive).take(limit as usize + 1).collect();
        let more = blobs.len() > limit as usize;
        blobs.truncate(limit as usize);
        let next = blobs.last().filter(|_| more).map(|last| last.blob);
        self.plan(self.now, Event::OnDrivePage { drive, attempt, blobs, next }, None);
    }

    /// A stack of `blob` lies elsewhere now, unless the blob is gone.
    pub(super) fn move_stack(&mut self, op: OpId, attempt: Attempt, blob: BlobId, index: u8, [from, to]: [DriveId; 2]) {
        let mut done = false;
        if let Some(found) = self.blobs.get_mut(&blob) {
            assert!(found.drives[usize::from(index)] == from, "{blob} has no stack {index} on {from}");
            assert!(!found.drives.contains(&to), "{blob} has a stack on {to} already");
            found.drives[usize::from(index)] = to;
            done = true;
            self.used_bytes[to.index()] += found.stack_bytes;
            if self.lost.remove(&(from, blob)) {
                self.spoilt.remove(&(blob, from));
            } else {
                self.used_bytes[from.index()] = self.used_bytes[from.index()].saturating_sub(found.stack_bytes);
            }
            self.left_less(from);
            self.left_more(to);
            self.counted.rebuilt_stacks += 1;
            self.rebuilt_at = self.now;
        }
        self.plan(self.now, Event::StackMoved { op, attempt, done }, None);
    }

    fn left_less(&mut self, drive: DriveId) {
        if let Some(left) = self.failed.get_mut(&drive) {
            *left -= 1;
        }
    }

    fn left_more(&mut self, drive: DriveId) {
        if let Some(left) = self.failed.get_mut(&drive) {
            *left += 1;
        }
    }

    pub(super) fn end(&mut self, op: OpId, outcome: Outcome) {
        match &outcome {
            Outcome::Written { group, drives } => self.written(op, *group, drives),
            Outcome::Deleted => {
                let deleted = self.deleting.remove(&op);
                if let Some((number, blob)) = deleted.and_then(|blob| Some((blob, self.blobs.remove(&blob)?))) {
                    self.doomed.entry(blob.group).or_default().remove(&number);
                    for drive in blob.drives {
                        if !self.lost.remove(&(drive, number)) {
                            self.used_bytes[drive.index()] -= blob.stack_bytes;
                        }
                        self.left_less(drive);
                    }
                }
            }
            _ => {}
        }
        self.packs.remove(&op);
        let Some(open) = self.open.remove(&op) else {
            panic!("{op} ended twice, or was never begun: {outcome:?}");
        };
        let OpenOp { lane, group, bytes, issued, picked, first_byte, .. } = open;
        self.ended.push(Ended { op, lane, group, outcome, bytes, issued, picked, first_byte, at: self.now });
    }

    fn written(&mut self, op: OpId, group: GroupId, drives: &[DriveId]) {
        let Some(open) = self.open.get(&op) else { panic!("{op} was written and was never begun") };
        let (bytes, stack_bytes) = (open.bytes, open.stack_bytes);
        let blob = BlobId::numbered(self.next_blob);
        self.next_blob += 1;
        for drive in drives {
            self.used_bytes[drive.index()] += stack_bytes;
            self.left_more(*drive);
        }
        self.blobs.insert(blob, SimBlob { group, drives: drives.to_vec(), stack_bytes, bytes, doomed_bytes: 0 });
        if let Some(versions) = self.packs.remove(&op) {
            for version in versions {
                assert!(self.unstage(version), "version {version} migrated twice");
            }
            self.plan(self.now, Event::StagingChanged(self.usage()), None);
        }
    }

    pub(super) fn list_staged(
        &mut self,
        attempt: Attempt,
        older_than: Duration,
        coldest_bytes: Option<u64>,
        limit: u32,
        restart: bool,
    ) {
        if restart {
            self.staged_after = None;
        }
        let cutoff = self.coldest_cutoff(coldest_bytes);
        let under_way: BTreeSet<u64> = self.packs.values().flatten().copied().collect();
        let from = self.staged_after.map_or(0, |after| after + 1);
        let mut entries = Vec::new();
        let mut more = false;
        for (version, staged) in self.staged.range(from..) {
            let age = self.now.since(staged.since);
            let left_out = under_way.contains(version) || self.quarantined.contains(version);
            if age < older_than || staged.since > cutoff || left_out {
                continue;
            }
            if entries.len() == limit as usize {
                more = true;
                break;
            }
            self.staged_after = Some(*version);
            entries.push(StagedEntry { version: *version, bytes: staged.bytes, age, pin: staged.pin });
        }
        self.plan(self.now, Event::StagedPage { attempt, entries, more }, None);
    }

    fn coldest_cutoff(&self, coldest_bytes: Option<u64>) -> Time {
        let Some(wanted) = coldest_bytes else { return Time::MAX };
        let mut sum = 0;
        for (since, version) in &self.staged_by_age {
            sum += self.staged[version].bytes;
            if sum >= wanted {
                return *since;
            }
        }
        Time::MAX
    }

    pub(super) fn compose(&mut self, op: OpId, versions: Vec<u64>, pin: PinnedTo) {
        let bytes: u64 = versions.iter().filter_map(|version| Some(self.staged.get(version)?.bytes)).sum();
        let stack_bytes = bytes.div_ceil(u64::from(self.rack.spec().code.data));
        self.packs.insert(op, versions);
        self.opened(op, Lane::Background, None, bytes, stack_bytes);
        let work = Work::Write { bytes, stack_bytes, pin, migration: true };
        let request = Request { op, lane: Lane::Background, overtake_limit: None, work };
        self.plan(self.now, Event::Submitted(request), None);
    }

    /// Makes a staged version one that cannot be read any more.
    pub fn spoil_staged(&mut self, version: u64) {
        self.unreadable.insert(version);
    }

    /// Versions that were found not to be readable, and are listed no more.
    pub fn quarantined(&self) -> &BTreeSet<u64> {
        &self.quarantined
    }

    /// Those versions of a pack that cannot be read.
    pub(super) fn unreadable_of(&self, op: OpId) -> Vec<u64> {
        let versions = self.packs.get(&op).into_iter().flatten();
        versions.copied().filter(|version| self.unreadable.contains(version)).collect()
    }

    /// Composes a pack anew: all of it is read, and what cannot be is quarantined.
    pub(super) fn recompose(&mut self, op: OpId, of: OpId, pin: PinnedTo) {
        self.quarantined.extend(self.unreadable_of(of));
        let mut versions = self.packs.remove(&of).unwrap_or_default();
        versions.retain(|version| !self.quarantined.contains(version));
        if versions.is_empty() {
            self.plan(self.now, Event::Cancelled { op }, None);
        } else {
            self.compose(op, versions, pin);
        }
    }

    pub(super) fn list_doomed(&mut self, group: GroupId, attempt: Attempt, limit: u32, restart: bool) {
        if restart {
            self.doomed_after.remove(&group);
        }
        let from = self.doomed_after.get(&group).map_or(BlobId::NONE, |after| after.next_number());
        let doomed = |id: &BlobId| {
            let blob = self.blobs.get(id)?;
            Some(DoomedBlob {
                blob: *id,
                drives: blob.drives.clone(),
                lost: blob.drives.iter().copied().filter(|drive| self.lost.contains(&(*drive, *id))).collect(),
                stack_bytes: blob.stack_bytes,
                bytes: blob.bytes,
                doomed_bytes: blob.doomed_bytes,
                living: blob.doomed_bytes < blob.bytes,
                readable: true,
            })
        };
        let of_group = self.doomed.entry(group).or_default();
        let mut blobs: Vec<DoomedBlob> = of_group.range(from..).filter_map(doomed).take(limit as usize + 1).collect();
        let more = blobs.len() > limit as usize;
        blobs.truncate(limit as usize);
        if let Some(last) = blobs.last() {
            self.doomed_after.insert(group, last.blob);
        }
        let page = Event::DoomedPage { group, attempt, blobs, held_bytes: 0, more };
        self.plan(self.now, page, None);
    }
}
