//! Records that are easily lost or joined: other ends of lines, empty ones, long ones, objects without any.

use crate::help::{BUFFER_BYTES, decode, part, spec};
use batch::{BATCH_ROWS_MAX, Decoder, Encoder, Error, Format, Need};
use bytes::Bytes;

fn count(format: Format, object: &[u8]) -> Result<usize, Error> {
    let batches = decode(&spec(format, "hash(a)", 2), object, BUFFER_BYTES)?;
    Ok(batches.iter().map(arrow_array::RecordBatch::num_rows).sum())
}

#[test]
fn a_csv_whose_lines_end_in_carriage_returns_alone_is_refused() {
    let said = |object: &[u8]| count(Format::Csv, object).unwrap_err().to_string();
    assert!(
        said(b"a,b\r1,2\r3,4\r").starts_with("this is not csv: it has a carriage return that no line feed follows")
    );
    assert!(said(b"a,b\n1,2\r3,4\n").starts_with("record 1 is not csv: it has a carriage return"));
    assert!(said(b"a,b\n1,\"2\"\r3,4\n").starts_with("record 1 is not csv: it has a carriage return"));
    assert!(said(b"a,b\n1,2\r\r\n3,4\n").starts_with("record 1 is not csv: it has a carriage return"));
    assert_eq!(count(Format::Csv, b"a,b\r\n1,\"2\r3\"\r\n3,\"4\"\r\n5,6\r"), Ok(3), "in quotes it is text");
    let many = [b"a,b\r".to_vec(), b"1,2\r".repeat(2 << 20)].concat();
    assert!(said(&many).contains("carriage return"), "not only that a record is too long");
}

#[test]
fn an_empty_line_of_one_column_is_a_record_and_comes_back() {
    assert_eq!(count(Format::Csv, b"a\n1\n\n3\n"), Ok(3));
    assert_eq!(count(Format::Csv, b"a\r\n1\r\n\r\n"), Ok(2));
    assert_eq!(count(Format::Csv, b"\n\na\n1\n"), Ok(1), "before the header it is nothing");
    assert_eq!(count(Format::Csv, b"a,b\n1,2\n\n3,4\n"), Ok(2), "and nothing among several columns");
    let parted = part(&spec(Format::Csv, "value(a)", 0), &[b"a\n1\n\n1\n\n"], BUFFER_BYTES).unwrap();
    assert_eq!(parted.texts(Format::Csv)["a=__HIVE_DEFAULT_PARTITION__"], "a\n\n\n");
    assert_eq!(parted.tally.rows, 4);
}

#[test]
fn an_object_of_no_bytes_has_no_records() {
    for format in [Format::Csv, Format::Ndjson, Format::Lines, Format::Fixed { record_bytes: 4 }] {
        assert_eq!(count(format, b""), Ok(0), "{format}");
    }
    assert_eq!(count(Format::Csv, b"a,b\n"), Ok(0));
    assert!(count(Format::Csv, b"\xef\xbb\xbf\n1\n").unwrap_err().to_string().ends_with("its header is empty"));
}

#[test]
fn objects_without_records_show_their_columns() {
    let spec = spec(Format::Csv, "hash(a)", 2);
    let mut decoder = Decoder::open(&spec, 4, BUFFER_BYTES);
    assert_eq!(decoder.schema(), None);
    decoder.next().unwrap();
    decoder.give(&(0..4), Bytes::from_static(b"a,b\n"));
    assert_eq!(decoder.next(), Ok(Need::End));
    let known = decode(&spec, b"a,b\n1,2\n", BUFFER_BYTES).unwrap()[0].schema();
    assert_eq!(decoder.schema(), Some(known));
}

#[test]
fn after_an_error_there_are_no_records() {
    let object = Bytes::from([b"a,b\n1,2\n1\n".to_vec(), b"3,4\n".repeat(40_000)].concat());
    let mut decoder = Decoder::open(&spec(Format::Csv, "hash(a)", 2), object.len() as u64, 64 << 10);
    for _ in 0..2 {
        if let Ok(Need::Bytes(range)) = decoder.next() {
            decoder.give(&range, object.slice(range.start as usize..range.end as usize));
        }
        assert!(matches!(decoder.next(), Err(Error::Malformed { record: 2, .. })));
    }
}

#[test]
fn a_record_is_counted_once_wherever_its_batch_began() {
    let lines = [b"a,b\n".to_vec(), b"1,2\n".repeat(100_000), b"1\n".to_vec()].concat();
    let object = Bytes::from(lines);
    let mut decoder = Decoder::open(&spec(Format::Csv, "hash(a)", 2), object.len() as u64, 64 << 10);
    let error = loop {
        match decoder.next() {
            Ok(Need::Bytes(range)) => decoder.give(&range, object.slice(range.start as usize..range.end as usize)),
            Ok(Need::Batch(_)) => {}
            Ok(Need::End) => panic!("the last record has one field"),
            Err(error) => break error.at("k", decoder.records_before()),
        }
    };
    assert_eq!(error.to_string(), "k: record 100001 is not csv: it has 1 fields and the header has 2");
}

#[test]
fn batches_of_short_records_end_at_so_many() {
    for (format, object) in [
        (Format::Lines, b"\n".repeat(200_000)),
        (Format::Fixed { record_bytes: 1 }, b"x".repeat(200_000)),
        (Format::Csv, [&b"a\n"[..], &b"1\n".repeat(200_000)].concat()),
    ] {
        let batches = decode(&spec(format, "hash(a)", 2), &object, BUFFER_BYTES).unwrap();
        assert_eq!(batches.iter().map(|batch| batch.num_rows() as u64).max(), Some(BATCH_ROWS_MAX), "{format}");
        assert_eq!(batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 200_000, "{format}");
    }
}

#[test]
fn halves_of_a_letter_in_two_records_are_not_utf8() {
    assert_eq!(count(Format::Csv, b"a\nx\n\xc3\n\xa9\n"), Err(Error::NotUtf8 { record: 2 }));
    assert_eq!(count(Format::Csv, b"a\nx\n\xc3\n\xa9\n\xff\n"), Err(Error::NotUtf8 { record: 2 }));
    assert_eq!(count(Format::Csv, b"a\nx\ny\n\xff\n"), Err(Error::NotUtf8 { record: 3 }));
}

#[test]
fn carriage_returns_behind_json_are_no_part_of_it() {
    let batch = decode(&spec(Format::Ndjson, "hash(a)", 2), b"{\"a\":1}\r\r\n\r\r\n{\"a\":2}\n", BUFFER_BYTES)
        .unwrap()
        .remove(0);
    let written = Encoder::objects(Format::Ndjson, &batch.schema(), vec![batch], 1000)
        .collect::<Result<Vec<_>, _>>()
        .unwrap()
        .remove(0);
    assert_eq!(written.bytes, "{\"a\":1}\n{\"a\":2}\n");
}

#[test]
fn ndjson_may_begin_with_a_byte_order_mark_and_has_no_records_of_blanks() {
    let sent = b"\xef\xbb\xbf{\"a\":1}\n \t\r\n{\"a\":2}\n  ";
    let parted = part(&spec(Format::Ndjson, "hash(a)", 2), &[&sent[..]], BUFFER_BYTES).unwrap();
    assert_eq!(parted.tally.rows, 2);
    let texts: String = parted.texts(Format::Ndjson).into_values().collect();
    let mut lines: Vec<&str> = texts.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["{\"a\":1}", "{\"a\":2}"]);
    let late = b"{\"a\":1}\n\xef\xbb\xbf{\"a\":2}\n";
    assert!(part(&spec(Format::Ndjson, "hash(a)", 2), &[&late[..]], BUFFER_BYTES).is_err(), "only at the beginning");
}

#[test]
fn a_larger_buffer_holds_a_longer_record() {
    let long = [b"a\n".to_vec(), vec![b'x'; 5 << 20], b"\ny\n".to_vec()].concat();
    let refused = Err(Error::RecordTooLong { record: 1, limit_bytes: 4 << 20 });
    assert_eq!(decode(&spec(Format::Csv, "hash(a)", 2), &long, 64 << 20), refused);
    let batches = decode(&spec(Format::Csv, "hash(a)", 2), &long, 96 << 20).unwrap();
    assert_eq!(batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 2);
    let open = [b"a\n\"".to_vec(), b"x,\n".repeat(100_000)].concat();
    let said = decode(&spec(Format::Csv, "hash(a)", 2), &open, 64 << 10).unwrap_err().to_string();
    assert_eq!(said, "record 1 is not csv: a quote in it is not closed within 65536 bytes");
}

#[test]
fn records_of_no_length_are_refused() {
    for record_bytes in [0, usize::MAX] {
        assert!(matches!(count(Format::Fixed { record_bytes }, b"xyz"), Err(Error::UnknownFormat(_))));
    }
}
