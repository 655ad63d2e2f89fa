//! The kernel's counters of a disk: requests since boot, from all programs.
//!
//! If two readings of a sleeping disk are equal, no program touched it in between. Reads, writes, discards and flushes
//! are in `/sys/block/*/stat`; commands that bypass the block layer's accounting (power, SMART, SG_IO) are counted for
//! SCSI disks in `device/iorequest_cnt`, including those of this process.

use std::fs;
use std::path::Path;

/// A reading of the counters of one disk. They count from when the kernel found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Completed reads.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Completed discards.
    pub discards: u64,
    /// Completed flushes of the disk's cache.
    pub flushes: u64,
    /// Running requests.
    pub in_flight: u64,
    /// Commands of any kind that were sent to a SCSI disk, and so to an ATA disk as well.
    pub commands: Option<u64>,
}

/// The activity of a disk between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Nothing at all.
    None,
    /// No data moved, and this many commands were sent: power or SMART queries, starts and stops.
    Commands(u64),
    /// Data or flushes: this number of requests.
    Io(u64),
    /// The counters restarted: the disk was away, or is another one.
    Restarted,
}

/// The block layer counts in sectors of this size, for disks with any sector size.
const SECTOR_BYTES: u64 = 512;

impl IoCounters {
    /// Decodes the text of a `stat` file; `None` if it is not one. Older kernels count no discards or no flushes.
    pub fn decode(stat: &str) -> Option<Self> {
        let fields: Vec<u64> = stat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let at = |field: usize| fields.get(field).copied().unwrap_or(0);
        (fields.len() >= 11).then(|| Self {
            reads: at(0),
            read_bytes: at(2).saturating_mul(SECTOR_BYTES),
            writes: at(4),
            written_bytes: at(6).saturating_mul(SECTOR_BYTES),
            in_flight: at(8),
            discards: at(11),
            flushes: at(15),
            commands: None,
        })
    }

    /// Reads the counters of the disk whose directory below /sys/block is `block`; `None` if it is gone. Never touches
    /// the disk.
    pub fn read(block: &Path) -> Option<Self> {
        let counters = Self::decode(&fs::read_to_string(block.join("stat")).ok()?)?;
        let commands = fs::read_to_string(block.join("device/iorequest_cnt")).ok();
        Some(Self { commands: commands.and_then(|text| number(text.trim())), ..counters })
    }

    /// The activity since the `earlier` reading. This process itself sent `own_commands` of the commands.
    pub fn since(&self, earlier: &Self, own_commands: u64) -> Touch {
        let done = |counters: &Self| [counters.reads, counters.writes, counters.discards, counters.flushes];
        let (now, before) = (done(self), done(earlier));
        let commands = self.commands.unwrap_or(0).checked_sub(earlier.commands.unwrap_or(0));
        let (Some(commands), true) = (commands, now.iter().zip(before).all(|(now, before)| *now >= before)) else {
            return Touch::Restarted;
        };
        let requests = now.iter().sum::<u64>() - before.iter().sum::<u64>();
        match (requests + self.in_flight, commands.saturating_sub(own_commands)) {
            (0, 0) => Touch::None,
            (0, commands) => Touch::Commands(commands),
            (requests, _) => Touch::Io(requests),
        }
    }
}

/// A number in the kernel's notation: decimal, or `0x` and hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const STAT: &str =
        "    1200      17   96000    4000      300    0   2400   900   0   3000   4900  5  0  80  2  7  3\n";

    #[test]
    fn a_stat_file_of_any_kernel_is_read() {
        let counters = IoCounters::decode(STAT).unwrap();
        assert_eq!((counters.reads, counters.read_bytes), (1200, 96_000 * 512));
        assert_eq!((counters.writes, counters.written_bytes), (300, 2400 * 512));
        assert_eq!((counters.discards, counters.flushes, counters.in_flight), (5, 7, 0));
        let old: Vec<&str> = STAT.split_whitespace().take(11).collect();
        assert_eq!(IoCounters::decode(&old.join(" ")), Some(IoCounters { discards: 0, flushes: 0, ..counters }));
        for wrong in ["", "1 2 3", "1 2 3 4 5 6 7 8 9 10 x"] {
            assert_eq!(IoCounters::decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn whoever_touched_a_disk_shows() {
        let before = IoCounters { commands: Some(0x40), ..IoCounters::decode(STAT).unwrap() };
        assert_eq!(before.since(&before, 0), Touch::None);
        let asked = IoCounters { commands: Some(0x43), ..before };
        assert_eq!(asked.since(&before, 3), Touch::None, "all of them its own");
        assert_eq!(asked.since(&before, 1), Touch::Commands(2));
        for (read, flushed, in_flight) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            let touched = IoCounters { reads: 1200 + read, flushes: 7 + flushed, in_flight, ..asked };
            assert_eq!(touched.since(&before, 3), Touch::Io(1));
        }
        assert_eq!(before.since(&asked, 0), Touch::Restarted);
        assert_eq!(IoCounters { reads: 0, ..asked }.since(&before, 0), Touch::Restarted);
    }

    #[test]
    fn the_counters_of_a_tree_are_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(IoCounters::read(folder.path()), None);
        fs::write(folder.path().join("stat"), STAT).unwrap();
        assert_eq!(IoCounters::read(folder.path()).unwrap().commands, None);
        fs::create_dir(folder.path().join("device")).unwrap();
        fs::write(folder.path().join("device/iorequest_cnt"), "0x1f\n").unwrap();
        assert_eq!(IoCounters::read(folder.path()).unwrap().commands, Some(31));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[0-9 x\\n]{0,200}", earlier in any::<[u64; 4]>()) {
            let [reads, writes, discards, flushes] = earlier.map(|count| count >> 8);
            let earlier = IoCounters { reads, writes, discards, flushes, ..IoCounters::default() };
            if let Some(counters) = IoCounters::decode(&text) {
                counters.since(&counters, 0);
            }
            earlier.since(&IoCounters::default(), 0);
        }
    }
}
