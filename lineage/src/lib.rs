//! Lineage: the newest copy of a thing, and the owner of a medium.
//!
//! People copy data directories, restore backups, move drives and lose disks. Then there are two copies of the same
//! thing, or one that lacks acknowledged data. This crate has every rule by which Larder distinguishes them:
//!
//! - **runs** ([`RunId`]): each run of a server has a random number. Media, staged files and stacks name the run that
//!   wrote them; a data directory and a catalog remember their own runs;
//! - **generations** ([`Generation`]): of a file that is kept in two slots, the readable one with the higher number
//!   counts;
//! - **older** catalogs, catalogs with **missing** records, and the operator's **consent** ([`Lineage`]);
//! - the log in front of a catalog, in which each copy **marks** what it logs ([`LogLineage`]);
//! - the **owner** of a medium ([`OwnRuns`]).
//!
//! Everything here is a function of what was found: no I/O, no clock, no randomness. The caller reads the media,
//! supplies the evidence, and executes [`Order`]s one after the other.
//!
//! Invariant: a copy that may not be the newest one is never ordered to remove anything that only a newer one knows.

#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod age;
mod log_lineage;
mod owner;
mod run;

pub use age::{Evidence, Lineage, Order, PastRun, RUNS_MAX, RunStart, is_newer_than};
pub use log_lineage::{LogLineage, Mark};
pub use owner::OwnRuns;
pub use run::{Generation, RunId, RunStamp, Sequence};
