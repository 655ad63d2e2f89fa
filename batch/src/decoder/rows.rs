//! Rows of Parquet as they were read, cut into batches of bounded size.
//!
//! 1. Texts and bytes are read as views of the pages and dictionaries they lie in. So a value that a dictionary has
//!    once and a million rows name takes its bytes once, however many rows were read.
//! 2. What each row takes when it is written out is counted.
//! 3. So many rows as are a batch are written out; the others wait.
//!
//! Invariants:
//! - A batch takes [`super::BATCH_BYTES_MAX`] at most, or is a single row, whatever was read at once.
//! - A batch shares no memory with what waits.

use super::BATCH_ROWS_MAX;
use crate::sizes::row_ends;
use crate::{Error, held_bytes};
use arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, make_array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use std::sync::Arc;

/// Rows that were read and are in no batch yet.
pub(super) struct Rows {
    schema: SchemaRef,
    batch_bytes: u64,
    /// What was read, which of its rows is the next, and where each ends when all are written out.
    waiting: Option<(RecordBatch, usize, Vec<u64>)>,
    /// Written out.
    gathered: Vec<RecordBatch>,
    gathered_bytes: u64,
    gathered_count: usize,
}

impl Rows {
    /// Will become batches with this schema, which has no views, dictionaries or runs.
    pub(super) fn new(schema: SchemaRef, batch_bytes: u64) -> Self {
        Self { schema, batch_bytes, waiting: None, gathered: Vec::new(), gathered_bytes: 0, gathered_count: 0 }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What is held of pages and dictionaries beyond a batch.
    pub(super) fn held_bytes(&self) -> u64 {
        self.waiting.as_ref().map_or(0, |(read, ..)| held_bytes(read).saturating_sub(self.batch_bytes))
    }

    /// Takes what was read.
    ///
    /// # Panics
    /// If what was taken before is not in batches: that is a mistake of the caller.
    pub(super) fn push(&mut self, read: RecordBatch) {
        assert!(self.waiting.is_none(), "rows are read when those before them are in batches");
        let ends = row_ends(&read);
        self.waiting = Some((read, 0, ends));
    }

    /// The next batch, if rows for it were read.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        while let Some((read, at, ends)) = self.waiting.take() {
            let before = at.checked_sub(1).map_or(0, |row| ends[row]);
            let room = before.saturating_add(self.batch_bytes.saturating_sub(self.gathered_bytes));
            let left = BATCH_ROWS_MAX as usize - self.gathered_count;
            let fit = ends[at..].partition_point(|end| *end <= room).min(left);
            let end = at + fit.max(usize::from(self.gathered.is_empty())).min(read.num_rows() - at);
            if end > at {
                self.gathered.push(self.plain(&read, at, end)?);
                self.gathered_bytes += ends[end - 1] - before;
                self.gathered_count += end - at;
            }
            if end < read.num_rows() {
                self.waiting = Some((read, end, ends));
                return self.rest();
            }
        }
        let full = 2 * self.gathered_bytes >= self.batch_bytes || self.gathered_count == BATCH_ROWS_MAX as usize;
        if full { self.rest() } else { Ok(None) }
    }

    /// A batch of what is written out, if there is anything.
    pub(super) fn rest(&mut self) -> Result<Option<RecordBatch>, Error> {
        (self.gathered_bytes, self.gathered_count) = (0, 0);
        let gathered = std::mem::take(&mut self.gathered);
        match &gathered[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            some => concat_batches(&self.schema, some).map(Some).map_err(Error::columns("joining rows")),
        }
    }

    /// Some rows written out, with memory of their own.
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
