//! Columns of every type come out as they went in, and so do nulls, row groups without rows, and timestamps of 96 bits.

use crate::help::{BUFFER_BYTES, decode, filtered, part, spec};
use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, TimeUnit};
use batch::{Error, Format, MultisetChecksum, Spec, multiset_checksum};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::data_type::{ByteArray, ByteArrayType, Int96, Int96Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

const ROWS: usize = 3000;

fn numbers() -> ArrayRef {
    Arc::new((0..ROWS as u32).map(|row| (row % 7 > 0).then_some(i64::from(row % 101))).collect::<Int64Array>())
}

fn texts() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| (row % 5 > 0).then(|| format!("text {}", row % 97))).collect::<StringArray>())
}

/// Columns of one value a row.
fn flat() -> Vec<(String, ArrayRef)> {
    use DataType as T;
    let zone = Some(Arc::from("+02:00"));
    let of_numbers = [
        T::Boolean,
        T::Int8,
        T::Int16,
        T::Int32,
        T::Int64,
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float16,
        T::Float32,
        T::Float64,
        T::Decimal32(7, 2),
        T::Decimal64(15, 3),
        T::Decimal128(9, 2),
        T::Decimal128(18, 2),
        T::Decimal128(38, 10),
        T::Decimal256(60, 5),
        T::Date32,
        T::Date64,
        T::Time32(TimeUnit::Millisecond),
        T::Time64(TimeUnit::Microsecond),
        T::Time64(TimeUnit::Nanosecond),
        T::Timestamp(TimeUnit::Second, None),
        T::Timestamp(TimeUnit::Millisecond, zone.clone()),
        T::Timestamp(TimeUnit::Microsecond, zone),
        T::Timestamp(TimeUnit::Nanosecond, None),
        T::Duration(TimeUnit::Microsecond),
        T::Dictionary(Box::new(T::Int16), Box::new(T::Int64)),
    ];
    let of_texts = [
        T::Utf8,
        T::LargeUtf8,
        T::Utf8View,
        T::Binary,
        T::LargeBinary,
        T::BinaryView,
        T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8)),
    ];
    let numbers = of_numbers.into_iter().map(|kind| (numbers(), kind));
    let columns = numbers.chain(of_texts.into_iter().map(|kind| (texts(), kind)));
    let days = |column: &ArrayRef, kind: &T| match kind {
        // Only whole days are dates, and only narrow numbers are cast to times of 32 bits.
        T::Date32 | T::Time32(_) => cast(&cast(column, &T::Int32).unwrap(), kind).unwrap(),
        T::Date64 => cast(&cast(&cast(column, &T::Int32).unwrap(), &T::Date32).unwrap(), kind).unwrap(),
        kind => cast(column, kind).unwrap(),
    };
    columns.map(|(column, kind)| (kind.to_string(), days(&column, &kind))).collect()
}

/// Columns that contain other columns, and columns of nulls alone.
fn nested() -> Vec<(String, ArrayRef)> {
    let nulls = || Some((0..ROWS).map(|row| row % 11 > 0).collect::<NullBuffer>());
    let fields = |columns: &[(&str, ArrayRef)]| {
        columns.iter().map(|(name, column)| Arc::new(Field::new(*name, column.data_type().clone(), true))).collect()
    };
    let pair = [("number", numbers()), ("text", texts())];
    let structs = |nulls| StructArray::new(fields(&pair), pair.iter().map(|(_, c)| Arc::clone(c)).collect(), nulls);
    let list_of = |column: ArrayRef, nulls| {
        let item = Arc::new(Field::new("item", column.data_type().clone(), true));
        let lengths = (0..ROWS).map(|row| if row % 2 == 0 { 2 } else { 0 });
        ListArray::new(item, OffsetBuffer::from_lengths(lengths), column, nulls)
    };
    let list = |row: u32| (row & 7 > 0).then(|| (0..row % 4).map(|n| Some(i64::from(n))).collect::<Vec<_>>());
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>((0..ROWS as u32).map(list)));
    let fixed = |row: u16| (row & 3 > 0).then(|| vec![Some(f32::from(row)), None, Some(0.5)]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..ROWS as u32 {
        for key in 0..row % 3 {
            map.keys().append_value(format!("key {key}"));
            map.values().append_option((key > 0).then_some(i64::from(row)));
        }
        map.append(row % 13 > 0).unwrap();
    }
    let uuids = (0..ROWS as u128).map(|row| (row % 4 > 0).then(|| (row * row).to_be_bytes()));
    let large = DataType::LargeList(Arc::new(Field::new("item", DataType::Int64, true)));
    let outer = [("inner", Arc::new(structs(nulls())) as ArrayRef), ("lists", Arc::clone(&lists))];
    let outer = StructArray::new(fields(&outer), outer.iter().map(|(_, c)| Arc::clone(c)).collect(), nulls());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("struct", Arc::new(structs(nulls()))),
        ("struct of struct and list", Arc::new(outer)),
        ("large list", cast(&lists, &large).unwrap()),
        ("list of lists", Arc::new(list_of(Arc::clone(&lists), nulls()))),
        ("list of structs", Arc::new(list_of(Arc::new(structs(nulls())), None))),
        ("list of texts", Arc::new(list_of(texts(), nulls()))),
        ("list", lists),
        (
            "three",
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..ROWS as u16).map(fixed), 3)),
        ),
        ("map", Arc::new(map.finish())),
        ("uuid", Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids, 16).unwrap())),
        ("no numbers", new_null_array(&DataType::Int64, ROWS)),
        ("no texts", new_null_array(&DataType::Utf8, ROWS)),
        ("nothing", new_null_array(&DataType::Null, ROWS)),
    ];
    columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect()
}

fn records(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("-");
    let mut records = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
        records.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("; ")),
        );
    }
    records.sort();
    records
}

/// Through everything and back; returns the batches that were read at the end.
fn there_and_back(spec: &Spec, object: &[u8]) -> Vec<RecordBatch> {
    let parted = part(spec, &[object], BUFFER_BYTES).unwrap();
    let mut tally = MultisetChecksum::default();
    let mut read = Vec::new();
    for partition in parted.pieces.keys() {
        for object in parted.encoded(Format::Parquet, *partition, 50_000) {
            tally += object.tally;
            read.extend(decode(spec, &object.bytes, BUFFER_BYTES).unwrap());
        }
    }
    assert_eq!(tally, parted.tally);
    assert_eq!(tally, read.iter().map(|batch| multiset_checksum(batch).unwrap()).sum());
    read
}

#[test]
fn columns_of_every_type_come_out_as_they_went_in() {
    for (name, column) in flat().into_iter().chain(nested()) {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS.cast_signed() as i64));
        let batch = RecordBatch::try_from_iter_with_nullable([("id", id, false), (&name, column, true)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let object = writer.into_inner().unwrap();
        let by_id = spec(Format::Parquet, "hash(id)", 3);
        let first = decode(&by_id, &object, BUFFER_BYTES).unwrap();
        let last = there_and_back(&by_id, &object);
        assert_eq!(records(&last), records(std::slice::from_ref(&batch)), "{name}");
        assert_eq!(first[0].schema().fields(), last[0].schema().fields(), "{name}");
        let tally = multiset_checksum(&batch).unwrap();
        assert_eq!(
            last.iter().map(|batch| multiset_checksum(batch).unwrap()).sum::<MultisetChecksum>(),
            tally,
            "{name}"
        );
    }
}

#[test]
fn all_columns_at_once_come_through_a_small_buffer() {
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS.cast_signed() as i64));
    let columns = flat().into_iter().chain(nested()).map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns.chain([(String::from("id"), id, false)])).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(500)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    let object = writer.into_inner().unwrap();
    let by_id = spec(Format::Parquet, "hash(id)", 3);
    let small = decode(&by_id, &object, 1 << 20).unwrap();
    assert!(small.len() > 10, "{} batches", small.len());
    assert_eq!(records(&small), records(&[batch]));
}

/// A Parquet file of one column with some groups of values.
fn file_of<T: parquet::data_type::DataType>(column: &str, groups: &[&[T::T]], said: &[(&str, &str)]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message m {{ required {column}; }}")).unwrap());
    let said = said.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(said)).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for values in groups {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn row_groups_without_rows_are_no_harm() {
    let texts = ["a", "b", "c"].map(ByteArray::from);
    let object = file_of::<ByteArrayType>("binary a (UTF8)", &[&[], &texts[..2], &[], &texts[2..], &[]], &[]);
    let metadata = SerializedFileReader::new(Bytes::from(object.clone())).unwrap().metadata().clone();
    assert_eq!(metadata.num_row_groups(), 5);
    let read = there_and_back(&spec(Format::Parquet, "hash(a)", 2), &object);
    assert_eq!(records(&read), ["a", "b", "c"]);
}

/// A day of Julius Scaliger's count, and nanoseconds.
fn int96(day: i32, ns: u64) -> Int96 {
    vec![ns as u32, (ns >> 32) as u32, day.cast_unsigned()].into()
}

#[test]
fn timestamps_of_96_bits_become_microseconds_wherever_those_reach() {
    const HOUR_US: i64 = 3_600_000_000;
    // 0001-01-01, 1970-01-01 and 9999-12-31, each at one o'clock.
    let days = [1_721_426, 2_440_588, 5_373_484].map(|day| int96(day, HOUR_US.cast_unsigned() * 1000));
    for (said, zone) in [(&[][..], None), (&[("org.apache.spark.version", "3.5.1")][..], Some("UTC"))] {
        let object = file_of::<Int96Type>("int96 a", &[&days[..1], &[], &days[1..]], said);
        let read = there_and_back(&spec(Format::Parquet, "range(a, '1970-01-01')", 0), &object);
        assert_eq!(
            read[0].schema().field(0).data_type(),
            &DataType::Timestamp(TimeUnit::Microsecond, zone.map(Arc::from))
        );
        let mut found: Vec<_> = read
            .iter()
            .flat_map(|b| b.column(0).as_primitive::<TimestampMicrosecondType>().values().to_vec())
            .collect();
        found.sort_unstable();
        let day_us = |day: i64| day * 24 * HOUR_US + HOUR_US;
        assert_eq!(found, [day_us(-719_162), day_us(0), day_us(2_932_896)]);
    }
}

#[test]
fn moments_are_compared_and_named_whatever_their_zone_is_called() {
    let day_us = 86_400_000_000;
    for zone in ["UTC", "Europe/Berlin", "+00:00", "Z"] {
        let days = TimestampMicrosecondArray::from_iter_values([0, day_us, 2 * day_us]).with_timezone(zone);
        let batch = RecordBatch::try_from_iter([("at", Arc::new(days) as ArrayRef)]).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        let object = writer.into_inner().unwrap();
        let ranges = filtered(spec(Format::Parquet, "range(at, '1970-01-02')", 0), "at < '1970-01-02T23:00:00-02:00'");
        let parted = part(&ranges, &[&object], BUFFER_BYTES).unwrap();
        assert_eq!(parted.pieces.values().map(|pieces| pieces[0].num_rows()).collect::<Vec<_>>(), [1, 2], "{zone}");
        let parted = part(&spec(Format::Parquet, "value(at)", 0), &[&object], BUFFER_BYTES).unwrap();
        assert_eq!(parted.names[&1], "at=1970-01-02T00:00:00Z", "{zone}");
        assert_eq!(parted.pieces[&1][0].schema().field(0), batch.schema().field(0), "{zone}");
    }
}

#[test]
fn timestamps_of_96_bits_that_are_no_microseconds_are_refused() {
    let said = |value: Int96| {
        let object = file_of::<Int96Type>("int96 a", &[&[int96(2_440_588, 0)], &[value]], &[]);
        decode(&spec(Format::Parquet, "hash(a)", 2), &object, BUFFER_BYTES)
    };
    assert!(said(int96(2_440_589, 1000)).is_ok());
    for value in [int96(2_440_588, 1), int96(i32::MAX, 0), int96(i32::MIN, 0)] {
        let error = said(value).unwrap_err();
        assert!(matches!(&error, Error::Unreadable { column, .. } if column == "a"), "{error}");
    }
}
