//! A directory of an earlier Larder is upgraded by its first start with this one, or by the first command that writes
//! to it.
//!
//! 1. The identity gets the version of this Larder, by one rename, before anything else is written: from then on an
//!    earlier Larder refuses the directory, and says so, whatever else is new in it.
//! 2. Everything else is made where it is missing, or written anew when its turn comes: the manifest of the log in
//!    front of the catalog, and only then labels of its pool that name one ([`intake`]); shelves when they are merged,
//!    snapshots when they are due. What an earlier Larder has written is read for ever, and no file of it is changed in
//!    place but those labels.
//!
//! So a kill at any step leaves a directory of either version, and the next start continues. `larder verify`
//! and `larder recover` read both, and raise nothing.

use crate::data_dir::DataDir;
use crate::error::ServerError;

/// Raises the version of `dir`, if it is an earlier one.
///
/// # Errors
/// [`ServerError`]; the directory is of either version then, and whole.
pub(crate) fn upgrade(dir: &DataDir) -> Result<(), ServerError> {
    if let Some((from, to)) = dir.raise_version()? {
        tracing::warn!("the data directory was upgraded from version {from} to {to}: an earlier Larder refuses it now");
    }
    Ok(())
}
