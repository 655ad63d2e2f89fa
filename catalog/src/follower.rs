//! Whoever follows a store: who gets every batch from a moment on (`follow.rs`).

use crate::key_digest::KeyDigest;
use lineage::Sequence;

/// Whoever follows a store.
pub trait Follower: Send + Sync {
    /// A batch was committed: its number, and its entry (`log_entry.rs`).
    fn committed(&self, sequence: Sequence, entry: &[u8]);

    /// The log in front of the store is about to forget batches that were committed.
    fn sync(&self) {}
}

/// Where a follower began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowedFrom {
    /// The number of the last batch that it does not get.
    pub sequence: Sequence,
    /// The digest of the keys that the store should hold after that.
    pub(crate) keys: KeyDigest,
}
