//! Repartitioning inside the rack: records that lie over the groups of a class in the order of their arrival are moved
//! into the groups where another key wants them (the paper of BuffPack and OffPack, whose sections are cited here).
//!
//! One group is awake at a time and a switch to another costs seconds, so the order of visits is what there is to
//! decide. A [`Strategy`] decides it from the [`Accounting`]: what is still to be read on each group, what is buffered
//! for each, what was offloaded where. [`Baseline`], [`BuffPack`] and [`OffPack`] are the paper's, [`FillPack`] and
//! [`TourPack`] are ours.
//!
//! [`Choice::simulate_cost`] runs a strategy against what is expected and states its cost; [`formulas`] has the paper's
//! formulas and better ones. A [`Planner`] follows the cheapest strategy in one class, and changes it when what was
//! measured makes another one cheaper. A [`JobPlanner`] has a planner for each class of a job. A job's forecast is
//! a dry run of all of it ([`JobSpec::dry_run`], [`JobPlanner::forecast`]). Everything here is a pure function of
//! its arguments; `crate::jobs` gives the orders out and enters what came of them.
//!
//! Groups are numbered 0 to K - 1 here, in the order of the class. A partition is known by its destination group: any
//! number of partitions may share one, and which partition a byte belongs to is the world's business.
//!
//! Invariants: every byte of output is buffered, offloaded or delivered, and never counted twice; the buffer never
//! holds more than it may; a job ends with all output delivered.

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
