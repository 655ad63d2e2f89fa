//! All rows of an evaluation as a file: printed by `larder reproduce`, stored in `docs/reproduced/`; tests compare the
//! quick form with it.

use super::judge::{self, Row};
use serde::Serialize;

/// The rows of an evaluation, and the command that makes them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot<'a> {
    /// The command.
    pub command: String,
    /// The version of Larder.
    pub version: String,
    /// The counts of the findings.
    pub findings: String,
    /// The counts of all other rows.
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
