//! All rows of an evaluation as a file: printed by `larder reproduce`, kept in `docs/reproduced/`, and what tests hold
//! the quick form against.

use super::judge::{self, Row};
use serde::Serialize;

/// The rows of an evaluation, and what makes them again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot<'a> {
    /// The command.
    pub command: String,
    /// The version of Larder.
    pub version: String,
    /// The findings, counted.
    pub findings: String,
    /// All other rows, counted.
    pub others: String,
    /// The rows, in the order of the text.
    pub rows: &'a [Row],
}

impl<'a> Snapshot<'a> {
    /// The snapshot of these rows.
    pub fn of(rows: &'a [Row], command: &str, version: &str) -> Self {
        let (findings, others) = (judge::findings(rows), judge::others(rows));
        Self { command: command.to_owned(), version: version.to_owned(), findings, others, rows }
    }
}
