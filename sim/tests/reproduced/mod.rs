//! Checks of every evaluation.

use sim::reproduce::Reproduction;
use sim::reproduce::judge::{Row, Verdict};

fn row<'a, R>(made: &'a Reproduction<R>, id: &str) -> Option<&'a Row> {
    made.rows.iter().find(|row| row.id == id)
}

/// Each of these rows has this verdict.
pub fn all_end<R>(made: &Reproduction<R>, verdict: Verdict, ids: &[&str]) {
    for id in ids {
        let row = row(made, id).unwrap_or_else(|| panic!("there is no row {id}"));
        assert_eq!(row.verdict, verdict, "{row:?}");
    }
}

/// Each of these rows is a contradiction of the text, and this is part of its arithmetic.
pub fn contradict<R>(made: &Reproduction<R>, arithmetic: &[(&str, &str)]) {
    for (id, part) in arithmetic {
        all_end(made, Verdict::Contradiction, &[id]);
        assert!(row(made, id).is_some_and(|row| row.note.contains(part)), "{:?}", row(made, id));
    }
}

/// Every row says something, the figures have their names and nothing from elsewhere, and the page has all of them.
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
