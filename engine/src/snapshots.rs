//! When a snapshot of the catalog is made: it costs a pass over all records, and bounds what has to be kept and read
//! beside it. A snapshot is due once the batches since the last one take as much room as that, and `LEAST_BYTES`; so
//! all snapshots together write at most what the batches do, and the journal has at most twice the catalog's bytes.
//!
//! Where the journal does not lead on from a snapshot one is due at once; after a failure, not before `RETRY`.

use core::time::Duration;
use model::Time;

/// Bytes of batches for which nothing is worth a pass over all records.
const LEAST_BYTES: u64 = 64 << 20;
/// The pause after a snapshot that failed.
const RETRY: Duration = Duration::from_mins(10);

/// What there is of the catalog beside its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalSize {
    /// The journal leads from a snapshot to the catalog as it is.
    pub leads_on: bool,
    /// Bytes of that snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of the batches since.
    pub batch_bytes: u64,
}

/// The decision on snapshots, for one catalog.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    failed: Option<Time>,
}

impl Snapshots {
    /// Whether a snapshot is to be made now.
    pub fn is_due(&self, now: Time, journal: JournalSize) -> bool {
        let waits = self.failed.is_some_and(|failed| now.since(failed) < RETRY);
        !waits && (!journal.leads_on || journal.batch_bytes >= journal.snapshot_bytes.max(LEAST_BYTES))
    }

    /// One was made, or it failed.
    pub fn ended(&mut self, now: Time, is_made: bool) {
        self.failed = (!is_made).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Time {
        Time::ZERO + Duration::from_mins(minutes)
    }

    #[test]
    fn a_snapshot_is_due_without_one_and_when_the_batches_outgrow_it() {
        let snapshots = Snapshots::default();
        let journal = |leads_on, snapshot_mib: u64, batch_mib: u64| JournalSize {
            leads_on,
            snapshot_bytes: snapshot_mib << 20,
            batch_bytes: batch_mib << 20,
        };
        assert!(snapshots.is_due(at(0), JournalSize::default()));
        for (snapshot_mib, batch_mib, is_due) in [(1, 63, false), (1, 64, true), (900, 899, false), (900, 900, true)] {
            assert_eq!(snapshots.is_due(at(0), journal(true, snapshot_mib, batch_mib)), is_due);
        }
        assert!(snapshots.is_due(at(0), journal(false, 900, 0)));
    }

    #[test]
    fn one_that_failed_is_tried_again_after_a_pause_and_not_in_a_circle() {
        let mut snapshots = Snapshots::default();
        snapshots.ended(at(5), false);
        assert!(!snapshots.is_due(at(5), JournalSize::default()));
        assert!(!snapshots.is_due(at(14), JournalSize::default()));
        assert!(snapshots.is_due(at(15), JournalSize::default()));
        snapshots.ended(at(15), true);
        assert!(snapshots.is_due(at(15), JournalSize::default()));
    }
}
