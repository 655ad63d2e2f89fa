//! The bytes of a staged file, format version 1. `docs/format.md` draws them.
//!
//! ```text
//! 0                    bytes        bytes_max                      file end - 64      file end
//! | data in 1 MiB blocks | unused    | CRC-32C of each block, u32 LE | footer, 64 bytes |
//! ```
//! Everything but the data lies where `bytes_max` puts it, so that a table of any length is written and read in pages.
//!
//! Invariant: a file without a valid footer was never finished. The footer is written last and synced before anybody
//! hears of the file.

use crate::block::BLOCK_BYTES;
use crate::format::{Fields, FormatError, crc32c};
use disk::FileName;

/// Length of the footer.
pub(crate) const FOOTER_BYTES: u64 = 64;
/// Blocks whose checksums lie in one page of the table (64 KiB of it, for 16 GiB of data). Not part of the
/// format: only how much of the table is held at once.
pub(crate) const PAGE_BLOCKS: u64 = if cfg!(test) { 32 } else { 16_384 };
/// The longest staged file: as long as an S3 object may be (50 TB), and some more.
pub(crate) const BYTES_MAX: u64 = 1 << 46;

const MAGIC: [u8; 8] = *b"larder-s";
const VERSION: u32 = 1;

/// How many blocks `bytes` bytes take.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}

/// The name of the file of `slot`.
pub(crate) fn staged_name(slot: u64) -> FileName {
    FileName::new(format!("s-{slot:016x}")).expect("`s-` and 16 hexadecimal digits are a file name")
}

/// The slot of the file called `name`, if it is a staged file.
pub(crate) fn slot_of(name: &FileName) -> Option<u64> {
    let digits = name.as_str().strip_prefix("s-")?;
    let slot = u64::from_str_radix(digits, 16).ok()?;
    (staged_name(slot) == *name).then_some(slot)
}

/// Where the parts of a staged file lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The most data that the file has room for.
    pub bytes_max: u64,
}

impl Layout {
    /// Where the table begins.
    pub(crate) fn table_offset(self) -> u64 {
        self.bytes_max
    }

    /// Where the footer begins.
    pub(crate) fn footer_offset(self) -> u64 {
        self.table_offset() + 4 * blocks(self.bytes_max)
    }

    /// The file's length.
    pub(crate) fn file_bytes(self) -> u64 {
        self.footer_offset() + FOOTER_BYTES
    }
}

/// The last bytes of a finished staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Whose file it is.
    pub slot: u64,
    /// How much data it holds.
    pub bytes: u64,
    /// How much it has room for.
    pub bytes_max: u64,
    /// CRC-32C of the table's entries in use.
    pub table_crc: u32,
}

impl Footer {
    /// Where the parts of its file lie.
    pub(crate) fn layout(&self) -> Layout {
        Layout { bytes_max: self.bytes_max }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES as usize] {
        let mut bytes = [0; FOOTER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.slot.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes_max.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.table_crc.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The footer that `bytes` are, as the file of `slot` has it, which is `file_bytes` long.
    pub(crate) fn decode(bytes: &[u8], slot: u64, file_bytes: u64) -> Result<Self, FormatError> {
        if bytes.len() as u64 != FOOTER_BYTES {
            return Err(FormatError::Length);
        }
        let mut fields = Fields::of(bytes);
        if fields.take(8)? != MAGIC {
            return Err(FormatError::Magic);
        }
        let (version, block_bytes) = (fields.u32()?, fields.u32()?);
        let footer =
            Self { slot: fields.u64()?, bytes: fields.u64()?, bytes_max: fields.u64()?, table_crc: fields.u32()? };
        fields.take(16)?;
        if fields.u32()? != crc32c(&bytes[..60]) {
            return Err(FormatError::Checksum);
        }
        if version != VERSION {
            return Err(FormatError::Version(version));
        }
        let sound = [
            ("block size", block_bytes as usize == BLOCK_BYTES),
            ("slot", footer.slot == slot),
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

    fn footer() -> Footer {
        Footer { slot: 7, bytes: 3 << 20, bytes_max: (3 << 20) + 1, table_crc: 0xfeed_beef }
    }

    #[test]
    fn a_footer_comes_back_as_it_was_written() {
        let footer = footer();
        assert_eq!(Footer::decode(&footer.encode(), 7, footer.layout().file_bytes()), Ok(footer));
    }

    #[test]
    fn zeros_are_an_unfinished_file() {
        assert_eq!(Footer::decode(&[0; 64], 7, 64), Err(FormatError::Magic));
    }

    #[test]
    fn a_footer_of_another_slot_or_length_is_refused() {
        let footer = footer();
        let file_bytes = footer.layout().file_bytes();
        assert_eq!(Footer::decode(&footer.encode(), 8, file_bytes), Err(FormatError::Field("slot")));
        assert_eq!(Footer::decode(&footer.encode(), 7, file_bytes + 1), Err(FormatError::Length));
    }

    #[test]
    fn only_names_of_slots_are_staged_files() {
        assert_eq!(slot_of(&staged_name(u64::MAX)), Some(u64::MAX));
        for name in ["s-1", "s-000000000000000g", "r-0000000000000001", "s-+000000000000001"] {
            assert_eq!(FileName::new(name).and_then(|name| slot_of(&name)), None);
        }
    }

    proptest! {
        #[test]
        fn any_changed_bit_of_a_footer_is_noticed(bit in 0usize..512) {
            let footer = footer();
            let mut bytes = footer.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Footer::decode(&bytes, 7, footer.layout().file_bytes()).is_err());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(Footer::decode(&bytes, 7, bytes.len() as u64).is_err());
        }
    }
}
