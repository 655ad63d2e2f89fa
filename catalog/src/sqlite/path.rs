//! Paths beside the file, and its directory.

use crate::error::StoreError;
use std::fs::File;
use std::path::{Path, PathBuf};

/// `path` with `suffix` appended to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Syncs the directory of `path`: SQLite syncs only the file.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The URI with which SQLite opens `path` without regard to other processes: correct while the lock is held and no log
/// exists.
pub(super) fn immutable_uri(path: &Path) -> Result<String, StoreError> {
    let plain = path.to_str().ok_or_else(|| StoreError::Failed(format!("{}: is not UTF-8", path.display())))?;
    let escaped: String = plain
        .chars()
        .map(|c| match c {
            '%' => "%25".to_owned(),
            '?' => "%3f".to_owned(),
            '#' => "%23".to_owned(),
            other => other.to_string(),
        })
        .collect();
    Ok(format!("file:{escaped}?immutable=1"))
}
