//! Scenarios: questions about a rack, each in a file that anyone can run again.
//!
//! A scenario is TOML: parameters, each possibly a list of values or a range, and a plot. Its cases are the product of
//! all values, in the order of the keys; the last key changes fastest. `docs/papers/simulator.md` describes the grammar
//! for users.
//!
//! - `key.rs` and `value.rs` are the keys and their values, `read.rs` reads them from TOML;
//! - `question.rs` is the scenario, `case.rs` one combination of its values, `sources.rs` its racks and traces,
//!   `changes.rs` its changes to a rack;
//! - `build/` turns a case into a trial, `trial.rs` runs it;
//! - `measure.rs`, `plot.rs` and `report.rs` show the answers.
//!
//! Invariants:
//! - every error message names its place, states the error, and then the correct form;
//! - nothing here reads a file: racks and traces come from [`Sources`];
//! - the same scenario has the same cases, and each has the values of all keys that apply to it, including defaults.

mod build;
mod case;
mod changes;
mod key;
mod measure;
mod plot;
mod question;
mod read;
mod report;
mod sources;
#[cfg(test)]
mod tests;
mod trial;
mod value;

pub use case::Case;
pub use question::Scenario;
pub use read::ScenarioError;
pub use report::{Asked, csv, page, short_table, unsettled, wear};
pub use sources::Sources;
pub use trial::{Answer, Found, Trial, TrialError};
