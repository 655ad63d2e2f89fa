//! The interface of the stores that hold the records: ordered keys, range reads, atomic batches with preconditions.

use crate::error::StoreError;
use crate::follower::{FollowedFrom, Follower};
use crate::seal::Sealed;
use bytes::Bytes;
use futures::future::BoxFuture;
use lineage::Sequence;
use std::ops::Bound;
use std::sync::Arc;

/// The answer of a store, some time later.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Sealed,
}

/// Keys from `start` to `end`, in byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where it begins.
    pub start: Bound<Vec<u8>>,
    /// Where it ends.
    pub end: Bound<Vec<u8>>,
}

/// A precondition of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The key has no value.
    Absent(Vec<u8>),
    /// The key has a value, whichever.
    Present(Vec<u8>),
    /// The value of the key has exactly this body.
    Is(Vec<u8>, Vec<u8>),
    /// No key of the range has a value.
    Empty(KeyRange),
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Set the key's value to this body, sealed with the sequence number of the batch.
    Put(Vec<u8>, Vec<u8>),
    /// Remove the key, if it is there.
    Delete(Vec<u8>),
    /// Remove every key of the range.
    DeleteRange(KeyRange),
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The preconditions.
    pub checks: Vec<Check>,
    /// The changes.
    pub writes: Vec<Write>,
    /// Bytes that become durable along with them, where a log takes them.
    pub payload: Option<Payload>,
}

/// The bytes of a small object, which the log in front of a store holds from the batch on that makes them visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The slot under which they are found again. Used once by one catalog.
    pub slot: u64,
    /// What they are sorted by when they leave the log: the bucket, a zero byte, the key.
    pub name: Vec<u8>,
    /// They themselves.
    pub bytes: Bytes,
}

impl Payload {
    /// The bytes of a version of the object at `(bucket, key)`.
    pub fn of((bucket, key): (&str, &str), slot: u64, bytes: Bytes) -> Self {
        Self { slot, name: [bucket.as_bytes(), &[0], key.as_bytes()].concat(), bytes }
    }
}

impl Batch {
    /// These changes under these preconditions.
    pub fn new(checks: Vec<Check>, writes: Vec<Write>) -> Self {
        Self { checks, writes, payload: None }
    }
}

/// A durable store of ordered keys.
///
/// The checks of a batch are evaluated before any of its writes; the writes are then done in their order. Batches are
/// applied one after another: each sees the ones before it whole, and gets a [`Sequence`] above all of theirs. A
/// `commit` whose future is dropped may or may not happen.
///
/// Values are returned as they lie on the medium: the caller opens their seals.
pub trait Store: Send + Sync + 'static {
    /// The value of `key`, as of the last batch that was answered.
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>>;
    /// The values of `keys`, in their order, as of one moment.
    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>>;
    /// At most `limit` entries of `range`, in key order, as of one moment.
    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>>;
    /// Applies `batch` if all its checks hold; durable when it answers. [`StoreError::CheckFailed`] changes nothing.
    ///
    /// # Panics
    /// If it has a payload, and no log takes it ([`Store::takes_payloads`]).
    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()>;
    /// The number of the last batch that changed something. The next one gets a higher one.
    fn sequence(&self) -> Sequence;
    /// The store as it is after the last batch, read-only: later batches do not show in it, for as long as it is there.
    /// Of a file, what is written meanwhile stays in its log, so it is not for long.
    fn view(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        let none = StoreError::Failed("there are no views of this store".into());
        Box::pin(std::future::ready(Err(none)))
    }
    /// The faults of the medium's own structure, in its words: none but in a file.
    fn check_pages(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// A description of missing records, if some that should be here are not. A key that is not found may be one of
    /// them.
    fn incomplete(&self) -> Option<&str> {
        None
    }
    /// True if every commit is refused.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Why nothing is committed any more before the next start, if a failure left open what is durable.
    fn stopped(&self) -> Option<&str> {
        None
    }
    /// True if the last transaction found no room.
    fn is_full(&self) -> bool {
        false
    }
    /// True if a log stands in front of the store, which takes the payloads of batches.
    fn takes_payloads(&self) -> bool {
        false
    }
    /// Why the log in front of the store has acknowledged batches that the store has not, if that was so when it was
    /// opened: the store is an older one that was put back, or the log belongs to another.
    fn behind_log(&self) -> Option<&str> {
        None
    }
    /// From now on the log in front of the store, if there is one, forgets nothing: what another copy of the store
    /// needs may be there.
    fn retain_log(&self) {}
    /// True if the log in front of the store is held, and forgets nothing before [`Store::release_log`]: it does not
    /// lead to the store, which was made again from it; or the store took batches from it when it was opened, which
    /// nothing else may have. Until then the store could not be made again once more.
    fn holds_log(&self) -> bool {
        false
    }
    /// What the log had when the store was opened is of no use any more: a copy of the store is kept elsewhere.
    fn release_log(&self) {}
    /// Sets if this is an older copy of the store, where a log stands in front: its batches are logged aside then, so
    /// that they are no sign against the newest copy, and what the log had before is retained for that. A store that is
    /// behind its log does so by itself, unless it is set otherwise.
    fn set_aside(&self, _is_aside: bool) {}
    /// `follower` gets every batch that is committed from now on: after which one. `None` if the store has no
    /// followers, since nothing is committed to it.
    fn follow(&self, _follower: &Arc<dyn Follower>) -> Option<FollowedFrom> {
        None
    }
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bound::Included(prefix.to_vec()), end: after_prefix(prefix) }
    }

    /// All keys that begin with `prefix` and lie behind `key`.
    pub fn prefix_after(prefix: &[u8], key: &[u8]) -> Self {
        Self { start: Bound::Excluded(key.to_vec()), end: after_prefix(prefix) }
    }

    /// The key that the range begins with or behind; `None` if it begins with the first of all.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        match &self.start {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        }
    }

    /// The same keys as `start <= key < end`, where no `end` is unbounded. The key behind `k` is `k` and a zero byte.
    pub(crate) fn half_open(self) -> (Vec<u8>, Option<Vec<u8>>) {
        let start = match self.start {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key,
            Bound::Excluded(key) => successor(key),
        };
        let end = match self.end {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key),
        };
        (start, end)
    }
}

/// The smallest key behind `key`.
fn successor(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The end of the keys that begin with `prefix`: the smallest key behind them all, if there is one.
pub(crate) fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}
