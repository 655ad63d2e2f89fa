//! Power control of a real disk: is it asleep, start it, stop it.
//!
//! [`PowerControl`] is the interface, with three kinds: [`AtaPower`] (SATA disks, also behind a translator),
//! [`ScsiPower`] (SAS disks), [`CommandPower`] (an operator's command: enclosures, relays). [`trial`] finds out by
//! stopping and starting a disk whether its control works as reported.
//!
//! A disk in an unknown state is [`PowerMode::Unknown`], with the reason. Silence, a rejected command, or an answer
//! without the registers that would prove it never counts as "asleep" or as "awake".
//!
//! Invariants: a query of the mode never starts a disk; only `start` does. Calls block, for at most the timeouts of
//! [`crate::scsi`]; a [`DeadlineDrive`](crate::DeadlineDrive) limits the wait for them.

mod ata;
mod command;
mod scsi;
#[cfg(test)]
mod tests;
pub mod trial;

pub use ata::AtaPower;
pub use command::{COMMAND_OUTPUT_BYTES, CommandPower};
pub use scsi::ScsiPower;

use crate::scsi::{
    HOST_BAD_TARGET, HOST_NO_CONNECT, HOST_OK, HOST_TIME_OUT, Reply, STATUS_CHECK_CONDITION, STATUS_GOOD, Sense,
    TransportError,
};
use std::time::Duration;

/// The state of a disk's platters, as the disk reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerMode {
    /// They have stopped.
    Standby,
    /// They are on their way to speed, or may start at any moment.
    Starting,
    /// They turn, at full speed or a lower one.
    Active,
    /// Unknown. A caller with a power budget must count the disk as spinning.
    Unknown(PowerError),
}

/// The reason why a command of power control failed, or why its answer is useless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PowerError {
    /// The command did not reach the disk.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The host adapter had no answer from the disk in time.
    #[error("the disk did not answer in time")]
    NoAnswer,
    /// Another failure of the host adapter; its status, in the kernel's numbering.
    #[error("the host adapter failed (host status {0:#04x})")]
    HostAdapter(u16),
    /// The disk, or a bridge to it, refused the command, or is not ready for another reason: sense key, additional code
    /// and qualifier.
    #[error("the disk answered with sense {key:x}/{asc:02x}/{ascq:02x}")]
    Refused {
        /// The sense key.
        key: u8,
        /// The additional sense code.
        asc: u8,
        /// Its qualifier.
        ascq: u8,
    },
    /// The answer has a status without sense data to explain it.
    #[error("the disk answered with status {0:#04x} and nothing more")]
    Status(u8),
    /// The ATA registers are missing from the answer, so it is unknown whether an ATA disk received the command.
    #[error("the answer does not show that the command reached an ATA disk; bridges that swallow commands do this")]
    NoAtaStatus,
    /// The ATA disk failed the command.
    #[error("the disk failed the ATA command (status {status:#04x}, error {error:#04x})")]
    Ata {
        /// The status register.
        status: u8,
        /// The error register.
        error: u8,
    },
    /// CHECK POWER MODE returned a value that ACS-3 does not define.
    #[error("the disk answered power mode {0:#04x}, which has no meaning")]
    UnnamedMode(u8),
    /// The disk keeps reporting events since the last command.
    #[error("the disk reports one event after another instead of answering")]
    KeepsReporting,
    /// The operator's command could not be run.
    #[error("the power command {command} cannot be run: {reason}")]
    CommandNotRun {
        /// The program.
        command: String,
        /// The system's error.
        reason: String,
    },
    /// The operator's command did not end in time, and was killed.
    #[error("the power command {command} did not end within {timeout:?}, and was killed")]
    CommandTimeout {
        /// The program.
        command: String,
        /// The time limit.
        timeout: Duration,
    },
    /// The operator's command failed.
    #[error("the power command {command} failed ({status}): {output}")]
    CommandFailed {
        /// The program.
        command: String,
        /// The exit status.
        status: String,
        /// The last line of its standard error.
        output: String,
    },
    /// The operator's command reports that it does not know the state, or an undefined word.
    #[error("the power command {command} answered `{answer}` for a state; it must be standby, starting or active")]
    CommandAnswer {
        /// The program.
        command: String,
        /// The first word of its standard output.
        answer: String,
    },
    /// The disk accepted a stop, and still reports that it spins.
    #[error("the disk accepts a stop but still reports that it spins; try it with `larder drive power ... test`")]
    StopIgnored,
    /// This disk's power cannot be controlled.
    #[error("its power cannot be controlled: {0}")]
    NoControl(&'static str),
}

/// Power control of one disk. Calls block.
pub trait PowerControl: Send + Sync {
    /// The state of the platters. Never starts them.
    fn mode(&self) -> PowerMode;

    /// Starts the platters. May return before they are at speed: [`PowerControl::mode`] shows when they are.
    fn start(&self) -> Result<(), PowerError>;

    /// Stops the platters. May return before they have stopped. The caller must unmount first, or the next write of a
    /// mounted file system starts them again.
    fn stop(&self) -> Result<(), PowerError>;
}

/// A disk without power control: its mode is never known, and commands fail.
pub struct NoPower {
    reason: &'static str,
}

impl NoPower {
    /// No control, because of `reason`.
    pub fn new(reason: &'static str) -> Self {
        Self { reason }
    }

    fn error(&self) -> PowerError {
        PowerError::NoControl(self.reason)
    }
}

impl PowerControl for NoPower {
    fn mode(&self) -> PowerMode {
        PowerMode::Unknown(self.error())
    }

    fn start(&self) -> Result<(), PowerError> {
        Err(self.error())
    }

    fn stop(&self) -> Result<(), PowerError> {
        Err(self.error())
    }
}

/// The result in a reply: success, or sense data with the reason.
enum Outcome {
    Good,
    Sense(Sense),
}

/// Evaluates a reply; an error if it did not come from the disk, or is useless.
fn outcome(reply: &Reply) -> Result<Outcome, PowerError> {
    match reply.host_status {
        HOST_OK => {}
        HOST_TIME_OUT => return Err(PowerError::NoAnswer),
        HOST_NO_CONNECT | HOST_BAD_TARGET => return Err(TransportError::Gone.into()),
        other => return Err(PowerError::HostAdapter(other)),
    }
    match reply.status {
        STATUS_GOOD => Ok(Outcome::Good),
        // Sense data of an earlier command do not answer this one.
        STATUS_CHECK_CONDITION => match Sense::decode(&reply.sense) {
            Some(sense) if !sense.deferred => Ok(Outcome::Sense(sense)),
            _ => Err(PowerError::Status(STATUS_CHECK_CONDITION)),
        },
        other => Err(PowerError::Status(other)),
    }
}

/// The error for `sense`.
fn refused(sense: Sense) -> PowerError {
    PowerError::Refused { key: sense.key, asc: sense.asc, ascq: sense.ascq }
}
