//! The catalog file opened only to be looked at.
//!
//! Invariants: neither the file nor its log changes, also after a crash, when the log is longer than what was folded
//! into the file; a commit is refused; the lock on the file is held as by a store that writes.

use super::{Pool, file, statements, store_error};
use crate::look::looked_at_only;
use crate::seal::{Sealed, Sequence};
use crate::store::{Batch, Entry, KeyRange, Store, StoreError, StoreFuture};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Connections of a store that is only looked at.
const READERS: usize = 2;

/// Faults of the pages that are told.
const TOLD_MAX: u32 = 20;

/// A [`Store`] in one SQLite file that refuses to be changed.
pub struct SqliteView {
    pool: Arc<Pool>,
    sequence: Sequence,
    _lock: File,
}

impl SqliteView {
    /// Opens the catalog file at `path`, which must be there.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is another kind of file, written by a newer Larder or open elsewhere.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.as_ref().into();
        let lock = file::lock(&path)?;
        let idle = (0..READERS).map(|_| file::open_as_it_is(&path)).collect::<Result<Vec<_>, _>>()?;
        file::check_identity(&idle[0], &path)?;
        let sequence = statements::read_sequence(&idle[0]).map_err(|error| store_error(&path, &error))?;
        let permits = Arc::new(Semaphore::new(READERS));
        Ok(Self {
            pool: Arc::new(Pool { path, idle: Mutex::new(idle), permits }),
            sequence: sequence.unwrap_or_default(),
            _lock: lock,
        })
    }

    /// Reads every page of the file and compares each table with its index. What SQLite finds wrong, in its words.
    pub async fn check_pages(&self) -> Result<Vec<String>, StoreError> {
        let found = self.pool.read(|reader| reader.check_pages(TOLD_MAX)).await;
        match found {
            Err(StoreError::Unusable(error)) => Ok(vec![error]),
            other => other,
        }
    }
}

impl Store for SqliteView {
    fn get(&self, key: &[u8]) -> StoreFuture<'_, Option<Sealed>> {
        let key = key.to_vec();
        self.pool.read(move |reader| reader.get(&key))
    }

    fn get_many(&self, keys: Vec<Vec<u8>>) -> StoreFuture<'_, Vec<Option<Sealed>>> {
        self.pool.read(move |reader| reader.get_many(&keys))
    }

    fn scan(&self, range: KeyRange, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.pool.read(move |reader| reader.scan(range, limit))
    }

    fn commit(&self, _: Batch) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Err(looked_at_only())))
    }

    fn sequence(&self) -> Sequence {
        self.sequence
    }
}

/// The address under which SQLite opens `path` without a thought of other processes: right while the lock is held and
/// there is no log.
pub(super) fn immutable_uri(path: &Path) -> Result<String, StoreError> {
    let plain = path.to_str().ok_or_else(|| StoreError::Failed(format!("{}: is no UTF-8", path.display())))?;
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
