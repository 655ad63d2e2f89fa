//! A disk's answers to INQUIRY: standard data and pages of vital product data (SPC-4, 6.6 and 7.8; SBC-3, 6.6).
//!
//! The kernel reads most of these once, when it finds the disk, and provides copies below /sys. So they are decoded
//! here from any source, and a sleeping disk is not asked for them again.

/// Unit Serial Number.
pub const PAGE_SERIAL: u8 = 0x80;
/// Device Identification.
pub const PAGE_IDENTIFICATION: u8 = 0x83;
/// ATA Information: only translators of ATA disks have it.
pub const PAGE_ATA: u8 = 0x89;
/// Block Device Characteristics.
pub const PAGE_CHARACTERISTICS: u8 = 0xb1;

/// The range of the answer to IDENTIFY DEVICE on the page ATA Information.
const ATA_IDENTIFY: std::ops::Range<usize> = 60..60 + 512;
/// Bytes before the payload of a page.
const HEADER_BYTES: usize = 4;

/// The standard data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The peripheral device type: 0 is a disk, 0x14 a host-managed zoned disk, 0x0d an enclosure.
    pub device_type: u8,
    /// The vendor; `ATA` for ATA disks behind a translator.
    pub vendor: String,
    /// The model, cut to 16 characters by the format.
    pub model: String,
    /// The firmware's revision.
    pub revision: String,
}

impl Inquiry {
    /// Decodes standard data; `None` if they are too short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let fixed = bytes.get(..36)?;
        Some(Self {
            device_type: fixed[0] & 0x1f,
            vendor: text(&fixed[8..16]),
            model: text(&fixed[16..32]),
            revision: text(&fixed[32..36]),
        })
    }
}

/// Printable ASCII, without surrounding spaces; other bytes are left out.
pub fn text(bytes: &[u8]) -> String {
    let printable: String = bytes.iter().filter(|b| (0x20..0x7f).contains(*b)).map(|b| char::from(*b)).collect();
    printable.trim().to_owned()
}

/// The payload of `page`; `None` if the bytes belong to another page, or the length does not fit.
fn payload(page: u8, bytes: &[u8]) -> Option<&[u8]> {
    let header = bytes.get(..HEADER_BYTES)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[1] == page { bytes.get(HEADER_BYTES..HEADER_BYTES + length) } else { None }
}

/// The serial number on page 80h; `None` if it has none.
pub fn serial(bytes: &[u8]) -> Option<String> {
    payload(PAGE_SERIAL, bytes).map(text).filter(|serial| !serial.is_empty())
}

/// The World Wide Name of the disk itself on page 83h, in the notation of sysfs (`naa.5000c500a1b2c3d4`, `eui...`).
/// Names of its ports do not count. A NAA name is preferred, the longest first.
pub fn wwn(bytes: &[u8]) -> Option<String> {
    let mut best: Option<(bool, usize, String)> = None;
    let mut rest = payload(PAGE_IDENTIFICATION, bytes)?;
    while let [code_set, kind, _, length, ..] = *rest {
        let Some(name) = rest.get(HEADER_BYTES..HEADER_BYTES + usize::from(length)) else { break };
        let (binary, of_disk) = (code_set & 0x0f == 1, kind & 0x30 == 0);
        let prefix = match kind & 0x0f {
            3 => Some("naa"),
            2 => Some("eui"),
            _ => None,
        };
        if let Some(prefix) = prefix.filter(|_| binary && of_disk && !name.is_empty()) {
            let spelled = name.iter().fold(format!("{prefix}."), |text, byte| text + &format!("{byte:02x}"));
            let found = (prefix == "naa", name.len(), spelled);
            if best.as_ref().is_none_or(|best| (found.0, found.1) > (best.0, best.1)) {
                best = Some(found);
            }
        }
        rest = &rest[HEADER_BYTES + usize::from(length)..];
    }
    best.map(|(_, _, name)| name)
}

/// The answer to IDENTIFY DEVICE on page 89h, 512 bytes.
pub fn ata_identify(bytes: &[u8]) -> Option<&[u8]> {
    payload(PAGE_ATA, bytes)?;
    bytes.get(ATA_IDENTIFY)
}

/// The rotation rate in revolutions per minute on page B1h; 0 for a disk that reports no platters, `None` if it reports
/// nothing.
pub fn rotation_rpm(bytes: &[u8]) -> Option<u16> {
    let page = payload(PAGE_CHARACTERISTICS, bytes)?;
    rotation_of(u16::from_be_bytes([*page.first()?, *page.get(1)?]))
}

/// The rotation rate in the common encoding of SBC and ACS: 0 not reported, 1 no platters, 0x401 to 0xfffe per minute.
pub(super) fn rotation_of(code: u16) -> Option<u16> {
    match code {
        1 => Some(0),
        0x401..=0xfffe => Some(code),
        _ => None,
    }
}
