//! The bytes of a shelf around its records: header, inner nodes, tail, footer.

use crate::bytes::{BLOCK_BYTES, Damage, Fields, aligned, block, crc32c, open_block, open_block_of, put_text};
use crate::lost::LostPart;
use crate::mask::Mask;
use crate::names::{FileId, Identity};
use crate::record::Sequence;

/// The version of headers.
const VERSION: u32 = 1;

/// The written version of footers. Versions 1 and 2 are also read: their footers and tails exist once, and the tails
/// have no lost parts. Version 1 has no trailers.
pub(super) const FOOTER_VERSION: u32 = 3;

/// The first version with two footers and two tails.
const TWICE: u32 = 3;

const HEADER: [u8; 8] = *b"LARDSHLF";
pub(super) const FOOTER: [u8; 8] = *b"LARDSHFT";
const NODE: [u8; 4] = *b"LNOD";

/// Bytes of the header and of the footer.
pub(super) const EDGE_BYTES: u64 = BLOCK_BYTES as u64;

/// Size in bytes at which a leaf or an inner node is complete; one record or two children may make it larger.
pub(super) const NODE_BYTES: usize = 16 << 10;

/// Bytes of the head of an inner node.
const NODE_HEAD_BYTES: usize = 32;

/// Maximum accepted bytes of an inner node.
const BODY_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of levels of inner nodes: with only two children each this would suffice for any file.
const LEVELS_MAX: u8 = 40;

pub(super) fn encode_header(identity: Identity) -> Vec<u8> {
    block(HEADER, VERSION, |out| identity.put(out))
}

pub(super) fn check_header(bytes: &[u8], identity: Identity) -> Result<(), Damage> {
    let mut fields = open_block(bytes, HEADER, VERSION)?;
    identity.check(&mut fields)?;
    fields.end()
}

/// The place of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// A child of an inner node: the first key below it, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) first: Vec<u8>,
    pub(super) extent: Extent,
}

impl Child {
    pub(super) fn bytes(&self) -> usize {
        8 + 4 + 2 + self.first.len()
    }
}

/// An inner node of `level` (level 1 has leaves below it).
pub(super) fn encode_node(children: &[Child], level: u8, stamp: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(NODE_BYTES + 1024);
    for child in children {
        body.extend_from_slice(&child.extent.offset.to_le_bytes());
        body.extend_from_slice(&child.extent.bytes.to_le_bytes());
        put_text(&mut body, &child.first);
    }
    let mut node = Vec::with_capacity(NODE_HEAD_BYTES + body.len() + 8);
    node.extend_from_slice(&NODE);
    node.extend_from_slice(&u32::from(level).to_le_bytes());
    node.extend_from_slice(&stamp.to_le_bytes());
    node.extend_from_slice(&(children.len() as u32).to_le_bytes());
    node.extend_from_slice(&(body.len() as u32).to_le_bytes());
    node.extend_from_slice(&crc32c(&body).to_le_bytes());
    node.extend_from_slice(&crc32c(&node).to_le_bytes());
    node.extend_from_slice(&body);
    node.resize(aligned(node.len()), 0);
    node
}

/// The length of the inner node at the start of `bytes`, if its head belongs to the file of `stamp`.
pub(super) fn node_bytes(bytes: &[u8], stamp: u64) -> Option<u64> {
    let head = bytes.get(..NODE_HEAD_BYTES - 4).filter(|head| head.starts_with(&NODE))?;
    let mut fields = Fields(&bytes[8..]);
    let (found, _, length, _) = (fields.u64().ok()?, fields.u32().ok()?, fields.u32().ok()?, fields.u32().ok()?);
    let is_whole = fields.u32().ok()? == crc32c(head) && found == stamp && length <= BODY_BYTES_MAX;
    is_whole.then(|| aligned(NODE_HEAD_BYTES + length as usize) as u64)
}

/// The children of the inner node `bytes`, which must be of `level` and of the file of `stamp`.
pub(super) fn decode_node(bytes: &[u8], level: u8, stamp: u64) -> Result<Vec<Child>, Damage> {
    let mut fields = Fields(bytes);
    let head = Fields(bytes).take(NODE_HEAD_BYTES - 4)?;
    if fields.take(4)? != NODE {
        return Err(Damage::Magic);
    }
    let (found_level, found_stamp) = (fields.u32()?, fields.u64()?);
    let (count, length, body_crc, head_crc) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    if head_crc != crc32c(head) {
        return Err(Damage::Checksum);
    }
    if found_stamp != stamp || found_level != u32::from(level) {
        return Err(Damage::Elsewhere);
    }
    let body = fields.take(length as usize)?;
    if body_crc != crc32c(body) {
        return Err(Damage::Checksum);
    }
    fields.end()?;
    let mut body = Fields(body);
    let mut children: Vec<Child> = Vec::new();
    for _ in 0..count {
        let extent = Extent { offset: body.u64()?, bytes: body.u32()? };
        let first = body.text()?.to_vec();
        if children.last().is_some_and(|last| last.first >= first) {
            return Err(Damage::Field("order of keys"));
        }
        children.push(Child { first, extent });
    }
    if children.is_empty() || !body.0.is_empty() {
        return Err(Damage::Field("number of children"));
    }
    Ok(children)
}

/// The tail: masks, superseded files, and lost parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) masks: Vec<Mask>,
    pub(super) superseded: Vec<FileId>,
    /// The first and the last key; empty if the shelf has no records.
    pub(super) keys: (Vec<u8>, Vec<u8>),
    /// Parts of this shelf's sources that could no longer be read.
    pub(super) lost: Vec<LostPart>,
}

impl Tail {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&(self.masks.len() as u32).to_le_bytes());
        self.masks.iter().for_each(|mask| mask.put(&mut out));
        out.extend_from_slice(&(self.superseded.len() as u32).to_le_bytes());
        self.superseded.iter().for_each(|file| file.put(&mut out));
        put_text(&mut out, &self.keys.0);
        put_text(&mut out, &self.keys.1);
        out.extend_from_slice(&(self.lost.len() as u32).to_le_bytes());
        for part in &self.lost {
            out.extend_from_slice(&part.max.0.to_le_bytes());
            // No key is empty, so two empty ones mean any key.
            let (first, last) = part.keys.as_ref().map_or((&[][..], &[][..]), |(first, last)| (first, last));
            put_text(&mut out, first);
            put_text(&mut out, last);
        }
        out.resize(aligned(out.len()), 0);
        out
    }

    /// The tail of a shelf whose footer has `version`.
    pub(super) fn decode(bytes: &[u8], version: u32) -> Result<Self, Damage> {
        let mut fields = Fields(bytes);
        let mut tail = Self::default();
        for _ in 0..fields.u32()? {
            tail.masks.push(Mask::take(&mut fields)?);
        }
        for _ in 0..fields.u32()? {
            tail.superseded.push(FileId::take(&mut fields)?);
        }
        tail.keys = (fields.text()?.to_vec(), fields.text()?.to_vec());
        let lost = if version < TWICE { 0 } else { fields.u32()? };
        for _ in 0..lost {
            let max = Sequence(fields.u64()?);
            let keys = (fields.text()?.to_vec(), fields.text()?.to_vec());
            tail.lost.push(LostPart { keys: Some(keys).filter(|(_, last)| !last.is_empty()), max });
        }
        fields.end()?;
        Ok(tail)
    }
}

/// The trailers of the keys of a shelf, from the smallest to the largest. The trailer of a key is its last 8 bytes, as
/// a big-endian number; a shorter key has none.
///
/// Keys that end with a number which grows with time are each in few shelves, however random the rest of the key is,
/// and a reader need not ask the other shelves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailers {
    min: u64,
    max: u64,
}

impl Trailers {
    /// Trailers of no keys.
    pub(super) const NONE: Self = Self { min: u64::MAX, max: 0 };
    /// Trailers of any keys.
    const ANY: Self = Self { min: 0, max: u64::MAX };

    pub(crate) fn of(key: &[u8]) -> Option<u64> {
        key.last_chunk().map(|last| u64::from_be_bytes(*last))
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        if let Some(trailer) = Self::of(key) {
            (self.min, self.max) = (self.min.min(trailer), self.max.max(trailer));
        }
    }

    /// One more than the largest; 0 without trailers. The largest possible number if it is not known.
    pub(super) fn end(self) -> u64 {
        if self.min > self.max { 0 } else { self.max.saturating_add(1) }
    }

    /// True if `key` may be one of these keys.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        Self::of(key).is_none_or(|trailer| (self.min..=self.max).contains(&trailer))
    }
}

impl Default for Trailers {
    fn default() -> Self {
        Self::NONE
    }
}

/// The footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    /// Its format.
    pub(super) version: u32,
    /// Levels of inner nodes; 0 is a leaf as the root.
    pub(super) levels: u8,
    /// The root; 0 bytes long if the shelf has no records.
    pub(super) root: Extent,
    pub(super) tail: Extent,
    pub(super) tail_crc: u32,
    pub(super) records: u64,
    /// The smallest and the largest number of a record; 0 if the shelf has no records.
    pub(super) sequences: (Sequence, Sequence),
    /// The trailers of its keys.
    pub(super) trailers: Trailers,
}

impl Footer {
    pub(super) fn encode(&self, identity: Identity) -> Vec<u8> {
        block(FOOTER, self.version, |out| {
            identity.put(out);
            out.extend_from_slice(&u64::from(self.levels).to_le_bytes());
            for extent in [self.root, self.tail] {
                out.extend_from_slice(&extent.offset.to_le_bytes());
                out.extend_from_slice(&u64::from(extent.bytes).to_le_bytes());
            }
            out.extend_from_slice(&u64::from(self.tail_crc).to_le_bytes());
            let (sequences, trailers) = (self.sequences, self.trailers);
            for number in [self.records, sequences.0.0, sequences.1.0, trailers.min, trailers.max] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        })
    }

    /// The footer `bytes`, which are at offset `at`.
    pub(super) fn decode(bytes: &[u8], identity: Identity, at: u64) -> Result<Self, Damage> {
        let (version, mut fields) = open_block_of(bytes, FOOTER)?;
        if !(1..=FOOTER_VERSION).contains(&version) {
            return Err(Damage::Version(version));
        }
        identity.check(&mut fields)?;
        let small = |number: u64| u32::try_from(number).map_err(|_| Damage::Field("length"));
        let levels = u8::try_from(fields.u64()?).ok().filter(|levels| *levels <= LEVELS_MAX);
        let levels = levels.ok_or(Damage::Field("number of levels"))?;
        let root = Extent { offset: fields.u64()?, bytes: small(fields.u64()?)? };
        let tail = Extent { offset: fields.u64()?, bytes: small(fields.u64()?)? };
        let tail_crc = small(fields.u64()?)?;
        let records = fields.u64()?;
        let sequences = (Sequence(fields.u64()?), Sequence(fields.u64()?));
        let trailers = match version {
            1 => Trailers::ANY,
            _ => Trailers { min: fields.u64()?, max: fields.u64()? },
        };
        fields.end()?;
        let footer = Self { version, levels, root, tail, tail_crc, records, sequences, trailers };
        // No file is long enough for a sum of these to overflow.
        if tail.offset > i64::MAX as u64 || !footer.places().footers.contains(&at) {
            return Err(Damage::Field("place"));
        }
        Ok(footer)
    }

    /// The places of footer and tail, and of their copies.
    pub(super) fn places(&self) -> Places {
        let (begin, bytes) = (self.tail.offset, u64::from(self.tail.bytes));
        if self.version < TWICE {
            return Places { tails: [begin; 2], footers: [begin + bytes; 2], end: begin + bytes + EDGE_BYTES };
        }
        let first = (begin + bytes).next_multiple_of(EDGE_BYTES);
        let again = first + EDGE_BYTES;
        let second = (again + bytes).next_multiple_of(EDGE_BYTES);
        Places { tails: [begin, again], footers: [first, second], end: second + EDGE_BYTES }
    }
}

/// The places of the tails and the footers of a shelf. The second copies share no page of 4 KiB with anything else, so
/// a damaged page, or a cut end, leaves one of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) tails: [u64; 2],
    pub(super) footers: [u64; 2],
    /// The length of the file.
    pub(super) end: u64,
}
