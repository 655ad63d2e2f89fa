//! The key table: how every record is found.
//!
//! ```text
//! A name                      counters      number of the first id not yet given out
//! M name                      meta          bytes
//! U name                      users         User
//! B bucket                    buckets       Bucket
//! O bucket/ key               objects       Object                  the living version of a key
//! V version                   versions      Version                 whose it is, where it lies
//! S bucket/ key               staged        StagedMark              every staged version, in key order
//! T staged-ms version         staged by age bytes                   the same, oldest first
//! I blob                      intents       Blob                    being written
//! L blob                      blobs         Blob                    written and read back
//! D drive blob                by drive      (nothing)               each stack of a blob
//! N blob offset version       members       bytes                   living versions of a blob, and only those
//! X group blob offset version tombstones    bytes                   dead bytes of a blob (version 0: all of it)
//! R drive                     drives        DriveRecord
//! ```
//! The tag is one byte. Numbers are 8 bytes, big-endian, so that their order is the order of keys. `bucket/` is the
//! name with every zero byte written as `00 FF` and closed by `00 01`: no name is a prefix of another, and order is
//! kept. What comes last (a key, a name) is its plain UTF-8, whose byte order is S3's order. The version stands in `N`
//! and `X` since empty members share their offset with the next one.

use crate::error::CatalogError;
use crate::record::VersionId;
use model::{BlobId, DriveId, GroupId};

/// What a key is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    Counter = b'A',
    Meta = b'M',
    User = b'U',
    Bucket = b'B',
    Object = b'O',
    Version = b'V',
    Staged = b'S',
    Aged = b'T',
    Intent = b'I',
    Blob = b'L',
    OnDrive = b'D',
    Member = b'N',
    Tomb = b'X',
    Drive = b'R',
}

/// Whole keys and prefixes of one tag and some numbers.
fn numbered(tag: Tag, numbers: &[u64]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 * numbers.len());
    key.push(tag as u8);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

/// A key of one tag and a name.
fn named(tag: Tag, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(tag as u8);
    key.extend_from_slice(name.as_bytes());
    key
}

/// A key of one tag, a bucket and the key of an object; or, with an empty key, the prefix of a bucket.
fn in_bucket(tag: Tag, bucket: &str, object: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(3 + bucket.len() + object.len());
    key.push(tag as u8);
    for &byte in bucket.as_bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
    key.extend_from_slice(&[0, 1]);
    key.extend_from_slice(object.as_bytes());
    key
}

/// The prefix of everything with this tag.
pub(crate) fn all(tag: Tag) -> Vec<u8> {
    vec![tag as u8]
}

pub(crate) fn counter(name: &str) -> Vec<u8> {
    named(Tag::Counter, name)
}

pub(crate) fn meta(name: &str) -> Vec<u8> {
    named(Tag::Meta, name)
}

pub(crate) fn user(name: &str) -> Vec<u8> {
    named(Tag::User, name)
}

pub(crate) fn bucket(name: &str) -> Vec<u8> {
    named(Tag::Bucket, name)
}

pub(crate) fn object(bucket: &str, key: &str) -> Vec<u8> {
    in_bucket(Tag::Object, bucket, key)
}

pub(crate) fn version(version: VersionId) -> Vec<u8> {
    numbered(Tag::Version, &[version.0])
}

pub(crate) fn staged(bucket: &str, key: &str) -> Vec<u8> {
    in_bucket(Tag::Staged, bucket, key)
}

pub(crate) fn aged(staged_ms: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Aged, &[staged_ms, version.0])
}

pub(crate) fn intent(blob: BlobId) -> Vec<u8> {
    numbered(Tag::Intent, &[blob.0])
}

pub(crate) fn blob(blob: BlobId) -> Vec<u8> {
    numbered(Tag::Blob, &[blob.0])
}

pub(crate) fn on_drive(drive: DriveId, blob: BlobId) -> Vec<u8> {
    numbered(Tag::OnDrive, &[u64::from(drive.0), blob.0])
}

pub(crate) fn all_on_drive(drive: DriveId) -> Vec<u8> {
    numbered(Tag::OnDrive, &[u64::from(drive.0)])
}

pub(crate) fn member(blob: BlobId, offset: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Member, &[blob.0, offset, version.0])
}

pub(crate) fn members(blob: BlobId) -> Vec<u8> {
    numbered(Tag::Member, &[blob.0])
}

pub(crate) fn tomb(group: GroupId, blob: BlobId, offset: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Tomb, &[u64::from(group.0), blob.0, offset, version.0])
}

pub(crate) fn tombs(group: GroupId) -> Vec<u8> {
    numbered(Tag::Tomb, &[u64::from(group.0)])
}

pub(crate) fn tombs_of(group: GroupId, blob: BlobId) -> Vec<u8> {
    numbered(Tag::Tomb, &[u64::from(group.0), blob.0])
}

pub(crate) fn drive(drive: DriveId) -> Vec<u8> {
    numbered(Tag::Drive, &[u64::from(drive.0)])
}

/// The `N` numbers behind the tag of `key`.
pub(crate) fn numbers<const N: usize>(key: &[u8]) -> Result<[u64; N], CatalogError> {
    let (words, rest) = key.get(1..).unwrap_or_default().as_chunks::<8>();
    if words.len() != N || !rest.is_empty() {
        return Err(CatalogError::damaged(key, &format!("its key should hold {N} numbers")));
    }
    let mut numbers = [0; N];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = u64::from_be_bytes(*word);
    }
    Ok(numbers)
}

/// The bucket and the object's key behind the tag of `key`.
pub(crate) fn bucket_and_key(key: &[u8]) -> Result<(String, String), CatalogError> {
    let mut bucket = Vec::new();
    let mut rest = key.get(1..).unwrap_or_default();
    loop {
        match rest {
            [0, 1, object @ ..] => return Ok((utf8(key, bucket)?, utf8(key, object.to_vec())?)),
            [0, 0xFF, behind @ ..] => {
                bucket.push(0);
                rest = behind;
            }
            [byte, behind @ ..] if *byte != 0 => {
                bucket.push(*byte);
                rest = behind;
            }
            _ => return Err(CatalogError::damaged(key, "its key holds no bucket")),
        }
    }
}

fn utf8(key: &[u8], bytes: Vec<u8>) -> Result<String, CatalogError> {
    String::from_utf8(bytes).map_err(|_| CatalogError::damaged(key, "its key is not UTF-8"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buckets_and_keys_come_back_in_their_order(
            a in ("[\\x00-\\x02a-c]{0,4}", "\\PC{0,4}"),
            b in ("[\\x00-\\x02a-c]{0,4}", "\\PC{0,4}"),
        ) {
            let (key_a, key_b) = (object(&a.0, &a.1), object(&b.0, &b.1));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
            prop_assert_eq!(bucket_and_key(&key_a).unwrap(), a);
        }
    }

    #[test]
    fn numbers_keep_their_order_and_come_back() {
        let keys: Vec<_> = [0, 1, 255, 256, u64::MAX].map(|ms| aged(ms, VersionId(3))).into();
        assert!(keys.is_sorted());
        assert_eq!(numbers::<2>(&keys[3]).unwrap(), [256, 3]);
        assert!(numbers::<3>(&keys[3]).is_err());
        assert!(bucket_and_key(b"Oab").is_err());
    }
}
