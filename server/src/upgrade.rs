//! A directory of an earlier Larder is upgraded by its first start with this one, or by the first command that writes
//! to it.
//!
//! 1. The identity gets the version of this Larder, by one rename, before anything else is written: from then on an
//!    earlier Larder refuses the directory and reports why, no matter what else is new in it.
//! 2. Everything else is created where it is missing, or rewritten when it is due: the manifest of the log in front of
//!    the catalog, and only then labels of its pool that name one ([`intake`]); shelves when they are merged, snapshots
//!    when they are due. Files that an earlier Larder has written stay readable permanently, and none of them is
//!    changed in place except those labels.
//!
//! So a kill at any step leaves a directory of either version, and the next start continues. `larder verify`
//! and `larder recover` read both, and raise nothing.

use crate::data_dir::DataDir;
use crate::error::ServerError;

/// Raises the version of `dir`, if it is an earlier one.
///
/// # Errors
/// [`ServerError`]; then the directory is of either version, and complete.
pub(crate) fn upgrade(dir: &DataDir) -> Result<(), ServerError> {
    if let Some((from, to)) = dir.raise_version()? {
        tracing::warn!("the data directory was upgraded from version {from} to {to}: an earlier Larder refuses it now");
    }
    Ok(())
}
