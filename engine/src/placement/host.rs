//! File systems that several drives share: the room of emulated drives, which are directories of one disk.
//!
//! The free space of a shared file system counts once for all drives on it. It is measured from time to time from
//! outside; between two measurements, writes and removals are added up here. Reserved bytes are not on the disk yet, or
//! only in part, so they always count as taken: the estimate is on the safe side.

use alloc::vec;
use alloc::vec::Vec;
use model::DriveId;

/// One file system, in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Host {
    pub free: u64,
    /// Reserved bytes: not on the disk yet, or only in part.
    pub reserved: u64,
}

/// The file systems, and the drives on each.
pub(super) struct Hosts {
    hosts: Vec<Host>,
    host_of: Vec<Option<usize>>,
}

impl Hosts {
    /// A rack in which none of the `drives` drives shares a file system.
    pub fn new(drives: usize) -> Self {
        Self { hosts: Vec::new(), host_of: vec![None; drives] }
    }

    /// Records that file system `host`, on which `drives` are stored, has `free_bytes` free; `reserved` returns the
    /// bytes reserved on a drive.
    pub fn measured(&mut self, host: usize, drives: &[DriveId], free_bytes: u64, reserved: impl Fn(DriveId) -> u64) {
        if self.hosts.len() <= host {
            self.hosts.resize(host + 1, Host::default());
        }
        for drive in drives {
            if let Some(of) = self.host_of.get_mut(drive.index()).filter(|of| of.is_none()) {
                *of = Some(host);
                self.hosts[host].reserved += reserved(*drive);
            }
        }
        assert!(host < self.hosts.len(), "the file system is known from now on");
        self.hosts[host].free = free_bytes;
    }

    /// Bytes that can still be reserved on the file system of `drive`, if it shares one.
    pub fn spare(&self, drive: DriveId) -> Option<u64> {
        self.host(drive).map(|host| self.hosts[host].free.saturating_sub(self.hosts[host].reserved))
    }

    /// The number of the file system that stores `drive`, if it shares one.
    pub fn host(&self, drive: DriveId) -> Option<usize> {
        self.host_of.get(drive.index()).copied().flatten()
    }

    /// The file system of `drive`, if it shares one.
    pub fn of_mut(&mut self, drive: DriveId) -> Option<&mut Host> {
        let host = self.host(drive)?;
        self.hosts.get_mut(host)
    }
}
