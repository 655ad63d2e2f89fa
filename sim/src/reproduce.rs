//! Papers' evaluations, run again: rows of paper, ours, deviation and verdict, and the papers' figures.

pub mod judge;
pub mod partition;
pub mod pelican;

use crate::report::{Page, Plate, Section, Table};
use judge::{RULES, Row};

/// A figure of a paper, drawn.
pub struct Drawn {
    /// The name of its file, one of its evaluation's `FIGURES`.
    pub name: &'static str,
    /// What it shows.
    pub plate: Plate,
}

/// An evaluation, reproduced from runs of its own kind.
pub struct Reproduction<R> {
    /// What was simulated.
    pub runs: R,
    /// The rows, in the order of the text.
    pub rows: Vec<Row>,
    /// The figures.
    pub figures: Vec<Drawn>,
}

impl<R> Reproduction<R> {
    /// The row of a claim.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The rows as a table.
    pub fn table(&self) -> Table {
        judge::table(&self.rows)
    }

    /// How many rows end how.
    pub fn summary(&self) -> String {
        judge::summary(&self.rows)
    }

    /// Rows, rules, figures and then `tables`, each below its heading, on one page. `command` is what makes it.
    fn page_of<const N: usize>(&self, title: &str, about: &str, command: &str, tables: [(&str, Table); N]) -> Page {
        let mut sections = vec![
            Section::Words(about.to_owned()),
            Section::Verbatim(command.to_owned()),
            Section::Words(format!("{}.", self.summary())),
            Section::Table(self.table()),
            Section::Heading("How rows are judged".to_owned()),
        ];
        sections.extend(RULES.map(|rule| Section::Words(rule.to_owned())));
        sections.push(Section::Heading("Figures".to_owned()));
        sections.extend(self.figures.iter().map(|drawn| Section::Plate(drawn.plate.clone())));
        for (heading, table) in tables {
            sections.extend([Section::Heading(heading.to_owned()), Section::Table(table)]);
        }
        Page { title: title.to_owned(), sections }
    }
}
