//! Errors name the place and the remedy.

use crate::help::{BUFFER_BYTES, decode, filtered, part, projected, spec};
use batch::{Error, Format, Spec};

fn said(format: Format, by: &str, partitions: usize, object: &[u8]) -> String {
    part(&spec(format, by, partitions), &[object], BUFFER_BYTES).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_missing_column_comes_with_the_nearest_name() {
    let csv = b"id,Year\n1,2000\n";
    assert_eq!(said(Format::Csv, "hash(yaer)", 2, csv), "there is no column `yaer`; the nearest name is `Year`");
    let json = b"{\"id\":1,\"year\":2000}\n";
    assert_eq!(said(Format::Ndjson, "value(yer)", 0, json), "there is no column `yer`; the nearest name is `year`");
    assert_eq!(said(Format::Lines, "hash(lines)", 2, b"x"), "there is no column `lines`; the nearest name is `line`");
    let fixed = said(Format::Fixed { record_bytes: 4 }, "hash(record[2..5])", 2, b"1234");
    assert_eq!(fixed, "there is no column `record[2..5]`; the nearest name is `record[0..4]`");
    let gone = projected(spec(Format::Csv, "hash(id)", 2), &["id", "yea"]);
    assert!(matches!(part(&gone, &[csv], BUFFER_BYTES),
        Err(Error::MissingColumn { near: Some(near), .. }) if near == "Year"));
}

#[test]
fn a_record_that_is_not_what_its_object_says_is_named() {
    let csv = said(Format::Csv, "hash(a)", 2, b"a,b\n1,2\n1,2,3\n");
    assert_eq!(csv, "record 2 is not csv: it has 3 fields and the header has 2");
    let open = said(Format::Csv, "hash(a)", 2, b"a,b\n1,2\n1,\"2\n");
    assert_eq!(open, "record 2 is not csv: a quote in it is never closed");
    let json = said(Format::Ndjson, "hash(a)", 2, b"{\"a\":1}\n[1]\n");
    assert!(json.starts_with("record 2 is not ndjson: "), "{json}");
    let json = said(Format::Ndjson, "hash(a)", 2, b"{\"a\":1} {\"a\":1}\n");
    assert!(json.starts_with("record 1 is not ndjson: trailing characters"), "{json}");
    assert_eq!(
        said(Format::Csv, "hash(a)", 2, b"a,b\n1,2\n\xc3,2\n3,4\n"),
        "record 2 is not UTF-8; convert the object, or take it as lines, which may be any bytes"
    );
    assert_eq!(said(Format::Csv, "hash(a)", 2, b"\n\n"), "this is not csv: it has no header line");
    assert_eq!(
        said(Format::Csv, "hash(a)", 2, b"PK\0\0"),
        "this is not csv: its first line has bytes that are no text"
    );
    assert_eq!(
        said(Format::Fixed { record_bytes: 8 }, "hash(record)", 2, b"0123456789"),
        "10 bytes are not whole records of 8: 2 are left over"
    );
    for object in [&b""[..], b"PAR1", b"id,year\n1,2000\n2,2001\n", &[b'x'; 100]] {
        assert!(said(Format::Parquet, "hash(a)", 2, object).starts_with("this is not parquet: "));
    }
}

#[test]
fn a_field_that_is_no_number_is_named_by_object_record_and_column() {
    let years = spec(Format::Csv, "range(year, 2000)", 0);
    let error = part(&years, &[b"id,year\n1,1999\n2,\n3,MM\n"], BUFFER_BYTES).map(|_| ()).unwrap_err();
    assert_eq!(
        error.at("s3://b/k", 1000).to_string(),
        "s3://b/k: record 1003: `MM` in column `year` is no number; compare with a text in quotes instead"
    );
}

#[test]
fn a_record_longer_than_a_batch_is_refused_with_the_limit() {
    for format in [Format::Lines, Format::Ndjson, Format::Csv] {
        let lines = spec(format, "hash(a)", 2);
        let long = [b"a\n".to_vec(), vec![b'x'; 200_000]].concat();
        let records = if format == Format::Csv { 1 } else { 2 };
        let refused = Err(Error::RecordTooLong { record: records, limit_bytes: 65_536 });
        assert_eq!(decode(&lines, &long, 64 << 10), refused);
        assert_eq!(decode(&lines, &[&long[..], b"\nb\n"].concat(), 64 << 10), refused);
    }
}

#[test]
fn a_buffer_smaller_than_a_batch_is_refused_with_both_sizes() {
    let refused = Err(Error::BufferTooSmall { buffer_bytes: 65_535, needed_bytes: 65_536 });
    assert_eq!(decode(&spec(Format::Lines, "hash(line)", 2), b"x\n", 65_535), refused);
}

#[test]
fn what_separates_nothing_is_refused() {
    assert!(said(Format::Csv, "hash(a)", 1, b"a\n1\n").starts_with("`hash(a)` makes one partition of everything; "));
    assert!(said(Format::Csv, "range(a)", 0, b"a\n1\n").contains("give it bounds"));
    assert!(said(Format::Csv, "value(a)", 0, b"a\n1\n1\n").contains("it has but one value"));
    assert!(said(Format::Csv, "value(a)", 2, b"a\n1\n2\n3\n").starts_with("column `a` has more than 2 values"));
    assert_eq!(
        said(Format::Csv, "range(a, 2, 10, 3)", 0, b"a\n1\n"),
        "bounds of a range must ascend: `3` follows `10`"
    );
    assert_eq!(
        said(Format::Csv, "range(a, '2', '10')", 0, b"a\n1\n"),
        "bounds of a range must ascend: `'10'` follows `'2'`"
    );
}

#[test]
fn filters_that_compare_what_cannot_be_compared_are_refused() {
    let lines = filtered(spec(Format::Lines, "hash(line)", 2), "line > 5");
    let said = part(&lines, &[b"x\n"], BUFFER_BYTES).map(|_| ()).unwrap_err().to_string();
    assert_eq!(said, "column `line` is Binary, with which `5` cannot be compared; put it in quotes");
}

#[test]
fn what_would_have_to_be_converted_is_refused_with_a_way_round() {
    let other = Spec { output: Format::Parquet, ..spec(Format::Csv, "hash(a)", 2) };
    let error = part(&other, &[b"a\n1\n"], BUFFER_BYTES).map(|_| ()).unwrap_err();
    assert_eq!(error, Error::Conversion { from: Format::Csv, to: Format::Parquet });
    assert!(error.to_string().contains("leave the output's format out"));
}
