//! Decodes an object's bytes into batches, without any I/O.
//!
//! ```text
//! next() -> Need::Bytes(range) -> give(range, bytes) -> next() -> Need::Batch(batch) -> ... -> next() -> Need::End
//! ```
//!
//! Invariants:
//! - The records do not depend on the positions at which the object's bytes are cut.
//! - It holds at most a batch in progress and, for Parquet, the row group being read ([`Decoder::held_bytes`]), which
//!   is never larger than the buffer.
//! - After an error, every step returns that error.

mod columns;
mod int96;
mod logical;
mod need;
mod rows;
mod schemas;
mod text;

use crate::by::Spec;
use crate::error::Error;
use crate::format::{FIXED_RECORD_BYTES_MAX, Format, RECORD, UnknownFormat};
use crate::limits::{BATCH_BYTES_MAX, BATCH_BYTES_MIN, BATCH_ROWS_MAX, signed};
use arrow_array::{FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use columns::Columns;
pub use need::Need;
pub(crate) use schemas::plain_schema;
use std::ops::Range;
use std::sync::Arc;
use text::Text;

/// The minimum number of batches in a buffer, unless it is too small for this number of the smallest batches.
const BATCHES_IN_BUFFER: u64 = 16;
/// The longest record of text, for any size of the buffer. A record that long is a batch by itself.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Decodes one object.
#[derive(Debug)]
pub struct Decoder {
    kind: DecoderKind,
    object_bytes: u64,
    buffer_bytes: u64,
    batch_bytes: u64,
    requested: Option<Range<u64>>,
    given: Option<Bytes>,
    failed: Option<Error>,
    /// The position up to which a row format was requested.
    at: u64,
    records_before: u64,
    records_in_batch: u64,
}

#[derive(Debug)]
enum DecoderKind {
    Text(Text),
    Fixed(usize, SchemaRef),
    Columns(Box<Columns>),
}

/// The longest batch of a decoder whose caller stores batches in a buffer of `buffer_bytes`, unless a single record is
/// longer. It is measured as stored input, or as columns in memory.
pub fn batch_bytes(buffer_bytes: u64) -> u64 {
    (buffer_bytes / BATCHES_IN_BUFFER).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX)
}

impl Decoder {
    /// Opens a decoder of an object of `object_bytes`, for a caller that stores batches in a buffer of `buffer_bytes`.
    pub fn open(spec: &Spec, object_bytes: u64, buffer_bytes: u64) -> Self {
        let batch_bytes = batch_bytes(buffer_bytes);
        let kind = match spec.format {
            Format::Fixed { record_bytes } => {
                let width = DataType::FixedSizeBinary(signed(record_bytes.min(FIXED_RECORD_BYTES_MAX)));
                let field = Field::new(RECORD, width, false);
                DecoderKind::Fixed(record_bytes, Arc::new(Schema::new(vec![field])))
            }
            Format::Parquet => {
                DecoderKind::Columns(Box::new(Columns::open(spec, object_bytes, buffer_bytes, batch_bytes)))
            }
            Format::Csv | Format::Ndjson | Format::Lines => {
                let record_bytes_max = (buffer_bytes / BATCHES_IN_BUFFER).clamp(batch_bytes, RECORD_BYTES_MAX);
                DecoderKind::Text(Text::open(spec.format, record_bytes_max))
            }
        };
        let (requested, given) = (None, None);
        Self {
            kind,
            object_bytes,
            buffer_bytes,
            batch_bytes,
            requested,
            given,
            failed: None,
            at: 0,
            records_before: 0,
            records_in_batch: 0,
        }
    }

    /// Returns batches of Parquet as they are read, for a caller that drops them at once: their texts are views of
    /// shared memory, and there is no limit on the size of a copy.
    pub(crate) fn with_views(mut self) -> Self {
        if let DecoderKind::Columns(columns) = &mut self.kind {
            columns.with_views();
        }
        self
    }

    /// Decodes a single row group of Parquet: that of place `place` of `of` places, which are evenly spaced in the
    /// object; none if it is also that of the place before. A row format is decoded from its beginning anyway.
    #[must_use]
    pub fn in_place(mut self, place: usize, of: usize) -> Self {
        assert!(place < of, "there are so many places");
        if let DecoderKind::Columns(columns) = &mut self.kind {
            columns.in_place(place, of);
        }
        self
    }

    /// The bytes of the object per row of Parquet, including the row's share of the bytes between the row groups; known
    /// with the schema. `None` for row formats, and for a row group without rows.
    pub fn row_bytes(&self) -> Option<f64> {
        if let DecoderKind::Columns(columns) = &self.kind { columns.row_bytes() } else { None }
    }

    /// Takes the bytes that [`Need::Bytes`] requested.
    ///
    /// # Panics
    /// If these are other bytes, which is an error of the caller.
    pub fn give(&mut self, range: &Range<u64>, bytes: Bytes) {
        assert_eq!(self.requested.as_ref(), Some(range), "these are the bytes that were requested");
        assert_eq!(range.end - range.start, bytes.len() as u64, "all of them and no more");
        self.requested = None;
        self.given = Some(bytes);
    }

    /// The next step. Requests the same bytes again until they are given.
    ///
    /// # Errors
    /// The first error of the object or of a record, which is counted from [`Self::records_before`] as [`Error::at`]
    /// expects. Every later call returns the same error.
    #[allow(clippy::should_implement_trait)] // An iterator could not request bytes.
    pub fn next(&mut self) -> Result<Need, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let need = self.need().map_err(|error| error.counted_from(self.records_before));
        self.failed = need.as_ref().err().cloned();
        need
    }

    fn need(&mut self) -> Result<Need, Error> {
        if self.buffer_bytes < BATCH_BYTES_MIN {
            return Err(Error::BufferTooSmall { buffer_bytes: self.buffer_bytes, needed_bytes: BATCH_BYTES_MIN });
        }
        if let Some(range) = &self.requested {
            return Ok(Need::Bytes(range.clone()));
        }
        self.records_before += std::mem::take(&mut self.records_in_batch);
        let given = self.given.take();
        let need = match &mut self.kind {
            DecoderKind::Columns(columns) => columns.next(given)?,
            DecoderKind::Text(_) | DecoderKind::Fixed(..) => self.row_format(given)?,
        };
        match &need {
            Need::Bytes(range) => self.requested = Some(range.clone()),
            Need::Batch(batch) => self.records_in_batch = batch.num_rows() as u64,
            Need::End => {}
        }
        Ok(need)
    }

    /// The number of records before those of the last batch; for [`Error::at`].
    pub fn records_before(&self) -> u64 {
        self.records_before
    }

    /// The schema of the batches, as soon as it is known: at once, or after a header or footer was read. Objects
    /// without records have one, too.
    pub fn schema(&self) -> Option<SchemaRef> {
        match &self.kind {
            DecoderKind::Columns(columns) => columns.schema().cloned(),
            DecoderKind::Text(text) => text.schema().cloned(),
            DecoderKind::Fixed(_, schema) => Some(Arc::clone(schema)),
        }
    }

    /// The bytes that count against the buffer in addition to the batches: for Parquet those of the row group being
    /// read, for text those of a record that is longer than a batch, and of its copies.
    pub fn held_bytes(&self) -> u64 {
        match &self.kind {
            DecoderKind::Columns(columns) => columns.held_bytes(),
            DecoderKind::Text(text) => 2 * text.held_bytes().saturating_sub(2 * self.batch_bytes),
            DecoderKind::Fixed(..) => 0,
        }
    }

    fn row_format(&mut self, given: Option<Bytes>) -> Result<Need, Error> {
        let last = self.at == self.object_bytes;
        if let Some(batch) = self.records(given, last)? {
            return Ok(Need::Batch(batch));
        }
        if last {
            // An object of 0 bytes has no records, and a CSV of 0 bytes has no header.
            if let DecoderKind::Text(text) = &self.kind
                && self.object_bytes > 0
            {
                text.end()?;
            }
            return Ok(Need::End);
        }
        let whole = match self.kind {
            DecoderKind::Fixed(record_bytes, _) => {
                self.whole_records(record_bytes)?;
                (self.batch_bytes / record_bytes as u64).min(BATCH_ROWS_MAX) * record_bytes as u64
            }
            DecoderKind::Text(_) | DecoderKind::Columns(_) => self.batch_bytes,
        };
        let end = self.object_bytes.min(self.at + whole);
        assert!(end > self.at, "a request brings the decoder forward");
        let range = self.at..end;
        self.at = end;
        Ok(Need::Bytes(range))
    }

    fn records(&mut self, given: Option<Bytes>, last: bool) -> Result<Option<RecordBatch>, Error> {
        match &mut self.kind {
            DecoderKind::Text(text) => {
                if let Some(bytes) = given {
                    text.give(&bytes);
                }
                text.batch(last)
            }
            DecoderKind::Fixed(record_bytes, schema) => {
                let Some(bytes) = given else { return Ok(None) };
                let records = FixedSizeBinaryArray::try_new(signed(*record_bytes), Buffer::from(bytes), None);
                let records = records.map_err(Error::columns("reading records"))?;
                let batch = RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(records)]);
                Ok(Some(batch.map_err(Error::columns("reading records"))?))
            }
            DecoderKind::Columns(_) => Ok(None),
        }
    }

    fn whole_records(&self, record_bytes: usize) -> Result<(), Error> {
        if !(1..=FIXED_RECORD_BYTES_MAX).contains(&record_bytes) {
            return Err(UnknownFormat(Format::Fixed { record_bytes }.to_string()).into());
        }
        match self.object_bytes % record_bytes as u64 {
            0 => Ok(()),
            rest => Err(Error::TruncatedRecord { object_bytes: self.object_bytes, record_bytes, rest }),
        }
    }
}
