//! The arguments that many commands share: the data directory, and JSON.

use clap::Args;
use std::path::PathBuf;

/// The choice of a data directory.
#[derive(Clone, Debug, Args)]
pub struct Data {
    /// The data directory.
    #[arg(long, value_name = "DIR", default_value = "./larder-data")]
    pub data: PathBuf,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub data: Data,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
