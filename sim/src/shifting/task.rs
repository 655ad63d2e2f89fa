//! Background work: bytes that are read from some disks and written to others, a chunk at a time.

use super::spindle::{Disk, DiskSpec, Place};
use model::Time;
use std::ops::Range;

/// Bytes that a background request moves on one disk.
const CHUNK_BYTES: u64 = 256 << 10;

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
        let bytes = (CHUNK_BYTES * width).min(*left);
        *left -= bytes;
        let takes = spec.transfer(bytes.div_ceil(width));
        disks[over].iter_mut().map(|disk| disk.serve(now, place, takes)).max()
    }
}
