//! The interface of the stores that hold the records: ordered keys, range reads, atomic batches with preconditions.

use crate::error::StoreError;
use crate::follower::{FollowedFrom, Follower};
use crate::seal::Sealed;
use bytes::Bytes;
use futures::future::BoxFuture;
use lineage::Sequence;
use std::ops::Bound;
use std::sync::Arc;

/// The future answer of a store.
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
    /// The start of the range.
    pub start: Bound<Vec<u8>>,
    /// The end of the range.
    pub end: Bound<Vec<u8>>,
}

/// A precondition of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The key has no value.
    Absent(Vec<u8>),
    /// The key has a value; any value holds.
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
    /// Remove the key, if it has a value.
    Delete(Vec<u8>),
    /// Remove every key of the range.
    DeleteRange(KeyRange),
}

/// Changes that are applied together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The preconditions.
    pub checks: Vec<Check>,
    /// The changes.
    pub writes: Vec<Write>,
    /// Bytes that become durable with the changes, if a log takes them.
    pub payload: Option<Payload>,
}

/// The bytes of a small object, which the log in front of a store holds from the batch that makes them visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The slot under which they are found. A catalog uses it once.
    pub slot: u64,
    /// The sort key of the bytes when they leave the log: the bucket, a zero byte, the key.
    pub name: Vec<u8>,
    /// The bytes.
    pub bytes: Bytes,
}

impl Payload {
    /// The bytes of a version of the object at `(bucket, key)`.
    pub fn of((bucket, key): (&str, &str), slot: u64, bytes: Bytes) -> Self {
        Self { slot, name: [bucket.as_bytes(), &[0], key.as_bytes()].concat(), bytes }
    }
}

impl Batch {
    /// A batch with these preconditions and these changes.
    pub fn new(checks: Vec<Check>, writes: Vec<Write>) -> Self {
        Self { checks, writes, payload: None }
    }
}

/// A durable store of ordered keys.
///
/// The checks of a batch are evaluated before any of its writes; the writes are then applied in order. Batches are
/// applied one after another: each sees all earlier ones completely, and gets a [`Sequence`] above all of theirs. A
/// `commit` whose future is dropped may or may not happen.
///
/// Values are returned in their stored form: the caller opens their seals.
pub trait Store: Send + Sync + 'static {
    /// The value of `key` as of the last answered batch.
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>>;
    /// The values of `keys`, in their order, as of one moment.
    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>>;
    /// At most `limit` entries of `range`, in key order, as of one moment.
    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>>;
    /// Applies `batch` if all its checks hold. Durable when it returns. [`StoreError::CheckFailed`] changes nothing.
    ///
    /// # Panics
    /// If it has a payload, and no log takes it ([`Store::takes_payloads`]).
    fn commit(&self, batch: Batch) -> StoreFuture<'_, ()>;
    /// The number of the last batch that changed something. The next batch gets a higher one.
    fn sequence(&self) -> Sequence;
    /// The store after the last batch, read-only: later batches never show in it. For a file, later writes stay in its
    /// log as long as the view exists, so it is for short use.
    fn view(&self) -> StoreFuture<'_, Arc<dyn Store>> {
        let none = StoreError::Failed("there are no views of this store".into());
        Box::pin(std::future::ready(Err(none)))
    }
    /// The faults in the medium's own structure, in its words; only a file can have faults.
    fn check_pages(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// A description of missing records, if some are missing. A key that is not found may be one of them.
    fn incomplete(&self) -> Option<&str> {
        None
    }
    /// True if every commit is refused.
    fn is_read_only(&self) -> bool {
        false
    }
    /// The reason why nothing is committed before the next start, if a failure left it unknown what is durable.
    fn stopped(&self) -> Option<&str> {
        None
    }
    /// True if the last transaction found no room.
    fn is_full(&self) -> bool {
        false
    }
    /// True if a log is in front of the store, which takes the payloads of batches.
    fn takes_payloads(&self) -> bool {
        false
    }
    /// The reason why, at open, the log in front of the store had acknowledged batches that the store lacked: the store
    /// is a restored older copy, or the log belongs to another store.
    fn behind_log(&self) -> Option<&str> {
        None
    }
    /// Makes the log in front of the store, if it has one, retain everything from now on: the log may hold what another
    /// copy of the store needs.
    fn retain_log(&self) {}
    /// True if the log in front of the store is held, and forgets nothing before [`Store::release_log`]: nothing else
    /// may have what the log has, so the store could not be rebuilt without it.
    fn retains_log(&self) -> bool {
        false
    }
    /// Releases the entries that the log had when the store was opened: a copy of the store is stored elsewhere.
    fn release_log(&self) {}
    /// Sets whether this is an older copy of a store with a log. The batches of an older copy are logged aside, so they
    /// do not count against the newest copy, and the log retains its earlier entries for that copy. A store that is
    /// behind its log is set aside by itself, unless it is set otherwise.
    fn set_aside(&self, _is_aside: bool) {}
    /// Passes to `follower` every batch that is committed from now on. Returns the last batch before these; `None` if
    /// the store has no followers because nothing is committed to it.
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

    /// All keys that begin with `prefix` and follow `key`.
    pub fn prefix_after(prefix: &[u8], key: &[u8]) -> Self {
        Self { start: Bound::Excluded(key.to_vec()), end: after_prefix(prefix) }
    }

    /// The key at or after which the range begins; `None` if it begins with the first key.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        match &self.start {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        }
    }

    /// The same keys as `start <= key < end`; an `end` of `None` is unbounded. The key after `k` is `k` and a zero
    /// byte.
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

/// The smallest key after `key`.
fn successor(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The end of the keys that begin with `prefix`: the smallest key after all of them, if one exists.
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
