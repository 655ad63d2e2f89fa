//! The physics of drives: the truth of an emulated or simulated drive, as opposed to the engine's estimates.

mod drive;
mod estimate;
mod fuses;
mod links;
mod servers;

pub use drive::{DrivePhysics, Energy, PowerState, Refused};
pub use fuses::{Fuses, Trip};
pub use links::{LinkQueues, RackLinks};
pub use servers::{STREAM_GAP, ServerLoad, Servers};
