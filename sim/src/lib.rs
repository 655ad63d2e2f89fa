//! The simulator: drives, power, links and load for the same engine that the server runs, in time that jumps from event
//! to event.
//!
//! A [`World`] executes the engine's actions. An [`Experiment`] is a rack, a deciding system and a load; [`run()`]
//! returns a [`Point`]: the parameters and the measurements. [`fill`](mod@fill) writes until the first write is
//! rejected, [`copying`] reads a tree beside other clients.
//!
//! Invariants:
//! - time is an integer and moves from event to event; events of the same time keep their order of planning;
//! - each kind of thing has its own random stream, so the same seed gives the same trace;
//! - no policy is written here: a drive's behaviour is physics, and the engine decides everything else.

mod agenda;
pub mod baseline;
mod chance;
pub mod cluster;
pub mod copying;
pub mod cross;
mod experiment;
pub mod fill;
mod flow;
mod histogram;
mod links;
mod measure;
mod meter;
mod parallel;
mod places;
mod point;
pub mod repartition;
pub mod replay;
pub mod report;
pub mod reproduce;
mod run;
pub mod scenario;
pub mod shifting;
pub mod soho;
mod steady;
mod stored;
mod world;

pub use chance::{Popularity, Sizes};
pub use experiment::{Arrivals, Experiment, ExperimentError, Fault, System, Workload};
pub use histogram::Histogram;
pub use links::Network;
pub use measure::{Clients, Measured, Summary};
pub use parallel::run_each;
pub use point::{ClientSummary, Confidence, Parameters, Point, Power, RebuildPoint, SeededPoint};
pub use run::{run, run_once, run_seeds};
pub use world::{Blobs, Counted, Ended, Faults, HANG, Recorder, Setting, StagedVersion, Staging, World};
