//! The checksums that an object came with, computed again: before its bytes are packed, and while all of it is served.
//!
//! For an object in one piece, the checksum of its bytes counts; for one that has only a checksum of the checksums of
//! its parts, those of its parts.

use catalog::{Checksum, ChecksumKind, Object};
use crc_fast::{CrcAlgorithm, Digest};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// Computes a checksum of one kind.
pub struct Checksummer {
    kind: ChecksumKind,
    state: DigestState,
}

enum DigestState {
    Crc(Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Checksummer {
    /// A checksummer without bytes so far.
    pub fn new(kind: ChecksumKind) -> Self {
        let crc = |algorithm| DigestState::Crc(Digest::new(algorithm));
        let state = match kind {
            ChecksumKind::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            ChecksumKind::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            ChecksumKind::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            ChecksumKind::Sha1 => DigestState::Sha1(Sha1::new()),
            ChecksumKind::Sha256 => DigestState::Sha256(Sha256::new()),
        };
        Self { kind, state }
    }

    /// The checksum of `bytes`.
    pub fn of(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
        let mut sum = Self::new(kind);
        sum.update(bytes);
        sum.finish()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            DigestState::Crc(digest) => digest.update(bytes),
            DigestState::Sha1(digest) => digest.update(bytes),
            DigestState::Sha256(digest) => digest.update(bytes),
        }
    }

    /// The checksum of all added bytes, as S3 spells it: base64 of its big-endian bytes.
    pub fn finish(self) -> Checksum {
        let encode = |bytes: &[u8]| base64_simd::STANDARD.encode_to_string(bytes);
        let base64 = match (self.kind, self.state) {
            (ChecksumKind::Crc64Nvme, DigestState::Crc(digest)) => encode(&digest.finalize().to_be_bytes()),
            (_, DigestState::Crc(digest)) => encode(&(digest.finalize() as u32).to_be_bytes()),
            (_, DigestState::Sha1(digest)) => encode(&digest.finalize()),
            (_, DigestState::Sha256(digest)) => encode(&digest.finalize()),
        };
        Checksum { kind: self.kind, base64 }
    }
}

/// The checksum that covers all bytes of `object`, if it has one.
pub fn whole_checksum(object: &Object) -> Option<&Checksum> {
    object.checksums.iter().find(|checksum| !checksum.is_composite())
}

/// The bytes of a checksum as S3 spells it; `None` if it is malformed for its kind.
pub(crate) fn raw(checksum: &Checksum) -> Option<Vec<u8>> {
    let bytes = base64_simd::STANDARD.decode_to_vec(checksum.base64.as_bytes()).ok()?;
    (bytes.len() == checksum.kind.digest_bytes()).then_some(bytes)
}

/// The checksum of kind `kind` whose bytes are `bytes`.
pub(crate) fn of_raw(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    Checksum { kind, base64: base64_simd::STANDARD.encode_to_string(bytes) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn checksums_are_the_published_ones() {
        let published = [
            (ChecksumKind::Crc32, "y/Q5Jg=="),
            (ChecksumKind::Crc32c, "4waSgw=="),
            (ChecksumKind::Crc64Nvme, "rosUhgp5mIg="),
            (ChecksumKind::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
            (ChecksumKind::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ];
        for (kind, base64) in published {
            let mut sum = Checksummer::new(kind);
            sum.update(b"1234");
            sum.update(b"56789");
            let sum = sum.finish();
            assert_eq!(sum, Checksum { kind, base64: base64.into() });
            assert_eq!(of_raw(kind, &raw(&sum).unwrap()), sum);
        }
    }
}
