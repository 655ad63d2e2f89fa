//! The digest of all keys: their number, and a sum over them.
//!
//! The seal of a value proves a record that is found; only this digest proves that no record is missing. One flipped
//! bit in a key, or in a page that leads to others, hides records from a search although each record is whole, and the
//! data that they refer to would count as garbage. So every transaction stores the digest with the sequence number,
//! every open reads the file once and compares (`sqlite/repair.rs`), and every entry of a log has the digest before and
//! after it (`log_entry.rs`). The sum adds the keys' CRC-64, modulo 2^64: any single flipped bit and any exchange of
//! two records changes it.

use crc_fast::CrcAlgorithm;

/// The digest of a set of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyDigest {
    /// The number of keys.
    pub(crate) keys: u64,
    sum: u64,
}

/// The records that a store should hold after its last transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpectedKeys {
    /// All records.
    pub(crate) keys: KeyDigest,
    /// Those of them that were found missing and were not accepted yet.
    pub(crate) missing: KeyDigest,
}

/// Bytes of a digest on a medium.
pub(crate) const BYTES: usize = 16;

impl ExpectedKeys {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.keys.to_bytes(), self.missing.to_bytes()].concat()
    }

    /// The digests in `bytes`, if they are valid.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (keys, missing) = bytes.split_at_checked(BYTES)?;
        Some(Self { keys: KeyDigest::from_bytes(keys)?, missing: KeyDigest::from_bytes(missing)? })
    }
}

impl KeyDigest {
    pub(crate) fn add(&mut self, key: &[u8]) {
        self.keys = self.keys.wrapping_add(1);
        self.sum = self.sum.wrapping_add(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, key));
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.keys = self.keys.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, key));
    }

    /// Updates the digest for a write of `key`, given whether the key existed before and after it.
    pub(crate) fn turn(&mut self, key: &[u8], was_there: bool, is_there: bool) {
        match (was_there, is_there) {
            (false, true) => self.add(key),
            (true, false) => self.remove(key),
            _ => {}
        }
    }

    /// The digest that yields this one when added to `other`.
    pub(crate) fn minus(self, other: Self) -> Self {
        Self { keys: self.keys.wrapping_sub(other.keys), sum: self.sum.wrapping_sub(other.sum) }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.keys.to_le_bytes(), self.sum.to_le_bytes()].concat()
    }

    /// The digest in `bytes`, if they are one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (keys, sum) = bytes.split_first_chunk::<8>()?;
        Some(Self { keys: u64::from_le_bytes(*keys), sum: u64::from_le_bytes(sum.try_into().ok()?) })
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
