//! Cross-validation, as Pelican's of its simulator against its prototype (section 5, figure 4): the same trace goes
//! through the simulator and through the server's own interpreter.
//!
//! - a [`Case`] is a rack, its network and a load; [`Case::trace`] makes its reads for a seed;
//! - [`simulate`] answers a trace with the simulator; the other side returns [`Answers`] as well;
//! - `columns.rs` measures both by the same rules; `comparison.rs` compares them, `report.rs` shows the comparison.
//!
//! Both sides start with a first boot, which wakes each group once, as at Pelican's boot; a trace begins after that.
//!
//! Invariants: a trace has the times and places of all reads, so the answering side decides only how long they take;
//! the same case and seed make the same trace.

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
