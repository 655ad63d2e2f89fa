//! The interfaces to the world: commands with deadlines, files of dumps, the kernel's counters, drives, RGW.

pub mod convert;
pub mod db;
pub mod drives;
pub mod dump_files;
pub mod hold;
pub mod lock;
pub mod migrate;
pub mod rgw;
pub mod serve;
pub mod tools;
pub mod windows;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use tools::{Ceph, CephError, HostCommands};
