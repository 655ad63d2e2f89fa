//! The records of buckets, objects, versions, blobs and drives.
//!
//! On disk a record is one byte of format version and then its fields (postcard). A reader refuses versions it does not
//! know, and bytes left over. Objects have a shorter form of their own (`placed_format.rs`).

use crate::error::CatalogError;
use crate::parts::PartLengths;
use crate::seal::Sealed;
use crate::store::Entry;
use lineage::Sequence;
use model::{BlobId, ClassId, Code, DriveId, GroupId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The format version that records are written with, but for those that have one of their own.
pub(crate) const RECORD_FORMAT: u8 = 2;

/// A record that can be written.
pub(crate) trait Encode {
    /// Its bytes, format version and all.
    fn encoded(&self) -> Vec<u8>;
}

/// A record that can be read.
pub(crate) trait Decode: Sized {
    /// The record of `fields`, which are of format version `format`, and the bytes behind it; `None` if this Larder
    /// does not know that version.
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

/// The record that `value`, found at `key`, holds.
pub(crate) fn decode<T: Decode>(key: &[u8], value: &Sealed) -> Result<T, CatalogError> {
    decode_at(key, value).map(|(record, _)| record)
}

/// The record that `value`, found at `key`, holds, and the batch that wrote it.
pub(crate) fn decode_at<T: Decode>(key: &[u8], value: &Sealed) -> Result<(T, Sequence), CatalogError> {
    let (body, sequence) = value.open(key)?;
    Ok((decode_body(key, body)?, sequence))
}

/// The record that `entry` holds.
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

/// The number of an object version; unique in a store for ever, and growing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionId(pub u64);

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// The name of the user who owns it and all that is in it.
    pub owner: String,
    /// Who may list it.
    pub acl: Acl,
    /// Its object ownership, if the owner ever set it: whether ACLs count.
    pub ownership: Option<Ownership>,
    /// Its tags, by key, as they were set.
    pub tags: Vec<(String, String)>,
}

impl Bucket {
    /// A bucket as it is made: private, without tags.
    pub fn new(name: &str, created_ms: u64, owner: &str) -> Self {
        let (name, owner) = (name.to_owned(), owner.to_owned());
        Self { name, created_ms, owner, acl: Acl::Private, ownership: None, tags: Vec::new() }
    }
}

/// Who may read something, besides its owner.
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
    /// When it was made, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// When it got its keys, in milliseconds of the Unix epoch.
    pub rotated_ms: u64,
}

impl fmt::Debug for User {
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Which checksum.
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

    /// S3's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The bytes of such a checksum before it is written as Base64.
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
    /// Which.
    pub kind: ChecksumKind,
    /// Base64 of its big-endian bytes.
    pub base64: String,
}

impl Checksum {
    /// True of a checksum of the checksums of an object's parts (S3's type `COMPOSITE`) rather than of its bytes.
    /// Such a one ends with a dash and the number of parts, and base64 has no dash.
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
    /// When it was written or described anew, in milliseconds of the Unix epoch: S3's Last-Modified.
    pub modified_ms: u64,
    /// When its bytes came into being, in milliseconds of the Unix epoch: unchanged by moves and copies.
    pub created_ms: u64,
    /// System headers that are given back as they came (`content-type`, `cache-control`, ...), by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata (`x-amz-meta-` without the prefix).
    pub metadata: Vec<(String, String)>,
    /// Checksums that were verified when it was written.
    pub checksums: Vec<Checksum>,
    /// Who may read it. May change without a new version.
    pub acl: Acl,
    /// Its tags, by key. May change without a new version.
    pub tags: Vec<(String, String)>,
    /// The lengths of the parts that it was uploaded in.
    pub parts: PartLengths,
}

/// A change to the S3 record of an object that makes no new version and touches none of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// This is its ACL.
    Acl(Acl),
    /// These are its tags.
    Tags(Vec<(String, String)>),
}

/// A change to a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketChange {
    /// This is its ACL.
    Acl(Acl),
    /// This is its object ownership.
    Ownership(Option<Ownership>),
    /// These are its tags.
    Tags(Vec<(String, String)>),
}

/// An upload in parts that is neither completed nor aborted. Its number is that of the version it will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Its number.
    pub version: VersionId,
    /// When it was begun, in milliseconds of the Unix epoch.
    pub initiated_ms: u64,
    /// System headers of the object to be, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata of the object to be.
    pub metadata: Vec<(String, String)>,
    /// The checksum that each of its parts has.
    pub checksum: ChecksumKind,
    /// True if the client named that checksum when it began.
    pub checksum_named: bool,
    /// True if the object's checksum will be one of its parts' checksums, rather than of its bytes.
    pub composite: bool,
    /// Who may read the object to be.
    pub acl: Acl,
    /// The tags of the object to be.
    pub tags: Vec<(String, String)>,
}

impl Upload {
    /// An upload that has no number yet, of a private object without headers, metadata and tags.
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

/// A part of an upload, or of the object that became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its number, from 1 to [`PARTS_MAX`](crate::PARTS_MAX). Those of an object follow one another.
    pub number: u32,
    /// The slot of its file in the workshop, for as long as the upload is open or its version lies in its parts.
    pub slot: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Hex MD5 of its bytes.
    pub etag: String,
    /// Its checksum.
    pub checksum: Checksum,
    /// When it was written, in milliseconds of the Unix epoch.
    pub modified_ms: u64,
}

/// Where the bytes of a version lie.
///
/// On disk each kind is its position here: 0, 1, 2. Codes 3 (a log of small records) and 4 (a shelf) are spoken for; a
/// record with one of those is from a newer Larder, and is refused as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the workshop, in the file of this slot.
    Staged {
        /// The slot.
        slot: u64,
    },
    /// In the rack, within the payload of a blob.
    Stored {
        /// Which blob.
        blob: BlobId,
        /// Where in its payload the version begins.
        offset: u64,
    },
    /// In the workshop, in the files of its parts, one behind the other.
    Parts,
}

impl Place {
    /// The place of a staged version whose mark says `slot`.
    pub(crate) fn of_mark(slot: u64) -> Self {
        if slot == IN_PARTS { Self::Parts } else { Self::Staged { slot } }
    }
}

/// The slot in the mark of a version that lies in its parts. Nothing is ever staged there.
pub(crate) const IN_PARTS: u64 = 0;

/// The living version of a key: its S3 record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedObject {
    /// Its S3 record.
    pub object: Object,
    /// Where it lies.
    pub place: Place,
    /// When it was staged first, in milliseconds of the Unix epoch.
    pub staged_ms: u64,
}

impl PlacedObject {
    /// Its version, as that of the object at `bucket` and `key`.
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

/// The owner of a number in the workshop: a staged version, or an open upload. A version in the rack has no such
/// record, so that its key is stored once; the index of its pack names it (SOHO's maps, in the direction place -> key).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// The bucket of the object.
    pub bucket: String,
    /// The key of the object.
    pub key: String,
    /// True if it lies in its parts, so that their slots count.
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
    /// When it was staged, in milliseconds of the Unix epoch.
    pub staged_ms: u64,
    /// Where it lies.
    pub place: Place,
}

/// A blob in the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// Its number.
    pub blob: BlobId,
    /// Its group.
    pub group: GroupId,
    /// The class of that group, when it was written.
    pub class: ClassId,
    /// The drive of each of its k + r stacks, in stack order.
    pub drives: Vec<DriveId>,
    /// k of its code.
    pub code_data: u8,
    /// r of its code.
    pub code_parity: u8,
    /// The fragment size of its code, in bytes.
    pub fragment_bytes: u32,
    /// Its payload, in bytes: members, index and all.
    pub payload_bytes: u64,
    /// The length of each stack, in bytes.
    pub stack_bytes: u64,
    /// How many versions were put into it.
    pub members: u32,
    /// When it was written, in milliseconds of the Unix epoch.
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
    /// Which drive.
    pub drive: DriveId,
    /// The modelled day that `starts` counts for.
    pub day: u32,
    /// Starts on that day.
    pub starts: u32,
    /// Starts ever.
    pub starts_total: u64,
}

/// A member of a blob: a version that lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which version.
    pub version: VersionId,
    /// Where in the payload it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The origin of modelled time: at `wall_ms` it was `modelled_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// Milliseconds of the Unix epoch.
    pub wall_ms: u64,
    /// Nanoseconds since the rack came into being.
    pub modelled_ns: u64,
}

/// A version in the index of what is staged, in the order of buckets and keys; those two are in the index key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagedMark {
    /// Which version.
    pub version: VersionId,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was staged, in milliseconds of the Unix epoch.
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
