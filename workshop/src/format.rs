//! The common parts of all formats of the workshop: little-endian fields, magic numbers, and the errors of decoding.
//!
//! Invariant: no input makes a decoder panic or take more memory than a small multiple of the input's
//! length.

/// The reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They begin with another magic number.
    #[error("it is of another kind, or incomplete")]
    Magic,
    /// They have a format version that this Larder does not know.
    #[error("it is of format version {0}, and this Larder does not know it: use the newer one that wrote it")]
    Version(u32),
    /// They have a format version from before the first one that stays supported.
    #[error("it was written by an earlier trial version of Larder (format {0}), which this one does not read")]
    Trial(u32),
    /// They end too early, or too late.
    #[error("it has the wrong length")]
    Length,
    /// Their checksum is wrong.
    #[error("its checksum is wrong")]
    Checksum,
    /// A field contradicts another, or is outside its range.
    #[error("its {0} cannot be right")]
    Field(&'static str),
}

/// An error unless `version` is `read`, the only supported version so far.
pub(crate) fn check_version(version: u32, read: u32) -> Result<(), FormatError> {
    match version {
        version if version == read => Ok(()),
        version if version < read => Err(FormatError::Trial(version)),
        version => Err(FormatError::Version(version)),
    }
}

/// CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Reads fields from the front of bytes.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// A reader of all of `bytes`.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `bytes` bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(FormatError::Length)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(FormatError::Length)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A byte.
    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length in four bytes, and this number of bytes of UTF-8.
    pub(crate) fn text(&mut self) -> Result<String, FormatError> {
        let bytes = self.u32()? as usize;
        let text = std::str::from_utf8(self.take(bytes)?).map_err(|_| FormatError::Field("text"))?;
        Ok(text.to_owned())
    }

    /// The next `bytes` bytes, which must be zeros.
    pub(crate) fn zeros(&mut self, bytes: usize) -> Result<(), FormatError> {
        let zeros = self.take(bytes)?.iter().all(|byte| *byte == 0);
        if zeros { Ok(()) } else { Err(FormatError::Field("reserved bytes")) }
    }

    /// True if nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
