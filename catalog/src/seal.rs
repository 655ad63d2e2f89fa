//! The seal of a stored value: the batch that committed it, and a checksum that is bound to its key.
//!
//! ```text
//! | body | commit sequence number, u64 LE | CRC-32C, u32 LE |
//! ```
//! The checksum covers the key's length (u32 LE), the key, the body and the sequence number. A value that a flipped bit
//! changed, or that is found under another key, does not open; so no record is ever taken for another.
//!
//! A store seals a value when it commits it, since the sequence number is known only then.

use crate::error::{CatalogError, readable};
use crc_fast::{CrcAlgorithm, Digest};
use lineage::Sequence;
use model::sabotage::{Sabotage, is_on};

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 8 + 4;

/// A value in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

impl Sealed {
    /// The stored form of `body` under `key` when the batch `sequence` writes it.
    pub fn seal(key: &[u8], mut body: Vec<u8>, sequence: Sequence) -> Self {
        body.extend_from_slice(&sequence.0.to_le_bytes());
        let crc = checksum(key, &body);
        body.extend_from_slice(&crc.to_le_bytes());
        assert!(body.len() >= SEAL_BYTES, "a seal is never shorter than its number and checksum");
        Self(body)
    }

    /// Bytes that a medium returned, sound or not.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Its bytes on the medium.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The body and the batch that wrote it, if this was written under `key`.
    ///
    /// # Errors
    /// [`CatalogError::Damaged`].
    pub fn open(&self, key: &[u8]) -> Result<(&[u8], Sequence), CatalogError> {
        let (sealed, crc) =
            self.0.split_last_chunk::<4>().ok_or_else(|| CatalogError::damaged(key, "it is too short"))?;
        let (body, sequence) =
            sealed.split_last_chunk::<8>().ok_or_else(|| CatalogError::damaged(key, "it is too short"))?;
        let matches = checksum(key, sealed) == u32::from_le_bytes(*crc);
        if !matches && !is_on(Sabotage::RecordChecksumIgnored) {
            return Err(CatalogError::damaged(key, "its checksum does not match"));
        }
        Ok((body, Sequence(u64::from_le_bytes(*sequence))))
    }

    /// This value with one bit flipped, if that makes it open under `key`. A value with worse damage opens this way by
    /// chance in one of millions of cases: only for records whose targets are checked again.
    pub(crate) fn with_a_bit_flipped_back(&self, key: &[u8]) -> Option<Self> {
        let flipped = |bit: usize| {
            let mut bytes = self.0.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            Self(bytes)
        };
        (0..self.0.len() * 8).map(flipped).find(|value| value.open(key).is_ok())
    }

    /// True if `whole`, which opens under the same key, may be this value before it was damaged: two of body, sequence
    /// number and checksum are equal. So damage in one place is repaired, and no older version passes for it. (A page
    /// of the database that a disk never wrote may have the number and checksum of an older version: that one passes.)
    pub(crate) fn is_damaged_copy_of(&self, whole: &Self) -> bool {
        let (Some(mine), Some(theirs)) = (self.parts(), whole.parts()) else { return false };
        let equal = [mine.0 == theirs.0, mine.1 == theirs.1, mine.2 == theirs.2];
        equal.into_iter().filter(|is_equal| *is_equal).count() >= 2
    }

    /// Body, sequence number and checksum, unchecked; `None` if it is too short.
    fn parts(&self) -> Option<(&[u8], &[u8; 8], &[u8; 4])> {
        let (sealed, crc) = self.0.split_last_chunk::<4>()?;
        sealed.split_last_chunk::<8>().map(|(body, sequence)| (body, sequence, crc))
    }

    /// True if its body is `body`, and it is long enough for a seal. The checksum is not compared.
    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        self.0.len() == body.len() + SEAL_BYTES && self.0.starts_with(body)
    }

    /// Its body, unchecked: only for replacing or removing it, never for use.
    pub(crate) fn unproven_body(&self) -> &[u8] {
        &self.0[..self.0.len().saturating_sub(SEAL_BYTES)]
    }
}

/// The checksum of `sealed`, a body and its sequence number, under `key`.
fn checksum(key: &[u8], sealed: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let key_bytes = u32::try_from(key.len()).unwrap_or_else(|_| panic!("no key has 4 GiB: {}", readable(&key[..32])));
    digest.update(&key_bytes.to_le_bytes());
    digest.update(key);
    digest.update(sealed);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_opens_under_its_key_and_no_other() {
        let sealed = Sealed::seal(b"Oa", b"body".to_vec(), Sequence(7));
        assert_eq!(sealed.open(b"Oa").unwrap(), (&b"body"[..], Sequence(7)));
        assert!(sealed.open(b"Ob").is_err());
        // The boundary between key and body is covered, too.
        let shifted = Sealed::seal(b"O", b"abody".to_vec(), Sequence(7));
        assert!(Sealed::from_bytes(shifted.as_bytes()[1..].to_vec()).open(b"Oa").is_err());
    }

    #[test]
    fn damage_in_one_place_leaves_a_copy_and_an_older_version_is_none() {
        let seal = |body: &[u8], number: u64| Sealed::seal(b"Oa", body.to_vec(), Sequence(number));
        let (whole, older) = (seal(b"body", 7), seal(b"bode", 6));
        for at in 0..whole.0.len() {
            let mut bytes = whole.0.clone();
            bytes[at] ^= 0xFF;
            let damaged = Sealed::from_bytes(bytes);
            assert!(damaged.is_damaged_copy_of(&whole) && !damaged.is_damaged_copy_of(&older), "byte {at}");
        }
        // A number that became the one of the older version.
        let mut bytes = whole.0.clone();
        bytes[4] = 6;
        let damaged = Sealed::from_bytes(bytes);
        assert!(damaged.is_damaged_copy_of(&whole) && !damaged.is_damaged_copy_of(&older));
        assert!(!Sealed::from_bytes(vec![0; SEAL_BYTES - 1]).is_damaged_copy_of(&whole));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(body in proptest::collection::vec(any::<u8>(), 0..40), bit in any::<usize>()) {
            let sealed = Sealed::seal(b"key", body, Sequence(u64::MAX));
            let mut bytes = sealed.as_bytes().to_vec();
            let bit = bit % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped = Sealed::from_bytes(bytes);
            prop_assert!(flipped.open(b"key").is_err());
            prop_assert_eq!(flipped.with_a_bit_flipped_back(b"key"), Some(sealed));
            prop_assert_eq!(flipped.with_a_bit_flipped_back(b"another"), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let sealed = Sealed::from_bytes(bytes);
            prop_assert!(sealed.open(b"key").is_err());
            prop_assert!(sealed.unproven_body().len() <= sealed.as_bytes().len());
        }
    }
}
