//! The migrator: when staged data moves to the rack, and in what packs.
//!
//! 1. A scan starts when something may be due: data above its due age, the workshop above its regular threshold while
//!    no client waits, or above its critical one whoever waits (SOHO, Table I; what "regular" means is ours). What
//!    moves for a threshold's sake is what comes first in the order of [`MoveRank`], and no more than is too much.
//! 2. The world lists staged versions in key order, page by page. Small ones are gathered into packs up to the target
//!    size, one open pack per pin; one as large as a pack is a blob of its own.
//! 3. A full pack is composed by the world and comes back as a background write. So many writes may be under way at
//!    once that the scheduler can batch them by group; while the window is full, the listing waits. Of packs of very
//!    many objects there are fewer at once (`FULL_PACKS_MAX`).
//!    A write whose source cannot be read is composed anew without it, at once, and is no reason to wait: it says
//!    nothing about other writes.
//! 4. At the end of the listing a pack below its size is written only if its data has waited long enough, or must go.
//! 5. With a thermometer ([`crate::thermometer`]), what a rule calls cold is due, and what is hot stays. Above the
//!    critical threshold hot data moves after all other, until the workshop is at that threshold again, in whole packs.
//! 6. While a pass of checks ([`checks`]) reads the workshop anyway, its pages stand for a listing: this is a *ride*.
//!    What is due on them, or cold above the regular threshold, is gathered as from any page, and with it the bytes
//!    that are in memory. No other scan goes on meanwhile but one above the critical threshold, which ends the ride;
//!    and after `linger` it ends by itself, so that what lies elsewhere waits no longer than a pack may.
//!
//! Invariant: what the migrator holds is bounded by one page and one pack per pin; it never names a version twice in
//! one scan. Freeing staged data is not decided here: it follows a committed blob and nothing else.
//!
//! A [`Rack`](crate::Rack) has a migrator; the reproduction of SOHO (`sim/src/soho/`) runs the same one in front of a
//! single disk. [`pacing`] decides block by block when what was composed is copied.

pub mod checks;
pub mod dry_run;
mod load;
mod order;
mod outlook;
pub mod pacing;
mod selection;

pub use load::{LOAD_WINDOW, LoadMeter};
pub use order::MoveRank;
pub use outlook::Outlook;
pub use selection::Selection;

use crate::action::{Action, Taking, held_cost};
use crate::event::{CheckedEntry, StagedEntry, Usage};
use crate::ops::MIGRATOR_OPS;
use crate::policy::{MigrationPolicy, PinnedTo};
use crate::thermometer::{Heat, Temperature};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, GroupId, OpId, Time};

/// Versions a page of a listing may hold.
pub const STAGED_PAGE_ENTRIES: u32 = 512;

/// So many packs may be under way that have as many members as a pack may have, or more packs of fewer: a world holds
/// the name and the metadata of each member meanwhile.
const FULL_PACKS_MAX: u64 = 4;

/// How long the migrator leaves the rack alone after a write was refused or failed.
const BACKOFF: Duration = Duration::from_secs(30);

/// How often a pack is composed anew, one time after the other, because something in it cannot be read. Every byte of
/// it is read before it goes out again, so that once is enough unless files go bad at that very moment.
const RECOMPOSED_MAX: u32 = 3;

/// The workshop is looked through no more often than this, or a rack with nothing to move would never come to rest.
const SCAN_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Why a scan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// Something may be older than the due age.
    Due,
    /// The workshop is above its regular threshold and nobody waits.
    Regular,
    /// The workshop is above its critical threshold.
    Critical,
}

/// A pack that is being gathered.
#[derive(Clone, Debug, Default)]
struct OpenPack {
    versions: Vec<u64>,
    bytes: u64,
    /// What its members take that are in memory.
    held_bytes: u64,
    oldest: Duration,
    /// The longest that a member has been due by a rule.
    due_for: Option<Duration>,
}

/// What the migrator wants of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Nothing is to move.
    Nothing,
    /// This, for the ride of this number.
    Take(Attempt, Taking),
    /// Something may have to, and cannot be taken just now.
    NotNow,
}

/// A listing under way.
#[derive(Clone, Debug)]
struct Scan {
    reason: Reason,
    attempt: Attempt,
    /// The page after the last one waits for room in the window.
    paused: bool,
    open: BTreeMap<PinnedTo, OpenPack>,
    /// When it began, if the pages are those of a pass of checks.
    ride: Option<Time>,
}

/// Decides when and how staged data migrates. See the head of this file.
#[derive(Clone, Debug)]
pub struct Migrator {
    policy: MigrationPolicy,
    /// How full the workshop is now.
    pub usage: Usage,
    scan: Option<Scan>,
    next_scan: Time,
    /// Until then the rack is left alone, since a write failed.
    left_alone: Time,
    attempt: Attempt,
    next_op: u64,
    /// The writes under way, from composing to their end.
    under_way: BTreeMap<OpId, UnderWay>,
    /// Bytes of hot versions that were composed all the same.
    hot_moved_bytes: u64,
}

/// A write under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    /// Its payload bytes.
    bytes: u64,
    /// Its versions when it was composed first.
    members: u64,
    /// What those of them take that are in memory, until its end.
    held_bytes: u64,
    /// How often it was composed anew since something in it could not be read.
    recomposed: u32,
    /// The group that it was being written to then.
    group: Option<GroupId>,
}

impl Migrator {
    /// A migrator that has seen nothing yet.
    pub fn new(mut policy: MigrationPolicy) -> Self {
        assert!(policy.regular_permille <= policy.critical_permille, "critical lies above regular");
        let drained = policy.drained_permille.unwrap_or(policy.regular_permille);
        assert!(drained <= policy.regular_permille, "a move from above regular ends no higher");
        policy.scan_interval = policy.scan_interval.max(SCAN_INTERVAL_MIN);
        assert!(policy.pack_bytes > 0 && policy.pack_members > 0 && policy.window > 0, "a pack holds something");
        Self {
            policy,
            usage: Usage::default(),
            scan: None,
            next_scan: Time::ZERO,
            left_alone: Time::ZERO,
            attempt: Attempt(0),
            next_op: MIGRATOR_OPS,
            under_way: BTreeMap::new(),
            hot_moved_bytes: 0,
        }
    }

    /// Bytes of hot versions that went into packs, since the workshop was above its critical threshold.
    pub fn hot_moved_bytes(&self) -> u64 {
        self.hot_moved_bytes
    }

    /// Migration writes from composing to their end.
    pub fn writes_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether data is being listed or written: with SOHO's blocking moves, whether clients wait.
    pub fn is_moving(&self) -> bool {
        self.scan.is_some() || !self.under_way.is_empty()
    }

    /// Whether `op` is a write that was composed and has not come to its end.
    pub fn awaits(&self, op: OpId) -> bool {
        self.under_way.contains_key(&op)
    }

    /// Whether the workshop is above its critical threshold.
    pub fn is_critical(&self) -> bool {
        self.above(self.policy.critical_permille)
    }

    fn above(&self, permille: u32) -> bool {
        let limit = u128::from(self.usage.capacity_bytes) * u128::from(permille);
        u128::from(self.usage.staged_bytes) * 1000 > limit
    }

    /// Bytes that must go for the workshop to be at this share (in thousandths), beyond those already on their way.
    fn excess_bytes(&self, permille: u32) -> u64 {
        let share = u128::from(self.usage.capacity_bytes) * u128::from(permille) / 1000;
        let leaving: u64 = self.under_way.values().map(|write| write.bytes).sum();
        self.usage.staged_bytes.saturating_sub(share as u64).saturating_sub(leaving)
    }

    /// The same for the share at which a move for this reason ends.
    fn excess_for(&self, reason: Reason) -> Option<u64> {
        let regular = self.policy.regular_permille;
        match reason {
            Reason::Due => None,
            Reason::Regular => Some(self.excess_bytes(regular)),
            Reason::Critical => Some(self.excess_bytes(self.policy.drained_permille.unwrap_or(regular))),
        }
    }

    /// Bytes that must go, hot ones too, for the workshop to be no longer above its critical threshold: whole packs, or
    /// each write that is taken in would cost one of its own.
    fn hot_excess_bytes(&self) -> u64 {
        let is_used = self.policy.thermometer.is_used();
        let excess = if is_used { self.excess_bytes(self.policy.critical_permille) } else { 0 };
        excess.div_ceil(self.policy.pack_bytes).saturating_mul(self.policy.pack_bytes)
    }

    /// When to look again; [`Time::MAX`] while there is nothing to look at or an answer is awaited.
    pub fn deadline(&self) -> Time {
        let is_broken = |scan: &Scan| scan.ride.is_some() && self.must_drain();
        let waiting = self.scan.as_ref().is_some_and(|scan| !scan.paused && !is_broken(scan));
        if waiting || self.usage.staged_bytes == 0 || self.window_is_full() { Time::MAX } else { self.next_scan }
    }

    fn window_is_full(&self) -> bool {
        let members: u64 = self.under_way.values().map(|write| write.members).sum();
        let most = FULL_PACKS_MAX * u64::from(self.policy.pack_members);
        self.under_way.len() >= self.policy.window as usize || members >= most
    }

    /// Starts or goes on with a scan if there is reason to. `clients_wait` says whether any client's operation is
    /// queued or in service.
    pub fn poll(&mut self, now: Time, clients_wait: impl FnOnce() -> bool, actions: &mut Vec<Action>) {
        if self.window_is_full() || now < self.next_scan {
            return;
        }
        if self.is_riding() && self.must_drain() {
            self.end_ride(actions);
        }
        if let Some(scan) = &mut self.scan {
            if core::mem::take(&mut scan.paused) {
                let (reason, attempt) = (scan.reason, scan.attempt);
                self.ask_for_page(reason, attempt, false, actions);
            }
            return;
        }
        assert!(!self.window_is_full(), "no scan begins while the window is full");
        // What is due may have to wait for a pass of checks.
        let reason = self.reason(clients_wait());
        let Some(reason) = reason.filter(|reason| *reason != Reason::Due || !self.policy.due_with_checks) else {
            self.next_scan = now + self.policy.scan_interval;
            return;
        };
        self.begin_scan(reason, None);
        self.ask_for_page(reason, self.attempt, true, actions);
    }

    fn begin_scan(&mut self, reason: Reason, ride: Option<Time>) {
        assert!(self.usage.staged_bytes > 0 && self.scan.is_none(), "a scan looks for something, and is the only one");
        self.attempt = Attempt(self.attempt.0.wrapping_add(1));
        self.scan = Some(Scan { reason, attempt: self.attempt, paused: false, open: BTreeMap::new(), ride });
    }

    /// Whether data must go whatever else goes on.
    fn must_drain(&self) -> bool {
        self.is_critical() && self.excess_for(Reason::Critical).is_some_and(|bytes| bytes > 0)
    }

    fn is_riding(&self) -> bool {
        self.scan.as_ref().is_some_and(|scan| scan.ride.is_some())
    }

    /// What a pass of checks is to take of its next page, with so much memory for it. May begin a ride.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        clients_wait: impl FnOnce() -> bool,
        memory_bytes: u64,
        actions: &mut Vec<Action>,
    ) -> Offer {
        let cannot = self.window_is_full() || now < self.left_alone || self.must_drain();
        let anew = match self.scan.as_ref().map(|scan| scan.ride) {
            Some(None) => return Offer::NotNow,
            Some(Some(_)) if self.end_long_ride(now, actions) || cannot => return Offer::NotNow,
            Some(Some(_)) => false,
            None => match self.reason(clients_wait()) {
                None => return Offer::Nothing,
                Some(Reason::Critical) => return Offer::NotNow,
                Some(_) if cannot => return Offer::NotNow,
                Some(reason) => {
                    self.begin_scan(reason, Some(now));
                    true
                }
            },
        };
        let Some(scan) = self.scan.as_ref() else { return Offer::Nothing };
        let under_way: u64 = self.under_way.values().map(|write| write.held_bytes).sum();
        let open: u64 = scan.open.values().map(|pack| pack.held_bytes).sum();
        let hold_bytes = memory_bytes.saturating_sub(under_way + open);
        if under_way > 0 && hold_bytes < memory_bytes / 4 {
            return Offer::NotNow; // soon there is memory again
        }
        let (older_than, coldest_bytes) = self.asked_of(scan.reason);
        let (order, min_bytes) = (self.policy.order, self.policy.min_bytes);
        let taking = Taking { older_than, order, coldest_bytes, min_bytes, hold_bytes, anew };
        Offer::Take(scan.attempt, taking)
    }

    /// Ends a ride that has kept other scans waiting for too long.
    pub(crate) fn end_long_ride(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let most = self.policy.linger.max(self.policy.scan_interval);
        let ride = self.scan.as_ref().and_then(|scan| scan.ride);
        let is_long = ride.is_some_and(|begun| now.since(begun) > most);
        if is_long {
            self.end_ride(actions);
        }
        is_long
    }

    /// Takes what is handed over on a page of the ride `ride`. What is left of it in memory, if that is over, is let
    /// go.
    pub(crate) fn hand_over(&mut self, ride: Option<Attempt>, entries: &[CheckedEntry], actions: &mut Vec<Action>) {
        let ours = |scan: &mut Scan| scan.ride.is_some() && Some(scan.attempt) == ride;
        let Some(mut scan) = self.scan.take_if(ours) else {
            if entries.iter().any(|entry| entry.held) {
                actions.push(Action::ReleaseChecked);
            }
            return;
        };
        for checked in entries.iter().filter(|checked| checked.taken) {
            let held_bytes = if checked.held { held_cost(checked.entry.bytes) } else { 0 };
            self.gather(&mut scan, (&checked.entry, held_bytes), actions);
        }
        self.scan = Some(scan);
    }

    /// Ends the ride, if there is one: packs that are worth it are composed, and the others let go.
    pub(crate) fn end_ride(&mut self, actions: &mut Vec<Action>) {
        let Some(scan) = self.scan.take_if(|scan| scan.ride.is_some()) else { return };
        self.close(scan, actions);
        actions.push(Action::ReleaseChecked);
    }

    fn reason(&self, clients_wait: bool) -> Option<Reason> {
        if self.usage.staged_bytes == 0 {
            return None;
        }
        assert!(!self.is_critical() || self.above(self.policy.regular_permille), "critical lies above regular");
        let has_excess = |reason| self.excess_for(reason).is_some_and(|bytes| bytes > 0);
        let thermometer = &self.policy.thermometer;
        // Where nothing is cold but by a rule, the regular threshold finds nothing that is not due.
        let may_be_cold = thermometer.default == Temperature::Cold;
        if self.must_drain() {
            return Some(Reason::Critical);
        }
        if self.above(self.policy.regular_permille) && !clients_wait && may_be_cold && has_excess(Reason::Regular) {
            return Some(Reason::Regular);
        }
        let may_be_due = self.policy.due_age.is_some() && may_be_cold || thermometer.has_cold_rules();
        may_be_due.then_some(Reason::Due)
    }

    /// The age from which cold versions are listed for this reason, and how many bytes of the coldest.
    fn asked_of(&self, reason: Reason) -> (Duration, Option<u64>) {
        let older_than = match reason {
            Reason::Due => self.policy.due_age.unwrap_or(Duration::MAX),
            Reason::Regular => self.policy.min_age,
            Reason::Critical => Duration::ZERO,
        };
        (older_than, self.excess_for(reason))
    }

    fn ask_for_page(&self, reason: Reason, attempt: Attempt, restart: bool, actions: &mut Vec<Action>) {
        let (older_than, coldest_bytes) = self.asked_of(reason);
        let hot_bytes = if reason == Reason::Critical { self.hot_excess_bytes() } else { 0 };
        let (limit, order) = (STAGED_PAGE_ENTRIES, self.policy.order);
        actions.push(Action::ListStaged { attempt, older_than, order, coldest_bytes, hot_bytes, limit, restart });
    }

    /// A page of the listing has come, and whether there are more.
    pub fn page(
        &mut self,
        now: Time,
        attempt: Attempt,
        (entries, more): (&[StagedEntry], bool),
        actions: &mut Vec<Action>,
    ) {
        let Some(mut scan) = self.scan.take_if(|scan| scan.attempt == attempt && !scan.paused && scan.ride.is_none())
        else {
            return; // late or twice
        };
        for entry in entries {
            self.gather(&mut scan, (entry, 0), actions);
        }
        if !more {
            self.close(scan, actions);
            self.next_scan = now + self.policy.scan_interval;
        } else if self.window_is_full() {
            scan.paused = true;
            self.scan = Some(scan);
        } else {
            self.ask_for_page(scan.reason, scan.attempt, false, actions);
            self.scan = Some(scan);
        }
    }

    /// Takes `entry` into its open pack; `held_bytes` is what it takes in memory, if it is there.
    fn gather(&mut self, scan: &mut Scan, (entry, held_bytes): (&StagedEntry, u64), actions: &mut Vec<Action>) {
        if scan.reason != Reason::Critical && entry.bytes < self.policy.min_bytes {
            return;
        }
        if entry.heat == Heat::Hot {
            assert!(scan.reason == Reason::Critical, "hot data is listed above the critical threshold only");
            self.hot_moved_bytes = self.hot_moved_bytes.saturating_add(entry.bytes);
        }
        if entry.bytes >= self.policy.pack_bytes {
            self.compose(entry.pin, (alloc::vec![entry.version], entry.bytes, held_bytes), actions);
            return;
        }
        let open = scan.open.entry(entry.pin).or_default();
        let full = open.bytes + entry.bytes > self.policy.pack_bytes;
        if full || open.versions.len() >= self.policy.pack_members as usize {
            let pack = core::mem::take(open);
            self.compose(entry.pin, (pack.versions, pack.bytes, pack.held_bytes), actions);
        }
        let open = scan.open.entry(entry.pin).or_default();
        open.versions.push(entry.version);
        open.bytes += entry.bytes;
        open.held_bytes += held_bytes;
        assert!(open.bytes <= self.policy.pack_bytes, "packs grow to their size and no further");
        assert!(open.versions.len() <= self.policy.pack_members as usize, "a pack has at most so many members");
        if let Heat::Due(due_for) = entry.heat {
            open.due_for = open.due_for.max(Some(due_for));
        } else {
            open.oldest = open.oldest.max(entry.age);
        }
    }

    fn close(&mut self, scan: Scan, actions: &mut Vec<Action>) {
        let long_enough = self.policy.due_age.map(|due| due.saturating_add(self.policy.linger));
        for (pin, pack) in scan.open {
            let waited = long_enough.is_some_and(|enough| pack.oldest >= enough)
                || pack.due_for.is_some_and(|due_for| due_for >= self.policy.linger);
            let worth_it = pack.bytes >= self.policy.pack_bytes / 2;
            // What has waited for this ride would wait for another pass.
            let has_to = scan.reason == Reason::Critical || self.policy.due_with_checks && scan.ride.is_some();
            if !pack.versions.is_empty() && (has_to || waited || worth_it) {
                self.compose(pin, (pack.versions, pack.bytes, pack.held_bytes), actions);
            }
        }
    }

    fn compose(
        &mut self,
        pin: PinnedTo,
        (versions, bytes, held_bytes): (Vec<u64>, u64, u64),
        actions: &mut Vec<Action>,
    ) {
        assert!(!versions.is_empty(), "an empty pack is never written");
        let members = versions.len() as u64;
        let op = self.begin(UnderWay { bytes, members, held_bytes, recomposed: 0, group: None });
        actions.push(Action::Compose { op, versions, pin });
    }

    fn begin(&mut self, write: UnderWay) -> OpId {
        assert!(self.next_op >= MIGRATOR_OPS, "the migrator's numbers lie above the world's");
        let op = OpId(self.next_op);
        self.next_op += 1;
        let known = self.under_way.insert(op, write);
        assert!(known.is_none(), "{op} is one write");
        op
    }

    /// The write `of`, which is about to end since something in it cannot be read, is composed anew and takes its place
    /// in the window: the number of the write to come. `None` if it is no write of this migrator, or that was done
    /// several times already and helped nothing.
    pub fn recompose(&mut self, of: OpId, group: GroupId) -> Option<OpId> {
        let UnderWay { bytes, members, recomposed, .. } = *self.under_way.get(&of)?;
        if recomposed == RECOMPOSED_MAX {
            return None;
        }
        assert!(recomposed < RECOMPOSED_MAX, "{of} is composed anew a few times at most");
        self.under_way.remove(&of);
        // Every byte of it is read before it goes out again, and none is in memory then.
        Some(self.begin(UnderWay { bytes, members, held_bytes: 0, recomposed: recomposed + 1, group: Some(group) }))
    }

    /// The group that was awake when `op` was composed anew, if it was.
    pub fn group_of(&self, op: OpId) -> Option<GroupId> {
        self.under_way.get(&op)?.group
    }

    /// A write of this migrator came to its end; ignored if it is not one. After a failure it leaves the rack alone for
    /// a while, since writing the same data would fail the same way.
    pub fn ended(&mut self, now: Time, op: OpId, well: bool) {
        if self.under_way.remove(&op).is_some() && !well {
            self.left_alone = now + BACKOFF;
            self.next_scan = self.next_scan.max(self.left_alone);
            assert!(self.next_scan > now, "after a failure the rack is left alone for a while");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::policy::MoveOrder;
    use crate::thermometer::{Rule, Thermometer};
    use alloc::vec;

    const MB: u64 = 1_000_000;

    fn policy() -> MigrationPolicy {
        MigrationPolicy {
            due_age: Some(Duration::from_secs(30)),
            min_age: Duration::from_secs(10),
            min_bytes: 0,
            regular_permille: 300,
            critical_permille: 800,
            drained_permille: None,
            order: MoveOrder::default(),
            pack_bytes: 8 * MB,
            pack_members: 1000,
            linger: Duration::ZERO,
            window: 4,
            scan_interval: Duration::from_secs(5),
            thermometer: Thermometer::default(),
            due_with_checks: false,
        }
    }

    fn entry(version: u64, bytes: u64) -> StagedEntry {
        let (age, pin) = (Duration::from_secs(40), PinnedTo::Anywhere);
        StagedEntry { version, bytes, age, pin, heat: Heat::Cold }
    }

    fn with_usage(staged_bytes: u64) -> Migrator {
        let mut migrator = Migrator::new(policy());
        migrator.usage = Usage { staged_bytes, capacity_bytes: 100 * MB };
        migrator
    }

    fn composed(actions: &[Action]) -> Vec<Vec<u64>> {
        actions
            .iter()
            .filter_map(|action| match action {
                Action::Compose { versions, .. } => Some(versions.clone()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn small_objects_share_packs_and_large_ones_are_blobs_of_their_own() {
        let mut migrator = with_usage(30 * MB);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        let Action::ListStaged { attempt, restart: true, coldest_bytes: None, .. } = actions[0] else { panic!() };
        actions.clear();
        let entries = [entry(1, 3 * MB), entry(2, 4 * MB), entry(3, 9 * MB), entry(4, 2 * MB), entry(5, MB)];
        migrator.page(Time::from_secs(1), attempt, (&entries, false), &mut actions);
        assert_eq!(composed(&actions), [vec![3], vec![1, 2], vec![4, 5]]);
        assert_eq!(migrator.writes_under_way(), 3);
    }

    #[test]
    fn of_packs_of_very_many_objects_there_are_few_at_once() {
        let mut migrator = Migrator::new(MigrationPolicy { pack_members: 2, window: 32, ..policy() });
        migrator.usage = Usage { staged_bytes: 30 * MB, capacity_bytes: 100 * MB };
        let (mut actions, mut listed) = (vec![], 0);
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        let Action::ListStaged { attempt, .. } = actions[0] else { panic!() };
        while migrator.scan.as_ref().is_some_and(|scan| !scan.paused) {
            listed += 1;
            migrator.page(Time::from_secs(1), attempt, (&[entry(listed, 1000)], true), &mut actions);
        }
        // A pack is composed when the first of the next one comes.
        assert_eq!((composed(&actions).len(), listed), (4, 9));
        assert_eq!(migrator.deadline(), Time::MAX);
        migrator.ended(Time::from_secs(2), OpId(MIGRATOR_OPS), true);
        assert!(migrator.deadline() < Time::MAX, "it goes on when one has ended");
    }

    #[test]
    fn a_late_or_second_page_changes_nothing() {
        let mut migrator = with_usage(30 * MB);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        actions.clear();
        migrator.page(Time::from_secs(1), Attempt(77), (&[entry(1, MB)], false), &mut actions);
        migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, MB)], false), &mut actions);
        migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, MB)], false), &mut actions);
        assert_eq!(composed(&actions), [vec![1]]);
    }

    #[test]
    fn thresholds_ask_for_the_coldest_and_only_as_much_as_is_too_much() {
        let ask = |staged: u64, clients_wait| {
            let mut actions = vec![];
            with_usage(staged).poll(Time::from_secs(1), || clients_wait, &mut actions);
            match actions.as_slice() {
                [Action::ListStaged { older_than, coldest_bytes, .. }] => (older_than.as_secs(), *coldest_bytes),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(20 * MB, false), (30, None));
        assert_eq!(ask(50 * MB, false), (10, Some(20 * MB)));
        assert_eq!(ask(50 * MB, true), (30, None), "clients come before the regular threshold");
        assert_eq!(ask(90 * MB, true), (0, Some(60 * MB)), "but not before the critical one");
    }

    fn with_rule(staged_bytes: u64, default: Temperature) -> Migrator {
        let thermometer = Thermometer { rules: vec![Rule::default()], default };
        let mut migrator = Migrator::new(MigrationPolicy { due_age: None, thermometer, ..policy() });
        migrator.usage = Usage { staged_bytes, capacity_bytes: 100 * MB };
        migrator
    }

    #[test]
    fn hot_data_moves_above_critical_alone_and_in_whole_packs_until_it_is_not() {
        let ask = |staged_bytes, default| {
            let mut actions = vec![];
            with_rule(staged_bytes, default).poll(Time::from_secs(1), || false, &mut actions);
            match actions.as_slice() {
                [Action::ListStaged { coldest_bytes, hot_bytes, .. }] => (*coldest_bytes, *hot_bytes),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(10 * MB, Temperature::Hot), (None, 0), "what is due, however empty the workshop is");
        assert_eq!(ask(50 * MB, Temperature::Hot), (None, 0), "nothing is cold but by a rule");
        assert_eq!(ask(50 * MB, Temperature::Cold), (Some(20 * MB), 0));
        assert_eq!(ask(81 * MB, Temperature::Hot), (Some(51 * MB), 8 * MB));
        assert_eq!(ask(90 * MB, Temperature::Cold), (Some(60 * MB), 16 * MB));
        let mut actions = vec![];
        with_usage(90 * MB).poll(Time::from_secs(1), || false, &mut actions);
        assert!(matches!(actions[..], [Action::ListStaged { hot_bytes: 0, .. }]), "without rules nothing is hot");
    }

    #[test]
    fn a_pack_of_what_is_due_by_a_rule_waits_no_longer_than_it_lingers() {
        let composed_after = |due_for: u64| {
            let mut migrator = with_rule(10 * MB, Temperature::Hot);
            migrator.policy.linger = Duration::from_mins(1);
            let mut actions = vec![];
            migrator.poll(Time::from_secs(1), || false, &mut actions);
            actions.clear();
            // Its age in the workshop is no reason: that of the rule is.
            let heat = Heat::Due(Duration::from_secs(due_for));
            let entry = StagedEntry { heat, age: Duration::from_hours(9), ..entry(1, MB) };
            migrator.page(Time::from_secs(1), Attempt(1), (&[entry], false), &mut actions);
            composed(&actions).len()
        };
        assert_eq!((composed_after(59), composed_after(60)), (0, 1));
    }

    #[test]
    fn hot_bytes_that_had_to_move_are_counted() {
        let mut migrator = with_rule(90 * MB, Temperature::Hot);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || true, &mut actions);
        let hot = StagedEntry { heat: Heat::Hot, ..entry(2, 2 * MB) };
        migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, MB), hot], false), &mut actions);
        assert_eq!(migrator.hot_moved_bytes(), 2 * MB);
    }

    #[test]
    fn a_move_from_above_critical_ends_where_the_policy_drains_to() {
        let asked = |drained_permille, staged_bytes| {
            let mut migrator = Migrator::new(MigrationPolicy { drained_permille, due_age: None, ..policy() });
            migrator.usage = Usage { staged_bytes, capacity_bytes: 100 * MB };
            let mut actions = vec![];
            migrator.poll(Time::from_secs(1), || false, &mut actions);
            assert_eq!(migrator.is_moving(), !actions.is_empty());
            match actions.as_slice() {
                [Action::ListStaged { coldest_bytes, .. }] => *coldest_bytes,
                _ => None,
            }
        };
        assert_eq!(asked(None, 90 * MB), Some(60 * MB));
        assert_eq!(asked(Some(0), 90 * MB), Some(90 * MB));
        assert_eq!(asked(Some(0), 50 * MB), Some(20 * MB), "what moves when nobody waits ends at regular");
        assert_eq!(asked(Some(0), 30 * MB), None);
    }

    #[test]
    fn the_window_bounds_what_is_under_way_and_a_failure_backs_off() {
        let mut migrator = with_usage(60 * MB);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        actions.clear();
        let entries: Vec<_> = (0..5).map(|v| entry(v, 9 * MB)).collect();
        migrator.page(Time::from_secs(1), Attempt(1), (&entries, true), &mut actions);
        assert_eq!(composed(&actions).len(), 5);
        assert!(!actions.iter().any(|a| matches!(a, Action::ListStaged { .. })), "the next page waits");
        assert_eq!(migrator.deadline(), Time::MAX);
        migrator.ended(Time::from_secs(2), OpId(MIGRATOR_OPS), true);
        migrator.ended(Time::from_secs(2), OpId(MIGRATOR_OPS + 1), false);
        actions.clear();
        migrator.poll(Time::from_secs(3), || false, &mut actions);
        assert!(actions.is_empty(), "after a failure the rack is left alone");
        migrator.poll(migrator.deadline(), || false, &mut actions);
        assert!(matches!(actions[..], [Action::ListStaged { restart: false, .. }]));
    }

    #[test]
    fn what_cannot_be_read_holds_nobody_up_and_is_composed_anew_a_few_times_at_most() {
        let mut migrator = with_usage(60 * MB);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, 9 * MB)], false), &mut actions);
        let mut op = OpId(MIGRATOR_OPS);
        assert_eq!(migrator.group_of(op), None);
        for _ in 0..RECOMPOSED_MAX {
            let next = migrator.recompose(op, GroupId(3)).unwrap();
            assert!(!migrator.awaits(op) && migrator.awaits(next) && migrator.writes_under_way() == 1);
            assert_eq!(migrator.group_of(next), Some(GroupId(3)));
            migrator.ended(Time::from_secs(2), op, false);
            assert!(migrator.deadline() <= Time::from_secs(1) + policy().scan_interval, "nobody waits");
            op = next;
        }
        assert_eq!(migrator.recompose(op, GroupId(3)), None);
        migrator.ended(Time::from_secs(2), op, false);
        assert_eq!(migrator.deadline(), Time::from_secs(2) + BACKOFF);
    }

    #[test]
    fn an_interval_of_nothing_still_lets_time_pass() {
        let mut migrator = Migrator::new(MigrationPolicy { scan_interval: Duration::ZERO, due_age: None, ..policy() });
        migrator.usage = Usage { staged_bytes: MB, capacity_bytes: 100 * MB };
        let now = Time::from_secs(1);
        migrator.poll(now, || false, &mut vec![]);
        assert!(migrator.deadline() > now);
    }

    #[test]
    fn an_empty_workshop_needs_no_waking() {
        let mut migrator = with_usage(0);
        assert_eq!(migrator.deadline(), Time::MAX);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(9), || false, &mut actions);
        assert!(actions.is_empty());
    }
}
