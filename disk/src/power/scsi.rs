//! Power control of a SCSI disk, which today is a SAS disk.
//!
//! The mode is first queried by REQUEST SENSE, which succeeds on a stopped disk and has its state in the data. TEST
//! UNIT READY follows only if that shows no stopped disk: a command that fails with 2/04/02 reaches the kernel's error
//! handling, and if `allow_restart` is 1, as SAS drivers set it, the error handling sends a START after failed I/O.
//! (Linux 6.1 was not seen to do so for TEST UNIT READY by SG_IO; nothing guarantees that for other versions.)
//!
//! States (SPC-4, 5.12 and annex on additional sense codes; SBC-3, 4.20):
//!
//! | sense | platters |
//! |---|---|
//! | 2/04/02 initializing command required | stopped by START STOP UNIT: standby |
//! | 2/04/01 becoming ready; 2/04/1c additional power use not yet granted | starting, or when its port lets it |
//! | 0/5e/02, 04, 09, 0a in the data of REQUEST SENSE | standby_z or standby_y, by timer or command |
//! | 0/5e/01, 03, 05 to 08 | idle: turning, perhaps slower |
//! | 0/00/00, and TEST UNIT READY is GOOD | turning |

use super::{Outcome, PowerControl, PowerError, PowerMode, outcome, refused};
use crate::scsi::sense::{NO_SENSE, NOT_READY, UNIT_ATTENTION};
use crate::scsi::{Command, ScsiTransport, Sense};

/// Maximum number of times that a command is sent because the disk first reports an event (UNIT ATTENTION), like a
/// reset.
const ATTENTIONS_MAX: usize = 4;

/// Power control by SCSI commands.
pub struct ScsiPower<T> {
    transport: T,
}

impl<T: ScsiTransport> ScsiPower<T> {
    /// The control of the disk at `transport`.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Sends `command` until the disk has no events to report before it.
    fn answer(&self, command: &Command) -> Result<Outcome, PowerError> {
        for _ in 0..ATTENTIONS_MAX {
            match outcome(&self.transport.execute(command)?)? {
                Outcome::Sense(sense) if sense.key == UNIT_ATTENTION => {}
                other => return Ok(other),
            }
        }
        Err(PowerError::KeepsReporting)
    }

    fn succeed(&self, command: &Command) -> Result<(), PowerError> {
        match self.answer(command)? {
            Outcome::Good => Ok(()),
            Outcome::Sense(sense) => Err(refused(sense)),
        }
    }

    /// The sense data that REQUEST SENSE returns for the present state of the disk.
    fn current_sense(&self) -> Result<Sense, PowerError> {
        for _ in 0..ATTENTIONS_MAX {
            let reply = self.transport.execute(&Command::request_sense())?;
            let sense = match outcome(&reply)? {
                Outcome::Good => Sense::decode(&reply.data).ok_or(PowerError::Status(reply.status))?,
                Outcome::Sense(sense) => return Err(refused(sense)),
            };
            // An event, or the result of an earlier command, is reported once, and then the state.
            if sense.key != UNIT_ATTENTION && !sense.deferred {
                return Ok(sense);
            }
        }
        Err(PowerError::KeepsReporting)
    }

    fn checked_mode(&self) -> Result<PowerMode, PowerError> {
        let sense = self.current_sense()?;
        match (sense.key, sense.asc, sense.ascq) {
            (NO_SENSE, 0x5e, 0x02 | 0x04 | 0x09 | 0x0a) => Ok(PowerMode::Standby),
            (NO_SENSE, 0x5e, 0x01 | 0x03 | 0x05..=0x08) => Ok(PowerMode::Active),
            (NO_SENSE, 0x00, _) => match self.answer(&Command::test_unit_ready())? {
                Outcome::Good => Ok(PowerMode::Active),
                Outcome::Sense(sense) => not_ready(sense),
            },
            _ => not_ready(sense),
        }
    }
}

/// The mode for NOT READY.
fn not_ready(sense: Sense) -> Result<PowerMode, PowerError> {
    match (sense.key, sense.asc, sense.ascq) {
        (NOT_READY, 0x04, 0x02) => Ok(PowerMode::Standby),
        (NOT_READY, 0x04, 0x01 | 0x1c) => Ok(PowerMode::Starting),
        _ => Err(refused(sense)),
    }
}

impl<T: ScsiTransport> PowerControl for ScsiPower<T> {
    fn mode(&self) -> PowerMode {
        self.checked_mode().unwrap_or_else(PowerMode::Unknown)
    }

    fn start(&self) -> Result<(), PowerError> {
        self.succeed(&Command::start())
    }

    fn stop(&self) -> Result<(), PowerError> {
        self.succeed(&Command::stop())
    }
}
