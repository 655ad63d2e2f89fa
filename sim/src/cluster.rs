//! A replicated cluster with some cold nodes (Park, Jo, Lee and Kang, "Change Your Cluster to Cold").
//!
//! An object store with three replicas, placed by hash as Ceph places them: hosts, daemons (OSDs) with one drive each,
//! or with a hot and a cold one. A cold OSD stores on its hot drive the replicas for which it is the primary, and
//! everything written since the last scrub. Of the rest, the data that its thermometer calls cold moves to its cold
//! drive while a scrub has it in memory. `engine::thermometer` decides which data is cold, and `engine::spin_down` when
//! a cold drive stops; neither rule is written here.
//!
//! - `placement.rs` maps objects to the OSDs that hold their replicas;
//! - `objects.rs` has the objects and draws the requested ones;
//! - `device.rs` is a drive: an arm, a queue, a power state;
//! - `run.rs` is the loop; `clients.rs`, `recovery.rs` and `scrub.rs` handle its events.
//!
//! Physics: the cores of a host and each drive serve requests in the order of arrival. A read needs one access to the
//! drive, and one more to look up the object unless it is among the newest, whose records are in memory. A write is one
//! access, plus a commit in the middle of the drive, which it shares with all writes that wait for one. The network is
//! a delay; it does not fill up.

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

/// Replicas of an object, each on its own host.
pub const REPLICAS: usize = 3;

/// A run.
#[derive(Clone, Debug)]
pub struct ClusterRun {
    /// The hosts, at least three.
    pub hosts: u32,
    /// The drives of each host.
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
    /// The one-way delay of a message between two machines.
    pub message: Duration,
    /// The rate of a network card in bytes/s.
    pub network_bytes_s: u64,
    /// The rules of cold data.
    pub thermometer: Thermometer,
    /// True if the second replica stays hot as well.
    pub second_stays_hot: bool,
    /// The rules for stopping cold drives.
    pub node: NodePolicy,
    /// The interval at which an OSD checks whether its cold drive may stop.
    pub tick: Duration,
    /// Objects of a group that a scrub reads before it compares the replicas.
    pub scrub_chunk: u32,
    /// The events besides the clients' requests.
    pub course: Course,
    /// Results are also given for each interval of this length.
    pub interval: Duration,
    /// Determines placement and load.
    pub seed: u64,
}

/// The clients: each thread sends one request after the other.
#[derive(Clone, Copy, Debug)]
pub struct ClientSpec {
    /// The number of threads.
    pub threads: u32,
    /// The target rate of all threads together in requests/s; `None` is as fast as they can.
    pub target_per_s: Option<u32>,
    /// The share of requests that write a new object, in thousandths.
    pub writes_permille: u32,
    /// The replicas that serve reads.
    pub reads_from: ReadsFrom,
}

/// The replicas that serve reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsFrom {
    /// The primary, as in Ceph.
    Primary,
    /// Any replica. One whose copy is cold redirects the client to the primary.
    Any,
}

/// The processors of a host.
#[derive(Clone, Copy, Debug)]
pub struct CoreSpec {
    /// The number of cores per host.
    pub cores: u32,
    /// The time that a client's request takes on each host that takes part in it.
    pub request: Duration,
    /// The time that an object takes in recovery on either host, and in a scrub on each host.
    pub background: Duration,
}

/// The events besides the clients' requests.
#[derive(Clone, Copy, Debug)]
pub enum Course {
    /// None, for this long.
    Normal(Duration),
    /// An OSD fails; the run ends six intervals after all data is recovered and all cold drives are asleep again.
    Failure(FailureSpec),
    /// All groups are scrubbed deeply from the beginning; the run ends when the scrubs are done.
    Scrub,
}

/// The failure of an OSD, and the recovery.
#[derive(Clone, Copy, Debug)]
pub struct FailureSpec {
    /// The time of the failure.
    pub at: Duration,
    /// The time during which its groups do not answer, until the remaining OSDs have agreed.
    pub peering: Duration,
    /// The interval at which a group sends objects to its new OSD.
    pub pace: Duration,
    /// The end of the run, unless recovery ends it earlier.
    pub longest: Duration,
}
