//! The bytes of an object of the input, wherever it is stored: ranges of its blob by reads of the background priority
//! class, or of its files in the workshop.
//!
//! Invariants: an object that was opened can be read to its end, even if it is deleted or migrated meanwhile, since its
//! blob or its files are held. One stream of reads is open at a time. It is closed before the class does anything else,
//! since its operation in service would be in the way.

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

/// Gap up to which bytes are read and discarded rather than starting another operation after them.
pub(super) const GAP_BYTES: u64 = 1 << 20;
/// Maximum number of lookups of an object that moves.
const LOOKS: u32 = 8;

/// Why bytes could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The rack refuses the read.
    #[error(transparent)]
    Refused(#[from] Rejection),
    /// The workshop cannot read them.
    #[error(transparent)]
    Staged(#[from] ReadError),
    /// The catalog cannot be read.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// The object moves faster than it can be looked up.
    #[error("it keeps moving")]
    Moving,
}

/// Where an object is stored, with a hold that keeps it there.
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

/// Finds `input` and holds it. `None` if it was deleted or overwritten.
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
        // It is held before this second look. If it is still here, a task that removes it later sees the hold.
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
    /// The bytes `range` of the object; the bytes after it in its blob are read along up to `ahead`.
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

/// Reads ranges of a blob, with one stream as long as they follow each other.
pub(super) struct BlobReader {
    reads: MemoryReads,
    priority: PriorityClass,
    open: Option<OpenStream>,
}

struct OpenStream {
    blob: BlobId,
    /// The payload bytes still to come.
    rest: Range<u64>,
    bytes: BoxStream<'static, Result<Bytes, Rejection>>,
    left: Bytes,
}

impl BlobReader {
    /// Reads with `reads`, in this priority class.
    pub fn new(reads: MemoryReads, priority: PriorityClass) -> Self {
        Self { reads, priority, open: None }
    }

    /// Ends the operation that is open.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// The payload bytes `range` of `blob`; the bytes after it are read along up to `end`.
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
            // A stream of reads returns all of its bytes or an error, unless the world has ended.
            self.left = self.bytes.next().await.ok_or(Rejection::Closing)??;
        }
    }
}

/// Bytes of an object that is in files of the workshop.
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
