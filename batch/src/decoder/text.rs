//! Splits CSV, NDJSON and plain lines into records.
//!
//! 1. Bytes arrive in pieces. The part of a piece after its last whole record is carried over to the next piece.
//! 2. A record is copied without its line ending: a line feed and, before it, one carriage return in CSV or any number
//!    of them in NDJSON.
//! 3. CSV and NDJSON must be UTF-8, and may begin with a byte order mark. Their empty lines are no records, except in a
//!    CSV with one column, where an empty line is a null; nor are blank lines in NDJSON. Empty plain lines are records.
//! 4. The first record of a CSV is its header. It becomes part of the schema, and each record must have as many fields.
//!
//! Invariants:
//! - A batch holds at most the bytes of one piece and [`BATCH_ROWS_MAX`] records, or a single long record. At most a
//!   piece and a record are held at once.

use crate::csv::{self, CsvFlaw};
use crate::error::Error;
use crate::format::{Format, HEADER, LINE, RECORD};
use crate::limits::{BATCH_ROWS_MAX, signed};
use arrow_array::{BinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug)]
pub(super) struct Text {
    format: Format,
    record_bytes_max: usize,
    /// Bytes of records not returned yet, from `at` on.
    carried: Vec<u8>,
    at: usize,
    /// Known at once, or for CSV with the header.
    schema: Option<SchemaRef>,
    fields: usize,
    records: u64,
    /// The first line was found.
    begun: bool,
    csv: csv::Reader,
}

/// A record in some bytes, and where the next one begins.
struct FoundRecord {
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
        let (carried, csv) = (Vec::new(), csv::Reader::default());
        Self { format, record_bytes_max, carried, at: 0, schema, fields: 0, records: 0, begun: false, csv }
    }

    pub(super) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Bytes that wait for the rest of their record.
    pub(super) fn held_bytes(&self) -> u64 {
        self.carried.capacity() as u64
    }

    /// Takes the next piece.
    pub(super) fn give(&mut self, piece: &[u8]) {
        assert!(self.at <= self.carried.len(), "records are cut from what was given");
        let mut bytes = Vec::with_capacity(self.carried.len() - self.at + piece.len());
        bytes.extend_from_slice(&self.carried[self.at..]);
        bytes.extend_from_slice(piece);
        (self.carried, self.at) = (bytes, 0);
    }

    /// Called after all bytes were given: refuses a CSV without a header.
    pub(super) fn end(&self) -> Result<(), Error> {
        match &self.schema {
            Some(_) => Ok(()),
            None => Err(self.not_this("it has no header line")),
        }
    }

    /// The next whole records; `None` without any. With `last`, no more bytes follow.
    pub(super) fn batch(&mut self, last: bool) -> Result<Option<RecordBatch>, Error> {
        let bytes = std::mem::take(&mut self.carried);
        let batch = self.batch_of(&bytes, last);
        self.carried = bytes;
        if matches!(batch, Ok(None)) {
            // The next bytes may take long, and other objects are read meanwhile.
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
            assert!(found.next > self.at && found.record.end <= found.next, "a record brings the decoder forward");
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
            offsets.push(signed(values.len()));
        }
        if values.len() < values.capacity() / 2 {
            values.shrink_to_fit();
        }
        self.checked(offsets, values)
    }

    /// True if an empty line is a record.
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
        assert_eq!(offsets.last().map(|end| *end as usize), Some(values.len()), "the last record ends with the bytes");
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

    /// The error for a record that begins like this; a quote that is never closed is the likeliest reason.
    fn too_long(&mut self, record: &[u8]) -> Error {
        if self.format == Format::Csv && self.csv.record(record, true) == Err(CsvFlaw::Unclosed) {
            return self.malformed(format!("a quote in it is not closed within {} bytes", self.record_bytes_max));
        }
        Error::RecordTooLong { record: self.records + 1, limit_bytes: self.record_bytes_max as u64 }
    }

    /// The record at `at`; `None` if `bytes` do not contain its end and are not the last ones.
    fn record(&mut self, bytes: &[u8], at: usize, last: bool) -> Result<Option<FoundRecord>, Error> {
        if self.format == Format::Csv {
            return self.csv_record(bytes, at, last);
        }
        let (end, next) = match memchr::memchr(b'\n', &bytes[at..]) {
            Some(line) => (at + line, at + line + 1),
            None if last => (bytes.len(), bytes.len()),
            None => return Ok(None),
        };
        let record = if self.format == Format::Ndjson { self.json_record(bytes, at..end) } else { at..end };
        self.begun = true;
        Ok(Some(FoundRecord { record, next }))
    }

    /// The record of a `line` of NDJSON; empty if the line has nothing but blanks.
    fn json_record(&self, bytes: &[u8], line: Range<usize>) -> Range<usize> {
        let marked = !self.begun && bytes[line.clone()].starts_with(BYTE_ORDER_MARK);
        let begin = if marked { line.start + BYTE_ORDER_MARK.len() } else { line.start };
        let text = &bytes[begin..line.end];
        if text.trim_ascii().is_empty() {
            return line.end..line.end;
        }
        let returns = text.iter().rev().take_while(|byte| **byte == b'\r').count();
        begin..line.end - returns
    }

    fn csv_record(&mut self, bytes: &[u8], at: usize, last: bool) -> Result<Option<FoundRecord>, Error> {
        let marked = self.schema.is_none() && bytes[at..].starts_with(BYTE_ORDER_MARK);
        let begin = if marked { at + BYTE_ORDER_MARK.len() } else { at };
        let record = self.csv.record(&bytes[begin..], last).map_err(|flaw| self.flawed(flaw))?;
        let Some(record) = record else { return Ok(None) };
        if self.schema.is_some() && record.bytes > 0 && record.fields != self.fields {
            let reason = format!("it has {} fields and the header has {}", record.fields, self.fields);
            return Err(self.malformed(reason));
        }
        if self.schema.is_none() {
            self.fields = record.fields;
        }
        Ok(Some(FoundRecord { record: at..begin + record.bytes, next: begin + record.next }))
    }

    fn flawed(&self, flaw: CsvFlaw) -> Error {
        let reason = match flaw {
            CsvFlaw::Unclosed => "a quote in it is never closed",
            CsvFlaw::BareReturn => {
                "it has a carriage return that no line feed follows; end lines with line feeds, and quote fields that \
                 have carriage returns"
            }
        };
        if self.schema.is_some() { self.malformed(reason.to_owned()) } else { self.not_this(reason) }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Error> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| self.not_this("its first line is not UTF-8"))?;
        if line.is_empty() {
            return Err(self.not_this("its header is empty"));
        }
        if line.contains('\0') {
            return Err(self.not_this("its first line has bytes that are no text"));
        }
        self.schema = Some(text_schema(RECORD, Some(line)));
        Ok(())
    }
}

/// The first record, counted from 1, that is not UTF-8 by itself.
fn not_utf8(offsets: &[i32], values: &[u8]) -> Option<usize> {
    let (text, flaw) = match std::str::from_utf8(values) {
        Ok(text) => (text, None),
        Err(error) => {
            let sound = std::str::from_utf8(&values[..error.valid_up_to()]).unwrap_or("");
            (sound, Some(offsets.partition_point(|offset| *offset as usize <= sound.len())))
        }
    };
    // The end of one record and the beginning of the next may form a character together.
    let ends = offsets.iter().take_while(|offset| **offset as usize <= text.len());
    let split = ends.enumerate().find(|(_, offset)| !text.is_char_boundary(**offset as usize)).map(|(row, _)| row);
    split.or(flaw)
}

fn text_schema(column: &str, header: Option<&str>) -> SchemaRef {
    let metadata: HashMap<_, _> = header.into_iter().map(|line| (HEADER.to_owned(), line.to_owned())).collect();
    Arc::new(Schema::new_with_metadata(vec![Field::new(column, DataType::Binary, false)], metadata))
}
