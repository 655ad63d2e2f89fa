//! The lineage of the catalog: is it the newest that ever served this rack and this workshop?
//!
//! A catalog that was put back from a backup knows nothing of what was acknowledged since, hands out numbers again, and
//! takes for alive what was deleted, and for dead what still lived. So that it does no harm to what only the newer one
//! knows, nothing is removed from the rack while such a catalog is in use, nor any staged file that was ever finished.
//!
//! 1. Each run of a server has a random number. The catalog remembers the last [`RUNS_MAX`] of its runs; the workshop
//!    carries the mark of the last one. A catalog that does not remember the marked run is older, and so is everything
//!    that follows from it, until the newer one is put back. A catalog that was recovered remembers the mark that the
//!    workshop had then, though it knows nothing of that run.
//! 2. A workshop that was lost, or put back together with the catalog, shows nothing. There a drive shows it, when it
//!    is mounted first in a server's life: a stack of an unknown blob whose header has a higher commit sequence number
//!    than the catalog was written under a newer one (`world/newer.rs`).
//! 3. Then the catalog remembers of itself that it is older, so that later starts know it as well, however far it has
//!    got by then; and the mark is replaced by that of the run which wrote the stack, so that the newer catalog is
//!    known when it is put back.
//! 4. What is written while the catalog is known to be older is written **aside**: its run says so (`is_aside`), and
//!    it is no sign against the newer catalog, which does not know it either.
//!
//! Where a log stands in front of the catalog, it shows it as well: it has acknowledged batches that do not follow on
//! the catalog's last one. Then the catalog remembers of itself that it is older, as in 3. What it logs itself from
//! then on is marked as aside, as in 4., and what the log had before is retained for the newest one (`catalog`'s
//! `replay.rs`).
//!
//! A catalog of which records are missing (a damaged file, see `catalog`'s `mend.rs`) is handled in the same way: what
//! is not found in it may be what is missing. A staged file shows it as a stack does: its run and the catalog's commit
//! sequence number are in its footer.
//!
//! `accept_older_catalog` in `larder.toml` ends all that for whoever has lost the newer catalog.

use crate::error::ServerError;
use catalog::{Catalog, CatalogError};
use model::DriveId;
use model::sabotage::{Sabotage, is_on};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use workshop::{NamedSlot, Staging, Survey, UnknownFile};

/// Runs that a catalog remembers. A staged file of an earlier one that nobody knows is kept until it is looked at.
pub const RUNS_MAX: usize = 256;

/// In the number of a run, as stacks have it: they were written while the catalog was known to be older.
const ASIDE: u64 = 1 << 63;

/// The mend for an older catalog.
pub const MEND: &str = "put the newest catalog back; or stop the server and make it again from its journal with \
                        `larder recover --replace`; if neither can be had, set accept_older_catalog = true in \
                        larder.toml and start again";

/// The age of the catalog, as far as it is known.
#[derive(Debug, Default)]
pub struct Lineage {
    /// The operator says that this catalog is the newest there is.
    accepted: bool,
    /// Why this catalog is taken for older than the rack or the workshop, once it is.
    older: OnceLock<String>,
    /// The flaw of this catalog, if records of it are missing.
    incomplete: OnceLock<String>,
    /// Set when this run of the server began.
    begun: OnceLock<RunStart>,
    /// Drives that were looked at in this life of the server.
    looked_at: Mutex<BTreeSet<DriveId>>,
}

/// A run of the server that has begun.
#[derive(Clone, Copy, Debug, Default)]
struct RunStart {
    /// Its random number.
    run: u64,
    /// No blob number from this one on was given out before.
    blobs_end: u64,
    /// No slot from this one on had a file before.
    slots_end: u64,
    /// The catalog's commit sequence number at its start.
    sequence: u64,
}

impl Lineage {
    /// Nothing is known yet. `accepted` as the operator says.
    pub fn new(accepted: bool) -> Self {
        Self { accepted, ..Self::default() }
    }

    fn begun(&self) -> RunStart {
        self.begun.get().copied().unwrap_or_default()
    }

    /// True if the operator says that this catalog is the newest there is.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Why the catalog is taken for older than the rack or the workshop, if it is. Nothing is removed then.
    pub fn older(&self) -> Option<&str> {
        self.older.get().map(String::as_str)
    }

    /// Why records of the catalog are missing, if some are. Nothing is removed then.
    pub fn incomplete(&self) -> Option<&str> {
        self.incomplete.get().map(String::as_str)
    }

    /// True if blobs may be removed from the rack that this run of the server has not made.
    pub fn may_remove(&self) -> bool {
        let knows_all = self.older.get().is_none() && self.incomplete.get().is_none();
        knows_all || is_on(Sabotage::OlderCatalogTrusted)
    }

    /// Those of `slots` whose staged files may be removed once this catalog has no use for them: all, unless there is a
    /// newer catalog. That knows of nothing that this run has done, and counts on what was staged before.
    pub(crate) fn removable(&self, slots: Vec<NamedSlot>) -> Vec<NamedSlot> {
        let (may_remove, slots_end) = (self.may_remove(), self.begun().slots_end);
        slots.into_iter().filter(|at| may_remove || at.slot() >= slots_end).collect()
    }

    /// This run, as what it writes to the rack names it.
    pub(crate) fn run(&self) -> u64 {
        self.begun().run | if self.older().is_none() { 0 } else { ASIDE }
    }

    /// True if `drive` is to be compared with the catalog: once in a run of the server.
    pub(crate) fn is_first_look(&self, drive: DriveId) -> bool {
        let booted = self.begun.get().is_some();
        let mut looked_at = self.looked_at.lock();
        booted && !self.accepted && looked_at.insert(drive)
    }

    /// A look at `drive` came to nothing: the next mount looks again.
    pub(crate) fn look_again(&self, drive: DriveId) {
        self.looked_at.lock().remove(&drive);
    }

    /// Every slot that had a file before this server started is below this.
    pub(crate) fn slots_end(&self) -> u64 {
        self.begun().slots_end
    }

    /// Every blob number that was given out before this server started is below this.
    pub(crate) fn blobs_end(&self) -> u64 {
        self.begun().blobs_end
    }

    /// The commit sequence number that the catalog had when this server started.
    pub(crate) fn sequence_at_start(&self) -> u64 {
        self.begun().sequence
    }

    fn note(&self, why: String) {
        tracing::error!("THE CATALOG IS OLDER: {why}. Nothing is removed from the rack meanwhile; {MEND}");
        let _ = self.older.set(why);
    }

    /// Records of the catalog are missing: `flaw`.
    fn note_incomplete(&self, flaw: &str) {
        tracing::error!("THE CATALOG IS NOT COMPLETE: {flaw}. Nothing is removed from the rack meanwhile; {MEND}");
        let _ = self.incomplete.set(flaw.to_owned());
    }
}

/// True if a workshop with the marks of these runs was used last with `catalog`, which remembers `known` of its own.
async fn is_used_last(catalog: &Catalog, known: Option<&[u64]>, marked: &BTreeSet<u64>) -> Result<bool, CatalogError> {
    // Where the record of the runs is damaged, the drives have to show it.
    let is_last = marked.is_empty() || known.is_none_or(|runs| runs.iter().any(|run| marked.contains(run)));
    Ok(is_last || catalog.adopted_marks().await?.iter().any(|run| marked.contains(run)))
}

/// At boot, before anything is written: true if `catalog` is whole and the newest one, as far as it and the workshop
/// show.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn is_newest(lineage: &Lineage, catalog: &Catalog, staging: &Staging) -> Result<bool, ServerError> {
    if catalog.incomplete().is_some() {
        return Ok(false);
    }
    let shows_nothing = catalog.behind_log().is_none() && catalog.found_older().await?.is_none();
    let (marked, known) = (staging.marked_runs().await?, catalog.runs().await?);
    Ok(lineage.accepted || (shows_nothing && is_used_last(catalog, known.as_deref(), &marked).await?))
}

/// At boot, before anything is given out, removed or staged: judges the catalog's age and begins a run. The runs before
/// it that this catalog remembers, the last one last.
///
/// # Errors
/// [`ServerError`].
pub(crate) async fn begin_run(
    lineage: &Arc<Lineage>,
    catalog: &Catalog,
    staging: &Staging,
    nonce: u64,
) -> Result<Vec<u64>, ServerError> {
    let (blobs_end, sequence) = (catalog.blobs_end().await?, catalog.sequence_at_open().0);
    if let Some(flaw) = catalog.incomplete() {
        if !lineage.accepted {
            catalog.retain_log();
        }
        lineage.note_incomplete(flaw);
        catalog.release_log();
    }
    let Survey { slots_end, marked_runs: marked } = staging.survey().await?;
    let known = catalog.runs().await?;
    let is_last = is_used_last(catalog, known.as_deref(), &marked).await?;
    let runs = known.unwrap_or_default();
    if lineage.accepted {
        catalog.set_aside(false);
    }
    let behind = catalog.behind_log().filter(|_| !lineage.accepted);
    if let Some(why) = behind {
        catalog.set_found_older(Some(why)).await?;
    }
    let found_before = catalog.found_older().await?;
    let run = (nonce & !ASIDE).max(1);
    let first = lineage.begun.set(RunStart { run, blobs_end, slots_end, sequence }).is_ok();
    assert!(first, "a run begins once");
    let (of_lineage, of_catalog) = (Arc::clone(lineage), catalog.clone());
    staging.set_now(move || (of_lineage.run(), of_catalog.sequence().0));
    let kept = runs.iter().copied().skip((runs.len() + 1).saturating_sub(RUNS_MAX));
    let with_this: Vec<u64> = kept.chain([run]).collect();
    assert!(with_this.len() <= RUNS_MAX, "a catalog remembers so many runs and no more");
    if (!is_last || found_before.is_some()) && !lineage.accepted {
        // The mark stays: it is the newer catalog's, which is known by it when it comes back.
        let marked = || "the workshop is marked by a run that a newer one knows".to_owned();
        catalog.set_aside(true);
        // From the mark on, which comes with the next batch, what was there before is retained for the newest one.
        catalog.release_log();
        lineage.note(found_before.unwrap_or_else(marked));
        catalog.set_runs(&with_this).await?;
        return Ok(runs);
    }
    if !is_last || found_before.is_some() {
        catalog.set_found_older(None).await?;
        tracing::warn!("the catalog is not the one that was used last; accept_older_catalog says that it counts");
    }
    // The catalog knows it before it is marked, so that a crash in between leaves a mark that the catalog knows; or, in
    // the first start of all, none.
    catalog.set_runs(&with_this).await?;
    staging.mark_run(run).await?;
    staging.remove_other_marks(marked, run).await?;
    Ok(runs)
}

/// A stack was found that `run` wrote under a newer catalog than this, and `why` says so. Later starts know it, too.
pub(crate) async fn found_newer(lineage: &Lineage, catalog: &Catalog, staging: &Staging, run: u64, why: String) {
    if lineage.accepted || lineage.older().is_some() {
        return;
    }
    assert_ne!(run, lineage.run(), "what this run has written is no sign of a newer catalog");
    catalog.set_aside(true);
    catalog.release_log();
    lineage.note(why.clone());
    let marked = async {
        catalog.set_found_older(Some(&why)).await?;
        staging.mark_run(run).await?;
        Ok::<(), ServerError>(staging.remove_other_marks(staging.marked_runs().await?, run).await?)
    };
    if let Err(error) = marked.await {
        tracing::error!(%error, "the next start cannot be warned of the older catalog");
    }
}

/// True if a stack or file unknown to this catalog was written under a newer one: by `run`, at the catalog's commit
/// sequence number `sequence`.
pub(crate) fn is_newer(lineage: &Lineage, run: u64, sequence: u64) -> bool {
    !is_aside(run) && run != lineage.run() && sequence > lineage.sequence_at_start()
}

/// True if `run`, as a stack names it, wrote while its catalog was known to be older than the rack.
pub(crate) fn is_aside(run: u64) -> bool {
    run & ASIDE != 0
}

/// True if nobody can ever want the staged file `file`, which the catalog does not know. `runs` are the catalog's runs
/// before this one.
///
/// Everything that was acknowledged in a run before the catalog's last one is in the catalog: that last run began with
/// all of it. What was staged in such a run and is not known was never acknowledged, or is gone. In the last run the
/// catalog may be a copy that was made while the server ran; what was staged then is kept until the next start.
pub(crate) fn is_garbage(lineage: &Lineage, file: &UnknownFile, runs: &[u64]) -> bool {
    let Some((_, before)) = runs.split_last() else { return false };
    match file.stamp {
        _ if !lineage.may_remove() => false,
        Some(stamp) => before.contains(&(stamp.run & !ASIDE)),
        // A damaged footer says nothing, and may be a newer catalog's.
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workshop::Stamp;

    fn file(run: u64) -> UnknownFile {
        UnknownFile { at: 1.into(), charged_bytes: 4096, stamp: Some(Stamp { run, ..Stamp::default() }) }
    }

    #[test]
    fn only_what_a_run_before_the_last_left_is_garbage() {
        let lineage = Lineage::default();
        for (run, garbage) in [(1, true), (2, true), (3, false), (4, false)] {
            assert_eq!(is_garbage(&lineage, &file(run), &[1, 2, 3]), garbage, "run {run}");
        }
        assert!(!is_garbage(&lineage, &file(1), &[]));
        lineage.note("a test".into());
        assert!(!is_garbage(&lineage, &file(1), &[1, 2, 3]));
        assert!(!is_garbage(&lineage, &UnknownFile { stamp: None, ..file(1) }, &[1, 2, 3]));
    }

    #[test]
    fn drives_are_looked_at_once_and_not_before_boot() {
        let lineage = Lineage::default();
        assert!(!lineage.is_first_look(DriveId(1)));
        lineage.begun.get_or_init(|| RunStart { run: 1, ..RunStart::default() });
        assert!(lineage.is_first_look(DriveId(1)) && !lineage.is_first_look(DriveId(1)));
        lineage.look_again(DriveId(1));
        assert!(lineage.is_first_look(DriveId(1)));
    }
}
