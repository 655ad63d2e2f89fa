//! `larder`: one binary for everything people do with Larder on a command line.
//!
//! Results go to standard output, logs and errors to standard error. An error is one sentence that ends with what to
//! do. The exit code is then 1, or 2 for a wrong command line and for a `verify` that could not run. If the reader of
//! standard output has gone (`| head`), the program ends quietly.

mod args;
mod ceph_agent;
mod ceph_args;
mod ceph_convert;
mod ceph_migrate;
mod ceph_plan;
mod cross;
mod data_args;
mod demo;
mod disks;
mod drive_args;
mod drives;
mod explain;
mod help;
mod human;
mod init_discover;
mod log;
mod measure;
mod ordeal;
mod output;
mod plan;
mod recall;
mod recover;
mod recover_args;
mod repartition;
mod report_dir;
mod reproduce;
mod scrub;
mod serve;
mod simulate;
mod status;
mod take_over;
mod temperature;
mod users;
mod verify;
mod window;

use args::{Arguments, CatalogCommand, Command, Reproduce, UserCommand};
use ceph_args::CephCommand;
use clap::FromArgMatches;
use drive_args::DriveCommand;
use std::process::ExitCode;

/// Batches of records, some MiB each, are freed by other threads than allocated them. With such a load glibc's
/// allocator holds on to as much memory again as is in use; this one returns it, as soon as `.cargo/config.toml` says.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// Bugs that a test plants are in no binary that is run.
const _: () = assert!(!model::sabotage::BUILT_IN, "the feature `sabotage` is for a test of `torture` alone");

fn main() -> ExitCode {
    let arguments = Arguments::from_arg_matches(&help::command().get_matches()).unwrap_or_else(|error| error.exit());
    if let Err(error) = log::to_stderr(arguments.log.as_deref().or(arguments.command.log_filter())) {
        eprintln!("larder: {error}");
        return ExitCode::from(2);
    }
    let logged = arguments.log.is_some();
    let done = run(arguments.command, logged);
    log::end();
    match done {
        Ok(code) => code,
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder: {}", output::sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, logged: bool) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Torture(options) => return ordeal::torture(&options, logged),
        Command::Verify(options) => return Ok(verify::verify(&options)),
        Command::Demo(options) => return demo::demo(&options),
        Command::Quickstart(options) => serve::quickstart(&options),
        Command::Plan(options) => plan::plan(&options),
        Command::Simulate(options) => simulate::simulate(&options),
        Command::Reproduce(Reproduce::Pelican(options)) if options.cross_validate => {
            cross::validate(&options.evaluation)
        }
        Command::Reproduce(Reproduce::Pelican(options)) => match &options.calibrations {
            Some(name) => reproduce::calibrations(&options.evaluation, name),
            None => reproduce::pelican(&options.evaluation),
        },
        Command::Reproduce(Reproduce::Partition(options)) => reproduce::partition(&options),
        Command::Reproduce(Reproduce::Shifting(options)) => reproduce::shifting(&options),
        Command::Reproduce(Reproduce::Soho(options)) => reproduce::soho(&options),
        Command::Reproduce(Reproduce::Serviceable(options)) => reproduce::serviceable(&options),
        Command::Init(options) => serve::init(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Status(options) => status::status(&options),
        Command::Explain(options) => explain::explain(&options),
        Command::User(UserCommand::Add(options)) => users::add(&options),
        Command::User(UserCommand::List(options)) => users::list(&options),
        Command::User(UserCommand::Remove(options)) => users::remove(&options),
        Command::User(UserCommand::Rotate(options)) => users::rotate(&options),
        Command::Repartition(options) => repartition::repartition(&options),
        Command::Recover(options) => recover::recover(&options),
        Command::TakeOver(options) => take_over::take_over(&options),
        Command::Catalog(CatalogCommand::Backup(options)) => recover::backup(&options),
        Command::Recall(options) => recall::recall(&options),
        Command::Scrub(command) => scrub::scrub(&command),
        Command::Drive(DriveCommand::List(options)) => drives::list(&options),
        Command::Drive(DriveCommand::Fail(options)) => drives::fail(&options),
        Command::Drive(DriveCommand::Retire(options)) => drives::retire(&options),
        Command::Drive(DriveCommand::Lost(options)) => drives::lost(&options),
        Command::Drive(DriveCommand::Replace(options)) => drives::replace(&options),
        Command::Drive(DriveCommand::Measure(options)) => measure::run(&options),
        Command::Drive(DriveCommand::Discover(options)) => disks::discover(&options),
        Command::Drive(DriveCommand::Power(options)) => disks::power(&options),
        Command::Drive(DriveCommand::Doctor(options)) => return disks::doctor(&options),
        Command::Ceph(CephCommand::Plan(options)) => return ceph_plan::run(&options),
        Command::Ceph(CephCommand::Convert(options)) => ceph_convert::convert(&options),
        Command::Ceph(CephCommand::Revert(options)) => ceph_convert::revert(&options),
        Command::Ceph(CephCommand::Agent(options)) => ceph_agent::agent(&options),
        Command::Ceph(CephCommand::Migrate(options)) => ceph_migrate::run(&options),
    };
    done.map(|()| ExitCode::SUCCESS)
}
