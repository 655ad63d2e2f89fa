//! The 4 KiB block, the unit of headers, footers, checksum pages and labels.
//!
//! A block is a magic of 8 bytes, a format version, fields in little-endian order without gaps, zeros, and in its last
//! 4 bytes a CRC-32C over everything before. Invariant: a block that decodes encodes to the same bytes again, so
//! nothing can hide in one.

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a block: the sector of a 4Kn drive.
pub const BLOCK_BYTES: usize = 4096;

/// The only format version that this code writes and reads. From 2 on, every version will always be readable.
pub const FORMAT_VERSION: u32 = 2;

/// Offset of the checksum in a block.
const SEAL_OFFSET: usize = BLOCK_BYTES - 4;

/// The reason why bytes are not the expected block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Fewer or more bytes than a block has.
    #[error("{0} bytes are not a block of 4096")]
    Length(usize),
    /// Zeros: a block that was never written.
    #[error("it was never written")]
    Blank,
    /// It begins with something else.
    #[error("it is no {expected}: the magic does not match")]
    Magic {
        /// The expected kind of block, for people.
        expected: &'static str,
    },
    /// Another version wrote it.
    #[error("{}", other_version(*.0))]
    Version(u32),
    /// The checksum does not match: it is damaged, or was written in part.
    #[error("its checksum does not match")]
    Checksum,
    /// The checksum matches, but a field has an impossible value.
    #[error("its {0} cannot be right")]
    Field(&'static str),
}

/// A block of another format version, in words.
pub(crate) fn other_version(version: u32) -> String {
    if version < FORMAT_VERSION {
        format!(
            "it was written by an earlier trial version of Larder (format {version}; this one reads {FORMAT_VERSION}): \
             copy your data out with that version, and begin with a new data directory"
        )
    } else {
        format!(
            "it has format version {version}, and this Larder reads {FORMAT_VERSION}: use the newer one that wrote it"
        )
    }
}

/// The checksum in a block.
pub(crate) fn seal_of(block: &[u8]) -> u32 {
    let seal = block[SEAL_OFFSET..].first_chunk().expect("a block ends with its checksum");
    u32::from_le_bytes(*seal)
}

/// CRC-32C (Castagnoli) of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A running CRC-32C.
pub(crate) fn crc32c_digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc32Iscsi)
}

/// Writes the fields of a block from front to back.
pub(crate) struct BlockEncoder<'a> {
    block: &'a mut [u8],
    at: usize,
}

impl<'a> BlockEncoder<'a> {
    /// Starts a block in `block`, which must have [`BLOCK_BYTES`] bytes.
    pub(crate) fn new(block: &'a mut [u8], magic: [u8; 8]) -> Self {
        assert_eq!(block.len(), BLOCK_BYTES, "a block has its size");
        block.fill(0);
        let mut writer = Self { block, at: 0 };
        writer.put(&magic);
        writer.put(&FORMAT_VERSION.to_le_bytes());
        writer
    }

    /// Adds a field.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        assert!(end <= SEAL_OFFSET, "the fields of a block leave room for its checksum");
        self.block[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }

    /// Leaves zeros up to `offset`.
    pub(crate) fn skip_to(&mut self, offset: usize) {
        assert!(self.at <= offset && offset <= SEAL_OFFSET, "fields lie in order");
        self.at = offset;
    }

    /// Writes the checksum, which completes the block.
    pub(crate) fn seal(self) {
        assert!(self.at > 8, "a sealed block has its magic and version");
        let crc = crc32c(&self.block[..SEAL_OFFSET]);
        self.block[SEAL_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads the fields of a block from front to back.
pub(crate) struct BlockDecoder<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> BlockDecoder<'a> {
    /// Checks everything that can be checked without knowing the fields: length, magic, version, checksum.
    pub(crate) fn open(block: &'a [u8], magic: [u8; 8], expected: &'static str) -> Result<Self, FormatError> {
        if block.len() != BLOCK_BYTES {
            return Err(FormatError::Length(block.len()));
        }
        if block.iter().all(|&byte| byte == 0) {
            return Err(FormatError::Blank);
        }
        if block[..8] != magic {
            return Err(FormatError::Magic { expected });
        }
        let mut reader = Self { block, at: SEAL_OFFSET };
        if reader.u32() != crc32c(&block[..SEAL_OFFSET]) {
            return Err(FormatError::Checksum);
        }
        reader.at = 8;
        match reader.u32() {
            FORMAT_VERSION => Ok(reader),
            other => Err(FormatError::Version(other)),
        }
    }

    /// The next `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.block[self.at..self.at + N]);
        self.at += N;
        field
    }

    /// The next `len` bytes.
    pub(crate) fn slice(&mut self, len: usize) -> &'a [u8] {
        self.at += len;
        &self.block[self.at - len..self.at]
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Everything up to `offset` must be zeros.
    pub(crate) fn zeros_to(&mut self, offset: usize) -> Result<(), FormatError> {
        let zeros = self.slice(offset - self.at).iter().all(|&byte| byte == 0);
        if zeros { Ok(()) } else { Err(FormatError::Field("reserved bytes")) }
    }

    /// Everything up to the checksum must be zeros: there are no more fields.
    pub(crate) fn finish(mut self) -> Result<(), FormatError> {
        self.zeros_to(SEAL_OFFSET)
    }
}
