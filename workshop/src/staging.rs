//! Staging: what lies where in the workshop, how much room is left, and which files may go.
//!
//! A staged file is named by its slot, a number that the caller uses once and never again. Its life: room is reserved,
//! the file is created and written, `finish` makes it durable, the catalog commits it, and when its bytes lie elsewhere
//! (or nobody wants them) it is freed.
//!
//! Invariants:
//! - reserved and staged bytes together never exceed the capacity; a reservation lives exactly as long as its holder;
//! - a file goes when it is freed (or its writer dropped) and nobody holds its slot, and not before;
//! - removals run in tasks of their own; one that fails is tried again with the next, and counts until it succeeds;
//! - memory: a few words for each slot that is being read, written or removed right now, and nothing for all others.
//!
//! A file may also get its room bit by bit, as its bytes come ([`Staging::reserve_growing`]): who announces much and
//! sends little takes little. Room is then set aside for as much again as has come, so that of files that grow against
//! each other those go on that have come farthest; whoever finds none is refused in the middle.
//!
//! When it is full: [`Staging::reserve`] answers [`Full`], with a hint when to try again. What is already reserved
//! always has its room, unless the disk itself is fuller than the capacity it was given; then `create` answers the
//! same, and nothing is left behind.

use crate::block::{charge, detached};
use crate::drain::{Drain, Full};
use crate::format::FormatError;
use crate::run_mark::run_of;
use crate::staged_file::{ReadError, StageError, StagedReader, StagedWriter};
use crate::staged_format::{BYTES_MAX, Layout, Stamp, slot_of, staged_name};
use disk::{Drive, DriveError, FileName};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Handle;

/// What a file that grows is given at first, in bytes. Small, since whoever announces much and sends nothing takes it.
const FIRST_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 1 << 20 };

/// How much of `announced_bytes` has its room when `come_bytes` have come: as much again, and some at first.
pub fn reserved_for(come_bytes: u64, announced_bytes: u64) -> u64 {
    announced_bytes.min(come_bytes.saturating_mul(2).max(FIRST_BYTES))
}

/// How full the staging area is, in bytes; everything is counted as what it takes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingUsage {
    /// How much it may hold.
    pub capacity_bytes: u64,
    /// Finished files, those included that go when their last reader is done.
    pub staged_bytes: u64,
    /// Reservations, and files that are being written.
    pub reserved_bytes: u64,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Files that were kept.
    pub kept: u64,
    /// What they take, in bytes.
    pub kept_bytes: u64,
    /// Files that nobody knew and that were never finished, so that nothing in them was ever acknowledged. They were
    /// removed.
    pub removed: u64,
    /// Files that were finished, and that nobody knows. They are kept, and count as staged, until they are freed.
    pub unknown: Vec<UnknownFile>,
}

/// A finished staged file that the catalog does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFile {
    /// Its slot.
    pub slot: u64,
    /// What it takes of the staging area's capacity, in bytes.
    pub charged_bytes: u64,
    /// What it says of itself; `None` if that cannot be read, or another version of Larder wrote it.
    pub stamp: Option<Stamp>,
}

/// What lies on the disk of a staging area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The slots of which there is a file, finished or not, in ascending order.
    pub slots: Vec<u64>,
    /// Files that are no staged files.
    pub strangers: Vec<FileName>,
}

/// The name of the file of `slot`.
pub fn staged_file_name(slot: u64) -> FileName {
    staged_name(slot)
}

/// The staging area of a workshop. Clones are handles to the same.
#[derive(Clone)]
pub struct Staging {
    pub(crate) inner: Arc<Inner>,
}

/// What all handles share.
pub(crate) struct Inner {
    pub(crate) drive: Arc<dyn Drive>,
    capacity_bytes: u64,
    state: Mutex<State>,
    /// Draws the nonce of a file.
    nonce: Nonce,
    /// The server's run, by its random number, and the catalog's commit sequence number now; unset before they are
    /// known.
    now: OnceLock<Now>,
}

/// The server's run, and the catalog's commit sequence number.
type Now = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

/// Draws the nonces of staged files.
type Nonce = Box<dyn Fn() -> u64 + Send + Sync>;

struct State {
    staged_bytes: u64,
    reserved_bytes: u64,
    /// Slots that are held, or doomed and not removed yet.
    slots: HashMap<u64, Slot>,
    /// Slots whose files can be removed now.
    removable: Vec<u64>,
    drain: Drain,
}

#[derive(Default)]
struct Slot {
    holds: u32,
    doomed: bool,
    /// What it counts as while it is unfinished. A finished file counts as staged.
    reserved_bytes: u64,
}

impl Staging {
    /// A staging area of `capacity_bytes` on `drive`. Call [`Staging::sweep`] before anything else.
    pub fn new(drive: Arc<dyn Drive>, capacity_bytes: u64) -> Self {
        let state = State {
            staged_bytes: 0,
            reserved_bytes: 0,
            slots: HashMap::new(),
            removable: Vec::new(),
            drain: Drain::new(),
        };
        let (state, now) = (Mutex::new(state), OnceLock::new());
        Self { inner: Arc::new(Inner { drive, capacity_bytes, state, nonce: Box::new(|| 0), now }) }
    }

    /// The same, with the nonce of each file drawn by `nonce`. Without it all have the nonce 0, which tells nothing.
    ///
    /// # Panics
    /// If there is another handle already.
    #[must_use]
    pub fn with_nonces(self, nonce: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let inner = Arc::into_inner(self.inner).expect("nonces are set before a staging area is shared");
        Self { inner: Arc::new(Inner { nonce: Box::new(nonce), ..inner }) }
    }

    /// From now on files say in which run of the server they were finished, and at which commit sequence number of the
    /// catalog. Only the first one to say counts.
    pub fn set_now(&self, now: impl Fn() -> (u64, u64) + Send + Sync + 'static) {
        let _ = self.inner.now.set(Box::new(now));
    }

    /// At boot, before anything else: counts the files whose slot `is_known`, and removes those of the others that were
    /// never finished. Those that were finished and are not known (freed, or never committed, or known to a newer
    /// catalog than this) are named, and stay until they are freed. Files that are not staged files are left alone.
    pub async fn sweep(&self, mut is_known: impl FnMut(u64) -> bool + Send) -> Result<SweepReport, DriveError> {
        let drive = &self.inner.drive;
        let mut report = SweepReport::default();
        for name in drive.list().await? {
            let Some(slot) = slot_of(&name) else { continue };
            if is_known(slot) {
                report.kept += 1;
                report.kept_bytes += charge(drive.len(&name).await?);
                continue;
            }
            let stamp = match self.open(slot).await {
                Ok(reader) => Some(reader.stamp()),
                // Whoever finishes a file writes its footer before he says so.
                Err(ReadError::Unusable { source: FormatError::Magic | FormatError::Length, .. }) => {
                    drive.remove(&name).await?;
                    report.removed += 1;
                    continue;
                }
                Err(ReadError::Drive(error @ DriveError::NotReady(_))) => return Err(error),
                Err(_) => None,
            };
            let charged_bytes = charge(drive.len(&name).await?);
            report.unknown.push(UnknownFile { slot, charged_bytes, stamp });
        }
        let unknown_bytes: u64 = report.unknown.iter().map(|file| file.charged_bytes).sum();
        self.inner.state.lock().staged_bytes = report.kept_bytes + unknown_bytes;
        Ok(report)
    }

    /// The highest slot of which there is a file, finished or not.
    pub async fn highest_slot(&self) -> Result<Option<u64>, DriveError> {
        Ok(self.inner.drive.list().await?.iter().filter_map(slot_of).max())
    }

    /// What lies on its disk, whoever knows of it.
    pub async fn inventory(&self) -> Result<Inventory, DriveError> {
        let mut inventory = Inventory::default();
        for name in self.inner.drive.list().await? {
            match slot_of(&name) {
                Some(slot) => inventory.slots.push(slot),
                None if run_of(&name).is_some() => {}
                None => inventory.strangers.push(name),
            }
        }
        inventory.slots.sort_unstable();
        Ok(inventory)
    }

    /// What the file of `slot` takes on the disk, in bytes.
    pub async fn charged_bytes(&self, slot: u64) -> Result<u64, DriveError> {
        Ok(charge(self.inner.drive.len(&staged_name(slot)).await?))
    }

    /// Sets room aside for a file of at most `bytes` bytes.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Full> {
        self.reserve_first(bytes, u64::MAX)
    }

    /// Sets room aside for the beginning of a file of at most `bytes` bytes, if there is room for all of it now. The
    /// rest is set aside as it is written, which fails if others have taken the room meanwhile.
    pub fn reserve_growing(&self, bytes: u64) -> Result<Reservation, Full> {
        self.reserve_first(bytes, charge(reserved_for(0, u64::MAX)))
    }

    /// Whether a file of `bytes` bytes fits into an empty staging area.
    pub fn ever_fits(&self, bytes: u64) -> Result<(), Full> {
        let wanted_bytes = charged_for(bytes);
        if wanted_bytes <= self.inner.capacity_bytes {
            return Ok(());
        }
        Err(self.inner.full(&self.inner.state.lock(), wanted_bytes))
    }

    fn reserve_first(&self, bytes: u64, first_bytes: u64) -> Result<Reservation, Full> {
        let layout = Layout { bytes_max: bytes.min(BYTES_MAX) };
        let wanted_bytes = charged_for(bytes);
        let mut state = self.inner.state.lock();
        if wanted_bytes > self.inner.free_bytes(&state) {
            return Err(self.inner.full(&state, wanted_bytes));
        }
        let charged_bytes = wanted_bytes.min(first_bytes);
        state.reserved_bytes += charged_bytes;
        Ok(Reservation { inner: Arc::clone(&self.inner), layout, charged_bytes })
    }

    /// Creates the file of `slot`, with the room of `reservation`. A writer that is dropped before it is finished takes
    /// the file away again.
    ///
    /// A file that ends up shorter than was reserved keeps all of its room until it is freed.
    pub async fn create(&self, slot: u64, reservation: Reservation) -> Result<StagedWriter, StageError> {
        assert!(Arc::ptr_eq(&self.inner, &reservation.inner), "a reservation is good where it was made");
        let staging = self.clone();
        detached(async move { staging.create_now(slot, reservation).await }).await
    }

    async fn create_now(&self, slot: u64, reservation: Reservation) -> Result<StagedWriter, StageError> {
        let layout = reservation.layout;
        let grows = reservation.charged_bytes < charge(layout.file_bytes());
        let hold = self.inner.take_slot(slot, reservation)?;
        let (drive, name) = (&self.inner.drive, staged_name(slot));
        let created = if grows {
            drive.create_sparse(&name, layout.file_bytes()).await
        } else {
            drive.create(&name, layout.file_bytes()).await
        };
        match created {
            Ok(()) => Ok(StagedWriter::new(hold, (self.inner.nonce)(), layout)),
            Err(error) => {
                // A drive leaves nothing of a file it could not create, and what was there before is not ours to
                // remove.
                self.inner.forget(slot);
                Err(self.inner.stage_error(error, layout))
            }
        }
    }

    /// A reader of the finished file of `slot`. The file stays at least as long as the reader.
    pub async fn open(&self, slot: u64) -> Result<StagedReader, ReadError> {
        self.hold(slot).ok_or(ReadError::NotFound { slot })?.open().await
    }

    /// Keeps the file of `slot` from being removed until the hold is dropped. `None` if it was freed already. Whether
    /// there is such a file is not looked at.
    pub fn hold(&self, slot: u64) -> Option<SlotHold> {
        let mut state = self.inner.state.lock();
        let entry = state.slots.entry(slot).or_default();
        if entry.doomed {
            return None;
        }
        entry.holds += 1;
        Some(SlotHold { inner: Arc::clone(&self.inner), slot })
    }

    /// Gives up the file of `slot`: it cannot be opened any more, and is removed when nobody holds it. Freeing what is
    /// not there, or twice, is no error. An error means that a removal failed; it will be tried again.
    pub async fn free(&self, slot: u64) -> Result<(), DriveError> {
        self.free_all(&[slot]).await
    }

    /// [`Staging::free`] of several slots at once.
    pub async fn free_all(&self, slots: &[u64]) -> Result<(), DriveError> {
        {
            let mut state = self.inner.state.lock();
            for slot in slots {
                state.doom(*slot);
            }
        }
        let inner = Arc::clone(&self.inner);
        detached(async move { inner.remove_all().await }).await
    }

    /// How full it is.
    pub fn usage(&self) -> StagingUsage {
        let state = self.inner.state.lock();
        StagingUsage {
            capacity_bytes: self.inner.capacity_bytes,
            staged_bytes: state.staged_bytes,
            reserved_bytes: state.reserved_bytes,
        }
    }
}

impl State {
    /// Marks `slot` as one that goes, and lets it go if nobody holds it.
    fn doom(&mut self, slot: u64) {
        let entry = self.slots.entry(slot).or_default();
        if std::mem::replace(&mut entry.doomed, true) {
            return;
        }
        if entry.holds == 0 {
            self.removable.push(slot);
        }
    }
}

impl Inner {
    pub(crate) fn now(&self) -> (u64, u64) {
        self.now.get().map_or((0, 0), |now| now())
    }

    fn free_bytes(&self, state: &State) -> u64 {
        self.capacity_bytes.saturating_sub(state.staged_bytes + state.reserved_bytes)
    }

    fn full(&self, state: &State, wanted_bytes: u64) -> Full {
        state.drain.full(wanted_bytes, self.free_bytes(state), self.capacity_bytes)
    }

    /// What a drive's error means to somebody who stages a file of `layout`.
    pub(crate) fn stage_error(&self, error: DriveError, layout: Layout) -> StageError {
        match error {
            DriveError::Full => {
                tracing::warn!(
                    "the workshop's disk is full, and the workshop is not; lower workshop.capacity, or free some room"
                );
                StageError::Full(self.full(&self.state.lock(), charge(layout.file_bytes())))
            }
            other => StageError::Drive(other),
        }
    }

    /// Hands the room of `reservation` to `slot`, which must not be in use.
    fn take_slot(self: &Arc<Self>, slot: u64, reservation: Reservation) -> Result<SlotHold, DriveError> {
        let mut state = self.state.lock();
        if state.slots.contains_key(&slot) {
            // The reservation gives its room back when it is dropped, which takes the lock.
            drop(state);
            return Err(DriveError::Exists(staged_name(slot)));
        }
        let entry = Slot { holds: 1, doomed: false, reserved_bytes: reservation.into_charge() };
        state.slots.insert(slot, entry);
        Ok(SlotHold { inner: Arc::clone(self), slot })
    }

    /// Sets more room aside for the file of `slot`, which is being written: `wanted_bytes` in all if there are so many,
    /// and `needed_bytes` at least.
    pub(crate) fn grow(&self, slot: u64, needed_bytes: u64, wanted_bytes: u64) -> Result<(), Full> {
        let mut state = self.state.lock();
        let reserved_bytes = state.slots.get(&slot).map_or(u64::MAX, |entry| entry.reserved_bytes);
        let free_bytes = self.free_bytes(&state);
        let goal_bytes = wanted_bytes.min(reserved_bytes.saturating_add(free_bytes));
        if goal_bytes < needed_bytes {
            return Err(self.full(&state, needed_bytes - reserved_bytes));
        }
        let more_bytes = goal_bytes.saturating_sub(reserved_bytes);
        state.reserved_bytes += more_bytes;
        if let Some(entry) = state.slots.get_mut(&slot) {
            entry.reserved_bytes += more_bytes;
        }
        Ok(())
    }

    /// Gives back the room of `slot` without touching its file.
    fn forget(&self, slot: u64) {
        let mut state = self.state.lock();
        let reserved_bytes = state.slots.get_mut(&slot).map_or(0, |entry| std::mem::take(&mut entry.reserved_bytes));
        state.reserved_bytes -= reserved_bytes;
    }

    /// See [`State::doom`].
    pub(crate) fn doom(&self, slot: u64) {
        self.state.lock().doom(slot);
    }

    /// `slot` is durable: what was reserved for it is staged from now on.
    pub(crate) fn finished(&self, slot: u64) {
        let mut state = self.state.lock();
        let entry = state.slots.get_mut(&slot).expect("the writer holds its slot");
        let bytes = std::mem::take(&mut entry.reserved_bytes);
        state.reserved_bytes -= bytes;
        state.staged_bytes += bytes;
    }

    /// Removes all files that can go. Gives the first error after trying them all.
    async fn remove_all(&self) -> Result<(), DriveError> {
        let removable = std::mem::take(&mut self.state.lock().removable);
        let mut result = Ok(());
        for slot in removable {
            match self.remove(slot).await {
                Ok(charged_bytes) => self.removed(slot, charged_bytes),
                Err(error) => {
                    self.state.lock().removable.push(slot);
                    result = result.and(Err(error));
                }
            }
        }
        result
    }

    /// Removes the file of `slot`, and says what it counted as on the disk.
    async fn remove(&self, slot: u64) -> Result<u64, DriveError> {
        let name = staged_name(slot);
        let bytes = match self.drive.len(&name).await {
            Err(DriveError::NotFound(_)) => return Ok(0),
            other => other?,
        };
        match self.drive.remove(&name).await {
            Ok(()) => Ok(charge(bytes)),
            Err(DriveError::NotFound(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The file of `slot` is gone, which counted as `charged_bytes` if it was finished.
    fn removed(&self, slot: u64, charged_bytes: u64) {
        let mut state = self.state.lock();
        let reserved_bytes = state.slots.remove(&slot).map_or(0, |entry| entry.reserved_bytes);
        if reserved_bytes > 0 {
            state.reserved_bytes -= reserved_bytes;
        } else {
            state.staged_bytes = state.staged_bytes.saturating_sub(charged_bytes);
        }
        state.drain.note(charged_bytes);
    }

    /// Removes what can go, without anybody waiting for it. Without a runtime it waits for the next call, or the next
    /// boot.
    fn remove_in_background(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current() {
            let inner = Arc::clone(self);
            runtime.spawn(async move {
                if let Err(error) = inner.remove_all().await {
                    tracing::warn!(%error, "a staged file could not be removed; it will be tried again");
                }
            });
        }
    }
}

/// What a file with room for `bytes` bytes of data counts as; more than any drive has if there is no such file.
fn charged_for(bytes: u64) -> u64 {
    if bytes > BYTES_MAX { u64::MAX } else { charge(Layout { bytes_max: bytes }.file_bytes()) }
}

/// Room for a file that is about to be written. Dropping it gives the room back.
#[must_use = "dropping a reservation gives its room back"]
pub struct Reservation {
    inner: Arc<Inner>,
    layout: Layout,
    charged_bytes: u64,
}

impl Reservation {
    /// The most bytes that the file may have.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes_max
    }

    /// What it counts as, which somebody else looks after from now on.
    fn into_charge(mut self) -> u64 {
        std::mem::take(&mut self.charged_bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.charged_bytes > 0 {
            self.inner.state.lock().reserved_bytes -= self.charged_bytes;
        }
    }
}

/// Keeps the file of a slot from being removed.
pub struct SlotHold {
    inner: Arc<Inner>,
    slot: u64,
}

impl SlotHold {
    /// Which slot.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// A reader of the slot's file, also if it was freed meanwhile.
    pub async fn open(&self) -> Result<StagedReader, ReadError> {
        StagedReader::open(self.clone()).await
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Clone for SlotHold {
    fn clone(&self) -> Self {
        let mut state = self.inner.state.lock();
        state.slots.get_mut(&self.slot).expect("a held slot is known").holds += 1;
        Self { inner: Arc::clone(&self.inner), slot: self.slot }
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        let entry = state.slots.get_mut(&self.slot).expect("a held slot is known");
        entry.holds -= 1;
        if entry.holds > 0 {
            return;
        }
        if entry.doomed {
            state.removable.push(self.slot);
            drop(state);
            self.inner.remove_in_background();
        } else {
            state.slots.remove(&self.slot);
        }
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
