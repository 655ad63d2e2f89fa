//! The disks of this machine: what each is, where it sits, whether it is awake, what lies on it, and whether it can be
//! used.
//!
//! [`survey`] reads what the kernel and udev know already: identity, size, slot, partitions, mounts, holders. Of the
//! disk itself it asks nothing but its power mode, which starts no disk. What lies on a disk is read only if the disk
//! says that it is awake, or has no power mode at all; of others, what udev saw when it last looked is shown.
//!
//! All of it goes through a [`Tree`] and an opener of transports, so that made-up machines can be surveyed as well.

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
