//! Reproduced evaluations of papers: rows with the paper's value, ours, deviation and verdict, and the papers' figures.

mod evaluation;
pub mod judge;
pub mod partition;
pub mod pelican;
pub mod serviceable;
pub mod shifting;
mod snapshot;
pub mod soho;
mod sweep;

pub use evaluation::{NamedFigure, Reproduction};
pub use snapshot::Snapshot;
