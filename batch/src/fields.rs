//! Finds columns by name in batches of any format: columns of Parquet, fields of CSV, values of JSON keys, parts of
//! fixed records.
//!
//! Fields of CSV and JSON come as texts: the content of a JSON string, and numbers and booleans as they are written.
//! Null is an empty field of CSV, and in JSON null or a missing key.

mod json;

pub(crate) use json::KnownKeys;

use crate::csv;
use crate::error::Error;
use crate::format::{Format, HEADER, RECORD};
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Finds columns in batches of one schema.
#[derive(Debug)]
pub(crate) struct Fields {
    names: Vec<String>,
    access: Access,
}

#[derive(Debug)]
enum Access {
    /// Columns with these indices.
    Columns(Vec<usize>),
    /// Fields with these indices.
    Csv(Vec<usize>),
    /// Keys, possibly in few records.
    Json(Mutex<json::Seen>),
    /// Ranges of bytes.
    Parts(Vec<Range<usize>>),
}

impl Fields {
    /// Access to the columns `names` in batches of this schema.
    pub(crate) fn find(format: Format, schema: &Schema, names: &[&str]) -> Result<Self, Error> {
        let access = match format {
            Format::Parquet | Format::Lines => Access::Columns(indices(names, &column_names(schema))?),
            Format::Csv => Access::Csv(indices(names, &header_names(schema))?),
            Format::Ndjson => Access::Json(Mutex::new(json::Seen::none_of(names.len()))),
            Format::Fixed { record_bytes } => {
                Access::Parts(names.iter().map(|name| part(name, record_bytes)).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { names: names.iter().map(|name| (*name).to_owned()).collect(), access })
    }

    /// The columns of this batch, in the order of the names.
    pub(crate) fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, Error> {
        if self.names.is_empty() {
            return Ok(Vec::new());
        }
        match &self.access {
            Access::Columns(indices) => Ok(indices.iter().map(|index| Arc::clone(batch.column(*index))).collect()),
            Access::Csv(indices) => csv_fields(records(batch)?, indices),
            Access::Json(seen) => json::fields(records(batch)?, &self.names, seen),
            Access::Parts(parts) => parts.iter().map(|part| bytes_of(batch.column(0), part)).collect(),
        }
    }

    /// The JSON keys found so far.
    pub(crate) fn known_keys(&self) -> Option<KnownKeys> {
        if let Access::Json(seen) = &self.access { Some(seen.lock().known()) } else { None }
    }

    /// Continues with the keys that were found before.
    pub(crate) fn know_keys(&self, known: Option<&KnownKeys>) {
        if let (Access::Json(seen), Some(known)) = (&self.access, known) {
            seen.lock().know(known);
        }
    }

    /// Called after the last record: refuses keys that were in no record.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if let Access::Json(seen) = &self.access { seen.lock().all(&self.names) } else { Ok(()) }
    }

    /// The columns of this batch, by name.
    pub(crate) fn named(&self, batch: &RecordBatch) -> Result<HashMap<&str, ArrayRef>, Error> {
        let columns = self.columns(batch)?;
        Ok(self.names.iter().map(String::as_str).zip(columns).collect())
    }
}

/// The records of a batch that carries them byte for byte.
fn records(batch: &RecordBatch) -> Result<&BinaryArray, Error> {
    let records = batch.column(0).as_binary_opt::<i32>();
    records.ok_or_else(|| Error::Columns { doing: "reading records", reason: String::from("they are no bytes") })
}

fn column_names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn header(schema: &Schema) -> &[u8] {
    schema.metadata().get(HEADER).map_or("", String::as_str).as_bytes()
}

fn header_names(schema: &Schema) -> Vec<String> {
    let mut reader = csv::Reader::default();
    let names = reader.texts(header(schema));
    (0..names.count()).map(|index| String::from_utf8_lossy(names.get(index)).into_owned()).collect()
}

fn indices(names: &[&str], all: &[String]) -> Result<Vec<usize>, Error> {
    let index = |name: &&str| {
        let mut found = all.iter().enumerate().filter(|(_, column)| column == name).map(|(index, _)| index);
        let index = found.next().ok_or_else(|| Error::missing(name, all.iter().map(String::as_str)))?;
        if found.next().is_some() { Err(Error::AmbiguousColumn((*name).to_owned())) } else { Ok(index) }
    };
    names.iter().map(index).collect()
}

fn csv_fields(records: &BinaryArray, indices: &[usize]) -> Result<Vec<ArrayRef>, Error> {
    let mut columns: Vec<_> = indices.iter().map(|_| StringBuilder::with_capacity(records.len(), 0)).collect();
    let mut reader = csv::Reader::default();
    for row in 0..records.len() {
        let texts = reader.texts(records.value(row));
        for (column, index) in columns.iter_mut().zip(indices) {
            let text = texts.get(*index);
            let text = std::str::from_utf8(text).map_err(|_| Error::NotUtf8 { record: row as u64 + 1 })?;
            column.append_option(Some(text).filter(|text| !text.is_empty()));
        }
    }
    Ok(columns.into_iter().map(|mut column| Arc::new(column.finish()) as ArrayRef).collect())
}

/// The range that `record[a..b]` names; all bytes for `record`.
fn part(name: &str, record_bytes: usize) -> Result<Range<usize>, Error> {
    let missing = || Error::missing(name, [RECORD, &format!("record[0..{record_bytes}]")]);
    if name == RECORD {
        return Ok(0..record_bytes);
    }
    let inner = name.strip_prefix(RECORD).and_then(|rest| rest.strip_prefix('['));
    let (begin, end) =
        inner.and_then(|rest| rest.strip_suffix(']')).and_then(|rest| rest.split_once("..")).ok_or_else(missing)?;
    match (begin.trim().parse(), end.trim().parse()) {
        (Ok(begin), Ok(end)) if begin < end && end <= record_bytes => Ok(begin..end),
        _ => Err(missing()),
    }
}

fn bytes_of(column: &ArrayRef, part: &Range<usize>) -> Result<ArrayRef, Error> {
    let records = column.as_fixed_size_binary();
    if part.len() == records.value_length() as usize {
        return Ok(Arc::clone(column));
    }
    let parts = records.iter().flatten().map(|record| &record[part.clone()]);
    let parts = FixedSizeBinaryArray::try_from_iter(parts).map_err(Error::columns("cutting records"))?;
    Ok(Arc::new(parts))
}

/// Descriptions of all columns by pandas and Spark, which are wrong for a part of the columns.
const OF_ALL_COLUMNS: [&str; 2] = ["pandas", "org.apache.spark.sql.parquet.row.metadata"];

/// Keeps some of a batch's columns.
#[derive(Debug)]
pub(crate) enum Projection {
    /// All of them.
    All,
    /// Columns with these indices.
    Columns(Vec<usize>),
    /// Fields with these indices, and the schema with their header.
    Csv(Vec<usize>, SchemaRef),
    /// These keys of each record, if it has them.
    Json(Vec<String>, Mutex<json::Seen>),
}

impl Projection {
    pub(crate) fn of(format: Format, schema: &Schema, columns: Option<&[String]>) -> Result<Self, Error> {
        let Some(columns) = columns else { return Ok(Self::All) };
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        match format {
            Format::Parquet => Ok(Self::Columns(indices(&names, &column_names(schema))?)),
            Format::Csv => {
                let indices = indices(&names, &header_names(schema))?;
                let header = chosen(&mut csv::Reader::default(), header(schema), &indices);
                let header = String::from_utf8_lossy(&header).into_owned();
                let metadata = HashMap::from([(HEADER.to_owned(), header)]);
                Ok(Self::Csv(indices, Arc::new(schema.clone().with_metadata(metadata))))
            }
            Format::Ndjson => Ok(Self::Json(columns.to_vec(), Mutex::new(json::Seen::none_of(columns.len())))),
            Format::Lines | Format::Fixed { .. } if names == column_names(schema) => Ok(Self::All),
            Format::Lines | Format::Fixed { .. } => {
                let own = column_names(schema);
                let other = names.iter().find(|name| **name != own[0]).copied().unwrap_or(names[0]);
                Err(Error::missing(other, own.iter().map(String::as_str)))
            }
        }
    }

    pub(crate) fn apply(&self, batch: RecordBatch) -> Result<RecordBatch, Error> {
        let rows = batch.num_rows();
        let (schema, rewritten): (_, BinaryArray) = match self {
            Self::All => return Ok(batch),
            Self::Columns(indices) => {
                let mut batch = batch.project(indices).map_err(Error::columns("choosing columns"))?;
                for key in OF_ALL_COLUMNS {
                    batch.schema_metadata_mut().remove(key);
                }
                return Ok(batch);
            }
            Self::Csv(indices, schema) => {
                let mut reader = csv::Reader::default();
                let records = records(&batch)?.iter();
                (Arc::clone(schema), records.map(|record| Some(chosen(&mut reader, record?, indices))).collect())
            }
            Self::Json(names, seen) => (batch.schema(), json::chosen(records(&batch)?, names, seen)?),
        };
        assert_eq!(rewritten.len(), rows, "a record stays a record, whatever is chosen of it");
        RecordBatch::try_new(schema, vec![Arc::new(rewritten)]).map_err(Error::columns("choosing columns"))
    }

    /// The JSON keys found so far.
    pub(crate) fn known_keys(&self) -> Option<KnownKeys> {
        if let Self::Json(_, seen) = self { Some(seen.lock().known()) } else { None }
    }

    /// Continues with the keys that were found before.
    pub(crate) fn know_keys(&self, known: Option<&KnownKeys>) {
        if let (Self::Json(_, seen), Some(known)) = (self, known) {
            seen.lock().know(known);
        }
    }

    /// Called after the last record: refuses keys that were in no record.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if let Self::Json(names, seen) = self { seen.lock().all(names) } else { Ok(()) }
    }
}

/// A record of CSV with some of its fields. A single empty field is written as `""`, since many readers skip empty
/// lines.
fn chosen(reader: &mut csv::Reader, record: &[u8], indices: &[usize]) -> Vec<u8> {
    let fields = reader.ranges(record);
    let mut chosen = Vec::with_capacity(record.len());
    for index in indices {
        chosen.extend_from_slice(fields.get(*index).map_or(&[][..], |field| &record[field.clone()]));
        chosen.push(b',');
    }
    chosen.pop();
    if chosen.is_empty() {
        chosen.extend_from_slice(b"\"\"");
    }
    chosen
}
