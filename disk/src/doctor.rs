//! The search for programs that wake disks, or keep them awake: `larder drive doctor`.
//!
//! [`examine`] reads the list of processes, unit files and configuration, and the kernel's attributes, all below the
//! root of a [`Tree`](crate::discover::Tree). It touches no disk, and changes nothing. Each [`Finding`] has a remedy.
//! It cannot find programs that it does not know: the counters of a sleeping disk show whether any are left.

mod configuration;
mod drives;
mod examine;
mod finding;
mod kernel;
mod programs;
mod smartd;
#[cfg(test)]
mod tests;

pub use examine::examine;
pub use finding::Finding;
