//! A cluster read from a directory of dumps, made elsewhere and at another time.

use crate::cluster::Cluster;
use crate::dumps::{self, DUMPS, DumpError};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Reasons why a directory of dumps cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DumpFilesError {
    /// A dump is missing.
    #[error("{path} cannot be read: {error}; make it with `ceph {command} --format json`")]
    File {
        /// The file.
        path: PathBuf,
        /// The command that makes it.
        command: String,
        /// The system's error.
        error: io::Error,
    },
    /// A dump is not Ceph's output.
    #[error(transparent)]
    Dump(#[from] DumpError),
}

/// Reads the cluster of the dumps `osd-dump.json` and so on ([`DUMPS`]) in `folder`.
pub fn read(folder: &Path) -> Result<Cluster, DumpFilesError> {
    dumps::cluster(|name| {
        let path = folder.join(format!("{name}.json"));
        fs::read_to_string(&path).map_err(|error| {
            let argv = DUMPS.iter().find(|(dump, _)| *dump == name).map_or(&[] as &[&str], |(_, argv)| argv);
            DumpFilesError::File { path, command: argv.join(" "), error }
        })
    })
}
