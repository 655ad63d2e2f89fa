//! The disks of this machine: for each its identity, its slot, its power mode, its contents, and whether it can be
//! used.
//!
//! [`survey`] reads what the kernel and udev already know: identity, size, slot, partitions, mounts, holders. The disk
//! itself is asked only for its power mode, which starts no disk. The contents of a disk are read only if the disk
//! reports that it is awake, or has no power mode at all; for others, udev's last findings are shown.
//!
//! All accesses go through a [`Tree`] and an opener of transports, so made-up machines can be surveyed as well.

mod contents;
mod disk;
mod enclosures;
mod habits;
mod identity;
mod refusal;
mod signatures;
#[cfg(test)]
mod signatures_tests;
mod survey;
#[cfg(test)]
mod tests;
mod tree;
mod udev;
mod usage;

pub use contents::Contents;
pub use disk::{Bus, Disk, NotADisk, Protocol, Transports, find, system_transports};
pub use enclosures::Slot;
pub use habits::{APM_LEVEL_STAYS, habits_of};
pub use refusal::{Excused, Refusal};
pub use signatures::{HEAD_BYTES, Role, Signature, TAIL_BYTES, signatures};
pub use survey::{Commanded, identity_of, protocol_of, survey, survey_with};
pub use tree::Tree;
pub use usage::Usage;
