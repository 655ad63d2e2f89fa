//! Background work: bytes that are read from some disks and written to others, a chunk at a time.

use super::spindle::{Disk, DiskSpec, Place};
use model::Time;
use std::ops::Range;

/// The requests of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Bytes of one on each disk.
    pub bytes: u64,
    /// Bytes of a read that goes to one disk of a stripe, and to the next one after it, as a reader with a short
    /// read-ahead has them; without, a read is on all disks like a write.
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
    /// Reads and writes alternate, as in a merge. Otherwise all is read first, and sorted.
    pub merges: bool,
    /// Whether the last chunk was written.
    pub wrote: bool,
    /// Its requests.
    pub requests: Requests,
}

impl Task {
    /// Asks for the next chunk at `now`; the time of its end. `None` if there is none.
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
        // Between two reads of one table come those of the others.
        let place =
            if self.requests.read_ahead_bytes.is_some() && self.merges && !writes { Place::Other } else { place };
        disks[over].iter_mut().map(|disk| disk.serve(now, place, takes)).max()
    }
}
