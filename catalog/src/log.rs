//! The log in front of a store: what makes a batch durable before the store itself is.
//!
//! A store with a log appends every batch that changes something to it, with its payload, and answers once that is
//! durable; its own transaction follows without a sync. So an acknowledgement costs one sync, and bytes and metadata of
//! a small object are durable by the same one. From time to time the store makes itself durable and says so
//! ([`CommitLog::covered`]); when it is opened, it takes from the log what it does not have ([`CommitLog::replay`]).
//!
//! The log knows nothing of what an entry says. It returns entries as they were appended, or not at all.

use crate::store::Payload;
use lineage::Sequence;
use std::ops::ControlFlow;

/// A batch as it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its number: above all that the same store has appended before, or got from [`CommitLog::replay`].
    pub sequence: Sequence,
    /// Its writes, and what it follows on, in the catalog's encoding, with a checksum of their own.
    pub entry: Vec<u8>,
    /// The bytes that became durable with it.
    pub payload: Option<Payload>,
}

impl LogRecord {
    /// Bytes of its entry and its payload.
    pub(crate) fn bytes(&self) -> u64 {
        (self.entry.len() + self.payload.as_ref().map_or(0, |payload| payload.bytes.len())) as u64
    }
}

/// The reason why a log did not take records.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no room. Nothing of the records is in the log, nor will be after a crash.
    #[error("the log is full")]
    Full,
    /// Any other error; after it the records may be in the log or not, in part or whole.
    #[error("log: {0}")]
    Failed(String),
}

/// A durable log of batches and their payloads.
///
/// After a crash it holds every record whose [`CommitLog::append`] was answered, but for those that were forgotten, and
/// of one that was not answered any number of its first records. Everything that [`CommitLog::replay`] gives is on the
/// medium: a log that finds, when it is opened, what a failed sync may have left in memory alone, writes it again
/// first.
pub trait CommitLog: Send + Sync + 'static {
    /// Appends `records` in their order. All of them are durable, with one sync, when this returns; until then none of
    /// their payloads can be read.
    ///
    /// # Errors
    /// [`LogError::Full`], which leaves everything as it was; [`LogError::Failed`].
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError>;

    /// Everything up to `sequence` is durable in the store: the log may forget the entries up to there. Payloads stay
    /// until their slots are freed.
    fn covered(&self, sequence: Sequence);

    /// Whatever it has now is not forgotten as long as the log is open, though it may be covered: a newer copy of
    /// the store may need it. What is appended later is not meant.
    fn retain(&self);

    /// Gives `each` the entries of the records that are there, in their order, until it breaks. Once, before the first
    /// append. Any of those that were covered may be among them, or missing: a log forgets its files in any order.
    ///
    /// # Errors
    /// [`LogError::Failed`] if the log cannot be read. A record that is damaged is left out: the
    /// store then finds that the next one does not follow.
    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError>;
}
