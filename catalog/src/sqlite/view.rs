//! A view: the store after one batch, while others go on to write.
//!
//! 1. What waits over the file is copied, and it is remembered how often something was folded.
//! 2. Two connections, one for scans and one for look-ups, begin a transaction each, which pins the file as it is.
//! 3. If nothing was folded meanwhile and both see the file after the same batch, then file and copy belong together:
//!    behind a log only a fold changes the file, and makes of it what the copy over it is anyway; without one nothing
//!    waits. If not, all is done again.
//!
//! Meanwhile SQLite's log cannot be folded into the file beyond what the transactions see, so it grows by what is
//! written; readers and the writer go on as ever.

use super::failure::store_error;
use super::lookups::Lookups;
use super::overlay::Overlay;
use super::pool::Pool;
use super::writer::Counters;
use super::{SqliteStore, file, statements};
use crate::error::StoreError;
use crate::store::Store;
use lineage::Sequence;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Tries before it is given up: a fold is under way for moments.
const TRIES_MAX: usize = 1_000;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

impl SqliteStore {
    /// The store as it is now; see the head of this file.
    pub(super) async fn as_of_now(&self) -> Result<Self, StoreError> {
        for _ in 0..TRIES_MAX {
            if let Some(view) = self.try_view()? {
                return Ok(view);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(StoreError::Failed("the catalog is written to without a pause in which to look at it".into()))
    }

    fn try_view(&self) -> Result<Option<Self>, StoreError> {
        let path: Arc<Path> = self.pool.path();
        let sequence = self.sequence();
        let (waiting, folds) = self.overlay.waiting();
        let (scans, seen) = pinned(&path)?;
        let (look_ups, also_seen) = pinned(&path)?;
        if seen != also_seen || self.overlay.folds() != folds {
            return Ok(None);
        }
        Ok(Some(Self {
            pool: Pool::new(Arc::clone(&path), vec![scans]),
            lookups: Lookups::start(path, vec![look_ups])?,
            writer: None,
            overlay: Arc::new(Overlay::of(waiting)),
            counters: Arc::new(Counters::new(sequence)),
            incomplete: self.incomplete.clone(),
            behind_log: self.behind_log.clone(),
            log_use: Arc::default(),
            followers: Arc::default(),
            _lock: None,
        }))
    }
}

/// A connection that sees the file as it is now from now on, and the last batch of that.
fn pinned(path: &Path) -> Result<(Connection, Option<Sequence>), StoreError> {
    let say = |error: rusqlite::Error| store_error(path, &error);
    let connection = file::open_for_reading(path)?;
    connection.execute_batch("BEGIN").map_err(say)?;
    let sequence = statements::read_sequence(&connection).map_err(say)?;
    Ok((connection, sequence))
}
