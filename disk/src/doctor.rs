//! Who else on a machine wakes disks, or keeps them awake: `larder drive doctor`.
//!
//! [`examine`] reads the list of processes, unit files and configuration, and the kernel's attributes, all below the
//! root of a [`Tree`](crate::discover::Tree). It touches no disk, and changes nothing. Each [`Finding`] has its mend.
//! What it does not know of, it cannot find: the counters of a sleeping disk show whether somebody is left.

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
