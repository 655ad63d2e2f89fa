//! Errors of a data directory, each with its mend.

use crate::config::ConfigError;
use catalog::StoreError;
use disk::DriveError;
use model::text::TextError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn read_part(path: &Path) -> Result<String, DataDirError> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => DataDirError::damaged(path, "is missing"),
        io::ErrorKind::InvalidData => DataDirError::damaged(path, "is no text"),
        _ => failed(&format!("reading {}", path.display()), error),
    })
}

pub(super) fn failed(doing: &str, source: io::Error) -> DataDirError {
    DataDirError::Io { doing: doing.to_owned(), source }
}

/// Why there is no data directory to work with, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Nothing is there.
    #[error(
        "there is no Larder data directory at {path}; name the right one with --data, or \
         make one with `larder init --data {path} --rack pelican`",
        path = .0.display()
    )]
    Missing(PathBuf),
    /// There is a file.
    #[error("{} is not a directory; choose another path", .0.display())]
    NotADirectory(PathBuf),
    /// A drive's path names something that no directory can be.
    #[error(
        "the rack gives a drive the path {}, which is no directory; devices are not driven yet, so name a directory on \
         a mounted file system, or leave the path out",
        .0.display()
    )]
    Device(PathBuf),
    /// There is one already.
    #[error(
        "{path} is a Larder data directory already; start it with `larder serve --data {path}`",
        path = .0.display()
    )]
    Exists(PathBuf),
    /// `init` was killed.
    #[error(
        "{path} is a data directory that was never finished; complete it with `larder init --data {path} --rack ...`",
        path = .0.display()
    )]
    Unfinished(PathBuf),
    /// Somebody else's directory.
    #[error(
        "{} is not empty and no Larder data directory (it holds {found}); choose a new or empty directory",
        .path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Some of what it holds.
        found: String,
    },
    /// Another process works in it.
    #[error("{} is in use by process {pid}; stop that server first, or choose another directory", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The other process, as far as it can be told.
        pid: String,
    },
    /// A part of it is missing or not as it was written.
    #[error("{} {what}; restore it from a backup", .path.display())]
    Damaged {
        /// The part.
        path: PathBuf,
        /// The flaw.
        what: String,
    },
    /// Another version of Larder made it.
    #[error(
        "{} has format version {found}, and this Larder knows version {known}; use the Larder that made it",
        .path.display()
    )]
    OtherVersion {
        /// The identity.
        path: PathBuf,
        /// Its version.
        found: String,
        /// Ours.
        known: u32,
    },
    /// The description is not the one the drives were laid out by.
    #[error(
        "{} describes another rack: {what} is {now}, and the drives were laid out for {then}; put the description back \
         as it was, or make a new data directory",
        .path.display()
    )]
    OtherRack {
        /// The description.
        path: PathBuf,
        /// The part that differs.
        what: &'static str,
        /// Its present text.
        now: String,
        /// Its former text.
        then: String,
    },
    /// There is no such description.
    #[error("there is no rack `{rack}`; write the path of a description, or one of {names}")]
    NoSuchRack {
        /// The name that was asked for.
        rack: String,
        /// The names of those that are shipped.
        names: String,
    },
    /// The description makes no sense.
    #[error(transparent)]
    Description(#[from] TextError),
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The catalog cannot be made.
    #[error("catalog: {0}")]
    Catalog(#[from] StoreError),
    /// The drives cannot be labelled.
    #[error("the drives cannot be labelled: {0}; use drives that belong to no other rack, and that can be written")]
    Drives(DriveError),
    /// The file system refused.
    #[error("{doing}: {source}")]
    Io {
        /// The step that failed.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl DataDirError {
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn foreign(path: &Path, names: &[String]) -> Self {
        let mut found = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        if names.len() > 3 {
            found.push_str(", ...");
        }
        Self::Foreign { path: path.to_owned(), found }
    }
}
