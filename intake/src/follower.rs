//! Whoever follows the log with tables of its own, such as a catalog.

use crate::record::{Kind, Sequence};

/// A change that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied<'a> {
    /// Its number.
    pub sequence: Sequence,
    /// Its kind.
    pub kind: Kind,
    /// Its key; the first key of a range that is forgotten.
    pub key: &'a [u8],
    /// Its entry.
    pub entry: &'a [u8],
    /// The length of its value.
    pub value_bytes: u64,
}

/// Is called in the writer's thread, in the order of numbers.
pub trait Follower: Send + 'static {
    /// The changes of a batch, which are durable. Nobody has been answered yet, and no later change is prepared before
    /// this returns: whoever applies them here, and reads its own tables in `prepare`, is linearizable.
    fn apply(&mut self, batch: &[Applied<'_>]);
}

/// Follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFollower;

impl Follower for NoFollower {
    fn apply(&mut self, _: &[Applied<'_>]) {}
}
