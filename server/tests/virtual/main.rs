//! The server's own world in virtual time: one thread, tokio's paused clock, drives and a catalog in memory.
//!
//! The code that runs here is the server's, from [`server::boot`] to the object store behind the S3 front; only the
//! clock, drives, catalog and workshop are replaced. Hours pass in milliseconds, and a seed decides everything.

#![allow(clippy::unwrap_used)]

mod asleep;
mod background;
mod changes;
mod checks;
mod errors;
mod faults;
mod found;
mod hangs;
mod health;
mod initialising;
mod life;
mod own_log;
mod pacing;
mod packs;
mod parts;
mod pool;
mod quarantine;
mod reading_ahead;
mod rebuild;
mod recalls;
mod repartition;
mod repartition_checkpoints;
mod repartition_ends;
mod repartition_faults;
mod repartition_forecast;
mod repartition_hours;
mod repartition_jobs;
mod replay;
mod retire;
mod returned;
mod scrub;
mod site;
mod steps;
mod thermometer;
mod transitions;
mod waiting;
