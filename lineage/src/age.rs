//! The age of a catalog: is it the newest that ever served this rack and this workshop, and does it have all its
//! records?
//!
//! A catalog that was restored from a backup knows nothing of data that was acknowledged since. It assigns numbers
//! again, and takes deleted data for live and live data for dead. To protect data that only the newer catalog knows,
//! nothing is removed from the rack while such a catalog is in use, nor is any staged file that was ever finished.
//!
//! 1. Each run of a server has a random number. The catalog remembers the last [`RUNS_MAX`] of its runs; the workshop
//!    has the mark of the last one. A catalog that does not remember the marked run is older, and so is everything that
//!    follows from it, until the newer one is restored. A recovered catalog remembers the mark that the workshop had at
//!    the recovery, although it knows nothing of that run.
//! 2. A workshop that was lost, or was restored together with the catalog, shows nothing. Then a drive shows it when it
//!    is first mounted in a run of the server: a stack of an unknown blob was written under a newer catalog if its
//!    header has a higher commit sequence number than this one. A staged file shows it in the same way.
//!
//!    The catalog's number grows meanwhile, and a drive may sleep through several runs. So the catalog remembers the
//!    number at which each run began ([`PastRun`]). A run wrote nothing at a number above the start of the next run,
//!    unless the catalog was set back in between, with its log and the whole disk of the server.
//! 3. The catalog then records that it is older, so that later starts know it as well, however high its own numbers are
//!    by then. The mark is replaced by that of the run which wrote the stack, so that the newer catalog is recognised
//!    when it is restored.
//! 4. Data that is written while the catalog is known to be older is written **aside**: its run says so
//!    ([`RunStamp::is_aside`]). It is no sign against the newer catalog, which does not know it either.
//! 5. A log in front of the catalog shows it as well ([`crate::LogLineage`]). The catalog then records it as in 3, and
//!    marks the batches that it logs itself as aside, as in 4. The earlier content of the log is retained for the
//!    newest catalog.
//!
//! 6. A blob that the catalog knows as begun may be complete in a newer one, which has freed the originals. So unless
//!    the workshop has the mark of a run that the catalog remembers, the stacks of all these blobs stay, also after the
//!    operator's consent.
//!
//! A catalog with missing records is handled in the same way: anything that it does not find may be among those.
//!
//! The operator's consent (`accept_older_catalog` in `larder.toml`) ends all of this if the newer catalog is lost.

use crate::run::{RunStamp, Sequence};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use model::DriveId;
use model::sabotage::{Sabotage, is_on};

/// Runs that a catalog remembers. An unknown staged file of an earlier run is kept until it is inspected.
pub const RUNS_MAX: usize = 256;

/// The signs of the age of a catalog that was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The flaw of the catalog, if records of it are missing.
    pub flaw: Option<String>,
    /// Why the log in front of it has batches that the catalog lacks; `None` if it lacks none.
    pub behind_log: Option<String>,
    /// Why an earlier start found it to be older; `None` if none did.
    pub found_before: Option<String>,
    /// Its runs, the last one last; `None` if their record is damaged.
    pub runs: Option<Vec<u64>>,
    /// How its runs began, the last one last. It may lack the earlier ones: an older version did not record them.
    pub starts: Vec<PastRun>,
    /// The marks of the workshop over which the catalog was recovered.
    pub adopted: Vec<u64>,
    /// The runs that the workshop is marked with.
    pub marked: BTreeSet<u64>,
}

impl Evidence {
    /// True if the workshop was last used with this catalog, as far as it shows. If the record of the catalog's runs is
    /// damaged, only the drives can show it.
    pub fn is_used_last(&self) -> bool {
        let is_marked = |run: &u64| self.marked.contains(run);
        let is_last = |runs: &Vec<u64>| runs.iter().any(is_marked);
        self.marked.is_empty() || self.runs.as_ref().is_none_or(is_last) || self.adopted.iter().any(is_marked)
    }

    /// True if the workshop shows that it was last used with this catalog. A lost workshop shows nothing. A mark that
    /// was adopted shows nothing either: the catalog was recovered, perhaps from an older copy.
    fn is_shown_newest(&self) -> bool {
        let is_marked = |run: &u64| self.marked.contains(run);
        self.flaw.is_none() && self.older().is_none() && self.runs.iter().flatten().any(is_marked)
    }

    /// Why the catalog is older than the data that it belongs to, if a sign shows that.
    fn older(&self) -> Option<String> {
        let said = self.behind_log.clone().or_else(|| self.found_before.clone());
        let by_mark = || "the workshop is marked by a run that only a newer catalog knows".to_owned();
        said.or_else(|| (!self.is_used_last()).then(by_mark))
    }
}

/// A run of the server that begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStart {
    /// A random number, from which the run's own number is made.
    pub nonce: u64,
    /// No blob number from this one on was assigned before.
    pub blobs_end: u64,
    /// No slot from this one on had a file before.
    pub slots_end: u64,
    /// The catalog's commit sequence number when it was opened.
    pub sequence: u64,
}

/// A run of the server, as the catalog remembers it. Copied from [`RunStart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// The number of the run.
    pub run: u64,
    /// The commit sequence number when the catalog was opened.
    pub sequence: u64,
    /// No blob number from this one on was assigned before.
    pub blobs_end: u64,
}

/// A change to the catalog, log or workshop. Orders are executed one after the other, each of them durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The log forgets nothing more in this run.
    RetainLog,
    /// A log that was held until the catalog is stored elsewhere is held no longer.
    ReleaseLog,
    /// Batches are logged aside from now on, or no longer.
    LogAside(bool),
    /// The catalog keeps the stacks of all blobs that it knows as begun, from now on.
    KeepIntents,
    /// The catalog records that it is older, and why; or, with `None`, that it counts anyway.
    RememberOlder(Option<String>),
    /// The catalog records these runs as its own, and no others.
    RememberRuns(Vec<u64>),
    /// The catalog records how these runs began, and no others.
    RememberStarts(Vec<PastRun>),
    /// The workshop gets the mark of this run, and then loses all others.
    MarkWorkshop(u64),
}

/// The known age of the catalog that a server uses.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    accepted: bool,
    older: Option<String>,
    flaw: Option<String>,
    /// Set when this run of the server began.
    begun: Option<(RunStart, RunStamp)>,
    /// How this run and those before it began, the last one last.
    starts: Vec<PastRun>,
    /// Drives that were compared with the catalog in this run of the server.
    looked_at: BTreeSet<DriveId>,
}

impl Lineage {
    /// Nothing is known yet. `accepted` is true if the operator says that this catalog is the newest there is.
    pub fn new(accepted: bool) -> Self {
        Self { accepted, ..Self::default() }
    }

    /// Before a run begins: true if the catalog is whole and the newest one, as far as `evidence` shows.
    pub fn is_newest(&self, evidence: &Evidence) -> bool {
        evidence.flaw.is_none() && (self.accepted || evidence.older().is_none())
    }

    /// Begins a run, before any number is assigned and anything is removed or staged. Returns the orders, in sequence.
    pub fn begin(&mut self, evidence: Evidence, start: RunStart) -> Vec<Order> {
        assert!(self.begun.is_none(), "a run begins once");
        let run = RunStamp::of_nonce(start.nonce);
        self.begun = Some((start, run));
        let older = evidence.older();
        // Before the workshop gets the mark of this run, which a later start would take for a proof.
        let mut keep_intents = (self.accepted || !evidence.is_shown_newest()).then_some(Order::KeepIntents);
        let mut orders = Vec::new();
        if evidence.flaw.is_some() {
            orders.extend((!self.accepted).then_some(Order::RetainLog));
            orders.push(Order::ReleaseLog);
        }
        let mut runs = with_last(evidence.runs.unwrap_or_default(), run.run);
        let this = PastRun { run: run.run, sequence: start.sequence, blobs_end: start.blobs_end };
        self.starts = with_last(evidence.starts, this);
        self.flaw = evidence.flaw;
        if self.accepted {
            orders.push(Order::LogAside(false));
            // A drive that is mounted in a later run shows nothing against a catalog that the operator consented to.
            self.starts = vec![this];
            // It may lack runs or records, or what a lost log had: unknown files of earlier runs are no garbage.
            runs = vec![run.run];
            // Without the sign that it is older, a later start would end the intents.
            orders.extend(keep_intents.take());
            if older.is_some() {
                orders.push(Order::RememberOlder(None));
            }
        } else if let Some(why) = older {
            orders.extend(evidence.behind_log.map(|why| Order::RememberOlder(Some(why))));
            // The next batch puts the mark into the log; the earlier content of the log is retained for the newest
            // copy. The mark of the workshop stays: it identifies the newer catalog when that comes back.
            orders.extend([Order::LogAside(true), Order::ReleaseLog]);
            orders.extend(keep_intents);
            orders.extend([Order::RememberStarts(self.starts.clone()), Order::RememberRuns(runs)]);
            self.older = Some(why);
            return orders;
        }
        // The catalog knows the run before the workshop gets its mark. So a crash in between leaves a mark that the
        // catalog knows, or none in the very first start.
        orders.extend(keep_intents);
        orders.push(Order::RememberStarts(self.starts.clone()));
        orders.extend([Order::RememberRuns(runs), Order::MarkWorkshop(run.run)]);
        orders
    }

    /// Data was found that `stamp` wrote under a newer catalog than this one, as `why` explains. Returns the orders by
    /// which later starts know it as well.
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

    /// Why the catalog is considered older than the rack or the workshop; `None` if it is not.
    pub fn older(&self) -> Option<&str> {
        self.older.as_deref()
    }

    /// Why records of the catalog are missing; `None` if none are.
    pub fn incomplete(&self) -> Option<&str> {
        self.flaw.as_deref()
    }

    /// True if data that this catalog does not know, or no longer needs, may be removed from the rack.
    pub fn may_remove(&self) -> bool {
        (self.older.is_none() && self.flaw.is_none()) || is_on(Sabotage::OlderCatalogTrusted)
    }

    /// True if the file of a slot that this catalog no longer needs may be removed: any, unless there is a newer
    /// catalog. That one knows nothing of this run, and relies on the files that were staged before it.
    pub fn may_free(&self, slot: u64) -> bool {
        self.may_remove() || slot >= self.start().slots_end
    }

    /// The stamp of this run, which marks the data that it writes to the rack.
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

    /// A look at `drive` failed: the next mount looks again.
    pub fn look_again(&mut self, drive: DriveId) {
        self.looked_at.remove(&drive);
    }

    /// True if data that this catalog does not know was written under a newer one: by `stamp`, at the catalog's commit
    /// sequence number `sequence`. Data that was written aside is no sign.
    pub fn is_newer(&self, stamp: RunStamp, sequence: u64) -> bool {
        stamp.run != self.stamp().run && is_newer_than(stamp, sequence, self.end_of(stamp.run))
    }

    /// The highest commit sequence number that the catalog had at the end of `run`: that at the start of the next run,
    /// or, for a run whose start is not recorded, that at the start of this one.
    fn end_of(&self, run: u64) -> Sequence {
        let of_run = self.starts.windows(2).find(|two| two[0].run == run).map(|two| two[1].sequence);
        let this = self.start().sequence;
        Sequence(of_run.map_or(this, |end| end.min(this)))
    }

    /// No blob number from this one on was assigned before the first run whose start is recorded: data of lower numbers
    /// shows nothing ([`is_newer`](Self::is_newer)).
    pub fn blobs_compared_from(&self) -> u64 {
        self.starts.iter().map(|past| past.blobs_end).min().unwrap_or_default()
    }

    /// True if no catalog can ever need a staged file that this one does not know. `stamp` is the run that wrote it;
    /// `None` if its footer is damaged, in which case it may be a newer catalog's. `runs` are the catalog's runs before
    /// this one.
    ///
    /// Everything that was acknowledged in a run before the catalog's last one is in the catalog, because that last run
    /// began with all of it. An unknown file that was staged in such a run was never acknowledged, or its data is gone.
    /// In the last run, the catalog may be a copy that was made while the server ran; files that were staged then are
    /// kept until the next start.
    pub fn is_garbage(&self, stamp: Option<RunStamp>, runs: &[u64]) -> bool {
        let Some((_, before)) = runs.split_last() else { return false };
        self.may_remove() && stamp.is_some_and(|stamp| before.contains(&stamp.run))
    }
}

/// True if `stamp` wrote something at `sequence` under a catalog newer than one with the commit sequence number
/// `newest`, which does not know it.
pub fn is_newer_than(stamp: RunStamp, sequence: u64, newest: Sequence) -> bool {
    !stamp.is_aside && sequence > newest.0
}

/// `before` and then `last`; only the last [`RUNS_MAX`] of them.
fn with_last<T>(mut before: Vec<T>, last: T) -> Vec<T> {
    before.push(last);
    before.drain(..before.len().saturating_sub(RUNS_MAX));
    before
}

#[cfg(test)]
mod tests;
