//! SOHO (Xu, Wang, Zhou and Xie): a flash workshop in front of a warehouse on a disk, compared with a disk alone and
//! with flash alone.
//!
//! [`engine::staging`] decides which data moves from workshop to warehouse, when, and in which order: it has the
//! server's migrator and pacer. The paper blocks its storage while a move runs, and so does [`Moves::Blocking`];
//! [`Moves::Paced`] asks the pacer before each block and at each write.
//!
//! - `flash.rs` is the SSD of the paper's Table I: packages behind buses, dies, pages, erasable blocks;
//! - `platter.rs` is its disk: seeks, rotation, surfaces;
//! - `load.rs` makes the three applications and the synthetic traces from their descriptions;
//! - `store.rs` puts a load into one of the three systems.
//!
//! Invariants: a client sends a request when an earlier one is answered, never before, so no arrival rate is assumed;
//! each device serves requests in the order of their arrival; the same parameters and seed give the same outcome.

mod flash;
mod load;
mod platter;
mod store;

pub use flash::{FlashCounts, FlashSpec};
pub use load::{Application, Load, Request};
pub use platter::PlatterSpec;
pub use store::{Moves, SohoOutcome, SohoRun, Staged, System, move_all, run};

/// A sector of the disk.
const SECTOR_BYTES: u64 = 512;
/// The internal block of SOHO, which is a page of its flash.
pub const PAGE_BYTES: u64 = 4096;
