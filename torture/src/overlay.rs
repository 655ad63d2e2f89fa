//! Faults of drives, as an overlay over pristine bytes.
//!
//! A [`MemoryDrive`] stores the bytes that the server wrote; the overlay decides what a reader finds instead. So the
//! bad stacks of a blob are known at any moment: a fault that would take more than r stacks of a blob does not happen,
//! unless the run exceeds r on purpose. A write over a bad place repairs it.
//!
//! All drives of a site share one overlay: first those of the rack, then the workshop's disk and the spool's.

use crate::kinds::FaultKind;
use catalog::Blob;
use disk::label;
use disk::stack::{Footer, spare_of, stack_name, stack_of};
use disk::{BLOCK_BYTES, Buffer, Drive, FileName, MemoryDrive};
use futures::FutureExt;
use model::{BlobId, DriveId, GroupId, Rng};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The unit that a medium writes or loses as a whole.
pub(crate) const SECTOR_BYTES: u64 = 4096;

/// The faults of a file.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a separate fault
pub(crate) struct FileFaults {
    /// Bits that are read wrong: offset and mask.
    pub(crate) rot: BTreeMap<u64, u8>,
    /// Bytes that cannot be read.
    pub(crate) unreadable: Vec<Range<u64>>,
    /// Bytes that are read instead of the written ones, by offset. Ranges do not overlap.
    pub(crate) stale: BTreeMap<u64, Vec<u8>>,
    /// The file is gone.
    pub(crate) lost: bool,
    /// Written since the last sync that was really done.
    pub(crate) unsynced: Vec<Range<u64>>,
    /// A sync was acknowledged and not done.
    pub(crate) lied: bool,
    /// It is another rack's file, under the name of a stack.
    pub(crate) foreign: bool,
    /// It was removed, and an old copy of its drive brought it back.
    pub(crate) is_back: bool,
}

impl FileFaults {
    /// True if a reader may not find the written bytes.
    pub(crate) fn is_bad(&self) -> bool {
        self.lost
            || self.lied
            || self.foreign
            || !(self.rot.is_empty() && self.unreadable.is_empty() && self.stale.is_empty())
    }

    /// True if it is another rack's file and one of its blocks shows that; the file has `bytes` bytes.
    pub(crate) fn shows_another(&self, bytes: u64) -> bool {
        let blocks = blocks_that_show_whose(bytes);
        let mut blocks = blocks.iter().flatten().map(|at| *at..at + BLOCK_BYTES as u64);
        self.foreign && blocks.any(|block| self.is_sound_in(block))
    }

    /// True if the last block of this file of `bytes` bytes was written and not synced since.
    fn ends_unsynced(&self, bytes: u64) -> bool {
        let last = bytes.saturating_sub(BLOCK_BYTES as u64);
        self.unsynced.iter().any(|range| range.end > last)
    }

    fn is_sound_in(&self, range: Range<u64>) -> bool {
        let corrupt = |at: u64, bytes: u64| at < range.end && range.start < at + bytes;
        !self.rot.keys().any(|at| corrupt(*at, 1))
            && !self.unreadable.iter().any(|bad| corrupt(bad.start, bad.end - bad.start))
            && !self.stale.iter().any(|(at, old)| corrupt(*at, old.len() as u64))
    }

    /// `range` was written again.
    pub(crate) fn written(&mut self, range: &Range<u64>) {
        self.rot.retain(|at, _| !range.contains(at));
        self.unreadable.retain(|bad| !(range.start <= bad.start && bad.end <= range.end));
        let touched: Vec<u64> = self
            .stale
            .range(..range.end)
            .filter(|(at, old)| **at + old.len() as u64 > range.start)
            .map(|(at, _)| *at)
            .collect();
        for at in touched {
            let Some(old) = self.stale.remove(&at) else { continue };
            let end = at + old.len() as u64;
            if at < range.start {
                self.stale.insert(at, old[..(range.start - at) as usize].to_vec());
            }
            if end > range.end {
                self.stale.insert(range.end, old[(range.end - at) as usize..].to_vec());
            }
        }
    }

    /// Changes `bytes`, which were written at `offset`, to the bytes that a reader finds.
    pub(crate) fn distort(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for (at, old) in self.stale.range(..end) {
            let (from, to) = ((*at).max(offset), (at + old.len() as u64).min(end));
            if from < to {
                bytes[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&old[(from - at) as usize..(to - at) as usize]);
            }
        }
        for (at, mask) in self.rot.range(offset..end) {
            bytes[(at - offset) as usize] ^= mask;
        }
    }

    /// The drive has lost power: some of the data that an undone sync should have made durable is missing.
    fn power_lost(&mut self, rng: &mut Rng) {
        if std::mem::take(&mut self.lied) {
            if rng.below(4) == 0 {
                self.lost = true;
            }
            for range in std::mem::take(&mut self.unsynced) {
                for at in range.clone().step_by(SECTOR_BYTES as usize).filter(|_| rng.below(2) == 0) {
                    let sector = at..range.end.min(at + SECTOR_BYTES);
                    self.written(&sector);
                    self.stale.insert(at, vec![0; (sector.end - at) as usize]);
                }
            }
        }
        self.unsynced.clear();
    }
}

/// Offsets of the blocks that identify a stack of `bytes` bytes: header, last checksum page and footer. `None` if the
/// file is too short for them.
pub(crate) fn blocks_that_show_whose(bytes: u64) -> Option<[u64; 3]> {
    let page = bytes.checked_sub(2 * BLOCK_BYTES as u64)?;
    Some([0, page, page + BLOCK_BYTES as u64])
}

/// True for a fault that makes a call of a drive fail.
pub(crate) fn fails_calls(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::FailedCall | FaultKind::TornWrite)
}

/// A fault that a later call of its kind meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) kind: FaultKind,
    /// Number of calls until it happens; 1 is the next.
    pub(crate) calls: u64,
}

/// Conditions that last until a moment, in milliseconds of the run.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) silent_until: u64,
    pub(crate) slow_until: u64,
    pub(crate) slow_by: Duration,
    pub(crate) dead_until: u64,
    pub(crate) no_start_until: u64,
    pub(crate) slow_start_until: u64,
    pub(crate) slow_start_by: Duration,
    pub(crate) wrong_label_until: u64,
    /// A copy of the drive `clone_of` is in its place.
    pub(crate) clone_until: u64,
    pub(crate) clone_of: usize,
    pub(crate) full_until: u64,
    /// Not in its slot.
    pub(crate) away_until: u64,
}

/// The faults of a drive.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a separate fault
pub(crate) struct DriveFaults {
    pub(crate) files: BTreeMap<FileName, FileFaults>,
    pub(crate) armed: Vec<Armed>,
    pub(crate) conditions: Conditions,
    /// Its bytes are gone permanently.
    pub(crate) destroyed: bool,
    /// The operator gave it up.
    pub(crate) given_up: bool,
    /// The drive in its place showed another's label, or none, at its last mount.
    pub(crate) is_another: bool,
    /// Everything on it was deleted, including its label: it counts as destroyed, but answers.
    pub(crate) emptied: bool,
    /// The rack gave it up itself.
    pub(crate) abandoned: bool,
    /// It may be away, or has been: the rack may give it up itself before it is known to be there.
    pub(crate) may_be_missed: bool,
    /// An old copy of it: the bytes that a reader found in each file.
    pub(crate) copy: Option<BTreeMap<FileName, Vec<u8>>>,
}

impl DriveFaults {
    /// True if nothing is wrong with the drive itself at `now`, or about to be; its files may be bad.
    pub(crate) fn is_well(&self, now: u64) -> bool {
        self.armed.is_empty() && !self.may_stay_away(now)
    }

    /// True if the drive may not answer at `now` like a drive that is present.
    pub(crate) fn may_stay_away(&self, now: u64) -> bool {
        let Conditions { silent_until, slow_until, dead_until, no_start_until, .. } = self.conditions;
        let Conditions { slow_start_until, wrong_label_until, clone_until, away_until, .. } = self.conditions;
        let of_calls = [silent_until, slow_until, dead_until, no_start_until];
        let ends = of_calls.into_iter().chain([slow_start_until, wrong_label_until, clone_until, away_until]);
        self.destroyed || ends.max() > Some(now)
    }

    pub(crate) fn file(&mut self, name: &FileName) -> &mut FileFaults {
        self.files.entry(name.clone()).or_default()
    }

    /// The faults of a file, if it has any.
    pub(crate) fn faults_of(&self, name: &FileName) -> Option<&FileFaults> {
        self.files.get(name)
    }
}

/// Looks up a blob in a catalog, and the drives whose stack of it counts as lost, even if a file is there.
pub(crate) type Locate = Arc<dyn Fn(BlobId) -> Option<(Blob, Vec<DriveId>)> + Send + Sync>;

/// The permanently failed drives of a catalog.
pub(crate) type Failed = Arc<dyn Fn() -> BTreeSet<DriveId> + Send + Sync>;

/// A catalog, as faults need it.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) locate: Locate,
    pub(crate) failed: Failed,
}

/// The state of all drives, and the faults that happened.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) drives: Vec<DriveFaults>,
    media: Vec<Arc<MemoryDrive>>,
    /// The catalog in use.
    records: Option<Records>,
    /// The newest catalog, while an older one is in use.
    newest: Option<Records>,
    parity: usize,
    /// The group of each drive of the rack.
    pub(crate) groups: Vec<Option<GroupId>>,
    /// The rack gives up drives that stay away.
    pub(crate) gives_up: bool,
    /// Faults may take more than r stacks of a blob.
    pub(crate) beyond: bool,
    /// Faults that happened, by kind.
    pub(crate) happened: BTreeMap<FaultKind, u64>,
    /// Drive-milliseconds spent in a condition.
    pub(crate) fault_ms: u64,
    /// Draws what faults of calls need.
    pub(crate) rng: Option<Rng>,
    /// Notified when another drive takes the place of one of these.
    replaced: Arc<Notify>,
}

/// The faults of a site. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Overlay(Arc<Mutex<State>>);

impl Overlay {
    pub(crate) fn new(media: Vec<Arc<MemoryDrive>>, parity: usize, (beyond, rng): (bool, Rng)) -> Self {
        let drives = media.iter().map(|_| DriveFaults::default()).collect();
        let rng = Some(rng);
        Self(Arc::new(Mutex::new(State { drives, media, parity, beyond, rng, ..State::default() })))
    }

    /// The faults, to read and to change. Must not be held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Sets the catalog in use, and the newest one if that is another.
    pub(crate) fn set_catalog(&self, records: Records, newest: Option<Records>) {
        let mut state = self.state();
        (state.records, state.newest) = (Some(records), newest);
    }

    /// Notified when another drive takes the place of one of these.
    pub(crate) fn replaced(&self) -> Arc<Notify> {
        Arc::clone(&self.state().replaced)
    }

    /// Counts a fault that happened.
    pub(crate) fn count(&self, kind: FaultKind) {
        self.state().count(kind);
    }
}

impl State {
    pub(crate) fn count(&mut self, kind: FaultKind) {
        *self.happened.entry(kind).or_default() += 1;
    }

    /// Number of faults that have happened.
    pub(crate) fn faults(&self) -> u64 {
        self.happened.values().sum()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.rng.as_mut().map_or(0, |rng| rng.below(bound))
    }

    pub(crate) fn medium(&self, drive: usize) -> &Arc<MemoryDrive> {
        &self.media[drive]
    }

    /// Puts another, empty medium in the place of `drive`. Returns the old medium and its faults.
    pub(crate) fn replace(&mut self, drive: usize, medium: Arc<MemoryDrive>) -> (Arc<MemoryDrive>, DriveFaults) {
        self.replaced.notify_waiters();
        let faults = std::mem::take(&mut self.drives[drive]);
        (std::mem::replace(&mut self.media[drive], medium), faults)
    }

    /// Puts the old drive `before` back in the place of `drive`, because the other one was refused.
    pub(crate) fn restore(&mut self, drive: usize, before: (Arc<MemoryDrive>, DriveFaults)) {
        (self.media[drive], self.drives[drive]) = before;
        self.replaced.notify_waiters();
    }

    /// Drives of the rack: all but the workshop's and the spool's.
    pub(crate) fn rack_drives(&self) -> usize {
        self.drives.len() - 2
    }

    fn is_stack_bad(&self, drive: DriveId, name: &FileName) -> bool {
        let (faults, medium) = (&self.drives[drive.index()], &self.media[drive.index()]);
        let is_there = is_complete(medium, name);
        let is_lost = faults.destroyed || faults.given_up || faults.abandoned;
        let may_be_lost = self.gives_up && faults.may_be_missed;
        // A stack that is written in its place is lost again if the sync of its footer fails, or when the power fails.
        let bytes = medium.contents_len(name).unwrap_or(0);
        let of_file = faults.faults_of(name);
        let is_bad = of_file.is_some_and(|file| file.is_bad() || file.ends_unsynced(bytes));
        is_lost || may_be_lost || !is_there || is_bad
    }

    /// The indexes of the stacks of `blob` that cannot be relied on, by the catalog in use. That catalog never reads a
    /// failed drive, even if the drive is in service again in the newest catalog.
    pub(crate) fn bad_stacks(&self, blob: BlobId) -> BTreeSet<u8> {
        let mut bad = self.bad_stacks_by(self.records.as_ref(), blob);
        if let Some(records) = self.records.as_ref().filter(|_| self.newest.is_some())
            && let Some((located, _)) = (records.locate)(blob)
        {
            let failed = (records.failed)();
            let stacks = (0..).zip(&located.drives);
            bad.extend(stacks.filter(|(_, drive)| failed.contains(drive)).map(|(index, _)| index));
        }
        bad
    }

    fn bad_stacks_by(&self, records: Option<&Records>, blob: BlobId) -> BTreeSet<u8> {
        if let Some((located, lost)) = records.and_then(|records| (records.locate)(blob)) {
            let stacks = located.drives.iter().enumerate().map(|(index, drive)| (index as u8, *drive));
            // A stack that a rebuild has written and the catalog does not count yet is removed before the next rebuild
            // writes it.
            let is_bad = |drive, index| lost.contains(&drive) || self.is_stack_bad(drive, &stack_name(blob, index));
            let bad = stacks.filter(|(index, drive)| is_bad(*drive, *index));
            return bad.map(|(index, _)| index).collect();
        }
        // The blob is being written, or removed.
        let mut bad = BTreeSet::new();
        for (drive, faults) in self.drives.iter().take(self.rack_drives()).enumerate() {
            let lost = faults.destroyed || faults.given_up || faults.abandoned;
            let lost = lost || (self.gives_up && faults.may_be_missed);
            let named = faults.files.iter().filter(|(_, file)| file.is_bad()).map(|(name, _)| name.clone());
            let all = if lost { self.media[drive].names() } else { named.collect() };
            bad.extend(all.iter().filter_map(stack_of).filter(|(of, _)| *of == blob).map(|(_, index)| index));
        }
        bad
    }

    /// True if every stack of `blob` is where the record says, as it was written.
    pub(crate) fn are_whole(&self, blob: &Blob) -> bool {
        let mut stacks = (0..).zip(&blob.drives);
        !stacks.any(|(index, drive)| self.is_stack_bad(*drive, &stack_name(blob.blob, index)))
    }

    /// True if a stack of a blob may become bad: its blob has fewer than r other bad stacks, or losses beyond r are
    /// allowed. While an older catalog is in use, the newest counts as well: it comes back, and may have lost stacks
    /// that the older one does not know.
    pub(crate) fn may_corrupt(&self, name: &FileName) -> bool {
        // A corrupt label costs the whole drive, which is a separate fault.
        let stack = stack_of(name).or_else(|| spare_of(name));
        let Some((blob, index)) = stack else { return self.beyond && *name != label::file_name() };
        let may = |records: Option<&Records>| {
            let mut bad = self.bad_stacks_by(records, blob);
            bad.insert(index);
            bad.len() <= self.parity
        };
        self.beyond || (may(self.records.as_ref()) && self.newest.iter().all(|newest| may(Some(newest))))
    }

    /// True if `drive` may be lost permanently.
    pub(crate) fn may_lose(&self, drive: usize) -> bool {
        let names = self.media[drive].names();
        let mut stacks = names.iter().filter(|name| stack_of(name).is_some());
        !self.drives[drive].destroyed && stacks.all(|name| self.may_corrupt(name))
    }

    /// True if the label of `drive` may be deleted: fewer than r present drives of its group have lost theirs.
    pub(crate) fn may_lose_label(&self, drive: usize) -> bool {
        let is_beside = |other: &usize| *other != drive && self.groups[*other] == self.groups[drive];
        let without = (0..self.rack_drives()).filter(is_beside).filter(|other| self.drives[*other].emptied);
        self.beyond || without.count() < self.parity
    }

    /// True if `drive` may be away for any time: in a run in which the rack gives up drives that stay away, only if it
    /// may be lost. It counts as lost from now on, until it is known to be present.
    pub(crate) fn may_be_missed(&mut self, drive: usize) -> bool {
        if !self.gives_up || drive >= self.rack_drives() {
            return true;
        }
        let may = self.drives[drive].may_be_missed || self.may_lose(drive);
        self.drives[drive].may_be_missed |= may;
        may
    }

    /// The permanently failed drives, by the catalog in use or by the newest.
    pub(crate) fn failed(&self) -> BTreeSet<DriveId> {
        self.records.iter().chain(&self.newest).flat_map(|records| (records.failed)()).collect()
    }

    /// Deletes everything on `drive`; its label only if `with_label`.
    pub(crate) fn empty(&mut self, drive: usize, with_label: bool) {
        let names = self.media[drive].names();
        let faults = &mut self.drives[drive];
        for name in names.iter().filter(|name| with_label || **name != label::file_name()) {
            faults.file(name).lost = true;
        }
        (faults.emptied, faults.destroyed) = (with_label, with_label);
    }

    /// Saves the bytes that a reader finds on `drive`.
    pub(crate) fn copy(&mut self, drive: usize) {
        let (medium, mut copy) = (Arc::clone(&self.media[drive]), BTreeMap::new());
        for name in medium.names() {
            let faults = self.drives[drive].faults_of(&name);
            let is_whole = faults.is_none_or(|file| !file.lost && !file.foreign && file.unreadable.is_empty());
            if let Some(mut bytes) = medium.contents(&name).filter(|_| is_whole) {
                if let Some(file) = faults {
                    file.distort(0, &mut bytes);
                }
                copy.insert(name, bytes);
            }
        }
        self.drives[drive].copy = Some(copy);
    }

    /// Puts the old copy of `drive` in its place. False if there is no copy.
    pub(crate) fn put_copy(&mut self, drive: usize) -> bool {
        let Some(copy) = self.drives[drive].copy.take() else { return false };
        let medium = Arc::clone(&self.media[drive]);
        let names: BTreeSet<FileName> = medium.names().into_iter().collect();
        for name in names.iter().filter(|name| **name != label::file_name()) {
            let (now, file) = (medium.contents(name), self.drives[drive].file(name));
            // The server may have removed a lost file since then: it found no file there.
            let is_back = file.is_back || file.lost;
            *file = FileFaults { foreign: file.foreign, is_back, ..FileFaults::default() };
            match (copy.get(name), now) {
                (Some(old), Some(now)) if *old == now => {}
                (Some(old), Some(now)) if old.len() == now.len() => drop(file.stale.insert(0, old.clone())),
                _ => file.lost = true,
            }
        }
        for (name, old) in copy.into_iter().filter(|(name, _)| !names.contains(name) && stack_of(name).is_some()) {
            if restore(&medium, &name, &old) {
                self.drives[drive].file(&name).is_back = true;
            }
        }
        true
    }

    /// `drive` loses power: data that is not on its medium yet is lost or torn.
    pub(crate) fn power_lost(&mut self, drive: usize, rng: &mut Rng) {
        if rng.below(2) == 0 {
            self.media[drive].crash();
        } else {
            self.media[drive].crash_torn(rng);
        }
        let faults = &mut self.drives[drive];
        for file in faults.files.values_mut() {
            file.power_lost(rng);
        }
        self.forget_gone(drive);
    }

    /// Drops the faults of files that do not exist.
    fn forget_gone(&mut self, drive: usize) {
        let medium = &self.media[drive];
        self.drives[drive].files.retain(|name, file| file.lost || medium.contents_len(name).is_some());
    }

    /// Ends all temporary faults.
    pub(crate) fn calm(&mut self) {
        for faults in &mut self.drives {
            faults.conditions = Conditions::default();
            faults.armed.clear();
        }
    }

    /// The operator pulls every dead drive, or puts it back.
    pub(crate) fn pull_dead(&mut self, pulled: bool) {
        for faults in self.drives.iter_mut().filter(|faults| faults.destroyed) {
            faults.conditions.away_until = if pulled { u64::MAX } else { 0 };
        }
    }
}

/// True if the stack `name` was written to its end; a stack that is rebuilt in its own place may not be complete.
fn is_complete(medium: &MemoryDrive, name: &FileName) -> bool {
    let footer_at = medium.contents_len(name).and_then(|bytes| bytes.checked_sub(BLOCK_BYTES as u64));
    let footer = footer_at.and_then(|at| medium.contents_of(name, at, BLOCK_BYTES));
    footer.is_some_and(|footer| Footer::decode(&footer).is_ok())
}

/// Writes a file of `bytes` to `medium`, which executes its calls at once. False if it has no room.
fn restore(medium: &MemoryDrive, name: &FileName, bytes: &[u8]) -> bool {
    let made = medium.create(name, bytes.len() as u64).now_or_never();
    if !matches!(made, Some(Ok(()))) {
        return false;
    }
    let written = medium.write_at(name, 0, Buffer::copy_of(bytes)).now_or_never();
    let synced = medium.sync(name).now_or_never();
    assert!(matches!((written, synced), (Some(Ok(_)), Some(Ok(())))), "a drive in memory writes and syncs");
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::RACK;
    use disk::stack;
    use model::{ClassId, Code, GroupId};

    const CODE: Code = Code { data: 2, parity: 1, fragment_bytes: 4096 };
    const ID: BlobId = BlobId::new(7, 8);

    fn name(index: u8) -> FileName {
        stack_name(ID, index)
    }

    /// A stack `index` with just enough contents to be complete.
    fn complete(index: u8) -> Vec<u8> {
        let blob = stack::Blob { rack: RACK, id: ID, code: CODE, payload_bytes: 1 };
        let mut bytes = vec![0; 2 * BLOCK_BYTES];
        Footer { blob, index, payload_crc64: 0, header_crc: 0 }.encode(&mut bytes[BLOCK_BYTES..]);
        bytes
    }

    /// Three stacks on the first drives of four, beside two disks, and the catalog that counts them there. The stacks
    /// on `lost` count as lost.
    fn with_stacks(lost: &'static [DriveId]) -> (Overlay, Records) {
        let media: Vec<_> = (0..6).map(|_| Arc::new(MemoryDrive::new(1 << 20))).collect();
        assert!((0..3).all(|index| restore(&media[usize::from(index)], &name(index), &complete(index))));
        let blob = Blob {
            blob: ID,
            group: GroupId(0),
            class: ClassId(0),
            drives: (0..3).map(DriveId).collect(),
            code_data: CODE.data,
            code_parity: CODE.parity,
            fragment_bytes: CODE.fragment_bytes,
            payload_bytes: 1,
            stack_bytes: 2 * BLOCK_BYTES as u64,
            members: 1,
            written_ms: 0,
        };
        let locate = move |id: BlobId| (id == ID).then(|| (blob.clone(), lost.to_vec()));
        let records = Records { locate: Arc::new(locate), failed: Arc::new(BTreeSet::new) };
        (Overlay::new(media, 1, (false, Rng::new(1))), records)
    }

    #[test]
    fn under_an_older_catalog_what_the_newest_has_lost_is_lost() {
        let (overlay, newest) = with_stacks(&[]);
        let older = Records { locate: Arc::new(|_| None), failed: Arc::new(BTreeSet::new) };
        // Another drive is in the place of the first one, and the older catalog does not know its stack.
        overlay.state().replace(0, Arc::new(MemoryDrive::new(1 << 20)));
        for (newest, may) in [(None, true), (Some(newest), false)] {
            overlay.set_catalog(older.clone(), newest);
            assert_eq!(overlay.state().may_corrupt(&name(1)), may);
        }
        assert!(overlay.state().may_corrupt(&name(0)), "it is lost already");
    }

    #[test]
    fn a_stack_that_counts_as_lost_is_bad_whatever_is_there() {
        let (overlay, records) = with_stacks(&[DriveId(2)]);
        overlay.set_catalog(records, None);
        assert_eq!(overlay.state().bad_stacks(ID), BTreeSet::from([2]));
        assert!(!overlay.state().may_corrupt(&name(0)), "a rebuild writes the lost one again");
        assert!(overlay.state().may_corrupt(&name(2)));
    }

    #[test]
    fn a_stack_in_its_place_counts_from_the_sync_of_its_footer_on() {
        let (overlay, records) = with_stacks(&[]);
        overlay.set_catalog(records, None);
        for (written, may) in [(0..4096, true), (4096..8192, false)] {
            overlay.state().drives[0].file(&name(0)).unsynced.push(written);
            assert_eq!(overlay.state().may_corrupt(&name(1)), may);
        }
    }
}
