//! LevelDB's levels, in bytes: memtable, flushes, compactions and stalls, as its implementation notes and constants
//! have them (4 MB memtable, 2 MB tables, four tables in level 0 begin a compaction, eight slow writes down, twelve
//! stop them, level 1 holds 10 MB and each further one ten times as much).
//!
//! Keys are spread evenly over the levels, so that a table of one level overlaps its share of the next. Ascending keys
//! overlap nothing: tables move down by name, and nothing is rewritten.
//!
//! Invariant: what is read and written by a compaction is what lies in the levels that it merges; its amplification is
//! nowhere a parameter.

use super::KeyOrder;
use core::time::Duration;

const MEMTABLE_BYTES: u64 = 4 << 20;
const TABLE_BYTES: u64 = 2 << 20;
const LEVEL_1_BYTES: u64 = 10 << 20;
const COMPACT_TABLES: usize = 4;
const SLOW_TABLES: usize = 8;
const STOP_TABLES: usize = 12;
/// A put waits this long while level 0 has many tables.
const SLOW: Duration = Duration::from_millis(1);
const LEVELS: usize = 7;

/// The levels of one database.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    keys: KeyOrder,
    memtable: u64,
    /// A full memtable that is not a table yet.
    immutable: u64,
    /// Tables of level 0.
    fresh: Vec<u64>,
    /// Bytes of levels 1 and up; 0 of this is unused.
    levels: [u64; LEVELS],
}

/// Background work, to be applied when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compaction {
    pub read_bytes: u64,
    pub write_bytes: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flush,
    /// So many tables of level 0 into level 1.
    Fresh(usize),
    /// So many bytes of this level into the next.
    Down(usize, u64),
}

/// What a put has to do first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    After(Duration),
    /// Until background work has ended.
    Blocked,
}

impl Levels {
    pub fn new(keys: KeyOrder) -> Self {
        Self { keys, memtable: 0, immutable: 0, fresh: Vec::new(), levels: [0; LEVELS] }
    }

    /// May a put go on? As `DBImpl::MakeRoomForWrite`.
    pub fn admits(&self) -> Admission {
        let is_full = self.memtable >= MEMTABLE_BYTES;
        if is_full && (self.immutable > 0 || self.fresh.len() >= STOP_TABLES) {
            Admission::Blocked
        } else if self.fresh.len() >= SLOW_TABLES {
            Admission::After(SLOW)
        } else {
            Admission::Now
        }
    }

    /// A put of `bytes` is in the log.
    pub fn put(&mut self, bytes: u64) {
        if self.memtable >= MEMTABLE_BYTES {
            assert!(self.immutable == 0, "one memtable at a time is written");
            self.immutable = std::mem::take(&mut self.memtable);
        }
        self.memtable += bytes;
    }

    /// The next background work, if there is any: a flush first, then the fullest level.
    pub fn next(&mut self) -> Option<Compaction> {
        if self.immutable > 0 {
            return Some(Compaction { read_bytes: 0, write_bytes: self.immutable, kind: Kind::Flush });
        }
        loop {
            let compaction = self.due()?;
            if self.keys == KeyOrder::Random {
                return Some(compaction);
            }
            self.apply(compaction); // a move by name
        }
    }

    fn due(&self) -> Option<Compaction> {
        let fresh = self.fresh.len() as f64 / COMPACT_TABLES as f64;
        let score = |level: usize| self.levels[level] as f64 / capacity(level) as f64;
        let fullest = (1..LEVELS - 1).max_by(|a, b| score(*a).total_cmp(&score(*b)))?;
        if fresh >= 1.0 && fresh >= score(fullest) {
            let bytes = self.fresh.iter().sum::<u64>() + self.levels[1];
            return Some(Compaction { read_bytes: bytes, write_bytes: bytes, kind: Kind::Fresh(self.fresh.len()) });
        }
        if score(fullest) <= 1.0 {
            return None;
        }
        let table = TABLE_BYTES.min(self.levels[fullest]);
        // The share of the next level, and a table at either end that is met in part.
        let next = self.levels[fullest + 1];
        let share = (u128::from(next) * u128::from(table) / u128::from(self.levels[fullest])) as u64;
        let bytes = table + (share + TABLE_BYTES).min(next);
        Some(Compaction { read_bytes: bytes, write_bytes: bytes, kind: Kind::Down(fullest, table) })
    }

    /// `compaction` is done.
    pub fn apply(&mut self, compaction: Compaction) {
        match compaction.kind {
            Kind::Flush => self.fresh.push(std::mem::take(&mut self.immutable)),
            Kind::Fresh(tables) => self.levels[1] += self.fresh.drain(..tables).sum::<u64>(),
            Kind::Down(level, bytes) => {
                self.levels[level] -= bytes;
                self.levels[level + 1] += bytes;
            }
        }
    }

    /// Bytes in all levels.
    #[cfg(test)]
    fn total(&self) -> u64 {
        self.memtable + self.immutable + self.fresh.iter().chain(&self.levels).sum::<u64>()
    }
}

fn capacity(level: usize) -> u64 {
    LEVEL_1_BYTES * 10u64.pow(level as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(keys: KeyOrder, gigabytes: u64) -> (Levels, u64, u64) {
        let (mut levels, mut written, mut put) = (Levels::new(keys), 0, 0);
        while put < gigabytes << 30 {
            while levels.admits() == Admission::Blocked || levels.immutable > 0 {
                let Some(compaction) = levels.next() else { break };
                written += compaction.write_bytes;
                levels.apply(compaction);
            }
            levels.put(100_000);
            put += 100_000;
        }
        while let Some(compaction) = levels.next() {
            written += compaction.write_bytes;
            levels.apply(compaction);
        }
        (levels, written, put)
    }

    #[test]
    fn nothing_is_lost_between_levels_and_all_of_them_keep_their_size() {
        let (levels, written, put) = filled(KeyOrder::Random, 10);
        assert_eq!(levels.total(), put);
        for level in 1..LEVELS - 1 {
            assert!(levels.levels[level] <= capacity(level), "level {level}: {}", levels.levels[level]);
        }
        assert!(levels.levels[4] > levels.levels[3], "10 GB reach the fourth level");
        let amplification = written as f64 / put as f64;
        assert!((10.0..40.0).contains(&amplification), "{amplification}");
    }

    #[test]
    fn ascending_keys_are_written_once_more_than_the_log() {
        let (levels, written, put) = filled(KeyOrder::Sequential, 1);
        assert_eq!(levels.total(), put);
        assert!(written <= put && written > put - (8 << 20), "{written} of {put}");
    }
}
