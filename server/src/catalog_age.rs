//! The age of the catalog that the server uses: reads the evidence in catalog, log and workshop, asks [`lineage`], and
//! executes its orders.
//!
//! Invariant: before a run has begun here, nothing is issued, removed or staged.

use crate::error::ServerError;
use catalog::{Catalog, CatalogError};
use lineage::{Evidence, Lineage, Order, RunStamp, RunStart};
use model::DriveId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use workshop::{NamedSlot, Staging, Survey, UnknownFile};

/// The fix for an older catalog.
pub const FIX: &str = "put the newest catalog back; or stop the server and rebuild it from its journal with `larder \
                       recover --replace`; if neither is possible, set accept_older_catalog = true in larder.toml and \
                       start again";

/// The queries and reports of the server's parts about the age of its catalog.
#[derive(Debug, Default)]
pub struct CatalogAge(Mutex<Lineage>);

impl CatalogAge {
    /// Nothing is known yet. `accepted` if the operator declares that this catalog is the newest there is.
    pub fn new(accepted: bool) -> Self {
        Self(Mutex::new(Lineage::new(accepted)))
    }

    /// True if the operator declares that this catalog is the newest there is.
    pub(crate) fn is_accepted(&self) -> bool {
        self.0.lock().is_accepted()
    }

    /// The reason that the catalog counts as older than the rack or the workshop, if it does. Nothing is removed then.
    pub fn older(&self) -> Option<String> {
        self.0.lock().older().map(str::to_owned)
    }

    /// The reason that records of the catalog are missing, if some are. Nothing is removed then.
    pub fn incomplete(&self) -> Option<String> {
        self.0.lock().incomplete().map(str::to_owned)
    }

    /// True if blobs that this run of the server has not made may be removed from the rack.
    pub fn may_remove(&self) -> bool {
        self.0.lock().may_remove()
    }

    /// Those of `slots` whose staged files may be removed once this catalog does not need them.
    pub(crate) fn removable(&self, slots: Vec<NamedSlot>) -> Vec<NamedSlot> {
        let lineage = self.0.lock();
        slots.into_iter().filter(|at| lineage.may_free(at.slot())).collect()
    }

    /// The stamp of this run in everything that it writes to the rack.
    pub(crate) fn stamp(&self) -> RunStamp {
        self.0.lock().stamp()
    }

    /// The start of this run of the server; zeros before that.
    pub(crate) fn start(&self) -> RunStart {
        self.0.lock().start()
    }

    /// True if `drive` is to be compared with the catalog: once in a run of the server.
    pub(crate) fn is_first_look(&self, drive: DriveId) -> bool {
        self.0.lock().is_first_look(drive)
    }

    /// Records that a look at `drive` failed: the next mount looks again.
    pub(crate) fn look_again(&self, drive: DriveId) {
        self.0.lock().look_again(drive);
    }

    /// True if a stack or file unknown to this catalog was written under a newer one: by `stamp`, at the catalog's
    /// commit sequence number `sequence`.
    pub(crate) fn is_newer(&self, stamp: RunStamp, sequence: u64) -> bool {
        self.0.lock().is_newer(stamp, sequence)
    }

    /// Blobs of lower numbers show nothing about the age of the catalog.
    pub(crate) fn blobs_compared_from(&self) -> u64 {
        self.0.lock().blobs_compared_from()
    }

    /// True if the staged file `file`, which the catalog does not know, can never be wanted. `runs` are the catalog's
    /// runs before this one.
    pub(crate) fn is_garbage(&self, file: &UnknownFile, runs: &[u64]) -> bool {
        self.0.lock().is_garbage(file.stamp.map(|stamp| RunStamp::from_bits(stamp.run)), runs)
    }
}

/// The evidence of the age of `catalog`, from it and from a workshop with the marks `marked`.
///
/// # Errors
/// [`CatalogError`].
pub(crate) async fn evidence(catalog: &Catalog, marked: BTreeSet<u64>) -> Result<Evidence, CatalogError> {
    Ok(Evidence {
        flaw: catalog.incomplete().map(str::to_owned),
        behind_log: catalog.behind_log().map(str::to_owned),
        found_before: catalog.found_older().await?,
        runs: catalog.runs().await?,
        starts: catalog.run_starts().await?,
        adopted: catalog.adopted_marks().await?,
        marked,
    })
}

/// True if `catalog` is complete and the newest one, as far as it and the workshop show; at boot, before anything is
/// written.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn is_newest(age: &CatalogAge, catalog: &Catalog, staging: &Staging) -> Result<bool, ServerError> {
    let evidence = evidence(catalog, staging.marked_runs().await?).await?;
    Ok(age.0.lock().is_newest(&evidence))
}

/// Judges the catalog's age and begins a run, at boot, before anything is issued, removed or staged. Returns the runs
/// before it that this catalog remembers, the last one last.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn begin_run(
    age: &Arc<CatalogAge>,
    catalog: &Catalog,
    staging: &Staging,
    nonce: u64,
) -> Result<Vec<u64>, ServerError> {
    let (blobs_end, sequence) = (catalog.blobs_end().await?, catalog.sequence_at_open().0);
    let Survey { slots_end, marked_runs: marked } = staging.survey().await?;
    let evidence = evidence(catalog, marked.clone()).await?;
    let earlier = evidence.runs.clone().unwrap_or_default();
    let orders = age.0.lock().begin(evidence, RunStart { nonce, blobs_end, slots_end, sequence });
    let (of_age, of_catalog) = (Arc::clone(age), catalog.clone());
    staging.set_now(move || (of_age.stamp().bits(), of_catalog.sequence().0));
    if let Some(why) = age.older() {
        tracing::error!("THE CATALOG IS OLDER: {why}. Nothing is removed from the rack meanwhile; {FIX}");
    }
    if let Some(flaw) = age.incomplete() {
        tracing::error!("THE CATALOG IS NOT COMPLETE: {flaw}. Nothing is removed from the rack meanwhile; {FIX}");
    }
    if orders.contains(&Order::RememberOlder(None)) {
        tracing::warn!("the catalog is not the one that was used last; it is used because accept_older_catalog is set");
    }
    obey(orders, catalog, staging, Some(marked)).await?;
    // After the operator's consent, unknown files of earlier runs are no garbage.
    Ok(if age.is_accepted() { Vec::new() } else { earlier })
}

/// Records that a stack or file was found that `stamp` wrote under a newer catalog than this; `why` is the sentence for
/// it. Later starts know it, too.
pub(crate) async fn found_newer(
    age: &CatalogAge,
    (catalog, staging): (&Catalog, &Staging),
    stamp: RunStamp,
    why: String,
) {
    let orders = age.0.lock().found_newer(stamp, why.clone());
    if orders.is_empty() {
        return;
    }
    tracing::error!("THE CATALOG IS OLDER: {why}. Nothing is removed from the rack meanwhile; {FIX}");
    if let Err(error) = obey(orders, catalog, staging, None).await {
        tracing::error!(%error, "cannot record for the next start that the catalog is older");
    }
}

/// Executes `orders`, one after the other. The workshop has the marks `marked`; `None` if they were not read yet.
async fn obey(
    orders: Vec<Order>,
    catalog: &Catalog,
    staging: &Staging,
    marked: Option<BTreeSet<u64>>,
) -> Result<(), ServerError> {
    for order in orders {
        match order {
            Order::RetainLog => catalog.retain_log(),
            Order::ReleaseLog => catalog.release_log(),
            Order::LogAside(is_aside) => catalog.set_aside(is_aside),
            Order::KeepIntents => catalog.keep_intents().await?,
            Order::RememberOlder(why) => catalog.set_found_older(why.as_deref()).await?,
            Order::RememberRuns(runs) => catalog.set_runs(&runs).await?,
            Order::RememberStarts(starts) => catalog.set_run_starts(&starts).await?,
            Order::MarkWorkshop(run) => {
                staging.mark_run(run).await?;
                let marked = match &marked {
                    Some(marked) => marked.clone(),
                    None => staging.marked_runs().await?,
                };
                staging.remove_other_marks(marked, run).await?;
            }
        }
    }
    Ok(())
}
