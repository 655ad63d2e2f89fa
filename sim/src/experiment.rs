//! Experiments: a rack, a deciding system, and a load.
//!
//! Invariants: an experiment is only a description, which a file can hold; [`run`](crate::run()) simulates it.

use crate::chance::{Popularity, Sizes};
use crate::links::Network;
use crate::replay::TraceError;
use engine::layout::LayoutError;
use engine::staging::checks::CheckPolicy;
use engine::{
    GroupChoice, IdleTimeout, MigrationPolicy, RackPolicy, ReadPolicy, SchedulerPolicy, Shares, SpinDownPolicy,
    Weighing,
};
use model::{DriveId, RackSpec, SpecError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The deciding system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The engine, as the server runs it.
    Engine,
    /// FP: the engine with all drives allowed to spin and a FIFO queue for each group ([`crate::baseline`]).
    FullyProvisioned,
    /// The random layout: stacks on random drives, one queue ([`crate::baseline`]).
    RandomLayout,
}

/// The arrivals of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Reads at random times, independent of each other.
    Poisson {
        /// The mean time between two reads: 200 ms means 5 reads per second.
        mean_gap: Duration,
    },
    /// A number of reads, each at a random time of a span; ends when all are answered.
    Burst {
        /// The number of reads.
        reads: u32,
        /// The span.
        over: Duration,
    },
    /// The requests of the trace in this file ([`crate::replay`]), read when they are due; ends when all are answered.
    Replay(PathBuf),
}

impl Arrivals {
    /// Reads at random times, at this mean rate. A rate that is not a number above 0 gives a gap of 0, which
    /// [`run`](crate::run()) rejects.
    pub fn poisson(reads_per_s: f64) -> Self {
        let gap = Duration::try_from_secs_f64(reads_per_s.recip());
        Self::Poisson { mean_gap: gap.unwrap_or(Duration::ZERO) }
    }
}

/// A load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The arrivals of requests.
    pub arrivals: Arrivals,
    /// The sizes of requests (a trace has its own).
    pub sizes: Sizes,
    /// The distribution of requests over the blobs.
    pub popularity: Popularity,
    /// Additional reads at the very beginning of a Poisson load, as after a burst.
    pub backlog: u32,
}

/// A drive that fails permanently at the end of the warm-up, and is rebuilt (Pelican, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The drive.
    pub drive: DriveId,
    /// Blobs with a stack on it.
    pub blobs: u32,
    /// The space that their stacks take on it, in bytes; all stacks have one size.
    pub bytes: u64,
}

impl Fault {
    /// The paper's failed drive, which stored 4.28 TB of 64,329 blobs.
    pub fn pelican(drive: DriveId) -> Self {
        Self { drive, blobs: 64_329, bytes: 4_280_000_000_000 }
    }

    pub(crate) fn stack_bytes(&self) -> u64 {
        self.bytes / u64::from(self.blobs.max(1))
    }
}

/// A simulation to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// The rack.
    pub rack: RackSpec,
    /// The operator's settings. FP and the random layout take queue depth and read policy from them.
    pub policy: RackPolicy,
    /// The deciding system.
    pub system: System,
    /// The servers' network.
    pub network: Network,
    /// The load.
    pub workload: Workload,
    /// The number of blobs that represent the stored ones.
    pub stored_blobs: u32,
    /// The share of the rack that they fill, in thousandths.
    pub stored_permille: u32,
    /// The duration of a Poisson load before the measurement begins.
    pub warm_up: Duration,
    /// The measured time. With a fault, the measurement lasts until the rebuild ends instead.
    pub duration: Duration,
    /// A drive that fails permanently. Not allowed with a random layout.
    pub fault: Option<Fault>,
    /// The seeds, at least one; each gives one run.
    pub seeds: Vec<u64>,
}

impl Experiment {
    /// Pelican's evaluation (section 5): u = 500 GB in bytes, 1,000 requests per queue, groups that stay awake until
    /// another group of their class is needed, 20 Gb/s per server, 1 GB reads of all blobs with equal chance, one per
    /// second; a warm-up of 6 hours, 24 measured hours, three seeds.
    pub fn pelican(rack: RackSpec) -> Self {
        let starts_per_day = rack.profile.starts_per_day();
        Self {
            policy: pelican_policy(starts_per_day),
            rack,
            system: System::Engine,
            network: Network::PELICAN,
            workload: Workload {
                arrivals: Arrivals::poisson(1.0),
                sizes: Sizes::Fixed(1_000_000_000),
                popularity: Popularity::Uniform,
                backlog: 0,
            },
            stored_blobs: 24_000,
            stored_permille: 1_000,
            warm_up: Duration::from_hours(6),
            duration: Duration::from_hours(24),
            fault: None,
            seeds: vec![1, 2, 3],
        }
    }

    /// Pelican's rebuild (section 5, figure 7): the same, but a drive with 4.28 TB of 64,329 blobs fails at the end of
    /// the warm-up; rebuild and clients have equal shares (w = 50 %). The rack is 94 % full, as is the failed drive (of
    /// 4.55 TB), so its group has room for the rebuilt data.
    pub fn pelican_rebuild(rack: RackSpec) -> Self {
        let fault = Some(Fault::pelican(DriveId(0)));
        Self { stored_permille: 940, fault, ..Self::pelican(rack) }
    }
}

/// The settings of Pelican's evaluation.
pub(crate) fn pelican_policy(starts_per_day: u32) -> RackPolicy {
    RackPolicy {
        scheduler: SchedulerPolicy {
            queue_depth: 1_000,
            overtake_limit: 500_000_000_000,
            weighing: Weighing::Bytes,
            wait_limit: None,
            join_in_service: false,
            anticipation: Duration::ZERO,
            overload: engine::OverloadPolicy::default(),
            shares: Shares { client: 1, rebuild: 1, background: 1 },
            quantum: Duration::from_mins(1),
        },
        group_choice: GroupChoice::Random,
        idle_timeout: IdleTimeout::Never,
        read_policy: ReadPolicy::All,
        starts_per_day,
        spin_down: SpinDownPolicy::default(),
        host_slack: Duration::from_secs(30),
        deadlines: engine::Deadlines::default(),
        migration: MigrationPolicy {
            due_age: None,
            min_age: Duration::ZERO,
            min_bytes: 0,
            regular_permille: 300,
            critical_permille: 800,
            drained_permille: None,
            order: engine::MoveOrder::default(),
            pack_bytes: 1_000_000_000,
            pack_members: 10_000,
            linger: Duration::ZERO,
            window: 64,
            scan_interval: Duration::from_mins(1),
            thermometer: engine::thermometer::Thermometer::none(),
            due_with_checks: false,
        },
        checks: CheckPolicy::default(),
        evacuate_permille: 1_000,
        give_up_after: None,
        tries_given_up: false,
        rebuild_read_back: false,
        write_read_back: true,
        checkpoint_interval: Duration::MAX,
        scrub: engine::ScrubPolicy::default(),
        health: engine::HealthPolicy::default(),
        classes: Vec::new(),
    }
}

/// The reason why an experiment cannot run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// The rack has no layout.
    #[error("the rack has no layout: {0}")]
    Layout(#[from] LayoutError),
    /// A variant of the rack, for example the one without its limits, is not valid.
    #[error("a variant of the rack is not valid: {0}")]
    Spec(#[from] SpecError),
    /// No seed was given.
    #[error("an experiment needs at least one seed")]
    NoSeed,
    /// Nothing is stored, or nothing can be.
    #[error("an experiment needs at least one stored blob, and a rack that can take it")]
    NothingStored,
    /// The drive to fail is in no group, or the rack does not rebuild.
    #[error(
        "the drive that fails must be one of a group, in a rack that rebuilds: not a spare, not one of a random layout"
    )]
    NothingToRebuild,
    /// No request ever comes, or all come at the same time.
    #[error("requests must come, and not all at once: the mean gap between two must be above 0")]
    NoArrivals,
    /// The trace cannot be replayed.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
