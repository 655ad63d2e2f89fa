//! What a rack is: units and ids, geometry and resource domains, drive and power physics.
//!
//! Everything here is data and arithmetic. There is no clock, no I/O and no policy: a [`Time`] is always handed in, and
//! randomness is an [`Rng`] that the caller owns. `engine` decides upon these types; `sim` and `disk` obey them.
//!
//! Invariants:
//! - `no_std` + `alloc`; only the `toml` feature, which reads text, brings in `std`.
//! - Quantities are integers: nanoseconds, bytes, milliwatts. The same seed gives the same numbers on every machine.
//! - A [`RackSpec`] that exists is valid: it can only be made through [`RackSpec::validated`].

#![no_std]
extern crate alloc;
#[cfg(any(test, feature = "toml"))]
extern crate std;

mod id;
pub mod physics;
mod rack;
mod random;
#[cfg(feature = "toml")]
pub mod text;
mod time;

pub use id::{Attempt, BlobId, ClassId, DomainId, DriveId, GroupId, OpId, ResourceId};
pub use rack::{
    Code, Distribution, DomainLimit, DriveProfile, DriveSpec, FailureDomains, RackDraft, RackSpec, Resource, SpecError,
    Watts,
};
pub use random::Rng;
pub use time::{Time, transfer_time};
