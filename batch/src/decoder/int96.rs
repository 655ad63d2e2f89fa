//! Timestamps of 96 bits, a day and the nanoseconds of that day, as Impala, Hive and old versions of Spark write them.
//!
//! 1. They become microseconds, which reach 290,000 years in either direction; in UTC, if Spark wrote them.
//! 2. The `parquet` crate truncates values finer than a microsecond, and days out of range wrap around. So the chunks
//!    are read a second time, unconverted, before any of their rows is returned.
//!
//! Invariants:
//! - A value that is not exactly a microsecond, or out of range, ends the object with an error.

use super::schemas::{not_parquet, schema_of};
use crate::error::Error;
use arrow_schema::{DataType, Schema, TimeUnit};
use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::basic::Type as PhysicalType;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{Int96, Int96Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::ops::Range;
use std::sync::Arc;

/// The Julian day of the first of January 1970.
const EPOCH_DAY: i128 = 2_440_588;
const DAY_NS: i128 = 86_400_000_000_000;
/// Values checked at a time.
const VALUES: usize = 4096;
/// The prefix of Spark's metadata keys.
const SPARK: &str = "org.apache.spark.";

/// The unchecked chunks of these columns, with the rows of their groups.
pub(super) struct Timestamps(Vec<(ColumnChunkMetaData, usize)>);

impl Timestamps {
    pub(super) fn find(metadata: &ParquetMetaData, mask: &ProjectionMask) -> Self {
        let groups = metadata.row_groups().iter().filter(|group| group.num_rows() > 0);
        let chunks = groups.flat_map(|group| {
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            let leaves = group.columns().iter().enumerate();
            let chosen = leaves.filter(|(leaf, column)| is_one(column.column_type()) && mask.leaf_included(*leaf));
            chosen.map(move |(_, column)| (column.clone(), rows))
        });
        Self(chunks.collect())
    }

    /// Checks the chunks within these ranges of the object.
    pub(super) fn check(&mut self, ranges: &[Range<u64>], bytes: &[Bytes]) -> Result<(), Error> {
        let within = |column: &ColumnChunkMetaData| {
            let (begin, length) = column.byte_range();
            let holds = |range: &&Range<u64>| range.start <= begin && begin.saturating_add(length) <= range.end;
            let (range, bytes) = ranges.iter().zip(bytes).find(|(range, _)| holds(range))?;
            Some(ObjectPart { begin: range.start, bytes: bytes.clone() })
        };
        let mut checked = Ok(());
        self.0.retain(|(column, rows)| {
            let Some(piece) = within(column).filter(|_| checked.is_ok()) else { return true };
            checked = exact(column, *rows, piece);
            false
        });
        checked
    }

    /// Called at the end: refuses an object with unchecked chunks.
    pub(super) fn finish(&self) -> Result<(), Error> {
        self.0.first().map_or(Ok(()), |(column, _)| Err(inexact(column)))
    }
}

/// The schema with microseconds for these columns.
pub(super) fn microseconds(schema: &Schema, metadata: &ParquetMetaData) -> Schema {
    let file = metadata.file_metadata();
    let said = file.key_value_metadata().into_iter().flatten();
    let zone: Option<Arc<str>> = said.into_iter().any(|pair| pair.key.starts_with(SPARK)).then(|| Arc::from("UTC"));
    // The columns of Arrow that are not nested are the leaves of Parquet, in the same order.
    let mut leaves = file.schema_descr().columns().iter();
    let mut of = |kind: &DataType| match kind {
        nested if nested.is_nested() => nested.clone(),
        kind => match (leaves.next().map(|leaf| leaf.physical_type()), kind) {
            (Some(PhysicalType::INT96), DataType::Timestamp(_, own)) => {
                DataType::Timestamp(TimeUnit::Microsecond, own.clone().or_else(|| zone.clone()))
            }
            _ => kind.clone(),
        },
    };
    schema_of(schema, &mut of)
}

fn is_one(kind: PhysicalType) -> bool {
    kind == PhysicalType::INT96
}

fn exact(column: &ColumnChunkMetaData, rows: usize, piece: ObjectPart) -> Result<(), Error> {
    let pages = SerializedPageReader::new(Arc::new(piece), column, rows, None).map_err(not_parquet)?;
    let mut reader = ColumnReaderImpl::<Int96Type>::new(column.column_descr_ptr(), Box::new(pages));
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        values.clear();
        definitions.clear();
        repetitions.clear();
        let read = reader.read_records(VALUES, Some(&mut definitions), Some(&mut repetitions), &mut values);
        let (records, ..) = read.map_err(not_parquet)?;
        if !values.iter().all(is_microsecond) {
            return Err(inexact(column));
        }
        if records == 0 {
            return Ok(());
        }
    }
}

fn is_microsecond(value: &Int96) -> bool {
    let [low, high, day] = *value.data() else { return false };
    let ns = i128::from((u64::from(high) << 32 | u64::from(low)).cast_signed());
    let since_epoch_ns = (i128::from(day.cast_signed()) - EPOCH_DAY) * DAY_NS + ns;
    since_epoch_ns % 1000 == 0 && i64::try_from(since_epoch_ns / 1000).is_ok()
}

fn inexact(column: &ColumnChunkMetaData) -> Error {
    Error::Unreadable {
        column: column.column_path().string(),
        kind: "a timestamp of 96 bits that is finer than microseconds, or further off than they reach",
        hint: "write it as TIMESTAMP_NANOS or TIMESTAMP_MICROS, or name the other columns alone",
    }
}

/// A part of an object, addressed by positions in the object.
struct ObjectPart {
    begin: u64,
    bytes: Bytes,
}

impl ObjectPart {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let at = start.checked_sub(self.begin).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at <= self.bytes.len());
        at.map(|at| self.bytes.slice(at..)).ok_or_else(|| ParquetError::EOF(String::from("a page lies elsewhere")))
    }
}

impl Length for ObjectPart {
    fn len(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }
}

impl ChunkReader for ObjectPart {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.from(start).map(Buf::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF(String::from("a page ends elsewhere")));
        }
        Ok(bytes.slice(..length))
    }
}
