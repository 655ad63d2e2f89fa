//! The age of a catalog: is it the newest that ever served this rack and this workshop, and are all its records there?
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
//!    than the catalog was written under a newer one. A staged file shows it in the same way.
//! 3. Then the catalog remembers of itself that it is older, so that later starts know it as well, however far it has
//!    got by then; and the mark is replaced by that of the run which wrote the stack, so that the newer catalog is
//!    known when it is put back.
//! 4. What is written while the catalog is known to be older is written **aside**: its run says so
//!    ([`RunStamp::is_aside`]), and it is no sign against the newer catalog, which does not know it either.
//! 5. A log in front of the catalog shows it as well ([`crate::LogLineage`]). Then the catalog remembers it as in 3,
//!    and what it logs itself is marked as aside, as in 4; what the log had before is retained for the newest one.
//!
//! A catalog with missing records is handled in the same way: anything that it does not find may be among those.
//!
//! The operator's consent (`accept_older_catalog` in `larder.toml`) ends all that where the newer catalog is lost.

use crate::run::{RunStamp, Sequence};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use model::DriveId;
use model::sabotage::{Sabotage, is_on};

/// Runs that a catalog remembers. A staged file of an earlier one that nobody knows is kept until it is looked at.
pub const RUNS_MAX: usize = 256;

/// What shows the age of a catalog that was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The flaw of the catalog, if records of it are missing.
    pub flaw: Option<String>,
    /// Why the log in front of it has batches that the catalog has not, if that is so.
    pub behind_log: Option<String>,
    /// Why an earlier start found it to be older, if one did.
    pub found_before: Option<String>,
    /// Its runs, the last one last; `None` where their record is damaged.
    pub runs: Option<Vec<u64>>,
    /// The marks of the workshop over which the catalog was recovered.
    pub adopted: Vec<u64>,
    /// The runs that the workshop is marked with.
    pub marked: BTreeSet<u64>,
}

impl Evidence {
    /// True if the workshop was used last with this catalog, as far as it shows. Where the record of the catalog's runs
    /// is damaged, the drives have to show it.
    pub fn is_used_last(&self) -> bool {
        let is_marked = |run: &u64| self.marked.contains(run);
        let is_last = |runs: &Vec<u64>| runs.iter().any(is_marked);
        self.marked.is_empty() || self.runs.as_ref().is_none_or(is_last) || self.adopted.iter().any(is_marked)
    }

    /// Why the catalog is older than what it belongs to, if something shows that.
    fn older(&self) -> Option<String> {
        let said = self.behind_log.clone().or_else(|| self.found_before.clone());
        let by_mark = || "the workshop is marked by a run that a newer one knows".to_owned();
        said.or_else(|| (!self.is_used_last()).then(by_mark))
    }
}

/// A run of the server that begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStart {
    /// A random number, from which the run gets its own.
    pub nonce: u64,
    /// No blob number from this one on was given out before.
    pub blobs_end: u64,
    /// No slot from this one on had a file before.
    pub slots_end: u64,
    /// The catalog's commit sequence number when it was opened.
    pub sequence: u64,
}

/// Something to be done to catalog, log or workshop. Orders are carried out one after the other, each of them durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The log forgets nothing more in this run.
    RetainLog,
    /// A log that was held until the catalog is kept otherwise is held no more.
    ReleaseLog,
    /// Batches are logged aside from now on, or no more.
    LogAside(bool),
    /// The catalog remembers that it is older, and why; or that it counts all the same.
    RememberOlder(Option<String>),
    /// The catalog remembers these runs of its own, and no others.
    RememberRuns(Vec<u64>),
    /// The workshop gets the mark of this run, and loses all others after that.
    MarkWorkshop(u64),
}

/// What is known of the age of the catalog that a server uses.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    accepted: bool,
    older: Option<String>,
    flaw: Option<String>,
    /// Set when this run of the server began.
    begun: Option<(RunStart, RunStamp)>,
    /// Drives that were looked at in this life of the server.
    looked_at: BTreeSet<DriveId>,
}

impl Lineage {
    /// Nothing is known yet. `accepted` if the operator says that this catalog is the newest there is.
    pub fn new(accepted: bool) -> Self {
        Self { accepted, ..Self::default() }
    }

    /// Before a run begins: true if the catalog is whole and the newest one, as far as `evidence` shows.
    pub fn is_newest(&self, evidence: &Evidence) -> bool {
        evidence.flaw.is_none() && (self.accepted || evidence.older().is_none())
    }

    /// A run begins, before anything is given out, removed or staged. What is to be done, in this order.
    pub fn begin(&mut self, evidence: Evidence, start: RunStart) -> Vec<Order> {
        assert!(self.begun.is_none(), "a run begins once");
        let run = RunStamp::of_nonce(start.nonce);
        self.begun = Some((start, run));
        let older = evidence.older();
        let mut orders = Vec::new();
        if evidence.flaw.is_some() {
            orders.extend((!self.accepted).then_some(Order::RetainLog));
            orders.push(Order::ReleaseLog);
        }
        let mut runs = with_run(evidence.runs.unwrap_or_default(), run.run);
        self.flaw = evidence.flaw;
        if self.accepted {
            orders.push(Order::LogAside(false));
            if older.is_some() {
                orders.push(Order::RememberOlder(None));
                // It does not have all of its earlier runs: what was staged in those and is unknown is no garbage.
                runs = vec![run.run];
            }
        } else if let Some(why) = older {
            orders.extend(evidence.behind_log.map(|why| Order::RememberOlder(Some(why))));
            // From the mark in the log on, which comes with the next batch, what was there before is retained for the
            // newest copy. The mark of the workshop stays: by that the newer catalog is known when it comes back.
            orders.extend([Order::LogAside(true), Order::ReleaseLog, Order::RememberRuns(runs)]);
            self.older = Some(why);
            return orders;
        }
        // The catalog knows the run before the workshop is marked by it, so that a crash in between leaves a mark that
        // the catalog knows; or, in the first start of all, none.
        orders.extend([Order::RememberRuns(runs), Order::MarkWorkshop(run.run)]);
        orders
    }

    /// Something was found that `stamp` wrote under a newer catalog than this, and `why` says so. What is to be done,
    /// so that later starts know it as well.
    pub fn found_newer(&mut self, stamp: RunStamp, why: String) -> Vec<Order> {
        if self.accepted || self.older.is_some() {
            return Vec::new();
        }
        assert_ne!(stamp.run, self.stamp().run, "what this run has written is no sign of a newer catalog");
        self.older = Some(why.clone());
        let remember = Order::RememberOlder(Some(why));
        vec![Order::LogAside(true), Order::ReleaseLog, remember, Order::MarkWorkshop(stamp.run)]
    }

    /// True if the operator says that this catalog is the newest there is.
    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Why the catalog is taken for older than the rack or the workshop, if it is.
    pub fn older(&self) -> Option<&str> {
        self.older.as_deref()
    }

    /// Why records of the catalog are missing, if some are.
    pub fn incomplete(&self) -> Option<&str> {
        self.flaw.as_deref()
    }

    /// True if what this catalog does not know, or has no more use for, may be removed from the rack.
    pub fn may_remove(&self) -> bool {
        (self.older.is_none() && self.flaw.is_none()) || is_on(Sabotage::OlderCatalogTrusted)
    }

    /// True if the file of a slot that this catalog has no more use for may be removed: any, unless there is a newer
    /// catalog. That knows of nothing that this run has done, and counts on what was staged before.
    pub fn may_free(&self, slot: u64) -> bool {
        self.may_remove() || slot >= self.start().slots_end
    }

    /// This run, as what it writes to the rack names it.
    pub fn stamp(&self) -> RunStamp {
        let run = self.begun.map(|(_, run)| run).unwrap_or_default();
        RunStamp { is_aside: self.older.is_some(), ..run }
    }

    /// This run's start; zeros before that.
    pub fn start(&self) -> RunStart {
        self.begun.map(|(start, _)| start).unwrap_or_default()
    }

    /// True if `drive` is to be compared with the catalog now: once in a run of the server.
    pub fn is_first_look(&mut self, drive: DriveId) -> bool {
        self.begun.is_some() && !self.accepted && self.looked_at.insert(drive)
    }

    /// A look at `drive` came to nothing: the next mount looks again.
    pub fn look_again(&mut self, drive: DriveId) {
        self.looked_at.remove(&drive);
    }

    /// True if something that this catalog does not know was written under a newer one: by `stamp`, at the catalog's
    /// commit sequence number `sequence`. What was written aside is no sign.
    pub fn is_newer(&self, stamp: RunStamp, sequence: u64) -> bool {
        stamp.run != self.stamp().run && is_newer_than(stamp, sequence, Sequence(self.start().sequence))
    }

    /// True if nobody can ever want a staged file that the catalog does not know. `stamp` is the run that wrote it;
    /// `None` if its footer is damaged, which may be a newer catalog's. `runs` are the catalog's runs before this one.
    ///
    /// Everything that was acknowledged in a run before the catalog's last one is in the catalog: that last run began
    /// with all of it. What was staged in such a run and is not known was never acknowledged, or is gone. In the last
    /// run the catalog may be a copy that was made while the server ran; what was staged then is kept until the next
    /// start.
    pub fn is_garbage(&self, stamp: Option<RunStamp>, runs: &[u64]) -> bool {
        let Some((_, before)) = runs.split_last() else { return false };
        self.may_remove() && stamp.is_some_and(|stamp| before.contains(&stamp.run))
    }
}

/// True if `stamp` wrote something under a catalog newer than one with the commit sequence number `newest`, at
/// `sequence`, which that one does not know.
pub fn is_newer_than(stamp: RunStamp, sequence: u64, newest: Sequence) -> bool {
    !stamp.is_aside && sequence > newest.0
}

/// `runs` and `run`; of all those the last [`RUNS_MAX`].
fn with_run(mut runs: Vec<u64>, run: u64) -> Vec<u64> {
    runs.push(run);
    runs.drain(..runs.len().saturating_sub(RUNS_MAX));
    runs
}

#[cfg(test)]
mod tests;
