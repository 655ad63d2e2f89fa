//! One recall: the bytes of a blob that it brings, its progress, and the checksums of its blocks.
//!
//! Invariant: progress only grows, and never beyond the length of the recall.

use disk::DriveError;
use model::BlobId;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// The reason that a recall cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The recall failed; the writer's reason.
    #[error("the recall failed: {0}")]
    Failed(Arc<str>),
    /// A block is not as it was written. The entry is dropped; another recall will bring the bytes.
    #[error("block {block} of a recall of {blob} is damaged")]
    Damaged {
        /// The blob.
        blob: BlobId,
        /// The block, counted from 0 at the beginning of the entry.
        block: u64,
    },
    /// The entry does not hold the requested bytes.
    #[error("only payload bytes {0:?} are available")]
    OutOfRange(Range<u64>),
    /// More or fewer bytes were written than the entry is for.
    #[error("{written_bytes} bytes for an entry of {entry_bytes}")]
    WrongLength {
        /// Bytes that were, or would have been, written.
        written_bytes: u64,
        /// Bytes that the entry is for.
        entry_bytes: u64,
    },
    /// The disk failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// The state that a writer and its readers share.
pub(crate) struct Recall {
    pub blob: BlobId,
    pub range: Range<u64>,
    pub table: OnceLock<Arc<Mutex<Vec<u32>>>>,
    pub progress: watch::Sender<RecallProgress>,
    /// Bytes that readers have taken; bytes that were read twice count twice.
    taken_bytes: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RecallProgress {
    /// Bytes that can be read.
    pub bytes: u64,
    /// Set when no more bytes will come, though the entry is not complete.
    pub failed: Option<Arc<str>>,
}

impl Recall {
    pub(crate) fn new(blob: BlobId, range: Range<u64>) -> Self {
        Self { blob, range, table: OnceLock::new(), progress: watch::Sender::default(), taken_bytes: AtomicU64::new(0) }
    }

    /// Records that a reader has taken `bytes` bytes.
    pub(crate) fn take(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that readers have taken.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// True if all of it is written.
    pub(crate) fn is_complete(&self) -> bool {
        self.progress.borrow().bytes == self.bytes()
    }

    /// The length of the complete recall.
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Records that `bytes` bytes are on the drive, and their checksums in the table.
    pub(crate) fn advance(&self, bytes: u64) {
        assert!(bytes <= self.bytes(), "a recall brings no more than it is for");
        self.progress.send_modify(|now| {
            assert!(now.bytes <= bytes, "blocks are written in their order");
            now.bytes = bytes;
        });
    }

    /// Waits until `bytes` bytes can be read.
    pub(crate) async fn written(&self, bytes: u64) -> Result<(), SpoolError> {
        let mut progress = self.progress.subscribe();
        let seen = progress.wait_for(|now| now.bytes >= bytes || now.failed.is_some()).await;
        let seen = seen.expect("the sender is part of what this borrows").clone();
        match seen.failed {
            Some(reason) if seen.bytes < bytes => Err(SpoolError::Failed(reason)),
            _ => Ok(()),
        }
    }

    /// The checksum of a written block.
    pub(crate) fn crc(&self, block: u64) -> Option<u32> {
        self.table.get()?.lock().get(block as usize).copied()
    }

    pub(crate) fn fail(&self, reason: &str) {
        self.progress.send_modify(|now| now.failed = Some(reason.into()));
    }
}
