//! Errors of the server as a whole, and of commands on a data directory without a server: sentences for people, each
//! with its fix. Only the opening of the catalog (`index.rs`) distinguishes them.

use crate::config::ConfigError;
use crate::data_dir::DataDirError;
use crate::descriptors::TooFewDescriptors;
use catalog::{CatalogError, StoreError};
use disk::DriveError;
use engine::layout::LayoutError;
use std::io;

/// The reason that the server does not run, or that a command on its data directory does nothing.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// There is no usable data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The catalog cannot be opened, read or written.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// The workshop cannot be used.
    #[error("workshop: {0}; make sure that its directories exist and are readable and writable")]
    Workshop(#[from] DriveError),
    /// The rack cannot be laid out.
    #[error("rack: {0}")]
    Layout(#[from] LayoutError),
    /// The process may have too few files open.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// The system refuses a step.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// A contradiction, or a step that would lose data.
    #[error("{0}")]
    Refused(String),
}

impl From<StoreError> for ServerError {
    fn from(error: StoreError) -> Self {
        Self::Catalog(error.into())
    }
}

/// `error` as text.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}
