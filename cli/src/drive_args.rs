//! The arguments of `larder drive`, as clap reads them.

use crate::data_args::{Data, List};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// List the drives with their slots, groups, states, starts and free room.
    List(List),
    /// Declare a drive permanently failed: it is not used again, and its data is rebuilt on the other drives of its
    /// group. If the drive does not answer, pull or disconnect it first: other drives get its share of the power.
    ///
    /// Needs no running server; without one, the rebuild starts with the next server.
    Fail(Fail),
    /// Empty a working drive: its stacks move to the other drives of its group, in the background, and it gets no new
    /// ones.
    ///
    /// All data stays readable meanwhile, with full redundancy. `larder drive list` shows the drive as retired once it
    /// may be pulled. Needs no running server; without one, the move starts with the next server.
    Retire(ChosenDrive),
    /// List the lost objects: failed drives had more of their stacks than the code can restore.
    ///
    /// Reads the catalog alone, so no drive wakes. `larder verify --deep` also finds losses that only the drives show.
    Lost(List),
    /// Put an empty directory or a disk in the place of a failed drive, and label it as that drive.
    ///
    /// A disk that holds anything is refused, unless --wipe names it. The data of the failed drive is still rebuilt on
    /// the other drives of its group. Needs no running server; needs root where drives are disks.
    Replace(Replace),
    /// List the disks of this machine: the model, power state and contents of each, and its suitability as a drive.
    ///
    /// Starts no disk, and reads none that may be asleep. Needs root to query disks and to read them.
    Discover(Discover),
    /// Query, start, stop or test the power of one disk. Needs root.
    Power(Power),
    /// Measure the rack's disks, and write the results into its description.
    ///
    /// Each disk in turn is started, mounted, read in parts, unmounted and stopped; nothing is written to it. The
    /// server's forecasts and deadlines, and `larder simulate`, use the results. Needs root, and no server may run.
    Measure(Measure),
    /// Find other programs and settings of this machine that wake disks or keep them awake, and show how to stop them.
    ///
    /// Reads configuration and the list of processes; no disk is touched. Exit code 1 if something was found.
    Doctor(Doctor),
}

#[derive(Debug, Args)]
pub struct Discover {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Power {
    /// The disk: its path (/dev/disk/by-id/...), serial number or World Wide Name.
    #[arg(value_name = "DISK")]
    pub disk: String,
    /// The action.
    #[arg(value_enum, default_value_t = PowerAction::State)]
    pub action: PowerAction,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PowerAction {
    /// Show the disk's power state, without waking it.
    State,
    /// Start the disk, and wait until it is at speed.
    Start,
    /// Stop the disk, and wait until its platters stand still. Refused while the disk is in use.
    Stop,
    /// Stop the disk, check that it stays asleep, and start it, to test its power control. Refused while in use.
    Test,
}

#[derive(Debug, Args)]
pub struct Measure {
    #[command(flatten)]
    pub data: Data,
    /// Measure only these drives, by their numbers.
    #[arg(long = "drive", value_name = "N")]
    pub drives: Vec<u32>,
    /// Print the results, and do not change the description.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Examine the machine whose root file system is at this directory.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Fail {
    #[command(flatten)]
    pub chosen: ChosenDrive,
    /// Fail the drive even if blobs may be lost, or cannot be rebuilt, because others of its group have failed already.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct Replace {
    #[command(flatten)]
    pub chosen: ChosenDrive,
    /// If the drive is a disk: the link of the new disk in /dev/disk/by-id [default: the drive's present link].
    #[arg(long, value_name = "LINK")]
    pub path: Option<String>,
    /// The new disk again, by its path, serial number or World Wide Name, if its contents may be erased.
    #[arg(long, value_name = "ID")]
    pub wipe: Option<String>,
    /// The longest time to wait until the drive's group sleeps, if it was in use when the drive failed.
    #[arg(long, value_name = "SPAN", value_parser = model::text::duration, default_value = "10 min")]
    pub wait: Duration,
}

#[derive(Debug, Args)]
pub struct ChosenDrive {
    #[command(flatten)]
    pub data: Data,
    /// The number of the drive, as `larder drive list` shows it.
    #[arg(value_name = "N")]
    pub drive: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
