//! The simulator's world: the second interpreter of [`engine::Action`], over `model`'s physics and without any bytes.
//!
//! - `state.rs`: the world itself, its clock, its requests, and the reports to the engine;
//! - `execute.rs` interprets the actions; `transfer.rs` moves bytes, as flows over the links of the rack
//!   ([`crate::flow`]), and `moving.rs` is a transfer under way;
//! - `faults.rs`: faults that are injected;
//! - `drives.rs` are the drives; `blobs.rs` and `staging.rs` stand for catalog and workshop, in their smallest form;
//!   `checks.rs` reads and checks the workshop.
//!
//! Invariants:
//! - every operation ends exactly once (asserted);
//! - a staged version leaves the workshop only when a blob that holds it was written and read back (asserted);
//! - the engine's requests are judged by `engine::check` where a judge is given (asserted);
//! - a drive that was lost answers nothing until it is back;
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
