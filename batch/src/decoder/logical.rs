//! Logical types of Parquet without an Arrow type: stored as notes of a field, or refused by name.
//!
//! UUID and JSON are Arrow's extension types, which the library notes. A time of day in UTC is noted here. A type that
//! would be written as another type (ENUM, BSON) is refused before a row is read.
//!
//! Invariant: a column that is read is written with the logical type that it had.

use super::schemas::not_parquet;
use crate::error::Error;
use crate::notes::IN_UTC;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::{ArrowSchemaConverter, ProjectionMask};
use parquet::basic::{ConvertedType, LogicalType};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use std::sync::Arc;

/// `schema`, which is that of the file, with notes on the times of day in UTC.
pub(super) fn noted(schema: &Schema, metadata: &ParquetMetaData) -> Schema {
    let mut leaves = metadata.file_metadata().schema_descr().columns().iter();
    let fields: Fields = schema.fields().iter().map(|field| noted_field(field, &mut leaves)).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn noted_field<'a>(field: &FieldRef, leaves: &mut impl Iterator<Item = &'a ColumnDescPtr>) -> FieldRef {
    use DataType as T;
    let kind = match field.data_type() {
        T::List(values) => T::List(noted_field(values, leaves)),
        T::LargeList(values) => T::LargeList(noted_field(values, leaves)),
        T::FixedSizeList(values, length) => T::FixedSizeList(noted_field(values, leaves), *length),
        T::Struct(fields) => T::Struct(fields.iter().map(|field| noted_field(field, leaves)).collect()),
        T::Map(entries, sorted) => T::Map(noted_field(entries, leaves), *sorted),
        leaf => {
            let is_in_utc = leaves.next().is_some_and(|leaf| is_time_in_utc(leaf));
            if !is_in_utc || !matches!(leaf, T::Time32(_) | T::Time64(_)) {
                return Arc::clone(field);
            }
            let mut notes = field.metadata().clone();
            notes.insert(IN_UTC.to_owned(), String::new());
            return Arc::new(field.as_ref().clone().with_metadata(notes));
        }
    };
    let other = Field::new(field.name(), kind, field.is_nullable());
    Arc::new(other.with_metadata(field.metadata().clone()))
}

fn is_time_in_utc(leaf: &ColumnDescriptor) -> bool {
    matches!(leaf.logical_type_ref(), Some(LogicalType::Time(time)) if time.is_adjusted_to_u_t_c)
}

/// Refuses columns that would be written with another logical type than they have, according to the schema `noted`.
pub(super) fn are_kept(noted: &Schema, metadata: &ParquetMetaData, mask: &ProjectionMask) -> Result<(), Error> {
    let written = ArrowSchemaConverter::new().convert(noted).map_err(not_parquet)?;
    let read = metadata.file_metadata().schema_descr().columns();
    let mut pairs = read.iter().zip(written.columns()).enumerate();
    let lost = pairs.find(|(leaf, (read, written))| mask.leaf_included(*leaf) && !is_kept(read, written));
    let Some((_, (read, _))) = lost else { return Ok(()) };
    Err(Error::Unreadable {
        column: read.path().string(),
        kind: "of a logical type that would be lost, such as ENUM or BSON",
        hint: "write it as text or bytes, or name the other columns alone",
    })
}

fn is_kept(read: &ColumnDescriptor, written: &ColumnDescriptor) -> bool {
    match (read.logical_type_ref(), read.converted_type()) {
        (None, ConvertedType::NONE) => true,
        // Old writers annotate only in this form.
        (None, converted) => converted == written.converted_type(),
        (kind, _) => kind == written.logical_type_ref(),
    }
}
