//! What holds of every evaluation that was run again.

use sim::reproduce::Reproduction;
use sim::reproduce::judge::Verdict;

/// Each of these rows ends so.
pub fn all_end<R>(made: &Reproduction<R>, verdict: Verdict, ids: &[&str]) {
    for id in ids {
        let row = made.row(id).unwrap_or_else(|| panic!("there is no row {id}"));
        assert_eq!(row.verdict, verdict, "{row:?}");
    }
}

/// Each of these rows is a contradiction of the text, and this is part of its arithmetic.
pub fn contradict<R>(made: &Reproduction<R>, arithmetic: &[(&str, &str)]) {
    for (id, part) in arithmetic {
        all_end(made, Verdict::Contradiction, &[id]);
        assert!(made.row(id).is_some_and(|row| row.note.contains(part)), "{:?}", made.row(id));
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
