//! The order of a run: lives of a server with faults, each with its own end; then a life without faults, in which
//! everything must finish, and one that reads it all again.

use crate::front::Cut;
use crate::journal::Rule;
use crate::kinds::FaultKind;
use crate::limits::{close, no_fuse_tripped};
use crate::plan::{Life, LifeEnd, Plan, Stream};
use crate::reference::Reference;
use crate::site::{Ended, Running, Site};
use crate::{clients, healing, panics, recovery, storm};
use catalog::{Catalog, Store};
use futures::FutureExt;
use model::Rng;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Runs `plan` on this thread, and returns the site with the results.
pub(crate) fn run(plan: &Plan) -> Site {
    let _gathering = panics::Gathering::begin();
    let mut site = Site::new(plan.clone());
    let journal = Arc::clone(&site.journal);
    let ran =
        std::panic::catch_unwind(AssertUnwindSafe(|| Run { site: &mut site, reference: Reference::default() }.run()));
    let panicked = panics::Gathering::all();
    journal.demand(ran.is_ok() && panicked.is_empty(), Rule::Assertion, || panicked.join("; "));
    site
}

/// Runs the clients until they finish or, in runs with that kind of end, until the server is stopped: the front ends
/// first and cuts them off, then the server closes, while faults and the operator continue.
async fn live_until_stopped(running: &Running, reference: &Reference, plan: &Plan, life: (u64, &Life)) {
    let clients = Box::pin(clients::live(running, reference, plan, life));
    let Some(after) = plan.stopped_after(life) else { return clients.await };
    let through = tokio::time::timeout(after, clients).await.is_ok();
    running.journal.note(|| format!("the server is stopped; its clients are through: {through}"));
    close(running).await;
}

struct Run<'a> {
    site: &'a mut Site,
    reference: Reference,
}

impl Run<'_> {
    fn run(mut self) {
        let lives = self.site.plan.lives.clone();
        for (round, life) in lives.iter().enumerate() {
            self.live(round as u64, life);
            if self.site.journal.is_over() {
                return;
            }
        }
        healing::heal(self.site, &self.reference);
    }

    fn live(&mut self, round: u64, life: &Life) {
        let backup = life.older_catalog.then(|| (self.site.catalog.snapshot(), self.reference.clone()));
        let copy = life.lost_catalog.map(|left| (left, self.site.catalog.snapshot()));
        if let LifeEnd::Killed(steps) | LifeEnd::PowerLost(steps) = life.end {
            self.site.power.fail_in(steps);
        }
        self.site.journal.note(|| format!("life {round} begins"));
        let (plan, reference) = (self.site.plan.clone(), &self.reference);
        let mut booted = false;
        let ended = self.site.live(async |running| {
            booted = true;
            tokio::select! {
                biased;
                () = live_until_stopped(running, reference, &plan, (round, life)) => {}
                () = storm::rage(running, &plan, (round, life)) => {}
            }
            no_fuse_tripped(running);
            if life.end == LifeEnd::Stopped && !plan.abrupt {
                healing::lull(running, reference, &plan).await;
                close(running).await;
            }
        });
        self.reference.life_ended();
        self.end(round, life, ended);
        if let Some((left, copy)) = copy.filter(|_| booted && !self.site.journal.is_over()) {
            recovery::lose(self.site, &self.reference, (left, &copy));
        }
        if life.audited && !self.site.journal.is_over() {
            self.site.live(async |running| healing::audit(running, healing::Moment::Start).await);
            self.reference.life_ended();
        }
        // A life that ended before it began has made no newer catalog. A catalog that knows of no staged file is taken
        // for a new one if there are staged files, as it has to be.
        let is_newer = booted && self.has_staged();
        if let Some((older, before)) = backup.filter(|_| is_newer && !self.site.journal.is_over()) {
            self.live_with_older(older, &before);
        }
    }

    /// True if the catalog has ever assigned a slot to a staged file.
    fn has_staged(&self) -> bool {
        let end = async {
            let catalog = Catalog::open_read_only(Arc::new(self.site.catalog.clone())).await.ok()?;
            catalog.slots_end().await.ok()
        };
        end.now_or_never().flatten().is_some_and(|end| end > 1)
    }

    /// Applies the end of a life, and the time until the next one.
    fn end(&mut self, round: u64, life: &Life, ended: Ended) {
        let rng = &mut Stream::End { round }.of(self.site.plan.seed);
        self.site.journal.note(|| format!("life {round} ends: {:?}, {ended:?}", life.end));
        match life.end {
            LifeEnd::PowerLost(_) => {
                self.site.overlay.count(FaultKind::PowerLoss);
                self.lose_power(rng);
            }
            LifeEnd::Killed(_) => {
                self.site.overlay.count(FaultKind::Kill);
                self.reopen_log(Cut::Kill);
            }
            LifeEnd::Stopped => self.reopen_log(Cut::Closed),
        }
        self.site.power.restore();
        self.site.catalog.set_full(false);
        let longest_ms = [1, 10_000, 10_000_000][rng.below(3) as usize];
        let span = Duration::from_millis(rng.below(longest_ms));
        let jumps = self.site.plan.has(FaultKind::ClockJump) && rng.below(2) == 0;
        let jump_ms = if jumps { rng.below(100_000_000_000).cast_signed() - 50_000_000_000 } else { 0 };
        self.site.rest(span, jump_ms);
    }

    /// Opens the log in front of the catalog again, as the next start does.
    fn reopen_log(&mut self, cut: Cut) {
        if self.site.has_own_log() {
            let store = self.site.catalog.crash();
            self.site.catalog = self.site.behind_front(store, cut);
        }
    }

    /// The power fails: unsynced data is lost, in all places at once.
    fn lose_power(&mut self, rng: &mut Rng) {
        let unsynced = self.site.catalog.unsynced() as u64;
        let lost = if unsynced == 0 { 0 } else { rng.below(unsynced + 1) as usize };
        let store = self.site.log.crash(&self.site.catalog, lost);
        self.site.catalog = self.site.behind_front(store, Cut::PowerLoss);
        let mut state = self.site.overlay.state();
        for drive in 0..state.drives.len() {
            state.power_lost(drive, rng);
        }
    }

    /// Restores the catalog from a backup, uses it for a while, and replaces it by the newest.
    fn live_with_older(&mut self, older: catalog::MemoryStore, before: &Reference) {
        self.site.journal.note(|| "the catalog is put back from a backup".to_owned());
        let backed_up = older.sequence();
        let older = self.site.behind_front(older, Cut::None).numbered_above(self.site.catalog.sequence());
        if older.behind_log().is_none() && older.sequence() == self.site.catalog.sequence() {
            self.site.journal.note(|| "its log has all that it lacks: it is the newest".to_owned());
            self.site.catalog = older;
            return;
        }
        if older.sequence() != backed_up {
            self.site.journal.note(|| "its log has some of what it lacks: no model says what it holds".to_owned());
            let newest = self.site.catalog.crash();
            self.site.catalog = self.site.behind_front(newest, Cut::None);
            return;
        }
        self.site.overlay.count(FaultKind::OlderCatalog);
        let newest = std::mem::replace(&mut self.site.catalog, older);
        self.site.newest = Some(newest.clone());
        let log = self.site.log.take();
        let plan = self.site.plan.clone();
        before.life_ended();
        self.site.live(async |running| {
            healing::use_older(running, before, &plan).await;
            close(running).await;
        });
        self.site.newest = None;
        self.site.catalog = self.site.behind_front(newest, Cut::None);
        self.site.log = log;
        let behind = self.site.catalog.behind_log().map(ToOwned::to_owned);
        self.site.journal.demand(behind.is_none(), Rule::Honest, || format!("the newest catalog: {behind:?}"));
        self.site.journal.note(|| "the newest catalog is back".to_owned());
    }
}
