//! The bytes of a staged file, format version 2. `docs/format/workshop.md` shows them.
//!
//! ```text
//! 0                    bytes        bytes_max                      file end - 128     file end
//! | data in 1 MiB blocks | unused    | CRC-32C of each block, u32 LE | footer, 128 bytes|
//! ```
//! The offset of everything after the data follows from `bytes_max`, so a table of any length is written and read in
//! pages.
//!
//! Invariant: a file without a valid footer was never finished. The footer is written last and synced before the
//! file is acknowledged. The checksum of a block begins with slot, nonce and number of the block.

use crate::block::{BLOCK_BYTES, FileIdentity};
use crate::format::{Fields, FormatError, check_version, crc32c};
use crc_fast::{CrcAlgorithm, Digest};

/// Length of the footer.
pub(crate) const FOOTER_BYTES: u64 = 128;
/// The offset of the checksum in the footer.
const SEAL_OFFSET: usize = FOOTER_BYTES as usize - 4;
/// Blocks whose checksums fill one page of the table (64 KiB of it, for 16 GiB of data). Not part of the format: only
/// the amount of the table that is held at once.
pub(crate) const PAGE_BLOCKS: u64 = if cfg!(test) { 32 } else { 16_384 };
/// The longest staged file: as long as an S3 object may be (50 TB), and some more.
pub(crate) const BYTES_MAX: u64 = 1 << 46;

const MAGIC: [u8; 8] = *b"larder-s";
const VERSION: u32 = 2;

/// The number of blocks for `bytes` bytes.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}

/// The offsets of the parts of a staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagedLayout {
    /// The most data for which the file has room.
    pub bytes_max: u64,
}

impl StagedLayout {
    /// The offset of the table.
    pub(crate) fn table_offset(self) -> u64 {
        self.bytes_max
    }

    /// The offset of the footer.
    pub(crate) fn footer_offset(self) -> u64 {
        self.table_offset() + 4 * blocks(self.bytes_max)
    }

    /// The file's length.
    pub(crate) fn file_bytes(self) -> u64 {
        self.footer_offset() + FOOTER_BYTES
    }
}

/// The description of a finished staged file in its footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The version that it was staged for, or the upload whose part it is. 0 if that is not known.
    pub version: u64,
    /// The number of the part as it was uploaded; 0 if it is not a part.
    pub part: u32,
    /// [`key_hash`] of bucket and key; 0 if these are not known.
    pub key_hash: u64,
    /// The run of the server that staged it, by its random number; 0 if that is not known.
    pub run: u64,
    /// The catalog's commit sequence number when it was finished; 0 if that is not known.
    pub sequence: u64,
}

/// A hash of an object's name. It reveals that an older catalog takes a file for that of another object.
pub fn key_hash(bucket: &str, key: &str) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for piece in [bucket.as_bytes(), &[0], key.as_bytes()] {
        digest.update(piece);
    }
    digest.finalize()
}

/// The last bytes of a finished staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagedFooter {
    /// The identity of the file: its slot, and the nonce that distinguishes it from other files of that slot.
    pub file: FileIdentity,
    /// The description of the file.
    pub stamp: Stamp,
    /// The length of its data, in bytes.
    pub bytes: u64,
    /// The length for which it has room, in bytes.
    pub bytes_max: u64,
    /// CRC-32C of the table's entries in use.
    pub table_crc: u32,
}

impl StagedFooter {
    /// The offsets of the parts of its file.
    pub(crate) fn layout(&self) -> StagedLayout {
        StagedLayout { bytes_max: self.bytes_max }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES as usize] {
        let Stamp { version, part, key_hash, run, sequence } = self.stamp;
        let mut bytes = [0; FOOTER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.file.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.file.nonce.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.bytes_max.to_le_bytes());
        bytes[48..56].copy_from_slice(&version.to_le_bytes());
        bytes[56..60].copy_from_slice(&part.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.table_crc.to_le_bytes());
        bytes[64..72].copy_from_slice(&key_hash.to_le_bytes());
        bytes[72..80].copy_from_slice(&run.to_le_bytes());
        bytes[80..88].copy_from_slice(&sequence.to_le_bytes());
        let crc = crc32c(&bytes[..SEAL_OFFSET]);
        bytes[SEAL_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The footer in `bytes`, of the file of `slot`, which is `file_bytes` long.
    pub(crate) fn decode(bytes: &[u8], slot: u64, file_bytes: u64) -> Result<Self, FormatError> {
        if bytes.len() as u64 != FOOTER_BYTES {
            return Err(FormatError::Length);
        }
        let mut fields = Fields::of(bytes);
        if fields.take(8)? != MAGIC {
            // The trial version had a footer of half the length.
            let trial = bytes[SEAL_OFFSET - 60..].starts_with(&MAGIC);
            return Err(if trial { FormatError::Trial(1) } else { FormatError::Magic });
        }
        if crc32c(&bytes[..SEAL_OFFSET]).to_le_bytes() != bytes[SEAL_OFFSET..] {
            return Err(FormatError::Checksum);
        }
        check_version(fields.u32()?, VERSION)?;
        let block_bytes = fields.u32()?;
        let file = FileIdentity { number: fields.u64()?, nonce: fields.u64()? };
        let (bytes, bytes_max, version) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (part, table_crc, key_hash, run) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
        let sequence = fields.u64()?;
        fields.zeros(SEAL_OFFSET - 88)?;
        let stamp = Stamp { version, part, key_hash, run, sequence };
        let footer = Self { file, stamp, bytes, bytes_max, table_crc };
        let sound = [
            ("block size", block_bytes as usize == BLOCK_BYTES),
            ("slot", file.number == slot),
            ("length", footer.bytes <= footer.bytes_max && footer.bytes_max <= BYTES_MAX),
        ];
        if let Some((field, _)) = sound.into_iter().find(|(_, holds)| !holds) {
            return Err(FormatError::Field(field));
        }
        if footer.layout().file_bytes() != file_bytes {
            return Err(FormatError::Length);
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn footer() -> StagedFooter {
        let stamp = Stamp { version: 12, part: 3, key_hash: key_hash("photos", "a"), run: 99, sequence: 77 };
        let file = FileIdentity { number: 7, nonce: 0xc0ff_ee00 };
        StagedFooter { file, stamp, bytes: 3 << 20, bytes_max: (3 << 20) + 1, table_crc: 0xfeed_beef }
    }

    #[test]
    fn a_footer_comes_back_as_it_was_written() {
        let footer = footer();
        assert_eq!(StagedFooter::decode(&footer.encode(), 7, footer.layout().file_bytes()), Ok(footer));
    }

    #[test]
    fn zeros_are_an_unfinished_file() {
        assert_eq!(StagedFooter::decode(&[0; 128], 7, 128), Err(FormatError::Magic));
    }

    #[test]
    fn a_file_of_the_trial_version_is_refused_as_such() {
        let mut end = vec![0; 128];
        end[64..72].copy_from_slice(&MAGIC);
        end[72] = 1;
        let refused = StagedFooter::decode(&end, 7, 5000);
        assert_eq!(refused, Err(FormatError::Trial(1)));
        assert!(refused.unwrap_err().to_string().contains("written by an earlier trial version of Larder"));
    }

    #[test]
    fn a_footer_of_another_slot_or_length_is_refused() {
        let footer = footer();
        let file_bytes = footer.layout().file_bytes();
        assert_eq!(StagedFooter::decode(&footer.encode(), 8, file_bytes), Err(FormatError::Field("slot")));
        assert_eq!(StagedFooter::decode(&footer.encode(), 7, file_bytes + 1), Err(FormatError::Length));
    }

    proptest! {
        #[test]
        fn any_changed_bit_of_a_footer_is_noticed(bit in 0usize..1024) {
            let footer = footer();
            let mut bytes = footer.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(StagedFooter::decode(&bytes, 7, footer.layout().file_bytes()).is_err());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..140)) {
            prop_assert!(StagedFooter::decode(&bytes, 7, bytes.len() as u64).is_err());
        }
    }
}
