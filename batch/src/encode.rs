//! Encodes pieces as objects, and decodes each object again before it is returned.
//!
//! 1. Pieces are written one after another, and each is dropped once it is written.
//! 2. An object ends before it exceeds the chosen size. A Parquet file, whose length is not known before compression,
//!    ends near that size.
//! 3. The object is decoded. Its multiset checksum must equal that of the rows written, its columns must have the same
//!    names and types, and a CSV must have the same header.
//!
//! Invariants:
//! - Every returned object has been read back. In addition to the pieces, one object and a batch are held.

mod layout;

use crate::by::{By, Spec, same_columns};
use crate::decoder::{Decoder, Need, plain_schema};
use crate::error::{Error, caught};
use crate::format::{CODEC, Format, HEADER};
use crate::held::held_bytes;
use crate::sizes::row_ends;
use crate::tally::{MultisetChecksum, multiset_checksum};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use layout::writing;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use std::io::Cursor;
use std::sync::Arc;

/// The largest row group that is written, in encoded bytes.
const ROW_GROUP_BYTES_MAX: usize = 32 << 20;
/// The largest row group that is written, in bytes before encoding.
const ROW_GROUP_PLAIN_BYTES_MAX: u64 = 128 << 20;
/// Rows written to Parquet between two checks of the size.
const ROWS_AT_A_TIME: usize = 16 << 10;

/// An upper bound on the overhead of Arrow's IPC for a batch.
const MESSAGE_BYTES: usize = 4 << 10;

/// The end of a stream of Arrow's IPC: a message of no length.
const END_OF_RUN: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// An encoded object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Its bytes.
    pub bytes: Bytes,
    /// Records in it.
    pub rows: u64,
    /// Their multiset checksum.
    pub tally: MultisetChecksum,
}

/// The product of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Object(Format),
    Run,
}

/// Encodes the pieces of one partition as objects, one at a time.
#[derive(Debug)]
pub struct Encoder {
    target: Target,
    schema: SchemaRef,
    /// The pieces not yet written, the next one last.
    pieces: Vec<RecordBatch>,
    object_bytes: usize,
    /// The largest row group, in bytes before encoding.
    row_group_bytes: u64,
    /// The error if the pieces have different columns.
    unfit: Option<Error>,
    failed: bool,
}

impl Encoder {
    /// Encodes objects of `format`, of about `object_bytes` at most (a single record may be more).
    pub fn objects(format: Format, schema: &SchemaRef, pieces: Vec<RecordBatch>, object_bytes: u64) -> Self {
        Self::of(Target::Object(format), schema, pieces, object_bytes)
    }

    /// Encodes runs for [`decode_run`], of about `object_bytes` at most: the pieces as a stream of Arrow's IPC.
    pub fn runs(schema: &SchemaRef, pieces: Vec<RecordBatch>, object_bytes: u64) -> Self {
        Self::of(Target::Run, schema, pieces, object_bytes)
    }

    fn of(target: Target, schema: &SchemaRef, mut pieces: Vec<RecordBatch>, object_bytes: u64) -> Self {
        pieces.retain(|piece| piece.num_rows() > 0);
        pieces.reverse();
        let object_bytes = usize::try_from(object_bytes).unwrap_or(usize::MAX);
        let differs = |piece: &RecordBatch| {
            same_columns(("what is to be written", schema), ("a piece of it", &piece.schema())).err()
        };
        let unfit = pieces.iter().find_map(differs);
        let row_group_bytes = ROW_GROUP_PLAIN_BYTES_MAX;
        Self { target, schema: Arc::clone(schema), pieces, object_bytes, row_group_bytes, unfit, failed: false }
    }

    /// Encodes Parquet with row groups that a decoder with a buffer of `buffer_bytes` can read, unless a single row is
    /// too large for it.
    #[must_use]
    pub fn readable_within(mut self, buffer_bytes: u64) -> Self {
        // If a dictionary does not pay, the encoded bytes may be more than the plain ones.
        self.row_group_bytes = (buffer_bytes / 2).min(ROW_GROUP_PLAIN_BYTES_MAX);
        self
    }

    fn object(&mut self) -> Result<Encoded, Error> {
        if let Some(error) = self.unfit.take() {
            return Err(error);
        }
        let (bytes, tally) = match self.target {
            Target::Object(Format::Parquet) => self.parquet()?,
            Target::Object(Format::Fixed { .. }) => self.verbatim(b"")?,
            Target::Object(_) => self.verbatim(b"\n")?,
            Target::Run => self.run()?,
        };
        assert!(tally.rows > 0, "an object has a record, so that pieces come to their end");
        let bytes = Bytes::from(fitted(bytes));
        if self.read_back(&bytes)? != tally {
            return Err(self.mismatch());
        }
        Ok(Encoded { bytes, rows: tally.rows, tally })
    }

    /// The capacity for the next object, with `overhead_bytes` for each piece, so that it rarely has to grow.
    fn room(&self, overhead_bytes: usize) -> usize {
        let left: usize = self.pieces.iter().map(|piece| held_bytes(piece) as usize + overhead_bytes).sum();
        left.min(self.object_bytes.saturating_add(self.object_bytes / 8))
    }

    /// The next `rows` rows of the next piece.
    fn take(&mut self, rows: usize) -> Option<RecordBatch> {
        assert!(rows > 0, "pieces come to their end");
        let piece = self.pieces.pop()?;
        if piece.num_rows() > rows {
            self.pieces.push(piece.slice(rows, piece.num_rows() - rows));
            return Some(piece.slice(0, rows));
        }
        Some(piece)
    }

    /// The next rows of the next piece, and their size when written out: at most [`ROWS_AT_A_TIME`], and no more than
    /// `bytes` unless a single row is larger.
    fn take_bytes(&mut self, bytes: u64) -> Option<(RecordBatch, u64)> {
        let piece = self.take(ROWS_AT_A_TIME)?;
        let ends = row_ends(&piece);
        assert_eq!(ends.len(), piece.num_rows(), "each row has its end");
        let fit = ends.partition_point(|end| *end <= bytes).max(1);
        if fit < piece.num_rows() {
            self.pieces.push(piece.slice(fit, piece.num_rows() - fit));
        }
        Some((piece.slice(0, fit), ends[fit - 1]))
    }

    /// Writes records byte for byte, each followed by `end`.
    fn verbatim(&mut self, end: &[u8]) -> Result<(Vec<u8>, MultisetChecksum), Error> {
        let left: usize = self.pieces.iter().map(|piece| verbatim_bytes(piece, end)).sum();
        let header = self.schema.metadata().get(HEADER).map(|header| format!("{header}\n")).unwrap_or_default();
        let mut bytes = Vec::with_capacity(header.len() + left.min(self.object_bytes));
        bytes.extend_from_slice(header.as_bytes());
        let mut tally = MultisetChecksum::default();
        while let Some(piece) = self.pieces.last() {
            let room = self.object_bytes.saturating_sub(bytes.len());
            let mut fit = rows_that_fit(piece, end, room);
            if fit == 0 && tally.rows > 0 {
                break;
            }
            fit = fit.max(1);
            let Some(piece) = self.take(fit) else { break };
            append(&mut bytes, &piece, end);
            tally += multiset_checksum(&piece)?;
        }
        assert!(bytes.len() <= self.object_bytes || tally.rows == 1, "only a single record exceeds the chosen size");
        Ok((bytes, tally))
    }

    fn parquet(&mut self) -> Result<(Vec<u8>, MultisetChecksum), Error> {
        let properties = layout::of(&self.schema, &self.pieces)?.set_max_row_group_bytes(Some(ROW_GROUP_BYTES_MAX));
        let mut metadata = self.schema.metadata().clone();
        metadata.remove(CODEC);
        let schema = Arc::new(self.schema.as_ref().clone().with_metadata(metadata));
        let bytes = Vec::with_capacity(self.room(0));
        let mut writer = ArrowWriter::try_new(bytes, Arc::clone(&schema), Some(properties.build())).map_err(writing)?;
        let mut tally = MultisetChecksum::default();
        let mut row_group_bytes = 0;
        while tally.rows == 0 || writer.bytes_written() + writer.in_progress_size() < self.object_bytes {
            let Some((piece, bytes)) = self.take_bytes(self.row_group_bytes) else { break };
            tally += multiset_checksum(&piece)?;
            if row_group_bytes + bytes > self.row_group_bytes {
                writer.flush().map_err(writing)?;
                row_group_bytes = 0;
            }
            row_group_bytes += bytes;
            // A piece may have the metadata of another object.
            let piece = RecordBatch::try_new(Arc::clone(&schema), piece.columns().to_vec());
            let piece = piece.map_err(Error::columns("writing Parquet"))?;
            writer.write(&piece).map_err(writing)?;
        }
        // Readers other than Arrow look for the metadata there, not in Arrow's schema.
        for (key, value) in schema.metadata() {
            writer.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
        }
        Ok((writer.into_inner().map_err(writing)?, tally))
    }

    fn run(&mut self) -> Result<(Vec<u8>, MultisetChecksum), Error> {
        let refused = || Error::columns("writing a run");
        let bytes = Vec::with_capacity(self.room(MESSAGE_BYTES));
        let mut writer = StreamWriter::try_new(bytes, &self.schema).map_err(refused())?;
        let mut tally = MultisetChecksum::default();
        while tally.rows == 0 || writer.get_ref().len() < self.object_bytes {
            let Some(piece) = self.pieces.pop() else { break };
            tally += multiset_checksum(&piece)?;
            let piece = RecordBatch::try_new(Arc::clone(&self.schema), piece.columns().to_vec()).map_err(refused())?;
            writer.write(&piece).map_err(refused())?;
        }
        Ok((writer.into_inner().map_err(refused())?, tally))
    }

    fn read_back(&self, bytes: &Bytes) -> Result<MultisetChecksum, Error> {
        let Target::Object(format) = self.target else {
            let mut tally = MultisetChecksum::default();
            each_piece(bytes, |piece| {
                self.check_columns(&piece.schema())?;
                tally += multiset_checksum(&piece)?;
                Ok(())
            })?;
            return Ok(tally);
        };
        let by = By::Hash { columns: Vec::new() };
        let spec = Spec { format, by, partitions: 0, columns: None, filter: None, output: format };
        let mut decoder = Decoder::open(&spec, bytes.len() as u64, u64::MAX).with_views();
        let mut tally = MultisetChecksum::default();
        loop {
            match decoder.next()? {
                Need::Bytes(range) => decoder.give(&range, bytes.slice(range.start as usize..range.end as usize)),
                Need::End => return Ok(tally),
                Need::Batch(batch) => {
                    decoder.schema().map_or(Ok(()), |schema| self.check_columns(&schema))?;
                    tally += multiset_checksum(&batch)?;
                }
            }
        }
    }

    /// Compares names and types, since columns with other names or types may have the same checksum.
    fn check_columns(&self, read: &Schema) -> Result<(), Error> {
        let (meant, read) = (plain_schema(&self.schema), plain_schema(read));
        let alike = |(one, other): (&FieldRef, &FieldRef)| {
            one.name() == other.name() && one.data_type().equals_datatype(other.data_type())
        };
        let same = meant.fields().len() == read.fields().len()
            && meant.fields().iter().zip(read.fields()).all(alike)
            && meant.metadata().get(HEADER) == read.metadata().get(HEADER);
        if same { Ok(()) } else { Err(self.mismatch()) }
    }

    fn mismatch(&self) -> Error {
        let format = match self.target {
            Target::Object(format) => format.to_string(),
            Target::Run => String::from("a run"),
        };
        Error::VerificationFailed { format }
    }
}

impl Iterator for Encoder {
    type Item = Result<Encoded, Error>;

    /// The next object. Ends after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.pieces.is_empty() {
            return None;
        }
        let object = caught("writing", || self.object());
        self.failed = object.is_err();
        Some(object)
    }
}

/// The multiset checksum of an object, decoded in the same way as [`Encoder`] verifies it.
///
/// # Errors
/// [`Error::VerificationFailed`] if it has other columns, or the decoding error.
pub fn read_back(format: Format, schema: &SchemaRef, object: &Bytes) -> Result<MultisetChecksum, Error> {
    caught("reading back", || Encoder::objects(format, schema, Vec::new(), 0).read_back(object))
}

/// The pieces of a run, in the order in which they were written, each in separate memory.
///
/// # Errors
/// [`Error::Columns`] if these bytes are no run, or a part of one.
pub fn decode_run(bytes: &Bytes) -> Result<Vec<RecordBatch>, Error> {
    caught("reading a run", || {
        let mut pieces = Vec::new();
        each_piece(bytes, |piece| {
            pieces.push(piece);
            Ok(())
        })?;
        Ok(pieces)
    })
}

fn each_piece(bytes: &Bytes, mut take: impl FnMut(RecordBatch) -> Result<(), Error>) -> Result<(), Error> {
    let reading = || Error::columns("reading a run");
    let mut reader = StreamReader::try_new(Cursor::new(bytes.clone()), None).map_err(reading())?;
    for piece in reader.by_ref() {
        take(piece.map_err(reading())?)?;
    }
    // A stream cut between two messages reads like a whole one, except that its end mark is missing.
    if reader.get_ref().position() != bytes.len() as u64 || !bytes.ends_with(&END_OF_RUN) {
        return Err(Error::Columns { doing: "reading a run", reason: String::from("its end is missing") });
    }
    Ok(())
}

/// The same bytes, without much unused capacity.
fn fitted(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.capacity() - bytes.len() > bytes.capacity() / 8 {
        bytes.shrink_to_fit();
    }
    bytes
}

fn verbatim_bytes(piece: &RecordBatch, end: &[u8]) -> usize {
    let records = piece.column(0);
    let bytes = match records.as_binary_opt::<i32>() {
        Some(records) => (records.value_offsets()[records.len()] - records.value_offsets()[0]) as usize,
        None => records.len() * records.as_fixed_size_binary().value_length() as usize,
    };
    bytes + records.len() * end.len()
}

fn rows_that_fit(piece: &RecordBatch, end: &[u8], room: usize) -> usize {
    let records = piece.column(0);
    let Some(records) = records.as_binary_opt::<i32>() else {
        return (room / records.as_fixed_size_binary().value_length() as usize).min(records.len());
    };
    let offsets = records.value_offsets();
    let fits = |row: usize| (offsets[row] - offsets[0]) as usize + row * end.len() <= room;
    if fits(records.len()) {
        return records.len();
    }
    let (mut low, mut high) = (0, records.len());
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

fn append(bytes: &mut Vec<u8>, piece: &RecordBatch, end: &[u8]) {
    let records = piece.column(0);
    if let Some(records) = records.as_binary_opt::<i32>() {
        for record in records.iter().flatten() {
            bytes.extend_from_slice(record);
            bytes.extend_from_slice(end);
        }
    } else {
        bytes.extend_from_slice(records.as_fixed_size_binary().value_data());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{ArrayRef, Decimal128Array, Int64Array};

    fn price(name: &str, unscaled: i128, scale: i8) -> RecordBatch {
        let prices = Decimal128Array::from(vec![unscaled]).with_precision_and_scale(10, scale).unwrap();
        RecordBatch::try_from_iter([(name, Arc::new(prices) as ArrayRef)]).unwrap()
    }

    #[test]
    fn an_object_that_reads_back_as_other_rows_is_refused() {
        let cents = price("price", 150, 2);
        for (target, format) in [(Target::Object(Format::Parquet), "parquet"), (Target::Run, "a run")] {
            let encoder = || Encoder::of(target, &cents.schema(), vec![cents.clone()], 1000);
            let written =
                |batch: RecordBatch| Encoder::of(target, &batch.schema(), vec![batch], 1000).next().unwrap().unwrap();
            assert_eq!(encoder().read_back(&written(cents.clone()).bytes), multiset_checksum(&cents));
            let refused = Err(Error::VerificationFailed { format: format.to_owned() });
            for other in [price("price", 150, 3), price("cost", 150, 2)] {
                let other = written(other);
                assert_eq!(Ok(other.tally), multiset_checksum(&cents), "their checksums do not differ");
                assert_eq!(encoder().read_back(&other.bytes), refused);
            }
            assert_ne!(encoder().read_back(&written(price("price", 151, 2)).bytes), multiset_checksum(&cents));
        }
    }

    #[test]
    fn pieces_with_other_columns_are_not_written() {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let piece = |names: [&str; 2]| RecordBatch::try_from_iter(names.map(|name| (name, Arc::clone(&ids)))).unwrap();
        let (one, other) = (piece(["a", "b"]), piece(["b", "a"]));
        for target in [Target::Object(Format::Parquet), Target::Run] {
            let mut encoder = Encoder::of(target, &one.schema(), vec![one.clone(), other.clone()], 1000);
            assert!(matches!(encoder.next(), Some(Err(Error::SchemasDiffer { .. }))));
            assert_eq!(encoder.next(), None);
        }
    }

    #[test]
    fn a_run_that_lost_its_end_is_refused() {
        let pieces = vec![price("price", 1, 2), price("price", 2, 2)];
        let run = Encoder::runs(&pieces[0].schema(), pieces.clone(), 1 << 20).next().unwrap().unwrap().bytes;
        assert_eq!(decode_run(&run), Ok(pieces));
        let cut = run.slice(..run.len() - END_OF_RUN.len());
        assert!(decode_run(&cut).unwrap_err().to_string().ends_with("its end is missing"));
        for length in 0..run.len() {
            assert!(decode_run(&run.slice(..length)).is_err(), "cut at {length}");
        }
        assert!(decode_run(&Bytes::from([&run[..], b"x"].concat())).is_err());
    }
}
