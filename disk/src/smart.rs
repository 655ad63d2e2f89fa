//! The health report of a disk: SMART attributes of ATA disks, log pages and the list of grown defects of SAS disks.
//!
//! Reading any of it may start a sleeping disk. So [`read_ata`] and [`read_scsi`] first query its mode, which starts
//! none, and read only if its platters are known to turn. The caller knows when that is the case anyway.
//!
//! A value that a disk does not report is `None`, never 0: no alarm may be missed because a page was not understood.
//! Attributes are not standardised; the decoded ones have the same meaning for all makers of hard drives, and only in
//! the low 32 bits of their raw values. Sources: ACS-2 (SMART READ DATA), SPC-4 and SBC-3 (LOG SENSE, READ DEFECT
//! DATA).

#[cfg(test)]
mod tests;

use crate::power::{PowerControl, PowerError, PowerMode};
use crate::scsi::{Command, ScsiTransport, TransportError};
use model::Smart;

/// Length of SMART READ DATA in bytes.
const SMART_BYTES: usize = 512;
/// Its table of attributes: the offset, the number of attributes, and the bytes of each.
const TABLE: usize = 2;
const ATTRIBUTES: usize = 30;
const ATTRIBUTE_BYTES: usize = 12;

const LOG_READ_ERRORS: u8 = 0x03;
const LOG_TEMPERATURE: u8 = 0x0d;
const LOG_START_STOP: u8 = 0x0e;
const LOG_BACKGROUND_SCAN: u8 = 0x15;
const LOG_INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;

/// FAILURE PREDICTION THRESHOLD EXCEEDED, as an additional sense code.
const FAILURE_PREDICTED: u8 = 0x5d;
/// The value that a disk reports for an unknown temperature.
const NO_TEMPERATURE: u8 = 0xff;

/// The reason why the health of a disk is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmartError {
    /// Its platters do not turn, or that is unknown: reading could start it.
    #[error("the disk is not known to be awake, and reading its health could start it")]
    NotAwake(PowerMode),
    /// A command did not reach the disk.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// None of its answers can be read.
    #[error("the disk does not report its health; SMART may be off or not passed on by its bridge")]
    Nothing,
}

/// Reads the health of the ATA disk behind `transport`, if `power` reports that it is awake.
///
/// # Errors
/// [`SmartError`]; a disk that is not awake was only asked for its mode.
pub fn read_ata(transport: &impl ScsiTransport, power: &impl PowerControl) -> Result<Smart, SmartError> {
    awake(power)?;
    let reply = transport.execute(&Command::ata_smart_read_data())?;
    let smart = if reply.is_good() { of_ata(&reply.data) } else { None };
    smart.ok_or(SmartError::Nothing)
}

/// Reads the health of the SAS disk behind `transport`, if `power` reports that it is awake. Pages that it lacks are
/// left out.
///
/// # Errors
/// [`SmartError`]; a disk that is not awake was only asked for its mode.
pub fn read_scsi(transport: &impl ScsiTransport, power: &impl PowerControl) -> Result<Smart, SmartError> {
    awake(power)?;
    let mut smart = Smart::default();
    for page in [LOG_READ_ERRORS, LOG_TEMPERATURE, LOG_START_STOP, LOG_BACKGROUND_SCAN, LOG_INFORMATIONAL_EXCEPTIONS] {
        let reply = transport.execute(&Command::log_sense(page))?;
        if reply.is_good() {
            add_page(&mut smart, page, &reply.data);
        }
    }
    let reply = transport.execute(&Command::read_grown_defects())?;
    if reply.is_good() {
        smart.reallocated_sectors = grown_defects(&reply.data);
    }
    if smart == Smart::default() { Err(SmartError::Nothing) } else { Ok(smart) }
}

fn awake(power: &impl PowerControl) -> Result<(), SmartError> {
    match power.mode() {
        PowerMode::Active => Ok(()),
        PowerMode::Unknown(PowerError::Transport(error)) => Err(error.into()),
        mode => Err(SmartError::NotAwake(mode)),
    }
}

/// Decodes SMART READ DATA; `None` if it is too short, or its checksum is wrong.
pub fn of_ata(bytes: &[u8]) -> Option<Smart> {
    let bytes = bytes.get(..SMART_BYTES)?;
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    if sum != 0 || bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut smart = Smart::default();
    for attribute in bytes[TABLE..].chunks_exact(ATTRIBUTE_BYTES).take(ATTRIBUTES) {
        let raw = Some(u64::from(u32::from_le_bytes([attribute[5], attribute[6], attribute[7], attribute[8]])));
        match attribute[0] {
            4 => smart.starts = raw,
            5 => smart.reallocated_sectors = raw,
            9 => smart.power_on_h = raw,
            193 => smart.loads = raw,
            // The bytes above the temperature are the lowest and the highest with some makers.
            194 => smart.temperature_c = Some(i16::from(attribute[5].cast_signed())),
            197 => smart.pending_sectors = raw,
            198 => smart.uncorrectable = raw,
            199 => smart.link_errors = raw,
            _ => {}
        }
    }
    (smart != Smart::default()).then_some(smart)
}

/// Adds the values of the log page `page` from an answer to LOG SENSE; nothing if that is another page.
fn add_page(smart: &mut Smart, page: u8, bytes: &[u8]) {
    if bytes.first().is_none_or(|first| first & 0x3f != page) {
        return;
    }
    for (code, value) in parameters(bytes) {
        match (page, code) {
            (LOG_READ_ERRORS, 6) => smart.uncorrectable = number(value),
            (LOG_TEMPERATURE, 0) => smart.temperature_c = value.get(1).copied().and_then(celsius),
            (LOG_START_STOP, 3) => smart.starts_rated = number(value).filter(|rated| *rated > 0),
            (LOG_START_STOP, 4) => smart.starts = number(value),
            (LOG_START_STOP, 5) => smart.loads_rated = number(value).filter(|rated| *rated > 0),
            (LOG_START_STOP, 6) => smart.loads = number(value),
            (LOG_BACKGROUND_SCAN, 0) => {
                smart.power_on_h = value.get(..4).and_then(number).map(|minutes| minutes / 60);
            }
            (LOG_INFORMATIONAL_EXCEPTIONS, 0) => {
                smart.predicts_failure = value.first().map(|code| *code == FAILURE_PREDICTED);
            }
            _ => {}
        }
    }
}

/// Degrees Celsius, if they are known.
fn celsius(byte: u8) -> Option<i16> {
    (byte != NO_TEMPERATURE).then_some(i16::from(byte))
}

/// A big-endian number of 1 to 8 bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    (1..=8).contains(&bytes.len()).then(|| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The parameters of a log page: code and value. A cut parameter ends them.
fn parameters(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let length = bytes.get(2..4).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
    let mut rest = bytes.get(4..).unwrap_or_default();
    rest = &rest[..rest.len().min(length)];
    std::iter::from_fn(move || {
        let (head, after) = rest.split_at_checked(4)?;
        let (value, after) = after.split_at_checked(usize::from(head[3]))?;
        rest = after;
        Some((u16::from_be_bytes([head[0], head[1]]), value))
    })
}

/// The number of entries in the list of grown defects, from the head of an answer to READ DEFECT DATA; `None` if it
/// does not have that list, or has entries of unknown size.
fn grown_defects(bytes: &[u8]) -> Option<u64> {
    let head = bytes.get(..4)?;
    let is_there = head[1] & 0x08 != 0;
    let entry_bytes = match head[1] & 0x07 {
        0 => 4,
        3..=5 => 8,
        _ => return None,
    };
    is_there.then(|| u64::from(u16::from_be_bytes([head[2], head[3]])) / entry_bytes)
}
