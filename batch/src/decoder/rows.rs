//! Cuts rows of Parquet into batches of bounded size.
//!
//! 1. Texts and bytes are read as views of pages and dictionaries. A value that a dictionary has once and a million
//!    rows refer to takes its bytes once, regardless of the number of rows that are read.
//! 2. The size of each row when it is written out is counted.
//! 3. The rows that make a batch are written out; the others wait.
//!
//! Invariants:
//! - A batch is at most [`crate::limits::BATCH_BYTES_MAX`] or a single row, regardless of the amount that was read at
//!   once.
//! - A batch shares no memory with the waiting rows.

use crate::error::Error;
use crate::held::held_bytes;
use crate::limits::BATCH_ROWS_MAX;
use crate::sizes::row_ends;
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_cast::cast;
use arrow_data::transform::MutableArrayData;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use std::sync::Arc;

/// Rows that were read, but are in no batch yet.
pub(super) struct Rows {
    schema: SchemaRef,
    batch_bytes: u64,
    /// The rows that were read, the next one of them, and the end of each if all are written out.
    waiting: Option<(RecordBatch, usize, Vec<u64>)>,
    /// Rows of the next batch, written out.
    gathered: Vec<RecordBatch>,
    gathered_bytes: u64,
    gathered_count: usize,
}

impl Rows {
    /// Rows for batches with this schema, which has no views, dictionaries or runs.
    pub(super) fn new(schema: SchemaRef, batch_bytes: u64) -> Self {
        Self { schema, batch_bytes, waiting: None, gathered: Vec::new(), gathered_bytes: 0, gathered_count: 0 }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Bytes of pages and dictionaries held beyond a batch.
    pub(super) fn held_bytes(&self) -> u64 {
        self.waiting.as_ref().map_or(0, |(read, ..)| held_bytes(read).saturating_sub(self.batch_bytes))
    }

    /// Takes rows that were read.
    ///
    /// # Panics
    /// If rows taken before are still waiting, which is an error of the caller.
    pub(super) fn push(&mut self, read: RecordBatch) {
        assert!(self.waiting.is_none(), "rows are read when those before them are in batches");
        let ends = row_ends(&read);
        self.waiting = Some((read, 0, ends));
    }

    /// The next batch; `None` if too few rows were read.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        while let Some((read, at, ends)) = self.waiting.take() {
            let before = at.checked_sub(1).map_or(0, |row| ends[row]);
            let room = before.saturating_add(self.batch_bytes.saturating_sub(self.gathered_bytes));
            let left = BATCH_ROWS_MAX as usize - self.gathered_count;
            let fit = ends[at..].partition_point(|end| *end <= room).min(left);
            let end = at + fit.max(usize::from(self.gathered.is_empty())).min(read.num_rows() - at);
            assert!(end <= read.num_rows() && ends.len() == read.num_rows(), "each row has an end");
            if end > at {
                self.gathered.push(self.plain(&read, at, end)?);
                self.gathered_bytes += ends[end - 1] - before;
                self.gathered_count += end - at;
                assert!(self.gathered_count <= BATCH_ROWS_MAX as usize, "a batch has no more rows than it may");
            }
            if end < read.num_rows() {
                self.waiting = Some((read, end, ends));
                return self.rest();
            }
        }
        let full = 2 * self.gathered_bytes >= self.batch_bytes || self.gathered_count == BATCH_ROWS_MAX as usize;
        if full { self.rest() } else { Ok(None) }
    }

    /// A batch of the rows written out; `None` without rows.
    pub(super) fn rest(&mut self) -> Result<Option<RecordBatch>, Error> {
        (self.gathered_bytes, self.gathered_count) = (0, 0);
        let gathered = std::mem::take(&mut self.gathered);
        match &gathered[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            some => concat_batches(&self.schema, some).map(Some).map_err(Error::columns("joining rows")),
        }
    }

    /// Rows written out, in separate memory.
    fn plain(&self, read: &RecordBatch, begin: usize, end: usize) -> Result<RecordBatch, Error> {
        let whole = begin == 0 && end == read.num_rows();
        let plain = |(column, kind): (&ArrayRef, &DataType)| {
            // Casting a slice of lists would write out the elements of all of them.
            let column = if whole { Arc::clone(column) } else { copied(column, begin, end)? };
            if column.data_type() == kind { Ok(column) } else { cast(&column, kind) }
        };
        let kinds = self.schema.fields().iter().map(|field| field.data_type());
        let columns: Result<Vec<_>, _> = read.columns().iter().zip(kinds).map(plain).collect();
        let batch = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
        batch.map_err(Error::columns("reading rows"))
    }
}

fn copied(column: &ArrayRef, begin: usize, end: usize) -> Result<ArrayRef, ArrowError> {
    let data = column.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, end - begin);
    copy.try_extend(0, begin, end)?;
    Ok(make_array(copy.freeze()))
}
