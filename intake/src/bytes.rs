//! The common parts of all formats: 4 KiB blocks sealed with a checksum, fields in little-endian order, and CRC-32C.

use crc_fast::{CrcAlgorithm, checksum};

/// Bytes of a block: the sector of a 4Kn drive.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Offset of the checksum in a block.
pub(crate) const SEAL_OFFSET: usize = BLOCK_BYTES - 4;

/// The reason why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The bytes end before they should.
    #[error("it ends too early")]
    Short,
    /// It begins with something else.
    #[error("it begins with other bytes")]
    Magic,
    /// The checksum does not match: it was damaged, or written in part.
    #[error("its checksum does not match")]
    Checksum,
    /// Its format version is not one that this code reads.
    #[error("it has format version {0}, which this Larder does not read")]
    Version(u32),
    /// It belongs to another file, drive or pool.
    #[error("it belongs elsewhere")]
    Elsewhere,
    /// The checksum matches, but a field has an impossible value.
    #[error("its {0} cannot be right")]
    Field(&'static str),
}

/// CRC-32C (Castagnoli) of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// `length` rounded up to a multiple of 8.
pub(crate) const fn aligned(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// A block: magic, version, the fields that `fill` adds, zeros, checksum. The fields must leave room for the checksum.
pub(crate) fn block(magic: [u8; 8], version: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    block.extend_from_slice(&magic);
    block.extend_from_slice(&version.to_le_bytes());
    fill(&mut block);
    assert!(block.len() <= SEAL_OFFSET, "the fields of a block leave room for its checksum");
    block.resize(SEAL_OFFSET, 0);
    block.extend_from_slice(&crc32c(&block).to_le_bytes());
    block
}

/// The fields of a whole block with this `magic` and `version`.
pub(crate) fn open_block(block: &[u8], magic: [u8; 8], version: u32) -> Result<Fields<'_>, Damage> {
    match open_block_of(block, magic)? {
        (found, fields) if found == version => Ok(fields),
        (other, _) => Err(Damage::Version(other)),
    }
}

/// The version and the fields of a whole block with this `magic`.
pub(crate) fn open_block_of(block: &[u8], magic: [u8; 8]) -> Result<(u32, Fields<'_>), Damage> {
    let block = block.get(..BLOCK_BYTES).ok_or(Damage::Short)?;
    let (body, seal) = block.split_at(SEAL_OFFSET);
    let (found, rest) = body.split_at(8);
    if found != magic {
        return Err(Damage::Magic);
    }
    if seal != crc32c(body).to_le_bytes() {
        return Err(Damage::Checksum);
    }
    let mut fields = Fields(rest);
    Ok((fields.u32()?, fields))
}

/// Fields that are read from front to back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damage::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damage::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damage> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Damage> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A byte text: its length in 2 bytes, and then its bytes.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// Checks that all remaining bytes are zero.
    pub(crate) fn end(self) -> Result<(), Damage> {
        if self.0.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(Damage::Field("padding")) }
    }
}

/// Adds a text in the form that [`Fields::text`] reads. At most 65,535 bytes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    assert!(u16::try_from(text.len()).is_ok(), "keys are short");
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}
