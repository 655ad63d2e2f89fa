//! The files of a catalog that is recreated, and the moment at which it becomes the catalog.
//!
//! Invariants:
//! - until [`publish`] begins, the old catalog is untouched;
//! - the draft is one file, closed and synced, before anything is moved;
//! - the old file goes first, and the files that belong to it next, so that it is never there without its log, and the
//!   draft is never beside the log of another catalog;
//! - the new catalog gets its name by one rename. In between there is no catalog: a start then recreates it, or asks
//!   for a recovery, which starts over;
//! - the manifest of the pool goes last, if the recovery took the pool as it is: it has found what the new catalog
//!   needs and the pool lacks. Until then a start refuses an incomplete pool.

use crate::data_dir::MANIFEST;
use crate::error::ServerError;
use disk::clock::wall_ms;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The draft of the catalog, and a store that tells which of two objects is newer.
pub(super) const DRAFT: &str = "catalog.db.recovering";
pub(super) const ORDER: &str = "catalog.db.recovering-order";
/// The copies found on drives.
pub(super) const COPIES: &str = "catalog.db.recovering-copies";
/// The suffixes of files beside a catalog's file, except for its lock.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];
const LOCK: &str = ".lock";

/// Removes the leftovers of a recovery that was ended: nothing else makes files with these names.
pub(super) fn remove_drafts(place: &Path) -> Result<(), ServerError> {
    for name in [DRAFT, ORDER] {
        remove_store(&place.with_file_name(name))?;
    }
    let copies = place.with_file_name(COPIES);
    unless_missing("removing", &copies, fs::remove_dir_all(&copies))
}

/// Removes the store at `path`, which is closed, with all files that belong to it.
pub(super) fn remove_store(path: &Path) -> Result<(), ServerError> {
    for end in BESIDE.into_iter().chain(["", LOCK]) {
        let path = with_end(path, end);
        unless_missing("removing", &path, fs::remove_file(&path))?;
    }
    Ok(())
}

/// The treatment of the pool's manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manifest {
    /// The pool has everything that the manifest names.
    Stays,
    /// The pool was taken as it is.
    Goes,
}

/// Renames the closed draft to the catalog. Returns the new path of the old catalog; `None` without one.
///
/// # Errors
/// [`ServerError`]; the next recovery starts over then.
pub(super) fn publish(place: &Path, draft: &Path, manifest: Manifest) -> Result<Option<String>, ServerError> {
    let log = with_end(draft, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let why = format!("{} could not be closed: make sure that its disk has free space", draft.display());
        return Err(ServerError::Refused(why));
    }
    File::open(draft).and_then(|file| file.sync_all()).map_err(|error| io_error("syncing", draft, error))?;
    let was_there = place.exists();
    let aside = with_end(place, &format!(".replaced-{}", wall_ms()));
    // If the catalog is gone, or a killed recovery has moved it, its other files may still be there.
    for end in [""].into_iter().chain(BESIDE) {
        let (from, to) = (with_end(place, end), with_end(&aside, end));
        unless_missing("moving", &from, fs::rename(&from, &to))?;
    }
    sync_directory(place)?;
    fs::rename(draft, place).map_err(|error| io_error("naming", draft, error))?;
    if manifest == Manifest::Goes {
        let to = place.with_file_name(format!("{MANIFEST}.replaced-{}", wall_ms()));
        let from = place.with_file_name(MANIFEST);
        unless_missing("moving", &from, fs::rename(&from, &to))?;
    }
    sync_directory(place)?;
    remove_drafts(place)?;
    Ok(was_there.then(|| aside.display().to_string()))
}

/// `path` with `end` appended to its name.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

fn sync_directory(of: &Path) -> Result<(), ServerError> {
    let dir = of.parent().unwrap_or(of);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| io_error("syncing", dir, error))
}

fn unless_missing(what: &str, path: &Path, done: io::Result<()>) -> Result<(), ServerError> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(what, path, error)),
        _ => Ok(()),
    }
}

pub(super) fn io_error(what: &str, path: &Path, error: io::Error) -> ServerError {
    ServerError::Io(format!("{what} {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_recovery_has_left_of_the_old_catalog_never_lies_beside_the_new_one() {
        let root = tempfile::tempdir().unwrap();
        let (place, draft) = (root.path().join("catalog.db"), root.path().join(DRAFT));
        // The old file was moved, and then the process died.
        for name in ["catalog.db-wal", "catalog.db-shm", "catalog.db.lock", "catalog.db.replaced-1"] {
            fs::write(root.path().join(name), b"old").unwrap();
        }
        fs::write(&draft, b"new").unwrap();
        fs::write(with_end(&draft, LOCK), b"").unwrap();
        assert_eq!(publish(&place, &draft, Manifest::Goes).unwrap(), None, "there was none");
        assert_eq!(fs::read(&place).unwrap(), b"new");
        let left = names(root.path());
        assert_eq!(left.iter().filter(|name| name.contains(".replaced-")).count(), 3, "{left:?}");
        assert_eq!(left[..2], ["catalog.db", "catalog.db.lock"], "{left:?}");
        assert_eq!(left.len(), 5, "{left:?}");
    }

    #[test]
    fn a_draft_that_is_not_one_file_is_not_published() {
        let root = tempfile::tempdir().unwrap();
        let (place, draft) = (root.path().join("catalog.db"), root.path().join(DRAFT));
        fs::write(&place, b"old").unwrap();
        fs::write(&draft, b"new").unwrap();
        fs::write(with_end(&draft, "-wal"), b"more").unwrap();
        assert!(publish(&place, &draft, Manifest::Goes).unwrap_err().to_string().contains("could not be closed"));
        assert_eq!(fs::read(&place).unwrap(), b"old");
    }
}
