//! The model of a rack: units and ids, geometry and resource domains, drive and power physics.
//!
//! Everything here is data and arithmetic. There is no clock, no I/O and no policy: [`Time`] is always an argument, and
//! randomness an [`Rng`] that the caller owns. `engine` decides in terms of these types; `sim` and `disk` emulate
//! drives by them.
//!
//! Invariants:
//! - `no_std` + `alloc`; only the features `toml`, which reads text, and `sabotage`, which no binary has, bring in
//!   `std`.
//! - Quantities are integers: nanoseconds, bytes, milliwatts. The same seed gives the same numbers on every machine.
//! - Every [`RackSpec`] is valid: [`RackSpec::validated`] is the only way to make one.

#![no_std]
extern crate alloc;
#[cfg(any(test, feature = "toml", feature = "sabotage"))]
extern crate std;

mod drive_facts;
mod id;
pub mod physics;
mod rack;
mod random;
pub mod sabotage;
#[cfg(feature = "toml")]
pub mod text;
mod time;

pub use drive_facts::{PowerHabits, PowerUpInStandby, Smart, UnaskedWake};
pub use id::{Attempt, BlobId, ClassId, DomainId, DriveId, GroupId, OpId, PoolDriveId, ResourceId};
pub use rack::{
    Code, Distribution, DomainLimit, DrivePower, DriveProfile, DriveSpec, FailureDomains, HeavyLoad, PoolDriveSpec,
    PowerCommand, RackDraft, RackSpec, RateSpread, Resource, SpecError, Stragglers, Watts, starts_per_day,
};
pub use random::Rng;
pub use time::{Time, transfer_time};
