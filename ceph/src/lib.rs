//! Nodes of a stock Ceph cluster whose drives sleep (Serviceable cold storage), without a change to Ceph's code.
//!
//! The paper modifies the OSD. Here documented features of Ceph have the same effect: a CRUSH rule that takes the first
//! copy, the primary, from drives that always spin and the others from cold ones; primary affinity 0 and `block.db` on
//! a hot device for cold OSDs. Then reads and metadata never touch a cold drive, and an agent beside the OSDs can let
//! it sleep.
//!
//! - [`dumps`] reads the output of `ceph ... --format json` into a [`Cluster`].
//! - [`plan`] reports which OSDs can go cold, what that moves, needs and saves, and why a cluster is not suitable.
//! - [`conversion`] converts and reverts one OSD, or one pool: it derives the next step from the current state.
//! - [`agent`] decides when a drive sleeps and when it is woken for its deep scrub. It is the engine's spin-down
//!   manager.
//! - [`lifecycle`] determines how the thermometer's rules move objects of RGW into a cold storage class.
//! - [`world`] runs commands with deadlines, reads counters, sends drives to standby, and carries out these decisions.
//!
//! Invariants: everything except `world` is pure, with time as an argument. A cluster is converted or migrated only
//! while every placement group is active+clean, except for steps that bring an OSD back unchanged; and no drive is put
//! to sleep while the monitors cannot be reached.

// The documentation of each error variant states when it occurs.
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
