//! Sets of objects and records that differ: keys that few have, columns in another order, filters that keep nothing.

use crate::help::{BUFFER_BYTES, filtered, part, projected, spec};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use batch::{Error, Format, Partitioner};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

#[test]
fn a_filter_may_keep_nothing_of_a_batch() {
    let few = filtered(spec(Format::Ndjson, "hash(k)", 2), "x > 1");
    let parted = part(&few, &[b"{\"k\":1,\"x\":1}\n", b"{\"k\":1,\"x\":2}\n"], BUFFER_BYTES).unwrap();
    assert_eq!(parted.tally.rows, 1);
    let few = filtered(spec(Format::Fixed { record_bytes: 2 }, "hash(record[0..1])", 2), "record[1..2] = 'x'");
    assert_eq!(part(&few, &[b"1a2b", b"1x"], BUFFER_BYTES).unwrap().tally.rows, 1);
}

#[test]
fn a_key_that_only_later_records_have_is_found_and_one_that_none_has_is_refused() {
    let objects: [&[u8]; 2] = [b"{\"k\":1,\"x\":1}\n", b"{\"k\":2,\"x\":1,\"rare\":5}\n"];
    assert_eq!(part(&spec(Format::Ndjson, "value(rare)", 0), &objects, BUFFER_BYTES).unwrap().tally.rows, 2);
    let wrong = projected(spec(Format::Ndjson, "value(k)", 0), &["k", "rares"]);
    let said = part(&wrong, &objects, BUFFER_BYTES).map(|_| ()).unwrap_err();
    assert!(matches!(said, Error::MissingColumn { column, .. } if column == "rares"));
    let right = projected(spec(Format::Ndjson, "value(k)", 0), &["rare"]);
    assert_eq!(part(&right, &objects, BUFFER_BYTES).unwrap().texts(Format::Ndjson)["k=2"], "{\"rare\":5}\n");
    let null = spec(Format::Ndjson, "hash(n)", 2);
    assert!(part(&null, &[b"{\"n\":null}\n"], BUFFER_BYTES).is_ok(), "a null is there");
}

#[test]
fn columns_in_another_order_are_not_taken_for_each_other() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = |names: [&str; 2]| RecordBatch::try_from_iter(names.map(|name| (name, Arc::clone(&ids)))).unwrap();
    let (one, other) = (batch(["a", "b"]), batch(["b", "a"]));
    let partitioner = Partitioner::new(&spec(Format::Parquet, "hash(a)", 2), &one.schema()).unwrap();
    assert_eq!(partitioner.split(&one).map(|pieces| pieces.len()), Ok(1));
    assert!(matches!(partitioner.split(&other), Err(Error::SchemasDiffer { .. })));
    let swapped = part(&spec(Format::Csv, "hash(a)", 2), &[b"a,b\n1,2\n", b"b,a\n1,2\n"], BUFFER_BYTES);
    assert!(matches!(swapped.map(|_| ()), Err(Error::SchemasDiffer { .. })));
}

#[test]
fn the_name_of_null_is_not_that_of_a_text() {
    let csv = b"k,v\n__HIVE_DEFAULT_PARTITION__,1\n,2\n";
    let texts = part(&spec(Format::Csv, "value(k)", 0), &[csv], BUFFER_BYTES).unwrap().texts(Format::Csv);
    assert_eq!(texts["k=__HIVE_DEFAULT_PARTITION__"], "k,v\n,2\n");
    assert_eq!(texts["k=%5F_HIVE_DEFAULT_PARTITION__"], "k,v\n__HIVE_DEFAULT_PARTITION__,1\n");
}

#[test]
fn columns_that_would_be_read_as_something_else_are_refused() {
    let schema = parse_message_type("message m { required fixed_len_byte_array(12) a (INTERVAL); }").unwrap();
    let object = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default()).unwrap().into_inner().unwrap();
    let error = part(&spec(Format::Parquet, "hash(a)", 2), &[&object], BUFFER_BYTES).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("months would be lost"));
}
