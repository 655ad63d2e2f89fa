//! The reasons that the last recalls of blobs failed, for clients that come back.
//!
//! A client that would wait too long is asked to come later, and its recall continues. If the recall fails, the client
//! is not there to receive the reason; and when it comes back, it would wait too long again. So the reason is kept, and
//! the client gets it instead of another time to come later. The next recall continues nevertheless.
//!
//! A reason is kept for [`REASON_KNOWN_FOR`], or until bytes of the blob are read or a drive is back
//! ([`Refusals::forget_all`]): then they may be readable again. At most `REFUSALS_MAX` blobs are remembered; beyond
//! that, the first of them are forgotten.

use engine::Rejection;
use engine::recall::REASON_KNOWN_FOR;
use model::BlobId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use tokio::time::Instant;

/// The most blobs that are remembered.
const REFUSALS_MAX: usize = 4_096;

/// The reason that a recall failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The rack rejected it.
    #[error("{0}")]
    Rack(Rejection),
    /// The spool failed.
    #[error("spool: {0}")]
    Spool(String),
}

/// The payload bytes that a recall did not bring, the reason, and the time.
#[derive(Debug)]
struct Refusal {
    range: Range<u64>,
    why: Why,
    at: Instant,
}

/// The last failed recall of each blob.
#[derive(Debug, Default)]
pub struct Refusals {
    known: Mutex<BTreeMap<BlobId, Refusal>>,
}

impl Refusals {
    /// Records that a recall did not bring the payload bytes `range` of `blob`.
    pub fn met(&self, blob: BlobId, range: Range<u64>, why: Why, at: Instant) {
        let mut known = self.known.lock();
        known.insert(blob, Refusal { range, why, at });
        if known.len() > REFUSALS_MAX {
            known.pop_first();
        }
        assert!(known.len() <= REFUSALS_MAX, "memory is bounded");
    }

    /// Records that the payload bytes `range` of `blob` could be read.
    pub fn forget(&self, blob: BlobId, range: &Range<u64>) {
        let mut known = self.known.lock();
        if known.get(&blob).is_some_and(|refusal| overlap(&refusal.range, range)) {
            known.remove(&blob);
        }
    }

    /// Forgets all reasons: a drive is back, or another one is in its place, so lost bytes may be readable.
    pub fn forget_all(&self) {
        self.known.lock().clear();
    }

    /// The reason that the last recall of bytes within `range` of `blob` failed, if it did.
    pub fn within(&self, blob: BlobId, range: &Range<u64>, now: Instant) -> Option<Why> {
        let known = self.known.lock();
        let refusal = known.get(&blob).filter(|refusal| overlap(&refusal.range, range))?;
        (now.saturating_duration_since(refusal.at) < REASON_KNOWN_FOR).then(|| refusal.why.clone())
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Why = Why::Rack(Rejection::DataLost);

    #[test]
    fn a_reason_is_known_for_a_while_and_until_the_bytes_are_read() {
        let (refusals, blob, now) = (Refusals::default(), BlobId::numbered(3), Instant::now());
        refusals.met(blob, 4096..8192, LOST, now);
        assert_eq!(refusals.within(blob, &(0..4096), now), None);
        assert_eq!(refusals.within(blob, &(0..4097), now), Some(LOST));
        assert_eq!(refusals.within(BlobId::numbered(4), &(0..9000), now), None);
        assert_eq!(refusals.within(blob, &(0..9000), now + REASON_KNOWN_FOR), None);
        refusals.forget(blob, &(0..4096));
        assert_eq!(refusals.within(blob, &(8191..9000), now), Some(LOST));
        refusals.forget(blob, &(4096..5000));
        assert_eq!(refusals.within(blob, &(0..9000), now), None);
    }

    #[test]
    fn the_last_reason_counts_until_a_drive_is_back() {
        let (refusals, blob, now) = (Refusals::default(), BlobId::numbered(3), Instant::now());
        let full = Why::Spool("its disk fails".to_owned());
        refusals.met(blob, 0..10, LOST, now);
        refusals.met(blob, 0..10, full.clone(), now);
        assert_eq!(refusals.within(blob, &(0..10), now), Some(full));
        refusals.forget_all();
        assert_eq!(refusals.within(blob, &(0..10), now), None);
    }

    #[test]
    fn memory_is_bounded() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for number in 0..2 * REFUSALS_MAX as u64 {
            refusals.met(BlobId::numbered(number), 0..1, LOST, now);
        }
        assert_eq!(refusals.known.lock().len(), REFUSALS_MAX);
    }
}
