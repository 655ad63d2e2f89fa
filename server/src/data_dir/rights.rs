//! A data directory is for its owner alone: what an older Larder, or a copy, has left open to others is closed when it
//! is opened.
//!
//! That goes for the directory, its files and the workshop. Drives are not touched by a start: they are closed when
//! they are mounted first in a run (`disk::owner`), and drives of the pool when they are opened. The catalog and the
//! credentials close themselves, since they warn of keys that may be known.

use disk::private::close_to_others;
use std::fs;
use std::path::Path;

/// Closes the data directory `path`, of which `ours` was made by Larder, and what is in its directories `within`.
/// Whatever else is there is the operator's, as a key of TLS that a group may read.
pub(super) fn close(path: &Path, ours: &[&str], within: &[&Path]) {
    close_to_others(path);
    for name in ours {
        close_to_others(&path.join(name));
    }
    for directory in within {
        close_within(&path.join(directory));
    }
}

/// Closes `directory` and what is in it to others, but not what is in directories there.
pub(crate) fn close_within(directory: &Path) {
    close_to_others(directory);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        close_to_others(&entry.path());
    }
}
