//! Maintains the catalog's journal, and the copies of the catalog on drives, while the server runs.
//!
//! `engine::snapshots` decides when a snapshot is made. One at a time is written, beside the work of the server.

use crate::backup::in_a_thread;
use crate::catalog_age::{self, CatalogAge};
use crate::context::Context;
use crate::drive_copies::DriveCopies;
use crate::error::ServerError;
use catalog::{Catalog, Journal, SnapshotError, SnapshotTotals};
use disk::clock;
use engine::snapshots::{JournalSize, Snapshots};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workshop::Staging;

/// The interval of checks whether a snapshot or a copy is due.
const LOOK: Duration = Duration::from_secs(10);
/// The same while a copy is on its way to drives.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Maintains `journal`, and `copies` of the catalog on drives, until it is dropped. The log of a catalog that
/// `is_recovered` is held until there is a snapshot.
pub(crate) async fn keep(context: Context, (journal, is_recovered): (Arc<Journal>, bool), mut copies: DriveCopies) {
    let (began, mut snapshots) = (clock::monotonic(), Snapshots::default());
    loop {
        let status = journal.status();
        let size = JournalSize {
            leads_on: status.snapshot.is_some() && status.broken.is_none(),
            snapshot_bytes: status.snapshot_bytes,
            batch_bytes: status.segment_bytes,
        };
        let now = || model::Time::ZERO + began.elapsed();
        // A catalog that is not the newest, or not complete, must not become the base of a journal.
        let is_newest = context.catalog_age.may_remove();
        if is_newest && snapshots.is_due(now(), size) {
            let made = snapshot(context.catalog.clone(), Arc::clone(&journal), (context.wall)()).await;
            snapshots.ended(now(), made.is_ok());
            // A log that is held for long would take no more. Only a recovered catalog needs all of it meanwhile.
            if made.is_ok() || !is_recovered {
                context.catalog.release_log();
            }
            context.counters.has_snapshot_failed.store(made.is_err(), Ordering::Relaxed);
            match made {
                Ok(totals) => written(&totals),
                Err(error) => tracing::warn!(%error, "could not write a snapshot of the catalog; retrying"),
            }
        }
        if is_newest && snapshots.is_check_due(now(), size) {
            check(&journal).await;
            snapshots.checked(now());
        }
        let is_under_way = is_newest && copies.look(now()).await;
        tokio::time::sleep(if is_under_way { LOOK_AGAIN } else { LOOK }).await;
    }
}

/// Logs that a snapshot was written.
fn written(totals: &SnapshotTotals) {
    let SnapshotTotals { records, bytes, damaged, .. } = *totals;
    tracing::info!(records, bytes, "wrote a new snapshot of the catalog into its journal");
    if damaged > 0 {
        tracing::warn!(
            damaged,
            "some records of the catalog are damaged, and in this snapshot as well; the oldest snapshot is kept, which \
             may have them whole: stop the server and run `larder recover --replace`, or write the objects again or \
             delete them"
        );
    }
}

/// At a start the log in front of the catalog forgets nothing before the journal leads to the catalog.
///
/// A catalog that was recovered has batches that neither its journal nor its log has (it is ahead of the log:
/// `is_ahead`), so nothing in them follows on one another. A snapshot is made before it changes at all. A kill before
/// that changes nothing: the next start makes it. A catalog that took batches from its log may have a journal that
/// lacks them, after a kill. If so, or if a snapshot fails, the log is held until there is one ([`keep`]).
///
/// A catalog that is not the newest, or not whole, gets no snapshot: its run releases the log (`lineage`).
///
/// Returns true if the log of a recovered catalog is still held.
///
/// # Errors
/// [`ServerError`] if catalog or workshop cannot be read.
pub(crate) async fn lead_on(
    (catalog, journal): (&Catalog, Option<&Arc<Journal>>),
    age: &CatalogAge,
    staging: &Staging,
    (is_ahead, now_ms): (bool, u64),
) -> Result<bool, ServerError> {
    if !catalog.retains_log() || !catalog_age::is_newest(age, catalog, staging).await? {
        return Ok(false);
    }
    let broken = journal.filter(|journal| journal.status().broken.is_some());
    let Some(journal) = broken else {
        catalog.release_log();
        return Ok(false);
    };
    if !is_ahead {
        return Ok(false);
    }
    let made = snapshot(catalog.clone(), Arc::clone(journal), now_ms).await;
    match &made {
        Ok(_) => catalog.release_log(),
        Err(error) => {
            tracing::warn!(%error, "could not write a snapshot of the recovered catalog; retrying");
        }
    }
    Ok(made.is_err())
}

/// Reads the journal through; damage makes a snapshot due.
async fn check(journal: &Arc<Journal>) {
    let journal = Arc::clone(journal);
    match tokio::task::spawn_blocking(move || journal.check()).await {
        Ok(None) => {}
        Ok(Some(flaw)) => tracing::warn!("the journal of the catalog is damaged; writing a new snapshot: {flaw}"),
        Err(error) => tracing::error!(%error, "could not read all of the catalog's journal"),
    }
}

async fn snapshot(catalog: Catalog, journal: Arc<Journal>, now_ms: u64) -> Result<SnapshotTotals, SnapshotError> {
    in_a_thread(async move { journal.snapshot(&catalog, now_ms).await }).await
}
