//! Removes other users' access to a data directory when it is opened: an older version or a copy can have left some.
//!
//! This covers the directory, its files, the manifest and the workshop. A start touches no drive, so drives follow at
//! their first mount in a run (`disk::owner`), and drives of the pool when they are opened. The catalog and the
//! credentials do it themselves, since they also warn that keys may be known.

use disk::private::close_to_others;
use std::fs;
use std::path::Path;

/// Removes others' access to the data directory `path`, to its entries `ours`, and to the contents of its directories
/// `within`. Other entries belong to the operator, for example a TLS key that a group may read.
pub(super) fn close(path: &Path, ours: &[&str], within: &[&Path]) {
    close_to_others(path);
    for name in ours {
        close_to_others(&path.join(name));
    }
    for directory in within {
        close_within(&path.join(directory));
    }
}

/// Removes others' access to `directory` and its entries, not recursively.
pub(crate) fn close_within(directory: &Path) {
    close_to_others(directory);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        close_to_others(&entry.path());
    }
}
