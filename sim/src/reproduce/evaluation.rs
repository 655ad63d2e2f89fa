//! A reproduced evaluation of a paper: its runs, its rows and its figures.

use super::judge::{self, Row};
use crate::report::{Figure, Page, Section, Table};

/// A figure of an evaluation, with its file name.
pub struct NamedFigure {
    /// Its file name, one of the evaluation's `FIGURES`.
    pub name: &'static str,
    /// The figure.
    pub figure: Figure,
}

/// An evaluation, reproduced from runs of type `R`.
pub struct Reproduction<R> {
    /// The runs.
    pub runs: R,
    /// The rows, in the order of the text.
    pub rows: Vec<Row>,
    /// The figures.
    pub figures: Vec<NamedFigure>,
}

impl<R> Reproduction<R> {
    /// The rows as a table.
    pub fn table(&self) -> Table {
        judge::table(&self.rows)
    }

    /// A page: a summary of the findings, figures, rows, rules and then `tables`, each below its heading. `command` is
    /// the command that makes the page.
    pub(super) fn page_of<const N: usize>(
        &self,
        title: &str,
        about: &str,
        command: &str,
        tables: [(&str, Table); N],
    ) -> Page {
        let mut sections = vec![
            Section::Words(format!("{}.", judge::findings(&self.rows))),
            Section::Words(about.to_owned()),
            Section::Verbatim(command.to_owned()),
        ];
        sections.extend(self.figures.iter().map(|named| Section::Figure(named.figure.clone())));
        sections.push(Section::Heading("Rows".to_owned()));
        sections.push(Section::Words(format!("{}; {}.", judge::findings(&self.rows), judge::others(&self.rows))));
        sections.push(Section::Table(self.table()));
        sections.push(Section::Heading("How rows are judged".to_owned()));
        sections.extend(judge::rules().map(Section::Words));
        for (heading, table) in tables {
            sections.extend([Section::Heading(heading.to_owned()), Section::Table(table)]);
        }
        Page { title: title.to_owned(), sections }
    }
}
