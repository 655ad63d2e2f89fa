//! Partitions of values: nulls, NaN, texts and numbers.

use crate::help::{BUFFER_BYTES, filtered, part, spec};
use arrow_array::{ArrayRef, Float32Array, Float64Array, RecordBatch};
use batch::{Error, Filter, Format, Partitioner};
use std::sync::Arc;

#[test]
fn empty_fields_are_null_and_have_a_place() {
    let csv = b"k,v\nb,1\n,2\na,3\n";
    let texts = part(&spec(Format::Csv, "value(k)", 0), &[csv], BUFFER_BYTES).unwrap().texts(Format::Csv);
    assert_eq!(texts["k=__HIVE_DEFAULT_PARTITION__"], "k,v\n,2\n");
    let texts = part(&spec(Format::Csv, "range(k, 'b')", 0), &[csv], BUFFER_BYTES).unwrap().texts(Format::Csv);
    assert_eq!(texts["00000"], "k,v\n,2\na,3\n", "nulls are below every bound");
}

#[test]
fn not_a_number_is_above_every_bound() {
    let csv = b"x\n1\nNaN\n-NaN\n1e9\n";
    let texts = part(&spec(Format::Csv, "range(x, 0, 5)", 0), &[csv], BUFFER_BYTES).unwrap().texts(Format::Csv);
    assert_eq!(texts["00001"], "x\n1\n");
    assert!(texts["00002"].contains("NaN") && texts["00002"].contains("1e9"));
}

#[test]
fn values_become_names_that_a_path_can_have() {
    let csv = "k\na/b=c%\n\u{e9} \n..\n";
    let texts = part(&spec(Format::Csv, "value(k)", 0), &[csv.as_bytes()], BUFFER_BYTES).unwrap().texts(Format::Csv);
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["k=%C3%A9 ", "k=..", "k=a%2Fb%3Dc%25"]);
}

#[test]
fn a_filter_keeps_what_is_true_and_not_what_is_unknown() {
    let csv = b"k,v\na,1\n,2\nb,10\nc,\n";
    for (filter, kept) in [
        ("v > 9", "b"),
        ("not v > 9", "a,"),
        ("v > '9'", ""),
        ("v is null or k = 'a'", "ac"),
        ("k is null", ","),
        ("k <> \"a\" and (v >= 1 or v is null)", "bc"),
    ] {
        let parted = part(&filtered(spec(Format::Csv, "hash(k, v)", 2), filter), &[csv], BUFFER_BYTES).unwrap();
        let mut found: Vec<_> = parted
            .texts(Format::Csv)
            .values()
            .flat_map(|t| t.lines().skip(1).map(|l| l[..1].to_owned()).collect::<Vec<_>>())
            .collect();
        found.sort_unstable_by_key(|key| if key == "," { String::from("z") } else { key.clone() });
        assert_eq!(found.concat(), kept, "{filter}");
    }
}

#[test]
fn zeroes_are_one_and_not_a_number_is_above_all_whatever_their_signs() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 0.0, -f64::NAN, f64::NAN, -1.0]));
    let batch = RecordBatch::try_from_iter([("x", floats)]).unwrap();
    let rows = |by: &str, filter: &str| {
        let spec = filtered(spec(Format::Parquet, by, 0), filter);
        let pieces = Partitioner::new(&spec, &batch.schema()).unwrap().split(&batch).unwrap();
        pieces.into_iter().map(|(partition, piece)| (partition, piece.num_rows())).collect::<Vec<_>>()
    };
    assert_eq!(rows("range(x, 0)", "x is not null"), [(0, 1), (1, 4)]);
    assert_eq!(rows("range(x, -0.0)", "x is not null"), [(0, 1), (1, 4)]);
    assert_eq!(rows("range(x, 0)", "x < 0"), [(0, 1)]);
    assert_eq!(rows("range(x, 0)", "x = -0.0"), [(1, 2)]);
    assert_eq!(rows("range(x, 0)", "x > 5"), [(1, 2)]);
}

#[test]
fn numbers_in_texts_are_compared_by_value_however_long_they_are() {
    let kept = |filter: &str, csv: &str| {
        let spec = filtered(spec(Format::Csv, "hash(a)", 2), filter);
        part(&spec, &[csv.as_bytes()], BUFFER_BYTES).unwrap().tally.rows
    };
    let large = "a\n9007199254740992\n9007199254740993\n9007199254740994\n";
    assert_eq!(kept("a = 9007199254740993", large), 1);
    assert_eq!(kept("a > 9007199254740992", large), 2);
    assert_eq!(kept("a >= 0 and a < 1e3", "a\n1\n1e2\n1e400\n-0\nNaN\n0.10000000000000000001\n"), 4);
    assert_eq!(kept("a = 1", "a\n1.0\n1\n01\n1e0\n"), 4);
}

#[test]
fn a_literal_that_is_no_double_is_refused_where_doubles_are() {
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 16_777_216.0]));
    let batch = RecordBatch::try_from_iter([("x", floats)]).unwrap();
    let rows = |filter: &str| {
        let spec = filtered(spec(Format::Parquet, "hash(x)", 2), filter);
        let pieces = Partitioner::new(&spec, &batch.schema())?.split(&batch)?;
        Ok::<_, Error>(pieces.iter().map(|(_, piece)| piece.num_rows()).sum::<usize>())
    };
    assert_eq!(rows("x = 16777217"), Ok(0), "which is no float of 32 bits");
    assert_eq!(rows("x = 16777216 or x = 0.5"), Ok(2));
    for literal in ["9007199254740993", "1e400"] {
        assert!(matches!(rows(&format!("x < {literal}")), Err(Error::Incomparable { .. })), "{literal}");
    }
}

#[test]
fn long_chains_of_conditions_need_no_deep_stack() {
    let chain = (0..100_000).map(|id| format!("a = '{id}'")).collect::<Vec<_>>().join(" or ");
    let filter: Filter = chain.parse().unwrap();
    assert_eq!(filter.columns(), ["a"]);
    let few = |filter: &str| {
        let spec = filtered(spec(Format::Csv, "hash(a)", 2), filter);
        part(&spec, &[b"a\n1\n2\n3\n\n"], BUFFER_BYTES).unwrap().tally.rows
    };
    assert_eq!(few(&vec!["a = '1'"; 2000].join(" or ")), 1);
    assert_eq!(few("a in ('1', '3', '5')"), 2);
    assert_eq!(few("not a in (1)"), 2);
}
