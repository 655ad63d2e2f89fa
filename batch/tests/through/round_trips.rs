//! Records of each format go to partitions and come back as the bytes they were.

use crate::help::{BUFFER_BYTES, Parted, decode, filtered, part, projected, spec};
use batch::{Encoder, Format, Spec, decode_run, multiset_checksum};
use std::collections::BTreeMap;

const CSV: &str = "id,name,year\n1,ann,1999\n2,\"b,\"\"o\"\"\nb\",2004\n3,,2011\n4,dora,2004\n";

fn tallies_agree(parted: &Parted, format: Format) {
    let out = parted.pieces.keys().flat_map(|partition| parted.encoded(format, *partition, 64));
    assert_eq!(out.map(|object| object.tally).sum::<batch::MultisetChecksum>(), parted.tally);
}

#[test]
fn records_of_a_csv_keep_their_bytes_and_each_object_has_the_header() {
    let parted = part(&spec(Format::Csv, "range(year, 2000, 2010)", 3), &[CSV.as_bytes()], BUFFER_BYTES).unwrap();
    let texts = parted.texts(Format::Csv);
    assert_eq!(texts["00000"], "id,name,year\n1,ann,1999\n");
    assert_eq!(texts["00001"], "id,name,year\n2,\"b,\"\"o\"\"\nb\",2004\n4,dora,2004\n");
    assert_eq!(texts["00002"], "id,name,year\n3,,2011\n");
    assert_eq!(parted.tally.rows, 4);
    tallies_agree(&parted, Format::Csv);
}

#[test]
fn records_of_json_keep_numbers_and_keys_as_they_were_written() {
    let lines = "{\"k\":\"a\",\"x\":1.10}\n\n{\"k\":\"b\", \"only\":{\"here\":[1]}}\r\n{\"x\":1e400,\"k\":\"a\"}";
    let parted = part(&spec(Format::Ndjson, "value(k)", 0), &[lines.as_bytes()], BUFFER_BYTES).unwrap();
    let texts = parted.texts(Format::Ndjson);
    assert_eq!(texts["k=a"], "{\"k\":\"a\",\"x\":1.10}\n{\"x\":1e400,\"k\":\"a\"}\n");
    assert_eq!(texts["k=b"], "{\"k\":\"b\", \"only\":{\"here\":[1]}}\n");
    tallies_agree(&parted, Format::Ndjson);
}

#[test]
fn lines_may_be_any_bytes_and_empty_ones_are_records() {
    let bytes = b"\xff\xfe\n\nb\r\nlast";
    let parted = part(&spec(Format::Lines, "range(line, 'a')", 0), &[bytes], BUFFER_BYTES).unwrap();
    let objects: Vec<_> =
        parted.pieces.keys().map(|p| parted.encoded(Format::Lines, *p, 1000)[0].bytes.clone()).collect();
    assert_eq!(objects, [&b"\n"[..], b"\xff\xfe\nb\r\nlast\n"]);
    tallies_agree(&parted, Format::Lines);
}

#[test]
fn fixed_records_are_told_apart_by_a_part_of_them() {
    let format = Format::Fixed { record_bytes: 4 };
    let parted =
        part(&spec(format, "range(record[1..3], 'm')", 0), &[b"1ab2", b"3zz4", b"5mm6"], BUFFER_BYTES).unwrap();
    let objects: Vec<_> = parted.pieces.keys().map(|p| parted.encoded(format, *p, 1000)[0].bytes.clone()).collect();
    assert_eq!(objects, [&b"1ab2"[..], b"3zz45mm6"]);
    tallies_agree(&parted, format);
}

#[test]
fn what_is_left_out_is_left_out_of_records_as_they_stand() {
    let kept =
        projected(filtered(spec(Format::Csv, "value(year)", 0), "id >= 2 and name is not null"), &["year", "name"]);
    let texts = part(&kept, &[CSV.as_bytes()], BUFFER_BYTES).map(|parted| parted.texts(Format::Csv));
    let Err(batch::Error::OnePartition { .. }) = texts else { panic!("one year is left") };

    let kept = Spec { by: "hash(id)".parse().unwrap(), partitions: 2, ..kept };
    let texts = part(&kept, &[CSV.as_bytes()], BUFFER_BYTES).unwrap().texts(Format::Csv);
    let mut records: Vec<_> =
        texts.values().flat_map(|text| text.split_once('\n').unwrap().1.split_inclusive("\n2")).collect();
    records.sort_unstable();
    assert_eq!(records.concat(), "2004,\"b,\"\"o\"\"\nb\"\n2004,dora\n");
    assert!(texts.values().all(|text| text.starts_with("year,name\n")));

    let lines = b"{\"a\":1, \"b\":{\"c\":  2}, \"k\\u0041\":\"x\"}\n{\"kA\":\"y\"}\n";
    let kept = projected(spec(Format::Ndjson, "value(kA)", 0), &["kA", "b"]);
    let texts = part(&kept, &[lines], BUFFER_BYTES).unwrap().texts(Format::Ndjson);
    assert_eq!(texts["kA=x"], "{\"kA\":\"x\",\"b\":{\"c\":  2}}\n");
    assert_eq!(texts["kA=y"], "{\"kA\":\"y\"}\n");
}

#[test]
fn objects_end_before_they_exceed_the_chosen_size() {
    let lines: String = (0..10_000).flat_map(|line| [line.to_string(), String::from("\n")]).collect();
    let parted = part(&spec(Format::Lines, "hash(line)", 3), &[lines.as_bytes()], BUFFER_BYTES).unwrap();
    let mut seen = BTreeMap::new();
    for partition in parted.pieces.keys() {
        let objects = parted.encoded(Format::Lines, *partition, 1000);
        assert!(objects.iter().all(|object| object.bytes.len() <= 1000));
        assert!(objects.iter().rev().skip(1).all(|object| object.bytes.len() > 990));
        for line in objects.iter().flat_map(|object| std::str::from_utf8(&object.bytes).unwrap().lines()) {
            assert_eq!(seen.insert(line.to_owned(), *partition), None, "each line is in one partition, once");
        }
    }
    assert_eq!(seen.len(), 10_000);
    assert_eq!(parted.pieces.len(), 3);
}

#[test]
fn runs_bring_back_what_was_set_aside() {
    let parted = part(&spec(Format::Csv, "hash(id)", 2), &[CSV.as_bytes()], BUFFER_BYTES).unwrap();
    for pieces in parted.pieces.values() {
        let runs =
            Encoder::runs(parted.schema.as_ref().unwrap(), pieces.clone(), 1).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(runs.len(), pieces.len(), "a run ends where the size is reached");
        let back: Vec<_> = runs.iter().flat_map(|run| decode_run(&run.bytes).unwrap()).collect();
        assert_eq!(&back, pieces);
        assert_eq!(runs[0].tally, multiset_checksum(&pieces[0]).unwrap());
    }
}

#[test]
fn small_buffers_cut_objects_into_many_batches_with_the_same_records() {
    let records = (0..40_000).map(|row| format!("{row},\"text, of {row}\nand more\",{}\n", row % 7));
    let csv = std::iter::once(String::from("\u{feff}id,text,week\r\n")).chain(records).collect::<String>();
    let week = spec(Format::Csv, "value(week)", 0);
    let small = part(&week, &[csv.as_bytes()], 64 << 10).unwrap();
    let large = part(&week, &[csv.as_bytes()], BUFFER_BYTES).unwrap();
    assert!(decode(&week, csv.as_bytes(), 64 << 10).unwrap().len() > 10);
    assert_eq!(small.texts(Format::Csv), large.texts(Format::Csv));
    assert_eq!(small.tally, large.tally);
}
