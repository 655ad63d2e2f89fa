//! The options of `larder recover`, as clap reads them.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RecoverOptions {
    /// A copy of the catalog that `larder catalog backup` has made; the newest of it and the journal counts.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Do it although there is a catalog, which is kept under another name.
    #[arg(long)]
    pub replace: bool,
    /// Begin with the journal in the workshop, or with the copies of the catalog on drives alone. Needed if the journal
    /// is older than the rack.
    #[arg(long, value_enum, value_name = "PLACE")]
    pub base: Option<BasePlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BasePlace {
    /// The journal, and the log of small objects.
    Journal,
    /// The newest copy on drives.
    Drives,
}
