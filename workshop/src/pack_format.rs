//! The bytes of a pack after its members: index and footer, format version 3. `docs/format/drives.md` shows them.
//!
//! The index names every member with all that S3 knew of it when it was packed, so a catalog can be rebuilt from the
//! drives alone; later changes are in the catalog only.
//!
//! The checksums of the members have a place of fixed length at the end of the index: they are known only after the
//! members were read, and the length of a pack is known before.
//!
//! Invariants: these formats do not follow the catalog's records when those change, except by a new version; decoding
//! takes memory in proportion to its input.

use crate::checksum::{of_raw, raw};
use crate::format::{Fields, FormatError, check_version, crc32c};
use catalog::{Acl, Checksum, ChecksumKind, Object, PartLengths, VersionId};

/// Length of the footer of a pack.
pub const PACK_FOOTER_BYTES: usize = 64;
/// Length of the index before its entries.
pub(crate) const INDEX_HEADER_BYTES: usize = 16;
/// Bytes of each member's checksum after the index entries: the CRC-64 of its bytes.
pub(crate) const MEMBER_CHECKSUM_BYTES: usize = 8;

const PARTS: FormatError = FormatError::Field("lengths of parts");

const FOOTER_MAGIC: [u8; 8] = *b"larder-p";
const INDEX_MAGIC: [u8; 8] = *b"larder-i";
const VERSION: u32 = 3;
/// The shortest entry: its length, eight numbers, four bytes of flags, five empty texts and six empty lists.
const ENTRY_BYTES_MIN: usize = 4 + 8 * 8 + 4 + 5 * 4 + 6 * 4;
/// Bytes of an MD5.
const MD5_BYTES: usize = 16;

const DELETE_MARKER: u8 = 1;
const LEGAL_HOLD: u8 = 2;

/// The mode of an object's retention, as in S3 object lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Users with the right to bypass governance may shorten it.
    Governance,
    /// No user may shorten it.
    Compliance,
}

/// The time until which an object must not be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The mode.
    pub mode: RetentionMode,
    /// The end of the retention, in milliseconds of the Unix epoch.
    pub until_ms: u64,
}

/// The digests of a part in which an object was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartDigests {
    /// MD5 of its bytes.
    pub md5: [u8; MD5_BYTES],
    /// Its checksum, of the same kind for all parts of an object.
    pub checksum: Checksum,
}

/// The attributes of a member in a pack beyond its [`Object`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberAttributes {
    /// The time when its bucket was created, in milliseconds of the Unix epoch: distinguishes buckets of one name.
    pub bucket_created_ms: u64,
    /// The name of the user who owned the bucket.
    pub owner: String,
    /// The catalog's commit sequence number of the object's record: the higher one of two versions is newer.
    pub sequence: u64,
    /// True for a delete marker, which has no bytes.
    pub is_delete_marker: bool,
    /// True if it is under legal hold.
    pub legal_hold: bool,
    /// Its retention, if any.
    pub retention: Option<Retention>,
    /// Its storage class as S3 spells it; empty if none was named.
    pub storage_class: String,
    /// The digests of all of its parts, in order, or of none.
    pub parts: Vec<PartDigests>,
}

/// A member of a pack, as its index names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The bucket it was in.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// The offset of its first byte in the payload.
    pub offset: u64,
    /// Its S3 record when it was packed.
    pub object: Object,
    /// Its further attributes.
    pub attributes: MemberAttributes,
    /// CRC-64/NVME of its bytes.
    pub checksum: u64,
}

/// The last bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFooter {
    /// The number of members.
    pub members: u32,
    /// The offset of the index in the payload, which is the end of the members.
    pub index_offset: u64,
    /// The index's length.
    pub index_bytes: u64,
    /// CRC-64/NVME of the index.
    pub index_checksum: u64,
}

impl PackFooter {
    /// Length of the payload, including the footer.
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

/// The footer in `bytes`, the last [`PACK_FOOTER_BYTES`] of a payload.
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
    if crc32c(&bytes[..60]).to_le_bytes() != bytes[60..] {
        return Err(FormatError::Checksum);
    }
    check_version(version, VERSION)?;
    fields.zeros(20)?;
    let payload_bytes = footer.index_offset.checked_add(footer.index_bytes);
    match payload_bytes.and_then(|bytes| bytes.checked_add(PACK_FOOTER_BYTES as u64)) {
        Some(_) => Ok(footer),
        None => Err(FormatError::Field("length")),
    }
}

/// The members that the index `bytes` names, in the order of their bytes in the payload of `footer`.
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

/// [`decode_index`] without the comparison with the footer.
pub(crate) fn parse_index(bytes: &[u8]) -> Result<Vec<IndexEntry>, FormatError> {
    let mut fields = Fields::of(bytes);
    if fields.take(8)? != INDEX_MAGIC {
        return Err(FormatError::Magic);
    }
    check_version(fields.u32()?, VERSION)?;
    let members = fields.u32()? as usize;
    if members > bytes.len() / (ENTRY_BYTES_MIN + MEMBER_CHECKSUM_BYTES) {
        return Err(FormatError::Field("number of members"));
    }
    let mut entries = Vec::with_capacity(members);
    let mut end = 0;
    for _ in 0..members {
        let entry_bytes = fields.u32()? as usize;
        let entry = decode_entry(fields.take(entry_bytes)?)?;
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

/// An entry, preceded by its length.
pub(crate) fn encode_entry(
    bucket: &str,
    key: &str,
    offset: u64,
    object: &Object,
    attributes: &MemberAttributes,
) -> Vec<u8> {
    // Named one by one, so that a new field of a record cannot be forgotten here.
    let Object { version, bytes, etag, modified_ms, created_ms, headers, metadata, checksums, acl, tags, parts } =
        object;
    let MemberAttributes { bucket_created_ms, owner, sequence, storage_class, .. } = attributes;
    let MemberAttributes { is_delete_marker, legal_hold, retention, parts: digests, .. } = attributes;
    let (mode, until_ms) = retention_code(*retention);
    let mut out = vec![0; 4];
    for number in [version.0, *sequence, offset, *bytes, *created_ms, *modified_ms, *bucket_created_ms, until_ms] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(*is_delete_marker, DELETE_MARKER) | flag(*legal_hold, LEGAL_HOLD);
    out.extend_from_slice(&[flags, mode, acl_code(*acl), 0]);
    for text in [bucket, owner, key, etag, storage_class] {
        put_text(&mut out, text);
    }
    for pairs in [headers, metadata, tags] {
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
    put_digests(&mut out, digests);
    let entry_bytes = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&entry_bytes.to_le_bytes());
    out
}

fn decode_entry(bytes: &[u8]) -> Result<IndexEntry, FormatError> {
    let mut fields = Fields::of(bytes);
    let (version, sequence, offset, bytes) = (VersionId(fields.u64()?), fields.u64()?, fields.u64()?, fields.u64()?);
    let (created_ms, modified_ms, bucket_created_ms) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let until_ms = fields.u64()?;
    let (flags, mode, acl) = (fields.u8()?, fields.u8()?, acl_of(fields.u8()?)?);
    fields.zeros(1)?;
    if flags & !(DELETE_MARKER | LEGAL_HOLD) != 0 {
        return Err(FormatError::Field("flags"));
    }
    let (is_delete_marker, legal_hold) = (flags & DELETE_MARKER != 0, flags & LEGAL_HOLD != 0);
    let retention = retention_of(mode, until_ms)?;
    let (bucket, owner, key) = (fields.text()?, fields.text()?, fields.text()?);
    let (etag, storage_class) = (fields.text()?, fields.text()?);
    let (headers, metadata, tags) =
        (decode_pairs(&mut fields)?, decode_pairs(&mut fields)?, decode_pairs(&mut fields)?);
    let mut checksums = Vec::new();
    for _ in 0..fields.u32()? {
        let kind = kind_of(fields.u8()?)?;
        checksums.push(Checksum { kind, base64: fields.text()? });
    }
    let parts = decode_parts(&mut fields, bytes)?;
    let digests = decode_digests(&mut fields, &parts)?;
    if !fields.is_empty() {
        return Err(FormatError::Length);
    }
    let object =
        Object { version, bytes, etag, modified_ms, created_ms, headers, metadata, checksums, acl, tags, parts };
    let attributes = MemberAttributes {
        bucket_created_ms,
        owner,
        sequence,
        is_delete_marker,
        legal_hold,
        retention,
        storage_class,
        parts: digests,
    };
    Ok(IndexEntry { bucket, key, offset, object, attributes, checksum: 0 })
}

/// The kind of the checksums of `digests`; `None` if `digests` is empty, or not all are checksums of one kind.
fn digests_kind(digests: &[PartDigests]) -> Option<ChecksumKind> {
    let kind = digests.first()?.checksum.kind;
    let sound = digests.iter().all(|part| part.checksum.kind == kind && raw(&part.checksum).is_some());
    sound.then_some(kind)
}

/// Writes the digests of parts: their number and, unless it is 0, the kind of their checksums, then each MD5 and
/// checksum.
fn put_digests(out: &mut Vec<u8>, digests: &[PartDigests]) {
    let Some(kind) = digests_kind(digests) else { return put_count(out, 0) };
    put_count(out, digests.len());
    out.push(kind_code(kind));
    for PartDigests { md5, checksum } in digests {
        out.extend_from_slice(md5);
        out.extend_from_slice(&raw(checksum).expect("the checksums of digests that are written are sound"));
    }
}

fn decode_digests(fields: &mut Fields<'_>, parts: &PartLengths) -> Result<Vec<PartDigests>, FormatError> {
    let count = fields.u32()?;
    if count == 0 {
        return Ok(Vec::new());
    }
    if count != parts.count() {
        return Err(FormatError::Field("number of digests of parts"));
    }
    let kind = kind_of(fields.u8()?)?;
    let mut digests = Vec::new();
    for _ in 0..count {
        let md5 = *fields.take(MD5_BYTES)?.first_chunk().ok_or(FormatError::Length)?;
        digests.push(PartDigests { md5, checksum: of_raw(kind, fields.take(kind.digest_bytes())?) });
    }
    Ok(digests)
}

fn retention_code(retention: Option<Retention>) -> (u8, u64) {
    match retention {
        None => (0, 0),
        Some(Retention { mode: RetentionMode::Governance, until_ms }) => (1, until_ms),
        Some(Retention { mode: RetentionMode::Compliance, until_ms }) => (2, until_ms),
    }
}

fn retention_of(code: u8, until_ms: u64) -> Result<Option<Retention>, FormatError> {
    let mode = match (code, until_ms) {
        (0, 0) => return Ok(None),
        (1, _) => RetentionMode::Governance,
        (2, _) => RetentionMode::Compliance,
        _ => return Err(FormatError::Field("retention")),
    };
    Ok(Some(Retention { mode, until_ms }))
}

fn acl_code(acl: Acl) -> u8 {
    match acl {
        Acl::Private => 0,
        Acl::PublicRead => 1,
    }
}

fn acl_of(code: u8) -> Result<Acl, FormatError> {
    match code {
        0 => Ok(Acl::Private),
        1 => Ok(Acl::PublicRead),
        _ => Err(FormatError::Field("ACL")),
    }
}

/// The lengths of the parts of an object of `bytes` bytes.
fn decode_parts(fields: &mut Fields<'_>, bytes: u64) -> Result<PartLengths, FormatError> {
    let mut parts = PartLengths::default();
    let mut sum = 0_u64;
    for runs in 1..=fields.u32()? {
        let (count, bytes) = (fields.u32()?, fields.u64()?);
        parts.push_run(count, bytes);
        sum = bytes.checked_mul(count.into()).and_then(|run| sum.checked_add(run)).ok_or(PARTS)?;
        // Every list has only one encoding.
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

/// The kinds of checksums, in the order of their codes, which begin with 1.
const KINDS: [ChecksumKind; 5] =
    [ChecksumKind::Crc32, ChecksumKind::Crc32c, ChecksumKind::Crc64Nvme, ChecksumKind::Sha1, ChecksumKind::Sha256];

fn kind_code(kind: ChecksumKind) -> u8 {
    (1..).zip(KINDS).find(|(_, known)| *known == kind).expect("every kind has its code").0
}

fn kind_of(code: u8) -> Result<ChecksumKind, FormatError> {
    let known = (1..).zip(KINDS).find(|(known, _)| *known == code);
    known.map(|(_, kind)| kind).ok_or(FormatError::Field("kind of checksum"))
}

#[cfg(test)]
#[path = "pack_format_tests.rs"]
mod tests;
