//! A view: the store after one batch, while writes continue.
//!
//! 1. The waiting records over the file are copied, together with the number of folds.
//! 2. Two connections, one for scans and one for look-ups, each begin a transaction, which pins the present file.
//! 3. If nothing was folded meanwhile and both see the file after the same batch, then the file and the copy belong
//!    together. With a log only a fold changes the file, and it adds only what the copy has anyway; without a log
//!    nothing waits. Otherwise all steps are repeated.
//!
//! Meanwhile SQLite's log cannot be folded into the file beyond what the transactions see, so it grows by all writes;
//! readers and the writer continue as usual.

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

/// Maximum number of tries: a fold takes only moments.
const TRIES_MAX: usize = 1_000;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);

impl SqliteStore {
    /// The present state of the store; see the header of this file.
    pub(super) async fn as_of_now(&self) -> Result<Self, StoreError> {
        for _ in 0..TRIES_MAX {
            if let Some(view) = self.try_view()? {
                return Ok(view);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(StoreError::Failed("the catalog changes without a pause in which it could be read".into()))
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

/// A connection that sees the present file from now on, and the last batch in it.
fn pinned(path: &Path) -> Result<(Connection, Option<Sequence>), StoreError> {
    let say = |error: rusqlite::Error| store_error(path, &error);
    let connection = file::open_for_reading(path)?;
    connection.execute_batch("BEGIN").map_err(say)?;
    let sequence = statements::read_sequence(&connection).map_err(say)?;
    Ok((connection, sequence))
}
