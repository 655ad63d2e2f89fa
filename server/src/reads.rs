//! Reads of staged objects, as they are counted at GETs: in memory, and written to the catalog in batches.
//!
//! - A GET of a staged object counts as a read when it begins. When it ends, its bytes count as read; an object is read
//!   through once every byte was, by one GET or by ranges of several. The server's own reads do not count.
//! - No GET waits for the catalog. Counted reads are written before the workshop is scanned, each [`WRITE_INTERVAL`],
//!   when many have gathered, and when the server ends in order.
//! - After a crash the reads since the last batch are missing. No object counts as unread because of that: from then on
//!   every object counts as read when the server started again ([`ReadLog::floor_ms`]), and one that was read through
//!   since the last batch counts as not read through. So at worst objects stay hot longer, and move later.
//!
//! Memory is bounded: beyond `PENDING_MAX` objects between two batches the floor moves up instead; the parts that were
//! read are known of `PARTIAL_MAX` objects at most, by `RANGES_MAX` ranges each, and forgotten when the run ends.

use catalog::{AgedVersion, Catalog, CatalogError, Reads, VersionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The maximum interval between two writes of reads. Wall time.
pub const WRITE_INTERVAL: Duration = Duration::from_mins(1);
/// Objects whose reads are held in memory; from half of this number on they are written at once.
const PENDING_MAX: usize = 1 << 16;
/// Objects whose read parts are known.
const PARTIAL_MAX: usize = 4_096;
/// Ranges of one object; beyond them, the range that begins first is forgotten.
const RANGES_MAX: usize = 256;
/// The name under which the catalog stores the floor, and whether all reads since were written.
const FLOOR: &str = "reads-floor";

/// Counts reads. See the head of this file.
#[derive(Debug, Default)]
pub struct ReadLog {
    counted: Mutex<Counted>,
    floor_ms: AtomicU64,
    /// Held while a batch is written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Reads that are not written yet.
    pending: BTreeMap<AgedVersion, Reads>,
    /// Ranges that were read, by their begin. They are disjoint.
    partial: BTreeMap<VersionId, BTreeMap<u64, u64>>,
}

impl ReadLog {
    /// The moment at which every object counts as read (milliseconds of the Unix epoch), because reads before it may
    /// not have been counted; 0 is none.
    pub fn floor_ms(&self) -> u64 {
        self.floor_ms.load(Ordering::Relaxed)
    }

    /// At boot: finds out whether all reads of the last run were written. If not, everything counts as read now.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn begin_run(&self, catalog: &Catalog, now_ms: u64) -> Result<(), CatalogError> {
        let floor_ms = match catalog.meta_get(FLOOR).await?.as_deref().map(FloorRecord::parse) {
            Some(Some(FloorRecord { is_complete: true, floor_ms })) => floor_ms,
            _ => now_ms,
        };
        self.floor_ms.store(floor_ms, Ordering::Relaxed);
        catalog.meta_put(FLOOR, FloorRecord { is_complete: false, floor_ms }.bytes()).await
    }

    /// Once no more reads come: writes the remaining ones, and that all were written.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn end_run(&self, catalog: &Catalog) -> Result<(), CatalogError> {
        self.write(catalog).await?;
        catalog.meta_put(FLOOR, FloorRecord { is_complete: true, floor_ms: self.floor_ms() }.bytes()).await
    }

    /// The reads of a version that were counted and are not written yet.
    pub(crate) fn pending(&self, of: AgedVersion) -> Reads {
        self.counted.lock().pending.get(&of).copied().unwrap_or_default()
    }

    /// Records the begin of a GET of an object. True if it is time to write, because many reads have gathered.
    pub(crate) fn begun(&self, of: AgedVersion, now_ms: u64) -> bool {
        self.add(of, Reads { count: 1, last_ms: now_ms, is_through: false })
    }

    fn add(&self, of: AgedVersion, reads: Reads) -> bool {
        let mut counted = self.counted.lock();
        let room = counted.pending.len() < PENDING_MAX;
        match counted.pending.get_mut(&of) {
            Some(known) => *known = known.and(reads),
            None if room => drop(counted.pending.insert(of, reads)),
            None => drop(self.floor_ms.fetch_max(reads.last_ms, Ordering::Relaxed)),
        }
        counted.pending.len() >= PENDING_MAX / 2
    }

    /// Records that the bytes `range` of an object of `bytes` bytes were read to their end.
    pub(crate) fn ended(&self, of: AgedVersion, bytes: u64, range: Range<u64>) {
        assert!(range.end <= bytes, "what is read of an object is a part of it");
        if self.is_read_through(of.version, bytes, range) {
            self.add(of, Reads { count: 0, last_ms: 0, is_through: true });
        }
    }

    fn is_read_through(&self, version: VersionId, bytes: u64, range: Range<u64>) -> bool {
        if range == (0..bytes) {
            return true;
        }
        let partial = &mut self.counted.lock().partial;
        if !partial.contains_key(&version) && partial.len() >= PARTIAL_MAX {
            partial.pop_first(); // the oldest version
        }
        let ranges = partial.entry(version).or_default();
        unite(ranges, range);
        let is_through = ranges.iter().next() == Some((&0, &bytes));
        if is_through {
            partial.remove(&version);
        }
        is_through
    }

    /// [`ReadLog::write`]; an error is logged.
    pub(crate) async fn write_or_warn(&self, catalog: &Catalog) {
        if let Err(error) = self.write(catalog).await {
            tracing::warn!(%error, "could not record reads of staged objects; retrying");
        }
    }

    /// Writes the counted reads. Reads that cannot be written are retried with the next batch.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn write(&self, catalog: &Catalog) -> Result<(), CatalogError> {
        let _writing = self.writing.lock().await;
        let taken = std::mem::take(&mut self.counted.lock().pending);
        if taken.is_empty() {
            return Ok(());
        }
        let reads: Vec<_> = taken.into_iter().collect();
        let written = catalog.record_reads(&reads).await;
        if written.is_err() {
            // Some may then be counted twice.
            for (of, reads) in reads {
                self.add(of, reads);
            }
        }
        written
    }
}

/// Adds `range` to `ranges`, which stay disjoint.
fn unite(ranges: &mut BTreeMap<u64, u64>, mut range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    while let Some((&begin, &end)) = ranges.range(..=range.end).next_back().filter(|(_, end)| **end >= range.start) {
        ranges.remove(&begin);
        range = range.start.min(begin)..range.end.max(end);
    }
    if ranges.len() >= RANGES_MAX {
        ranges.pop_first();
    }
    ranges.insert(range.start, range.end);
}

/// The floor as it is stored: whether all reads of the run were written, and its moment.
struct FloorRecord {
    is_complete: bool,
    floor_ms: u64,
}

impl FloorRecord {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.is_complete)];
        bytes.extend_from_slice(&self.floor_ms.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (flag, moment) = bytes.split_first()?;
        let floor_ms = u64::from_be_bytes(moment.try_into().ok()?);
        (*flag <= 1).then_some(Self { is_complete: *flag == 1, floor_ms })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::Rng;
    use std::sync::Arc;

    fn of(version: u64) -> AgedVersion {
        AgedVersion { staged_ms: 5, version: VersionId(version) }
    }

    fn pending(log: &ReadLog) -> Vec<(u64, Reads)> {
        log.counted.lock().pending.iter().map(|(of, reads)| (of.version.0, *reads)).collect()
    }

    /// Random ranges against a byte for each byte.
    #[test]
    fn ranges_that_cover_all_bytes_are_a_reading_through() {
        let mut through = 0;
        for seed in 0..500 {
            let rng = &mut Rng::new(seed);
            let (log, bytes) = (ReadLog::default(), rng.between(1, 40));
            let mut read = vec![false; bytes as usize];
            for _ in 0..rng.below(30) {
                let start = rng.below(bytes + 1);
                let end = rng.between(start, bytes.min(start + 9));
                log.ended(of(1), bytes, start..end);
                read[start as usize..end as usize].fill(true);
                let is_through = read.iter().all(|read| *read);
                assert_eq!(!pending(&log).is_empty(), is_through, "seed {seed}");
                if is_through {
                    through += 1;
                    break;
                }
            }
        }
        assert!(through > 50, "{through}");
    }

    #[test]
    fn what_is_held_is_bounded_and_what_is_not_counts_as_read() {
        let log = ReadLog::default();
        for version in 0..PENDING_MAX as u64 {
            assert_eq!(log.begun(of(version), 7), version + 1 >= PENDING_MAX as u64 / 2);
        }
        assert_eq!(log.floor_ms(), 0);
        log.begun(of(0), 9);
        assert_eq!(log.floor_ms(), 0, "it is counted already");
        log.begun(of(PENDING_MAX as u64), 11);
        assert_eq!((pending(&log).len(), log.floor_ms()), (PENDING_MAX, 11));
        for version in 0..=PARTIAL_MAX as u64 {
            log.ended(of(version), 10, 0..5);
        }
        log.ended(of(0), 10, 5..10);
        log.ended(of(PARTIAL_MAX as u64), 10, 5..10);
        let through: Vec<u64> = pending(&log).iter().filter(|(_, reads)| reads.is_through).map(|(v, _)| *v).collect();
        assert_eq!(through, [PARTIAL_MAX as u64], "the first half of the oldest was forgotten");
        let mut ranges = BTreeMap::new();
        (0..RANGES_MAX as u64 + 5).for_each(|at| unite(&mut ranges, 2 * at..2 * at + 1));
        assert_eq!(ranges.len(), RANGES_MAX);
    }

    #[tokio::test]
    async fn after_a_crash_everything_counts_as_read_and_after_an_orderly_end_only_what_was() {
        let catalog = Catalog::open(Arc::new(catalog::MemoryStore::new())).await.unwrap();
        let floor = async |now_ms| {
            let log = ReadLog::default();
            log.begin_run(&catalog, now_ms).await.unwrap();
            (log.floor_ms(), log)
        };
        let (first, log) = floor(10).await;
        assert_eq!(first, 10, "what was before is not known");
        log.end_run(&catalog).await.unwrap();
        assert_eq!(floor(20).await.0, 10);
        assert_eq!(floor(30).await.0, 30, "that run ended without a word");
    }
}
