//! Staging: the files of the workshop, the room that is left, and the removal of files.
//!
//! A staged file is named by its slot, a number that the caller uses only once. Room is reserved, the file is created
//! and written, `finish` makes it durable, the catalog commits it, and when its bytes are stored elsewhere (or no
//! longer wanted) it is freed.
//!
//! Invariants:
//! - reserved and staged bytes together never exceed the capacity, except by files that were found after the start and
//!   that the catalog does not know ([`StagingUsage::found_bytes`]); then nothing is reserved until there is room
//!   again;
//! - a reservation lives exactly as long as its holder;
//! - a file is removed when it is freed (or its writer dropped) and its slot has no holds, and not before.
//!
//! A file may also get its room step by step, as its bytes arrive ([`Staging::reserve_growing`]), so a client that
//! announces much and sends little occupies little. Room is then reserved for as much again as has arrived: of files
//! that compete for the last room, those that are furthest along finish. A file that finds no more room is refused in
//! the middle.
//!
//! When the area is full, [`Staging::reserve`] returns [`Full`], with a hint when to retry. A reservation always has
//! its room, unless the disk itself is fuller than the capacity of the area; then `create` returns the same, and leaves
//! nothing.

use crate::block::{charge, detached};
use crate::drain::Full;
use crate::format::FormatError;
use crate::names::{NamedSlot, run_of, slot_of, staged_name};
use crate::slots::{Leaving, Reservation, SlotHold, SlotTable, Slots, charged_for};
use crate::small::{SmallFiles, SmallRecord};
use crate::staged_error::{ReadError, StageError};
use crate::staged_file::{StagedReader, StagedWriter, reserved_for};
use crate::staged_format::Stamp;
use disk::{Drive, DriveError, FileName};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Records of small files that are listed at once.
const PAGE_RECORDS: usize = 1024;

/// The use of the staging area, in bytes; every file counts as the room that it takes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingUsage {
    /// The most that it may hold.
    pub capacity_bytes: u64,
    /// Finished files, including those that are removed when their last reader is done.
    pub staged_bytes: u64,
    /// Reservations, and files that are being written.
    pub reserved_bytes: u64,
    /// Bytes that were found since the start and that no record of the catalog knows. Other files may have taken the
    /// room by then, so the area can exceed its capacity by this number. Bytes that are freed stay in this sum.
    pub found_bytes: u64,
    /// True if the disk had no room for the last file, though the area had.
    pub is_disk_full: bool,
}

/// A finished staged file that the catalog does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFile {
    /// Its slot; for a record also the name of its object.
    pub at: NamedSlot,
    /// The room that it takes of the staging area's capacity, in bytes.
    pub charged_bytes: u64,
    /// The description in its footer; `None` if that cannot be read, or another version of Larder wrote it.
    pub stamp: Option<Stamp>,
}

/// The findings from the names on the disk of a staging area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Every file, finished or not, and every record has a slot below this.
    pub slots_end: u64,
    /// The runs that are marked: see [`Staging::marked_runs`].
    pub marked_runs: BTreeSet<u64>,
}

/// The files on the disk of a staging area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The slots that have a file, finished or not, in ascending order.
    pub slots: Vec<u64>,
    /// Files that are not staged files.
    pub strangers: Vec<FileName>,
    /// The reason that records are missing among the slots, if they could not be listed to the end.
    pub unlisted: Option<String>,
}

/// The name of the file of `slot`.
pub fn staged_file_name(slot: u64) -> FileName {
    staged_name(slot)
}

/// The staging area of a workshop. Clones are handles to the same area.
#[derive(Clone)]
pub struct Staging {
    slots: Arc<Slots>,
}

impl Staging {
    /// A staging area of `capacity_bytes` on `drive`. Call [`Staging::count_known`] before anything else.
    pub fn new(drive: Arc<dyn Drive>, capacity_bytes: u64) -> Self {
        let (state, now) = (Mutex::new(SlotTable::new()), OnceLock::new());
        Self { slots: Arc::new(Slots { drive, small: None, capacity_bytes, state, nonce: Box::new(|| 0), now }) }
    }

    /// The same on a drive where small files are records.
    pub fn with_records(files: Arc<SmallFiles>, capacity_bytes: u64) -> Self {
        let (state, now) = (Mutex::new(SlotTable::new()), OnceLock::new());
        let (drive, small) = (Arc::clone(&files) as Arc<dyn Drive>, Some(files));
        Self { slots: Arc::new(Slots { drive, small, capacity_bytes, state, nonce: Box::new(|| 0), now }) }
    }

    /// The same area, with the nonce of each file drawn by `nonce`. Without it every nonce is 0, so files of one slot
    /// cannot be distinguished.
    ///
    /// # Panics
    /// If there is another handle already.
    #[must_use]
    pub fn with_nonces(self, nonce: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let slots = Arc::into_inner(self.slots).expect("nonces are set before a staging area is shared");
        Self { slots: Arc::new(Slots { nonce: Box::new(nonce), ..slots }) }
    }

    /// Makes files record the run of the server in which they are finished, and the catalog's commit sequence number of
    /// that moment. Only the first call counts.
    pub fn set_now(&self, now: impl Fn() -> (u64, u64) + Send + Sync + 'static) {
        let _ = self.slots.now.set(Box::new(now));
    }

    pub(crate) fn drive(&self) -> &Arc<dyn Drive> {
        &self.slots.drive
    }

    /// Counts the room of all that the catalog knows; at boot, before anything else. No file is read for that: a
    /// finished file has the length that was reserved for it.
    pub fn count_known(&self, charged_bytes: u64) {
        let mut state = self.slots.state.lock();
        assert!(state.slots.is_empty() && state.reserved_bytes == 0, "what is there is counted before every use");
        state.staged_bytes += charged_bytes;
    }

    /// Subtracts the room of files that were counted as known and are missing.
    pub fn discount_missing(&self, charged_bytes: u64) {
        let mut state = self.slots.state.lock();
        state.staged_bytes = state.staged_bytes.saturating_sub(charged_bytes);
    }

    /// Counts a file or a record that the catalog does not know and that was not counted yet, until it is freed.
    /// Returns its description. `None` if it is gone, or about to go; and for a file that was never finished, which is
    /// removed: nothing in it was ever acknowledged.
    pub async fn count_unknown(&self, at: NamedSlot) -> Result<Option<UnknownFile>, DriveError> {
        let found = match self.unknown(at).await {
            Err(DriveError::NotFound(_)) => None,
            other => other?,
        };
        let charged_bytes = found.as_ref().map_or(0, |file| file.charged_bytes);
        self.count_found(charged_bytes);
        Ok(found)
    }

    /// The description of the file of the slot `at`, which is not known; `None` if it was never finished, and is
    /// removed now.
    async fn unknown(&self, at: NamedSlot) -> Result<Option<UnknownFile>, DriveError> {
        let (drive, name) = (self.drive(), staged_name(at.slot()));
        let hold = self.hold(at.clone()).ok_or_else(|| DriveError::NotFound(name.clone()))?;
        let stamp = match hold.open().await {
            Ok(reader) => Some(reader.stamp()),
            // A footer is written before the file is acknowledged.
            Err(ReadError::Unusable { source: FormatError::Magic | FormatError::Length, .. }) => {
                drive.remove(&name).await?;
                return Ok(None);
            }
            Err(ReadError::Drive(error @ DriveError::NotReady(_))) => return Err(error),
            Err(_) => None,
        };
        let charged_bytes = charge(drive.len(&name).await?);
        Ok(Some(UnknownFile { at, charged_bytes, stamp }))
    }

    /// Some of the records from `from` on, in order; empty at their end.
    pub async fn records(&self, from: &NamedSlot) -> Result<Vec<SmallRecord>, DriveError> {
        let Some(small) = &self.slots.small else { return Ok(Vec::new()) };
        let failed = |source| DriveError::Io { context: "the records of small files".into(), source };
        small.records().page(from, PAGE_RECORDS).await.map_err(failed)
    }

    /// Counts a file or a record that the catalog does not know and that has to stay in any case, with the room that it
    /// takes.
    pub async fn count_kept(&self, at: NamedSlot) -> Result<(), DriveError> {
        let charged_bytes = match self.charged_bytes(at).await {
            Err(DriveError::NotFound(_)) => 0,
            other => other?,
        };
        self.count_found(charged_bytes);
        Ok(())
    }

    fn count_found(&self, charged_bytes: u64) {
        let mut state = self.slots.state.lock();
        state.staged_bytes += charged_bytes;
        state.found_bytes += charged_bytes;
    }

    /// Calls `each` with the slot of every file, finished or not, in no order. Memory: none for each file.
    pub async fn each_file(&self, mut each: impl FnMut(u64) + Send) -> Result<(), DriveError> {
        let mut slot = |name: &FileName| slot_of(name).into_iter().for_each(&mut each);
        self.drive().each_name(&mut slot).await
    }

    /// Calls `each` with every slot that has a file, finished or not; with the name of its object if it is a record.
    /// Returns the reason that the records could not be listed to their end, if so.
    async fn each_listed(&self, mut each: impl FnMut(NamedSlot) + Send) -> Result<Option<DriveError>, DriveError> {
        self.each_file(|slot| each(slot.into())).await?;
        Ok(self.each_record(each).await.err())
    }

    async fn each_record(&self, mut each: impl FnMut(NamedSlot) + Send) -> Result<(), DriveError> {
        let mut from = NamedSlot::default();
        loop {
            let page = self.records(&from).await?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.at.successor();
            for record in page {
                each(record.at);
            }
        }
    }

    /// Reads the names on its disk at a start, once, and no file. Memory: none for each file.
    pub async fn survey(&self) -> Result<Survey, DriveError> {
        let mut found = Survey::default();
        let mut look = |name: &FileName| {
            found.marked_runs.extend(run_of(name));
            found.slots_end = found.slots_end.max(slot_of(name).map_or(0, |slot| slot + 1));
        };
        self.drive().each_name(&mut look).await?;
        match self.slots.small.as_ref().map_or(0, |small| small.records().slots_end()) {
            u64::MAX => self.each_record(|at| found.slots_end = found.slots_end.max(at.slot() + 1)).await?,
            of_records => found.slots_end = found.slots_end.max(of_records),
        }
        Ok(found)
    }

    /// True if there are no files and no records.
    pub async fn is_empty(&self) -> Result<bool, DriveError> {
        let mut is_empty = self.records(&NamedSlot::default()).await?.is_empty();
        self.each_file(|_| is_empty = false).await?;
        Ok(is_empty)
    }

    /// The files on its disk, known to the catalog or not.
    pub async fn inventory(&self) -> Result<Inventory, DriveError> {
        let mut inventory = Inventory::default();
        inventory.unlisted =
            self.each_listed(|at| inventory.slots.push(at.slot())).await?.map(|error| error.to_string());
        inventory.slots.sort_unstable();
        let is_stranger = |name: &FileName| slot_of(name).is_none() && run_of(name).is_none();
        inventory.strangers.extend(self.drive().list().await?.into_iter().filter(is_stranger));
        Ok(inventory)
    }

    /// Those of `slots`, which are in ascending order, that have a file; with the name of their object if they are
    /// records. Only records that can be listed are found.
    pub async fn named(&self, slots: &[u64]) -> Result<Vec<NamedSlot>, DriveError> {
        let mut named = Vec::new();
        let each = |at: NamedSlot| {
            if slots.binary_search(&at.slot()).is_ok() {
                named.push(at);
            }
        };
        self.each_listed(each).await?;
        Ok(named)
    }

    /// The room that the file of the slot `at` takes on the disk, in bytes.
    pub async fn charged_bytes(&self, at: impl Into<NamedSlot>) -> Result<u64, DriveError> {
        let at = at.into();
        let name = staged_name(at.slot());
        let _hold = self.hold(at).ok_or_else(|| DriveError::NotFound(name.clone()))?;
        Ok(charge(self.drive().len(&name).await?))
    }

    /// Reserves room for a file of at most `bytes` bytes.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Full> {
        self.slots.reserve(bytes, u64::MAX)
    }

    /// Reserves room for the beginning of a file of at most `bytes` bytes, if there is room for all of it now. The rest
    /// is reserved as the file is written, which fails if other files have taken the room meanwhile.
    pub fn reserve_growing(&self, bytes: u64) -> Result<Reservation, Full> {
        self.slots.reserve(bytes, charge(reserved_for(0, u64::MAX)))
    }

    /// [`Full`] if a file of `bytes` bytes would not even fit into an empty staging area.
    pub fn ever_fits(&self, bytes: u64) -> Result<(), Full> {
        let wanted_bytes = charged_for(bytes);
        if wanted_bytes <= self.slots.capacity_bytes {
            return Ok(());
        }
        Err(self.slots.full(&self.slots.state.lock(), wanted_bytes))
    }

    /// Creates the file of `slot`, with the room of `reservation`. A writer that is dropped before it is finished
    /// removes the file again.
    ///
    /// A file that ends up shorter than its reservation occupies all of the reserved room until it is freed.
    pub async fn create(&self, slot: u64, reservation: Reservation) -> Result<StagedWriter, StageError> {
        let staging = self.clone();
        detached(async move { staging.create_now(slot, reservation).await }).await
    }

    async fn create_now(&self, slot: u64, reservation: Reservation) -> Result<StagedWriter, StageError> {
        let layout = reservation.layout;
        let grows = reservation.charged_bytes < charge(layout.file_bytes());
        let hold = self.slots.take_slot(slot, reservation)?;
        let (drive, name) = (self.drive(), staged_name(slot));
        let created = if grows {
            drive.create_sparse(&name, layout.file_bytes()).await
        } else {
            drive.create(&name, layout.file_bytes()).await
        };
        match created {
            Ok(()) => Ok(StagedWriter::new(hold, (self.slots.nonce)(), layout)),
            Err(error) => {
                // A drive leaves nothing of a file that it could not create, and a file that was there before must
                // stay.
                self.slots.forget(slot);
                Err(self.slots.stage_error(error, layout))
            }
        }
    }

    /// A reader of the finished file of the slot `at`. The file stays at least as long as the reader.
    pub async fn open(&self, at: impl Into<NamedSlot>) -> Result<StagedReader, ReadError> {
        let at = at.into();
        self.slots.hold(&at).ok_or(ReadError::NotFound { slot: at.slot() })?.open().await
    }

    /// Protects the file of the slot `at` from removal until the hold is dropped. `None` if it was freed already. A
    /// hold does not imply that the file exists.
    pub fn hold(&self, at: impl Into<NamedSlot>) -> Option<SlotHold> {
        self.slots.hold(&at.into())
    }

    /// Frees the file of the slot `at`: it can no longer be opened, and is removed when its last hold is dropped.
    /// Freeing a slot without a file, or twice, is no error. An error means that a removal failed; it will be retried.
    pub async fn free(&self, at: impl Into<NamedSlot>) -> Result<(), DriveError> {
        self.free_all(&[at.into()]).await
    }

    /// [`Staging::free`] of several slots at once.
    pub async fn free_all(&self, slots: &[NamedSlot]) -> Result<(), DriveError> {
        self.leaving(slots).remove_rest().await
    }

    /// Frees several slots, whose records the caller may remove at once. Held files are removed with their last hold.
    pub fn leaving(&self, slots: &[NamedSlot]) -> Leaving {
        self.slots.leaving(slots)
    }

    /// The current use of the area.
    pub fn usage(&self) -> StagingUsage {
        let state = self.slots.state.lock();
        StagingUsage {
            capacity_bytes: self.slots.capacity_bytes,
            staged_bytes: state.staged_bytes,
            reserved_bytes: state.reserved_bytes,
            found_bytes: state.found_bytes,
            is_disk_full: state.is_disk_full,
        }
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
