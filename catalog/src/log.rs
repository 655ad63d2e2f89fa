//! The log in front of a store, which makes a batch durable before the store does.
//!
//! A store with a log appends every batch that changes something to it, with its payload, and answers once the batch is
//! durable; its own transaction follows without a sync. So an acknowledgement costs one sync, which makes both the
//! bytes and the metadata of a small object durable. From time to time the store makes itself durable and reports it
//! ([`CommitLog::covered`]); when it is opened, it takes the batches that it lacks from the log
//! ([`CommitLog::replay`]).
//!
//! The log does not interpret entries. It returns them as they were appended, or not at all.

use crate::store::Payload;
use lineage::Sequence;
use std::ops::ControlFlow;

/// A batch as it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its number: above all numbers that the same store has appended before, or received from [`CommitLog::replay`].
    pub sequence: Sequence,
    /// Its writes and the batch that it follows, in the catalog's encoding, with a separate checksum.
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
    /// The log has no room. None of the records is in the log, or will be after a crash.
    #[error("the log is full")]
    Full,
    /// Any other error; the records may be in the log or not, partly or fully.
    #[error("log: {0}")]
    Failed(String),
}

/// A durable log of batches and their payloads.
///
/// After a crash it holds every record whose [`CommitLog::append`] was answered, except forgotten ones, and of an
/// unanswered append any number of its first records. Everything that [`CommitLog::replay`] returns is on the medium: a
/// log that finds data when it is opened that a failed sync may have left only in memory first writes that data again.
pub trait CommitLog: Send + Sync + 'static {
    /// Appends `records` in order. When this returns, all of them are durable, with one sync; until then none of their
    /// payloads can be read.
    ///
    /// # Errors
    /// [`LogError::Full`], which changes nothing; [`LogError::Failed`].
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError>;

    /// Reports that everything up to `sequence` is durable in the store: the log may forget the entries up to there.
    /// Payloads stay until their slots are freed.
    fn covered(&self, sequence: Sequence);

    /// Retains all current entries as long as the log is open, even if they are covered: a newer copy of the store may
    /// need them. Later entries are not affected.
    fn retain(&self);

    /// Passes to `each` the entries of the log's records, in order, until it breaks. Called once, before the first
    /// append. Covered records may be among them or missing: a log forgets its files in any order.
    ///
    /// # Errors
    /// [`LogError::Failed`] if the log cannot be read. A damaged record is left out: the store then finds that the next
    /// one does not follow.
    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError>;
}
