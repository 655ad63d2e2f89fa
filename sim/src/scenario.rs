//! Scenarios: a question about a rack, as a file that anyone can run again.
//!
//! A scenario is TOML: parameters, any of which may be a list of values or a range, and a plot. Its cases are the
//! product of all values, in the order of the keys, the last one changing fastest. `docs/simulator.md` is the grammar
//! for people.
//!
//! - `key.rs` and `value.rs` are the keys and what may be written for them, `read.rs` reads them from TOML;
//! - `question.rs` is the scenario, `case.rs` one combination of its values, `sources.rs` its racks and traces,
//!   `changes.rs` what it changes of a rack;
//! - `build/` makes a trial of a case, `trial.rs` runs it;
//! - `measure.rs`, `plot.rs` and `report.rs` show the answers.
//!
//! Invariants:
//! - every refusal names its place, says what is wrong, and then what to write instead;
//! - nothing here reads a file: racks and traces come from [`Sources`];
//! - the same scenario has the same cases, and each has all values that hold in it, defaults included.

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
