//! The spool as the target of a read: segment after segment, as [`engine::recall::RecallOperation`] decides.
//!
//! Invariants:
//! - room is held for one segment while the read is queued, and for at most two in service;
//! - the next segment can be found before the one before it is complete;
//! - nothing here waits for a reader.

use disk::stack::SinkClosed;
use engine::recall::RecallOperation;
use model::BlobId;
use std::ops::Range;
use workshop::{Purpose, ReserveError, Spool, SpoolError, SpoolReader, SpoolWriter};

/// A further segment of a read, for its reader.
pub struct SpoolSegment {
    /// Holds the segment, and reads it.
    pub reader: SpoolReader,
    /// True if the read ends with it.
    pub is_last: bool,
}

/// Called with every further segment of a read.
pub type SegmentFollower = Box<dyn Fn(SpoolSegment) + Send + Sync>;

/// Writes a read into the spool.
pub struct SpoolSink {
    spool: Spool,
    blob: BlobId,
    operation: RecallOperation,
    writer: SpoolWriter,
    /// The next payload byte.
    at: u64,
    follower: SegmentFollower,
    /// Why the spool took no more.
    failure: Option<String>,
}

impl SpoolSink {
    /// Reserves room for the first segment of `operation`, which reads `blob`; also returns its reader.
    ///
    /// # Errors
    /// [`ReserveError`] if the spool has no room.
    pub async fn reserve(
        spool: &Spool,
        blob: BlobId,
        operation: RecallOperation,
        follower: SegmentFollower,
    ) -> Result<(Self, Option<SpoolReader>), ReserveError> {
        let purpose = Purpose::Asked { wanted_bytes: operation.wanted_bytes() };
        Self::reserve_for(spool, blob, (operation, purpose), follower).await
    }

    /// The same, for this purpose.
    ///
    /// # Errors
    /// [`ReserveError`] if there is no room.
    pub async fn reserve_for(
        spool: &Spool,
        blob: BlobId,
        (operation, purpose): (RecallOperation, Purpose),
        follower: SegmentFollower,
    ) -> Result<(Self, Option<SpoolReader>), ReserveError> {
        let writer = spool.reserve_for(blob, operation.segment(), purpose).await?;
        let at = operation.segment().start;
        let reader = spool.find(blob, at);
        Ok((Self { spool: spool.clone(), blob, operation, writer, at, follower, failure: None }, reader))
    }

    /// The payload bytes that it takes.
    pub(super) fn range(&self) -> Range<u64> {
        self.operation.range()
    }

    /// The payload bytes of the current segment and of those after it: everything that is missing if it ends now.
    pub(super) fn left(&self) -> Range<u64> {
        self.writer.range().start..self.range().end
    }

    /// Why the spool took no more, if it failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The next payload byte.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Takes the next bytes. Closes at the end of its segment if no other follows.
    pub(super) async fn give(&mut self, bytes: &[u8]) -> Result<(), SinkClosed> {
        let mut left = bytes;
        while !left.is_empty() {
            let end = self.writer.range().end;
            assert!(self.at < end, "a segment that is full is followed by the next");
            let here = usize::try_from(end - self.at).map_or(left.len(), |here| here.min(left.len()));
            let (now, later) = left.split_at(here);
            let next = if self.at + now.len() as u64 == end { self.next_segment().await } else { None };
            let appended = self.writer.append(now).await;
            appended.map_err(|error| self.failed(&error))?;
            self.at += now.len() as u64;
            if let Some(next) = next {
                let finished = std::mem::replace(&mut self.writer, next).finish().await;
                finished.map_err(|error| self.failed(&error))?;
            } else if self.at == end && end < self.range().end {
                return Err(SinkClosed);
            }
            left = later;
        }
        Ok(())
    }

    /// Reserves room for the next segment, if the read continues.
    async fn next_segment(&mut self) -> Option<SpoolWriter> {
        let usage = self.spool.usage();
        if self.spool.find(self.blob, self.writer.range().end).is_some() {
            return None; // bytes in the spool are not read again
        }
        let free_bytes = (usage.capacity_bytes + usage.idle_bytes).saturating_sub(usage.used_bytes);
        let segment = self.operation.next_segment(free_bytes)?;
        let (start, is_last) = (segment.start, self.operation.is_in_last_segment());
        let purpose = Purpose::Asked { wanted_bytes: self.operation.wanted_bytes() };
        let writer = self.spool.reserve_for(self.blob, segment, purpose).await.ok()?;
        if let Some(reader) = self.spool.find(self.blob, start) {
            (self.follower)(SpoolSegment { reader, is_last });
        }
        Some(writer)
    }

    /// Finishes the last segment; no more bytes follow.
    pub(super) async fn finish(self) -> Result<(), SpoolError> {
        let finished = self.writer.finish().await;
        if let Err(error) = &finished {
            tracing::error!(%error, "a recall could not be completed in the spool");
        }
        finished
    }

    fn failed(&mut self, error: &SpoolError) -> SinkClosed {
        tracing::error!(%error, "the spool cannot store a recall");
        self.failure = Some(error.to_string());
        SinkClosed
    }

    /// Fails the segment for this reason; no more bytes follow.
    pub(super) fn fail(self, reason: &str) {
        self.writer.fail(reason);
    }
}
