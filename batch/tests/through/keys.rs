//! Which partition a value has: nulls, NaN, texts and numbers.

use crate::help::{BUFFER_BYTES, filtered, part, spec};
use batch::Format;

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
