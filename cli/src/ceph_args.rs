//! The command line of `larder ceph`, as clap reads it.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum CephCommand {
    /// Show which OSDs can go cold, with the data to move, the devices needed and the power saved; or why the cluster
    /// is not suitable.
    Plan(CephPlan),
    /// Make an OSD of this host, or a pool, cold: print the steps, or apply them with --apply.
    Convert(CephConvert),
    /// Restore an OSD of this host, or a pool, to its earlier state: print the steps, or apply them with --apply.
    Revert(CephConvert),
    /// Let the drives of this host's cold OSDs sleep, and wake them for deep scrubs, until stopped.
    Agent(CephAgent),
    /// Move objects of RGW into a cold storage class by the rules of larder.toml: print the plan, or apply it with
    /// --apply.
    Migrate(CephMigrate),
}

#[derive(Debug, Args)]
pub struct CephPlanning {
    /// A pool that keeps only its first copy hot; may be repeated. By default every replicated pool with at least 1
    /// % of all data.
    #[arg(long = "pool", value_name = "POOL")]
    pub pools: Vec<String>,
    /// The device class of drives that always spin. By default the fastest that has room.
    #[arg(long, value_name = "CLASS")]
    pub hot_class: Option<String>,
    /// The device class that cold OSDs get.
    #[arg(long, value_name = "CLASS", default_value = "cold")]
    pub cold_class: String,
}

#[derive(Debug, Args)]
pub struct CephPlan {
    /// Read the cluster from JSON dumps in this directory (osd-dump.json, osd-crush-dump.json, osd-df.json,
    /// osd-metadata.json, pg-dump.json) instead of from `ceph`.
    #[arg(long, value_name = "DIR")]
    pub dumps: Option<PathBuf>,
    #[command(flatten)]
    pub planning: CephPlanning,
    /// Power draw of a spinning drive, in watts.
    #[arg(long, value_name = "WATTS", default_value_t = 5.2)]
    pub spinning_watts: f64,
    /// Power draw of a sleeping drive, in watts.
    #[arg(long, value_name = "WATTS", default_value_t = 0.95)]
    pub standby_watts: f64,
    /// Start-stop cycles for which the drives are rated.
    #[arg(long, value_name = "STARTS", default_value_t = 30_000)]
    pub rated_starts: u32,
    /// Years over which the rated starts are spread.
    #[arg(long, value_name = "YEARS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub life_years: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CephConvert {
    /// An OSD of this host, such as `osd.3`, or a pool, such as `pool/attic`.
    #[arg(value_name = "OSD|POOL")]
    pub what: String,
    #[command(flatten)]
    pub planning: CephPlanning,
    /// The device that gets the OSD's metadata (`block.db`): a partition or logical volume of a drive that always
    /// spins, or of flash.
    #[arg(long, value_name = "DEVICE")]
    pub db: Option<String>,
    /// The device of the OSD's data. By default the one that `ceph osd metadata` shows.
    #[arg(long, value_name = "DEVICE")]
    pub data: Option<String>,
    /// Apply the steps instead of printing them.
    #[arg(long)]
    pub apply: bool,
    /// Give up if the cluster is not active+clean within this time. If interrupted, rerun to resume.
    #[arg(long, value_name = "TIME", default_value = "24 h", value_parser = model::text::duration)]
    pub wait: Duration,
    /// The command that stops the OSD's daemon, instead of `systemctl stop`; `{id}` is the OSD's number.
    #[arg(long, value_name = "COMMAND")]
    pub stop_command: Option<String>,
    /// The command that wipes the OSD's devices and creates it again, instead of `ceph-volume lvm`; it gets `{id}`,
    /// `{data}`, `{db}` (left out in a revert) and `{class}`.
    #[arg(long, value_name = "COMMAND")]
    pub create_command: Option<String>,
    /// The command that starts the OSD's daemon, instead of `systemctl start`.
    #[arg(long, value_name = "COMMAND")]
    pub start_command: Option<String>,
    /// The directory in which Larder records the earlier state.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/larder/ceph")]
    pub state: PathBuf,
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct CephAgent {
    /// An OSD of this host; may be repeated. By default all of the cold class.
    #[arg(long = "osd", value_name = "OSD")]
    pub osds: Vec<String>,
    /// The device class of cold OSDs.
    #[arg(long, value_name = "CLASS", default_value = "cold")]
    pub cold_class: String,
    /// This host's name in `ceph osd metadata`. By default its own name.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Time without I/O after which a drive sleeps. Default and minimum: the cluster's down-out interval plus 1 min.
    #[arg(long, value_name = "TIME", value_parser = model::text::duration)]
    pub idle: Option<Duration>,
    /// Minimum time that a drive spins after a start.
    #[arg(long, value_name = "TIME", default_value = "10 min", value_parser = model::text::duration)]
    pub min_gap: Duration,
    /// Starts allowed for a drive per day; a drive that has used them up spins until the next day.
    #[arg(long, value_name = "STARTS", default_value_t = 10)]
    pub starts_per_day: u32,
    /// Interval in which every placement group is deep-scrubbed once.
    #[arg(long, value_name = "TIME", default_value = "7 d", value_parser = model::text::duration)]
    pub deep_scrub_every: Duration,
    /// Interval between two checks of drives and cluster.
    #[arg(long, value_name = "TIME", default_value = "30 s", value_parser = model::text::duration)]
    pub every: Duration,
    /// Experimental: while a drive sleeps, its OSD holds writes back on `block.db`, up to this size. The OSD counts 670
    /// kB for each write in addition to its bytes, and needs RAM of 3.5 times the bytes.
    #[arg(long, value_name = "SIZE", value_parser = model::text::size)]
    pub hold: Option<u64>,
    /// For devices that cannot sleep, such as loop devices: an access while "asleep" is counted as a wake.
    #[arg(long)]
    pub emulated: bool,
    /// Release the scrub windows that a killed agent left set, and exit.
    #[arg(long)]
    pub release: bool,
    /// Show the states of the drives and the number of their wakes, and exit.
    #[arg(long)]
    pub status: bool,
    /// With --status: print JSON.
    #[arg(long, requires = "status")]
    pub json: bool,
    /// The directory in which Larder records starts and wakes.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/larder/ceph")]
    pub state: PathBuf,
}

#[derive(Debug, Args)]
pub struct CephMigrate {
    /// A larder.toml whose `[[thermometer.rule]]`s define which objects are cold.
    #[arg(long, value_name = "FILE")]
    pub rules: PathBuf,
    /// The address of RGW, `http://HOST:PORT`. The keys of the user who owns the buckets are in AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY.
    #[arg(long, value_name = "URL")]
    pub endpoint: String,
    /// A bucket; may be repeated. By default all buckets of the user.
    #[arg(long = "bucket", value_name = "BUCKET")]
    pub buckets: Vec<String>,
    /// A bucket whose objects are neither overwritten nor deleted while they move; may be repeated. In other buckets
    /// nothing moves, because RGW can lose such a change although it answers success.
    #[arg(long = "write-once", value_name = "BUCKET")]
    pub write_once: Vec<String>,
    /// The storage class of cold objects.
    #[arg(long, value_name = "CLASS", default_value = "COLD")]
    pub storage_class: String,
    /// The device class of cold OSDs.
    #[arg(long, value_name = "CLASS", default_value = "cold")]
    pub cold_class: String,
    /// Copies per second, at most.
    #[arg(long, value_name = "COPIES", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,
    /// Apply the plan instead of printing it. If interrupted, rerun to resume.
    #[arg(long)]
    pub apply: bool,
    /// Copy only while every drive of the class's pool spins for deep scrubs anyway, and wait for such times.
    #[arg(long, requires = "apply")]
    pub in_window: bool,
    /// Time that a drive still spins after a deep scrub: at most the agent's idle time.
    #[arg(long, value_name = "TIME", default_value = "10 min", value_parser = model::text::duration)]
    pub window: Duration,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
