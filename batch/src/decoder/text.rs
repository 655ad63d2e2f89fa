//! Records of CSV, NDJSON and lines: where one ends and the next begins.
//!
//! 1. Bytes come in pieces. What is left of a piece behind its last whole record is carried to the next.
//! 2. A record is copied as it stands, without what ends it: a line feed, and of CSV and NDJSON a carriage return
//!    before it.
//! 3. CSV and NDJSON are checked for UTF-8. Their empty lines are no records; those of plain lines are.
//! 4. The first record of a CSV is its header. It becomes part of the schema, and each record must have as many fields.
//!
//! Invariants:
//! - A record is never longer than a batch, and there is never more than a piece and a record held.

use crate::csv;
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
    carried: Vec<u8>,
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
    pub(super) fn open(format: Format, batch_bytes: u64) -> Self {
        let schema = match format {
            Format::Csv => None,
            Format::Lines => Some(text_schema(LINE, None)),
            _ => Some(text_schema(RECORD, None)),
        };
        Self { format, record_bytes_max: batch_bytes as usize, carried: Vec::new(), schema, fields: 0, records: 0 }
    }

    /// The records that end in this piece, if any.
    pub(super) fn more(&mut self, piece: &[u8]) -> Result<Option<RecordBatch>, Error> {
        let mut bytes = std::mem::take(&mut self.carried);
        bytes.extend_from_slice(piece);
        self.batch(&bytes, false)
    }

    /// The last record, if it has no end.
    pub(super) fn end(&mut self) -> Result<Option<RecordBatch>, Error> {
        let bytes = std::mem::take(&mut self.carried);
        let batch = self.batch(&bytes, true)?;
        if self.schema.is_none() {
            let reason = String::from("it has no header line");
            return Err(Error::NotThisFormat { format: self.format, reason });
        }
        Ok(batch)
    }

    fn batch(&mut self, bytes: &[u8], last: bool) -> Result<Option<RecordBatch>, Error> {
        let mut offsets = vec![0];
        let mut values = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let Some(found) = self.record(bytes, at, last)? else { break };
            at = found.next;
            let record = &bytes[found.record];
            if record.len() > self.record_bytes_max {
                return Err(self.too_long());
            }
            if record.is_empty() && self.format != Format::Lines {
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
        if bytes.len() - at > self.record_bytes_max {
            return Err(self.too_long());
        }
        self.carried = bytes[at..].to_vec();
        self.checked(offsets, values)
    }

    fn checked(&self, offsets: Vec<i32>, values: Vec<u8>) -> Result<Option<RecordBatch>, Error> {
        let Some(schema) = self.schema.as_ref().filter(|_| offsets.len() > 1) else { return Ok(None) };
        if self.format != Format::Lines
            && let Err(error) = std::str::from_utf8(&values)
        {
            let row = offsets.partition_point(|offset| *offset as usize <= error.valid_up_to());
            return Err(Error::NotUtf8 { record: self.records - (offsets.len() as u64 - 1) + row as u64 });
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let records = BinaryArray::new(offsets, Buffer::from_vec(values), None);
        let batch = RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(records)]);
        batch.map(Some).map_err(Error::columns("reading records"))
    }

    fn too_long(&self) -> Error {
        Error::RecordTooLong { record: self.records + 1, limit_bytes: self.record_bytes_max as u64 }
    }

    /// The record at `at`, if it ends in `bytes`, or wherever it ends if they are the last.
    fn record(&self, bytes: &[u8], at: usize, last: bool) -> Result<Option<Found>, Error> {
        if self.format == Format::Csv {
            let malformed = |reason| Error::Malformed { record: self.records + 1, format: self.format, reason };
            let record = csv::record(&bytes[at..], last);
            let record = record.map_err(|_| malformed(String::from("a quote in it is never closed")))?;
            let Some(record) = record else { return Ok(None) };
            if self.schema.is_some() && record.bytes > 0 && record.fields != self.fields {
                return Err(malformed(format!("it has {} fields and the header has {}", record.fields, self.fields)));
            }
            return Ok(Some(Found { record: at..at + record.bytes, next: at + record.next }));
        }
        let (end, next) = match memchr::memchr(b'\n', &bytes[at..]) {
            Some(line) => (at + line, at + line + 1),
            None if last => (bytes.len(), bytes.len()),
            None => return Ok(None),
        };
        let returned = self.format == Format::Ndjson && bytes[at..end].ends_with(b"\r");
        Ok(Some(Found { record: at..end - usize::from(returned), next }))
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Error> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let wrong = |reason: &str| Error::NotThisFormat { format: self.format, reason: reason.to_owned() };
        let line = std::str::from_utf8(line).map_err(|_| wrong("its first line is not UTF-8"))?;
        if line.contains('\0') {
            return Err(wrong("its first line has bytes that are no text"));
        }
        self.fields = csv::split(line.as_bytes()).len();
        self.schema = Some(text_schema(RECORD, Some(line)));
        Ok(())
    }
}

fn text_schema(column: &str, header: Option<&str>) -> SchemaRef {
    let metadata: HashMap<_, _> = header.into_iter().map(|line| (HEADER.to_owned(), line.to_owned())).collect();
    Arc::new(Schema::new_with_metadata(vec![Field::new(column, DataType::Binary, false)], metadata))
}
