//! Converts batches of objects with equal Parquet columns to the Arrow types of the first object.
//!
//! A Parquet file states the types of its columns. In addition, each writer leaves a hint of the Arrow types that it
//! had in memory: long or short offsets, the name of a zone, the width of a decimal, the name of a list's values. Two
//! objects that differ only in these have the same kind of records, and get the types of the first one that was read.
//!
//! Invariant: no value changes, and none becomes null.

use crate::by::same_columns;
use crate::error::Error;
use crate::format::HEADER;
use crate::notes::logical_name;
use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// `batch` with the types of the object that was read first; each object is given with its name.
///
/// # Errors
/// [`Error::SchemasDiffer`] if the columns differ in more than their form in Arrow.
pub fn conform(first: (&str, &SchemaRef), (name, batch): (&str, &RecordBatch)) -> Result<RecordBatch, Error> {
    let (ours, theirs) = (first.1, batch.schema());
    let refused = match same_columns((first.0, ours), (name, &theirs)) {
        Ok(()) => return Ok(batch.clone()),
        Err(refused) => refused,
    };
    let mut pairs = ours.fields().iter().zip(theirs.fields());
    let is_same_header = ours.metadata().get(HEADER) == theirs.metadata().get(HEADER);
    let are_as_many = ours.fields().len() == theirs.fields().len();
    if !is_same_header || !are_as_many || !pairs.all(|(a, b)| is_same_field(a, b)) {
        return Err(refused);
    }
    let exact = CastOptions { safe: false, ..CastOptions::default() };
    let columns = ours.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| cast_with_options(column, field.data_type(), &exact));
    let columns = columns.collect::<Result<_, _>>().map_err(Error::columns("reading records"))?;
    let schema = Schema::new_with_metadata(ours.fields().clone(), theirs.metadata().clone());
    RecordBatch::try_new(Arc::new(schema), columns).map_err(Error::columns("reading records"))
}

fn is_same_field(a: &Field, b: &Field) -> bool {
    a.name() == b.name() && is_same_content(a, b)
}

/// Compares the content of fields without their names: the writer chooses the name of a list's values.
fn is_same_content(a: &Field, b: &Field) -> bool {
    a.is_nullable() == b.is_nullable()
        && logical_name(a) == logical_name(b)
        && is_same_type(a.data_type(), b.data_type())
}

/// True if Parquet has the same type for both.
fn is_same_type(a: &DataType, b: &DataType) -> bool {
    use DataType as T;
    match (a, b) {
        (T::Utf8 | T::LargeUtf8, T::Utf8 | T::LargeUtf8) | (T::Binary | T::LargeBinary, T::Binary | T::LargeBinary) => {
            true
        }
        // Parquet records that they are moments, and no zone.
        (T::Timestamp(unit, Some(_)), T::Timestamp(other, Some(_))) => unit == other,
        (T::List(a) | T::LargeList(a), T::List(b) | T::LargeList(b)) | (T::Map(a, _), T::Map(b, _)) => {
            is_same_content(a, b)
        }
        (T::Struct(a), T::Struct(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_field(a, b)),
        _ => a == b || digits_of(a).is_some_and(|digits| Some(digits) == digits_of(b)),
    }
}

/// The precision and scale of a decimal.
fn digits_of(kind: &DataType) -> Option<(u8, i8)> {
    match kind {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::builder::{LargeListBuilder, LargeStringBuilder, ListBuilder, StringBuilder};
    use arrow_array::{
        ArrayRef, BinaryArray, Decimal128Array, Decimal256Array, Int64Array, LargeBinaryArray, LargeStringArray,
        StringArray, TimestampMicrosecondArray,
    };
    use arrow_buffer::i256;
    use arrow_schema::extension::Json;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    fn short() -> RecordBatch {
        let mut tags = ListBuilder::new(StringBuilder::new());
        tags.append_value([Some("a"), None]);
        tags.append_null();
        let moments = TimestampMicrosecondArray::from(vec![Some(7), None]).with_timezone("UTC");
        let prices = Decimal128Array::from(vec![Some(1_25), None]).with_precision_and_scale(9, 2).unwrap();
        batch(vec![
            ("name", Arc::new(StringArray::from(vec![Some("x"), None]))),
            ("body", Arc::new(BinaryArray::from(vec![Some(b"y".as_slice()), None]))),
            ("at", Arc::new(moments)),
            ("price", Arc::new(prices)),
            ("tags", Arc::new(tags.finish())),
        ])
    }

    fn long() -> RecordBatch {
        let element = Field::new("element", DataType::LargeUtf8, true);
        let mut tags = LargeListBuilder::new(LargeStringBuilder::new()).with_field(element);
        tags.append_value([Some("a"), None]);
        tags.append_null();
        let moments = TimestampMicrosecondArray::from(vec![Some(7), None]).with_timezone("+00:00");
        let prices = Decimal256Array::from(vec![Some(i256::from(1_25)), None]).with_precision_and_scale(9, 2).unwrap();
        batch(vec![
            ("name", Arc::new(LargeStringArray::from(vec![Some("x"), None]))),
            ("body", Arc::new(LargeBinaryArray::from(vec![Some(b"y".as_slice()), None]))),
            ("at", Arc::new(moments)),
            ("price", Arc::new(prices)),
            ("tags", Arc::new(tags.finish())),
        ])
    }

    #[test]
    fn columns_of_one_parquet_type_get_the_arrow_types_of_the_first_object() {
        for (first, second) in [(short(), long()), (long(), short())] {
            let conformed = conform(("a", &first.schema()), ("b", &second)).unwrap();
            assert_eq!(conformed, first, "and their values stay");
            assert_eq!(conform(("a", &first.schema()), ("b", &first)).unwrap(), first);
        }
    }

    #[test]
    fn columns_of_other_types_names_or_numbers_are_refused_with_both_objects_named() {
        let first = batch(vec![("n", Arc::new(StringArray::from(vec!["x"])))]);
        let others = [
            batch(vec![("n", Arc::new(Int64Array::from(vec![1])))]),
            batch(vec![("m", Arc::new(LargeStringArray::from(vec!["x"])))]),
            batch(vec![("n", Arc::new(BinaryArray::from(vec![b"x".as_slice()])))]),
            short(),
        ];
        for other in others {
            let error = conform(("a.parquet", &first.schema()), ("b.parquet", &other)).unwrap_err();
            assert!(error.to_string().contains("a.parquet and b.parquet have different columns"), "{error}");
        }
        let json = first.schema().field(0).clone().with_extension_type(Json::default());
        let json = first.clone().with_schema(Arc::new(Schema::new(vec![json]))).unwrap();
        assert!(conform(("a", &first.schema()), ("b", &json)).is_err(), "one is JSON, the other any text");
        let headed = |header: &str| {
            let notes = std::collections::HashMap::from([(HEADER.to_owned(), header.to_owned())]);
            first.clone().with_schema(Arc::new(first.schema().as_ref().clone().with_metadata(notes))).unwrap()
        };
        let error = conform(("a.csv", &headed("a,b").schema()), ("b.csv", &headed("b,a"))).unwrap_err();
        assert!(error.to_string().contains("a.csv and b.csv have different columns"), "{error}");
        let plain = TimestampMicrosecondArray::from(vec![7]);
        let first = batch(vec![("at", Arc::new(plain.clone().with_timezone("UTC")))]);
        let local = batch(vec![("at", Arc::new(plain))]);
        assert!(conform(("a", &first.schema()), ("b", &local)).is_err(), "one is a moment, the other no moment");
    }
}
