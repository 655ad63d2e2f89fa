//! A follower of the log, for example a catalog with separate tables.

use crate::record::{Kind, Sequence};

/// A durable change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied<'a> {
    /// Its number.
    pub sequence: Sequence,
    /// Its kind.
    pub kind: Kind,
    /// Its key; for a forgotten range, its first key.
    pub key: &'a [u8],
    /// Its entry.
    pub entry: &'a [u8],
    /// The length of its value.
    pub value_bytes: u64,
}

/// Called in the writer's thread, in the order of numbers.
pub trait Follower: Send + 'static {
    /// Receives the durable changes of a batch. No caller has been answered yet, and no later change is prepared before
    /// this returns: a follower that applies them here, and reads its tables in `prepare`, is linearizable.
    fn apply(&mut self, batch: &[Applied<'_>]);
}

/// Follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFollower;

impl Follower for NoFollower {
    fn apply(&mut self, _: &[Applied<'_>]) {}
}
