//! Errors of a data directory, each with its fix.

use crate::config::ConfigError;
use catalog::StoreError;
use disk::DriveError;
use model::text::TextError;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn read_part(path: &Path) -> Result<String, DataDirError> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "is missing"),
        io::ErrorKind::InvalidData => damaged(path, "is not text"),
        _ => failed(&format!("reading {}", path.display()), error),
    })
}

pub(super) fn failed(doing: &str, source: io::Error) -> DataDirError {
    DataDirError::Io { doing: doing.to_owned(), source }
}

/// The reason that there is no usable data directory, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// There is no data directory.
    #[error(
        "there is no Larder data directory at {path}; name the right one with --data, or create one with `larder init \
         --data {path} --rack pelican`",
        path = .0.display()
    )]
    Missing(PathBuf),
    /// It is not as it should be, or not Larder's to use.
    #[error("{0}")]
    Refused(String),
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
    #[error("cannot label the drives: {0}; use writable drives that belong to no other rack")]
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
    /// Adds to the error of a lost catalog that a start may rebuild it.
    pub(super) fn or_started(self) -> Self {
        match self {
            Self::Refused(what) => Self::Refused(format!(
                "{what}; `larder serve` rebuilds it automatically if its journal and its log are complete"
            )),
            other => other,
        }
    }
}

/// `path` is refused; `is` completes the sentence about it.
pub(super) fn refused(path: &Path, is: impl Display) -> DataDirError {
    DataDirError::Refused(format!("{} {is}", path.display()))
}

/// A part is missing or not as it was written.
pub(super) fn damaged(path: &Path, what: impl Display) -> DataDirError {
    refused(path, format!("{what}; restore it from a backup"))
}

/// A part is missing that a recovery makes again, as far as possible.
pub(super) fn lost_part(path: &Path, what: impl Display) -> DataDirError {
    let dir = path.parent().unwrap_or(path).display();
    refused(path, format!("{what}; restore it, or, if it is lost, run `larder recover --data {dir}`"))
}

/// The catalog at `path` is missing, and a complete one is to be put there.
pub(super) fn being_replaced(path: &Path) -> DataDirError {
    let dir = path.parent().unwrap_or(path).display();
    let finish = format!("start the server, or run `larder recover --data {dir}`: both finish that first");
    refused(path, format!("is missing, since a recovery was ended while it replaced the catalog; {finish}"))
}

/// A directory that is not Larder's, which holds files of these names.
pub(super) fn foreign(path: &Path, names: &[String]) -> DataDirError {
    let some = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > 3 { ", ..." } else { "" };
    let is = "is not empty, and is not a Larder data directory";
    refused(path, format!("{is} (it holds {some}{more}); choose a new or empty directory"))
}
