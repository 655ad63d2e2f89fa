//! The index of one log, in memory: the place of the newest record of each key.
//!
//! Memory: for each key of the log its bytes and about 100 more. [`charged`] is the share of a record in the size of
//! its log, so a log of tiny records is left before its index takes more memory than the log has bytes.

use crate::bytes::Damage;
use crate::drive::Drive;
use crate::error::ReadError;
use crate::lost::LostPart;
use crate::mask::Mask;
use crate::medium::{File, read_past_bad_sectors};
use crate::names::FileId;
use crate::record::{HEAD_BYTES, Head, Record, Sequence, decode};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Memory of a key in the index besides its bytes, estimated generously.
const SLOT_BYTES: u64 = 128;

/// The bytes by which a record counts towards the size of its log.
pub(crate) fn charged(record: &Record<'_>) -> u64 {
    (record.bytes() as u64).max(SLOT_BYTES + record.key.len() as u64)
}

/// The place of a record in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) head: Head,
}

/// A log and its index.
#[derive(Debug)]
pub(crate) struct LogTable {
    pub(crate) file: FileId,
    pub(crate) drive: Arc<Drive>,
    pub(crate) medium: Arc<dyn File>,
    /// No number in it is below this one.
    pub(crate) first: Sequence,
    pub(crate) index: RwLock<Index>,
}

/// The keys of a log.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) keys: BTreeMap<Box<[u8]>, Slot>,
    pub(crate) masks: Vec<Mask>,
    /// The parts that rot destroyed.
    pub(crate) lost: Vec<LostPart>,
    /// The largest number so far.
    pub(crate) last: Sequence,
    /// The length of the file that is known to be durable.
    pub(crate) bytes: u64,
}

impl Index {
    /// Adds a durable record at `offset`.
    pub(crate) fn insert(&mut self, offset: u64, head: Head, record: &Record<'_>) {
        self.last = self.last.max(head.sequence);
        if let Some(mask) = Mask::of(record) {
            self.masks.push(mask);
        } else {
            self.keys.insert(record.key.into(), Slot { offset, head });
        }
    }
}

impl LogTable {
    /// The newest record of `key`, and the last forgotten number of this key.
    pub(crate) fn find(&self, key: &[u8]) -> (Option<Slot>, Sequence) {
        let index = self.index.read();
        let hidden = index.masks.iter().filter(|mask| mask.hides(key, Sequence(0))).map(|mask| mask.up_to).max();
        (index.keys.get(key).copied(), hidden.unwrap_or_default())
    }

    /// The bytes of the record at `slot`, including its value if `whole`.
    pub(crate) fn read(&self, slot: Slot, whole: bool) -> Result<Vec<u8>, ReadError> {
        let described = HEAD_BYTES + slot.head.key_bytes as usize + slot.head.entry_bytes as usize;
        let mut bytes = vec![0; if whole { slot.head.bytes() } else { described }];
        read_past_bad_sectors(self.medium.as_ref(), &mut bytes, slot.offset)?;
        let same = Head::decode(&bytes, self.file.stamp())? == slot.head;
        if !same {
            return Err(Damage::Elsewhere.into());
        }
        Ok(bytes)
    }

    /// The record at the start of `bytes`, which are from this log.
    pub(crate) fn record<'a>(&self, bytes: &'a [u8]) -> Result<Record<'a>, ReadError> {
        let (_, record) = decode(bytes, self.file.stamp())?;
        Ok(record)
    }
}
