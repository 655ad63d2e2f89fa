//! Small staged files, whose bytes become durable with their batch of the catalog, by one sync: they are not files but
//! records of the log in front of the catalog.
//!
//! To the staging area they are files like all others: this module is the drive that it works on. The file of an
//! admitted slot is written to memory. [`SmallFiles::payload`] returns its bytes to the caller that commits the batch;
//! from the moment that the batch is durable they are read from the log ([`SmallRecords`]). Everything else (room,
//! holds, sweeps, packs, audits) is as with any staged file, down to its format.
//!
//! Drives know files by their slots alone; records are sorted by the names of their objects. So the user of a slot
//! names it meanwhile ([`SmallFiles::name`]); the record of a slot without a name dates from before records had names.
//!
//! Invariants:
//! - the file of an admitted slot is durable with its batch and not before: nothing else may refer to it;
//! - memory: the files that were admitted and are not committed yet, `pending_bytes_max` at most; a file beyond that
//!   becomes a real file.

use crate::names::{NamedSlot, slot_of};
use crate::staged_format::StagedLayout;
use async_trait::async_trait;
use bytes::Bytes;
use catalog::{MemoryLog, PayloadRecord, Sequence};
use disk::{Buffer, Drive, DriveError, FileName, Space};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::ready;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The length of a record in bytes, and its last ones.
pub type RecordEnd = (u64, Vec<u8>);

/// A staged file as a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallRecord {
    /// Its slot and the name of its object.
    pub at: NamedSlot,
    /// Its number: above those of all records that existed before it.
    pub number: u64,
    /// Its length.
    pub bytes: u64,
}

/// The removal of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// One record.
    One(NamedSlot),
    /// All records from `first` to `last`, both included, with numbers up to `up_to`: by one record of the log.
    Range {
        /// The first one.
        first: NamedSlot,
        /// The last one.
        last: NamedSlot,
        /// The largest number.
        up_to: u64,
    },
}

/// Staged files as records, sorted by the names of their objects.
///
/// An error of the kind [`io::ErrorKind::InvalidData`] means that a record is damaged, or permanently lost; an error of
/// any other kind may be temporary.
pub trait SmallRecords: Send + Sync + 'static {
    /// The length of the record at `at` in bytes; `None` if it does not exist.
    fn bytes(&self, at: &NamedSlot) -> BoxFuture<'_, io::Result<Option<u64>>>;
    /// The bytes of `range` of the record at `at`, as far as it has them; `None` if it does not exist.
    fn read(&self, at: &NamedSlot, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>>;
    /// The length of the record at `at` in bytes, and its last `bytes` bytes (all, if it is shorter); `None` if it does
    /// not exist.
    fn read_end(&self, at: &NamedSlot, bytes: u64) -> BoxFuture<'_, io::Result<Option<RecordEnd>>>;
    /// Removes records. They may exist again after a crash.
    fn remove(&self, removals: Vec<Removal>) -> BoxFuture<'_, io::Result<()>>;
    /// The first `limit` records from `from` on, in order; fewer only at the end.
    fn page(&self, from: &NamedSlot, limit: usize) -> BoxFuture<'_, io::Result<Vec<SmallRecord>>>;
    /// Every record has a slot below this; the largest number if only reading all records can tell.
    fn slots_end(&self) -> u64;
    /// True if a page has every existing record, so that a range may be removed whose records are all known.
    fn are_all_known(&self) -> bool {
        true
    }
    /// True if a drive is missing, and a record that cannot be read may be on it.
    fn lacks_drive(&self) -> bool {
        false
    }
}

/// In memory, for virtual time.
impl SmallRecords for MemoryLog {
    fn bytes(&self, at: &NamedSlot) -> BoxFuture<'_, io::Result<Option<u64>>> {
        Box::pin(ready(Ok(self.payload_of(at.name(), at.slot()).map(|bytes| bytes.len() as u64))))
    }

    fn read(&self, at: &NamedSlot, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        let cut = |bytes: Bytes| {
            let end = (range.end as usize).min(bytes.len());
            bytes[(range.start as usize).min(end)..end].to_vec()
        };
        Box::pin(ready(Ok(self.payload_of(at.name(), at.slot()).map(cut))))
    }

    fn read_end(&self, at: &NamedSlot, bytes: u64) -> BoxFuture<'_, io::Result<Option<RecordEnd>>> {
        let cut = |all: Bytes| (all.len() as u64, all[all.len() - all.len().min(bytes as usize)..].to_vec());
        Box::pin(ready(Ok(self.payload_of(at.name(), at.slot()).map(cut))))
    }

    fn remove(&self, removals: Vec<Removal>) -> BoxFuture<'_, io::Result<()>> {
        for removal in removals {
            match removal {
                Removal::One(at) => Self::remove(self, at.name(), at.slot()),
                Removal::Range { first, last, up_to } => {
                    self.forget((first.name(), first.slot()), (last.name(), last.slot()), Sequence(up_to));
                }
            }
        }
        Box::pin(ready(Ok(())))
    }

    fn page(&self, from: &NamedSlot, limit: usize) -> BoxFuture<'_, io::Result<Vec<SmallRecord>>> {
        let record = |PayloadRecord { name, slot, sequence, bytes }| SmallRecord {
            at: NamedSlot::new(name, slot),
            number: sequence.0,
            bytes,
        };
        Box::pin(ready(Ok(self.payloads_from((from.name(), from.slot()), limit).into_iter().map(record).collect())))
    }

    fn slots_end(&self) -> u64 {
        self.slots().last().map_or(0, |slot| slot + 1)
    }
}

/// A drive of staged files; some of them are records.
pub struct SmallFiles {
    files: Arc<dyn Drive>,
    records: Arc<dyn SmallRecords>,
    pending_bytes_max: u64,
    pending: Mutex<Pending>,
    /// The names of the slots in use.
    names: Mutex<HashMap<u64, NamedSlot>>,
}

/// Names a slot until it is dropped.
pub(crate) struct SlotNaming {
    files: Arc<SmallFiles>,
    slot: u64,
}

impl Drop for SlotNaming {
    fn drop(&mut self) {
        self.files.names.lock().remove(&self.slot);
    }
}

/// The files that are not yet committed.
#[derive(Default)]
struct Pending {
    bytes: u64,
    files: HashMap<u64, PendingFile>,
}

enum PendingFile {
    /// This number of bytes is reserved.
    Admitted(u64),
    /// It will be `end` bytes long; the bytes beyond `bytes` read as zeros.
    Writing {
        bytes: Vec<u8>,
        end: u64,
    },
    Written(Bytes),
}

impl PendingFile {
    fn bytes(&self) -> u64 {
        match self {
            Self::Admitted(bytes) => *bytes,
            Self::Writing { end, .. } => *end,
            Self::Written(bytes) => bytes.len() as u64,
        }
    }
}

impl SmallFiles {
    /// `files`, with `records` beside them. Memory for files that are not yet committed: `pending_bytes_max` bytes.
    pub fn new(files: Arc<dyn Drive>, records: Arc<dyn SmallRecords>, pending_bytes_max: u64) -> Self {
        Self { files, records, pending_bytes_max, pending: Mutex::default(), names: Mutex::default() }
    }

    /// The records themselves.
    pub fn records(&self) -> &Arc<dyn SmallRecords> {
        &self.records
    }

    /// Gives the slot the name `at` until the returned value is dropped. `None` if `at` has no name, or the slot has
    /// one already.
    pub(crate) fn name(self: &Arc<Self>, at: &NamedSlot) -> Option<SlotNaming> {
        if at.name().is_empty() {
            return None;
        }
        match self.names.lock().entry(at.slot()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(at.clone());
                Some(SlotNaming { files: Arc::clone(self), slot: at.slot() })
            }
        }
    }

    /// The slot with its name, by which its record is found.
    fn at(&self, slot: u64) -> NamedSlot {
        self.names.lock().get(&slot).cloned().unwrap_or_else(|| slot.into())
    }

    /// Admits the staged file of `slot`, with `bytes` bytes of data, to become a record. False if there is no memory
    /// for it: it then becomes a file.
    pub fn admit(&self, slot: u64, bytes: u64) -> bool {
        let file_bytes = StagedLayout { bytes_max: bytes }.file_bytes();
        let mut pending = self.pending.lock();
        if file_bytes > self.pending_bytes_max - pending.bytes {
            return false;
        }
        pending.bytes += file_bytes;
        let before = pending.files.insert(slot, PendingFile::Admitted(file_bytes));
        assert!(before.is_none(), "a slot is used once");
        true
    }

    /// The bytes of the finished file of `slot`, if it is to become a record.
    pub fn payload(&self, slot: u64) -> Option<Bytes> {
        let mut pending = self.pending.lock();
        let file = pending.files.get_mut(&slot)?;
        if let PendingFile::Writing { bytes, end } = file {
            bytes.resize(*end as usize, 0);
            *file = PendingFile::Written(std::mem::take(bytes).into());
        }
        match file {
            PendingFile::Written(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Releases the memory of `slot`. The batch of its file was answered: its bytes are a record, or never will be.
    pub fn settled(&self, slot: u64) {
        self.forget(slot);
    }

    /// Forgets the pending file of `slot`. True if it was pending.
    fn forget(&self, slot: u64) -> bool {
        let mut pending = self.pending.lock();
        let Some(file) = pending.files.remove(&slot) else { return false };
        pending.bytes -= file.bytes();
        true
    }

    /// Applies `look` to the pending file called `name`; `None` if that file is not pending.
    fn pending<T>(&self, name: &FileName, look: impl FnOnce(&mut PendingFile) -> T) -> Option<T> {
        let slot = slot_of(name)?;
        self.pending.lock().files.get_mut(&slot).map(look)
    }
}

/// Puts `data` at `offset` of a file of `end` bytes, which has `bytes` so far; `false` if it does not fit. Data in
/// order costs nothing but its copy.
fn put_at(bytes: &mut Vec<u8>, end: u64, offset: u64, data: &[u8]) -> bool {
    let (end, offset) = (end as usize, offset as usize);
    if offset.checked_add(data.len()).is_none_or(|behind| behind > end) {
        return false;
    }
    if bytes.len() < offset {
        bytes.resize(offset, 0);
    }
    let over = data.len().min(bytes.len() - offset);
    bytes[offset..offset + over].copy_from_slice(&data[..over]);
    bytes.extend_from_slice(&data[over..]);
    true
}

fn failed(name: &FileName, source: io::Error) -> DriveError {
    let context = format!("the record of {name}");
    if source.kind() == io::ErrorKind::InvalidData {
        return DriveError::Medium { context, error: source.to_string() };
    }
    DriveError::Io { context, source }
}

#[async_trait]
impl Drive for SmallFiles {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let begun = self.pending(name, |file| {
            if let PendingFile::Admitted(reserved) = file {
                assert!(bytes <= *reserved, "a file is as long as it was admitted");
                *file = PendingFile::Writing { bytes: Vec::with_capacity(*reserved as usize), end: *reserved };
            }
        });
        if begun.is_some() { Ok(()) } else { self.files.create(name, bytes).await }
    }

    async fn create_sparse(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        if self.pending(name, |_| ()).is_some() {
            return self.create(name, bytes).await;
        }
        self.files.create_sparse(name, bytes).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let written = self.pending(name, |file| {
            let PendingFile::Writing { bytes, end } = file else { return false };
            put_at(bytes, *end, offset, &data)
        });
        match written {
            Some(true) => Ok(data),
            Some(false) => Err(DriveError::Short(name.clone())),
            None => self.files.write_at(name, offset, data).await,
        }
    }

    async fn read_at(&self, name: &FileName, offset: u64, mut into: Buffer) -> Result<Buffer, DriveError> {
        let range = offset as usize..offset as usize + into.len();
        let held = self.pending(name, |file| match file {
            PendingFile::Admitted(_) => None,
            PendingFile::Writing { bytes, end } => {
                bytes.resize(*end as usize, 0);
                bytes.get(range.clone()).map(Bytes::copy_from_slice)
            }
            PendingFile::Written(bytes) => (range.end <= bytes.len()).then(|| bytes.slice(range.clone())),
        });
        let found = match held {
            Some(Some(bytes)) => bytes,
            Some(None) => return Err(DriveError::Short(name.clone())),
            None => {
                let Some(slot) = slot_of(name) else { return self.files.read_at(name, offset, into).await };
                let wanted = offset..offset + into.len() as u64;
                match self.files.len(name).await {
                    Err(DriveError::NotFound(_)) => {}
                    _ => return self.files.read_at(name, offset, into).await,
                }
                let found = self.records.read(&self.at(slot), wanted).await.map_err(|error| failed(name, error))?;
                found.ok_or_else(|| DriveError::NotFound(name.clone()))?.into()
            }
        };
        if found.len() < into.len() {
            return Err(DriveError::Short(name.clone()));
        }
        into.copy_from_slice(&found);
        Ok(into)
    }

    async fn read_end(&self, name: &FileName, bytes: u64) -> Result<(u64, Buffer), DriveError> {
        let pending = self.pending(name, |file| file.bytes());
        let Some(slot) = slot_of(name).filter(|_| pending.is_none()) else {
            let file_bytes = self.len(name).await?;
            let end_bytes = file_bytes.min(bytes);
            let end = self.read_at(name, file_bytes - end_bytes, Buffer::zeroed(end_bytes as usize)).await?;
            return Ok((file_bytes, end));
        };
        // A slot is a file or a record: the one that is read more often is tried first.
        match self.records.read_end(&self.at(slot), bytes).await {
            Ok(Some((record_bytes, end))) => {
                let mut buffer = Buffer::zeroed(end.len());
                buffer.copy_from_slice(&end);
                Ok((record_bytes, buffer))
            }
            Ok(None) => self.files.read_end(name, bytes).await,
            // If records were lost, this may have been one of them, unless it is a file.
            Err(error) => match self.files.read_end(name, bytes).await {
                Err(DriveError::NotFound(_)) => Err(failed(name, error)),
                other => other,
            },
        }
    }

    /// An admitted file is durable with its batch.
    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        if self.pending(name, |_| ()).is_some() { Ok(()) } else { self.files.sync(name).await }
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let Some(slot) = slot_of(name) else { return self.files.remove(name).await };
        if self.forget(slot) {
            return Ok(());
        }
        match self.files.remove(name).await {
            Err(DriveError::NotFound(_)) => {}
            other => return other,
        }
        let at = self.at(slot);
        let there = self.records.bytes(&at).await.map_err(|error| failed(name, error))?;
        there.ok_or_else(|| DriveError::NotFound(name.clone()))?;
        self.records.remove(vec![Removal::One(at)]).await.map_err(|error| failed(name, error))
    }

    /// Files only: a staged file is never replaced.
    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        assert!(slot_of(from).or(slot_of(to)).is_none(), "{to} is no staged file");
        self.files.replace(from, to).await
    }

    async fn remove_many(&self, names: Vec<FileName>) -> Vec<Result<u64, DriveError>> {
        let mut removed = self.files.remove_many(names.clone()).await;
        for (name, outcome) in names.iter().zip(&mut removed) {
            if let Err(DriveError::NotFound(_)) = outcome
                && let Ok(bytes) = self.len(name).await
            {
                *outcome = self.remove(name).await.map(|()| bytes);
            }
        }
        removed
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        if let Some(bytes) = self.pending(name, |file| file.bytes()) {
            return Ok(bytes);
        }
        match (self.files.len(name).await, slot_of(name)) {
            (Err(DriveError::NotFound(_)), Some(slot)) => {
                let found = self.records.bytes(&self.at(slot)).await.map_err(|error| failed(name, error))?;
                found.ok_or_else(|| DriveError::NotFound(name.clone()))
            }
            (other, _) => other,
        }
    }

    /// Files only: for the records see [`SmallRecords::page`].
    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.files.list().await
    }

    async fn each_name(&self, each: &mut (dyn for<'n> FnMut(&'n FileName) + Send)) -> Result<(), DriveError> {
        self.files.each_name(each).await
    }

    async fn space(&self) -> Result<Space, DriveError> {
        self.files.space().await
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        self.files.spin_up().await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        self.files.mount().await
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.files.unmount().await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        self.files.stop().await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::file_slots;
    use crate::{Staging, charged_for};
    use catalog::{CommitLog, LogRecord, Payload, Sequence};
    use disk::MemoryDrive;
    use futures::TryStreamExt;

    struct Site {
        disk: Arc<MemoryDrive>,
        log: MemoryLog,
        files: Arc<SmallFiles>,
        staging: Staging,
    }

    fn site(disk: Arc<MemoryDrive>, log: MemoryLog) -> Site {
        let files = Arc::new(SmallFiles::new(disk.clone(), Arc::new(log.clone()), 10_000));
        let staging = Staging::with_records(files.clone(), 1 << 20);
        Site { disk, log, files, staging }
    }

    /// The slot with its name: the higher the slot, the smaller the name.
    fn at(slot: u64) -> NamedSlot {
        NamedSlot::of(slot, "b", &format!("k{}", 9 - slot))
    }

    /// Stages `bytes` in `slot`.
    async fn staged(site: &Site, slot: u64, bytes: &[u8]) {
        let room = site.staging.reserve_growing(bytes.len() as u64).unwrap();
        let mut writer = site.staging.create(slot, room).await.unwrap();
        writer.write(bytes).await.unwrap();
        writer.finish_for(slot, 0, "b", "k").await.unwrap();
    }

    async fn read(site: &Site, slot: u64) -> Vec<u8> {
        let reader = site.staging.open(at(slot)).await.unwrap();
        reader.read(0..reader.bytes()).try_collect::<Vec<Bytes>>().await.unwrap().concat()
    }

    fn commit(site: &Site, slot: u64) {
        let payload = Payload { slot, name: at(slot).name().to_vec(), bytes: site.files.payload(slot).unwrap() };
        let record = LogRecord { sequence: Sequence(slot), entry: vec![1], payload: Some(payload) };
        site.log.append(&[record]).unwrap();
        site.files.settled(slot);
    }

    #[test]
    fn what_is_written_out_of_order_is_as_in_a_file() {
        let (mut bytes, end) = (Vec::new(), 10);
        for (offset, data, is_written) in
            [(0, "ab", true), (5, "fg", true), (1, "xyz", true), (6, "789", true), (8, "nop", false), (11, "", false)]
        {
            assert_eq!(put_at(&mut bytes, end, offset, data.as_bytes()), is_written, "{data} at {offset}");
        }
        assert_eq!(bytes, b"axyz\0f789");
        assert!(!put_at(&mut bytes, end, u64::MAX, b"a"), "no offset overflows");
    }

    #[tokio::test]
    async fn what_is_admitted_is_a_record_and_like_any_staged_file() {
        let mut site = site(Arc::new(MemoryDrive::new(1 << 30)), MemoryLog::new());
        for (slot, bytes) in [(1, 5_000), (2, 0), (3, 4_000)] {
            assert!(site.files.admit(slot, bytes));
            staged(&site, slot, &vec![slot as u8; bytes as usize]).await;
            assert_eq!(read(&site, slot).await, vec![slot as u8; bytes as usize], "before it is committed");
        }
        assert!(site.disk.list().await.unwrap().is_empty(), "nothing of them is a file");
        let used = site.staging.usage().staged_bytes;
        commit(&site, 1);
        commit(&site, 2);
        // There is no memory for more: slot 4 becomes a file, and has no payload.
        assert!(!site.files.admit(4, 9_000));
        staged(&site, 4, &[4; 9_000]).await;
        assert_eq!((site.files.payload(4), site.disk.list().await.unwrap().len()), (None, 1));
        assert_eq!(read(&site, 1).await, [1; 5_000]);
        // The third was refused: it is freed like any other, and its memory with it.
        site.staging.free(3).await.unwrap();
        assert!(site.staging.usage().staged_bytes > used - 8_192);
        assert!(site.files.admit(5, 9_000));
        // After a crash the records and the files remain.
        site = self::site(site.disk, site.log.reopened(0));
        assert_eq!(file_slots(&site.staging).await, [4]);
        site.staging.count_known(charged_for(5_000) + charged_for(9_000));
        let unknown = site.staging.count_unknown(at(2)).await.unwrap().unwrap();
        assert_eq!((unknown.at.slot(), unknown.stamp.unwrap().version), (2, 2));
        assert_eq!(site.staging.count_unknown(at(3)).await.unwrap(), None);
        assert_eq!(
            (site.staging.survey().await.unwrap().slots_end, site.staging.is_empty().await.unwrap()),
            (5, false)
        );
        assert_eq!((read(&site, 1).await, read(&site, 4).await), (vec![1; 5_000], vec![4; 9_000]));
        site.staging.free_all(&[1, 2, 4].map(at)).await.unwrap();
        assert_eq!((site.log.slots(), site.staging.usage().staged_bytes), (Vec::new(), 0));
        assert!(site.staging.inventory().await.unwrap().slots.is_empty());
    }
}
