//! Nodes of a stock Ceph cluster whose drives sleep (Serviceable cold storage), without a change to Ceph's code.
//!
//! The paper modifies the OSD. Here the same is had from documented Ceph alone: a CRUSH rule that takes the first copy,
//! the primary, from drives that always spin and the others from cold ones; primary affinity 0 and `block.db` on a hot
//! device for cold OSDs. Then reads and metadata never touch a cold drive, and an agent beside the OSDs can let it
//! sleep.
//!
//! - [`dumps`] reads what `ceph ... --format json` prints into a [`Cluster`].
//! - [`plan`] says which OSDs can go cold, what that moves, needs and saves, and why a cluster is not suitable.
//! - [`conversion`] is how one OSD, or one pool, is converted and reverted: what comes next, given what is.
//! - [`agent`] decides when a drive sleeps and when it is woken for its deep scrub. It is the engine's spin-down
//!   manager.
//! - [`lifecycle`] says how the thermometer's rules move objects of RGW into a cold storage class.
//! - [`world`] runs commands with deadlines, reads counters, sends drives to standby, and does what those say.
//!
//! Invariants: everything but `world` is pure, with time as an argument. Nothing is done to a cluster unless every
//! placement group is active+clean, and nothing is put to sleep while the monitors cannot be reached.

// Each variant of an error says when it occurs.
#![allow(clippy::missing_errors_doc)]

pub mod agent;
pub mod cluster;
pub mod conversion;
pub mod crush_rule;
pub mod dumps;
pub mod lifecycle;
pub mod plan;
pub mod record;
pub mod world;

pub use cluster::{Cluster, Osd, OsdId, Pg, Pool, Rule};
