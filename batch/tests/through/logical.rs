//! Logical types of Parquet that Arrow has no type for.

use crate::help::{BUFFER_BYTES, part, projected, spec};
use batch::Format;
use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// A file of five records with these columns, each of a different kind.
fn file(message: &str) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    while let Some(mut column) = rows.next_column().unwrap() {
        let numbers = 0..5_u8;
        let written = match column.untyped() {
            ColumnWriter::Int64ColumnWriter(column) => {
                column.write_batch(&numbers.map(i64::from).collect::<Vec<_>>(), None, None)
            }
            ColumnWriter::FixedLenByteArrayColumnWriter(column) => {
                let values: Vec<_> = numbers.map(|n| FixedLenByteArray::from(vec![n; 16])).collect();
                column.write_batch(&values, None, None)
            }
            ColumnWriter::ByteArrayColumnWriter(column) => {
                let values: Vec<_> = numbers.map(|n| ByteArray::from(format!("{{\"n\":{n}}}").as_str())).collect();
                column.write_batch(&values, None, None)
            }
            _ => panic!("no column is of another kind"),
        };
        assert_eq!(written.unwrap(), 5);
        column.close().unwrap();
    }
    rows.close().unwrap();
    writer.into_inner().unwrap()
}

fn kinds(object: impl Into<Bytes>) -> Vec<(String, Option<LogicalType>, ConvertedType)> {
    let reader = SerializedFileReader::new(object.into()).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    let kind = |leaf: &parquet::schema::types::ColumnDescPtr| {
        (leaf.path().string(), leaf.logical_type_ref().cloned(), leaf.converted_type())
    };
    columns.iter().map(kind).collect()
}

#[test]
fn each_column_keeps_its_logical_type() {
    let object = file(
        "message m { required int64 n; required fixed_len_byte_array(16) id (UUID); required binary doc (JSON);
         required binary name (STRING); required int64 open (TIME(MICROS,true));
         required int64 local (TIME(MICROS,false)); required int64 at (TIMESTAMP(MICROS,true));
         required group in { required int64 close (TIME(NANOS,true)); } }",
    );
    let parted = part(&spec(Format::Parquet, "hash(n)", 2), &[&object], BUFFER_BYTES).unwrap();
    for partition in parted.pieces.keys() {
        let written = parted.encoded(Format::Parquet, *partition, 1 << 20).remove(0).bytes;
        assert_eq!(kinds(written.to_vec()), kinds(object.clone()));
    }
}

#[test]
fn objects_of_other_logical_types_are_not_partitioned_together() {
    let of =
        |kind: &str| file(&format!("message m {{ required int64 n; required fixed_len_byte_array(16) id{kind}; }}"));
    let (named, plain) = (of(" (UUID)"), of(""));
    let error = part(&spec(Format::Parquet, "hash(n)", 2), &[&named, &plain], BUFFER_BYTES).err().unwrap().to_string();
    assert!(
        error.contains("one has `id` UUID") && error.contains("where the other has `id` FixedSizeBinary"),
        "{error}"
    );
}

#[test]
fn a_type_that_would_be_lost_is_refused_by_name_unless_its_column_is_left_out() {
    for (lost, other) in [("kind (ENUM)", "kind"), ("doc (BSON)", "doc")] {
        let object = file(&format!("message m {{ required int64 n; required binary {lost}; }}"));
        let all = spec(Format::Parquet, "hash(n)", 2);
        let error = part(&all, &[&object], BUFFER_BYTES).err().unwrap().to_string();
        assert!(error.contains(other) && error.contains("logical type that would be lost"), "{error}");
        assert!(part(&projected(all, &["n"]), &[&object], BUFFER_BYTES).is_ok());
    }
}
