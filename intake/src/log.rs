//! The log: a file to which records are appended in batches, each batch with one sync.
//!
//! A log begins with a block that has its identity, the number from which its records begin, and the length of the
//! previous log when it was left. Every record has the number of bytes of its log that were synced when it was written.
//!
//! **A log may reuse the room of a dead log.** Its file was the dead log's, under that log's name, until it got its
//! own. Overwriting room costs a drive at most one seek per batch; when a file grows, the file system also writes its
//! journal, elsewhere. The dead log's data follows the last record until it is overwritten: these records have another
//! stamp, do not belong to this log, and are not a torn tail.
//!
//! **A torn tail differs from rot.** A crash may leave any part of the last batch, since only that was not synced. So a
//! damaged place is a torn tail, and is cut off with everything after it, if no whole record shows that bytes beyond it
//! were synced, and neither the next log nor the manifest shows that this log was longer. Otherwise the damaged bytes
//! had been acknowledged: this is rot. It is reported with its costs, and the data after it is read. The manifest may
//! lag by half a second, so rot in the bytes that were written that long before a crash cannot be distinguished from a
//! torn tail; the number of cut bytes is reported.

use crate::bytes::{BLOCK_BYTES, Damage, block, open_block_of};
use crate::names::{FileId, Identity};
use crate::record::{Head, Sequence};
use std::fmt;

/// The format version that is written.
const VERSION: u32 = 2;

/// The version from before logs reused room. It can still be read.
const NEW_FILES_ONLY: u32 = 1;

const MAGIC: [u8; 8] = *b"LARDILOG";

/// Offset of the first record.
pub(crate) const RECORDS_OFFSET: u64 = BLOCK_BYTES as u64;

/// The previous log, as it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    pub(crate) file: FileId,
    /// Its length; all of it was synced.
    pub(crate) bytes: u64,
}

/// The first block of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) identity: Identity,
    /// No number in it is below this one.
    pub(crate) first: Sequence,
    pub(crate) previous: Option<Previous>,
    /// Bytes of the file that a dead log left; 0 for a new file.
    pub(crate) room: u64,
}

impl LogHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        block(MAGIC, VERSION, |out| {
            self.identity.put(out);
            out.extend_from_slice(&self.first.0.to_le_bytes());
            let none = Previous { file: FileId { nonce: 0, count: 0 }, bytes: 0 };
            let previous = self.previous.unwrap_or(none);
            previous.file.put(out);
            out.extend_from_slice(&previous.bytes.to_le_bytes());
            out.extend_from_slice(&self.room.to_le_bytes());
        })
    }

    /// The header at the start of `bytes`, which must be that of `identity`.
    pub(crate) fn decode(bytes: &[u8], identity: Identity) -> Result<Self, Damage> {
        let (version, mut fields) = open_block_of(bytes, MAGIC)?;
        if ![NEW_FILES_ONLY, VERSION].contains(&version) {
            return Err(Damage::Version(version));
        }
        identity.check(&mut fields)?;
        let first = Sequence(fields.u64()?);
        let (file, length) = (FileId::take(&mut fields)?, fields.u64()?);
        let room = if version == NEW_FILES_ONLY { 0 } else { fields.u64()? };
        fields.end()?;
        // The length of a log is never 0: it always has its first block.
        let previous = (length > 0).then_some(Previous { file, bytes: length });
        Ok(Self { identity, first, previous, room })
    }
}

/// True if `image`, a file with the name of a log that it does not hold, is the room of one of the logs `dead` without
/// a new record: its first record is still theirs. A log that acknowledged anything begins with its own record.
pub(crate) fn is_room(image: &[u8], dead: impl IntoIterator<Item = FileId>) -> bool {
    let Some(records) = image.get(BLOCK_BYTES..) else { return false };
    dead.into_iter().any(|file| Head::decode(records, file.stamp()).is_ok())
}

/// A place in a log that cannot be read although it had been acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rot {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The key and number of the record, if at least these can be read.
    pub record: Option<(Vec<u8>, Sequence)>,
}

impl fmt::Display for Rot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, bytes, record } = self;
        if let Some((key, sequence)) = record {
            write!(f, "version {} of the key {}, in ", sequence.0, key.escape_ascii())?;
        }
        write!(f, "{bytes} bytes from byte {offset} on")
    }
}

/// The contents of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The whole records: the offset and the head of each.
    pub(crate) records: Vec<(u64, Head)>,
    /// The length of the log without its torn tail.
    pub(crate) bytes: u64,
    /// Bytes of the torn tail.
    pub(crate) torn: u64,
    pub(crate) rot: Vec<Rot>,
    /// Records with damage only to the value: they are among the rot, and their heads are known.
    pub(crate) described: Vec<(u64, Head)>,
}

/// The result of looking at a place in a log.
enum Found {
    Whole(Head),
    /// A trustworthy head of a damaged record, and its key if that is whole.
    Body(Head, Option<Vec<u8>>),
    Nothing,
}

/// The length of a log, as known from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The log is not longer than this, according to a later log or the manifest.
    pub(crate) sealed: Option<u64>,
    /// This number of bytes was synced, according to the manifest.
    pub(crate) synced: u64,
}

impl Known {
    /// The log has exactly this length.
    pub(crate) fn sealed(bytes: u64) -> Self {
        Self { sealed: Some(bytes), synced: bytes }
    }

    fn durable(self) -> u64 {
        self.sealed.unwrap_or(0).max(self.synced)
    }
}

/// Reads a log. `image` is the file with its header, `room` the length that a dead log left.
pub(crate) fn read(image: &[u8], stamp: u64, known: Known, room: u64) -> Contents {
    let end = known.sealed.map_or(image.len(), |_| image.len().min(known.durable() as usize));
    let image = &image[..end];
    let mut contents = Contents::default();
    let (mut at, mut last) = (BLOCK_BYTES, None);
    // The end of the bytes that this log is known to have written, at least in part.
    let mut written = if image.len() as u64 > room { image.len() } else { 0 };
    let mut durable = known.durable();
    while at < image.len() {
        let found = look(&image[at..], stamp);
        if let Found::Whole(head) | Found::Body(head, _) = &found {
            written = written.max((at + head.bytes()).min(image.len()));
        }
        let (length, record) = match found {
            // A record older than the previous one is the rest of a longer batch that failed.
            Found::Whole(head) if last.is_some_and(|last| head.sequence <= last) => break,
            Found::Whole(head) => {
                contents.records.push((at as u64, head));
                last = Some(head.sequence);
                durable = durable.max(head.durable);
                at += head.bytes();
                continue;
            }
            Found::Body(head, key) => {
                if key.is_some() && last.is_none_or(|last| head.sequence > last) {
                    contents.described.push((at as u64, head));
                    last = Some(head.sequence);
                }
                (head.bytes(), key.map(|key| (key, head.sequence)))
            }
            Found::Nothing => (next_head(&image[at..], stamp), None),
        };
        contents.rot.push(Rot { offset: at as u64, bytes: length.min(image.len() - at) as u64, record });
        at += length;
    }
    contents.bytes = (at.min(image.len())) as u64;
    // The end is missing, or is older than the data before it.
    if known.durable() > contents.bytes.max(RECORDS_OFFSET) {
        let offset = contents.bytes.max(RECORDS_OFFSET);
        contents.rot.push(Rot { offset, bytes: known.durable() - offset, record: None });
    }
    contents.cut(durable);
    contents.torn = (written as u64).saturating_sub(contents.bytes);
    contents
}

impl Contents {
    /// Cuts off the torn tail: it begins at the first damaged place after the synced bytes.
    fn cut(&mut self, durable: u64) {
        let Some(tail) = self.rot.iter().position(|rot| rot.offset >= durable) else { return };
        let begin = self.rot[tail].offset;
        self.rot.truncate(tail);
        self.records.retain(|(offset, _)| *offset < begin);
        self.described.retain(|(offset, _)| *offset < begin);
        self.bytes = self.bytes.min(begin);
    }
}

fn look(bytes: &[u8], stamp: u64) -> Found {
    let Ok(head) = Head::decode(bytes, stamp) else { return Found::Nothing };
    match head.record(bytes) {
        Ok(_) => Found::Whole(head),
        Err(_) => Found::Body(head, head.key(bytes).ok().map(<[u8]>::to_vec)),
    }
}

/// The distance to the next head, or to the end. Records begin at multiples of 8.
fn next_head(bytes: &[u8], stamp: u64) -> usize {
    let places = (8..bytes.len()).step_by(8);
    places.into_iter().find(|at| Head::decode(&bytes[*at..], stamp).is_ok()).unwrap_or(bytes.len())
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
