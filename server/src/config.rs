//! The settings of an operator: `larder.toml` in the data directory.
//!
//! Every key has a safe default and is documented in `config/default.toml`, which is the file of a new data directory.
//! Invariants:
//! - an unknown key is refused, with line, column and the nearest known key: a misspelt limit is no limit;
//! - every [`Config`] is in range, so no later code checks it again;
//! - ages and waits of clients are wall time here; [`Config::rack_policy`] converts the engine's values to modelled
//!   time.

mod front;
mod health;
mod journal;
mod scrub;
mod text;
mod thermometer;

pub use front::{MetricsConfig, TlsConfig};
pub use health::HealthConfig;
pub use journal::JournalConfig;
pub use scrub::ScrubConfig;
pub use thermometer::{RuleConfig, ThermometerConfig, parse_rule};

use engine::staging::checks::CheckPolicy;
use engine::{
    Deadlines, GroupChoice, IdleTimeout, MigrationPolicy, MoveOrder, OverloadPolicy, RackPolicy, ReadPolicy, Relief,
    SchedulerPolicy, Shares, SpinDownPolicy, Weighing,
};
use model::{ClassId, RackSpec};
use s3::{HostDomain, S3Limits};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use text::OvertakeLimit;

/// The first `larder.toml`: every key with its default, commented out.
const TEMPLATE: &str = include_str!("config/default.toml");

/// The shortest `head_limit`: what S3's own limits on headers need, with a signature in the URL.
const HEAD_BYTES_MIN: u64 = 16 << 10;

/// The number of packs for which writes stay with one group, unless the operator sets it.
const BATCH_PACKS: u64 = 20;

/// The most time that the catalog's disk, the scheduler and everything else between the engine and a drive may take, in
/// wall time, before the drive is done without.
const HOST_SLACK: Duration = Duration::from_secs(30);

/// The rule for giving up drives that are away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RebuildConfig {
    /// The time away, in wall time, after which a drive is given up without an operator's command; `None` is never.
    #[serde(deserialize_with = "text::duration_or_never")]
    pub after: Option<Duration>,
    /// True if a drive that was given up in this way is tried with its group at intervals, and taken back if it is
    /// there.
    pub recognise: bool,
}

impl Default for RebuildConfig {
    /// Long enough for the operator to come and look at a cable.
    fn default() -> Self {
        Self { after: Some(Duration::from_hours(24)), recognise: false }
    }
}

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The address of S3; port 0 is any free one.
    pub listen: SocketAddr,
    /// The domain whose subdomains are buckets, if any.
    #[serde(deserialize_with = "text::some_domain")]
    pub domain: Option<HostDomain>,
    /// The certificate of S3, if it is served over TLS.
    pub tls: TlsConfig,
    /// The settings of `/metrics`.
    pub metrics: MetricsConfig,
    /// The longest wait of a GET for its group, in wall time.
    #[serde(deserialize_with = "text::duration")]
    pub max_wait: Duration,
    /// Concurrent requests.
    #[serde(deserialize_with = "text::at_least_one")]
    pub request_limit: u32,
    /// Concurrent GETs and copies that wait for cold objects, beside `request_limit`.
    #[serde(deserialize_with = "text::at_least_one")]
    pub waiting_gets: u32,
    /// Concurrent connections; each of `waiting_gets` has one.
    #[serde(deserialize_with = "text::at_least_one")]
    pub connection_limit: u32,
    /// Concurrent requests of one user; a share of `request_limit` if not set.
    #[serde(deserialize_with = "text::at_least_one")]
    pub user_request_limit: Option<u32>,
    /// Concurrent unsigned requests of one address; a share of `request_limit` if not set.
    #[serde(deserialize_with = "text::at_least_one")]
    pub peer_request_limit: Option<u32>,
    /// Concurrent unsigned requests; a share of `request_limit` if not set.
    #[serde(deserialize_with = "text::at_least_one")]
    pub unsigned_request_limit: Option<u32>,
    /// Concurrent connections of one address; a share of `connection_limit` if not set.
    #[serde(deserialize_with = "text::at_least_one")]
    pub peer_connection_limit: Option<u32>,
    /// The longest head of a request; at least `HEAD_BYTES_MIN`.
    #[serde(rename = "head_limit", deserialize_with = "text::size")]
    pub head_limit_bytes: u64,
    /// The minimum rate at which a client sends or takes, in bytes a second, on average while the server waits for it.
    #[serde(rename = "min_rate", deserialize_with = "text::size")]
    pub min_bytes_per_s: u64,
    /// The longest wait for a client, in wall time; above 0.
    #[serde(deserialize_with = "text::some_time")]
    pub client_timeout: Duration,
    /// The largest object of one PUT.
    #[serde(rename = "put_limit", deserialize_with = "text::size")]
    pub put_limit_bytes: u64,
    /// Modelled seconds per wall second, 1 to 100,000.
    #[serde(deserialize_with = "text::time_scale")]
    pub time_scale: u32,
    /// The rule by which groups sleep, in modelled time.
    #[serde(deserialize_with = "text::idle_timeout")]
    pub idle_timeout: IdleTimeout,
    /// The treatment of spare stacks by reads.
    pub read_policy: ReadPolicy,
    /// Starts that a drive may use on one day for work that no client waits for; the rack's rating if not set.
    #[serde(deserialize_with = "text::at_least_one")]
    pub starts_per_day: Option<u32>,
    /// The minimum time, in modelled time, that a group stays awake.
    #[serde(deserialize_with = "text::duration")]
    pub start_gap: Duration,
    /// True if a group whose drives have used up their starts of the day keeps spinning while its class is idle.
    pub spin_when_exhausted: bool,
    /// The minimum interval between two checkpoints of a repartition job, in modelled time.
    #[serde(deserialize_with = "text::some_time")]
    pub checkpoint_interval: Duration,
    /// The file for the engine's trace, if one is written.
    pub trace: Option<PathBuf>,
    /// The dead share of a blob at which the rest is evacuated, in thousandths.
    #[serde(rename = "evacuation_fraction", deserialize_with = "text::permille")]
    pub evacuate_permille: u32,
    /// True if this catalog counts although it is older than the rack or the workshop: the newer one is lost.
    pub accept_older_catalog: bool,
    /// The rule for giving up drives that are away.
    pub rebuild: RebuildConfig,
    /// The staging area.
    pub workshop: WorkshopConfig,
    /// The intake of small objects.
    pub intake: IntakeConfig,
    /// The rules by which data moves to the rack.
    pub migrate: MigrateConfig,
    /// The rules about hot and cold data.
    pub thermometer: ThermometerConfig,
    /// The scrub of the rack.
    pub scrub: ScrubConfig,
    /// The health of its drives.
    pub health: HealthConfig,
    /// The copies of the catalog on drives.
    pub journal: JournalConfig,
    /// Each class's queues.
    pub scheduler: SchedulerConfig,
    /// The choice of a group for a write.
    pub placement: PlacementConfig,
    /// Prefixes that are kept in one class.
    #[serde(rename = "pin")]
    pub pins: Vec<Pin>,
    /// The deadlines of drives.
    pub deadlines: DeadlinesConfig,
    /// Emulated racks.
    pub emulation: EmulationConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            domain: None,
            tls: TlsConfig::default(),
            metrics: MetricsConfig::default(),
            max_wait: Duration::from_mins(4),
            request_limit: 256,
            waiting_gets: 4096,
            connection_limit: 5120,
            user_request_limit: None,
            peer_request_limit: None,
            unsigned_request_limit: None,
            peer_connection_limit: None,
            head_limit_bytes: 64 << 10,
            min_bytes_per_s: 1 << 10,
            client_timeout: Duration::from_mins(1),
            put_limit_bytes: 5 << 30,
            time_scale: 1,
            idle_timeout: IdleTimeout::After(Duration::from_mins(5)),
            read_policy: ReadPolicy::All,
            starts_per_day: None,
            start_gap: Duration::ZERO,
            spin_when_exhausted: true,
            checkpoint_interval: Duration::from_hours(1),
            trace: None,
            evacuate_permille: 500,
            accept_older_catalog: false,
            rebuild: RebuildConfig::default(),
            workshop: WorkshopConfig::default(),
            intake: IntakeConfig::default(),
            migrate: MigrateConfig::default(),
            thermometer: ThermometerConfig::default(),
            scrub: ScrubConfig::default(),
            health: HealthConfig::default(),
            journal: JournalConfig::default(),
            scheduler: SchedulerConfig::default(),
            placement: PlacementConfig::default(),
            pins: Vec::new(),
            deadlines: DeadlinesConfig::default(),
            emulation: EmulationConfig::default(),
        }
    }
}

/// The staging area.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkshopConfig {
    /// Room for staged objects; see [`WorkshopConfig::capacity_bytes`].
    #[serde(rename = "capacity", deserialize_with = "text::size")]
    pub capacity: Option<u64>,
    /// Room for recalls; see [`WorkshopConfig::spool_bytes`].
    #[serde(rename = "spool", deserialize_with = "text::size")]
    pub spool: Option<u64>,
    /// True if more is read than was requested, while its group is awake.
    pub read_ahead: bool,
    /// Above this share, in thousandths, cold data moves when no client waits.
    #[serde(rename = "regular", deserialize_with = "text::permille")]
    pub regular_permille: u32,
    /// Above this share, in thousandths, data moves even if clients wait. Not below `regular_permille`.
    #[serde(rename = "critical", deserialize_with = "text::permille")]
    pub critical_permille: u32,
    /// The age at which an open upload in parts is aborted, in wall time; `None` is never.
    #[serde(deserialize_with = "text::duration_or_never")]
    pub abort_uploads_after: Option<Duration>,
    /// The period in which all staged data is read and checked, in wall time; `None` or 0 is never.
    #[serde(deserialize_with = "text::duration_or_never")]
    pub check_every: Option<Duration>,
    /// Memory for the bytes that a pass of checks hands over to packs, until the packs are written.
    #[serde(rename = "check_memory", deserialize_with = "text::size")]
    pub check_memory_bytes: u64,
}

impl Default for WorkshopConfig {
    /// SOHO's thresholds.
    fn default() -> Self {
        let week = Some(Duration::from_hours(7 * 24));
        Self {
            capacity: None,
            spool: None,
            read_ahead: true,
            regular_permille: 300,
            critical_permille: 800,
            abort_uploads_after: week,
            check_every: week,
            check_memory_bytes: 256_000_000,
        }
    }
}

/// The intake of small objects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntakeConfig {
    /// Objects of fewer bytes become durable in the log in front of the catalog, by one sync with their record, and not
    /// in separate files. With 0 every object is a file, and the log has its record alone. 1 MiB by default.
    #[serde(rename = "below", deserialize_with = "text::size")]
    pub below_bytes: u64,
    /// The time without work after which a drive of the pool sleeps if its power is controlled, in modelled time;
    /// `None` is never. 10 min by default.
    #[serde(deserialize_with = "text::positive_duration_or_never")]
    pub idle_timeout: Option<Duration>,
}

impl Default for IntakeConfig {
    fn default() -> Self {
        Self { below_bytes: 1 << 20, idle_timeout: Some(Duration::from_mins(10)) }
    }
}

impl WorkshopConfig {
    /// Room for staged objects: the setting, or a quarter of the room that would be free if nothing were staged. An
    /// emulated rack is on the same file system and takes (k + r) / k of every byte, so more would not fit.
    pub fn capacity_bytes(&self, free_bytes: u64, staged_bytes: u64) -> u64 {
        self.capacity.unwrap_or_else(|| free_bytes.saturating_add(staged_bytes) / 4)
    }

    /// Room for recalls: the setting, or a quarter of `capacity_bytes`.
    pub fn spool_bytes(&self, capacity_bytes: u64) -> u64 {
        self.spool.unwrap_or(capacity_bytes / 4)
    }
}

/// The rules by which data moves to the rack. Ages are wall time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MigrateConfig {
    /// The age at which an object moves in any case; never, if not set.
    #[serde(deserialize_with = "text::duration")]
    pub older_than: Option<Duration>,
    /// The age below which an object does not move until the critical share is reached.
    #[serde(deserialize_with = "text::duration")]
    pub min_age: Duration,
    /// The size below which an object does not move until the critical share is reached.
    #[serde(rename = "min_size", deserialize_with = "text::size")]
    pub min_bytes: u64,
    /// The order of moves if only the excess moves.
    pub order: MoveOrder,
    /// The size of packs; the rack's if not set.
    #[serde(rename = "pack_size", deserialize_with = "text::size")]
    pub pack_bytes: Option<u64>,
    /// The most objects in a pack.
    #[serde(deserialize_with = "text::at_least_one")]
    pub pack_members: u32,
    /// The time after `older_than` for which a pack waits to be filled.
    #[serde(deserialize_with = "text::duration")]
    pub linger: Duration,
    /// Packs under way at once.
    #[serde(deserialize_with = "text::at_least_one")]
    pub window: u32,
    /// The interval between two scans of the workshop; above 0.
    #[serde(deserialize_with = "text::some_time")]
    pub scan_interval: Duration,
    /// Bytes that are copied at a time while clients use the workshop; above 0.
    #[serde(rename = "block_size", deserialize_with = "text::size")]
    pub block_bytes: u64,
    /// True if due objects wait for the next pass of checks.
    pub with_checks: bool,
}

impl Default for MigrateConfig {
    fn default() -> Self {
        Self {
            older_than: None,
            min_age: Duration::ZERO,
            min_bytes: 0,
            order: MoveOrder::default(),
            pack_bytes: None,
            pack_members: 50_000,
            linger: Duration::from_hours(1),
            window: 32,
            scan_interval: Duration::from_secs(10),
            block_bytes: 4_000_000,
            with_checks: false,
        }
    }
}

/// Each class's queues.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// The most operations in a queue.
    #[serde(deserialize_with = "text::at_least_one")]
    pub queue_depth: u32,
    /// u: the weight by which an operation may be overtaken, in the unit of `weighing`; 500 GB if not set.
    overtake_limit: Option<OvertakeLimit>,
    /// The unit of overtaking.
    pub weighing: Weighing,
    /// The wait of a client's operation after which no later one overtakes it, in modelled time; `None` is no bound.
    #[serde(deserialize_with = "text::duration_or_never")]
    pub wait_limit: Option<Duration>,
    /// True if an operation may join the group in service.
    pub join_in_service: bool,
    /// The time for which one queue may keep a class while another waits, in modelled time; above 0.
    #[serde(deserialize_with = "text::some_time")]
    pub quantum: Duration,
    /// The time for which an empty queue keeps a class within its turn, for more of the same; in modelled time.
    #[serde(deserialize_with = "text::duration")]
    pub anticipation: Duration,
    /// Shares of a class's time. Not all 0.
    pub shares: Shares,
    /// The relief of a clients' queue that has filled up.
    pub overload: OverloadRelief,
    /// The share of `queue_depth` from which on a queue counts as overloaded, in thousandths.
    #[serde(rename = "overload_from", deserialize_with = "text::permille")]
    pub overload_from_permille: u32,
    /// The share of it at which the queue is no longer overloaded, in thousandths. Below `overload_from_permille`.
    #[serde(rename = "overload_until", deserialize_with = "text::permille")]
    pub overload_until_permille: u32,
    /// The multiple of u by which an operation may be overtaken in a queue that [`OverloadRelief::Widen`] widens.
    #[serde(deserialize_with = "text::at_least_one")]
    pub overload_times: u32,
}

/// The relief of a clients' queue that has filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverloadRelief {
    /// No relief.
    None,
    /// New requests are refused.
    Shed,
    /// New requests may be overtaken further.
    Widen,
}

impl Default for SchedulerConfig {
    /// Pelican's values; the limit in time, the shares, the quantum and the anticipation are Larder's.
    fn default() -> Self {
        Self {
            queue_depth: 1000,
            overtake_limit: None,
            weighing: Weighing::Bytes,
            wait_limit: Some(Duration::from_mins(2)),
            join_in_service: true,
            quantum: Duration::from_mins(1),
            anticipation: Duration::from_secs(2),
            shares: Shares { client: 60, rebuild: 30, background: 10 },
            overload: OverloadRelief::None,
            overload_from_permille: OverloadPolicy::default().from_permille,
            overload_until_permille: OverloadPolicy::default().until_permille,
            overload_times: 4,
        }
    }
}

impl SchedulerConfig {
    fn overload(&self) -> OverloadPolicy {
        OverloadPolicy {
            relief: match self.overload {
                OverloadRelief::None => Relief::None,
                OverloadRelief::Shed => Relief::Shed,
                OverloadRelief::Widen => Relief::Widen { times: self.overload_times },
            },
            from_permille: self.overload_from_permille,
            until_permille: self.overload_until_permille,
        }
    }

    /// u, in the unit of `weighing`: bytes, operations or milliseconds. Pelican: 500 GB.
    pub fn overtake_limit(&self) -> u64 {
        self.overtake_limit.as_ref().and_then(|limit| limit.in_unit_of(self.weighing)).unwrap_or(500_000_000_000)
    }
}

/// The choice of a group for a write.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlacementConfig {
    /// The rule.
    pub group_choice: GroupRule,
    /// The bytes that [`GroupRule::Batch`] writes to one group; 20 packs if not set.
    #[serde(rename = "batch", deserialize_with = "text::size")]
    pub batch_bytes: Option<u64>,
}

impl Default for PlacementConfig {
    fn default() -> Self {
        Self { group_choice: GroupRule::Batch, batch_bytes: None }
    }
}

/// A way to choose a group for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupRule {
    /// A random group for every write.
    Random,
    /// One random group for a while.
    Batch,
}

/// A prefix whose objects are kept in one class.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// `bucket` or `bucket/prefix`.
    pub prefix: String,
    /// The class.
    pub class: ClassId,
}

impl Pin {
    /// True if it holds for `key` in `bucket`. A pin without `/` holds for the whole bucket of that name.
    pub fn covers(&self, bucket: &str, key: &str) -> bool {
        match self.prefix.split_once('/') {
            None => self.prefix == bucket,
            Some((pinned, prefix)) => pinned == bucket && key.starts_with(prefix),
        }
    }
}

/// The deadlines of drives, in wall time; all above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadlinesConfig {
    /// A read of at most a MiB.
    #[serde(deserialize_with = "text::some_time")]
    pub read: Duration,
    /// A write of at most a MiB; making or removing a file; a request to a drive of a pool.
    #[serde(deserialize_with = "text::some_time")]
    pub write: Duration,
    /// A sync.
    #[serde(deserialize_with = "text::some_time")]
    pub sync: Duration,
}

impl Default for DeadlinesConfig {
    fn default() -> Self {
        let Deadlines { read, write, sync } = Deadlines::default();
        Self { read, write, sync }
    }
}

impl DeadlinesConfig {
    /// The same in modelled time: the time that the host takes counts at any time scale.
    fn modelled(self, time_scale: u32) -> Deadlines {
        let modelled = |wall: Duration| wall.saturating_mul(time_scale);
        Deadlines { read: modelled(self.read), write: modelled(self.write), sync: modelled(self.sync) }
    }
}

/// Emulated racks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmulationConfig {
    /// The seed of their randomness.
    pub seed: u64,
}

impl Default for EmulationConfig {
    fn default() -> Self {
        Self { seed: 1 }
    }
}

impl Config {
    /// Reads the configuration in the file `path`.
    ///
    /// # Errors
    /// When it cannot be read, and those of [`Config::parse`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let what = match error.kind() {
                std::io::ErrorKind::InvalidData => {
                    "is not text; restore it from a backup, or empty it to give every setting its default".to_owned()
                }
                _ => format!("cannot be read: {error}"),
            };
            ConfigError::at(path, "", None, &what)
        })?;
        Self::parse(path, &text)
    }

    /// Reads the configuration `text`; `path` is for messages only.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let span = error.span();
            let value = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
            ConfigError::at(path, text, span.map(|span| span.start), &text::plainly(error.message(), value))
        })?;
        match config.contradiction() {
            None => Ok(config),
            Some((key, what)) => {
                let message = if what.starts_with('`') { what } else { format!("`{key}` {what}") };
                Err(ConfigError::at(path, text, text::find(text, key), &message))
            }
        }
    }

    /// The `larder.toml` of a new data directory: every key explained, and those in `set` (for example
    /// `migrate.older_than`) uncommented with their value in TOML.
    pub fn template(set: &[(&str, String)]) -> String {
        text::filled_in(TEMPLATE, set)
    }

    /// Values that make sense each, but not together: the key to change, and the reason. Checked last.
    fn contradiction(&self) -> Option<(&'static str, String)> {
        if let Some(what) = self.tls.contradiction() {
            return Some(("tls", what.into()));
        }
        let workshop = &self.workshop;
        if workshop.critical_permille < workshop.regular_permille {
            return Some(("workshop.critical", "must not be below `regular`; write a larger share".into()));
        }
        if workshop.capacity == Some(0) {
            return Some(("workshop.capacity", "must be above 0, or nothing could be written".into()));
        }
        if self.migrate.block_bytes == 0 {
            return Some(("migrate.block_size", "must be above 0; remove the line for 4 MB".into()));
        }
        if self.migrate.pack_bytes == Some(0) {
            return Some(("migrate.pack_size", "must be above 0; remove the line for the rack's own".into()));
        }
        if self.migrate.with_checks && self.check_policy().every.is_none() {
            let fix = "needs `workshop.check_every`; write for example \"1 d\" there, or false here";
            return Some(("migrate.with_checks", fix.into()));
        }
        if let Some(what) = self.thermometer.contradiction() {
            return Some(("thermometer.rule", what));
        }
        if self.head_limit_bytes < HEAD_BYTES_MIN {
            return Some(("head_limit", "must be at least \"16 KiB\", or requests of S3 would not fit".into()));
        }
        let scheduler = &self.scheduler;
        if scheduler.shares == (Shares { client: 0, rebuild: 0, background: 0 }) {
            return Some(("scheduler.shares", "must not all be 0; write for example 60 for the client".into()));
        }
        if scheduler.overload_until_permille >= scheduler.overload_from_permille {
            return Some(("scheduler.overload_until", "must be below `overload_from`; write a smaller share".into()));
        }
        let unit = match scheduler.weighing {
            Weighing::Bytes => "a size such as \"500 GB\"",
            Weighing::Operations => "a number such as 500",
            Weighing::Time | Weighing::ServiceTime => "a duration such as \"5 min\"",
        };
        match &scheduler.overtake_limit {
            None if scheduler.weighing != Weighing::Bytes => {
                Some(("scheduler.weighing", format!("needs `overtake_limit` beside it: {unit}")))
            }
            Some(limit) if limit.in_unit_of(scheduler.weighing).is_none() => {
                Some(("scheduler.overtake_limit", format!("does not fit `weighing`; write {unit}")))
            }
            _ => self.pins.iter().find(|pin| pin.prefix.is_empty() || pin.prefix.starts_with('/')).map(|pin| {
                ("pin", format!("`prefix = \"{}\"` names no bucket; write \"bucket\" or \"bucket/prefix\"", pin.prefix))
            }),
        }
    }

    /// The limits of the S3 frontend, with at most `connections` connections, which the system allows.
    pub fn limits(&self, connections: usize) -> S3Limits {
        let usual = S3Limits::of(self.request_limit as usize, connections.min(self.connection_limit as usize));
        let set = |limit: Option<u32>, usual: usize| limit.map_or(usual, |limit| limit as usize);
        S3Limits {
            user_requests: set(self.user_request_limit, usual.user_requests),
            peer_requests: set(self.peer_request_limit, usual.peer_requests),
            unsigned_requests: set(self.unsigned_request_limit, usual.unsigned_requests),
            peer_connections: set(self.peer_connection_limit, usual.peer_connections),
            waiting: self.waiting_gets as usize,
            head_bytes: self.head_limit_bytes as usize,
            min_bytes_per_s: self.min_bytes_per_s,
            put_bytes: self.put_limit_bytes,
            stall: self.client_timeout,
            ..usual
        }
    }

    /// The engine's policy for the rack `spec`: wall times converted to modelled ones, the rack's own values where
    /// nothing is set. It owns all classes.
    pub fn rack_policy(&self, spec: &RackSpec) -> RackPolicy {
        let scheduler = &self.scheduler;
        let migration = self.migration_policy(spec);
        RackPolicy {
            scheduler: SchedulerPolicy {
                queue_depth: scheduler.queue_depth,
                overtake_limit: scheduler.overtake_limit(),
                weighing: scheduler.weighing,
                wait_limit: scheduler.wait_limit,
                join_in_service: scheduler.join_in_service,
                shares: scheduler.shares,
                quantum: scheduler.quantum,
                anticipation: scheduler.anticipation,
                overload: scheduler.overload(),
            },
            group_choice: match self.placement.group_choice {
                GroupRule::Random => GroupChoice::Random,
                GroupRule::Batch => GroupChoice::Batch {
                    bytes: self
                        .placement
                        .batch_bytes
                        .unwrap_or_else(|| migration.pack_bytes.saturating_mul(BATCH_PACKS)),
                },
            },
            idle_timeout: self.idle_timeout,
            read_policy: self.read_policy,
            starts_per_day: self.starts_per_day.unwrap_or_else(|| spec.profile.starts_per_day()),
            spin_down: SpinDownPolicy { min_gap: self.start_gap, keeps_exhausted: self.spin_when_exhausted },
            host_slack: HOST_SLACK.saturating_mul(self.time_scale),
            deadlines: self.deadlines.modelled(self.time_scale),
            migration,
            checks: self.check_policy(),
            evacuate_permille: self.evacuate_permille,
            give_up_after: self.rebuild.after.map(|after| after.saturating_mul(self.time_scale)),
            tries_given_up: self.rebuild.recognise,
            rebuild_read_back: true,
            write_read_back: true,
            checkpoint_interval: self.checkpoint_interval,
            scrub: self.scrub.policy(),
            health: self.health.policy(self.time_scale),
            classes: Vec::new(),
        }
    }

    fn check_policy(&self) -> CheckPolicy {
        let every = self.workshop.check_every.filter(|every| !every.is_zero());
        CheckPolicy {
            every: every.map(|every| every.saturating_mul(self.time_scale)),
            memory_bytes: self.workshop.check_memory_bytes,
        }
    }

    fn migration_policy(&self, spec: &RackSpec) -> MigrationPolicy {
        let migrate = &self.migrate;
        let modelled = |wall: Duration| wall.saturating_mul(self.time_scale);
        MigrationPolicy {
            due_age: migrate.older_than.map(modelled),
            min_age: modelled(migrate.min_age),
            min_bytes: migrate.min_bytes,
            regular_permille: self.workshop.regular_permille,
            critical_permille: self.workshop.critical_permille,
            drained_permille: None,
            order: migrate.order,
            pack_bytes: migrate.pack_bytes.unwrap_or(spec.pack_bytes),
            pack_members: migrate.pack_members,
            linger: modelled(migrate.linger),
            window: migrate.window,
            scan_interval: modelled(migrate.scan_interval),
            thermometer: self.thermometer.thermometer(),
            due_with_checks: migrate.with_checks,
        }
    }
}

/// The reason that a configuration is refused: the file and the place in it, the mistake, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    /// The mistake `message` in the file `path`, at the byte `offset` of its text if that is known.
    fn at(path: &Path, text: &str, offset: Option<usize>, message: &str) -> Self {
        let place = offset.map(|offset| text::place(text, offset));
        let place = place.map_or_else(String::new, |(line, column)| format!("{line}:{column}:"));
        Self(format!("{}:{place} {message}", path.display()))
    }
}

#[cfg(test)]
mod tests;
