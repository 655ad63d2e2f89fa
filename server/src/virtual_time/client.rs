//! The client of one read of a trace, and the records of all reads.

use super::cards::{Cards, Path};
use crate::world::TimedClient;
use disk::Clock;
use disk::stack::{SinkClosed, synthetic_payload};
use engine::Rejection;
use futures::future::BoxFuture;
use model::{BlobId, Time};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The longest request to a drive where payload is left out: far above a seek, and a small part of a read of 1 GB.
const REQUEST_BYTES: u64 = 8 << 20;

/// The moments of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadMoments {
    /// The moment when it was taken out of its queue.
    pub picked: Option<Time>,
    /// The moment when its client had the first bytes.
    pub first_byte: Option<Time>,
    /// The moment when it ended, if that was before the end of the run.
    pub ended: Option<Time>,
    /// True if it was refused or failed.
    pub refused: bool,
    /// Pieces of its payload that differ from the bytes that its blob's id generates.
    pub wrong_pieces: u64,
}

/// The moments of all reads.
pub(super) struct ReadRecords {
    reads: Mutex<Vec<ReadMoments>>,
    /// Reads that have not ended.
    open: AtomicUsize,
    ended: Notify,
}

impl ReadRecords {
    pub(super) fn new(reads: usize) -> Self {
        let (open, ended) = (AtomicUsize::new(reads), Notify::new());
        Self { reads: Mutex::new(vec![ReadMoments::default(); reads]), open, ended }
    }

    fn note(&self, index: usize, note: impl FnOnce(&mut ReadMoments)) {
        note(&mut self.reads.lock()[index]);
    }

    /// Waits until every read has ended.
    pub(super) async fn all_ended(&self) {
        while self.open.load(Ordering::Relaxed) > 0 {
            self.ended.notified().await;
        }
    }

    pub(super) fn take(&self) -> Vec<ReadMoments> {
        self.reads.lock().clone()
    }
}

/// The client of one read.
pub(super) struct Client {
    pub(super) records: Arc<ReadRecords>,
    /// The index of its read in the trace.
    pub(super) index: usize,
    pub(super) with_payload: bool,
    pub(super) blob: BlobId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) cards: Arc<Cards>,
    pub(super) path: Path,
    /// Bytes taken.
    pub(super) taken: u64,
}

impl TimedClient for Client {
    fn request_bytes(&self) -> Option<u64> {
        (!self.with_payload).then_some(REQUEST_BYTES)
    }

    fn picked(&mut self, at: Option<Time>) {
        self.records.note(self.index, |read| read.picked = read.picked.or(at));
    }

    fn take<'a>(&'a mut self, bytes: u64, payload: Option<&'a [u8]>) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(async move {
            if let Some(payload) = payload {
                let mut expected = vec![0; payload.len()];
                synthetic_payload(self.blob, self.taken, &mut expected);
                self.records.note(self.index, |read| read.wrong_pieces += u64::from(expected != payload));
            }
            let now = self.clock.now();
            self.records.note(self.index, |read| read.first_byte = read.first_byte.or(Some(now)));
            self.taken += bytes;
            self.cards.send(&self.path, bytes).await;
            Ok(())
        })
    }

    fn ended(self: Box<Self>, refused: Option<Rejection>) {
        let now = self.clock.now();
        self.records.note(self.index, |read| {
            read.ended = Some(now);
            read.refused = refused.is_some();
        });
        self.records.open.fetch_sub(1, Ordering::Relaxed);
        self.records.ended.notify_one();
    }
}
