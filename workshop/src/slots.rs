//! The slots of the staging area: the room they take, and the holds on their files.
//!
//! Invariants:
//! - a reservation is granted only if staged and reserved bytes together stay within the capacity;
//! - a file is removed only when its slot is dead and has no holds; a dead slot is never held again;
//! - removals run in separate tasks; a removal that fails is retried with the next, and counts until it succeeds;
//! - memory: a few words for each slot that is being read, written or removed right now, and nothing for all others.

use crate::block::{charge, detached};
use crate::drain::{Drain, Full};
use crate::names::{NamedSlot, staged_name};
use crate::small::{SlotNaming, SmallFiles};
use crate::staged_error::StageError;
use crate::staged_format::{BYTES_MAX, StagedLayout};
use disk::{Drive, DriveError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Handle;

/// Files that are removed with one sync of their directory.
const REMOVED_AT_ONCE: usize = 1_024;

/// The state that all handles of a staging area share.
pub(crate) struct Slots {
    pub(crate) drive: Arc<dyn Drive>,
    /// The same drive, if files on it may be records of a log.
    pub(crate) small: Option<Arc<SmallFiles>>,
    pub(crate) capacity_bytes: u64,
    pub(crate) state: Mutex<SlotTable>,
    /// Draws the nonce of a file.
    pub(crate) nonce: Nonce,
    /// Unset until they are known.
    pub(crate) now: OnceLock<Now>,
}

/// The server's run, by its random number, and the catalog's commit sequence number now.
pub(crate) type Now = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

/// Draws the nonces of staged files.
pub(crate) type Nonce = Box<dyn Fn() -> u64 + Send + Sync>;

pub(crate) struct SlotTable {
    pub(crate) staged_bytes: u64,
    pub(crate) reserved_bytes: u64,
    /// Bytes that were counted only after the start.
    pub(crate) found_bytes: u64,
    /// Slots that are held, or dead and not yet removed.
    pub(crate) slots: HashMap<u64, SlotEntry>,
    /// Slots whose files can be removed now.
    removable: Vec<u64>,
    /// True if the disk had no room for the last file, though the area had.
    pub(crate) is_disk_full: bool,
    drain: Drain,
}

#[derive(Default)]
pub(crate) struct SlotEntry {
    holds: u32,
    dead: bool,
    /// The room of an unfinished file. A finished file counts as staged.
    reserved_bytes: u64,
    /// Its name, if that matters and is known.
    name: Option<SlotNaming>,
}

impl SlotTable {
    /// An empty area.
    pub(crate) fn new() -> Self {
        let (slots, removable, drain) = (HashMap::new(), Vec::new(), Drain::new());
        Self { staged_bytes: 0, reserved_bytes: 0, found_bytes: 0, slots, removable, is_disk_full: false, drain }
    }

    /// Marks `slot` as dead. True if its file can be removed now: it has no holds, and was not dead before.
    fn bury(&mut self, slot: u64) -> bool {
        let entry = self.slots.entry(slot).or_default();
        if std::mem::replace(&mut entry.dead, true) || entry.holds > 0 {
            return false;
        }
        assert_eq!(entry.reserved_bytes, 0, "an unfinished file is held by its writer");
        true
    }

    fn counted_bytes(&self) -> u64 {
        self.staged_bytes + self.reserved_bytes
    }
}

impl Slots {
    pub(crate) fn now(&self) -> (u64, u64) {
        self.now.get().map_or((0, 0), |now| now())
    }

    fn free_bytes(&self, state: &SlotTable) -> u64 {
        self.capacity_bytes.saturating_sub(state.counted_bytes())
    }

    pub(crate) fn full(&self, state: &SlotTable, wanted_bytes: u64) -> Full {
        state.drain.full(wanted_bytes, self.free_bytes(state), self.capacity_bytes)
    }

    /// Reserves the first `first_bytes` of the room of a file of `bytes` bytes, if the whole file fits now.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64, first_bytes: u64) -> Result<Reservation, Full> {
        let layout = StagedLayout { bytes_max: bytes.min(BYTES_MAX) };
        let wanted_bytes = charged_for(bytes);
        let mut state = self.state.lock();
        if wanted_bytes > self.free_bytes(&state) {
            return Err(self.full(&state, wanted_bytes));
        }
        let charged_bytes = wanted_bytes.min(first_bytes);
        state.reserved_bytes += charged_bytes;
        assert!(charged_bytes > 0, "every file takes room, if only for its footer");
        assert!(state.counted_bytes() <= self.capacity_bytes, "no more is reserved than there is room for");
        Ok(Reservation { slots: Arc::clone(self), layout, charged_bytes })
    }

    /// A drive's error, for the writer of a file of `layout`.
    pub(crate) fn stage_error(&self, error: DriveError, layout: StagedLayout) -> StageError {
        match error {
            DriveError::Full => {
                tracing::warn!(
                    "the workshop's disk is full, although the workshop is not; lower workshop.capacity, or free some \
                     space"
                );
                let mut state = self.state.lock();
                state.is_disk_full = true;
                StageError::Full(self.full(&state, charge(layout.file_bytes())))
            }
            other => StageError::Drive(other),
        }
    }

    /// Transfers the room of `reservation` to `slot`, which must not be in use.
    pub(crate) fn take_slot(self: &Arc<Self>, slot: u64, reservation: Reservation) -> Result<SlotHold, DriveError> {
        assert!(Arc::ptr_eq(self, &reservation.slots), "a reservation is good where it was made");
        let mut state = self.state.lock();
        if state.slots.contains_key(&slot) {
            // Dropping the reservation releases its room, which takes the lock.
            drop(state);
            return Err(DriveError::Exists(staged_name(slot)));
        }
        let entry = SlotEntry { holds: 1, reserved_bytes: reservation.into_charge(), ..SlotEntry::default() };
        assert!(entry.reserved_bytes <= state.reserved_bytes, "the room of a slot is part of what is reserved");
        state.slots.insert(slot, entry);
        Ok(SlotHold { slots: Arc::clone(self), slot })
    }

    /// A hold on the slot `at`; `None` if it is dead.
    pub(crate) fn hold(self: &Arc<Self>, at: &NamedSlot) -> Option<SlotHold> {
        let mut state = self.state.lock();
        let entry = self.entry(&mut state, at);
        if entry.dead {
            return None;
        }
        entry.holds += 1;
        Some(SlotHold { slots: Arc::clone(self), slot: at.slot() })
    }

    /// The entry of the slot `at`, which from now on has its name.
    fn entry<'t>(&self, state: &'t mut SlotTable, at: &NamedSlot) -> &'t mut SlotEntry {
        let entry = state.slots.entry(at.slot()).or_default();
        if entry.name.is_none() {
            entry.name = self.small.as_ref().and_then(|small| small.name(at));
        }
        entry
    }

    /// Reserves more room for the file of `slot`, which is being written: up to `wanted_bytes` in all, and at least
    /// `needed_bytes`.
    pub(crate) fn grow(&self, slot: u64, needed_bytes: u64, wanted_bytes: u64) -> Result<(), Full> {
        assert!(needed_bytes <= wanted_bytes, "a file wants at least what it needs");
        let mut state = self.state.lock();
        let free_bytes = self.free_bytes(&state);
        let entry = state.slots.get_mut(&slot).expect("the writer holds its slot");
        let reserved_bytes = entry.reserved_bytes;
        let goal_bytes = wanted_bytes.min(reserved_bytes.saturating_add(free_bytes));
        if goal_bytes < needed_bytes {
            return Err(self.full(&state, needed_bytes - reserved_bytes));
        }
        let more_bytes = goal_bytes.saturating_sub(reserved_bytes);
        entry.reserved_bytes += more_bytes;
        state.reserved_bytes += more_bytes;
        assert!(more_bytes <= free_bytes, "a file grows only into free room");
        Ok(())
    }

    /// Releases the room of `slot` without touching its file.
    pub(crate) fn forget(&self, slot: u64) {
        let mut state = self.state.lock();
        let entry = state.slots.get_mut(&slot).expect("the hold of the failed creation is still there");
        let reserved_bytes = std::mem::take(&mut entry.reserved_bytes);
        state.reserved_bytes -= reserved_bytes;
    }

    /// Marks the slot `at` as dead, and releases its file for removal if it has no holds.
    pub(crate) fn mark_dead(&self, at: &NamedSlot) {
        let mut state = self.state.lock();
        self.entry(&mut state, at);
        if state.bury(at.slot()) {
            state.removable.push(at.slot());
        }
    }

    /// Marks slots as dead, and returns those whose files can be removed now, for a caller that removes many at once.
    pub(crate) fn leaving(self: &Arc<Self>, slots: &[NamedSlot]) -> Leaving {
        let mut state = self.state.lock();
        let mut leaving: Vec<NamedSlot> = Vec::with_capacity(slots.len());
        for at in slots {
            self.entry(&mut state, at);
            if state.bury(at.slot()) {
                leaving.push(at.clone());
            }
        }
        leaving.sort_unstable();
        Leaving { area: Arc::clone(self), slots: leaving }
    }

    /// Records that `slot` is durable: its reserved bytes count as staged from now on.
    pub(crate) fn finished(&self, slot: u64) {
        let mut state = self.state.lock();
        let entry = state.slots.get_mut(&slot).expect("the writer holds its slot");
        assert!(!entry.dead, "the slot of a file that is still being written was not freed");
        let bytes = std::mem::take(&mut entry.reserved_bytes);
        assert!(bytes > 0, "a file is finished once");
        state.reserved_bytes -= bytes;
        state.staged_bytes += bytes;
        state.is_disk_full = false;
    }

    /// Removes all files that can be removed, some at a time. Returns the first error after trying them all.
    ///
    /// No durable record refers to any of them. So the order in which their names go does not matter, nor whether a
    /// crash brings some of them back: those are swept. A file whose room counts as free is removed permanently.
    pub(crate) async fn remove_all(&self) -> Result<(), DriveError> {
        let removable = std::mem::take(&mut self.state.lock().removable);
        let mut result = Ok(());
        for some in removable.chunks(REMOVED_AT_ONCE) {
            let removed = self.remove(some).await;
            assert_eq!(removed.len(), some.len(), "a drive says of each file what became of it");
            for (&slot, removed) in some.iter().zip(removed) {
                match removed {
                    Ok(bytes) => self.removed(slot, charge(bytes)),
                    Err(DriveError::NotFound(_)) => self.removed(slot, 0),
                    Err(error) => {
                        self.state.lock().removable.push(slot);
                        result = result.and(Err(error));
                    }
                }
            }
        }
        result
    }

    /// Removes the files of `slots`; returns the length of each.
    async fn remove(&self, slots: &[u64]) -> Vec<Result<u64, DriveError>> {
        {
            let state = self.state.lock();
            for slot in slots {
                let entry = state.slots.get(slot).expect("a slot is known until its file is removed");
                assert!(entry.dead && entry.holds == 0, "a file goes only when it is freed and nobody holds it");
            }
        }
        self.drive.remove_many(slots.iter().map(|&slot| staged_name(slot)).collect()).await
    }

    /// Records that the file of `slot` is gone, which counted as `charged_bytes` if it was finished.
    fn removed(&self, slot: u64, charged_bytes: u64) {
        let mut state = self.state.lock();
        let entry = state.slots.remove(&slot).expect("a slot is known until its file is removed");
        assert!(entry.dead && entry.holds == 0, "nobody took hold of a dead slot");
        if entry.reserved_bytes > 0 {
            state.reserved_bytes -= entry.reserved_bytes;
        } else {
            state.staged_bytes = state.staged_bytes.saturating_sub(charged_bytes);
        }
        state.drain.note(charged_bytes);
    }

    /// Removes all files that can be removed, in a separate task. Without a runtime, the next call or the next boot
    /// removes them.
    fn remove_in_background(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current() {
            let slots = Arc::clone(self);
            runtime.spawn(async move {
                if let Err(error) = slots.remove_all().await {
                    tracing::warn!(%error, "could not remove a staged file; retrying later");
                }
            });
        }
    }
}

/// The room that a file of `bytes` bytes of data takes; more than any drive has if a file cannot be that long.
pub fn charged_for(bytes: u64) -> u64 {
    if bytes > BYTES_MAX { u64::MAX } else { charge(StagedLayout { bytes_max: bytes }.file_bytes()) }
}

/// Dead slots without holds, whose files are about to be removed. Those that are left when it is dropped are removed
/// along with the next ones.
pub struct Leaving {
    area: Arc<Slots>,
    /// In ascending order.
    slots: Vec<NamedSlot>,
}

impl Leaving {
    /// The slots, in ascending order.
    pub fn slots(&self) -> &[NamedSlot] {
        &self.slots
    }

    /// Releases the room of these slots, whose records are gone and had this number of bytes.
    pub fn removed(&mut self, gone: &HashMap<u64, u64>) {
        self.slots.retain(|at| !gone.contains_key(&at.slot()));
        for (slot, bytes) in gone {
            self.area.removed(*slot, charge(*bytes));
        }
    }

    /// Removes the files of the others, many with one sync.
    ///
    /// # Errors
    /// A removal failed; it will be retried.
    pub async fn remove_rest(self) -> Result<(), DriveError> {
        let area = Arc::clone(&self.area);
        drop(self);
        detached(async move { area.remove_all().await }).await
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let left = self.slots.drain(..).map(|at| at.slot());
        self.area.state.lock().removable.extend(left);
    }
}

/// Room for a file that is about to be written. Dropping it releases the room.
#[must_use = "dropping a reservation gives its room back"]
pub struct Reservation {
    slots: Arc<Slots>,
    pub(crate) layout: StagedLayout,
    pub(crate) charged_bytes: u64,
}

impl Reservation {
    /// The most bytes that the file may have.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes_max
    }

    /// The reserved room, which the caller accounts for from now on.
    fn into_charge(mut self) -> u64 {
        std::mem::take(&mut self.charged_bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.charged_bytes > 0 {
            self.slots.state.lock().reserved_bytes -= self.charged_bytes;
        }
    }
}

/// Protects the file of a slot from removal.
pub struct SlotHold {
    pub(crate) slots: Arc<Slots>,
    slot: u64,
}

impl SlotHold {
    /// The slot.
    pub fn slot(&self) -> u64 {
        self.slot
    }
}

impl Clone for SlotHold {
    fn clone(&self) -> Self {
        let mut state = self.slots.state.lock();
        let entry = state.slots.get_mut(&self.slot).expect("a held slot is known");
        assert!(entry.holds > 0, "a hold counts for as long as it lives");
        entry.holds += 1;
        Self { slots: Arc::clone(&self.slots), slot: self.slot }
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        let entry = state.slots.get_mut(&self.slot).expect("a held slot is known");
        entry.holds -= 1;
        if entry.holds > 0 {
            return;
        }
        if entry.dead {
            state.removable.push(self.slot);
            drop(state);
            self.slots.remove_in_background();
        } else {
            state.slots.remove(&self.slot);
        }
    }
}
