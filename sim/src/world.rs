//! The simulator's world: the second interpreter of [`engine::Action`], over `model`'s physics and without any bytes.
//!
//! - `state.rs`: the world itself, its clock, its requests, and the reports to the engine;
//! - `execute.rs` interprets the actions; `transfer.rs` moves bytes as flows over the links of the rack
//!   ([`crate::flow`]); `moving.rs` is a transfer in progress;
//! - `faults.rs` injects faults;
//! - `drives.rs` has the drives; `blobs.rs` and `staging.rs` replace catalog and workshop in their simplest form;
//!   `checks.rs` reads and checks the workshop.
//!
//! Invariants:
//! - every operation ends exactly once (asserted);
//! - a staged version leaves the workshop only when a blob with it was written and read back (asserted);
//! - if a judge is given, `engine::check` judges the engine's requests (asserted);
//! - a lost drive answers nothing until it is back;
//! - memory grows with drives, open operations and stored blobs, not with time.

mod blobs;
mod checks;
mod drives;
mod execute;
mod faults;
mod moving;
mod staging;
mod state;
mod transfer;

pub use blobs::Blobs;
pub use drives::{Faults, HANG};
pub(crate) use staging::StagedQuery;
pub use staging::{StagedVersion, Staging};
pub use state::{Counted, Ended, Recorder, Setting, World};
