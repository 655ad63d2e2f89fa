//! The physics of drives: the truth of an emulated or simulated drive, as opposed to the engine's estimates.

mod drive;
mod estimate;
mod fuses;
mod servers;

pub use drive::{DrivePhysics, Energy, PowerState, Refused};
pub use fuses::{Fuses, Trip};
pub use servers::{STREAM_GAP, ServerLoad, Servers};
