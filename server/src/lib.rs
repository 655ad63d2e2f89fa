//! Serves: the S3 front, the admin API, and the world in which the engine's decisions come true.
//!
//! The crate `s3` speaks the protocol; [`object_service`] answers it from catalog, workshop and rack; [`recall`] brings
//! cold bytes; [`world`] is the loop around the engine; [`boot`] brings it up; [`app`] puts it all together from a data
//! directory. [`verify`] holds catalog, workshop and drives against each other while nobody serves; [`offline`] takes
//! an operator's word on drives then.

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
