//! Papers' evaluations, run again: rows of paper, ours, deviation and verdict, and the papers' figures.

pub mod judge;
pub mod partition;
pub mod pelican;
