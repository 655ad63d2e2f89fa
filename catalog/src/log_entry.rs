//! The entry of a batch in a log: its writes, and the batch that it follows.
//!
//! ```text
//! | version, u8 | 1 if its group ends with it, else 0, u8 | mark, in version 2 only | number before, u64 |
//! | number, u64 | keys before | keys after | number of writes, u32 | writes | CRC-32C, u32 |
//! mark          | 1: aside, 2: newest, u8 | the last number of the newest copy, as far as it is known, u64 |
//! put           | 1 | key length, u32 | body length, u32 | key | body |
//! delete        | 2 | key length, u32 | key |
//! delete range  | 3 | start | end |      each | 0: unbounded, 1: included, 2: excluded | key length, u32 | key |
//! ```
//! All little-endian. "Number before" is the number of the batch before this one, which is not always one less; "keys
//! before" and "keys after" are the digests of all keys of the store (number and sum, `key_digest.rs`). An entry is
//! replayed only onto the store that it was logged for, in exactly the state in which it was logged. An entry has
//! version 1, or 2 if it has a mark, which gives the kind of copy that this and the following entries belong to
//! (`lineage/src/log_lineage.rs`).

use crate::key_digest::{BYTES as DIGEST_BYTES, KeyDigest};
use crate::store::{KeyRange, Write};
use crc_fast::CrcAlgorithm;
use lineage::{Mark, Sequence};
use std::ops::Bound;

/// The format version of an entry without a mark.
const VERSION: u8 = 1;
/// The format version of an entry with a mark.
const MARKED_VERSION: u8 = 2;
const ASIDE: u8 = 1;
const NEWEST: u8 = 2;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// The place of an entry in the history of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The number of the batch before.
    pub(crate) before: Sequence,
    /// Its own number.
    pub(crate) sequence: Sequence,
    /// The digest of the keys that the store should hold before it.
    pub(crate) keys_before: KeyDigest,
    /// The same after it.
    pub(crate) keys_after: KeyDigest,
    /// True for the last entry of a group, which was committed as one transaction.
    pub(crate) is_group_end: bool,
    /// The kind of copy that logged this batch and all later ones, up to the next mark.
    pub(crate) mark: Option<Mark>,
}

/// The reason why bytes are not a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("it is too short")]
    Short,
    #[error("its checksum does not match")]
    Checksum,
    #[error("it has format version {0}")]
    Version(u8),
    #[error("it has an unknown mark {0}")]
    Mark(u8),
    #[error("there is more data after it")]
    Rest,
}

/// The bytes of an entry.
pub(crate) fn encode(link: &Link, writes: &[Write]) -> Vec<u8> {
    let version = if link.mark.is_some() { MARKED_VERSION } else { VERSION };
    let mut out = vec![version, u8::from(link.is_group_end)];
    if let Some(mark) = link.mark {
        let (kind, newest) = match mark {
            Mark::Aside { newest } => (ASIDE, newest),
            Mark::Newest => (NEWEST, Sequence(0)),
        };
        out.push(kind);
        out.extend_from_slice(&newest.0.to_le_bytes());
    }
    out.extend_from_slice(&link.before.0.to_le_bytes());
    out.extend_from_slice(&link.sequence.0.to_le_bytes());
    out.extend_from_slice(&link.keys_before.to_bytes());
    out.extend_from_slice(&link.keys_after.to_bytes());
    put_length(writes.len(), &mut out);
    for write in writes {
        put_write(write, &mut out);
    }
    let crc = checksum(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// The entry in `bytes`.
///
/// # Errors
/// [`EntryError`].
pub(crate) fn decode(bytes: &[u8]) -> Result<(Link, Vec<Write>), EntryError> {
    let (mut fields, is_marked) = fields(bytes)?;
    let link = fields.link(is_marked)?;
    let count = fields.length()?;
    // A wrong count is detected by the missing bytes, before memory is allocated for it.
    let writes = (0..count).map(|_| fields.write()).collect::<Result<_, _>>()?;
    if fields.0.is_empty() { Ok((link, writes)) } else { Err(EntryError::Rest) }
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    let length = u32::try_from(length).unwrap_or_else(|_| panic!("nothing in a batch is as long as {length}"));
    out.extend_from_slice(&length.to_le_bytes());
}

fn put_write(write: &Write, out: &mut Vec<u8>) {
    match write {
        Write::Put(key, body) => {
            out.push(PUT);
            put_length(key.len(), out);
            put_length(body.len(), out);
            out.extend_from_slice(key);
            out.extend_from_slice(body);
        }
        Write::Delete(key) => {
            out.push(DELETE);
            put_length(key.len(), out);
            out.extend_from_slice(key);
        }
        Write::DeleteRange(KeyRange { start, end }) => {
            out.push(DELETE_RANGE);
            put_bound(start, out);
            put_bound(end, out);
        }
    }
}

fn put_bound(bound: &Bound<Vec<u8>>, out: &mut Vec<u8>) {
    let (mark, key): (u8, &[u8]) = match bound {
        Bound::Unbounded => (0, &[]),
        Bound::Included(key) => (1, key),
        Bound::Excluded(key) => (2, key),
    };
    out.push(mark);
    put_length(key.len(), out);
    out.extend_from_slice(key);
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The fields of an entry whose checksum and version are right, and true if it has a mark.
fn fields(bytes: &[u8]) -> Result<(Fields<'_>, bool), EntryError> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(EntryError::Short)?;
    if checksum(body) != u32::from_le_bytes(*crc) {
        return Err(EntryError::Checksum);
    }
    let mut fields = Fields(body);
    match fields.byte()? {
        VERSION => Ok((fields, false)),
        MARKED_VERSION => Ok((fields, true)),
        other => Err(EntryError::Version(other)),
    }
}

/// The bytes that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], EntryError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(EntryError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(EntryError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, EntryError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<usize, EntryError> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn sequence(&mut self) -> Result<Sequence, EntryError> {
        self.array().map(|bytes| Sequence(u64::from_le_bytes(bytes)))
    }

    fn digest(&mut self) -> Result<KeyDigest, EntryError> {
        KeyDigest::from_bytes(self.take(DIGEST_BYTES)?).ok_or(EntryError::Short)
    }

    fn mark(&mut self) -> Result<Mark, EntryError> {
        match (self.byte()?, self.sequence()?) {
            (ASIDE, newest) => Ok(Mark::Aside { newest }),
            (NEWEST, Sequence(0)) => Ok(Mark::Newest),
            (other, _) => Err(EntryError::Mark(other)),
        }
    }

    fn link(&mut self, is_marked: bool) -> Result<Link, EntryError> {
        let is_group_end = match self.byte()? {
            mark @ (0 | 1) => mark == 1,
            other => return Err(EntryError::Mark(other)),
        };
        let mark = if is_marked { Some(self.mark()?) } else { None };
        let (before, sequence) = (self.sequence()?, self.sequence()?);
        let (keys_before, keys_after) = (self.digest()?, self.digest()?);
        Ok(Link { before, sequence, keys_before, keys_after, is_group_end, mark })
    }

    fn key(&mut self) -> Result<Vec<u8>, EntryError> {
        let length = self.length()?;
        Ok(self.take(length)?.to_vec())
    }

    fn bound(&mut self) -> Result<Bound<Vec<u8>>, EntryError> {
        let (mark, key) = (self.byte()?, self.key()?);
        match mark {
            0 if key.is_empty() => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(key)),
            2 => Ok(Bound::Excluded(key)),
            other => Err(EntryError::Mark(other)),
        }
    }

    fn write(&mut self) -> Result<Write, EntryError> {
        match self.byte()? {
            PUT => {
                let (key, body) = (self.length()?, self.length()?);
                Ok(Write::Put(self.take(key)?.to_vec(), self.take(body)?.to_vec()))
            }
            DELETE => self.key().map(Write::Delete),
            DELETE_RANGE => Ok(Write::DeleteRange(KeyRange { start: self.bound()?, end: self.bound()? })),
            other => Err(EntryError::Mark(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::Rng;

    fn any_link(rng: &mut Rng) -> Link {
        let mut digest = KeyDigest::default();
        digest.add(&rng.next_u64().to_le_bytes());
        let before = Sequence(rng.below(1 << 40));
        let mut keys_after = digest;
        keys_after.add(b"another");
        let sequence = Sequence(before.0 + 1 + rng.below(9));
        let mark = match rng.below(3) {
            0 => None,
            1 => Some(Mark::Newest),
            _ => Some(Mark::Aside { newest: Sequence(rng.below(1 << 40)) }),
        };
        Link { before, sequence, keys_before: digest, keys_after, is_group_end: rng.below(2) == 0, mark }
    }

    fn any_writes(rng: &mut Rng) -> Vec<Write> {
        let bytes = |rng: &mut Rng, most: u64| (0..rng.below(most)).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
        let bound = |rng: &mut Rng| match rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(bytes(rng, 9)),
            _ => Bound::Excluded(bytes(rng, 9)),
        };
        let write = |rng: &mut Rng| match rng.below(4) {
            0 => Write::Delete(bytes(rng, 20)),
            1 => Write::DeleteRange(KeyRange { start: bound(rng), end: bound(rng) }),
            _ => Write::Put(bytes(rng, 40), bytes(rng, 200)),
        };
        (0..rng.below(6)).map(|_| write(rng)).collect()
    }

    #[test]
    fn what_is_encoded_is_decoded_and_every_truncation_is_noticed() {
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let (placed, writes) = (any_link(&mut rng), any_writes(&mut rng));
            let bytes = encode(&placed, &writes);
            assert_eq!(decode(&bytes).unwrap(), (placed, writes));
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn bytes_that_were_changed_never_make_it_panic_and_are_noticed_unless_the_checksum_is_made_to_fit() {
        let (mut rng, mut fitted) = (Rng::new(2), 0);
        for _ in 0..3_000 {
            let mut bytes = encode(&any_link(&mut rng), &any_writes(&mut rng));
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            let _ = decode(&bytes);
            let body = bytes.len() - 4;
            let crc = checksum(&bytes[..body]).to_le_bytes();
            let was_right = bytes[body..] == crc;
            assert_eq!(decode(&bytes).err() == Some(EntryError::Checksum), !was_right);
            bytes[body..].copy_from_slice(&crc);
            if let Ok((link, writes)) = decode(&bytes) {
                assert_eq!(encode(&link, &writes), bytes, "what is read is what would be written");
                fitted += 1;
            }
        }
        assert!(fitted > 100, "{fitted} of 3,000 are entries after all: too few for a test");
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = encode(&any_link(&mut Rng::new(3)), &[]);
        bytes[0] = 3;
        let body = bytes.len() - 4;
        let crc = checksum(&bytes[..body]);
        bytes[body..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes), Err(EntryError::Version(3)));
    }
}
