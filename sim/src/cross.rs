//! Cross-validation, as Pelican's of its simulator against its prototype (section 5, figure 4): the same trace through
//! the simulator and through the server's own interpreter.
//!
//! - a [`Case`] is a rack, its network and a load; [`Case::trace`] makes its reads for a seed;
//! - [`simulate`] answers a trace by the simulator; who else answers it, gives an [`Answers`] as well;
//! - `columns.rs` measures both by the same rules; `comparison.rs` holds them against each other, `report.rs` shows it.
//!
//! A trace begins with a read of one blob of each group, as at Pelican's boot, and its load when these are answered.
//!
//! Invariants: a trace has the moments and places of all reads, so that nothing is left to whoever answers it but how
//! long that takes; the same case and seed make the same trace.

mod cases;
mod columns;
mod comparison;
mod report;
mod simulated;
mod trace;

pub use cases::{PELICAN_FIGURES, cases, recalls, small};
pub use columns::Measure;
pub use comparison::{Compared, Comparison, Estimate};
pub use report::{RULE, page, table};
pub use simulated::simulate;
pub use trace::{Answers, Case, Feed, Load, ReadMoments, Trace, TracedRead};
