//! Parquet: columns that are read, written and refused.

use crate::help::{BUFFER_BYTES, decode, filtered, part, projected, spec};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StringViewArray,
    TimestampMillisecondArray,
};
use batch::{Encoder, Error, Format, MultisetChecksum, Partitioner, multiset_checksum, same_columns};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaDataWriter};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::collections::BTreeMap;
use std::sync::Arc;

fn rows(from: i64, count: i64) -> RecordBatch {
    let ids = || from..from + count;
    let list = |id: i64| (id % 5 != 0).then(|| (0..id % 3).map(Some).collect::<Vec<_>>());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        (
            "kind",
            Arc::new(
                ids()
                    .map(|id| (id % 4 > 0).then(|| ["a", "b", "c"][id as usize % 3]))
                    .collect::<DictionaryArray<Int32Type>>(),
            ),
        ),
        (
            "text",
            Arc::new(StringViewArray::from_iter_values(
                ids().map(|id| format!("a text that is not short, number {id}")),
            )),
        ),
        ("price", Arc::new(ids().map(|id| (id % 7 > 0).then_some(id as f64 / 8.0)).collect::<Float64Array>())),
        (
            "at",
            Arc::new(TimestampMillisecondArray::from_iter_values(ids().map(|id| 1_580_000_000_000 + id * 3_600_000))),
        ),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(ids().map(list)))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn file(batches: &[RecordBatch], row_group_rows: usize, codec: Compression) -> Vec<u8> {
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(row_group_rows)).set_compression(codec).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

fn plain(rows: &RecordBatch) -> Vec<String> {
    let texts = rows.columns().iter().map(|column| arrow_cast::cast(column, &arrow_schema::DataType::Utf8));
    let texts: Vec<_> = texts.flatten().collect();
    (0..rows.num_rows()).map(|row| texts.iter().map(|text| text.as_string::<i32>().value(row)).collect()).collect()
}

#[test]
fn every_row_is_in_the_partition_of_its_key_and_in_no_other() {
    let (first, second) =
        (file(&[rows(0, 5000)], 1000, Compression::SNAPPY), file(&[rows(5000, 3000)], 3000, Compression::SNAPPY));
    let by_text = spec(Format::Parquet, "hash(text, kind)", 5);
    let parted = part(&by_text, &[&first, &second], BUFFER_BYTES).unwrap();
    assert_eq!(parted.tally.rows, 8000);
    assert_eq!(
        parted.tally,
        multiset_checksum(&rows(0, 5000)).unwrap() + multiset_checksum(&rows(5000, 3000)).unwrap()
    );
    let mut seen = BTreeMap::new();
    let mut tally = MultisetChecksum::default();
    for partition in parted.pieces.keys() {
        for object in parted.encoded(Format::Parquet, *partition, 20_000) {
            tally += object.tally;
            for batch in decode(&by_text, &object.bytes, BUFFER_BYTES).unwrap() {
                let again = Partitioner::new(&by_text, &batch.schema()).unwrap().split(&batch).unwrap();
                assert!(again.iter().all(|(found, _)| found == partition), "its partition is its own");
                for row in plain(&batch) {
                    assert_eq!(seen.insert(row, *partition), None);
                }
            }
        }
    }
    assert_eq!((tally, seen.len()), (parted.tally, 8000));
    let sizes: Vec<usize> = parted.pieces.values().map(|p| p.iter().map(RecordBatch::num_rows).sum()).collect();
    assert!(sizes.iter().all(|size| (1450..1750).contains(size)), "{sizes:?}");
}

#[test]
fn a_small_buffer_gives_the_same_rows_in_smaller_batches() {
    let object = file(&[rows(0, 20_000)], 2000, Compression::LZ4_RAW);
    let by_id = spec(Format::Parquet, "hash(id)", 2);
    let (small, large) = (decode(&by_id, &object, 64 << 10).unwrap(), decode(&by_id, &object, BUFFER_BYTES).unwrap());
    assert!(small.len() > 4 * large.len());
    let all = |batches: &[RecordBatch]| arrow_select::concat::concat_batches(&batches[0].schema(), batches).unwrap();
    assert_eq!(all(&small), all(&large));
}

#[test]
fn only_needed_columns_are_read_and_only_asked_for_ones_kept() {
    let object = file(&[rows(0, 1000)], 1000, Compression::SNAPPY);
    let few = filtered(
        projected(spec(Format::Parquet, "range(at, '2020-01-27')", 0), &["price", "id"]),
        "price >= 10.5 and kind != 'b'",
    );
    let read = decode(&few, &object, BUFFER_BYTES).unwrap();
    let names = |batch: &RecordBatch| batch.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    assert_eq!(names(&read[0]), ["id", "kind", "price", "at"]);
    let parted = part(&few, &[&object], BUFFER_BYTES).unwrap();
    let kept = |id: i64| id % 7 > 0 && id as f64 / 8.0 >= 10.5 && id % 4 > 0 && id % 3 != 1;
    assert_eq!(parted.tally.rows, (0..1000).filter(|id| kept(*id)).count() as u64);
    for (partition, pieces) in &parted.pieces {
        assert_eq!(names(&pieces[0]), ["price", "id"]);
        for id in pieces.iter().flat_map(|piece| piece.column(1).as_primitive::<Int64Type>().values().to_vec()) {
            // 2020-01-27 00:00 is 1,580,083,200 s.
            assert!(kept(id) && usize::from(id * 3600 >= 83_200) == *partition, "{id}");
        }
    }
}

#[test]
fn the_compression_stays_what_it_was() {
    for codec in [
        Compression::ZSTD(ZstdLevel::try_new(3).unwrap()),
        Compression::LZ4_RAW,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::UNCOMPRESSED,
    ] {
        let object = file(&[rows(0, 100)], 100, codec);
        let parted = part(&spec(Format::Parquet, "value(kind)", 0), &[&object], BUFFER_BYTES).unwrap();
        assert_eq!(parted.names.values().collect::<Vec<_>>().len(), 4);
        let written = parted.encoded(Format::Parquet, 0, 1 << 20).remove(0).bytes;
        let reader = SerializedFileReader::new(written).unwrap();
        let columns = reader.metadata().row_group(0).columns().iter();
        for column in columns {
            assert_eq!(std::mem::discriminant(&column.compression()), std::mem::discriminant(&codec));
        }
        let text = reader.metadata().row_group(0).column(2);
        let (packed, plain) = (text.compressed_size(), text.uncompressed_size());
        assert_eq!(packed * 2 < plain, codec != Compression::UNCOMPRESSED, "{codec}: {packed} of {plain} bytes");
        let keys = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
        assert!(keys.iter().all(|pair| pair.key != "larder.codec"));
    }
}

#[test]
fn columns_that_do_not_shrink_are_not_compressed_and_do_not_say_that_none_are() {
    let ids = || 0..80_000_u64;
    let noise = |id: u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let columns: [(&str, ArrayRef); 2] = [
        ("noise", Arc::new(arrow_array::UInt64Array::from_iter_values(ids().map(noise)))),
        ("text", Arc::new(StringArray::from_iter_values(ids().map(|id| format!("a text that is not short: {id}"))))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for codec in [Compression::SNAPPY, Compression::LZ4_RAW] {
        let mut object = file(std::slice::from_ref(&batch), 80_000, codec);
        for _ in 0..2 {
            let parted = part(&spec(Format::Parquet, "hash(noise)", 2), &[&object], BUFFER_BYTES).unwrap();
            object = parted.encoded(Format::Parquet, 0, 1 << 30).remove(0).bytes.to_vec();
            let reader = SerializedFileReader::new(bytes::Bytes::from(object.clone())).unwrap();
            let found: Vec<_> =
                reader.metadata().row_group(0).columns().iter().map(ColumnChunkMetaData::compression).collect();
            assert_eq!(found, [Compression::UNCOMPRESSED, codec]);
        }
    }
}

#[test]
fn what_is_written_can_be_read_again_with_the_same_memory() {
    let object = file(&[rows(0, 60_000)], 500, Compression::SNAPPY);
    for buffer_bytes in [128 << 10, 1 << 20, BUFFER_BYTES] {
        let by_id = spec(Format::Parquet, "hash(id)", 2);
        let parted = part(&by_id, &[&object], buffer_bytes).unwrap();
        let pieces = parted.pieces[&0].clone();
        let encoder = Encoder::objects(Format::Parquet, parted.schema.as_ref().unwrap(), pieces, u64::MAX);
        let written = encoder.readable_within(buffer_bytes).next().unwrap().unwrap();
        let read = decode(&by_id, &written.bytes, buffer_bytes).unwrap();
        assert_eq!(read.iter().map(|batch| multiset_checksum(batch).unwrap()).sum::<MultisetChecksum>(), written.tally);
        let groups = SerializedFileReader::new(written.bytes).unwrap().metadata().num_row_groups();
        assert_eq!(groups > 1, buffer_bytes < BUFFER_BYTES, "{groups} row groups for {buffer_bytes} bytes");
    }
}

#[test]
fn a_row_group_above_the_buffer_is_refused_with_both_sizes() {
    let object = file(&[rows(0, 50_000)], 50_000, Compression::UNCOMPRESSED);
    let error = decode(&spec(Format::Parquet, "hash(id)", 2), &object, 200_000).unwrap_err();
    let Error::RowGroupTooLarge { row_group: 0, bytes, buffer_bytes: 200_000 } = error else { panic!("{error}") };
    assert!(bytes > 1_000_000);
    let few = projected(spec(Format::Parquet, "hash(kind)", 2), &["kind"]);
    assert!(decode(&few, &object, 200_000).is_ok(), "one column of it fits");
}

#[test]
fn columns_that_are_missing_or_no_keys_are_refused() {
    let object = file(&[rows(0, 10)], 10, Compression::SNAPPY);
    let said = |by| part(&spec(Format::Parquet, by, 2), &[&object], BUFFER_BYTES).map(|_| ()).unwrap_err().to_string();
    assert_eq!(said("hash(txt)"), "there is no column `txt`; the nearest name is `text`");
    assert!(said("hash(list)").starts_with("column `list` is a List"));
    assert!(said("range(id, 'x')").ends_with("cannot be compared; write it without quotes"));
    assert!(said("range(at, 'soon')").ends_with("write it as '2020-02-29 23:59:00'"));
    assert!(said("range(kind, 5)").ends_with("put it in quotes"));
}

#[test]
fn objects_with_different_columns_are_told_apart_by_name() {
    let (one, other) = (rows(0, 1), rows(0, 1).project(&[0, 2]).unwrap());
    assert_eq!(same_columns(("x", &one.schema()), ("y", &one.schema())), Ok(()));
    let error = same_columns(("s3://b/x", &one.schema()), ("s3://b/y", &other.schema())).unwrap_err().to_string();
    assert_eq!(
        error,
        "s3://b/x and s3://b/y have different columns: one has `kind` Dictionary(Int32, Utf8) where the other has \
         `text` Utf8View, never null; partition them apart"
    );
    let header = |csv: &[u8]| decode(&spec(Format::Csv, "hash(a)", 2), csv, BUFFER_BYTES).unwrap()[0].schema();
    assert!(same_columns(("x", &header(b"a,b\n1,2\n")), ("y", &header(b"b,a\n1,2\n"))).is_err());
}

#[test]
fn a_bound_with_a_fraction_falls_between_integers() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, 1, 2, 3, i64::MAX]));
    let object = file(&[RecordBatch::try_from_iter([("id", ids)]).unwrap()], 10, Compression::SNAPPY);
    let parted =
        part(&spec(Format::Parquet, "range(id, 1.5, 9223372036854775807)", 0), &[&object], BUFFER_BYTES).unwrap();
    let found = |p: usize| parted.pieces[&p][0].column(0).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!([found(0), found(1), found(2)], [vec![i64::MIN, 1], vec![2, 3], vec![i64::MAX]]);
}

#[test]
fn an_object_of_no_rows_is_no_error() {
    let none: ArrayRef = Arc::new(StringArray::new_null(0));
    let object = file(&[RecordBatch::try_from_iter([("a", none)]).unwrap()], 10, Compression::SNAPPY);
    assert_eq!(decode(&spec(Format::Parquet, "hash(a)", 2), &object, BUFFER_BYTES), Ok(Vec::new()));
}

#[test]
fn a_row_group_that_unpacks_above_the_buffer_is_refused_with_both_sizes() {
    let text = "x".repeat(1 << 20);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![text; 16]));
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let batch = RecordBatch::try_from_iter([("a", texts)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    let object = writer.into_inner().unwrap();
    let error = decode(&spec(Format::Parquet, "hash(a)", 2), &object, 1 << 20).unwrap_err();
    let Error::RowGroupExpands { bytes, plain_bytes, .. } = error else { panic!("{error}") };
    assert!(bytes < 100_000 && plain_bytes > 16 << 20, "{bytes} and {plain_bytes}");
}

#[test]
fn a_dictionary_of_nothing_has_nulls_alone() {
    let nulls = DictionaryArray::<Int32Type>::from_iter([None::<&str>, None]);
    let batch = RecordBatch::try_from_iter([("a", Arc::new(nulls) as ArrayRef)]).unwrap();
    let plain = RecordBatch::try_from_iter([("a", Arc::new(StringArray::new_null(2)) as ArrayRef)]).unwrap();
    assert_eq!(multiset_checksum(&batch), multiset_checksum(&plain));
}

#[test]
fn what_a_file_says_of_itself_is_said_of_its_parts() {
    let batch = rows(0, 4).project(&[0, 2]).unwrap();
    let metadata =
        [("geo", "{}"), ("pandas", "{\"columns\":[]}")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let schema = Arc::new(batch.schema().as_ref().clone().with_metadata(std::collections::HashMap::from(metadata)));
    let object = file(&[batch.with_schema(schema).unwrap()], 10, Compression::SNAPPY);
    let said = |spec| {
        let parted = part(&spec, &[&object], BUFFER_BYTES).unwrap();
        let partition = *parted.pieces.keys().next().unwrap();
        let written = parted.encoded(Format::Parquet, partition, 1 << 20).remove(0).bytes;
        let reader = SerializedFileReader::new(written).unwrap();
        let pairs = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap();
        let mut keys: Vec<_> = pairs.into_iter().map(|pair| pair.key).filter(|key| key != "ARROW:schema").collect();
        keys.sort_unstable();
        keys
    };
    let all = spec(Format::Parquet, "hash(id)", 2);
    assert_eq!(said(all.clone()), ["geo", "pandas"]);
    assert_eq!(said(projected(all, &["id"])), ["geo"], "pandas speaks of all columns");
}

#[test]
fn a_compression_that_is_not_read_is_refused_with_those_that_are() {
    let object = file(&[rows(0, 10)], 10, Compression::SNAPPY);
    let metadata = SerializedFileReader::new(bytes::Bytes::from(object.clone())).unwrap().metadata().clone();
    let mut group = metadata.row_group(0).clone().into_builder();
    let mut columns = metadata.row_group(0).columns().to_vec();
    let brotli = Compression::BROTLI(BrotliLevel::default());
    columns[0] = columns[0].clone().into_builder().set_compression(brotli).build().unwrap();
    group = group.set_column_metadata(columns);
    let metadata = metadata.into_builder().set_row_groups(vec![group.build().unwrap()]).build();
    let mut changed = object;
    ParquetMetaDataWriter::new(&mut changed, &metadata).finish().unwrap();
    let error = decode(&spec(Format::Parquet, "hash(id)", 2), &changed, BUFFER_BYTES).unwrap_err().to_string();
    assert!(error.starts_with("column `id` is compressed with brotli") && error.contains("zstd, snappy, gzip or lz4"));
    let other = projected(spec(Format::Parquet, "hash(text)", 2), &["text"]);
    assert!(decode(&other, &changed, BUFFER_BYTES).is_ok(), "other columns are read");
}

#[test]
fn lists_that_expand_to_many_buffers_are_refused_and_others_read() {
    let zeroes = std::iter::repeat_n(Some(std::iter::repeat_n(Some(0), 1000)), 1000);
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(zeroes));
    let object = file(&[RecordBatch::try_from_iter([("lists", lists)]).unwrap()], 1000, Compression::SNAPPY);
    let lists = spec(Format::Parquet, "hash(lists)", 2);
    assert!(object.len() < 100_000, "{} bytes hold 8 MB", object.len());
    let Err(Error::RowGroupExpands { plain_bytes, .. }) = decode(&lists, &object, 256 << 10) else {
        panic!("8 MB are more than 16 buffers of 256 KiB")
    };
    assert_eq!(plain_bytes, 8_000_000);
    let read = decode(&lists, &object, 1 << 20).unwrap();
    assert!(read.iter().all(|batch| batch.num_rows() <= 8), "each row has 8 kB, and a batch 64 KiB");
    assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
}
