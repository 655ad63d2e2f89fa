//! The table of all definitions, `docs/reference/s3-parameters.md`: compared with the definitions, or written from
//! them.

use super::{DEFINITIONS, EVERYWHERE, Effect, Groups, Parameter, Place, find, fits};
use crate::error::ErrorCode;
use crate::operation::{CONFIGURATIONS, DELETABLE, Operation};
use catalog::ChecksumKind;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/s3-parameters.md");
/// The test below writes the page from here on.
const MARK: &str = "<!-- written from s3/src/parameters.rs -->\n";
/// The environment variable that rewrites the page.
const REWRITE: &str = "LARDER_REWRITE_DOCS";
const EVERY_OTHER: &str = "every other";
/// Each stands for several operations of S3.
const STAND_FOR_OTHERS: [Operation; 2] = [Operation::GetConfiguration, Operation::DeleteConfiguration];

#[test]
fn the_page_of_parameters_has_what_the_definitions_say() {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let (head, found) = page.split_once(MARK).expect("the page has its mark");
    let expected = tables();
    if std::env::var_os(REWRITE).is_some() {
        fs::write(PAGE, format!("{head}{MARK}{expected}")).expect("the page can be written");
        return;
    }
    let (found, expected): (Vec<&str>, Vec<&str>) = (found.lines().collect(), expected.lines().collect());
    let missing = expected.iter().filter(|line| !found.contains(line)).map(|line| format!("+ {line}\n"));
    let outdated = found.iter().filter(|line| !expected.contains(line)).map(|line| format!("- {line}\n"));
    let difference: String = outdated.chain(missing).collect();
    assert!(found == expected, "{PAGE} is outdated; set {REWRITE}=1 to write it again:\n{difference}");
}

/// Clients retry 501 for minutes. AWS itself answers it to these conditions of a write with other values.
#[test]
fn no_header_is_not_implemented_but_the_conditions_of_writes() {
    for (operation, groups) in DEFINITIONS {
        let all = groups.iter().copied().flatten().chain(EVERYWHERE).filter(|of| of.place == Place::Header);
        for header in all {
            let refused = matches!(header.effect, Effect::Refused(ErrorCode::NotImplemented, _));
            let values = header.values.is_some_and(|values| values.code == ErrorCode::NotImplemented);
            let is_condition = header.names.iter().all(|name| ["if-match", "if-none-match"].contains(name));
            assert!(!refused && (!values || is_condition), "{operation:?}: {:?}", header.names);
        }
    }
}

#[test]
fn each_operation_has_its_row_and_each_name_is_unique_in_it() {
    for (row, (operation, groups)) in DEFINITIONS.iter().enumerate() {
        assert_eq!(*operation as usize, row, "{operation:?}");
        let own = groups.iter().copied().flatten();
        let mut names: Vec<_> = own.flat_map(|of| of.names.iter().map(|name| (of.place, *name))).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{operation:?}");
    }
}

/// The length of the longest name of `parameter` that fits `name`.
fn fitting(parameter: &Parameter, name: &str) -> Option<usize> {
    parameter.names.iter().filter(|own| fits(own, name)).map(|own| own.len()).max()
}

#[test]
fn the_longest_name_that_fits_counts_and_an_operations_own_before_every_other() {
    for (operation, groups) in DEFINITIONS {
        let own: Vec<_> = groups.iter().copied().flatten().collect();
        for named in own.iter().copied().chain(EVERYWHERE) {
            for name in named.names.iter().map(|name| name.trim_end_matches('*')) {
                let longest = |of: &[&Parameter]| {
                    of.iter().filter(|of| of.place == named.place).filter_map(|of| fitting(of, name)).max()
                };
                let expected = longest(&own).or_else(|| longest(&EVERYWHERE.iter().collect::<Vec<_>>()));
                let found = find(*operation, named.place, name).and_then(|found| fitting(found, name));
                assert_eq!(found, expected, "{operation:?} {name}");
            }
        }
    }
}

#[test]
fn the_checksums_are_those_that_can_be_computed() {
    let kinds = ChecksumKind::ALL.map(|kind| format!("x-amz-checksum-{}", kind.name().to_ascii_lowercase()));
    let mut named = super::CHECKSUMS.to_vec();
    named.sort_unstable_by_key(|name| kinds.iter().position(|kind| kind == name));
    assert_eq!(named, kinds);
}

/// A parameter's name and its effect.
type Row = (String, String);

/// All tables, with their headings.
fn tables() -> String {
    let mut text = String::from("\n");
    for (place, heading) in
        [(Place::Query, "Query parameters"), (Place::Header, "Headers"), (Place::Element, "XML elements")]
    {
        let _ = write!(text, "## {heading}\n\n| name | effect | operations |\n|---|---|---|\n");
        for ((name, effect), operations) in rows(place) {
            let _ = writeln!(text, "| {name} | {effect} | {} |", operations.join(", "));
        }
        text.push('\n');
    }
    text.push_str("## Operations\n\n| name in the tables | operations of S3 |\n|---|---|\n");
    let own = DEFINITIONS.iter().map(|row| row.0).filter(|operation| !STAND_FOR_OTHERS.contains(operation));
    let own: Vec<_> = own.map(|operation| format!("{operation:?}")).collect();
    let _ = writeln!(text, "| their own | {} |", own.join(", "));
    let [read, deleted] = STAND_FOR_OTHERS;
    let names: Vec<_> = CONFIGURATIONS.iter().flat_map(|row| row.1).copied().collect();
    let _ = writeln!(text, "| {read:?} | {} |", names.join(", "));
    let _ = writeln!(text, "| {deleted:?} | {} |", DELETABLE.map(|row| row.1).join(", "));
    text
}

/// The operations of each row of one table.
fn rows(place: Place) -> BTreeMap<Row, Vec<String>> {
    let mut rows = BTreeMap::<Row, Vec<String>>::new();
    let everywhere: (String, Groups) = (EVERY_OTHER.to_owned(), &[EVERYWHERE]);
    let named = DEFINITIONS.iter().map(|(operation, groups)| (format!("{operation:?}"), *groups));
    for (operation, groups) in named.chain([everywhere]) {
        for parameter in groups.iter().copied().flatten().filter(|parameter| parameter.place == place) {
            for name in parameter.names {
                let row = (format!("`{name}`"), effect(parameter));
                rows.entry(row).or_default().push(operation.clone());
            }
        }
    }
    rows
}

fn effect(parameter: &Parameter) -> String {
    let effect = match parameter.effect {
        Effect::Used => "used".to_owned(),
        Effect::Ignored(reason) => format!("no effect: {reason}"),
        Effect::Refused(code, _) => format!("refused: {}", code.as_str()),
        Effect::RefusedForKey(code) => format!("refused for that key: {}", code.as_str()),
    };
    match parameter.values {
        Some(values) => format!("{effect}; with other values than {}: {}", values.text, values.code.as_str()),
        None => effect,
    }
}
