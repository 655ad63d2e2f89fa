//! Background work: bytes that are read from some disks and written to others, a chunk at a time.

use super::spindle::{Disk, DiskSpec, Place};
use model::Time;
use std::ops::Range;

/// The requests of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// The size of one request on each disk, in bytes.
    pub bytes: u64,
    /// The size of a read that goes to one disk of a stripe, then to the next, as for a reader with a short read-ahead;
    /// `None` if reads go to all disks, like writes.
    pub read_ahead_bytes: Option<u64>,
}

/// A transformation or a compaction.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The disks that are read.
    pub from: Range<usize>,
    /// The disks that are written.
    pub to: Range<usize>,
    pub read_left: u64,
    pub write_left: u64,
    /// True if reads and writes alternate, as in a merge; otherwise everything is read first, and sorted.
    pub merges: bool,
    /// True if the last chunk was written.
    pub wrote: bool,
    /// Its requests.
    pub requests: Requests,
}

impl Task {
    /// Requests the next chunk at `now`; returns the time of its end, or `None` after the last chunk.
    pub fn step(&mut self, disks: &mut [Disk], spec: &DiskSpec, now: Time) -> Option<Time> {
        let writes = self.read_left == 0 || (self.merges && !self.wrote && self.write_left > 0);
        self.wrote = writes;
        let (over, left, place) = if writes {
            (self.to.clone(), &mut self.write_left, Place::Tree)
        } else {
            (self.from.clone(), &mut self.read_left, Place::Read)
        };
        if *left == 0 {
            return None;
        }
        let width = over.len() as u64;
        let (over, each) = match self.requests.read_ahead_bytes {
            Some(bytes) if !writes => {
                let turn = over.start + (*left / bytes % width) as usize;
                (turn..turn + 1, bytes)
            }
            _ => (over, self.requests.bytes),
        };
        let bytes = (each * over.len() as u64).min(*left);
        *left -= bytes;
        let takes = spec.transfer(bytes.div_ceil(over.len() as u64));
        // Between two reads of one table come reads of the other tables.
        let place =
            if self.requests.read_ahead_bytes.is_some() && self.merges && !writes { Place::Other } else { place };
        disks[over].iter_mut().map(|disk| disk.serve(now, place, takes)).max()
    }
}
