//! The bytes of an object of the input, wherever it lies: ranges of its blob by reads of the background priority class,
//! or of its files in the workshop.
//!
//! Invariants: an object that was opened can be read to its end, whoever deletes or migrates it meanwhile: its blob is
//! held, or its files are. One stream of reads is open at a time. It is closed before anything else is done in the
//! class: what it has in service would be in the way.

use super::input::{Input, find_version};
use crate::world::{Context, MemoryReads};
use bytes::{Bytes, BytesMut};
use catalog::{Blob, CatalogError, Place};
use engine::{PriorityClass, Rejection};
use futures::StreamExt;
use futures::stream::BoxStream;
use model::BlobId;
use std::ops::Range;
use workshop::{NamedSlot, ReadError, SlotHold, StagedReader};

/// Bytes that are read and thrown away rather than begin another operation behind them.
pub(super) const GAP_BYTES: u64 = 1 << 20;
/// Times an object is looked up again because it has moved.
const LOOKS: u32 = 8;

/// Why bytes did not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The rack does not give them.
    #[error(transparent)]
    Refused(#[from] Rejection),
    /// The workshop does not.
    #[error(transparent)]
    Staged(#[from] ReadError),
    /// The catalog cannot be read.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// They are moved about faster than they are found.
    #[error("it is moved again and again")]
    Moving,
}

/// Where an object lies, kept there.
pub(super) enum InputSource {
    Rack { blob: Blob, offset: u64, _hold: crate::holds::Hold },
    Workshop { files: Vec<(Range<u64>, SlotHold)>, open: Option<(usize, StagedReader)> },
}

/// An object that can be read to its end.
pub(super) struct Opened {
    /// Its name, for people.
    pub name: String,
    pub source: InputSource,
}

/// Finds `input` and keeps it. `None` if it was deleted or overwritten.
pub(super) async fn open(context: &Context, bucket: &str, input: &Input) -> Result<Option<Opened>, SourceError> {
    for _ in 0..LOOKS {
        let look = || find_version(&context.catalog, bucket, &input.key, input.version);
        let Some((object, place)) = look().await? else { return Ok(None) };
        let name = format!("s3://{bucket}/{}", input.key);
        let source = match place {
            Place::Stored { blob, offset } => {
                let hold = context.holds.guard(blob);
                let found = context.catalog.blob(blob).await?;
                found.map(|blob| InputSource::Rack { blob, offset, _hold: hold })
            }
            place => {
                let slots = context.catalog.slots_of(input.version, place).await?;
                let part = |number| object.parts.range(number).filter(|_| place == Place::Parts);
                let held = slots.iter().zip(1..).map(|(slot, number)| {
                    let range = part(number).unwrap_or(0..object.bytes);
                    Some((range, context.staging.hold(NamedSlot::of(*slot, bucket, &input.key))?))
                });
                let files: Option<Vec<_>> = held.collect();
                files.filter(|files| !files.is_empty()).map(|files| InputSource::Workshop { files, open: None })
            }
        };
        // Held before it is looked at once more: if it still lies here, whatever takes it away sees the hold.
        let again = look().await?;
        match (source, again) {
            (_, None) => return Ok(None),
            (Some(source), Some((_, again))) if again == place => return Ok(Some(Opened { name, source })),
            _ => {}
        }
    }
    Err(SourceError::Moving)
}

impl InputSource {
    /// The bytes `range` of the object; what follows in its blob is read along up to `ahead`.
    pub async fn fetch(&mut self, blobs: &mut BlobReader, range: Range<u64>, ahead: u64) -> Result<Bytes, SourceError> {
        match self {
            Self::Rack { blob, offset, .. } => {
                let wanted = *offset + range.start..*offset + range.end;
                blobs.read(blob, wanted, ahead.min(blob.payload_bytes)).await
            }
            Self::Workshop { files, open } => read_files(files, open, range).await,
        }
    }
}

/// Reads ranges of a blob, going on with one stream as long as they follow one another.
pub(super) struct BlobReader {
    reads: MemoryReads,
    priority: PriorityClass,
    open: Option<OpenStream>,
}

struct OpenStream {
    blob: BlobId,
    /// The payload's bytes that are still to come.
    rest: Range<u64>,
    bytes: BoxStream<'static, Result<Bytes, Rejection>>,
    left: Bytes,
}

impl BlobReader {
    /// Reads by `reads`, as work of that class.
    pub fn new(reads: MemoryReads, priority: PriorityClass) -> Self {
        Self { reads, priority, open: None }
    }

    /// Ends the operation that is open.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// The payload bytes `range` of `blob`; what follows up to `end` is read along.
    pub async fn read(&mut self, blob: &Blob, range: Range<u64>, end: u64) -> Result<Bytes, SourceError> {
        let goes_on = self.open.as_ref().is_some_and(|open| {
            open.blob == blob.blob
                && open.rest.end >= range.end
                && (open.rest.start..=open.rest.start.saturating_add(GAP_BYTES)).contains(&range.start)
        });
        if !goes_on {
            self.open = None;
            let rest = range.start..end.max(range.end);
            let bytes = self.reads.stream(blob.clone(), rest.clone(), self.priority);
            self.open = Some(OpenStream { blob: blob.blob, rest, bytes, left: Bytes::new() });
        }
        let read = async {
            let Some(open) = &mut self.open else { return Err(Rejection::Closing) };
            open.skip(range.start).await?;
            open.take((range.end - range.start) as usize).await
        };
        let read = read.await;
        if read.is_err() {
            self.open = None;
        }
        Ok(read?)
    }
}

impl OpenStream {
    async fn skip(&mut self, to: u64) -> Result<(), Rejection> {
        while self.rest.start < to {
            let most = (to - self.rest.start).min(GAP_BYTES) as usize;
            self.take(most).await?;
        }
        Ok(())
    }

    async fn take(&mut self, bytes: usize) -> Result<Bytes, Rejection> {
        let mut all = BytesMut::new();
        loop {
            let now = self.left.split_to(self.left.len().min(bytes - all.len()));
            self.rest.start += now.len() as u64;
            assert!(self.rest.start <= self.rest.end, "a stream gives no more than was ordered");
            if now.len() == bytes {
                return Ok(now);
            }
            all.reserve(bytes - all.len());
            all.extend_from_slice(&now);
            if all.len() == bytes {
                return Ok(all.freeze());
            }
            // A stream of reads gives all of its bytes, or says why not, unless the world has ended.
            self.left = self.bytes.next().await.ok_or(Rejection::Closing)??;
        }
    }
}

/// Bytes of an object that lies in files of the workshop.
async fn read_files(
    files: &[(Range<u64>, SlotHold)],
    open: &mut Option<(usize, StagedReader)>,
    range: Range<u64>,
) -> Result<Bytes, SourceError> {
    let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
    let first = files.partition_point(|(file, _)| file.end <= range.start);
    for (index, (file, hold)) in files.iter().enumerate().skip(first) {
        if file.start >= range.end {
            break;
        }
        if open.as_ref().is_none_or(|(known, _)| *known != index) {
            *open = Some((index, hold.open().await?));
        }
        let Some((_, reader)) = open else { continue };
        let wanted = range.start.max(file.start) - file.start..range.end.min(file.end) - file.start;
        let mut bytes = reader.read(wanted);
        while let Some(piece) = bytes.next().await {
            all.extend_from_slice(&piece?);
        }
    }
    Ok(all.freeze())
}
