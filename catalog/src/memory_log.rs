//! A log in memory, for virtual time and tests; a crash keeps a part of its bytes.
//!
//! Its image equals the content of a file: one frame for each record, with a checksum. Bytes that were appended and not
//! synced follow the synced bytes; [`MemoryLog::reopened`] cuts the image anywhere among them, and leaves out a torn
//! frame. [`MemoryLog::fail`] plans faults.

use crate::log::{CommitLog, LogError, LogRecord};
use crate::store::Payload;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use lineage::Sequence;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Number, length of the entry, length of the payload, slot, length of the payload's name.
const HEAD_BYTES: usize = 8 + 4 + 4 + 8 + 4;
const CRC_BYTES: usize = 4;

/// The fate of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// There is no room: [`LogError::Full`].
    Full,
    /// It fails, and a crash leaves this number of its bytes, or all if it has fewer.
    Failed {
        /// The number of bytes.
        written_bytes: usize,
    },
}

/// The key of a payload: its name and its slot, which also define the order.
type PayloadKey = (Vec<u8>, u64);

/// A payload of a [`MemoryLog`], without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadRecord {
    /// Its name.
    pub name: Vec<u8>,
    /// Its slot.
    pub slot: u64,
    /// The number of its record.
    pub sequence: Sequence,
    /// Its length.
    pub bytes: u64,
}

/// A [`CommitLog`] in memory. A clone is another handle on the same bytes.
#[derive(Clone, Default)]
pub struct MemoryLog {
    state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    /// The synced bytes.
    image: Vec<u8>,
    /// The bytes that a failed call appended.
    unsynced: Vec<u8>,
    covered: Sequence,
    /// Bytes at the beginning of `image` that must not be forgotten.
    retained_bytes: usize,
    payloads: BTreeMap<PayloadKey, (Sequence, Bytes)>,
    /// Records that removals of payloads added.
    removals: u64,
    fault: Option<LogFault>,
    broken: bool,
    appends: u64,
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// The log as found after a crash that left `unsynced_bytes` of the bytes that were appended and not synced.
    #[must_use]
    pub fn reopened(&self, unsynced_bytes: usize) -> Self {
        let old = self.state.lock();
        let mut image = old.image.clone();
        image.extend_from_slice(&old.unsynced[..unsynced_bytes.min(old.unsynced.len())]);
        let new = Self::from_image(&image, old.covered);
        new.state.lock().payloads.extend(old.payloads.iter().map(|(key, payload)| (key.clone(), payload.clone())));
        new
    }

    /// The log with the bytes `image`, without a torn frame at its end; everything up to `covered` may be forgotten.
    pub fn from_image(image: &[u8], covered: Sequence) -> Self {
        let mut state = LogState { covered, ..LogState::default() };
        let mut rest = image;
        while let Some((frame, behind)) = split_frame(rest) {
            state.image.extend_from_slice(&rest[..rest.len() - behind.len()]);
            let payload = |(key, bytes)| (key, (frame.sequence, Bytes::copy_from_slice(bytes)));
            state.payloads.extend(frame.payload.map(payload));
            rest = behind;
        }
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Its synced bytes.
    pub fn image(&self) -> Vec<u8> {
        self.state.lock().image.clone()
    }

    /// The number up to which it may forget.
    pub fn covered_up_to(&self) -> Sequence {
        self.state.lock().covered
    }

    /// The payload in `slot`, under any name.
    pub fn payload(&self, slot: u64) -> Option<Bytes> {
        let state = self.state.lock();
        state.payloads.iter().find(|((_, at), _)| *at == slot).map(|(_, (_, bytes))| bytes.clone())
    }

    /// The payload of that name in `slot`.
    pub fn payload_of(&self, name: &[u8], slot: u64) -> Option<Bytes> {
        self.state.lock().payloads.get(&(name.to_vec(), slot)).map(|(_, bytes)| bytes.clone())
    }

    /// Every slot that has a payload, in ascending order.
    pub fn slots(&self) -> Vec<u64> {
        let mut slots: Vec<u64> = self.state.lock().payloads.keys().map(|(_, slot)| *slot).collect();
        slots.sort_unstable();
        slots
    }

    /// The first `limit` payloads from that name and slot on, in order.
    pub fn payloads_from(&self, (name, slot): (&[u8], u64), limit: usize) -> Vec<PayloadRecord> {
        let state = self.state.lock();
        let found = state.payloads.range((name.to_vec(), slot)..).take(limit);
        let record = |((name, slot), (sequence, bytes)): (&PayloadKey, &(Sequence, Bytes))| PayloadRecord {
            name: name.clone(),
            slot: *slot,
            sequence: *sequence,
            bytes: bytes.len() as u64,
        };
        found.map(record).collect()
    }

    /// Removes the payload of that name in `slot`.
    pub fn remove(&self, name: &[u8], slot: u64) {
        let mut state = self.state.lock();
        state.removals += 1;
        state.payloads.remove(&(name.to_vec(), slot));
    }

    /// Removes the payloads from `first` to `last`, both included, with numbers up to `up_to`, by a single record.
    pub fn forget(&self, first: (&[u8], u64), last: (&[u8], u64), up_to: Sequence) {
        let key = |(name, slot): (&[u8], u64)| (name.to_vec(), slot);
        let mut state = self.state.lock();
        state.removals += 1;
        let range = key(first)..=key(last);
        state.payloads.retain(|key, (sequence, _)| !range.contains(key) || *sequence > up_to);
    }

    /// Records that removals of payloads added so far: one per removal.
    pub fn removals(&self) -> u64 {
        self.state.lock().removals
    }

    /// Appends that were answered without an error.
    pub fn appends(&self) -> u64 {
        self.state.lock().appends
    }

    /// Plans `fault` for the next append.
    pub fn fail(&self, fault: LogFault) {
        self.state.lock().fault = Some(fault);
    }
}

impl CommitLog for MemoryLog {
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError> {
        let mut state = self.state.lock();
        assert!(!state.broken, "nothing is appended after a failure: what is durable is unknown");
        let frames: Vec<u8> = records.iter().flat_map(frame).collect();
        match state.fault.take() {
            None => {}
            Some(LogFault::Full) => return Err(LogError::Full),
            Some(LogFault::Failed { written_bytes }) => {
                state.unsynced = frames[..written_bytes.min(frames.len())].to_vec();
                state.broken = true;
                return Err(LogError::Failed("an error that was asked for".into()));
            }
        }
        assert!(records.is_sorted_by(|a, b| a.sequence < b.sequence), "numbers grow");
        state.image.extend_from_slice(&frames);
        for record in records {
            let at = |payload: &Payload| (payload.name.clone(), payload.slot);
            let payload = |payload: &Payload| (at(payload), (record.sequence, payload.bytes.clone()));
            state.payloads.extend(record.payload.as_ref().map(payload));
        }
        state.appends += 1;
        Ok(())
    }

    fn covered(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        state.covered = state.covered.max(sequence);
        let mut kept = state.image[..state.retained_bytes].to_vec();
        let mut rest = &state.image[state.retained_bytes..];
        while let Some((frame, behind)) = split_frame(rest) {
            if frame.sequence > sequence {
                kept.extend_from_slice(&rest[..rest.len() - behind.len()]);
            }
            rest = behind;
        }
        state.image = kept;
    }

    fn retain(&self) {
        let mut state = self.state.lock();
        state.retained_bytes = state.image.len();
    }

    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        let image = self.image();
        self.state.lock().retained_bytes = 0;
        let mut rest = &image[..];
        while let Some((frame, behind)) = split_frame(rest) {
            rest = behind;
            if each(frame.entry).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A record in the image.
struct Frame<'a> {
    sequence: Sequence,
    entry: &'a [u8],
    payload: Option<(PayloadKey, &'a [u8])>,
}

fn frame(record: &LogRecord) -> Vec<u8> {
    let (slot, name, payload) =
        record.payload.as_ref().map_or((0, &[][..], &[][..]), |it| (it.slot, &it.name[..], &it.bytes[..]));
    let mut out = Vec::with_capacity(HEAD_BYTES + record.entry.len() + name.len() + payload.len() + CRC_BYTES);
    out.extend_from_slice(&record.sequence.0.to_le_bytes());
    out.extend_from_slice(&(record.entry.len() as u32).to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&slot.to_le_bytes());
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    for bytes in [&record.entry[..], name, payload] {
        out.extend_from_slice(bytes);
    }
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &out) as u32;
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// The first frame of `image`, and the bytes after it; `None` if it is torn.
fn split_frame(image: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let number = |at: usize| Some(u64::from_le_bytes(image.get(at..at + 8)?.try_into().ok()?));
    let length = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let (entry, payload, slot, name) = (length(8)?, length(12)?, number(16)?, length(24)?);
    let end = HEAD_BYTES + entry + name + payload;
    let (body, behind) = image.split_at_checked(end + CRC_BYTES)?;
    let (body, crc) = body.split_at(end);
    if crc != (crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, body) as u32).to_le_bytes() {
        return None;
    }
    let (entry, rest) = body[HEAD_BYTES..].split_at(entry);
    let (name, bytes) = rest.split_at(name);
    let payload = (slot > 0).then(|| ((name.to_vec(), slot), bytes));
    Some((Frame { sequence: Sequence(number(0)?), entry, payload }, behind))
}
