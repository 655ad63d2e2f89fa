//! Files and directories for their owner alone: they hold users' objects and secret keys.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The mode of a file that Larder makes.
pub const FILE_MODE: u32 = 0o600;
/// The mode of a directory that Larder makes.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Makes the directory `path`, and those above it that are not there. One that is there stays as it is.
///
/// # Errors
/// Those of the file system.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Takes every right to the file or directory `path` from all but its owner, as an older Larder or an operator may have
/// left it. Links are not followed. Only a warning where that cannot be: some file systems know no rights.
pub fn close_to_others(path: &Path) {
    let mode = || fs::symlink_metadata(path).ok().filter(|found| !found.is_symlink()).map(|found| found.permissions());
    let open = |mode: &Permissions| mode.mode() & 0o077 != 0;
    let Some(before) = mode().filter(open) else { return };
    let closed = fs::set_permissions(path, Permissions::from_mode(before.mode() & 0o7700));
    if closed.is_err() || mode().as_ref().is_some_and(open) {
        tracing::warn!("others may use {0}; mend it with `chmod go= {0}` as its owner", path.display());
    } else {
        tracing::info!("others could use {}, and can no more", path.display());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_is_open_is_closed_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (directory, file) = (root.path().join("a/b"), root.path().join("a/b/f"));
        make_directory(&directory).unwrap();
        assert_eq!((mode(&directory), mode(&root.path().join("a"))), (0o700, 0o700));
        fs::write(&file, b"keys").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        close_to_others(&link);
        assert_eq!(mode(&file), 0o644);
        close_to_others(&file);
        close_to_others(&root.path().join("not there"));
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(&directory, Permissions::from_mode(0o2775)).unwrap();
        close_to_others(&directory);
        assert_eq!(mode(&directory), 0o2700);
    }
}
