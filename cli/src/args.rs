//! The command line.

use crate::ceph_args::CephCommand;
pub use crate::data_args::{Data, List};
use crate::drive_args::DriveCommand;
use crate::recover_args::RecoverOptions;
use clap::{Args, Parser, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// An S3 store for data that is written once and read rarely, on hard drives that mostly sleep.
#[derive(Debug, Parser)]
#[command(name = "larder", version, arg_required_else_help = true, propagate_version = true)]
pub struct Arguments {
    /// The log filter for standard error, such as `debug` or `info,engine=trace` [default: RUST_LOG, or info;
    /// `error` for the demo].
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an emulated rack if there is none, serve it, and print its keys and some commands to try.
    Quickstart(Quickstart),
    /// Show Larder at work on a small emulated rack, within a minute: files are stored, the drives sleep, a read wakes
    /// a group.
    ///
    /// The rack is in a temporary directory, which is removed at the end. Exit code 0 if all steps were done, 1 after
    /// an error, 130 after an interrupt.
    Demo(Demo),
    /// Show the groups and classes of a rack, the number that can be active at once, and their power draw.
    Plan(Plan),
    /// Simulate a rack to answer a question about it: print a table, and write a report with plots.
    Simulate(Simulate),
    /// Repeat the evaluation of a paper: print its results beside ours, with a verdict on each, and draw its figures.
    #[command(subcommand)]
    Reproduce(Reproduce),
    /// Create a data directory.
    Init(Init),
    /// Serve a data directory.
    Serve(Serve),
    /// Show the state of the server: workshop, power, drives, queues.
    Status(Status),
    /// Show where an object is stored, and the expected time to its first byte.
    Explain(Explain),
    /// Manage the users of the server that runs on a data directory.
    #[command(subcommand)]
    User(UserCommand),
    /// Compare catalog, workshop and drives with each other; nothing is changed.
    ///
    /// While a server runs, sleeping drives are skipped unless --wake is given, and --deep is a scrub of all groups,
    /// which repairs damage where it can.
    ///
    /// Exit code 0 if all agree, 1 if something is wrong, 2 if the check could not run.
    Verify(Verify),
    /// Rebuild a lost catalog from its journal in the workshop, a copy, and the drives. No server may run.
    ///
    /// The journal restores the catalog up to the last acknowledged change. Without a journal, its copies on the drives
    /// are used. Objects that only packs record are restored as they were when they were packed: later deletes and
    /// changes are unknown. The command writes to no drive, and keeps an existing catalog under another name.
    Recover(Recover),
    /// Take over drives that another server has marked. No server may run on either data directory.
    ///
    /// A server does not touch a drive with the mark of a run that its data directory does not record. Either another
    /// server uses the drive, or the directory is a copy or a restored backup. After this command the server uses all
    /// drives that were marked before now. Its catalog then counts as older than the rack, so nothing is removed from
    /// the rack until the newest catalog is restored (`larder recover --replace --base drives` rebuilds it from its
    /// copies on drives), or until accept_older_catalog is set.
    TakeOver(TakeOver),
    /// Copy the catalog while the server runs.
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Rewrite the records of objects into partitions by another key, inside the rack; one group stores each partition.
    ///
    /// The server that runs on the data directory does the work. This command waits until the job ends; if the command
    /// is interrupted, the job continues. The input is kept unless --remove-input is given.
    Repartition(Box<Repartition>),
    /// Copy objects from sleeping drives into the workshop's spool, in the order that wakes the fewest drives.
    ///
    /// The cost is printed first: objects, bytes, drive starts, time and energy. The server that runs on the data
    /// directory does the work, and this command waits until the recall ends. Objects that are in the workshop or its
    /// spool already are not read again: rerun an interrupted recall to resume it.
    Recall(Recall),
    /// Run Larder's own logic in virtual time under every kind of fault, and check it against a reference model.
    ///
    /// Drives, catalog, workshop and clock are simulated; no file is read or written. The same seed repeats the same
    /// run. Exit code 1 if a run broke a rule; that run is then shrunk and printed as a history.
    Torture(Torture),
    /// List drives; fail, retire or replace a drive; list lost objects; examine the disks of this machine.
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Show the progress of scrubs and the damage that they found; pause, resume or start them.
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// Let drives of a stock Ceph cluster sleep: plan, convert and revert OSDs and pools, run the agent of a host.
    #[command(subcommand)]
    Ceph(CephCommand),
}

impl Command {
    /// The filter of the log without `--log`, also against `RUST_LOG`: the lines of the demo's server would tear its
    /// drawing.
    pub fn log_filter(&self) -> Option<&'static str> {
        matches!(self, Self::Demo(_)).then_some("error")
    }
}

#[derive(Debug, Subcommand)]
pub enum ScrubCommand {
    /// Show the progress of each group, the damaged stacks, and the lost objects.
    Status(List),
    /// Pause all scrubs until `larder scrub resume`, even if the server restarts.
    Pause(List),
    /// Resume scrubs where they stopped.
    Resume(List),
    /// Start a pass now, from the first blob. It wakes groups, one of each class at a time.
    Start(ScrubStart),
}

#[derive(Debug, Args)]
pub struct ScrubStart {
    #[command(flatten)]
    pub rest: List,
    /// Scrub only this group [default: all].
    #[arg(long, value_name = "N")]
    pub group: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Write a copy of the catalog to a new file, for `larder recover --from`. It contains the users' secret keys, so
    /// only its owner can read it.
    Backup(Backup),
}

#[derive(Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub data: Data,
    /// The output file; must not exist.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Recover {
    #[command(flatten)]
    pub data: Data,
    #[command(flatten)]
    pub how: RecoverOptions,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TakeOver {
    #[command(flatten)]
    pub data: Data,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Repartition {
    #[command(subcommand)]
    pub command: Option<RepartitionCommand>,
    #[command(flatten)]
    pub data: Data,
    /// The input, as s3://bucket/prefix: all objects below the prefix, or the object with that key.
    #[arg(value_name = "FROM", value_parser = prefix, required = true)]
    pub from: Option<Prefix>,
    /// The target, as s3://bucket/prefix; must not hold objects yet.
    #[arg(long, value_name = "TO", value_parser = prefix, required = true)]
    pub to: Option<Prefix>,
    /// The partition key: hash(column, ...), range(column, v1, v2, ...) or value(column).
    #[arg(long, value_name = "KEY", required = true)]
    pub by: Option<String>,
    /// The number of partitions, if the key does not determine it.
    #[arg(long, value_name = "N")]
    pub partitions: Option<u64>,
    /// The memory for buffers, at most.
    #[arg(long, value_name = "SIZE", value_parser = model::text::size, default_value = "1GiB")]
    pub memory: u64,
    /// Keep only these columns, separated by commas.
    #[arg(long, value_name = "NAMES")]
    pub columns: Option<String>,
    /// Exclude keys that match below the prefix, such as 'tmp/*' (repeatable). Spark's own files are always excluded.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Keep only the records that match, such as 'year >= 2020 and kind = "x"'.
    #[arg(long = "where", value_name = "FILTER")]
    pub filter: Option<String>,
    /// The size of the output objects, at most [default: 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = model::text::size)]
    pub object_size: Option<u64>,
    /// The format of the objects: parquet, csv, ndjson, lines, fixed:BYTES [default: from their names].
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Always use baseline, buffpack, offpack, fillpack or tourpack [default: at each step the cheapest strategy].
    #[arg(long, value_name = "NAME")]
    pub strategy: Option<String>,
    /// Bytes of output for each byte of input, both as stored, such as 0.25 [default: measured on a sample].
    #[arg(long, value_name = "RATIO", value_parser = millionths)]
    pub alpha: Option<u64>,
    /// Remove the input objects, once the output is complete, verified and published.
    #[arg(long)]
    pub remove_input: bool,
    /// Only sample the input, which may wake groups, and forecast the cost.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Recall {
    #[command(flatten)]
    pub data: Data,
    /// The objects, as s3://bucket/prefix: all whose keys begin with the prefix.
    #[arg(value_name = "SET", value_parser = prefix)]
    pub set: Prefix,
    /// Recall only the keys in this file, one full key per line. `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Only print the cost.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum RepartitionCommand {
    /// List the jobs.
    List(List),
    /// Show a job: forecast, progress, outcome.
    Show(RepartitionJob),
    /// Follow a job until it ends, like the command that started it.
    Follow(RepartitionJob),
    /// Pause a job, once its running operations have ended.
    Pause(RepartitionJob),
    /// Resume a paused job.
    Resume(RepartitionJob),
    /// Cancel a job and remove its output.
    Cancel(RepartitionJob),
}

#[derive(Debug, Args)]
pub struct RepartitionJob {
    #[command(flatten)]
    pub data: Data,
    /// The number of the job.
    #[arg(value_name = "N")]
    pub job: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Create a user and print its keys; they are shown only once.
    Add(UserName),
    /// List the users: name, access key, buckets.
    List(List),
    /// Remove a user who owns no buckets; its keys are invalid at once.
    Remove(UserName),
    /// Replace the keys of a user and print the new ones, which are shown only once; the old ones are invalid at once.
    Rotate(UserName),
}

#[derive(Debug, Args)]
pub struct UserName {
    #[command(flatten)]
    pub data: Data,
    /// The user's name.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// Pelican: a rack in which a twelfth of the drives may spin (OSDI 2014).
    Pelican(PelicanEvaluation),
    /// BuffPack and OffPack: repartitioning a data set inside such a rack.
    Partition(Evaluation),
    /// Workload Shifting: a log that rotates over disks, and whose full parts become B+trees in the background.
    Shifting(Evaluation),
    /// SOHO: a flash workshop in front of a disk warehouse, for data that is written and read once.
    Soho(Evaluation),
    /// Serviceable cold storage: a replicated cluster whose nodes turn cold one by one.
    Serviceable(Evaluation),
}

#[derive(Debug, Args)]
pub struct PelicanEvaluation {
    #[command(flatten)]
    pub evaluation: Evaluation,
    /// Cross-validate instead, like the paper's figure 4: run the same traces through the simulator and through the
    /// server's own interpreter in virtual time, and print a verdict for each measure.
    #[arg(long)]
    pub cross_validate: bool,
    /// Compare the calibrations instead, in the quick form with three seeds: print the result of each for every row, as
    /// CSV. With NAME, compare only that calibration and the shipped one.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with = "cross_validate")]
    pub calibrations: Option<String>,
}

#[derive(Debug, Args)]
pub struct Evaluation {
    /// Simulate less: fewer values, fewer hours or less data, one seed, and smaller drives in runs
    /// that fill a rack.
    #[arg(long)]
    pub quick: bool,
    /// Write a report into this directory: report.html, rows and points as CSV, rows.json, a plot per figure.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON: the command, the version, the counts and an array of rows, as in docs/reproduced/.
    #[arg(long)]
    pub json: bool,
    /// Run this many points at once, which does not change the results [default: the number of processors].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub struct Quickstart {
    #[command(flatten)]
    pub data: Data,
    /// The port to serve S3 on, stored in the larder.toml of a new data directory; 0 picks a free port, a different one
    /// at every start [default: the value in larder.toml, 9000 in a new data directory].
    #[arg(long)]
    pub port: Option<u16>,
    /// Speed of the emulated rack, as a multiple of real time [default: the value in larder.toml].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub time_scale: Option<u32>,
    /// Time after which a group without work sleeps, in modelled time, such as "30 s" or "never" [default: the value in
    /// larder.toml].
    #[arg(long, value_name = "SPAN", value_parser = idle_timeout)]
    pub idle_timeout: Option<Idle>,
    /// A shipped rack's name, or the path of a description [default: pelican in a new data directory].
    #[arg(long, value_name = "RACK")]
    pub rack: Option<String>,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Print each step as text instead of drawing the rack; the default where standard output is not a terminal.
    #[arg(long)]
    pub plain: bool,
}

#[derive(Debug, Args)]
pub struct Plan {
    /// The path of a description, or a shipped rack's name.
    #[arg(value_name = "RACK")]
    pub rack: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Draw the rack into this file as SVG: drives by class, with group 0 marked.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Draw instead the rack asleep, and beside it the rack while this group is awake.
    #[arg(long, value_name = "GROUP", requires = "svg")]
    pub awake: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Simulate {
    /// The scenario: a TOML file that describes the rack, its load and the measures.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a report into this directory: report.html, plot.svg, points.csv, points.json.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON: an array of points, each with its parameters and measures.
    #[arg(long)]
    pub json: bool,
    /// Replace a value of the scenario, such as workload.rate=4 or `policy.queue_depth=[100,1000]`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run every point with N seeds, numbered from 1 [default: the scenario's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Run this many points at once, which does not change the results [default: the number of processors].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub struct Torture {
    /// The first seed [default: a different one each time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run this many seeds, one after another [default: 1, or as many as the hours allow].
    #[arg(long, value_name = "K")]
    pub seeds: Option<u64>,
    /// Run further seeds until this many hours of wall time have passed.
    #[arg(long, value_name = "H", value_parser = hours)]
    pub hours: Option<f64>,
    /// Run this many seeds at once, which does not change the results [default: the number of processors].
    #[arg(long, value_name = "J")]
    pub jobs: Option<NonZeroUsize>,
    /// The most runs to try in order to shrink a run that broke a rule.
    #[arg(long, value_name = "T", default_value_t = 300)]
    pub tries: u64,
    /// Print the history of a single seed.
    #[arg(long)]
    pub history: bool,
    /// Print the number of times that each event met each state, and the pairs that never met.
    #[arg(long)]
    pub coverage: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Init {
    #[command(flatten)]
    pub data: Data,
    /// A shipped rack's name, or the path of a description.
    #[arg(long, value_name = "RACK", required_unless_present = "discover")]
    pub rack: Option<String>,
    /// Describe a rack made of this machine's disks, show it, and create it once you confirm. Needs root.
    #[arg(long, conflicts_with_all = ["rack", "time_scale"])]
    pub discover: bool,
    /// The number of disks that may spin at once; asked for on a terminal if neither this nor --watts is given.
    #[arg(long, value_name = "N", requires = "discover", conflicts_with = "rack",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub spinning: Option<u32>,
    /// The watts that all disks together may draw, sleeping ones included.
    #[arg(long, value_name = "W", requires = "discover", conflicts_with_all = ["rack", "spinning"])]
    pub watts: Option<u32>,
    /// The code, such as 4+2: data and redundancy fragments of a stripe [default: by the group's size].
    #[arg(long, value_name = "K+R", requires = "discover", conflicts_with = "rack", value_parser = code_wish)]
    pub code: Option<CodeWish>,
    /// Use the disks that were found without asking.
    #[arg(long, requires = "discover", conflicts_with = "rack")]
    pub yes: bool,
    /// Speed of an emulated rack, as a multiple of real time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub time_scale: u32,
    /// A disk of the rack whose contents may be erased, by its path, serial number or World Wide Name (repeatable). Any
    /// other disk that holds data is refused.
    #[arg(long, value_name = "ID")]
    pub wipe: Vec<String>,
}

/// A code as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeWish {
    /// Fragments of data in a stripe, at least 1.
    pub data: u8,
    /// Fragments of redundancy.
    pub parity: u8,
}

fn code_wish(text: &str) -> Result<CodeWish, String> {
    let parts = text.split_once('+').and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?)));
    match parts {
        Some((data @ 1.., parity)) if u32::from(data) + u32::from(parity) <= 255 => Ok(CodeWish { data, parity }),
        _ => Err("write a code as data + redundancy fragments, at most 255 together, such as 4+2".into()),
    }
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub data: Data,
    /// The port to serve S3 on for this run; 0 picks a free one [default: the value in larder.toml].
    #[arg(long)]
    pub port: Option<u16>,
}

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub data: Data,
    /// Repeat every second until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Print JSON; with --watch, one line each second.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    pub data: Data,
    /// The object, as s3://bucket/key; with --dry-run a bucket or a prefix in it.
    #[arg(value_name = "OBJECT", value_parser = prefix)]
    pub place: Prefix,
    /// Show which staged objects of that bucket or prefix the rules of `[thermometer]` in larder.toml call cold:
    /// objects, bytes, and the cost of moving them. Nothing is moved.
    #[arg(long)]
    pub dry_run: bool,
    /// The same for this rule alone, written as in larder.toml: 'larger_than = "10 kB", older_than = "2 min"'.
    #[arg(long, value_name = "RULE")]
    pub rule: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // switches of a command line, each on its own
pub struct Verify {
    #[command(flatten)]
    pub data: Data,
    /// Read all data instead of only the ends of files: check every checksum, and the parity against the data.
    #[arg(long)]
    pub deep: bool,
    /// Print every finding and the name of every lost object as it is found; JSON always has all of them.
    #[arg(long)]
    pub all: bool,
    /// Skip the drives of the rack.
    #[arg(long)]
    pub no_drives: bool,
    /// While a server runs: wake the sleeping groups, one after another. Without this, sleeping drives are skipped.
    /// --deep includes --wake. If no server runs, all drives are checked in any case.
    #[arg(long, conflicts_with = "no_drives")]
    pub wake: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// When a group without work sleeps; `None` is never.
pub type Idle = Option<Duration>;

/// A bucket, and what keys begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub bucket: String,
    pub prefix: String,
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let rest = text.strip_prefix("s3://").unwrap_or_default();
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err("write it as s3://bucket/prefix".to_owned());
    }
    Ok(Prefix { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

/// A number of hours above 0.
fn hours(text: &str) -> Result<f64, String> {
    let wrong = || "write a number of hours above 0, such as 0.5 or 8".to_owned();
    let hours: f64 = text.parse().map_err(|_| wrong())?;
    if hours > 0.0 && hours <= 100_000.0 { Ok(hours) } else { Err(wrong()) }
}

/// A ratio above 0, in millionths.
fn millionths(text: &str) -> Result<u64, String> {
    let wrong = || "write a number between 0.000001 and 1000, such as 0.25".to_owned();
    let ratio: f64 = text.parse().map_err(|_| wrong())?;
    if (0.000_001..=1000.0).contains(&ratio) { Ok((ratio * 1e6).round() as u64) } else { Err(wrong()) }
}

fn idle_timeout(text: &str) -> Result<Idle, String> {
    if text == "never" {
        return Ok(None);
    }
    model::text::duration(text).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("larder").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map(|arguments| arguments.command)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_takes_the_data_directory_where_it_needs_one() {
        let Command::Quickstart(options) = parse("quickstart").unwrap() else { panic!("not quickstart") };
        assert_eq!(options.data.data, PathBuf::from("./larder-data"));
        assert_eq!((options.port, options.time_scale, options.rack), (None, None, None));
        for line in [
            "status",
            "serve",
            "drive list",
            "drive fail 3",
            "drive retire 3",
            "drive lost",
            "drive measure --drive 3",
            "verify --deep",
            "explain s3://b/k",
            "init --rack nas8",
            "user add ann",
        ] {
            parse(&format!("{line} --data /x")).unwrap();
        }
    }

    #[test]
    fn objects_are_named_as_in_s3() {
        let Command::Explain(options) = parse("explain s3://b/a/b?c=%41 --json").unwrap() else {
            panic!("not explain")
        };
        assert_eq!(options.place, Prefix { bucket: "b".into(), prefix: "a/b?c=%41".into() });
        for wrong in ["b/k", "s3:///k", "s3:/b/k", ""] {
            assert!(prefix(wrong).unwrap_err().contains("s3://bucket/prefix"), "{wrong}");
        }
    }

    #[test]
    fn a_repartition_is_asked_for_or_told_what_to_do() {
        let line = "repartition s3://b/in --to s3://b/out --by hash(a) --partitions 12 --memory 8GiB --where year>2020 \
                    --alpha 0.25";
        let Command::Repartition(options) = parse(line).unwrap() else { panic!("not repartition") };
        assert_eq!(options.from, Some(Prefix { bucket: "b".into(), prefix: "in".into() }));
        assert_eq!((options.partitions, options.memory), (Some(12), 8 << 30));
        let Command::Repartition(options) = parse("repartition show 3 --data /x").unwrap() else { panic!() };
        assert!(matches!(options.command, Some(RepartitionCommand::Show(RepartitionJob { job: 3, .. }))));
        for wrong in ["repartition", "repartition s3://b/in", "repartition b --to s3://b/x --by hash(a)"] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_a_usage_error() {
        for wrong in [
            "quickstart --time-scale 0",
            "quickstart --port 65536",
            "serve --prot 1",
            "init",
            "init --rack nas8 --discover",
            "init --rack nas8 --spinning 2",
            "init --discover --code 0+2",
            "init --discover --code 200+56",
            "init --discover --spinning 0",
            "init --discover --spinning 2 --watts 60",
            "",
            "explain x",
        ] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        let Command::Init(options) = parse("init --discover --spinning 4 --code 4+2 --yes").unwrap() else { panic!() };
        assert_eq!((options.spinning, options.code), (Some(4), Some(CodeWish { data: 4, parity: 2 })));
        let Command::Quickstart(options) = parse("quickstart --idle-timeout 30s --port 0").unwrap() else {
            panic!("not quickstart")
        };
        assert_eq!((options.idle_timeout, options.port), (Some(Some(Duration::from_secs(30))), Some(0)));
    }
}
