//! The options of `larder recover`, as clap reads them.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RecoverOptions {
    /// A copy of the catalog, made by `larder catalog backup`; the newer of this copy and the journal is used.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Recover although there is a catalog; it is kept under another name.
    #[arg(long)]
    pub replace: bool,
    /// Rebuild from the journal in the workshop, or only from the copies of the catalog on drives. Needed if the
    /// journal is older than the rack.
    #[arg(long, value_enum, value_name = "PLACE")]
    pub base: Option<BasePlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BasePlace {
    /// The journal and the log of small objects.
    Journal,
    /// The newest copy on drives.
    Drives,
}
