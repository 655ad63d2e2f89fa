//! The doors to the world: commands with deadlines, files of dumps, the kernel's counters, drives.

pub mod dump_files;
pub mod tools;

pub use tools::{Ceph, CephError, HostCommands};
