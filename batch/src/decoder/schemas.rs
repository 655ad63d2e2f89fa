//! Schemas of Parquet files, with types replaced by those that batches have; and errors of the library.

use crate::error::Error;
use crate::format::Format;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use parquet::errors::ParquetError;
use std::sync::Arc;

/// The schema without dictionaries, runs and views.
pub(crate) fn plain_schema(schema: &Schema) -> Schema {
    fn plain(kind: &DataType) -> DataType {
        match kind {
            DataType::Dictionary(_, values) => plain(values),
            DataType::RunEndEncoded(_, values) => plain(values.data_type()),
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            DataType::ListView(field) => DataType::List(Arc::clone(field)),
            DataType::LargeListView(field) => DataType::LargeList(Arc::clone(field)),
            other => other.clone(),
        }
    }
    schema_of(schema, &mut plain)
}

/// A plain schema with views of texts and bytes.
pub(super) fn views_schema(schema: &Schema) -> Schema {
    schema_of(schema, &mut |kind| match kind {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
    })
}

/// The schema with other types. `of` is called once for each type; for nested types after the types that contain them.
pub(super) fn schema_of(schema: &Schema, of: &mut dyn FnMut(&DataType) -> DataType) -> Schema {
    let fields: Fields = schema.fields().iter().map(|field| field_of(field, of)).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn field_of(field: &FieldRef, of: &mut dyn FnMut(&DataType) -> DataType) -> FieldRef {
    let kind = type_of(field.data_type(), of);
    if kind == *field.data_type() {
        return Arc::clone(field);
    }
    let other = Field::new(field.name(), kind, field.is_nullable());
    Arc::new(other.with_metadata(field.metadata().clone()))
}

fn type_of(kind: &DataType, of: &mut dyn FnMut(&DataType) -> DataType) -> DataType {
    use DataType as T;
    match of(kind) {
        T::List(field) => T::List(field_of(&field, of)),
        T::LargeList(field) => T::LargeList(field_of(&field, of)),
        T::FixedSizeList(field, length) => T::FixedSizeList(field_of(&field, of), length),
        T::Struct(fields) => T::Struct(fields.iter().map(|field| field_of(field, of)).collect()),
        T::Map(entries, sorted) => T::Map(field_of(&entries, of), sorted),
        other => other,
    }
}

pub(super) fn not_this(reason: &str) -> Error {
    Error::NotThisFormat { format: Format::Parquet, reason: reason.to_owned() }
}

#[allow(clippy::needless_pass_by_value)]
pub(super) fn not_parquet(error: ParquetError) -> Error {
    not_this(&error.to_string())
}
