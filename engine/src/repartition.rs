//! Repartitioning inside the rack: records that are stored on the groups of a class in the order of their arrival move
//! to the groups that another key assigns to them. The sections cited here are those of the paper of BuffPack and
//! OffPack.
//!
//! One group is awake at a time and a switch to another costs seconds, so the decision is the order of visits. A
//! [`Strategy`] takes it from the [`Accounting`]: the bytes still to be read on each group, the bytes buffered for
//! each, and where bytes were offloaded. [`Baseline`], [`BuffPack`] and [`OffPack`] are the paper's, [`FillPack`] and
//! [`TourPack`] are ours.
//!
//! [`Choice::simulate_cost`] runs a strategy against the expected input and output and returns its cost; [`formulas`]
//! has the paper's formulas and better ones. A [`Planner`] follows the cheapest strategy in one class, and changes it
//! when the measurements make another one cheaper. A [`JobPlanner`] has a planner for each class of a job. A job's
//! forecast is a dry run of all of it ([`JobSpec::dry_run`], [`JobPlanner::forecast`]). Everything here is a pure
//! function of its arguments; `crate::jobs` issues the orders and enters their results.
//!
//! Groups are numbered 0 to K - 1 here, in the order of the class. A partition is identified by its destination group.
//! Several partitions may share a group, and only the world knows to which partition a byte belongs.
//!
//! Invariants: every byte of output is buffered, offloaded or delivered, and never counted twice; the buffer never
//! exceeds its limit; a job ends with all output delivered.

mod accounting;
mod apportion;
mod baseline;
mod buffpack;
mod checkpoints;
mod choice;
mod dry_run;
#[cfg(test)]
mod dry_run_tests;
mod fillpack;
pub mod formulas;
mod job_planner;
#[cfg(test)]
mod job_planner_tests;
mod job_spec;
mod offpack;
mod planner;
mod processor;
mod simulation;
mod strategy;
mod terms;
#[cfg(test)]
mod tests;
mod tourpack;

pub use accounting::{Accounting, Run};
pub use apportion::{Apportion, Expected};
pub use baseline::Baseline;
pub use buffpack::BuffPack;
pub(crate) use checkpoints::Checkpoints;
pub use choice::{Choice, Chosen};
pub use fillpack::FillPack;
pub use job_planner::{JobPlanner, Order};
pub use job_spec::{JobSpec, Offloaded, Part, Sizes};
pub use offpack::OffPack;
pub use planner::Planner;
pub use processor::{Processed, Processor};
pub use simulation::{Cost, Day};
pub use strategy::{Step, Strategy};
pub use terms::{Alpha, Expansion, Terms};
pub use tourpack::TourPack;
