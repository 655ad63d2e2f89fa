//! The records of buckets, objects, versions, blobs and drives.
//!
//! On disk a record is one byte of format version and then its fields (postcard). A reader refuses unknown versions and
//! surplus bytes. Objects have a shorter form (`placed_format.rs`).

use crate::error::CatalogError;
use crate::parts::PartLengths;
use crate::seal::Sealed;
use crate::store::Entry;
use lineage::Sequence;
use model::{BlobId, ClassId, Code, DriveId, GroupId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The format version that records are written with, except for kinds that have their own.
pub(crate) const RECORD_FORMAT: u8 = 2;

/// A record that can be written.
pub(crate) trait Encode {
    /// Its bytes, including the format version.
    fn encoded(&self) -> Vec<u8>;
}

/// A record that can be read.
pub(crate) trait Decode: Sized {
    /// The record of `fields`, which have format version `format`, and the bytes after it; `None` if this Larder does
    /// not know that version.
    fn decoded(format: u8, fields: &[u8]) -> Option<postcard::Result<(Self, &[u8])>>;
}

impl<T: Serialize> Encode for T {
    fn encoded(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![RECORD_FORMAT])
            .expect("a record of numbers, strings and lists can always be written")
    }
}

impl<T: DeserializeOwned> Decode for T {
    fn decoded(format: u8, fields: &[u8]) -> Option<postcard::Result<(Self, &[u8])>> {
        (format == RECORD_FORMAT).then(|| postcard::take_from_bytes(fields))
    }
}

/// The bytes of `record`.
pub(crate) fn encode<T: Encode>(record: &T) -> Vec<u8> {
    record.encoded()
}

/// The record in `value`, found at `key`.
pub(crate) fn decode<T: Decode>(key: &[u8], value: &Sealed) -> Result<T, CatalogError> {
    decode_at(key, value).map(|(record, _)| record)
}

/// The record in `value`, found at `key`, and the batch that wrote it.
pub(crate) fn decode_at<T: Decode>(key: &[u8], value: &Sealed) -> Result<(T, Sequence), CatalogError> {
    let (body, sequence) = value.open(key)?;
    Ok((decode_body(key, body)?, sequence))
}

/// The record in `entry`.
pub(crate) fn value<T: Decode>(entry: &Entry) -> Result<T, CatalogError> {
    decode(&entry.key, &entry.value)
}

fn decode_body<T: Decode>(key: &[u8], body: &[u8]) -> Result<T, CatalogError> {
    let (&format, fields) = body.split_first().ok_or_else(|| CatalogError::damaged(key, "the record is empty"))?;
    match T::decoded(format, fields) {
        Some(Ok((record, []))) => Ok(record),
        Some(Ok((_, rest))) => Err(CatalogError::damaged(key, &format!("{} bytes too many", rest.len()))),
        Some(Err(error)) => Err(CatalogError::damaged(key, &error.to_string())),
        None => Err(CatalogError::damaged(key, &format!("this Larder does not know its format, {format}"))),
    }
}

/// The number of an object version; numbers grow, and are never used again in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionId(pub u64);

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Creation time, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// The name of the user that owns it and everything in it.
    pub owner: String,
    /// The ACL that governs listing it.
    pub acl: Acl,
    /// Its object ownership, if the owner ever set it; decides whether ACLs count.
    pub ownership: Option<Ownership>,
    /// Its tags, by key, as they were set.
    pub tags: Vec<(String, String)>,
}

impl Bucket {
    /// A new bucket: private, without tags.
    pub fn new(name: &str, created_ms: u64, owner: &str) -> Self {
        let (name, owner) = (name.to_owned(), owner.to_owned());
        Self { name, created_ms, owner, acl: Acl::Private, ownership: None, tags: Vec::new() }
    }
}

/// The users that may read something, besides its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acl {
    /// No other user.
    #[default]
    Private,
    /// All users, and requests that are not signed.
    PublicRead,
}

/// S3's "object ownership" of a bucket. All objects belong to the bucket's owner in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ownership {
    /// ACLs do not count, and cannot be set.
    BucketOwnerEnforced,
    /// ACLs count.
    BucketOwnerPreferred,
    /// ACLs count.
    ObjectWriter,
}

/// A user who signs requests.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its name, which owns buckets; never changes.
    pub name: String,
    /// The access key it signs with.
    pub access_key: String,
    /// The secret of that key.
    pub secret: String,
    /// Creation time, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// Time at which it got its keys, in milliseconds of the Unix epoch.
    pub rotated_ms: u64,
}

impl fmt::Debug for User {
    /// Without the secret, since printed text ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChecksumKind {
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

impl ChecksumKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// S3's name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// Length of the checksum in bytes, before Base64.
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// A checksum of an object's bytes, as S3 spells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// Its kind.
    pub kind: ChecksumKind,
    /// Base64 of its big-endian bytes.
    pub base64: String,
}

impl Checksum {
    /// True for a checksum of the checksums of an object's parts (S3's type `COMPOSITE`) instead of its bytes. It ends
    /// with a dash and the number of parts, and base64 has no dash.
    pub fn is_composite(&self) -> bool {
        self.base64.contains('-')
    }
}

/// The S3 record of an object: everything but the place of its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its version.
    pub version: VersionId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its ETag, without quotes.
    pub etag: String,
    /// Time of its last write or change of metadata, in milliseconds of the Unix epoch: S3's Last-Modified.
    pub modified_ms: u64,
    /// Creation time of its bytes, in milliseconds of the Unix epoch: unchanged by moves and copies.
    pub created_ms: u64,
    /// System headers that are returned unchanged (`content-type`, `cache-control`, ...), by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata (`x-amz-meta-` without the prefix).
    pub metadata: Vec<(String, String)>,
    /// Checksums that were verified when it was written.
    pub checksums: Vec<Checksum>,
    /// The ACL that governs reading it. May change without a new version.
    pub acl: Acl,
    /// Its tags, by key. May change without a new version.
    pub tags: Vec<(String, String)>,
    /// The lengths of the parts that it was uploaded in.
    pub parts: PartLengths,
}

/// A change to the S3 record of an object that makes no new version and touches none of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// Sets its ACL.
    Acl(Acl),
    /// Sets its tags.
    Tags(Vec<(String, String)>),
}

/// A change to a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketChange {
    /// Sets its ACL.
    Acl(Acl),
    /// Sets its object ownership.
    Ownership(Option<Ownership>),
    /// Sets its tags.
    Tags(Vec<(String, String)>),
}

/// An upload in parts that is neither completed nor aborted. Its number becomes the number of its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Its number.
    pub version: VersionId,
    /// Start time, in milliseconds of the Unix epoch.
    pub initiated_ms: u64,
    /// System headers of the future object, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata of the future object.
    pub metadata: Vec<(String, String)>,
    /// The checksum that each of its parts has.
    pub checksum: ChecksumKind,
    /// True if the client named that checksum at the start.
    pub checksum_named: bool,
    /// True if the object's checksum will be a checksum of its parts' checksums instead of its bytes.
    pub composite: bool,
    /// The ACL of the future object.
    pub acl: Acl,
    /// The tags of the future object.
    pub tags: Vec<(String, String)>,
}

impl Upload {
    /// An upload without a number, of a private object without headers, metadata and tags.
    pub fn plain(checksum: ChecksumKind) -> Self {
        Self {
            version: VersionId::default(),
            initiated_ms: 0,
            headers: Vec::new(),
            metadata: Vec::new(),
            checksum,
            checksum_named: false,
            composite: false,
            acl: Acl::Private,
            tags: Vec::new(),
        }
    }
}

/// A part of an upload, or of the object that was made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its number, from 1 to [`PARTS_MAX`](crate::PARTS_MAX). The parts of an object have consecutive numbers.
    pub number: u32,
    /// The slot of its file in the workshop, as long as the upload is open or its version is stored in parts.
    pub slot: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Hex MD5 of its bytes.
    pub etag: String,
    /// Its checksum.
    pub checksum: Checksum,
    /// Time of its write, in milliseconds of the Unix epoch.
    pub modified_ms: u64,
}

/// The place of a version's bytes.
///
/// On disk each kind is its position here: 0, 1, 2. Codes 3 (a log of small records) and 4 (a shelf) are reserved; a
/// record with one of them is from a newer Larder, and is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the workshop, in the file of this slot.
    Staged {
        /// The slot.
        slot: u64,
    },
    /// In the rack, within the payload of a blob.
    Stored {
        /// The blob.
        blob: BlobId,
        /// Offset of the version in its payload.
        offset: u64,
    },
    /// In the workshop, in the files of its parts, one after the other.
    Parts,
}

impl Place {
    /// The place of a staged version with `slot` in its mark.
    pub(crate) fn of_mark(slot: u64) -> Self {
        if slot == IN_PARTS { Self::Parts } else { Self::Staged { slot } }
    }
}

/// The slot in the mark of a version that is stored in parts. No file ever has this slot.
pub(crate) const IN_PARTS: u64 = 0;

/// The living version of a key: its S3 record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedObject {
    /// Its S3 record.
    pub object: Object,
    /// Its place.
    pub place: Place,
    /// Time at which it was first staged, in milliseconds of the Unix epoch.
    pub staged_ms: u64,
}

impl PlacedObject {
    /// Its version, for the object at `bucket` and `key`.
    pub fn version(&self, bucket: &str, key: &str) -> Version {
        let Self { object: Object { version, bytes, .. }, place, staged_ms } = *self;
        Version { version, bucket: bucket.to_owned(), key: key.to_owned(), bytes, staged_ms, place }
    }

    /// Its mark among the staged versions.
    pub(crate) fn mark(&self) -> StagedMark {
        let Self { object: Object { version, bytes, .. }, place, staged_ms } = *self;
        let slot = if let Place::Staged { slot } = place { slot } else { IN_PARTS };
        StagedMark { version, bytes, staged_ms, slot }
    }

    /// True if it is `version`, and in the workshop.
    pub(crate) fn is_staged_as(&self, version: VersionId) -> bool {
        self.object.version == version && !matches!(self.place, Place::Stored { .. })
    }
}

/// The owner of a number in the workshop: a staged version, or an open upload. A version in the rack has no record of
/// this kind, so its key is stored once; the index of its pack names it (SOHO's maps, in the direction place -> key).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// The bucket of the object.
    pub bucket: String,
    /// The key of the object.
    pub key: String,
    /// True if it is stored in parts, so that their slots count.
    pub in_parts: bool,
}

/// A version: the object it belongs to, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub version: VersionId,
    /// The bucket of the object.
    pub bucket: String,
    /// The key of the object.
    pub key: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Time of staging, in milliseconds of the Unix epoch.
    pub staged_ms: u64,
    /// Its place.
    pub place: Place,
}

/// A blob in the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// Its number.
    pub blob: BlobId,
    /// Its group.
    pub group: GroupId,
    /// The class of that group at the time of writing.
    pub class: ClassId,
    /// The drive of each of its k + r stacks, in stack order.
    pub drives: Vec<DriveId>,
    /// k of its code.
    pub code_data: u8,
    /// r of its code.
    pub code_parity: u8,
    /// The fragment size of its code, in bytes.
    pub fragment_bytes: u32,
    /// Its payload in bytes, including members and index.
    pub payload_bytes: u64,
    /// The length of each stack, in bytes.
    pub stack_bytes: u64,
    /// Number of versions that were put into it.
    pub members: u32,
    /// Time of writing, in milliseconds of the Unix epoch.
    pub written_ms: u64,
}

impl Blob {
    /// Its code.
    pub fn code(&self) -> Code {
        Code { data: self.code_data, parity: self.code_parity, fragment_bytes: self.fragment_bytes }
    }
}

/// The record of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// The drive.
    pub drive: DriveId,
    /// The modelled day that `starts` counts for.
    pub day: u32,
    /// Starts on that day.
    pub starts: u32,
    /// Starts in all.
    pub starts_total: u64,
}

/// A member of a blob: a version stored in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The version.
    pub version: VersionId,
    /// Offset of its first byte in the payload.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The origin of modelled time: at wall time `wall_ms` modelled time was `modelled_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// Milliseconds of the Unix epoch.
    pub wall_ms: u64,
    /// Nanoseconds since the rack was created.
    pub modelled_ns: u64,
}

/// A version in the index of staged versions, ordered by bucket and key, which are in the index key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagedMark {
    /// The version.
    pub version: VersionId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Time of staging, in milliseconds of the Unix epoch.
    pub staged_ms: u64,
    /// The slot of its file, or [`IN_PARTS`].
    pub slot: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_foreign_one_is_refused() {
        let bucket = Bucket { acl: Acl::PublicRead, ..Bucket::new("photos", 7, "me") };
        let bytes = encode(&bucket);
        assert_eq!(decode_body::<Bucket>(b"Bphotos", &bytes).unwrap(), bucket);
        let mut newer = bytes.clone();
        newer[0] = RECORD_FORMAT + 1;
        let mut longer = bytes.clone();
        longer.push(0);
        for bad in [&newer[..], &longer, &bytes[..4], &[]] {
            assert!(matches!(decode_body::<Bucket>(b"Bphotos", bad), Err(CatalogError::Damaged(_))));
        }
    }
}
