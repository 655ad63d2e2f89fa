//! The physics of drives: the truth of an emulated or simulated drive, as opposed to the engine's estimates.

mod drive;
mod estimate;
mod fuses;
mod links;
mod seeks;
mod servers;

pub use drive::{DrivePhysics, Energy, PowerState, Refused};
pub use fuses::{Fuses, Trip};
pub use links::{LinkQueues, RackLinks};
pub use seeks::{READ_SEEKS, READ_SEEKS_MAX, REMOVE_SEEKS, WRITE_SEEKS};
pub use servers::{STREAM_GAP, ServerLoad, Servers};
