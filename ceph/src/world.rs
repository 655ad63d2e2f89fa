//! The doors to the world: commands with deadlines, files of dumps, the kernel's counters, drives, RGW.

pub mod convert;
pub mod drives;
pub mod dump_files;
pub mod migrate;
pub mod rgw;
pub mod serve;
pub mod tools;
pub mod windows;

pub use tools::{Ceph, CephError, HostCommands};
