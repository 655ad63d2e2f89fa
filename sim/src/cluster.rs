//! A replicated cluster some of whose nodes are cold (Park, Jo, Lee and Kang, "Change Your Cluster to Cold").
//!
//! An object store of three replicas, placed by hash as Ceph places them: hosts, daemons (OSDs) with one drive each,
//! or with a hot and a cold one. A cold OSD keeps on its hot drive what it is the primary of and what was written
//! since the last scrub; what its thermometer calls cold of the rest moves to its cold drive while a scrub has it in
//! memory. Which data is cold is decided by `engine::thermometer`, and when a cold drive stops by
//! `engine::spin_down`: nothing of either is written here.
//!
//! - `placement.rs` says which OSDs hold an object's replicas;
//! - `objects.rs` are the objects and who asks for which;
//! - `device.rs` is a drive: an arm, a queue, a state of its platters;
//! - `run.rs` is the loop; `clients.rs`, `recovery.rs` and `scrub.rs` are what goes on in it.
//!
//! Physics: a host's cores and a drive each serve what comes in the order in which it comes. A read needs one access
//! to the drive, and one more to look the object up if it is not among the newest, whose records are in memory. A
//! write is one access, and a commit in the middle of the drive, which it shares with all that waits for one. The
//! network is a delay; it does not fill up.

mod clients;
mod device;
mod objects;
mod outcome;
mod placement;
mod recovery;
mod run;
mod scrub;
#[cfg(test)]
mod tests;

pub use device::DeviceSpec;
pub use objects::{LINE_TENANT, ObjectSpec};
pub use outcome::{ClusterOutcome, Interval, ScrubOutcome};
pub use run::run;

use core::time::Duration;
use engine::spin_down::NodePolicy;
use engine::thermometer::Thermometer;

/// Replicas of an object, each on a host of its own.
pub const REPLICAS: usize = 3;

/// A run.
#[derive(Clone, Debug)]
pub struct ClusterRun {
    /// The hosts, at least three.
    pub hosts: u32,
    /// The drives of each.
    pub drives: u32,
    /// The OSDs of each host that have a hot and a cold drive; all others have one.
    pub cold_osds: u32,
    /// Placement groups.
    pub groups: u32,
    /// The objects.
    pub objects: ObjectSpec,
    /// The clients.
    pub clients: ClientSpec,
    /// The processors of a host.
    pub cores: CoreSpec,
    /// The drives.
    pub device: DeviceSpec,
    /// The way of a message between two machines, in one direction.
    pub message: Duration,
    /// Bytes a second of a network card.
    pub network_bytes_s: u64,
    /// The rules of cold data.
    pub thermometer: Thermometer,
    /// Whether the second replica stays hot as well.
    pub second_stays_hot: bool,
    /// When cold drives stop.
    pub node: NodePolicy,
    /// How often an OSD looks whether its cold drive may.
    pub tick: Duration,
    /// Objects of a group that a scrub reads before it compares the replicas.
    pub scrub_chunk: u32,
    /// What happens beside the clients.
    pub course: Course,
    /// Results are also given for each interval of this length.
    pub interval: Duration,
    /// Determines placement and load.
    pub seed: u64,
}

/// The clients: each thread sends one request after the other.
#[derive(Clone, Copy, Debug)]
pub struct ClientSpec {
    /// Their threads.
    pub threads: u32,
    /// Requests a second that all threads together aim at; `None` is as many as they can.
    pub target_per_s: Option<u32>,
    /// The share of requests that write a new object, in thousandths.
    pub writes_permille: u32,
    /// Where reads go.
    pub reads_from: ReadsFrom,
}

/// Where reads go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsFrom {
    /// To the primary, as Ceph has it.
    Primary,
    /// To any replica. One whose copy is cold sends the client on to the primary.
    Any,
}

/// The processors of a host.
#[derive(Clone, Copy, Debug)]
pub struct CoreSpec {
    /// Their number.
    pub cores: u32,
    /// The time a request of a client takes on each host that has to do with it.
    pub request: Duration,
    /// The time an object takes in recovery on either host, and in a scrub on each.
    pub background: Duration,
}

/// What happens beside the clients.
#[derive(Clone, Copy, Debug)]
pub enum Course {
    /// Nothing, for so long.
    Normal(Duration),
    /// An OSD fails; the run ends when all is recovered and asleep again.
    Failure(FailureSpec),
    /// At the beginning all groups are to be scrubbed deeply; the run ends when they are.
    Scrub,
}

/// The failure of an OSD, and the recovery.
#[derive(Clone, Copy, Debug)]
pub struct FailureSpec {
    /// When it fails.
    pub at: Duration,
    /// How long its groups answer nobody, until those left have agreed.
    pub peering: Duration,
    /// A group sends one object in so long to the OSD that is to have it.
    pub pace: Duration,
    /// The end of the run, if not all is asleep before.
    pub longest: Duration,
}
