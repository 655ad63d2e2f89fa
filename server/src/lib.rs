//! The server: the S3 frontend, the admin API, and the world in which the engine's decisions are executed.
//!
//! The crate `s3` handles the protocol; [`object_service`] serves it from catalog, workshop and rack; [`recall`] brings
//! cold bytes; [`world`] is the loop around the engine; [`boot`] starts it; [`app`] assembles all of it from a data
//! directory. [`verify`] compares catalog, workshop and drives with each other; [`offline`] executes an operator's
//! commands about drives while no server runs.

pub mod admin;
pub mod app;
pub mod backup;
pub mod boot;
pub mod catalog_age;
mod certificate;
pub mod condition;
pub mod config;
pub mod context;
pub mod data_dir;
pub mod descriptors;
mod drive_copies;
pub mod error;
pub mod exchange;
mod habits;
pub mod holds;
mod host_room;
mod index;
pub mod intake_log;
mod intake_places;
mod journal_keeper;
pub mod losses;
pub mod metrics;
pub mod notices;
pub mod object_service;
pub mod offline;
pub mod offline_rack;
pub mod open_parts;
pub mod pacing;
mod pack_index;
mod pool_drives;
pub mod processor;
mod read_ahead;
pub mod reads;
pub mod recall;
pub mod recover;
pub mod refusals;
pub mod repartition;
pub mod replace;
pub mod report;
mod scrub;
mod service_manager;
pub mod set_recall;
mod spool_read;
pub mod status_service;
mod store_error;
mod sweep;
mod temperature;
pub mod trace_file;
mod upgrade;
mod uploads;
pub mod users;
pub mod verify;
pub mod virtual_time;
mod whole;
pub mod world;

pub use disk::clock;

pub use s3::REGION;
