//! Records of CSV, NDJSON and lines: where one ends and the next begins.
//!
//! 1. Bytes come in pieces. What is left of a piece behind its last whole record is carried to the next.
//! 2. A record is copied as it stands, without what ends it: a line feed, and of CSV a carriage return before it, of
//!    NDJSON any of them.
//! 3. CSV and NDJSON are checked for UTF-8. Their empty lines are no records; those of plain lines are, and those of a
//!    CSV with one column, where they are its null.
//! 4. The first record of a CSV is its header. It becomes part of the schema, and each record must have as many fields.
//!
//! Invariants:
//! - A batch has no more than a piece of bytes, [`BATCH_ROWS_MAX`] records, or one long record; and there is never more
//!   than a piece and a record held.

use super::BATCH_ROWS_MAX;
use crate::csv::{self, Flaw};
use crate::{Error, Format, HEADER, LINE, RECORD};
use arrow::array::{BinaryArray, RecordBatch};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Text {
    format: Format,
    record_bytes_max: usize,
    /// Bytes of records that were not handed out, from `at` on.
    carried: Vec<u8>,
    at: usize,
    /// Known at once, or of CSV when the header is.
    schema: Option<SchemaRef>,
    fields: usize,
    records: u64,
}

/// A record in some bytes, and where the next one begins.
struct Found {
    record: Range<usize>,
    next: usize,
}

impl Text {
    pub(super) fn open(format: Format, record_bytes_max: u64) -> Self {
        let schema = match format {
            Format::Csv => None,
            Format::Lines => Some(text_schema(LINE, None)),
            _ => Some(text_schema(RECORD, None)),
        };
        let record_bytes_max = record_bytes_max as usize;
        Self { format, record_bytes_max, carried: Vec::new(), at: 0, schema, fields: 0, records: 0 }
    }

    pub(super) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Bytes that wait for the rest of their record.
    pub(super) fn held_bytes(&self) -> u64 {
        self.carried.capacity() as u64
    }

    /// Takes what follows.
    pub(super) fn give(&mut self, piece: &[u8]) {
        let mut bytes = Vec::with_capacity(self.carried.len() - self.at + piece.len());
        bytes.extend_from_slice(&self.carried[self.at..]);
        bytes.extend_from_slice(piece);
        (self.carried, self.at) = (bytes, 0);
    }

    /// Refuses a CSV without a header, when all of it was given.
    pub(super) fn end(&self) -> Result<(), Error> {
        match &self.schema {
            Some(_) => Ok(()),
            None => Err(self.not_this("it has no header line")),
        }
    }

    /// The next records of what was given, which is all there is if it is the `last`; nothing if there are none.
    pub(super) fn batch(&mut self, last: bool) -> Result<Option<RecordBatch>, Error> {
        let bytes = std::mem::take(&mut self.carried);
        let batch = self.batch_of(&bytes, last);
        self.carried = bytes;
        if matches!(batch, Ok(None)) {
            // Perhaps it is long until more is given, and other objects are read meanwhile.
            (self.carried, self.at) = (self.carried[self.at..].to_vec(), 0);
        }
        batch
    }

    fn batch_of(&mut self, bytes: &[u8], last: bool) -> Result<Option<RecordBatch>, Error> {
        let mut offsets = vec![0];
        let mut values = Vec::with_capacity(bytes.len() - self.at);
        while self.at < bytes.len() && offsets.len() <= BATCH_ROWS_MAX as usize {
            let Some(found) = self.record(bytes, self.at, last)? else {
                if bytes.len() - self.at > self.record_bytes_max {
                    return Err(self.too_long(&bytes[self.at..]));
                }
                break;
            };
            let record = &bytes[found.record];
            if record.len() > self.record_bytes_max {
                return Err(self.too_long(record));
            }
            self.at = found.next;
            if record.is_empty() && !self.empty_counts() {
                continue;
            }
            if self.schema.is_none() {
                self.header(record)?;
                continue;
            }
            self.records += 1;
            values.extend_from_slice(record);
            offsets.push(super::signed(values.len()));
        }
        if values.len() < values.capacity() / 2 {
            values.shrink_to_fit();
        }
        self.checked(offsets, values)
    }

    /// Whether an empty line is a record.
    fn empty_counts(&self) -> bool {
        match self.format {
            Format::Csv => self.schema.is_some() && self.fields == 1,
            format => format == Format::Lines,
        }
    }

    fn checked(&self, offsets: Vec<i32>, values: Vec<u8>) -> Result<Option<RecordBatch>, Error> {
        let Some(schema) = self.schema.as_ref().filter(|_| offsets.len() > 1) else { return Ok(None) };
        if self.format != Format::Lines
            && let Some(row) = not_utf8(&offsets, &values)
        {
            return Err(Error::NotUtf8 { record: self.records - (offsets.len() as u64 - 1) + row as u64 });
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let records = BinaryArray::new(offsets, Buffer::from_vec(values), None);
        let batch = RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(records)]);
        batch.map(Some).map_err(Error::columns("reading records"))
    }

    fn not_this(&self, reason: &str) -> Error {
        Error::NotThisFormat { format: self.format, reason: reason.to_owned() }
    }

    fn malformed(&self, reason: String) -> Error {
        Error::Malformed { record: self.records + 1, format: self.format, reason }
    }

    /// The refusal of a record that begins like this; a quote that is open to its end is the likeliest reason.
    fn too_long(&self, record: &[u8]) -> Error {
        if self.format == Format::Csv && csv::record(record, true) == Err(Flaw::Unclosed) {
            return self.malformed(format!("a quote in it is not closed within {} bytes", self.record_bytes_max));
        }
        Error::RecordTooLong { record: self.records + 1, limit_bytes: self.record_bytes_max as u64 }
    }

    /// The record at `at`, if it ends in `bytes`, or wherever it ends if they are the last.
    fn record(&self, bytes: &[u8], at: usize, last: bool) -> Result<Option<Found>, Error> {
        if self.format == Format::Csv {
            let record = csv::record(&bytes[at..], last).map_err(|flaw| self.flawed(flaw))?;
            let Some(record) = record else { return Ok(None) };
            if self.schema.is_some() && record.bytes > 0 && record.fields != self.fields {
                let reason = format!("it has {} fields and the header has {}", record.fields, self.fields);
                return Err(self.malformed(reason));
            }
            return Ok(Some(Found { record: at..at + record.bytes, next: at + record.next }));
        }
        let (end, next) = match memchr::memchr(b'\n', &bytes[at..]) {
            Some(line) => (at + line, at + line + 1),
            None if last => (bytes.len(), bytes.len()),
            None => return Ok(None),
        };
        let returns = match self.format {
            Format::Ndjson => bytes[at..end].iter().rev().take_while(|byte| **byte == b'\r').count(),
            _ => 0,
        };
        Ok(Some(Found { record: at..end - returns, next }))
    }

    fn flawed(&self, flaw: Flaw) -> Error {
        let reason = match flaw {
            Flaw::Unclosed => "a quote in it is never closed",
            Flaw::BareReturn => {
                "it has a carriage return that no line feed follows; end lines with line feeds, and quote fields that \
                 have carriage returns"
            }
        };
        if self.schema.is_some() { self.malformed(reason.to_owned()) } else { self.not_this(reason) }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Error> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| self.not_this("its first line is not UTF-8"))?;
        if line.is_empty() {
            return Err(self.not_this("its header is empty"));
        }
        if line.contains('\0') {
            return Err(self.not_this("its first line has bytes that are no text"));
        }
        self.fields = csv::split(line.as_bytes()).len();
        self.schema = Some(text_schema(RECORD, Some(line)));
        Ok(())
    }
}

/// Which record is the first, from 1, that is not UTF-8 by itself.
fn not_utf8(offsets: &[i32], values: &[u8]) -> Option<usize> {
    let (text, flaw) = match std::str::from_utf8(values) {
        Ok(text) => (text, None),
        Err(error) => {
            let sound = std::str::from_utf8(&values[..error.valid_up_to()]).unwrap_or("");
            (sound, Some(offsets.partition_point(|offset| *offset as usize <= sound.len())))
        }
    };
    // The end of one record and the beginning of the next may be a letter together.
    let ends = offsets.iter().take_while(|offset| **offset as usize <= text.len());
    let split = ends.enumerate().find(|(_, offset)| !text.is_char_boundary(**offset as usize)).map(|(row, _)| row);
    split.or(flaw)
}

fn text_schema(column: &str, header: Option<&str>) -> SchemaRef {
    let metadata: HashMap<_, _> = header.into_iter().map(|line| (HEADER.to_owned(), line.to_owned())).collect();
    Arc::new(Schema::new_with_metadata(vec![Field::new(column, DataType::Binary, false)], metadata))
}
