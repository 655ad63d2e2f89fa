//! The catalog's file is an index of the journal and the log. If it is missing, damaged, incomplete or behind the log,
//! a start makes it again from them, if they lead to the last acknowledged batch. The old file is kept under another
//! name.
//!
//! Invariants:
//! - the complete catalog that a killed recovery has left is put in place first;
//! - nothing is made again before the old file is closed, and the log is only read meanwhile;
//! - if the workshop does not lead to the newest state, the file stays as it is: a start refuses it, or treats it as an
//!   older catalog ([`crate::catalog_age`]);
//! - an operator who accepts an older catalog gets that one.

use crate::data_dir::DataDir;
use crate::error::ServerError;
use crate::intake_log::{IntakeLog, Purpose};
use crate::recover;
use catalog::{CatalogError, CommitLog, SqliteOptions, SqliteStore, Store, StoreError};
use std::sync::Arc;

/// The catalog's file, and the log in front of it; an offline command on an older directory may find none.
type Opened = (SqliteStore, Option<Arc<IntakeLog>>);

/// Opens the catalog of `dir`, and its log; makes the catalog again before, if necessary and possible.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn open(dir: &DataDir, purpose: Purpose, options: SqliteOptions) -> Result<Opened, ServerError> {
    if let Some(published) = recover::finish_publishing(dir).await? {
        let kept = published.replaced.map_or_else(String::new, |kept| format!("; the old one is kept as {kept}"));
        tracing::warn!("a recovery was ended while it replaced the catalog; the new catalog is in place now{kept}");
    }
    let opened = open_once(dir, purpose, options);
    let Some(why) = flaw(&opened, purpose) else { return opened };
    // Closed before anything is made in its place.
    drop(opened);
    let made = recover::from_workshop(dir).await;
    if let Ok(Some(kept)) = &made {
        let kept = if kept.is_empty() { String::new() } else { format!("; the old file is kept as {kept}") };
        tracing::warn!("the catalog was rebuilt from its journal and its log, and is complete{kept}: {why}");
    }
    match (open_once(dir, purpose, options), made) {
        (Err(first), Err(error)) => Err(ServerError::Refused(format!(
            "{first}; it cannot be rebuilt from its journal and its log either: {error}"
        ))),
        // What it would acknowledge would stand against the batches that it lacks.
        (Ok((store, _)), Err(error)) if store.behind_log().is_some() => Err(ServerError::Refused(format!(
            "{why}; the catalog cannot be rebuilt from its journal and its log either: {error}; fix that and start \
             again, or put the newest catalog back; to use this catalog instead, set accept_older_catalog = true in \
             larder.toml"
        ))),
        (opened, Err(error)) => {
            tracing::error!(%error, "the catalog cannot be rebuilt from its journal and its log");
            opened
        }
        (opened, _) => opened,
    }
}

fn open_once(dir: &DataDir, purpose: Purpose, options: SqliteOptions) -> Result<Opened, ServerError> {
    if let Some(lost) = dir.lost_catalog() {
        return Err(lost.into());
    }
    let log = IntakeLog::of(dir, purpose)?;
    let store = match &log {
        Some(log) => SqliteStore::open_with_log(dir.catalog(), options, Arc::clone(log) as Arc<dyn CommitLog>),
        None => SqliteStore::open_with(dir.catalog(), options),
    };
    Ok((store?, log))
}

/// The flaw of a catalog that is to be made again; `None` without one.
fn flaw(opened: &Result<Opened, ServerError>, purpose: Purpose) -> Option<String> {
    match opened {
        Ok((store, _)) if !purpose.is_given_up => store.behind_log().or(store.incomplete()).map(str::to_owned),
        Err(error @ (ServerError::DataDir(_) | ServerError::Catalog(CatalogError::Store(StoreError::Damaged(_))))) => {
            Some(error.to_string())
        }
        Ok(_) | Err(_) => None,
    }
}
