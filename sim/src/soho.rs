//! SOHO (Xu, Wang, Zhou and Xie): a workshop of flash in front of a warehouse on a disk, beside a disk alone and flash
//! alone.
//!
//! What moves from workshop to warehouse, when and in which order, is decided by [`engine::staging`]: the server's
//! migrator, and the pacer that the server is to have. The paper blocks its storage while a move runs; so does
//! [`Moves::Blocking`], where [`Moves::Paced`] asks the pacer before each block and at each write.
//!
//! - `flash.rs` is the SSD of the paper's Table I: packages behind buses, dies, pages, blocks that are erased;
//! - `platter.rs` is its disk: seeks, rotation, surfaces;
//! - `load.rs` makes the three applications and the synthetic traces from their descriptions;
//! - `store.rs` puts a load into one of the three systems.
//!
//! Invariants: a client sends a request when one before is answered, never earlier, so that no rate of arrivals has to
//! be made up; each device serves in the order in which requests come; the same parameters and seed give the same
//! outcome.

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
/// SOHO's internal block, which is a page of its flash.
pub const PAGE_BYTES: u64 = 4096;
