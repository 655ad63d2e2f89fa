//! A catalog that is lost between two lives of the server and made again as `larder recover` does it: by the same
//! decisions (`server::recover`), over the run's drives and its workshop.
//!
//! The result is compared with the lost catalog, as docs/format/catalog.md promises:
//!
//! - With the whole journal, every key has the version that it had.
//! - With an older copy or none, so does every key whose object was in the rack. A key whose object was only in the
//!   workshop, or was deleted since the copy, may have its earlier content instead. There are no other objects
//!   anywhere.
//!
//! The operator has pulled the dead drives: a drive that does not answer may spin, so it would take its share of the
//! power from the others.
//!
//! Then the operator deletes the restored objects that can no longer be read as a whole: the staged file is gone or is
//! another one now, or the pack was being removed. The model continues from the current contents.

use crate::content::serial_of;
use crate::front::Cut;
use crate::journal::Rule;
use crate::kinds::FaultKind;
use crate::plan::{LOGGED_FROM, Left, Stream};
use crate::reference::{At, Reference};
use crate::site::{BUCKET, RACK, Site};
use catalog::{Catalog, MemoryStore, Object, Place, Store};
use model::BlobId;
use server::error::ServerError;
use server::offline_rack::OfflineRack;
use server::recover::{self, Based, Rack, Report};
use std::collections::BTreeSet;
use std::sync::Arc;
use workshop::Staging;

/// The entry of a catalog at a key.
type Entry = Option<(Object, Place)>;

/// Loses the catalog, and makes it again from `left`; `copy` is from before the last life.
pub(crate) fn lose(site: &mut Site, reference: &Reference, (left, copy): (Left, &MemoryStore)) {
    site.overlay.state().calm();
    site.overlay.state().pull_dead(true);
    let recovered = site.offline(async |site| Loss { site, reference }.recover(left, copy).await);
    site.overlay.state().pull_dead(false);
    match recovered {
        Ok(Outcome::NotLost) => {}
        Ok(Outcome::ThrownAway(store)) => {
            site.overlay.count(FaultKind::LostCatalog);
            site.forget_log();
            site.catalog = store;
        }
        Ok(Outcome::Again(store)) => {
            site.overlay.count(FaultKind::LostCatalog);
            site.forget_log();
            site.catalog = store;
            if left != Left::Journal {
                // No pack has uploads, and an upload in the copy may be over.
                reference.uploads.take();
            }
        }
        Err(error) => site.journal.broken(Rule::Honest, || format!("a recovery without a fault fails: {error}")),
    }
}

/// The outcome for a catalog that was to be lost.
enum Outcome {
    /// It is not lost: the model cannot predict the result.
    NotLost,
    /// It is found again, and the recovered one is thrown away.
    ThrownAway(MemoryStore),
    /// It was made again.
    Again(MemoryStore),
}

/// One of this number of recoveries is thrown away.
const THROWN_AWAY_OF: u64 = 4;

struct Loss<'a> {
    site: &'a Site,
    reference: &'a Reference,
}

impl Loss<'_> {
    /// Recovers the catalog; from [`LOGGED_FROM`] on a recovery that is killed comes first.
    async fn recover(&self, left: Left, copy: &MemoryStore) -> Result<Outcome, ServerError> {
        self.site.open_log().await;
        let old = Catalog::open_read_only(Arc::new(self.site.catalog.clone())).await?;
        let kept = match left {
            Left::Journal => self.site.catalog.snapshot(),
            Left::Copy => copy.snapshot(),
            Left::Nothing => MemoryStore::new(),
        };
        let based_on = Catalog::open_read_only(Arc::new(kept.clone())).await?;
        if left != Left::Journal && (self.site.has_front() || !drives_are_as_in(&old, &based_on, self.site).await?) {
            return Ok(Outcome::NotLost);
        }
        self.site.journal.note(|| format!("the catalog is lost, and made again from this: {left:?}"));
        self.site.show_catalog().await?;
        let floor = self.site.catalog.sequence();
        let draft = |kept: &MemoryStore| self.site.behind_front(kept.snapshot(), Cut::None).numbered_above(floor);
        let mut before = None;
        if self.site.plan.seed >= LOGGED_FROM {
            let workshop = self.workshop().await?;
            before = Some(self.made_again(&draft(&kept), left).await?.0);
            let after = self.workshop().await?;
            self.site.journal.demand(workshop == after, Rule::Kept, || {
                format!("a recovery changes the workshop, from {workshop:?} to {after:?}")
            });
            if Stream::Again.of(self.site.plan.seed).below(THROWN_AWAY_OF) == 0 {
                self.site.journal.note(|| "the catalog is found again, and the recovered one thrown away".to_owned());
                return Ok(Outcome::ThrownAway(self.site.behind_front(self.site.catalog.crash(), Cut::None)));
            }
        }
        let store = draft(&kept);
        let (catalog, report) = self.made_again(&store, left).await?;
        self.site.journal.note(|| format!("recovered: {report:?}"));
        for key in self.reference.keys_of(BUCKET) {
            let at = (BUCKET.to_owned(), key);
            let (was, is) = (entry(&old, &at).await, entry(&catalog, &at).await);
            if let Some(before) = &before {
                let first = entry(before, &at).await;
                self.site.journal.demand(first == is, Rule::Kept, || {
                    format!("{} of a second recovery holds {is:?}, and {first:?} of the first", at.1)
                });
            }
            let before = entry(&based_on, &at).await;
            self.judge(&at, (&was, &before, &is), left);
            self.take_over(&catalog, &at, (was, is)).await?;
        }
        Ok(Outcome::Again(store))
    }

    /// The marks of the workshop, and the slots of its files.
    async fn workshop(&self) -> Result<(BTreeSet<u64>, Vec<u64>), ServerError> {
        let [staged, _] = self.site.disks();
        let staging = Staging::new(self.site.faulty(staged), u64::MAX);
        Ok((staging.marked_runs().await?, staging.inventory().await?.slots))
    }

    /// Recovers the catalog in `store`.
    async fn made_again(&self, store: &MemoryStore, left: Left) -> Result<(Catalog, Report), ServerError> {
        let (site, known_until) = (self.site, store.sequence());
        let catalog = Catalog::open(Arc::new(store.clone())).await?;
        let drives = (0..site.spec.drives.len()).map(|drive| site.faulty(drive)).collect();
        let mut drives = OfflineRack::over(&site.spec, None, drives);
        let rack = Rack { spec: &site.spec, uuid: RACK, drives: &mut drives };
        let staging = Staging::new(site.faulty(site.disks()[0]), u64::MAX);
        let may_be_older = left != Left::Journal;
        let based = Based { catalog: &catalog, known_until, may_be_older, staging: Some(&staging) };
        let (order, mut report) = (Arc::new(MemoryStore::new()), Report::default());
        let journal = &site.journal;
        let watch = |step: recover::Step<'_>| {
            if let recover::Step::Unusable(what) = step {
                journal.note(|| what.to_owned());
            }
        };
        recover::reconcile(rack, based, order, &mut report, &watch).await?;
        let [staged, _] = site.disks();
        recover::finish(RACK, &catalog, Some(site.faulty(staged)), &mut report).await?;
        Ok((catalog, report))
    }

    /// Checks that a key of the recovered catalog has an allowed content. See the head of this file.
    fn judge(&self, at: &At, (was, before, is): (&Entry, &Entry, &Entry), left: Left) {
        let may_differ = match was {
            _ if left == Left::Journal => false,
            Some((_, Place::Stored { blob, .. })) => self.bad_stacks(*blob) > self.site.spec.code.parity.into(),
            Some(_) => version(before) != version(was),
            None => true,
        };
        let is_known = is
            .as_ref()
            .is_none_or(|(object, _)| serial_of(object).is_some_and(|serial| self.reference.was_ever(at, serial)));
        let is_right = is_known && (may_differ || version(is) == version(was));
        self.site.journal.demand(is_right, Rule::Kept, || {
            format!("{} of a recovered catalog ({left:?}) holds {is:?}, and held {was:?}, and {before:?} before", at.1)
        });
    }

    fn bad_stacks(&self, blob: BlobId) -> usize {
        self.site.overlay.state().bad_stacks(blob).len()
    }

    /// Restarts the model at a key whose content has changed, and deletes an object that is not whole.
    async fn take_over(&self, catalog: &Catalog, at: &At, (was, is): (Entry, Entry)) -> Result<(), ServerError> {
        if version(&was) == version(&is) && !lies_elsewhere_in_the_workshop(&was, &is) {
            return Ok(());
        }
        let is_whole = match &is {
            Some((_, Place::Stored { blob, .. })) => {
                let found = catalog.blob(*blob).await?;
                found.is_some_and(|found| self.site.overlay.state().are_whole(&found))
            }
            _ => false,
        };
        if is.is_some() && !is_whole {
            catalog.delete_object(&at.0, &at.1).await?;
        }
        let held = is.filter(|_| is_whole).and_then(|(object, _)| serial_of(&object));
        self.site.journal.note(|| format!("{} holds {held:?} from now on", at.1));
        self.reference.put_back(at, held);
        Ok(())
    }
}

fn version(entry: &Entry) -> Option<u64> {
    entry.as_ref().map(|(object, _)| object.version.0)
}

/// True for an object that went to the rack and came back to the workshop since the copy: its file is not the one that
/// the copy knows, and belongs to no object.
fn lies_elsewhere_in_the_workshop(was: &Entry, is: &Entry) -> bool {
    let place = |entry: &Entry| entry.as_ref().map(|(_, place)| *place);
    let in_rack = |place: &Option<Place>| matches!(place, Some(Place::Stored { .. }));
    let (was, is) = (place(was), place(is));
    !in_rack(&was) && !in_rack(&is) && was != is
}

async fn entry(catalog: &Catalog, at: &At) -> Entry {
    catalog.get_object(&at.0, &at.1).await.ok()
}

/// True if the same drives are in service in both catalogs, and neither has lost stacks.
async fn drives_are_as_in(old: &Catalog, copy: &Catalog, site: &Site) -> Result<bool, ServerError> {
    if old.replacements().await? != copy.replacements().await? {
        return Ok(false);
    }
    for catalog in [old, copy] {
        let failed = !catalog.failed_drives().await?.is_empty() || !catalog.retiring_drives().await?.is_empty();
        if failed || !catalog.returned_drives().await?.is_empty() {
            return Ok(false);
        }
        for drive in &site.spec.drives {
            if !catalog.lost_page(drive.id, None, 1).await?.blobs.is_empty() {
                return Ok(false);
            }
        }
    }
    let state = site.overlay.state();
    Ok(!state.drives.iter().any(|drive| drive.given_up || drive.abandoned))
}
