//! The digest of all keys: their number, and a sum over them.
//!
//! The seal of a value proves a record that is found; nothing but this proves that none is missing. One flipped bit in
//! a key, or in a page that leads to others, hides records from a search although each is whole: what they name would
//! count as garbage. So every transaction stores the digest beside the sequence number, and every open walks the file
//! once and compares (`mend.rs`). The sum is of the keys' CRC-64, modulo 2^64: no single bit, and no exchange of two
//! records, leaves it as it was.

use crc_fast::CrcAlgorithm;
use rusqlite::Connection;

/// The digest of a set of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyDigest {
    /// How many keys.
    pub(super) keys: u64,
    sum: u64,
}

/// The records that the file should hold, as of its last transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedKeys {
    /// All records.
    pub(super) keys: KeyDigest,
    /// Of those, the ones that were found to be missing and were not accepted yet.
    pub(super) missing: KeyDigest,
}

/// Bytes of a digest in the file.
const BYTES: usize = 16;

impl ExpectedKeys {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        [self.keys.to_bytes(), self.missing.to_bytes()].concat()
    }

    /// The digests that `bytes` are, if they are that.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (keys, missing) = bytes.split_at_checked(BYTES)?;
        Some(Self { keys: KeyDigest::from_bytes(keys)?, missing: KeyDigest::from_bytes(missing)? })
    }
}

impl KeyDigest {
    pub(super) fn add(&mut self, key: &[u8]) {
        self.keys = self.keys.wrapping_add(1);
        self.sum = self.sum.wrapping_add(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, key));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        self.keys = self.keys.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, key));
    }

    /// The digest that makes this one when added to `other`.
    pub(super) fn minus(self, other: Self) -> Self {
        Self { keys: self.keys.wrapping_sub(other.keys), sum: self.sum.wrapping_sub(other.sum) }
    }

    fn to_bytes(self) -> Vec<u8> {
        [self.keys.to_le_bytes(), self.sum.to_le_bytes()].concat()
    }

    /// The digest that `bytes` are, if they are one.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (keys, sum) = bytes.split_first_chunk::<8>()?;
        Some(Self { keys: u64::from_le_bytes(*keys), sum: u64::from_le_bytes(sum.try_into().ok()?) })
    }

    /// That of the records in the file, walked in the order in which they lie, and whether that is the order of keys.
    pub(super) fn of_file(connection: &Connection) -> rusqlite::Result<(Self, bool)> {
        let (mut digest, mut last, mut in_order) = (Self::default(), None::<Vec<u8>>, true);
        let mut walk = connection.prepare("SELECT k FROM kv")?;
        let mut rows = walk.query([])?;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_blob()?;
            digest.add(key);
            in_order &= last.as_deref().is_none_or(|last| last < key);
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        Ok((digest, in_order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_and_removed_leaves_no_trace_and_every_bit_counts() {
        let mut digest = KeyDigest::default();
        digest.add(b"a");
        let one = digest;
        digest.add(b"bc");
        assert_ne!(digest, one);
        for bit in 0..16 {
            let mut other = one;
            let mut key = *b"bc";
            key[bit / 8] ^= 1 << (bit % 8);
            other.add(&key);
            assert_ne!(other, digest, "bit {bit}");
        }
        assert_eq!(KeyDigest::from_bytes(&digest.to_bytes()), Some(digest));
        digest.remove(b"bc");
        assert_eq!(digest, one);
        assert_eq!(KeyDigest::from_bytes(&[0; 15]), None);
    }
}
