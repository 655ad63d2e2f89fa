//! Commands to a disk below its file system: SCSI, and ATA inside SCSI (SAT's ATA PASS-THROUGH).
//!
//! [`ScsiTransport`] is the interface: one command out, its answer back. [`SgDevice`] sends it to the kernel by SG_IO,
//! [`Replay`] returns recorded answers. [`Sense`], [`inquiry`] and [`AtaIdentity`] decode the bytes, without I/O.
//!
//! Invariants:
//! - no command carries data to the disk: a [`Command`] can only read, so nothing here can overwrite a byte of it;
//! - of the commands that [`Command`] makes only [`Command::start`] starts the platters, and for some disks those for
//!   [`crate::smart`], which queries only disks that are awake;
//! - no answer of a disk, a bridge or an enclosure makes a decoder panic.

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
/// Status CHECK CONDITION: the sense data have details.
pub const STATUS_CHECK_CONDITION: u8 = 0x02;
/// The host adapter's answer in time (DID_OK).
pub const HOST_OK: u16 = 0;
/// The device does not exist (DID_NO_CONNECT).
pub const HOST_NO_CONNECT: u16 = 1;
/// No answer in time (DID_TIME_OUT).
pub const HOST_TIME_OUT: u16 = 3;
/// The target no longer exists (DID_BAD_TARGET).
pub const HOST_BAD_TARGET: u16 = 4;

/// The answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The SCSI status.
    pub status: u8,
    /// The host adapter's status; 0 is success.
    pub host_status: u16,
    /// The sense data that were written.
    pub sense: Vec<u8>,
    /// The data that were transferred.
    pub data: Vec<u8>,
}

impl Reply {
    /// True if the command was executed without any problem.
    pub fn is_good(&self) -> bool {
        (self.host_status, self.status) == (HOST_OK, STATUS_GOOD)
    }
}

/// The reason why a command did not reach the disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The disk is gone.
    #[error("the disk is gone")]
    Gone,
    /// This process may not send commands to it.
    #[error("no permission to send commands to the disk; run as root, or with CAP_SYS_RAWIO and read access to it")]
    NotPermitted,
    /// The kernel's driver of this disk takes no SCSI commands.
    #[error("the disk does not accept SCSI commands")]
    Unsupported,
    /// Another error of the operating system.
    #[error("system error {0} while a command was sent to the disk")]
    System(i32),
}

/// A transport for commands to one disk. Calls block until the answer arrives, for at most the command's timeout and
/// the time that the kernel's error handling adds to it.
pub trait ScsiTransport: Send + Sync {
    /// Sends `command` and returns its answer, even if that is an error of the disk.
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

/// The timeout of a query: a disk that is awake answers in milliseconds, and its electronics answer while it is asleep.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a command that moves platters. Some translators answer a start only at full speed, which takes a disk
/// up to 30 s, and longer with a cold or aged spindle.
pub const SPIN_TIMEOUT: Duration = Duration::from_secs(90);
