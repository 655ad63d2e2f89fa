//! A follower of a store, which receives every batch from a moment on (`follow.rs`).

use crate::key_digest::KeyDigest;
use lineage::Sequence;

/// A follower of a store.
pub trait Follower: Send + Sync {
    /// Receives a committed batch: its number and its entry (`log_entry.rs`).
    fn committed(&self, sequence: Sequence, entry: &[u8]);

    /// The log in front of the store is about to forget committed batches.
    fn sync(&self) {}
}

/// The point at which a follower began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowedFrom {
    /// The number of the last batch that the follower does not receive.
    pub sequence: Sequence,
    /// The digest of the keys that the store should hold after that batch.
    pub(crate) keys: KeyDigest,
}
