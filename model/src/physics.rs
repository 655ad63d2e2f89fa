//! The physics of drives: the truth of an emulated or simulated drive, as opposed to the engine's estimates.

mod drive;
mod fuses;

pub use drive::{DrivePhysics, Energy, PowerState, Refused, ServerLoad};
pub use fuses::{Fuses, Trip};
