//! Parquet: the footer, then one row group after another, each with the columns that are needed.
//!
//! 1. The footer says where everything lies. Row groups that do not fit are refused before any of them is read.
//! 2. Of a row group, the chunks of the needed columns are asked for one by one, and decoded some rows at a time.
//! 3. Those rows gather until they are a batch.
//!
//! Invariants:
//! - Dictionaries and views are read as plain values: pieces of them would share what none of them counts.
//! - A panic of the library over an object that is none is an error like any other.

use super::{BATCH_ROWS_MAX, Need};
use crate::error::caught;
use crate::held::COLUMN_BYTES;
use crate::{CODEC, Error, Format, Spec, held_bytes};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::basic::{Compression, ConvertedType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder, RowGroupMetaData};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Rows decoded at a time.
const ROWS_MAX: u64 = 8192;
const ROWS_MIN: u64 = 32;
/// The shortest file there can be: two magic words and a length.
const FILE_BYTES_MIN: u64 = 12;

pub(super) struct Columns {
    needed: Option<Vec<String>>,
    object_bytes: u64,
    buffer_bytes: u64,
    batch_bytes: u64,
    state: State,
    wanted: VecDeque<Range<u64>>,
    ranges: Vec<Range<u64>>,
    given: Vec<Bytes>,
    /// Bytes of the row group that is read.
    held: u64,
    /// Rows on their way to a batch, and what they hold.
    rows: Vec<RecordBatch>,
    rows_bytes: u64,
    schema: Option<SchemaRef>,
}

enum State {
    Footer(Option<ParquetMetaDataPushDecoder>),
    Groups(Box<ParquetPushDecoder>),
    End,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Columns").field("wanted", &self.wanted).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Columns {
    pub(super) fn open(spec: &Spec, object_bytes: u64, buffer_bytes: u64, batch_bytes: u64) -> Self {
        let needed = spec.needed().map(|names| names.into_iter().map(str::to_owned).collect());
        Self {
            needed,
            object_bytes,
            buffer_bytes,
            batch_bytes,
            state: State::Footer(None),
            wanted: VecDeque::new(),
            ranges: Vec::new(),
            given: Vec::new(),
            held: 0,
            rows: Vec::new(),
            rows_bytes: 0,
            schema: None,
        }
    }

    pub(super) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held
    }

    pub(super) fn next(&mut self, given: Option<Bytes>) -> Result<Need, Error> {
        if let (Some(bytes), Some(range)) = (given, self.wanted.pop_front()) {
            self.held += bytes.len() as u64;
            self.ranges.push(range);
            self.given.push(bytes);
        }
        loop {
            if let Some(range) = self.wanted.front() {
                return Ok(Need::Bytes(range.clone()));
            }
            let (ranges, bytes) = (std::mem::take(&mut self.ranges), std::mem::take(&mut self.given));
            // What panicked is not used again: the error ends the object.
            let need = caught("reading Parquet", || self.advance(ranges, bytes))?;
            if let Some(need) = need {
                return Ok(need);
            }
        }
    }

    /// One step; nothing if there is another to take.
    fn advance(&mut self, ranges: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Result<Option<Need>, Error> {
        match &mut self.state {
            State::Footer(_) => self.footer(ranges, bytes).map(|()| None),
            State::Groups(decoder) => {
                if !ranges.is_empty() {
                    decoder.push_ranges(ranges, bytes).map_err(not_parquet)?;
                }
                match decoder.try_decode().map_err(not_parquet)? {
                    DecodeResult::NeedsData(ranges) => {
                        self.held = 0;
                        self.want(ranges)?;
                        Ok(None)
                    }
                    DecodeResult::Data(rows) => self.gather(rows),
                    DecodeResult::Finished => {
                        self.held = 0;
                        self.state = State::End;
                        self.batch().map(|batch| batch.map(Need::Batch))
                    }
                }
            }
            State::End => Ok(Some(Need::End)),
        }
    }

    fn want(&mut self, ranges: Vec<Range<u64>>) -> Result<(), Error> {
        let inside = |range: &Range<u64>| range.start < range.end && range.end <= self.object_bytes;
        if ranges.is_empty() || !ranges.iter().all(inside) {
            return Err(not_this("its footer names bytes that are not there"));
        }
        self.wanted.extend(ranges);
        Ok(())
    }

    fn footer(&mut self, ranges: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Result<(), Error> {
        if self.object_bytes < FILE_BYTES_MIN {
            return Err(not_this("it is too short"));
        }
        let State::Footer(footer) = &mut self.state else { return Ok(()) };
        let mut decoder = match footer.take() {
            Some(decoder) => decoder,
            None => ParquetMetaDataPushDecoder::try_new(self.object_bytes)
                .map_err(not_parquet)?
                .with_page_index_policy(PageIndexPolicy::Skip),
        };
        if !ranges.is_empty() {
            decoder.push_ranges(ranges, bytes).map_err(not_parquet)?;
        }
        match decoder.try_decode().map_err(not_parquet)? {
            DecodeResult::NeedsData(ranges) => {
                self.state = State::Footer(Some(decoder));
                if let Some(large) = ranges.iter().find(|range| range.end - range.start > self.buffer_bytes) {
                    let needed_bytes = large.end - large.start;
                    return Err(Error::BufferTooSmall { buffer_bytes: self.buffer_bytes, needed_bytes });
                }
                self.want(ranges)
            }
            DecodeResult::Data(metadata) => self.groups(&Arc::new(metadata)),
            DecodeResult::Finished => Err(not_this("it has no footer")),
        }
    }

    fn groups(&mut self, metadata: &Arc<ParquetMetaData>) -> Result<(), Error> {
        self.held = 0;
        let options = ArrowReaderOptions::new();
        let found = ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone()).map_err(not_parquet)?;
        let plain = plain_schema(found.schema());
        let found = if plain == **found.schema() {
            found
        } else {
            let options = options.with_schema(Arc::new(plain));
            ArrowReaderMetadata::try_new(Arc::clone(metadata), options).map_err(not_parquet)?
        };
        let columns = self.column_indices(found.schema())?;
        let mask = ProjectionMask::roots(metadata.file_metadata().schema_descr(), columns.iter().copied());
        readable(metadata, &mask)?;
        let rows = self.rows_at_a_time(metadata, &mask)?;
        let mut with_codec = found.schema().project(&columns).map_err(Error::columns("choosing columns"))?;
        with_codec.metadata.insert(CODEC.to_owned(), codec(metadata).to_owned());
        self.schema = Some(Arc::new(with_codec));
        let decoder = ParquetPushDecoderBuilder::new_with_metadata(found)
            .with_projection(mask)
            .with_batch_size(rows as usize)
            .build()
            .map_err(not_parquet)?;
        self.state = State::Groups(Box::new(decoder));
        Ok(())
    }

    /// The columns to read, in the order they have in the file.
    fn column_indices(&self, schema: &Schema) -> Result<Vec<usize>, Error> {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let Some(needed) = &self.needed else { return Ok((0..schema.fields().len()).collect()) };
        for name in needed {
            match names().filter(|column| column == name).count() {
                0 => return Err(Error::missing(name, names())),
                1 => {}
                _ => return Err(Error::AmbiguousColumn(name.clone())),
            }
        }
        Ok((0..schema.fields().len()).filter(|index| needed.contains(schema.field(*index).name())).collect())
    }

    /// So many that they are a batch at most, as far as the footer tells; refuses row groups that do not fit.
    fn rows_at_a_time(&self, metadata: &ParquetMetaData, mask: &ProjectionMask) -> Result<u64, Error> {
        let mut rows_at_a_time = ROWS_MAX;
        for (row_group, group) in metadata.row_groups().iter().enumerate() {
            let sum = |of: fn(&parquet::file::metadata::ColumnChunkMetaData) -> i64| -> u64 {
                chosen(group, mask)
                    .map(|column| u64::try_from(of(column)).unwrap_or(u64::MAX))
                    .fold(0, u64::saturating_add)
            };
            let bytes = sum(parquet::file::metadata::ColumnChunkMetaData::compressed_size);
            if bytes > self.buffer_bytes {
                return Err(Error::RowGroupTooLarge { row_group, bytes, buffer_bytes: self.buffer_bytes });
            }
            let rows = u64::try_from(group.num_rows()).map_err(|_| not_this("a row group has fewer than no rows"))?;
            let plain = sum(parquet::file::metadata::ColumnChunkMetaData::uncompressed_size);
            // Pages are unpacked one by one; what is stated for them beside the buffer does not count against it.
            let pages = COLUMN_BYTES.saturating_mul(chosen(group, mask).count() as u64);
            if plain > self.buffer_bytes.saturating_add(pages) {
                let buffer_bytes = self.buffer_bytes;
                return Err(Error::RowGroupExpands { row_group, bytes, plain_bytes: plain, buffer_bytes });
            }
            let row_bytes = plain.checked_div(rows).unwrap_or(0).max(1);
            rows_at_a_time = rows_at_a_time.min((self.batch_bytes / row_bytes).max(ROWS_MIN));
        }
        Ok(rows_at_a_time)
    }

    fn gather(&mut self, rows: RecordBatch) -> Result<Option<Need>, Error> {
        self.rows_bytes += held_bytes(&rows);
        self.rows.push(rows);
        let count: usize = self.rows.iter().map(RecordBatch::num_rows).sum();
        let room = (count as u64) < BATCH_ROWS_MAX;
        if self.rows_bytes < self.batch_bytes && room {
            Ok(None)
        } else {
            self.batch().map(|batch| batch.map(Need::Batch))
        }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        self.rows_bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        let (Some(first), Some(schema)) = (rows.first(), &self.schema) else { return Ok(None) };
        let joined = if rows.len() == 1 { Ok(first.clone()) } else { concat_batches(&first.schema(), &rows) };
        let joined = joined.map_err(Error::columns("joining rows"))?;
        let joined = RecordBatch::try_new(Arc::clone(schema), joined.columns().to_vec());
        joined.map(Some).map_err(Error::columns("joining rows"))
    }
}

/// Refuses columns of which the library reads something else than was written.
fn readable(metadata: &ParquetMetaData, mask: &ProjectionMask) -> Result<(), Error> {
    let leaves = metadata.file_metadata().schema_descr().columns().iter().enumerate();
    for (_, leaf) in leaves.filter(|(leaf, _)| mask.leaf_included(*leaf)) {
        let (kind, mend) = if leaf.converted_type() == ConvertedType::INTERVAL {
            ("an INTERVAL, of which months would be lost", "write it as numbers, or name the other columns alone")
        } else if leaf.physical_type() == PhysicalType::INT96 {
            (
                "a timestamp of 96 bits, of which years before 1677 and after 2262 would become others",
                "write it as TIMESTAMP_MICROS (Spark: spark.sql.parquet.outputTimestampType), or name the other \
                 columns alone",
            )
        } else {
            continue;
        };
        return Err(Error::Unreadable { column: leaf.path().string(), kind, mend });
    }
    Ok(())
}

fn chosen<'a>(
    group: &'a RowGroupMetaData,
    mask: &'a ProjectionMask,
) -> impl Iterator<Item = &'a parquet::file::metadata::ColumnChunkMetaData> {
    let columns = group.columns().iter().enumerate();
    columns.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, column)| column)
}

/// The name of the compression of the first column, for the output to have the same.
fn codec(metadata: &ParquetMetaData) -> &'static str {
    let first = metadata.row_groups().first().and_then(|group| group.columns().first());
    match first.map(parquet::file::metadata::ColumnChunkMetaData::compression) {
        Some(Compression::UNCOMPRESSED) => "none",
        Some(Compression::ZSTD(_)) => "zstd",
        Some(Compression::LZ4 | Compression::LZ4_RAW) => "lz4",
        _ => "snappy",
    }
}

/// The schema without dictionaries, runs and views.
pub(crate) fn plain_schema(schema: &Schema) -> Schema {
    let fields: Fields = schema.fields().iter().map(plain_field).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let kind = plain_type(field.data_type());
    if kind == *field.data_type() {
        return Arc::clone(field);
    }
    let plain = Field::new(field.name(), kind, field.is_nullable());
    Arc::new(plain.with_metadata(field.metadata().clone()))
}

/// The type without dictionaries, runs and views.
fn plain_type(kind: &DataType) -> DataType {
    use DataType as T;
    match kind {
        T::Dictionary(_, values) => plain_type(values),
        T::RunEndEncoded(_, values) => plain_type(values.data_type()),
        T::Utf8View => T::Utf8,
        T::BinaryView => T::Binary,
        T::List(field) | T::ListView(field) => T::List(plain_field(field)),
        T::LargeList(field) | T::LargeListView(field) => T::LargeList(plain_field(field)),
        T::FixedSizeList(field, length) => T::FixedSizeList(plain_field(field), *length),
        T::Struct(fields) => T::Struct(fields.iter().map(plain_field).collect()),
        T::Map(entries, sorted) => T::Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

fn not_this(reason: &str) -> Error {
    Error::NotThisFormat { format: Format::Parquet, reason: reason.to_owned() }
}

#[allow(clippy::needless_pass_by_value)]
fn not_parquet(error: ParquetError) -> Error {
    not_this(&error.to_string())
}
