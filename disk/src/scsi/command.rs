//! The commands that are sent to disks: their command descriptor blocks.
//!
//! There is no way to make another one, so that what may be sent is read here. Sources: SPC-4, SBC-3, and SAT-3 for ATA
//! PASS-THROUGH(16); ACS-3 for the ATA commands.

use super::{QUERY_TIMEOUT, SPIN_TIMEOUT};
use std::time::Duration;

/// ATA PASS-THROUGH(16).
const ATA_PASS_THROUGH: u8 = 0x85;
/// Its protocols, where the block has them: without data, and programmed input.
const PROTOCOL_NON_DATA: u8 = 3 << 1;
const PROTOCOL_PIO_IN: u8 = 4 << 1;
/// CK_COND: answer with the ATA registers, also after success.
const CHECK_CONDITION: u8 = 1 << 5;
/// From the disk, in blocks of 512 bytes, as many as the count says.
const IN_BLOCKS_BY_COUNT: u8 = 1 << 3 | 1 << 2 | 2;

const CHECK_POWER_MODE: u8 = 0xe5;
const STANDBY_IMMEDIATE: u8 = 0xe0;
const IDENTIFY_DEVICE: u8 = 0xec;

/// The bytes of an IDENTIFY DEVICE answer.
const IDENTIFY_BYTES: usize = 512;
/// The bytes asked of INQUIRY: enough for every page that is decoded (89h is 572).
const INQUIRY_BYTES: u16 = 1024;
/// The bytes asked of REQUEST SENSE.
const SENSE_BYTES: u8 = 252;

/// A command: its descriptor block, the data it may answer, and how long it may take.
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

    /// An ATA command without data, whose registers are answered.
    fn ata_non_data(command: u8, timeout: Duration) -> Self {
        let mut block = [0; 16];
        block[..3].copy_from_slice(&[ATA_PASS_THROUGH, PROTOCOL_NON_DATA, CHECK_CONDITION]);
        block[14] = command;
        Self { block, block_bytes: 16, data_bytes: 0, timeout }
    }

    /// TEST UNIT READY. Fails on a stopped disk, and what fails reaches the kernel's error handling: ask by
    /// [`Command::request_sense`] first.
    pub fn test_unit_ready() -> Self {
        Self::six([0x00, 0, 0, 0, 0, 0], 0, QUERY_TIMEOUT)
    }

    /// REQUEST SENSE, descriptor format or fixed as the disk likes. Succeeds on a stopped disk.
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

    /// START STOP UNIT with START and IMMED: the answer may come before the platters turn at speed, or only then.
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
        Self { block, block_bytes: 16, data_bytes: IDENTIFY_BYTES, timeout: QUERY_TIMEOUT }
    }

    /// The descriptor block, 6 or 16 bytes.
    pub fn block(&self) -> &[u8] {
        &self.block[..self.block_bytes]
    }

    /// The bytes of data that it may answer at most.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// The time it may take.
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
    }
}
