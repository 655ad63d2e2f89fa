//! The bytes of a snapshot: written and read a frame at a time.

use crate::error::CatalogError;
use crate::key_digest::{BYTES as DIGEST_BYTES, KeyDigest};
use crate::log_entry;
use crate::seal::Sealed;
use crate::store::Entry;
use crc_fast::{CrcAlgorithm, Digest};
use lineage::Sequence;
use std::io::{self, Read, Write};

const MAGIC: [u8; 8] = *b"LARDSNAP";
/// For a segment of a journal (`journal.rs`), whose header and batches are the same.
const SEGMENT_MAGIC: [u8; 8] = *b"LARDJRNL";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 72;
const RECORDS: u8 = 1;
const BATCH: u8 = 2;
const END: u8 = 3;
const END_BYTES: usize = 8 + DIGEST_BYTES + 8 + 8 + 8;
/// Maximum accepted length of a frame: a page of the longest records, or the longest batch.
const FRAME_BYTES_MAX: u32 = 1 << 30;

/// The reasons why a snapshot cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// An error of the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An error of the catalog.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The content differs from what was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It has no end: it was not written completely, or is cut off.
    #[error("it is cut off")]
    CutOff,
    /// Its format is not known to this Larder.
    #[error("it is of version {0}, and this Larder knows {VERSION}; use a newer Larder")]
    Version(u32),
    /// It is another kind of file.
    #[error("it is not a snapshot of a catalog")]
    Foreign,
    /// The catalog is written to faster than the file.
    #[error("the catalog changes faster than the file can be written; try again later, or use a faster disk")]
    TooFast,
    /// The catalog is opened read-only.
    #[error("the catalog is opened read-only")]
    ReadOnly,
}

/// The head of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) rack: [u8; 16],
    /// The last batch before the first one in it.
    pub(crate) before: Sequence,
    /// The keys after that batch.
    pub(crate) keys: KeyDigest,
    pub(crate) made_ms: u64,
}

/// The end of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub(super) sequence: Sequence,
    pub(super) keys: KeyDigest,
    pub(super) records: u64,
    pub(super) batches: u64,
}

/// A frame of a snapshot.
#[derive(Debug)]
pub(super) enum Frame {
    Records(Vec<(Vec<u8>, Sealed)>),
    Batch(Vec<u8>),
    End(End),
}

impl Header {
    /// The header of a segment of a journal.
    pub(crate) fn encode_segment(&self) -> [u8; HEADER_BYTES] {
        self.encode(SEGMENT_MAGIC)
    }

    fn encode(&self, magic: [u8; 8]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&magic);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.rack);
        bytes[32..40].copy_from_slice(&self.before.0.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.keys.to_bytes());
        bytes[56..64].copy_from_slice(&self.made_ms.to_le_bytes());
        let crc = checksum(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES], magic: [u8; 8]) -> Result<Self, SnapshotError> {
        let damaged = SnapshotError::Damaged("its header");
        if !bytes.starts_with(&magic) {
            return Err(SnapshotError::Foreign);
        }
        let (fields, crc) = bytes.split_last_chunk::<4>().ok_or(SnapshotError::CutOff)?;
        if checksum(fields) != u32::from_le_bytes(*crc) {
            return Err(damaged);
        }
        let mut fields = Fields(&fields[8..]);
        let version = fields.u32()?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        fields.zero(4)?;
        let rack = *fields.array()?;
        let (before, keys, made_ms) = (Sequence(fields.u64()?), fields.digest()?, fields.u64()?);
        fields.zero(4)?;
        Ok(Self { rack, before, keys, made_ms })
    }
}

impl End {
    fn encode(&self, all_crc: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(END_BYTES);
        bytes.extend_from_slice(&self.sequence.0.to_le_bytes());
        bytes.extend_from_slice(&self.keys.to_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&self.batches.to_le_bytes());
        bytes.extend_from_slice(&all_crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], all_crc: u64) -> Result<Self, SnapshotError> {
        let mut fields = Fields(bytes);
        let (sequence, keys) = (Sequence(fields.u64()?), fields.digest()?);
        let (records, batches, crc) = (fields.u64()?, fields.u64()?, fields.u64()?);
        if crc != all_crc || !fields.0.is_empty() {
            return Err(SnapshotError::Damaged("the checksum of all of it"));
        }
        Ok(Self { sequence, keys, records, batches })
    }
}

/// Writes frames.
pub(super) struct FrameWriter<'a> {
    to: &'a mut (dyn Write + Send),
    all: Digest,
    bytes: u64,
}

impl<'a> FrameWriter<'a> {
    pub(super) fn begin(to: &'a mut (dyn Write + Send), header: &Header) -> Result<Self, SnapshotError> {
        let mut writer = Self { to, all: Digest::new(CrcAlgorithm::Crc64Nvme), bytes: 0 };
        writer.put(&header.encode(MAGIC))?;
        Ok(writer)
    }

    pub(super) fn records(&mut self, page: &[Entry]) -> Result<(), SnapshotError> {
        if page.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::new();
        for Entry { key, value } in page {
            payload.extend_from_slice(&length(key.len()).to_le_bytes());
            payload.extend_from_slice(&length(value.as_bytes().len()).to_le_bytes());
            payload.extend_from_slice(key);
            payload.extend_from_slice(value.as_bytes());
        }
        self.frame(RECORDS, &payload)
    }

    /// Writes `batches`, which follow those counted in `end`, and adds them to it.
    pub(super) fn batches(&mut self, batches: &[(Sequence, Vec<u8>)], end: &mut End) -> Result<(), SnapshotError> {
        for (sequence, entry) in batches {
            let (link, _) = log_entry::decode(entry).map_err(|_| SnapshotError::Damaged("a batch"))?;
            assert_eq!((link.before, link.sequence), (end.sequence, *sequence), "batches follow one another");
            self.frame(BATCH, entry)?;
            (end.sequence, end.keys) = (link.sequence, link.keys_after);
            end.batches += 1;
        }
        Ok(())
    }

    /// Writes the end, and returns the total number of bytes.
    pub(super) fn end(mut self, end: &End) -> Result<u64, SnapshotError> {
        let all_crc = self.all.finalize();
        self.frame(END, &end.encode(all_crc))?;
        self.to.flush()?;
        Ok(self.bytes)
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> Result<(), SnapshotError> {
        self.put(&frame(kind, payload))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.to.write_all(bytes)?;
        self.all.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// The frame of a batch, as it is logged.
pub(crate) fn batch_frame(entry: &[u8]) -> Vec<u8> {
    frame(BATCH, entry)
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 9);
    frame.push(kind);
    frame.extend_from_slice(&length(payload.len()).to_le_bytes());
    frame.extend_from_slice(payload);
    let crc = checksum(&frame);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame
}

/// Reads frames.
pub(crate) struct FrameReader<R> {
    from: R,
    all: Digest,
    pub(crate) header: Header,
}

impl<R: Read> FrameReader<R> {
    /// A reader of a snapshot.
    pub(crate) fn begin(from: R) -> Result<Self, SnapshotError> {
        Self::of(from, MAGIC)
    }

    /// A reader of a segment of a journal.
    pub(crate) fn of_segment(from: R) -> Result<Self, SnapshotError> {
        Self::of(from, SEGMENT_MAGIC)
    }

    fn of(mut from: R, magic: [u8; 8]) -> Result<Self, SnapshotError> {
        let mut bytes = [0; HEADER_BYTES];
        from.read_exact(&mut bytes).map_err(cut_off)?;
        let header = Header::decode(&bytes, magic)?;
        let mut all = Digest::new(CrcAlgorithm::Crc64Nvme);
        all.update(&bytes);
        Ok(Self { from, all, header })
    }

    /// The next frame, which must be a batch.
    pub(crate) fn next_batch(&mut self) -> Result<Vec<u8>, SnapshotError> {
        match self.next()? {
            Frame::Batch(entry) => Ok(entry),
            Frame::Records(_) | Frame::End(_) => Err(SnapshotError::Damaged("a frame that is not a batch")),
        }
    }

    /// The next frame; the last frame is the end.
    pub(super) fn next(&mut self) -> Result<Frame, SnapshotError> {
        let mut head = [0; 5];
        self.from.read_exact(&mut head).map_err(cut_off)?;
        let [kind, length @ ..] = head;
        let payload_bytes = u32::from_le_bytes(length);
        if payload_bytes > FRAME_BYTES_MAX {
            return Err(SnapshotError::Damaged("the length of a frame"));
        }
        let mut frame = head.to_vec();
        let read = Read::by_ref(&mut self.from).take(u64::from(payload_bytes) + 4).read_to_end(&mut frame)?;
        if read < payload_bytes as usize + 4 {
            return Err(SnapshotError::CutOff);
        }
        let (checked, crc) = frame.split_last_chunk::<4>().ok_or(SnapshotError::CutOff)?;
        if checksum(checked) != u32::from_le_bytes(*crc) {
            return Err(SnapshotError::Damaged("the checksum of a frame"));
        }
        let payload = &checked[5..];
        let found = match kind {
            RECORDS => Frame::Records(records(payload)?),
            BATCH => Frame::Batch(payload.to_vec()),
            END => Frame::End(End::decode(payload, self.all.finalize())?),
            _ => return Err(SnapshotError::Damaged("a frame of an unknown kind")),
        };
        self.all.update(&frame);
        Ok(found)
    }
}

fn records(payload: &[u8]) -> Result<Vec<(Vec<u8>, Sealed)>, SnapshotError> {
    let mut fields = Fields(payload);
    let mut records = Vec::new();
    while !fields.0.is_empty() {
        let (key_bytes, value_bytes) = (fields.u32()? as usize, fields.u32()? as usize);
        let key = fields.take(key_bytes)?.to_vec();
        records.push((key, Sealed::from_bytes(fields.take(value_bytes)?.to_vec())));
    }
    Ok(records)
}

fn cut_off(error: io::Error) -> SnapshotError {
    if error.kind() == io::ErrorKind::UnexpectedEof { SnapshotError::CutOff } else { SnapshotError::Io(error) }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or_else(|_| panic!("nothing in a catalog is as long as {bytes}"))
}

/// The bytes that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(SnapshotError::Damaged("a length"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], SnapshotError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(SnapshotError::Damaged("a length"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn digest(&mut self) -> Result<KeyDigest, SnapshotError> {
        KeyDigest::from_bytes(self.take(DIGEST_BYTES)?).ok_or(SnapshotError::Damaged("a digest"))
    }

    fn zero(&mut self, bytes: usize) -> Result<(), SnapshotError> {
        let zeros = self.take(bytes)?.iter().all(|byte| *byte == 0);
        if zeros { Ok(()) } else { Err(SnapshotError::Damaged("bytes that must be zero")) }
    }
}
