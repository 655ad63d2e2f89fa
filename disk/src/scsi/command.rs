//! The commands that are sent to disks: their command descriptor blocks.
//!
//! No other commands can be made, so this file shows everything that may be sent. Sources: SPC-4, SBC-3, and SAT-3 for
//! ATA PASS-THROUGH(16); ACS-3 for the ATA commands.

use super::{QUERY_TIMEOUT, SPIN_TIMEOUT};
use std::time::Duration;

/// ATA PASS-THROUGH(16).
const ATA_PASS_THROUGH: u8 = 0x85;
/// Its protocols, as encoded in the block: without data, and programmed input.
const PROTOCOL_NON_DATA: u8 = 3 << 1;
const PROTOCOL_PIO_IN: u8 = 4 << 1;
/// CK_COND: answer with the ATA registers, also after success.
const CHECK_CONDITION: u8 = 1 << 5;
/// From the disk, in blocks of 512 bytes; the count has their number.
const IN_BLOCKS_BY_COUNT: u8 = 1 << 3 | 1 << 2 | 2;

const CHECK_POWER_MODE: u8 = 0xe5;
const STANDBY_IMMEDIATE: u8 = 0xe0;
const IDENTIFY_DEVICE: u8 = 0xec;
const SMART: u8 = 0xb0;
/// SMART's feature READ DATA, and the LBA that marks a SMART command for the disk.
const SMART_READ_DATA: u8 = 0xd0;
const SMART_LBA_MID: u8 = 0x4f;
const SMART_LBA_HIGH: u8 = 0xc2;

/// The length in bytes of an answer to IDENTIFY DEVICE, and to SMART READ DATA.
const ATA_BLOCK_BYTES: usize = 512;
/// The bytes requested by LOG SENSE: more than any decoded page has.
const LOG_BYTES: u16 = 4096;
/// The length in bytes of the head of a list of defects, which has the list's length.
const DEFECT_HEAD_BYTES: u16 = 4;
/// The bytes requested by INQUIRY: enough for every decoded page (89h is 572).
const INQUIRY_BYTES: u16 = 1024;
/// The bytes requested by REQUEST SENSE.
const SENSE_BYTES: u8 = 252;

/// A command: its descriptor block, the maximum length of its answer, and its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    block: [u8; 16],
    block_bytes: usize,
    data_bytes: usize,
    timeout: Duration,
}

impl Command {
    fn six(block: [u8; 6], data_bytes: usize, timeout: Duration) -> Self {
        let mut padded = [0; 16];
        padded[..6].copy_from_slice(&block);
        Self { block: padded, block_bytes: 6, data_bytes, timeout }
    }

    fn ten(block: [u8; 10], data_bytes: u16, timeout: Duration) -> Self {
        let mut padded = [0; 16];
        padded[..10].copy_from_slice(&block);
        Self { block: padded, block_bytes: 10, data_bytes: usize::from(data_bytes), timeout }
    }

    /// An ATA command without data, which returns the registers.
    fn ata_non_data(command: u8, timeout: Duration) -> Self {
        let mut block = [0; 16];
        block[..3].copy_from_slice(&[ATA_PASS_THROUGH, PROTOCOL_NON_DATA, CHECK_CONDITION]);
        block[14] = command;
        Self { block, block_bytes: 16, data_bytes: 0, timeout }
    }

    /// TEST UNIT READY. Fails on a stopped disk, and a failure reaches the kernel's error handling: query with
    /// [`Command::request_sense`] first.
    pub fn test_unit_ready() -> Self {
        Self::six([0x00, 0, 0, 0, 0, 0], 0, QUERY_TIMEOUT)
    }

    /// REQUEST SENSE, in descriptor or fixed format as the disk chooses. Succeeds on a stopped disk.
    pub fn request_sense() -> Self {
        Self::six([0x03, 0, 0, 0, SENSE_BYTES, 0], usize::from(SENSE_BYTES), QUERY_TIMEOUT)
    }

    /// INQUIRY, standard data.
    pub fn inquiry() -> Self {
        let [high, low] = INQUIRY_BYTES.to_be_bytes();
        Self::six([0x12, 0, 0, high, low, 0], usize::from(INQUIRY_BYTES), QUERY_TIMEOUT)
    }

    /// INQUIRY, a page of vital product data.
    pub fn inquiry_page(page: u8) -> Self {
        let [high, low] = INQUIRY_BYTES.to_be_bytes();
        Self::six([0x12, 1, page, high, low, 0], usize::from(INQUIRY_BYTES), QUERY_TIMEOUT)
    }

    /// START STOP UNIT with START and IMMED: the answer may come before the platters are at speed, or only then.
    pub fn start() -> Self {
        Self::six([0x1b, 1, 0, 0, 1, 0], 0, SPIN_TIMEOUT)
    }

    /// START STOP UNIT with IMMED and without START: writes the disk's cache back and stops the platters.
    pub fn stop() -> Self {
        Self::six([0x1b, 1, 0, 0, 0, 0], 0, SPIN_TIMEOUT)
    }

    /// ATA CHECK POWER MODE.
    pub fn ata_check_power_mode() -> Self {
        Self::ata_non_data(CHECK_POWER_MODE, QUERY_TIMEOUT)
    }

    /// ATA STANDBY IMMEDIATE: writes the disk's cache back and stops the platters.
    pub fn ata_standby_immediate() -> Self {
        Self::ata_non_data(STANDBY_IMMEDIATE, SPIN_TIMEOUT)
    }

    /// ATA IDENTIFY DEVICE. Does not start the platters.
    pub fn ata_identify() -> Self {
        let mut block = [0; 16];
        block[..3].copy_from_slice(&[ATA_PASS_THROUGH, PROTOCOL_PIO_IN, IN_BLOCKS_BY_COUNT]);
        block[6] = 1;
        block[14] = IDENTIFY_DEVICE;
        Self { block, block_bytes: 16, data_bytes: ATA_BLOCK_BYTES, timeout: QUERY_TIMEOUT }
    }

    /// ATA SMART READ DATA: the attributes. May start the platters: for disks that are awake.
    pub fn ata_smart_read_data() -> Self {
        let mut block = Self::ata_identify().block;
        (block[4], block[10], block[12], block[14]) = (SMART_READ_DATA, SMART_LBA_MID, SMART_LBA_HIGH, SMART);
        Self { block, block_bytes: 16, data_bytes: ATA_BLOCK_BYTES, timeout: QUERY_TIMEOUT }
    }

    /// LOG SENSE, the cumulative values of a page. May start the platters: for disks that are awake.
    pub fn log_sense(page: u8) -> Self {
        let [high, low] = LOG_BYTES.to_be_bytes();
        Self::ten([0x4d, 0, 0x40 | page, 0, 0, 0, 0, high, low, 0], LOG_BYTES, QUERY_TIMEOUT)
    }

    /// READ DEFECT DATA(10), the head of the list of grown defects. May start the platters: for disks that are awake.
    pub fn read_grown_defects() -> Self {
        let [high, low] = DEFECT_HEAD_BYTES.to_be_bytes();
        Self::ten([0x37, 0, 0x08 | 5, 0, 0, 0, 0, high, low, 0], DEFECT_HEAD_BYTES, QUERY_TIMEOUT)
    }

    /// The descriptor block, 6, 10 or 16 bytes.
    pub fn block(&self) -> &[u8] {
        &self.block[..self.block_bytes]
    }

    /// Maximum length of its answer in bytes.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Its timeout.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_standards() {
        assert_eq!(Command::test_unit_ready().block(), [0; 6]);
        assert_eq!(Command::start().block(), [0x1b, 1, 0, 0, 1, 0]);
        assert_eq!(Command::stop().block(), [0x1b, 1, 0, 0, 0, 0]);
        assert_eq!(Command::inquiry_page(0x80).block(), [0x12, 1, 0x80, 4, 0, 0]);
        // SAT-3, 12.2.2.3: protocol, flags, features, count, LBA, device, command, control.
        let block = [0x85, 0x06, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe5, 0];
        assert_eq!(Command::ata_check_power_mode().block(), block);
        let block = [0x85, 0x06, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe0, 0];
        assert_eq!(Command::ata_standby_immediate().block(), block);
        let block = [0x85, 0x08, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0];
        assert_eq!(Command::ata_identify().block(), block);
        // ACS-2, 7.48.6: features D0h, LBA C24Fxxh.
        let block = [0x85, 0x08, 0x0e, 0, 0xd0, 0, 1, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0xb0, 0];
        assert_eq!(Command::ata_smart_read_data().block(), block);
        assert_eq!(Command::log_sense(0x0e).block(), [0x4d, 0, 0x4e, 0, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!(Command::read_grown_defects().block(), [0x37, 0, 0x0d, 0, 0, 0, 0, 0, 4, 0]);
    }
}
