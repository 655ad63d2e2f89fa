//! Stripes that reads found lost since the server started: fewer than k of their fragments are good.
//!
//! An entry is a hint, not a verdict: a stripe with an entry is read before a client that wants it is answered, and a
//! read that succeeds (a drive is back, a file was restored) removes the entry. So a loss shows in the status of a
//! response, not in a body that breaks off, and in `larder explain`.
//!
//! At most `LOSSES_MAX` stripes are remembered; beyond that, those of the first blobs are forgotten.

use model::BlobId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most stripes that are remembered.
const LOSSES_MAX: usize = 4_096;

/// The stripes that were found lost.
#[derive(Debug, Default)]
pub struct Losses {
    /// By blob and the payload byte at which the stripe begins: the indices of the stacks whose fragments are bad.
    known: Mutex<BTreeMap<(BlobId, u64), Vec<u8>>>,
}

impl Losses {
    /// Records that the stripe of `blob` that begins at payload byte `at` is lost; the fragments of these stacks are
    /// bad.
    pub fn met(&self, blob: BlobId, at: u64, stacks: Vec<u8>) {
        let mut known = self.known.lock();
        known.insert((blob, at), stacks);
        if known.len() > LOSSES_MAX {
            known.pop_first();
        }
    }

    /// Records that the payload bytes `range` of `blob` could be read.
    pub fn forget(&self, blob: BlobId, range: &Range<u64>) {
        self.known.lock().retain(|(of, at), _| *of != blob || !range.contains(at));
    }

    /// The first stripe of `blob` known to be lost that begins in `range`, and its stacks that are bad.
    pub fn within(&self, blob: BlobId, range: &Range<u64>) -> Option<(u64, Vec<u8>)> {
        let known = self.known.lock();
        known.range((blob, range.start)..(blob, range.end)).next().map(|((_, at), stacks)| (*at, stacks.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_known_until_it_is_read_well() {
        let losses = Losses::default();
        let blob = BlobId::numbered(3);
        losses.met(blob, 4096, vec![0, 2]);
        assert_eq!(losses.within(blob, &(0..4096)), None);
        assert_eq!(losses.within(blob, &(0..4097)), Some((4096, vec![0, 2])));
        assert_eq!(losses.within(BlobId::numbered(4), &(0..9000)), None);
        losses.forget(blob, &(0..4096));
        assert!(losses.within(blob, &(4096..5000)).is_some());
        losses.forget(blob, &(4096..5000));
        assert_eq!(losses.within(blob, &(0..9000)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let losses = Losses::default();
        for number in 0..2 * LOSSES_MAX as u64 {
            losses.met(BlobId::numbered(number), 0, Vec::new());
        }
        assert_eq!(losses.known.lock().len(), LOSSES_MAX);
    }
}
