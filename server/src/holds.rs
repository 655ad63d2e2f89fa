//! Blobs with readers: the stacks of a blob are not removed while it is held.
//!
//! A reader takes its hold and then looks the object up once more. If the object is still in the blob, any step that
//! frees the blob comes later and sees the hold; so a reader of an old version always finishes.

use model::BlobId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The readers of each blob. A clone is another handle on the same counts.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    counts: Arc<Mutex<BTreeMap<BlobId, usize>>>,
}

/// A hold that is released when it is dropped.
#[derive(Debug)]
pub struct Hold {
    holds: Holds,
    blob: BlobId,
}

impl Holds {
    /// Adds a reader of `blob`, until the guard is dropped.
    pub fn guard(&self, blob: BlobId) -> Hold {
        *self.counts.lock().entry(blob).or_default() += 1;
        Hold { holds: self.clone(), blob }
    }

    /// True if `blob` has a reader.
    pub fn is_held(&self, blob: BlobId) -> bool {
        self.counts.lock().contains_key(&blob)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.holds.counts.lock();
        let count = counts.get_mut(&self.blob).expect("a hold is released once");
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.blob);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_held_until_its_last_reader_is_gone() {
        let holds = Holds::default();
        let first = holds.guard(BlobId::numbered(7));
        let second = holds.guard(BlobId::numbered(7));
        drop(first);
        assert!(holds.is_held(BlobId::numbered(7)));
        drop(second);
        assert!(!holds.is_held(BlobId::numbered(7)));
    }
}
