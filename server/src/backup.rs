//! Copies of the catalog on demand, in a file. A copy is written beside its final name, synced, and gets that name at
//! the end; no existing file is replaced. Code that writes files of a catalog's size runs in its own thread, beside the
//! work of the server.

use crate::context::Context;
use catalog::{Catalog, SnapshotError, SnapshotTotals};
use disk::private::FILE_MODE;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::runtime::Handle;

/// A finished copy of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Its path.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Records in it, except those written while it was made.
    pub records: u64,
    /// The catalog's commit sequence number in the copy.
    pub sequence: u64,
}

/// The reason that there is no copy of the catalog.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The path cannot be used.
    #[error("{place}: {what}", place = .0.display(), what = .1)]
    Place(PathBuf, String),
    /// It could not be written.
    #[error("cannot create the copy {place}: {error}", place = .0.display(), error = .1)]
    Snapshot(PathBuf, SnapshotError),
}

/// Writes a copy of the catalog to `path`, which must not exist; `nonce` is random.
///
/// # Errors
/// [`BackupError`]; then nothing is left at `path`.
pub(crate) async fn backup(context: &Context, path: PathBuf, nonce: u64) -> Result<BackupReport, BackupError> {
    let (catalog, rack, made_ms) = (context.catalog.clone(), context.rack_uuid.0, (context.wall)());
    in_a_thread(async move { copy(&catalog, rack, made_ms, &path, nonce).await }).await
}

async fn copy(
    catalog: &Catalog,
    rack: [u8; 16],
    made_ms: u64,
    path: &Path,
    nonce: u64,
) -> Result<BackupReport, BackupError> {
    let refused = |what: String| BackupError::Place(path.to_owned(), what);
    let Some((dir, name)) = path.parent().zip(path.file_name()).filter(|_| path.is_absolute()) else {
        return Err(refused("give the path of a new file".into()));
    };
    if path.symlink_metadata().is_ok() {
        return Err(refused("already exists, and is not overwritten; name another file".into()));
    }
    let draft = dir.join(format!(".{}-{nonce:016x}.new", name.to_string_lossy()));
    let opened = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&draft);
    let mut file = opened.map_err(|error| refused(format!("cannot be created: {error}")))?;
    let failed = |error: SnapshotError| BackupError::Snapshot(path.to_owned(), error);
    let written = catalog.snapshot(rack, made_ms, &mut file).await.and_then(|totals| {
        file.sync_all()?;
        Ok(totals)
    });
    // A link fails if a file has appeared at `path` meanwhile; a rename would replace it.
    let named = written.and_then(|totals| {
        fs::hard_link(&draft, path)?;
        File::open(dir)?.sync_all()?;
        Ok(totals)
    });
    drop(fs::remove_file(&draft));
    let SnapshotTotals { sequence, records, bytes, .. } = named.map_err(failed)?;
    Ok(BackupReport { path: path.display().to_string(), bytes, records, sequence: sequence.0 })
}

/// Runs `work`, which writes to a file, in a thread where it blocks no other task.
pub(crate) async fn in_a_thread<T: Send + 'static, E: From<BackupEnded> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    let runtime = Handle::current();
    match tokio::task::spawn_blocking(move || runtime.block_on(work)).await {
        Ok(done) => done,
        Err(error) => Err(BackupEnded(io::Error::other(error)).into()),
    }
}

/// The writing thread ended before its work was done.
pub(crate) struct BackupEnded(pub(crate) io::Error);

impl From<BackupEnded> for SnapshotError {
    fn from(BackupEnded(error): BackupEnded) -> Self {
        Self::Io(error)
    }
}

impl From<BackupEnded> for BackupError {
    fn from(BackupEnded(error): BackupEnded) -> Self {
        Self::Snapshot(PathBuf::new(), SnapshotError::Io(error))
    }
}
