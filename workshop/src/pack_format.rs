//! The bytes of a pack behind its members: index and footer, format version 2. `docs/format.md` draws them.
//!
//! Version 1 is read as well; it knew of no objects that were uploaded in parts.
//!
//! The index names every member with all that S3 knows of it, so that a catalog can be rebuilt from the drives alone.
//! The checksums of the members have a place of fixed length at its end: they are known only when the members were
//! read, and the length of a pack is known before.
//!
//! Invariants: what is written here does not follow the catalog's records when those change, except by a new version;
//! decoding takes memory in proportion to the bytes it is given.

use crate::format::{Fields, FormatError, crc32c};
use catalog::{Acl, Checksum, ChecksumKind, Object, PartLengths, VersionId};

/// Length of the footer of a pack.
pub const PACK_FOOTER_BYTES: usize = 64;
/// Length of the index before its entries.
pub(crate) const INDEX_HEADER_BYTES: usize = 16;
/// What the index holds for each member behind its entries: the CRC-64 of its bytes.
pub(crate) const MEMBER_CHECKSUM_BYTES: usize = 8;

/// What a run of parts of one length takes.
const RUN_BYTES: usize = 4 + 8;

const PARTS: FormatError = FormatError::Field("lengths of parts");

const FOOTER_MAGIC: [u8; 8] = *b"larder-p";
const INDEX_MAGIC: [u8; 8] = *b"larder-i";
const VERSION: u32 = 2;
/// The oldest version that is read.
const OLDEST_VERSION: u32 = 1;
/// The first version in which an entry tells of parts.
const VERSION_WITH_PARTS: u32 = 2;
/// The shortest entry, of version 1: its length, four numbers, three empty texts and three empty lists.
const ENTRY_BYTES_MIN: usize = 4 + 4 * 8 + 6 * 4;

/// A member of a pack, as its index names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The bucket it was in.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Where in the payload it begins.
    pub offset: u64,
    /// What S3 knew of it when it was packed.
    pub object: Object,
    /// CRC-64/NVME of its bytes.
    pub checksum: u64,
}

/// The last bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFooter {
    /// How many members there are.
    pub members: u32,
    /// Where in the payload the index begins, which is where the members end.
    pub index_offset: u64,
    /// The index's length.
    pub index_bytes: u64,
    /// CRC-64/NVME of the index.
    pub index_checksum: u64,
}

impl PackFooter {
    /// Length of the payload, footer and all.
    pub fn payload_bytes(&self) -> u64 {
        self.index_offset + self.index_bytes + PACK_FOOTER_BYTES as u64
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; PACK_FOOTER_BYTES] {
        let mut bytes = [0; PACK_FOOTER_BYTES];
        bytes[0..8].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.members.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.index_offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.index_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.index_checksum.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// The footer that `bytes` are: the last [`PACK_FOOTER_BYTES`] of a payload.
pub fn decode_footer(bytes: &[u8]) -> Result<PackFooter, FormatError> {
    if bytes.len() != PACK_FOOTER_BYTES {
        return Err(FormatError::Length);
    }
    let mut fields = Fields::of(bytes);
    if fields.take(8)? != FOOTER_MAGIC {
        return Err(FormatError::Magic);
    }
    let version = fields.u32()?;
    let footer = PackFooter {
        members: fields.u32()?,
        index_offset: fields.u64()?,
        index_bytes: fields.u64()?,
        index_checksum: fields.u64()?,
    };
    fields.take(20)?;
    if fields.u32()? != crc32c(&bytes[..60]) {
        return Err(FormatError::Checksum);
    }
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(FormatError::Version(version));
    }
    let payload_bytes = footer.index_offset.checked_add(footer.index_bytes);
    match payload_bytes.and_then(|bytes| bytes.checked_add(PACK_FOOTER_BYTES as u64)) {
        Some(_) => Ok(footer),
        None => Err(FormatError::Field("length")),
    }
}

/// The members that the index `bytes` names, in the order in which they lie in the payload of `footer`.
pub fn decode_index(footer: &PackFooter, bytes: &[u8]) -> Result<Vec<IndexEntry>, FormatError> {
    if bytes.len() as u64 != footer.index_bytes {
        return Err(FormatError::Length);
    }
    if crc_fast::crc64_nvme(bytes) != footer.index_checksum {
        return Err(FormatError::Checksum);
    }
    let entries = parse_index(bytes)?;
    let members_end = entries.last().map_or(0, |last| last.offset + last.object.bytes);
    if entries.len() != footer.members as usize || members_end != footer.index_offset {
        return Err(FormatError::Field("number or length of members"));
    }
    Ok(entries)
}

/// [`decode_index`] without what the footer knows.
pub(crate) fn parse_index(bytes: &[u8]) -> Result<Vec<IndexEntry>, FormatError> {
    let mut fields = Fields::of(bytes);
    if fields.take(8)? != INDEX_MAGIC {
        return Err(FormatError::Magic);
    }
    let version = fields.u32()?;
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(FormatError::Version(version));
    }
    let members = fields.u32()? as usize;
    if members > bytes.len() / (ENTRY_BYTES_MIN + MEMBER_CHECKSUM_BYTES) {
        return Err(FormatError::Field("number of members"));
    }
    let mut entries = Vec::with_capacity(members);
    let mut end = 0;
    for _ in 0..members {
        let entry_bytes = fields.u32()? as usize;
        let entry = decode_entry(version, fields.take(entry_bytes)?)?;
        if entry.offset != end {
            return Err(FormatError::Field("offset of a member"));
        }
        end = entry.offset.checked_add(entry.object.bytes).ok_or(FormatError::Field("length of a member"))?;
        entries.push(entry);
    }
    for entry in &mut entries {
        entry.checksum = fields.u64()?;
    }
    if fields.is_empty() { Ok(entries) } else { Err(FormatError::Length) }
}

/// The beginning of an index of `members` members.
pub(crate) fn encode_index_header(members: u32) -> [u8; INDEX_HEADER_BYTES] {
    let mut bytes = [0; INDEX_HEADER_BYTES];
    bytes[0..8].copy_from_slice(&INDEX_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&members.to_le_bytes());
    bytes
}

/// An entry, with its length before it.
pub(crate) fn encode_entry(bucket: &str, key: &str, offset: u64, object: &Object) -> Vec<u8> {
    // Named one by one, so that a field that the record gains cannot be forgotten here.
    // ACL and tags may change at any time, which must not wake a drive; so they are the catalog's alone.
    let Object {
        version,
        bytes,
        etag,
        modified_ms,
        created_ms: _,
        headers,
        metadata,
        checksums,
        acl: _,
        tags: _,
        parts,
    } = object;
    let mut out = vec![0; 4];
    for number in [version.0, offset, *bytes, *modified_ms] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for text in [bucket, key, etag] {
        put_text(&mut out, text);
    }
    for pairs in [headers, metadata] {
        put_count(&mut out, pairs.len());
        for (name, value) in pairs {
            put_text(&mut out, name);
            put_text(&mut out, value);
        }
    }
    put_count(&mut out, checksums.len());
    for Checksum { kind, base64 } in checksums {
        out.push(kind_code(*kind));
        put_text(&mut out, base64);
    }
    put_count(&mut out, parts.runs().len());
    for (count, bytes) in parts.runs() {
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
    }
    let entry_bytes = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&entry_bytes.to_le_bytes());
    out
}

/// How long [`encode_entry`] is.
pub(crate) fn entry_bytes(bucket: &str, key: &str, object: &Object) -> usize {
    let text = |text: &str| 4 + text.len();
    let pairs =
        |pairs: &[(String, String)]| -> usize { pairs.iter().map(|(name, value)| text(name) + text(value)).sum() };
    let checksums: usize = object.checksums.iter().map(|checksum| 1 + text(&checksum.base64)).sum();
    ENTRY_BYTES_MIN
        + bucket.len()
        + key.len()
        + object.etag.len()
        + pairs(&object.headers)
        + pairs(&object.metadata)
        + checksums
        + 4
        + RUN_BYTES * object.parts.runs().len()
}

fn decode_entry(format: u32, bytes: &[u8]) -> Result<IndexEntry, FormatError> {
    let mut fields = Fields::of(bytes);
    let (version, offset, bytes, modified_ms) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    let (bucket, key, etag) = (fields.text()?, fields.text()?, fields.text()?);
    let headers = decode_pairs(&mut fields)?;
    let metadata = decode_pairs(&mut fields)?;
    let mut checksums = Vec::new();
    for _ in 0..fields.u32()? {
        let kind = kind_of(fields.u8()?)?;
        checksums.push(Checksum { kind, base64: fields.text()? });
    }
    let parts = if format >= VERSION_WITH_PARTS { decode_parts(&mut fields, bytes)? } else { PartLengths::default() };
    if !fields.is_empty() {
        return Err(FormatError::Length);
    }
    let (version, acl, tags) = (VersionId(version), Acl::Private, Vec::new());
    let created_ms = modified_ms;
    let object =
        Object { version, bytes, etag, modified_ms, created_ms, headers, metadata, checksums, acl, tags, parts };
    Ok(IndexEntry { bucket, key, offset, object, checksum: 0 })
}

/// The lengths of the parts of an object of `bytes` bytes.
fn decode_parts(fields: &mut Fields<'_>, bytes: u64) -> Result<PartLengths, FormatError> {
    let mut parts = PartLengths::default();
    let mut sum = 0_u64;
    for runs in 1..=fields.u32()? {
        let (count, bytes) = (fields.u32()?, fields.u64()?);
        parts.push_run(count, bytes);
        sum = bytes.checked_mul(count.into()).and_then(|run| sum.checked_add(run)).ok_or(PARTS)?;
        // Nothing is said in two ways.
        if parts.runs().len() != runs as usize {
            return Err(PARTS);
        }
    }
    if parts.is_empty() || sum == bytes { Ok(parts) } else { Err(PARTS) }
}

fn decode_pairs(fields: &mut Fields<'_>) -> Result<Vec<(String, String)>, FormatError> {
    let mut pairs = Vec::new();
    for _ in 0..fields.u32()? {
        pairs.push((fields.text()?, fields.text()?));
    }
    Ok(pairs)
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn kind_code(kind: ChecksumKind) -> u8 {
    match kind {
        ChecksumKind::Crc32 => 1,
        ChecksumKind::Crc32c => 2,
        ChecksumKind::Crc64Nvme => 3,
        ChecksumKind::Sha1 => 4,
        ChecksumKind::Sha256 => 5,
    }
}

fn kind_of(code: u8) -> Result<ChecksumKind, FormatError> {
    Ok(match code {
        1 => ChecksumKind::Crc32,
        2 => ChecksumKind::Crc32c,
        3 => ChecksumKind::Crc64Nvme,
        4 => ChecksumKind::Sha1,
        5 => ChecksumKind::Sha256,
        _ => return Err(FormatError::Field("kind of checksum")),
    })
}

#[cfg(test)]
#[path = "pack_format_tests.rs"]
mod tests;
