//! Commands to a disk below its file system: SCSI, and ATA inside SCSI (SAT's ATA PASS-THROUGH).
//!
//! [`ScsiTransport`] is the seam: one command out, its answer back. [`SgDevice`] asks the kernel by SG_IO,
//! [`Replay`] answers what was recorded. What the bytes mean is decoded by [`Sense`], [`inquiry`] and
//! [`AtaIdentity`], without I/O.
//!
//! Invariants:
//! - no command carries data to the disk: a [`Command`] can only read, so nothing here can overwrite a byte of it;
//! - none of the commands that [`Command`] makes starts the platters, but [`Command::start`], and some disks upon those
//!   for [`crate::smart`], which asks only disks that are awake;
//! - no bytes that a disk, a bridge or an enclosure answers make a decoder panic.

mod command;
mod identify;
pub mod inquiry;
mod replay;
pub mod sense;
mod sg;
#[cfg(test)]
pub(crate) mod tests;

pub use command::Command;
pub use identify::AtaIdentity;
pub use replay::{Recorded, Replay};
pub use sense::{AtaStatus, Sense};
pub use sg::SgDevice;

use std::time::Duration;

/// Status GOOD.
pub const STATUS_GOOD: u8 = 0x00;
/// Status CHECK CONDITION: the sense data say more.
pub const STATUS_CHECK_CONDITION: u8 = 0x02;
/// The host adapter's answer in time (DID_OK).
pub const HOST_OK: u16 = 0;
/// No device there (DID_NO_CONNECT).
pub const HOST_NO_CONNECT: u16 = 1;
/// No answer in time (DID_TIME_OUT).
pub const HOST_TIME_OUT: u16 = 3;
/// No such target any more (DID_BAD_TARGET).
pub const HOST_BAD_TARGET: u16 = 4;

/// The answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The SCSI status.
    pub status: u8,
    /// The host adapter's status; 0 is success.
    pub host_status: u16,
    /// The sense data, as many bytes as were written.
    pub sense: Vec<u8>,
    /// The data, as many bytes as were transferred.
    pub data: Vec<u8>,
}

impl Reply {
    /// True if the command was carried out, and nothing was wrong.
    pub fn is_good(&self) -> bool {
        (self.host_status, self.status) == (HOST_OK, STATUS_GOOD)
    }
}

/// The reason why a command was not carried to the disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The disk is not there any more.
    #[error("the disk is gone")]
    Gone,
    /// This process may not send commands to it.
    #[error("no permission to send commands to the disk; run as root, or with CAP_SYS_RAWIO and read access to it")]
    NotPermitted,
    /// The kernel's driver of this disk takes no SCSI commands.
    #[error("the disk takes no SCSI commands")]
    Unsupported,
    /// Another error of the operating system.
    #[error("system error {0} while a command was sent to the disk")]
    System(i32),
}

/// The way of commands to one disk. Calls block until the answer is there, for at most the command's timeout and what
/// the kernel's error handling adds to it.
pub trait ScsiTransport: Send + Sync {
    /// Sends `command` and returns its answer, also where that is an error of the disk's.
    fn execute(&self, command: &Command) -> Result<Reply, TransportError>;
}

impl<T: ScsiTransport + ?Sized> ScsiTransport for &T {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        (**self).execute(command)
    }
}

impl<T: ScsiTransport + ?Sized> ScsiTransport for Box<T> {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        (**self).execute(command)
    }
}

/// The time for a command that asks something: a disk that is awake answers in milliseconds, and one that is asleep
/// from its electronics.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for a command that moves platters. Some translators answer a start only at full speed, which takes a disk
/// up to 30 s, and one on a cold or aged spindle longer.
pub const SPIN_TIMEOUT: Duration = Duration::from_secs(90);
