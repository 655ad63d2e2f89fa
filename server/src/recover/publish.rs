//! The files of a catalog that is recreated, and the moment at which it becomes the catalog.
//!
//! Invariants:
//! - until [`publish`] begins, the old catalog is untouched;
//! - the draft is one file, closed and synced, before anything is moved;
//! - the draft of a recovery then gets a name that says that it is complete. From there on the next start or recovery
//!   finishes what a kill has left ([`finish_publishing`]), so an older catalog is never rebuilt from the journal
//!   instead. It refuses to replace a catalog that was used since. A start that rebuilds the catalog from the workshop
//!   needs no such name: the next start rebuilds it in the same way;
//! - the old file goes first, and the files that belong to it next, so that it is never there without its log, and the
//!   new catalog is never beside the log of another one;
//! - the manifest of the pool goes before the new catalog gets its name, if the recovery took the pool as it is: it has
//!   found what the new catalog needs and the pool lacks. The next recovery still reads it, until a start makes one.

use crate::data_dir::{DataDir, MANIFEST, RECOVERED};
use crate::error::ServerError;
use catalog::{Catalog, SqliteStore, Store};
use disk::clock::wall_ms;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The draft of the catalog, and a store that tells which of two objects is newer.
pub(super) const DRAFT: &str = "catalog.db.recovering";
pub(super) const ORDER: &str = "catalog.db.recovering-order";
/// The copies found on drives.
pub(super) const COPIES: &str = "catalog.db.recovering-copies";
/// The suffixes of files beside a catalog's file, except for its lock.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];
const LOCK: &str = ".lock";
/// The start of the names of manifests that were moved aside, before the time in milliseconds of the Unix epoch.
const MANIFEST_ASIDE: &str = "manifest.replaced-";

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

/// A catalog that was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// The new path of the old catalog; `None` without one.
    pub(crate) replaced: Option<String>,
}

/// Makes the closed draft the catalog.
///
/// # Errors
/// [`ServerError`]; the next recovery starts over then, or the next start finishes this one.
pub(super) fn publish(place: &Path, draft: &Path, manifest: Manifest) -> Result<Published, ServerError> {
    let log = with_end(draft, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let why = format!("{} could not be closed: make sure that its disk has free space", draft.display());
        return Err(ServerError::Refused(why));
    }
    File::open(draft).and_then(|file| file.sync_all()).map_err(|error| io_error("syncing", draft, error))?;
    if manifest == Manifest::Stays {
        return replace(place, draft, manifest);
    }
    let complete = place.with_file_name(RECOVERED);
    fs::rename(draft, &complete).map_err(|error| io_error("naming", draft, error))?;
    sync_directory(place)?;
    replace(place, &complete, manifest)
}

/// Finishes the recovery of `dir` that a process began to publish before it was ended. `None` if there is none.
///
/// # Errors
/// [`ServerError`]: the next try finishes it, or the operator has to choose between two catalogs.
pub(crate) async fn finish_publishing(dir: &DataDir) -> Result<Option<Published>, ServerError> {
    let (place, complete) = (dir.catalog(), dir.catalog().with_file_name(RECOVERED));
    if !complete.try_exists().map_err(|error| io_error("finding", &complete, error))? {
        return Ok(None);
    }
    refuse_if_used_since(&place, &complete)?;
    let is_whole = is_whole(dir, &complete).await;
    // Nothing but its lock is left beside it.
    unless_missing("removing", &complete, fs::remove_file(with_end(&complete, LOCK)))?;
    if !is_whole {
        return Err(ServerError::Refused(format!(
            "{} is the catalog of a recovery that was ended, and is damaged or of another rack; move it away and run \
             `larder recover` again",
            complete.display()
        )));
    }
    dir.give_what_root_made()?;
    let published = replace(&place, &complete, Manifest::Goes)?;
    dir.give_what_root_made()?;
    Ok(Some(published))
}

/// Refuses to replace a catalog that was changed after the one at `complete` was made, as after a restored backup.
fn refuse_if_used_since(place: &Path, complete: &Path) -> Result<(), ServerError> {
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let used = [place.to_owned(), with_end(place, "-wal")].iter().filter_map(|path| modified(path)).max();
    if used.is_none_or(|used| modified(complete).is_some_and(|made| used <= made)) {
        return Ok(());
    }
    Err(ServerError::Refused(format!(
        "{} was changed after an ended recovery made {}; move away the one that is not wanted, and start again",
        place.display(),
        complete.display()
    )))
}

/// True if there is a whole catalog of this rack at `path`.
async fn is_whole(dir: &DataDir, path: &Path) -> bool {
    let Ok(store) = SqliteStore::open(path) else { return false };
    let is_complete = store.incomplete().is_none();
    match Catalog::open(Arc::new(store)).await {
        Ok(catalog) => is_complete && catalog.rack_uuid().await.is_ok_and(|rack| rack == Some(dir.rack_uuid().0)),
        Err(_) => false,
    }
}

/// Moves the old catalog aside, and gives its name to the one at `complete`.
fn replace(place: &Path, complete: &Path, manifest: Manifest) -> Result<Published, ServerError> {
    let was_there = place.exists();
    let aside = with_end(place, &format!(".replaced-{}", wall_ms()));
    // A killed process may have moved the catalog, and not its other files.
    for end in [""].into_iter().chain(BESIDE) {
        let (from, to) = (with_end(place, end), with_end(&aside, end));
        unless_missing("moving", &from, fs::rename(&from, &to))?;
    }
    if manifest == Manifest::Goes {
        let to = place.with_file_name(format!("{MANIFEST_ASIDE}{}", wall_ms()));
        let from = place.with_file_name(MANIFEST);
        unless_missing("moving", &from, fs::rename(&from, &to))?;
    }
    sync_directory(place)?;
    fs::rename(complete, place).map_err(|error| io_error("naming", complete, error))?;
    sync_directory(place)?;
    remove_drafts(place)?;
    Ok(Published { replaced: was_there.then(|| aside.display().to_string()) })
}

/// The manifest of the pool of `dir`, or the last one that a recovery has moved aside, if no start has made another
/// since. So a repeated recovery finds the same losses.
///
/// # Errors
/// [`ServerError`] if the directory cannot be listed.
pub(super) fn last_manifest(dir: &DataDir) -> Result<PathBuf, ServerError> {
    last_of(&dir.manifest())
}

/// The manifest at `place`, or the one that was moved aside last.
fn last_of(place: &Path) -> Result<PathBuf, ServerError> {
    if place.exists() {
        return Ok(place.to_owned());
    }
    let parent = place.parent().unwrap_or(place);
    let listing = |error| io_error("listing", parent, error);
    let mut newest = (0_u64, place.to_owned());
    for entry in fs::read_dir(parent).map_err(listing)? {
        let name = entry.map_err(listing)?.file_name();
        let moved_ms = name.to_str().and_then(|name| name.strip_prefix(MANIFEST_ASIDE)?.parse().ok());
        newest = newest.max((moved_ms.unwrap_or(0), parent.join(name)));
    }
    Ok(if newest.0 > 0 { newest.1 } else { place.to_owned() })
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
    use std::time::Duration;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_recovery_has_left_of_the_old_catalog_is_never_beside_the_new_one() {
        let root = tempfile::tempdir().unwrap();
        let (place, draft) = (root.path().join("catalog.db"), root.path().join(DRAFT));
        // The old file was moved, and then the process died.
        for name in ["catalog.db-wal", "catalog.db-shm", "catalog.db.lock", "catalog.db.replaced-1"] {
            fs::write(root.path().join(name), b"old").unwrap();
        }
        fs::write(&draft, b"new").unwrap();
        fs::write(with_end(&draft, LOCK), b"").unwrap();
        assert_eq!(publish(&place, &draft, Manifest::Goes).unwrap().replaced, None, "there was none");
        assert_eq!(fs::read(&place).unwrap(), b"new");
        let left = names(root.path());
        assert_eq!(left.iter().filter(|name| name.contains(".replaced-")).count(), 3, "{left:?}");
        assert_eq!(left[..2], ["catalog.db", "catalog.db.lock"], "{left:?}");
        assert_eq!(left.len(), 5, "{left:?}");
    }

    #[test]
    fn a_complete_catalog_is_put_in_place_wherever_a_process_was_killed() {
        let renames = [
            ("catalog.db", "catalog.db.replaced-1"),
            ("catalog.db-wal", "catalog.db.replaced-1-wal"),
            (MANIFEST, "manifest.replaced-1"),
        ];
        for done in 0..=renames.len() {
            let root = tempfile::tempdir().unwrap();
            let (place, complete) = (root.path().join("catalog.db"), root.path().join(RECOVERED));
            for name in ["catalog.db", "catalog.db-wal", MANIFEST] {
                fs::write(root.path().join(name), b"old").unwrap();
            }
            for (from, to) in &renames[..done] {
                fs::rename(root.path().join(from), root.path().join(to)).unwrap();
            }
            fs::write(&complete, b"new").unwrap();
            refuse_if_used_since(&place, &complete).unwrap();
            assert_eq!(replace(&place, &complete, Manifest::Goes).unwrap().replaced.is_some(), done == 0);
            assert_eq!(fs::read(&place).unwrap(), b"new", "after {done} renames");
            let left = names(root.path());
            assert_eq!(left.iter().filter(|name| name.contains(".replaced-")).count(), 3, "{left:?}");
            assert_eq!(left.len(), 4, "{left:?}");
        }
    }

    #[test]
    fn a_catalog_that_was_used_since_is_not_replaced() {
        for used in ["catalog.db", "catalog.db-wal"] {
            let root = tempfile::tempdir().unwrap();
            let (place, complete) = (root.path().join("catalog.db"), root.path().join(RECOVERED));
            fs::write(&complete, b"new").unwrap();
            let made = fs::metadata(&complete).unwrap().modified().unwrap();
            let file = File::create(root.path().join(used)).unwrap();
            file.set_modified(made + Duration::from_secs(1)).unwrap();
            let refused = refuse_if_used_since(&place, &complete).unwrap_err().to_string();
            assert!(refused.contains("move away the one that is not wanted"), "{refused}");
            file.set_modified(made).unwrap();
            refuse_if_used_since(&place, &complete).unwrap();
        }
    }

    #[test]
    fn the_manifest_that_was_moved_last_is_found_until_there_is_another() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join(MANIFEST);
        assert_eq!(last_of(&place).unwrap(), place);
        for name in ["manifest.replaced-1796053198325", "manifest.replaced-99", "manifest.replaced-x", "runs"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        assert_eq!(last_of(&place).unwrap(), root.path().join("manifest.replaced-1796053198325"));
        fs::create_dir(&place).unwrap();
        assert_eq!(last_of(&place).unwrap(), place);
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
