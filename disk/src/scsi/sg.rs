//! Commands to a real disk, by the kernel's SG_IO. Besides `device/freeze.rs` this is the only file of this crate with
//! `unsafe`.
//!
//! The disk is opened for reading only. Closing a disk that was open for writing makes udev examine it again, which
//! reads the medium and so wakes the disk; and no command of [`Command`] writes. O_NONBLOCK opens a disk without a
//! check of its medium. Neither open nor close sends anything to a sleeping disk.

#![allow(unsafe_code)]

use super::{Command, Reply, ScsiTransport, TransportError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::path::Path;

/// SG_IO of <scsi/sg.h>.
const SG_IO: Opcode = 0x2285;
/// The version of the interface, and the directions.
const INTERFACE: i32 = 'S' as i32;
const NO_DATA: i32 = -1;
const DATA_FROM_DISK: i32 = -3;
/// Room for sense data; the kernel never returns more.
const SENSE_BYTES: usize = 96;

/// `struct sg_io_hdr` of <scsi/sg.h>.
#[repr(C)]
struct SgIoHeader {
    interface_id: i32,
    direction: i32,
    command_bytes: u8,
    sense_bytes_max: u8,
    iovec_count: u16,
    data_bytes: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_bytes_written: u8,
    host_status: u16,
    driver_status: u16,
    residual_bytes: i32,
    duration_ms: u32,
    info: u32,
}

// The kernel's layout with pointers of 8 bytes.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<SgIoHeader>() == 88, "struct sg_io_hdr");
    assert!(std::mem::offset_of!(SgIoHeader, data) == 16, "dxferp");
    assert!(std::mem::offset_of!(SgIoHeader, timeout_ms) == 40, "timeout");
    assert!(std::mem::offset_of!(SgIoHeader, status) == 64, "status");
    assert!(std::mem::offset_of!(SgIoHeader, info) == 80, "info");
};

/// A disk by its device node.
#[derive(Debug)]
pub struct SgDevice {
    file: OwnedFd,
}

impl SgDevice {
    /// Opens the disk at `path` for reading, without waking it.
    pub fn open(path: &Path) -> Result<Self, TransportError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(refusal)?;
        Ok(Self { file })
    }
}

/// The transport error for the kernel's refusal.
fn refusal(errno: Errno) -> TransportError {
    match errno {
        Errno::NODEV | Errno::NXIO | Errno::NOENT => TransportError::Gone,
        Errno::PERM | Errno::ACCESS => TransportError::NotPermitted,
        Errno::NOTTY | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => TransportError::Unsupported,
        other => TransportError::System(other.raw_os_error()),
    }
}

impl ScsiTransport for SgDevice {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        let mut data = vec![0; command.data_bytes()];
        let mut sense = [0; SENSE_BYTES];
        let mut header = SgIoHeader {
            interface_id: INTERFACE,
            direction: if data.is_empty() { NO_DATA } else { DATA_FROM_DISK },
            command_bytes: command.block().len() as u8,
            sense_bytes_max: SENSE_BYTES as u8,
            iovec_count: 0,
            data_bytes: data.len() as u32,
            data: data.as_mut_ptr().cast(),
            command: command.block().as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout_ms: u32::try_from(command.timeout().as_millis()).unwrap_or(u32::MAX),
            flags: 0,
            pack_id: 0,
            user: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_bytes_written: 0,
            host_status: 0,
            driver_status: 0,
            residual_bytes: 0,
            duration_ms: 0,
            info: 0,
        };
        // SAFETY: SG_IO is the opcode whose argument is a `struct sg_io_hdr`, which `SgIoHeader` lays out (asserted
        // above) and which the updater borrows until the call ends.
        let call = unsafe { Updater::<SG_IO, SgIoHeader>::new(&mut header) };
        // SAFETY: the kernel reads `command_bytes` bytes at `command`, and writes at most `data_bytes` at `data` and
        // `sense_bytes_max` at `sense`. Those are the lengths of the borrowed block, of `data` and of `sense`, which
        // all stay alive and unmoved until the call ends, as SG_IO returns only then. Nothing keeps the pointers.
        unsafe { rustix::ioctl::ioctl(&self.file, call) }.map_err(refusal)?;
        let missing = usize::try_from(header.residual_bytes).unwrap_or(0).min(data.len());
        data.truncate(data.len() - missing);
        let sense_bytes = usize::from(header.sense_bytes_written).min(SENSE_BYTES);
        Ok(Reply { status: header.status, host_status: header.host_status, sense: sense[..sense_bytes].to_vec(), data })
    }
}
