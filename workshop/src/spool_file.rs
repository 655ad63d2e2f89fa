//! One recall on its way through the spool: its writer, and the readers that follow it.
//!
//! Invariant: a reader returns no byte that the writer did not announce as written, and none whose block it did not
//! check against the checksum that the writer computed in memory.

use crate::block::{BLOCK_BYTES, BlockRef, BlockWriter, FileIdentity, read_block};
use crate::names::spool_name;
use crate::recall::{Recall, SpoolError};
use crate::spool_entries::SpoolHold;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;

/// The file of a recall. Its number is unique for the life of the process, and no file outlives the process.
fn identity(number: u64) -> FileIdentity {
    FileIdentity { number, nonce: 0 }
}

/// Writes a recall. Dropped unfinished, it fails the recall.
pub struct SpoolWriter {
    hold: SpoolHold,
    recall: Arc<Recall>,
    blocks: BlockWriter,
    finished: bool,
}

impl SpoolWriter {
    pub(crate) fn new(hold: SpoolHold, recall: Arc<Recall>) -> Self {
        let announced = Arc::clone(&recall);
        let written = move |bytes| announced.advance(bytes);
        let (drive, name) = (Arc::clone(&hold.entries.drive), spool_name(hold.number));
        let blocks = BlockWriter::new(drive, name, identity(hold.number), recall.bytes(), Arc::new(written));
        recall.table.get_or_init(|| Arc::clone(blocks.table()));
        Self { hold, recall, blocks, finished: false }
    }

    /// The payload bytes that are to come.
    pub fn range(&self) -> Range<u64> {
        self.recall.range.clone()
    }

    /// Appends the next payload bytes. Waits for the disk at most, never for a reader.
    pub async fn append(&mut self, data: &[u8]) -> Result<(), SpoolError> {
        let (written_bytes, entry_bytes) = (self.blocks.bytes() + data.len() as u64, self.recall.bytes());
        if written_bytes > entry_bytes {
            return Err(SpoolError::WrongLength { written_bytes, entry_bytes });
        }
        Ok(self.blocks.write(data).await?)
    }

    /// Completes the recall when all is appended: readers come to the end, and the entry stays until its room is
    /// wanted.
    pub async fn finish(mut self) -> Result<(), SpoolError> {
        let (written_bytes, entry_bytes) = (self.blocks.bytes(), self.recall.bytes());
        if written_bytes != entry_bytes {
            return Err(SpoolError::WrongLength { written_bytes, entry_bytes });
        }
        self.blocks.finish(&mut |_| Vec::new()).await?;
        assert_eq!(
            self.recall.progress.borrow().bytes,
            entry_bytes,
            "a recall is complete when its last block is written"
        );
        self.finished = true;
        Ok(())
    }

    /// Fails the recall: the rack could not read it. Readers get an error after the bytes that were appended so far,
    /// and the entry is removed with its last reader.
    pub fn fail(self, reason: &str) {
        self.recall.fail(reason);
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        if !self.finished {
            if self.recall.progress.borrow().failed.is_none() {
                self.recall.fail("it was given up");
            }
            self.hold.entries.mark_dead(self.hold.number);
        }
    }
}

/// Reads a recall that is complete or still growing. The entry stays at least as long as the reader and its streams.
#[derive(Clone)]
pub struct SpoolReader {
    file: Arc<OpenEntry>,
}

struct OpenEntry {
    hold: SpoolHold,
    recall: Arc<Recall>,
}

impl SpoolReader {
    pub(crate) fn new(hold: SpoolHold, recall: Arc<Recall>) -> Self {
        Self { file: Arc::new(OpenEntry { hold, recall }) }
    }

    /// The payload bytes that it holds, or will hold.
    pub fn range(&self) -> Range<u64> {
        self.file.recall.range.clone()
    }

    /// True if it was read ahead of a request.
    pub fn is_ahead(&self) -> bool {
        self.file.hold.is_ahead()
    }

    /// True if all of them are written.
    pub fn is_complete(&self) -> bool {
        self.file.recall.is_complete()
    }

    /// Waits until everything up to payload byte `end` of the blob can be read.
    pub async fn written(&self, end: u64) -> Result<(), SpoolError> {
        let here = self.range();
        if end > here.end {
            return Err(SpoolError::OutOfRange(here));
        }
        self.file.recall.written(end.saturating_sub(here.start)).await
    }

    /// Payload bytes `range` of the blob, in chunks of at most a block each, as they come. The stream ends after its
    /// first error.
    pub fn read(&self, range: Range<u64>) -> BoxStream<'static, Result<Bytes, SpoolError>> {
        let here = self.range();
        if range.start > range.end || range.start < here.start || range.end > here.end {
            return stream::once(async { Err(SpoolError::OutOfRange(here)) }).boxed();
        }
        let rest = range.start - here.start..range.end - here.start;
        stream::try_unfold((Arc::clone(&self.file), rest), |(file, rest)| async move {
            if rest.is_empty() {
                return Ok(None);
            }
            let chunk = file.chunk(&rest).await?;
            let next = rest.start + chunk.len() as u64..rest.end;
            Ok(Some((chunk, (file, next))))
        })
        .boxed()
    }
}

impl OpenEntry {
    /// The beginning of `rest` (counted from the entry's own beginning), up to the end of its first block.
    async fn chunk(&self, rest: &Range<u64>) -> Result<Bytes, SpoolError> {
        let block = rest.start / BLOCK_BYTES as u64;
        let start = block * BLOCK_BYTES as u64;
        let end = self.recall.bytes().min(start + BLOCK_BYTES as u64);
        self.recall.written(end).await?;
        let damaged = SpoolError::Damaged { blob: self.recall.blob, block };
        let Some(crc) = self.recall.crc(block) else { return Err(damaged) };
        let name = spool_name(self.hold.number);
        let (drive, bytes) = (&*self.hold.entries.drive, (end - start) as usize);
        let data = read_block(drive, &name, identity(self.hold.number), BlockRef { block, bytes, crc }).await?;
        let Some(data) = data else {
            self.hold.entries.mark_dead(self.hold.number);
            return Err(damaged);
        };
        let wanted = data.slice((rest.start - start) as usize..(rest.end.min(end) - start) as usize);
        self.recall.take(wanted.len() as u64);
        Ok(wanted)
    }
}
