//! Power control of an ATA disk behind a SCSI translator: the kernel's own (AHCI), a SAS adapter's, or a USB bridge's.
//!
//! CHECK POWER MODE goes through ATA PASS-THROUGH(16) with CK_COND, and its answer counts only if it includes the
//! disk's registers: sense data of descriptor format (72h), code 00/1d, with the descriptor ATA Status Return (09h).
//! Bridges that swallow the command answer GOOD, or reject it; neither shows anything about the platters.
//!
//! A disk is started by START STOP UNIT, which translators turn into a read or verify of a sector, since not every disk
//! starts on IDLE IMMEDIATE. It is stopped by STANDBY IMMEDIATE, which must also return the registers: a translator
//! that records a START STOP UNIT as its own state would answer for the disk.

use super::{Outcome, PowerControl, PowerError, PowerMode, outcome, refused};
use crate::scsi::sense::{NOT_READY, RECOVERED_ERROR};
use crate::scsi::{AtaStatus, Command, ScsiTransport};

/// Power control by ATA commands.
pub struct AtaPower<T> {
    transport: T,
}

impl<T: ScsiTransport> AtaPower<T> {
    /// The control of the disk at `transport`.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Sends an ATA command and returns the registers after its success.
    fn registers(&self, command: &Command) -> Result<AtaStatus, PowerError> {
        let sense = match outcome(&self.transport.execute(command)?)? {
            Outcome::Good => return Err(PowerError::NoAtaStatus),
            Outcome::Sense(sense) => sense,
        };
        match sense.ata {
            Some(ata) if ata.failed() => Err(PowerError::Ata { status: ata.status, error: ata.error }),
            // RECOVERED ERROR or NO SENSE, 00/1d: ATA pass-through information available.
            Some(ata) if sense.key <= RECOVERED_ERROR && (sense.asc, sense.ascq) == (0x00, 0x1d) => Ok(ata),
            None if (sense.asc, sense.ascq) == (0x00, 0x1d) => Err(PowerError::NoAtaStatus),
            _ => Err(refused(sense)),
        }
    }

    /// True if the translator reports that the disk is becoming ready. Only for a disk that is awake.
    fn is_becoming_ready(&self) -> bool {
        let Ok(reply) = self.transport.execute(&Command::test_unit_ready()) else { return false };
        matches!(outcome(&reply), Ok(Outcome::Sense(sense)) if sense.is(NOT_READY, 0x04, 0x01))
    }

    fn checked_mode(&self) -> Result<PowerMode, PowerError> {
        match self.registers(&Command::ata_check_power_mode())?.count {
            // Standby; standby_y. 40h: the platters of a disk with a flash cache have stopped, or soon will.
            0x00 | 0x01 => Ok(PowerMode::Standby),
            // Idle; idle_a to idle_c; active or idle. 41h: spinning, with a flash cache.
            0x41 | 0x80..=0x83 | 0xff if self.is_becoming_ready() => Ok(PowerMode::Starting),
            0x41 | 0x80..=0x83 | 0xff => Ok(PowerMode::Active),
            other => Err(PowerError::UnnamedMode(other)),
        }
    }
}

impl<T: ScsiTransport> PowerControl for AtaPower<T> {
    fn mode(&self) -> PowerMode {
        self.checked_mode().unwrap_or_else(PowerMode::Unknown)
    }

    fn start(&self) -> Result<(), PowerError> {
        match outcome(&self.transport.execute(&Command::start())?)? {
            Outcome::Good => Ok(()),
            Outcome::Sense(sense) => Err(refused(sense)),
        }
    }

    fn stop(&self) -> Result<(), PowerError> {
        self.registers(&Command::ata_standby_immediate()).map(drop)
    }
}
