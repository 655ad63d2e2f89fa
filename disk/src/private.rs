//! Private files and directories: only their owner has access, since they hold users' objects and secret keys.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The mode of files.
pub const FILE_MODE: u32 = 0o600;
/// The mode of directories.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Creates the directory `path` and its missing parents. An existing directory stays as it is.
///
/// # Errors
/// The errors of the file system.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Removes all permissions of other users from the file or directory `path`; an older version can have left some.
/// Symbolic links are not followed. A failure is only logged: some file systems have no permissions.
pub fn close_to_others(path: &Path) {
    let mode = || fs::symlink_metadata(path).ok().filter(|found| !found.is_symlink()).map(|found| found.permissions());
    let open = |mode: &Permissions| mode.mode() & 0o077 != 0;
    let Some(before) = mode().filter(open) else { return };
    let closed = fs::set_permissions(path, Permissions::from_mode(before.mode() & 0o7700));
    if closed.is_err() || mode().as_ref().is_some_and(open) {
        tracing::warn!("{0} is accessible to other users; run `chmod go= {0}` as its owner", path.display());
    } else {
        tracing::info!("removed other users' access to {}", path.display());
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
