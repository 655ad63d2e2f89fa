//! Checks of every evaluation.

use serde_json::Value;
use sim::reproduce::Reproduction;
use sim::reproduce::judge::{Row, Verdict};

/// The largest deviation of a quick form's number from the full form's, as a share; for percentages, in points.
const NEAR: f64 = 0.1;
const NEAR_POINTS: f64 = 4.0;

fn row<'a, R>(made: &'a Reproduction<R>, id: &str) -> Option<&'a Row> {
    made.rows.iter().find(|row| row.id == id)
}

/// Each of these rows is a contradiction in the text, and this is part of its arithmetic.
pub fn contradict<R>(made: &Reproduction<R>, arithmetic: &[(&str, &str)]) {
    for (id, part) in arithmetic {
        let row = row(made, id).unwrap_or_else(|| panic!("there is no row {id}"));
        assert_eq!(row.verdict, Verdict::Contradiction, "{row:?}");
        assert!(row.note.contains(part), "{row:?}");
    }
}

/// Asserts that the quick form agrees with the full form in the snapshot `name` of `docs/reproduced/`: the same rows,
/// of the same kind; the same number, within a tenth, within 4 points or within three times the full form's confidence
/// interval; the same verdict for rows without a number. `but` are rows that depend on hours or sizes, each with the
/// reason.
pub fn says_what_the_full_form_says<R>(made: &Reproduction<R>, name: &str, but: &[(&str, &str)]) {
    let path = format!("{}/../docs/reproduced/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let full: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let full = full["rows"].as_array().unwrap();
    let ids = |rows: &[&str]| rows.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (ours, kept): (Vec<&str>, Vec<&str>) =
        (made.rows.iter().map(|row| row.id).collect(), full.iter().map(|row| row["id"].as_str().unwrap()).collect());
    assert_eq!(ids(&ours), ids(&kept), "refresh {path} by its command");
    assert!(but.iter().all(|(id, why)| ours.contains(id) && !why.is_empty()));
    let mut apart = Vec::new();
    for (quick, full) in made.rows.iter().zip(full) {
        assert_eq!(quick.paper, full["paper"].as_str().unwrap(), "{}: refresh {path} by its command", quick.id);
        if !but.iter().any(|(id, _)| *id == quick.id)
            && let Some(why) = differs(quick, full)
        {
            apart.push(format!("{}: {why}", quick.id));
        }
    }
    assert!(apart.is_empty(), "the quick form is not what {path} says:\n{}", apart.join("\n"));
}

/// The difference between a row of the quick form and the full form's, if any.
fn differs(quick: &Row, full: &Value) -> Option<String> {
    let (verdict, kept) = (serde_json::to_value(quick.verdict).unwrap(), &full["verdict"]);
    let is_finding = |verdict: &Value| ["met", "missed", "undecided"].iter().any(|finding| verdict == finding);
    let value = full["ours_value"].as_f64().zip(quick.ours_value);
    if verdict != *kept && !(is_finding(&verdict) && is_finding(kept) && (value.is_some() || kept == "undecided")) {
        return Some(format!("{verdict}, not {kept}: {}, not {}", quick.ours, full["ours"]));
    }
    let (full_value, quick_value) = value?;
    let percent = full["unit"] == "percent";
    let near = if percent { NEAR_POINTS } else { full_value.abs() * NEAR };
    let near = near.max(3.0 * full["ours_ci95"].as_f64().unwrap_or(0.0));
    let apart = (quick_value - full_value).abs() > near;
    apart.then(|| format!("{}, not {}", quick.ours, full["ours"]))
}

/// Every row has content, the figures have their names and no external references, and the page has all of them.
pub fn are_complete<R>(made: &Reproduction<R>, figures: &[&str], page: &str) {
    assert!(made.rows.iter().all(|row| !row.paper.is_empty() && !row.ours.is_empty() && !row.place.is_empty()));
    assert_eq!(made.figures.len(), figures.len());
    for (drawn, name) in made.figures.iter().zip(figures) {
        let svg = drawn.figure.svg();
        assert_eq!(drawn.name, *name);
        assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("href"), "{name}");
    }
    assert!(made.rows.iter().all(|row| page.contains(row.place)));
    assert_eq!(page.matches("<svg").count(), made.figures.len());
}
