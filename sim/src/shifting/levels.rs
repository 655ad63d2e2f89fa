//! LevelDB's levels: memtable, flushes, compactions and stalls, table by table and key by key, as in its implementation
//! (`db_impl.cc`, `version_set.cc`, `dbformat.h`). A memtable has 4 MB and a table 2 MB. In level 0, four tables start
//! a compaction, eight slow down writes, and twelve stop them. Level 1 holds 10 MB, and each further level ten times as
//! much.
//!
//! 1. A full memtable becomes one table. It goes to level 0, or down to level 2 at most if no table there overlaps it.
//! 2. The level that exceeds its size most is compacted: its first table after the last compacted one (in level 0, all
//!    tables that overlap it), with all overlapping tables of the next level. More tables of the upper level are
//!    included if they need no more of the lower one.
//! 3. A single table without overlaps moves down without being rewritten.
//! 4. The most recently used tables are in the page cache, up to the memory size: reading them needs no disk.
//!
//! Invariant: a compaction reads and writes the tables that it merges; write amplification is not a parameter anywhere.

use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;

const MEMTABLE_BYTES: u64 = 4 << 20;
const TABLE_BYTES: u64 = 2 << 20;
const LEVEL_1_BYTES: u64 = 10 << 20;
const COMPACT_TABLES: usize = 4;
const SLOW_TABLES: usize = 8;
const STOP_TABLES: usize = 12;
/// The delay of a put while level 0 has many tables.
const SLOW: Duration = Duration::from_millis(1);
const LEVELS: usize = 7;
/// The lowest level for a new memtable.
const MEMTABLE_LEVEL_MAX: usize = 2;
/// A table ends before it overlaps more than this of the level after the next one.
const GRANDPARENTS_BYTES: u64 = 10 * TABLE_BYTES;
/// More tables of the upper level are included only if the compaction stays smaller than this.
const EXPANDED_BYTES: u64 = 25 * TABLE_BYTES;

/// A table: its keys in ascending order, at least one.
#[derive(Debug, PartialEq, Eq)]
struct SortedTable {
    id: u64,
    keys: Vec<u64>,
}

impl SortedTable {
    fn first(&self) -> u64 {
        self.keys[0]
    }

    fn last(&self) -> u64 {
        self.keys[self.keys.len() - 1]
    }

    fn overlaps(&self, (first, last): (u64, u64)) -> bool {
        self.first() <= last && first <= self.last()
    }
}

/// The tables in the page cache, by their last use.
#[derive(Clone, Debug, Default)]
struct PageCache {
    room_bytes: u64,
    held_bytes: u64,
    uses: u64,
    by_use: BTreeMap<u64, (u64, u64)>,
    use_of: BTreeMap<u64, u64>,
}

impl PageCache {
    /// True if table `id` was in the cache; afterwards it is.
    fn touch(&mut self, id: u64, bytes: u64) -> bool {
        let found = self.remove(id);
        self.uses += 1;
        self.by_use.insert(self.uses, (id, bytes));
        self.use_of.insert(id, self.uses);
        self.held_bytes += bytes;
        while self.held_bytes > self.room_bytes {
            let Some((_, (oldest, bytes))) = self.by_use.pop_first() else { break };
            self.use_of.remove(&oldest);
            self.held_bytes -= bytes;
        }
        found
    }

    fn remove(&mut self, id: u64) -> bool {
        let held = self.use_of.remove(&id).and_then(|used| self.by_use.remove(&used));
        self.held_bytes -= held.map_or(0, |(_, bytes)| bytes);
        held.is_some()
    }
}

/// The levels of one database.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    record_bytes: u64,
    memtable: Vec<u64>,
    /// A full memtable that is not yet a table.
    immutable: Vec<u64>,
    /// Level 0 ordered by age, oldest first; the others by key.
    tables: [Vec<Rc<SortedTable>>; LEVELS],
    /// The number of keys in each level.
    key_counts: [u64; LEVELS],
    /// The last compacted key of each level.
    pointers: [Option<u64>; LEVELS],
    cache: PageCache,
    next_id: u64,
}

/// Background work, applied when it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compaction {
    /// Bytes read from disks, without tables in the page cache.
    pub read_bytes: u64,
    pub write_bytes: u64,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Flush,
    /// A merge of these tables of the level and of the next level, by table number, into these outputs.
    Merge {
        level: usize,
        inputs: [Vec<u64>; 2],
        outputs: Vec<Vec<u64>>,
    },
}

/// The admission of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    After(Duration),
    /// The put waits until background work has ended.
    Blocked,
}

impl Levels {
    /// An empty database with records of this size, and this amount of memory for pages of its tables.
    pub fn new(record_bytes: u64, cache_bytes: u64) -> Self {
        Self {
            record_bytes,
            memtable: Vec::new(),
            immutable: Vec::new(),
            tables: Default::default(),
            key_counts: [0; LEVELS],
            pointers: [None; LEVELS],
            cache: PageCache { room_bytes: cache_bytes, ..PageCache::default() },
            next_id: 0,
        }
    }

    /// Decides whether a put may continue, as `DBImpl::MakeRoomForWrite`.
    pub fn admits(&self) -> Admission {
        let fresh = self.tables[0].len();
        if self.is_full() && (!self.immutable.is_empty() || fresh >= STOP_TABLES) {
            Admission::Blocked
        } else if fresh >= SLOW_TABLES {
            Admission::After(SLOW)
        } else {
            Admission::Now
        }
    }

    fn is_full(&self) -> bool {
        self.memtable.len() as u64 * self.record_bytes >= MEMTABLE_BYTES
    }

    /// Adds a put with this unique key, which is in the log.
    pub fn put(&mut self, key: u64) {
        if self.is_full() {
            assert!(self.immutable.is_empty(), "one memtable at a time is written");
            self.immutable = std::mem::take(&mut self.memtable);
        }
        self.memtable.push(key);
    }

    /// The memtable that waits to be written, if any: it precedes every compaction, even a running one.
    pub fn flush(&self) -> Option<Compaction> {
        let write_bytes = self.immutable.len() as u64 * self.record_bytes;
        (write_bytes > 0).then_some(Compaction { read_bytes: 0, write_bytes, kind: Kind::Flush })
    }

    /// The next due compaction, if any. Tables that only move have moved already.
    pub fn compact(&mut self) -> Option<Compaction> {
        loop {
            let level = self.due()?;
            let inputs = self.inputs(level);
            let grandparents = self.grandparents(level, &inputs);
            if let ([only], []) = (&*inputs[0], &*inputs[1])
                && self.bytes(&grandparents) <= GRANDPARENTS_BYTES
            {
                let id = only.id;
                self.move_down(level, id);
                continue;
            }
            let mut read_bytes = 0;
            for table in inputs.iter().flatten() {
                let bytes = table.keys.len() as u64 * self.record_bytes;
                read_bytes += if self.cache.touch(table.id, bytes) { 0 } else { bytes };
            }
            let write_bytes = inputs.iter().map(|tables| self.bytes(tables)).sum();
            let outputs = self.merged(&inputs, &grandparents);
            let inputs = inputs.map(|tables| tables.iter().map(|table| table.id).collect());
            return Some(Compaction { read_bytes, write_bytes, kind: Kind::Merge { level, inputs, outputs } });
        }
    }

    /// The level that exceeds its size most, as `VersionSet::Finalize`. Evaluated at every put.
    fn due(&self) -> Option<usize> {
        let score = |level: usize| match level {
            0 => self.tables[0].len() as f64 / COMPACT_TABLES as f64,
            _ => (self.key_counts[level] * self.record_bytes) as f64 / capacity(level) as f64,
        };
        // The upper of two equal levels.
        let fullest = (0..LEVELS - 1).rev().max_by(|a, b| score(*a).total_cmp(&score(*b)))?;
        (score(fullest) >= 1.0).then_some(fullest)
    }

    /// The tables of a compaction of `level`, as `VersionSet::PickCompaction` and `SetupOtherInputs`.
    fn inputs(&mut self, level: usize) -> [Vec<Rc<SortedTable>>; 2] {
        let tables = &self.tables[level];
        let behind = |table: &&Rc<SortedTable>| self.pointers[level].is_none_or(|pointer| table.last() > pointer);
        let Some(first) = tables.iter().find(behind).or(tables.first()) else { unreachable!("{level} is due") };
        let mut upper = vec![first.clone()];
        if level == 0 {
            upper = self.overlapping(0, span(&upper));
        }
        let mut lower = self.overlapping(level + 1, span(&upper));
        if !lower.is_empty() {
            let all = span(upper.iter().chain(&lower));
            let expanded = self.overlapping(level, all);
            let bytes = self.bytes(&expanded) + self.bytes(&lower);
            if expanded.len() > upper.len() && bytes < EXPANDED_BYTES {
                let needed = self.overlapping(level + 1, span(&expanded));
                if needed.len() == lower.len() {
                    (upper, lower) = (expanded, needed);
                }
            }
        }
        self.pointers[level] = Some(span(&upper).1);
        [upper, lower]
    }

    /// The tables of `level` that overlap a range. Those of level 0 overlap each other, and widen it.
    fn overlapping(&self, level: usize, mut range: (u64, u64)) -> Vec<Rc<SortedTable>> {
        loop {
            let found: Vec<_> = self.tables[level].iter().filter(|table| table.overlaps(range)).cloned().collect();
            let widened = span(&found);
            if level > 0 || found.is_empty() || (widened.0 >= range.0 && widened.1 <= range.1) {
                return found;
            }
            range = (widened.0.min(range.0), widened.1.max(range.1));
        }
    }

    fn grandparents(&self, level: usize, inputs: &[Vec<Rc<SortedTable>>; 2]) -> Vec<Rc<SortedTable>> {
        if level + 2 < LEVELS { self.overlapping(level + 2, span(inputs.iter().flatten())) } else { Vec::new() }
    }

    /// The keys of the tables that a merge writes.
    fn merged(&self, inputs: &[Vec<Rc<SortedTable>>; 2], grandparents: &[Rc<SortedTable>]) -> Vec<Vec<u64>> {
        let mut keys: Vec<u64> = inputs.iter().flatten().flat_map(|table| table.keys.iter().copied()).collect();
        keys.sort_unstable();
        let (mut outputs, mut begin, mut met, mut passed) = (Vec::new(), 0, 0, 0);
        for at in 0..keys.len() {
            // A table ends before its successor would overlap too much of the level after the next one.
            while passed < grandparents.len() && keys[at] > grandparents[passed].last() {
                met += if at > 0 { self.bytes(&grandparents[passed..=passed]) } else { 0 };
                passed += 1;
            }
            let bytes = (at - begin) as u64 * self.record_bytes;
            if at > begin && (bytes >= TABLE_BYTES || met > GRANDPARENTS_BYTES) {
                outputs.push(keys[begin..at].to_vec());
                (begin, met) = (at, if met > GRANDPARENTS_BYTES { 0 } else { met });
            }
        }
        outputs.push(keys[begin..].to_vec());
        outputs
    }

    fn move_down(&mut self, level: usize, id: u64) {
        let Some(at) = self.tables[level].iter().position(|table| table.id == id) else { return };
        let table = self.tables[level].remove(at);
        self.key_counts[level] -= table.keys.len() as u64;
        self.insert(level + 1, table);
    }

    fn insert(&mut self, level: usize, table: Rc<SortedTable>) {
        self.key_counts[level] += table.keys.len() as u64;
        let tables = &mut self.tables[level];
        let at = if level == 0 { tables.len() } else { tables.partition_point(|other| other.first() < table.first()) };
        tables.insert(at, table);
    }

    /// Applies a finished compaction.
    pub fn apply(&mut self, compaction: Compaction) {
        match compaction.kind {
            Kind::Flush => {
                let mut keys = std::mem::take(&mut self.immutable);
                keys.sort_unstable();
                let level = self.level_for(&keys);
                self.write(level, keys);
            }
            Kind::Merge { level, inputs, outputs } => {
                for (level, ids) in [level, level + 1].into_iter().zip(inputs) {
                    self.tables[level].retain(|table| !ids.contains(&table.id));
                    self.key_counts[level] = self.tables[level].iter().map(|table| table.keys.len() as u64).sum();
                    for id in ids {
                        self.cache.remove(id);
                    }
                }
                for keys in outputs {
                    self.write(level + 1, keys);
                }
            }
        }
    }

    fn write(&mut self, level: usize, keys: Vec<u64>) {
        self.next_id += 1;
        let table = Rc::new(SortedTable { id: self.next_id, keys });
        self.cache.touch(table.id, table.keys.len() as u64 * self.record_bytes);
        self.insert(level, table);
    }

    /// The level for a memtable, as `Version::PickLevelForMemTableOutput`.
    fn level_for(&self, keys: &[u64]) -> usize {
        let range = (keys[0], keys[keys.len() - 1]);
        let overlaps = |level: usize| self.tables[level].iter().any(|table| table.overlaps(range));
        let mut level = 0;
        while level < MEMTABLE_LEVEL_MAX && !overlaps(0) && !overlaps(level + 1) {
            if self.bytes(&self.overlapping(level + 2, range)) > GRANDPARENTS_BYTES {
                break;
            }
            level += 1;
        }
        level
    }

    fn bytes(&self, tables: &[Rc<SortedTable>]) -> u64 {
        tables.iter().map(|table| table.keys.len() as u64).sum::<u64>() * self.record_bytes
    }
}

/// The least and greatest keys of tables; an empty range for no tables.
fn span<'a>(tables: impl IntoIterator<Item = &'a Rc<SortedTable>>) -> (u64, u64) {
    let none = (u64::MAX, 0);
    tables.into_iter().fold(none, |(first, last), table| (first.min(table.first()), last.max(table.last())))
}

fn capacity(level: usize) -> u64 {
    LEVEL_1_BYTES * 10u64.pow(level as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Rng;

    /// The levels, the bytes written to tables, and the puts, after all compactions.
    fn filled(record_bytes: u64, gigabytes: u64, random: bool) -> (Levels, u64, u64) {
        let (mut levels, mut written, mut puts) = (Levels::new(record_bytes, 0), 0, 0);
        let mut rng = Rng::new(7);
        while puts * record_bytes < gigabytes * 1_000_000_000 {
            while let Some(work) = levels.flush().or_else(|| levels.compact()) {
                written += work.write_bytes;
                levels.apply(work);
            }
            levels.put(if random { rng.next_u64() } else { puts });
            puts += 1;
        }
        (levels, written, puts)
    }

    #[test]
    fn no_key_is_lost_and_every_level_is_in_order_and_within_its_size() {
        let (levels, written, puts) = filled(100_016, 4, true);
        let held = levels.tables.iter().flatten().map(|table| table.keys.len()).sum::<usize>();
        assert_eq!((held + levels.memtable.len() + levels.immutable.len()) as u64, puts);
        for (level, tables) in levels.tables.iter().enumerate().skip(1) {
            assert!(tables.windows(2).all(|pair| pair[0].last() < pair[1].first()), "level {level}");
            assert!(levels.bytes(tables) <= capacity(level), "level {level}: {}", levels.bytes(tables));
        }
        assert!(levels.tables[3].len() > levels.tables[2].len(), "4 GB reach the fourth level");
        let amplification = written as f64 / (puts * 100_016) as f64;
        assert!((5.0..30.0).contains(&amplification), "{amplification}");
    }

    #[test]
    fn ascending_keys_are_written_once_more_than_the_log() {
        let (levels, written, puts) = filled(100_016, 1, false);
        let put = puts * 100_016;
        assert!(written <= put && written > put - (16 << 20), "{written} of {put}");
        assert!(levels.tables[0].is_empty(), "nothing overlaps, so that a memtable goes further down");
    }

    #[test]
    fn what_was_used_last_is_read_from_memory() {
        let mut cache = PageCache { room_bytes: 10, ..PageCache::default() };
        assert!(!cache.touch(1, 4) && !cache.touch(2, 4) && cache.touch(1, 4));
        assert!(!cache.touch(3, 4), "no room for three: the one used longest ago goes");
        assert!(cache.touch(1, 4) && !cache.touch(2, 4));
        assert!(cache.remove(1) && !cache.remove(1));
        assert_eq!(cache.held_bytes, 4);
    }
}
