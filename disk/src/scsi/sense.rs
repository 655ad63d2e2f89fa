//! Sense data: the reason of a CHECK CONDITION, or the answer to REQUEST SENSE (SPC-4, 4.5; SAT-3, 12.2.2.6).

/// Bytes before the descriptors of sense data in descriptor format.
const DESCRIPTORS_OFFSET: usize = 8;
/// ATA Status Return: its type, and the number of bytes after its length.
const ATA_STATUS_RETURN: u8 = 0x09;
const ATA_STATUS_RETURN_BYTES: u8 = 12;

/// Key NO SENSE.
pub const NO_SENSE: u8 = 0x0;
/// Key RECOVERED ERROR.
pub const RECOVERED_ERROR: u8 = 0x1;
/// Key NOT READY.
pub const NOT_READY: u8 = 0x2;
/// Key ILLEGAL REQUEST.
pub const ILLEGAL_REQUEST: u8 = 0x5;
/// Key UNIT ATTENTION: something happened since the last command, which was not executed.
pub const UNIT_ATTENTION: u8 = 0x6;

/// The ATA registers after a command, from the descriptor ATA Status Return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtaStatus {
    /// The status register.
    pub status: u8,
    /// The error register.
    pub error: u8,
    /// The low byte of the count register.
    pub count: u8,
}

impl AtaStatus {
    /// True if the command failed: ERR, DF, or a device that is still busy (BSY).
    pub fn failed(&self) -> bool {
        self.status & (1 | 1 << 5 | 1 << 7) != 0
    }
}

/// Decoded sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The sense key.
    pub key: u8,
    /// The additional sense code.
    pub asc: u8,
    /// Its qualifier.
    pub ascq: u8,
    /// True if it belongs to an earlier command, whose answer was returned long ago.
    pub deferred: bool,
    /// The ATA registers, if a descriptor has them. Fixed format has none.
    pub ata: Option<AtaStatus>,
}

impl Sense {
    /// Decodes sense data; `None` if they are too short or of a format that the standards do not define.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let code = *bytes.first()? & 0x7f;
        let deferred = code & 1 == 1;
        match code {
            0x70 | 0x71 => Some(Self {
                key: bytes.get(2)? & 0x0f,
                asc: bytes.get(12).copied().unwrap_or(0),
                ascq: bytes.get(13).copied().unwrap_or(0),
                deferred,
                ata: None,
            }),
            0x72 | 0x73 => {
                let header = bytes.get(..DESCRIPTORS_OFFSET)?;
                let end = DESCRIPTORS_OFFSET + usize::from(header[7]);
                let descriptors = &bytes[DESCRIPTORS_OFFSET..end.min(bytes.len())];
                Some(Self {
                    key: header[1] & 0x0f,
                    asc: header[2],
                    ascq: header[3],
                    deferred,
                    ata: ata_status(descriptors),
                })
            }
            _ => None,
        }
    }

    /// True if key, code and qualifier have these values.
    pub fn is(&self, key: u8, asc: u8, ascq: u8) -> bool {
        (self.key, self.asc, self.ascq) == (key, asc, ascq)
    }
}

/// The ATA registers in `descriptors`, if a complete descriptor has them.
fn ata_status(descriptors: &[u8]) -> Option<AtaStatus> {
    let mut rest = descriptors;
    while let [kind, bytes, ..] = *rest {
        let whole = rest.get(2..2 + usize::from(bytes))?;
        if kind == ATA_STATUS_RETURN && bytes == ATA_STATUS_RETURN_BYTES {
            // After type and length: extend, error, count (high, low), six of the LBA, device, status.
            return Some(AtaStatus { error: whole[1], count: whole[3], status: whole[11] });
        }
        rest = &rest[2 + usize::from(bytes)..];
    }
    None
}
