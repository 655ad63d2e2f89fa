//! A world that pretends: drives that spin, fail and trip fuses, time that jumps from event to event, for the very
//! engine that the server runs.
//!
//! A [`World`] interprets the engine's actions. An [`Experiment`] is a rack, a way of deciding and a load; [`run`]
//! answers with a [`Point`]: what was asked and what was measured. [`fill`](mod@fill) writes until the first write is
//! refused.
//!
//! Invariants:
//! - time is an integer and goes from event to event; two events of one moment keep the order in which they were
//!   planned;
//! - one random stream for each kind of thing, so that the same seed gives the same trace;
//! - no policy is written here: what a drive does and when is physics, everything else the engine decides.

mod agenda;
pub mod baseline;
mod batch;
mod chance;
mod experiment;
pub mod fill;
pub mod flow;
mod histogram;
mod links;
mod measure;
mod meter;
pub mod repartition;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod scenario;
mod steady;
mod stored;
mod trace_hash;
mod world;

pub use agenda::Agenda;
pub use batch::run_all;
pub use chance::{Popularity, Sizes};
pub use experiment::{Arrivals, Experiment, ExperimentError, Fault, System, Workload, run, run_once};
pub use histogram::Histogram;
pub use links::{Links, Network};
pub use measure::{ClientSummary, Clients, Confidence, Measured, Parameters, Point, Power, RebuildPoint, Summary};
pub use meter::Meter;
pub use stored::Stored;
pub use world::{Counted, Ended, Faults, HANG, Recorder, Setting, StagedVersion, World};
