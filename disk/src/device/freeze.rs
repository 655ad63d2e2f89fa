//! Quiesced file systems: they have nothing left to write by themselves, so their disk can stop while mounted.
//!
//! The kernel's FIFREEZE writes back everything, empties the journal and closes it. A sync does not: after one, XFS
//! writes to its log for another minute. FITHAW lifts the freeze at once, and its writes are on the disk when it
//! returns. So nothing stays frozen while the disk sleeps, and a late write starts the disk instead of waiting forever.
//! Both calls need CAP_SYS_ADMIN, as a mount does.

#![allow(unsafe_code)]

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, opcode};
use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// FIFREEZE and FITHAW of <linux/fs.h>, which take no argument in spite of their numbers.
const FIFREEZE: Opcode = opcode::read_write::<c_int>(b'X', 119);
const FITHAW: Opcode = opcode::read_write::<c_int>(b'X', 120);

/// Quiesces the file system of `directory`.
///
/// # Errors
/// The system's error; the file system is then not frozen, unless thawing failed.
pub(super) fn quiesce(directory: &Path) -> io::Result<()> {
    let root = open(directory)?;
    // Most data is written while others may still write, so the freeze is short.
    rustix::fs::syncfs(&root)?;
    // SAFETY: FIFREEZE takes no argument and touches no memory of this process.
    unsafe { rustix::ioctl::ioctl(&root, NoArg::<FIFREEZE>::new()) }?;
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(&root, NoArg::<FITHAW>::new()) }?;
    Ok(())
}

/// Thaws the file system of `directory`, if it is frozen: a process that was killed in [`quiesce`] may have left it so.
///
/// # Errors
/// The system's error.
pub(super) fn thaw(directory: &Path) -> io::Result<()> {
    let root = open(directory)?;
    // SAFETY: FITHAW takes no argument and touches no memory of this process.
    match unsafe { rustix::ioctl::ioctl(&root, NoArg::<FITHAW>::new()) } {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn open(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?)
}
