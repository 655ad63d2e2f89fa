//! The key table: the keys of all records.
//!
//! ```text
//! A copy name                 counters      number of the first id not yet given out; two copies, "0" and "1"
//! M name                      meta          bytes
//! U name                      users         User
//! W access key                access keys   name of the user          those that sign requests, root's as well
//! B bucket                    buckets       Bucket
//! O bucket/ key               objects       PlacedObject            the living version of a key, and its place
//! V version                   owners        Owner                   bucket and key of a version or upload in the
//!                                                                   workshop
//! S bucket/ key               staged        StagedMark              every staged version, in key order
//! T staged-ms version         staged by age bytes                   the same, oldest first
//! H staged-ms version         reads     Reads                   of staged versions that were read, oldest first
//! I blob                      intents       Blob                    being written
//! L blob                      blobs         Blob                    written and read back
//! D drive blob                by drive      (nothing)               each stack of a blob; 1 if it was on a drive that
//!                                                                   failed and was replaced
//! G blob drive index          rebuild targets (nothing)            a stack that a rebuild may have left on a drive
//!                                                                   where the blob does not count it; the index plus
//!                                                                   256 is a spare beside the stack itself
//! E blob                      findings      ScrubFinding            what a scrub has found of a blob
//! Y group                     scrubs        ScrubPass               progress of the scrub of a group
//! N blob offset version       members       bytes                   living versions of a blob, and only those
//! X group blob offset version tombstones    bytes                   dead bytes of a blob (version 0: all of it)
//! R drive                     drives        DriveRecord
//! Q bucket/ key/ version      uploads       Upload                  begun, neither completed nor aborted
//! P version part              parts         Part                    parts of uploads, and of the objects made of them
//! F drive                     failed        when a drive failed permanently, in milliseconds of the Unix epoch
//! J job                       jobs          Job
//! K job version               job inputs    bucket and key          read by a job, and to be removed when it is done
//! C job                       checkpoints   JobCheckpoint
//! C job serial version        its inputs    key                     read to its end by a job at its checkpoint
//! Z version                   unreadable    Unreadable              versions that cannot be read at their place
//! ```
//! The tag is one byte. Numbers are 8 bytes, big-endian, so their order is the order of keys. `bucket/` is the name
//! with every zero byte written as `00 FF`, closed by `00 01`: no name is a prefix of another, and the order is
//! preserved; `key/` is the same for a key. The last component (a key, a name) is plain UTF-8, whose byte order is S3's
//! order. `N` and `X` include the version because empty members share their offset with the next one.

use crate::error::CatalogError;
use crate::record::VersionId;
use model::{BlobId, DriveId, GroupId};

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    Counter = b'A',
    Meta = b'M',
    User = b'U',
    AccessKey = b'W',
    Bucket = b'B',
    Object = b'O',
    Version = b'V',
    Staged = b'S',
    Aged = b'T',
    Intent = b'I',
    Blob = b'L',
    OnDrive = b'D',
    RebuildTarget = b'G',
    Member = b'N',
    Tomb = b'X',
    Drive = b'R',
    Upload = b'Q',
    Part = b'P',
    Failed = b'F',
    Job = b'J',
    JobInput = b'K',
    Checkpoint = b'C',
    Unreadable = b'Z',
    Reads = b'H',
    ScrubFinding = b'E',
    ScrubPass = b'Y',
}

/// Every tag, in order.
pub(crate) const TAGS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A key or prefix of one tag and some numbers.
fn numbered(tag: Tag, numbers: &[u64]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 * numbers.len());
    key.push(tag as u8);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

/// The numbers that name a blob.
fn of_blob(blob: BlobId) -> [u64; 2] {
    [blob.number, blob.nonce]
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
    push_open(&mut key, bucket);
    key.extend_from_slice(&CLOSE);
    key.extend_from_slice(object.as_bytes());
    key
}

/// Closes a name that is followed by another component.
const CLOSE: [u8; 2] = [0, 1];

/// Adds a name that is closed later.
fn push_open(key: &mut Vec<u8>, name: &str) {
    for &byte in name.as_bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
}

/// Splits a closed name off the front of `rest`, which is the end of `key`.
fn take_name<'k>(key: &[u8], mut rest: &'k [u8]) -> Result<(String, &'k [u8]), CatalogError> {
    let mut name = Vec::new();
    loop {
        match rest {
            [0, 1, behind @ ..] => return Ok((utf8(key, name)?, behind)),
            [0, 0xFF, behind @ ..] => {
                name.push(0);
                rest = behind;
            }
            [byte, behind @ ..] if *byte != 0 => {
                name.push(*byte);
                rest = behind;
            }
            _ => return Err(CatalogError::damaged(key, "its key has a name without an end")),
        }
    }
}

/// The prefix of all keys with this tag.
pub(crate) fn all(tag: Tag) -> Vec<u8> {
    vec![tag as u8]
}

pub(crate) fn counter(name: &str, copy: u8) -> Vec<u8> {
    let mut key = all(Tag::Counter);
    key.push(b'0' + copy);
    key.extend_from_slice(name.as_bytes());
    key
}

pub(crate) fn meta(name: &str) -> Vec<u8> {
    named(Tag::Meta, name)
}

pub(crate) fn user(name: &str) -> Vec<u8> {
    named(Tag::User, name)
}

pub(crate) fn access_key(access_key: &str) -> Vec<u8> {
    named(Tag::AccessKey, access_key)
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

pub(crate) fn reads(staged_ms: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Reads, &[staged_ms, version.0])
}

pub(crate) fn intent(blob: BlobId) -> Vec<u8> {
    numbered(Tag::Intent, &of_blob(blob))
}

pub(crate) fn blob(blob: BlobId) -> Vec<u8> {
    numbered(Tag::Blob, &of_blob(blob))
}

pub(crate) fn on_drive(drive: DriveId, blob: BlobId) -> Vec<u8> {
    numbered(Tag::OnDrive, &[u64::from(drive.0), blob.number, blob.nonce])
}

pub(crate) fn all_on_drive(drive: DriveId) -> Vec<u8> {
    numbered(Tag::OnDrive, &[u64::from(drive.0)])
}

pub(crate) fn rebuild_target(blob: BlobId, drive: DriveId, index: u8) -> Vec<u8> {
    numbered(Tag::RebuildTarget, &[blob.number, blob.nonce, u64::from(drive.0), u64::from(index)])
}

/// Added to a stack's index to mark its spare.
pub(crate) const SPARE: u64 = 1 << 8;

/// The spare beside stack `index` of a blob on `drive`.
pub(crate) fn spare_target(blob: BlobId, drive: DriveId, index: u8) -> Vec<u8> {
    numbered(Tag::RebuildTarget, &[blob.number, blob.nonce, u64::from(drive.0), SPARE + u64::from(index)])
}

pub(crate) fn scrub_finding(blob: BlobId) -> Vec<u8> {
    numbered(Tag::ScrubFinding, &of_blob(blob))
}

pub(crate) fn scrub_pass(group: GroupId) -> Vec<u8> {
    numbered(Tag::ScrubPass, &[u64::from(group.0)])
}

pub(crate) fn rebuild_targets(blob: BlobId) -> Vec<u8> {
    numbered(Tag::RebuildTarget, &of_blob(blob))
}

pub(crate) fn member(blob: BlobId, offset: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Member, &[blob.number, blob.nonce, offset, version.0])
}

pub(crate) fn members(blob: BlobId) -> Vec<u8> {
    numbered(Tag::Member, &of_blob(blob))
}

pub(crate) fn tomb(group: GroupId, blob: BlobId, offset: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Tomb, &[u64::from(group.0), blob.number, blob.nonce, offset, version.0])
}

pub(crate) fn tombs(group: GroupId) -> Vec<u8> {
    numbered(Tag::Tomb, &[u64::from(group.0)])
}

pub(crate) fn tombs_of(group: GroupId, blob: BlobId) -> Vec<u8> {
    numbered(Tag::Tomb, &[u64::from(group.0), blob.number, blob.nonce])
}

pub(crate) fn drive(drive: DriveId) -> Vec<u8> {
    numbered(Tag::Drive, &[u64::from(drive.0)])
}

/// The prefix of all uploads in `bucket` to keys that begin with `key_prefix`.
pub(crate) fn uploads(bucket: &str, key_prefix: &str) -> Vec<u8> {
    let mut key = in_bucket(Tag::Upload, bucket, "");
    push_open(&mut key, key_prefix);
    key
}

/// The prefix of all uploads to `object`.
pub(crate) fn uploads_to(bucket: &str, object: &str) -> Vec<u8> {
    let mut key = uploads(bucket, object);
    key.extend_from_slice(&CLOSE);
    key
}

pub(crate) fn upload(bucket: &str, object: &str, version: VersionId) -> Vec<u8> {
    let mut key = uploads_to(bucket, object);
    key.extend_from_slice(&version.0.to_be_bytes());
    key
}

pub(crate) fn part(version: VersionId, number: u32) -> Vec<u8> {
    numbered(Tag::Part, &[version.0, u64::from(number)])
}

pub(crate) fn parts(version: VersionId) -> Vec<u8> {
    numbered(Tag::Part, &[version.0])
}

pub(crate) fn failed(drive: DriveId) -> Vec<u8> {
    numbered(Tag::Failed, &[u64::from(drive.0)])
}

pub(crate) fn job(job: u64) -> Vec<u8> {
    numbered(Tag::Job, &[job])
}

pub(crate) fn job_input(job: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::JobInput, &[job, version.0])
}

pub(crate) fn checkpoint(job: u64) -> Vec<u8> {
    numbered(Tag::Checkpoint, &[job])
}

/// An object that was read between the previous checkpoint and the one with this serial number.
pub(crate) fn checkpoint_input(job: u64, serial: u64, version: VersionId) -> Vec<u8> {
    numbered(Tag::Checkpoint, &[job, serial, version.0])
}

pub(crate) fn checkpoint_input_prefix(job: u64, serial: u64) -> Vec<u8> {
    numbered(Tag::Checkpoint, &[job, serial])
}

pub(crate) fn unreadable(version: VersionId) -> Vec<u8> {
    numbered(Tag::Unreadable, &[version.0])
}

pub(crate) fn job_inputs(job: u64) -> Vec<u8> {
    numbered(Tag::JobInput, &[job])
}

/// The `N` numbers after the tag of `key`.
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

/// The key after the first `at` bytes of a store key, which are those of its bucket.
pub(crate) fn behind_bucket(key: &[u8], at: usize) -> Result<String, CatalogError> {
    utf8(key, key.get(at..).unwrap_or_default().to_vec())
}

/// The bucket and the object's key after the tag of `key`.
pub(crate) fn bucket_and_key(key: &[u8]) -> Result<(String, String), CatalogError> {
    let (bucket, object) = take_name(key, key.get(1..).unwrap_or_default())?;
    Ok((bucket, utf8(key, object.to_vec())?))
}

/// The bucket, the object's key and the number of the upload at `key`.
pub(crate) fn upload_at(key: &[u8]) -> Result<(String, String, VersionId), CatalogError> {
    let (bucket, rest) = take_name(key, key.get(1..).unwrap_or_default())?;
    let (object, number) = take_name(key, rest)?;
    let number = number.try_into().map_err(|_| CatalogError::damaged(key, "its key should end with a number"))?;
    Ok((bucket, object, VersionId(u64::from_be_bytes(number))))
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
            let (upload_a, upload_b) = (upload(&a.0, &a.1, VersionId(7)), upload(&b.0, &b.1, VersionId(7)));
            prop_assert_eq!(upload_a.cmp(&upload_b), a.cmp(&b));
            prop_assert_eq!(upload_at(&upload_a).unwrap(), (a.0.clone(), a.1.clone(), VersionId(7)));
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
