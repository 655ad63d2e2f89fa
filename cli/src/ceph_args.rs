//! The command line of `larder ceph`, as clap reads it.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum CephCommand {
    /// Say which OSDs can go cold, what that moves, needs and saves, and why a cluster is not suitable.
    Plan(CephPlan),
    /// Turn an OSD of this host, or a pool, cold: print the steps, or do them with --apply.
    Convert(CephConvert),
    /// Bring an OSD of this host, or a pool, back to what it was: print the steps, or do them with --apply.
    Revert(CephConvert),
    /// Let the drives of this host's cold OSDs sleep, and wake them for deep scrubs, until it is ended.
    Agent(CephAgent),
    /// Move objects of RGW into a cold storage class by the rules of larder.toml: say what would be done, or do it with
    /// --apply.
    Migrate(CephMigrate),
}

#[derive(Debug, Args)]
pub struct CephPlanning {
    /// A pool whose first copy alone is hot; may be repeated. By default every replicated pool that holds 1 % of all
    /// data or more.
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
    /// osd-metadata.json, pg-dump.json), and not from `ceph`.
    #[arg(long, value_name = "DIR")]
    pub dumps: Option<PathBuf>,
    #[command(flatten)]
    pub planning: CephPlanning,
    /// Watts of a drive that spins.
    #[arg(long, value_name = "WATTS", default_value_t = 5.2)]
    pub spinning_watts: f64,
    /// Watts of a drive that sleeps.
    #[arg(long, value_name = "WATTS", default_value_t = 0.95)]
    pub standby_watts: f64,
    /// Start-stop cycles for which the drives are rated.
    #[arg(long, value_name = "STARTS", default_value_t = 30_000)]
    pub rated_starts: u32,
    /// Years over which these are spread.
    #[arg(long, value_name = "YEARS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub life_years: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CephConvert {
    /// `osd.3`, on whose host this must run, or `pool/attic`.
    #[arg(value_name = "OSD|POOL")]
    pub what: String,
    #[command(flatten)]
    pub planning: CephPlanning,
    /// The device that gets the OSD's metadata (`block.db`): a partition or logical volume of a drive that always
    /// spins, or of flash.
    #[arg(long, value_name = "DEVICE")]
    pub db: Option<String>,
    /// The device of the OSD's data. By default what `ceph osd metadata` says.
    #[arg(long, value_name = "DEVICE")]
    pub data: Option<String>,
    /// Do it, and not only print it.
    #[arg(long)]
    pub apply: bool,
    /// Give up after waiting so long for the cluster to be active+clean; started again, it goes on.
    #[arg(long, value_name = "TIME", default_value = "24 h", value_parser = model::text::duration)]
    pub wait: Duration,
    /// What stops the OSD's daemon, instead of `systemctl stop`; `{id}` is its number.
    #[arg(long, value_name = "COMMAND")]
    pub stop_command: Option<String>,
    /// What wipes the OSD's devices and makes it anew, instead of `ceph-volume lvm`: with `{id}`, `{data}`, `{db}`
    /// (left out on the way back) and `{class}`.
    #[arg(long, value_name = "COMMAND")]
    pub create_command: Option<String>,
    /// What starts the OSD's daemon, instead of `systemctl start`.
    #[arg(long, value_name = "COMMAND")]
    pub start_command: Option<String>,
    /// Where Larder remembers how it was before.
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
    /// This host, as `ceph osd metadata` calls it. By default its name.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// So long without I/O before a drive sleeps. By default, and at least, the cluster's down-out interval and 1 min.
    #[arg(long, value_name = "TIME", value_parser = model::text::duration)]
    pub idle: Option<Duration>,
    /// So long a drive turns after a start, at least.
    #[arg(long, value_name = "TIME", default_value = "10 min", value_parser = model::text::duration)]
    pub min_gap: Duration,
    /// Starts of a drive on a day; a drive that has used them up turns until the next.
    #[arg(long, value_name = "STARTS", default_value_t = 10)]
    pub starts_per_day: u32,
    /// Every placement group is deep-scrubbed once in so long.
    #[arg(long, value_name = "TIME", default_value = "7 d", value_parser = model::text::duration)]
    pub deep_scrub_every: Duration,
    /// So long between two looks at drives and cluster.
    #[arg(long, value_name = "TIME", default_value = "30 s", value_parser = model::text::duration)]
    pub every: Duration,
    /// Experimental: while a drive sleeps its OSD keeps what is written to it on `block.db`, until this much is held
    /// back. The OSD counts 670 kB for each write beside its bytes, and needs RAM of 3.5 times the bytes.
    #[arg(long, value_name = "SIZE", value_parser = model::text::size)]
    pub hold: Option<u64>,
    /// For devices that cannot sleep, such as loop devices: "asleep" means that a touch is counted as a wake.
    #[arg(long)]
    pub emulated: bool,
    /// Give back the scrub windows that an agent which was killed left behind, and end.
    #[arg(long)]
    pub release: bool,
    /// Show what the drives do and how often they were woken, and end.
    #[arg(long)]
    pub status: bool,
    /// With --status: print JSON.
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Where Larder remembers starts and wakes.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/larder/ceph")]
    pub state: PathBuf,
}

#[derive(Debug, Args)]
pub struct CephMigrate {
    /// A larder.toml whose `[[thermometer.rule]]`s say what is cold.
    #[arg(long, value_name = "FILE")]
    pub rules: PathBuf,
    /// RGW: `http://HOST:PORT`. The keys of the user who owns the buckets are in AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY.
    #[arg(long, value_name = "URL")]
    pub endpoint: String,
    /// A bucket; may be repeated. By default all of the user.
    #[arg(long = "bucket", value_name = "BUCKET")]
    pub buckets: Vec<String>,
    /// A bucket whose objects are neither overwritten nor deleted while they move; may be repeated. Nothing moves in
    /// others, because RGW can lose such a change and answer success.
    #[arg(long = "write-once", value_name = "BUCKET")]
    pub write_once: Vec<String>,
    /// The storage class of what is cold.
    #[arg(long, value_name = "CLASS", default_value = "COLD")]
    pub storage_class: String,
    /// The device class of cold OSDs.
    #[arg(long, value_name = "CLASS", default_value = "cold")]
    pub cold_class: String,
    /// Copies a second, at most.
    #[arg(long, value_name = "COPIES", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,
    /// Do it, and not only print it. Stopped, it goes on when it is asked again.
    #[arg(long)]
    pub apply: bool,
    /// Copy only while every drive of the class's pool turns for deep scrubs anyway, and wait for that.
    #[arg(long, requires = "apply")]
    pub in_window: bool,
    /// So long after a deep scrub a drive still turns: at most the agent's idle time.
    #[arg(long, value_name = "TIME", default_value = "10 min", value_parser = model::text::duration)]
    pub window: Duration,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
