//! The migrator: decides when staged data moves to the rack, and in which packs.
//!
//! 1. A scan starts when something may be due: data is above its due age, the workshop is above its regular threshold
//!    while no client waits, or above its critical one even if clients wait (SOHO, Table I; the meaning of "regular" is
//!    ours). A rack's migrator also waits for the workshop to be idle ([`idleness`]), page by page. A threshold moves
//!    data in the order of [`MoveRank`], and only the excess.
//! 2. The world lists staged versions in key order, page by page. Small ones are gathered into packs up to the target
//!    size, one open pack per pin; a version as large as a pack is a blob by itself.
//! 3. The world composes a full pack, which returns as a background write. Enough writes may be under way at once that
//!    the scheduler can batch them by group; while the window is full, the listing waits. Packs with very many objects
//!    have a smaller window (`FULL_PACKS_MAX`).
//!    A write with an unreadable source is composed again without it, at once and without a backoff: its failure
//!    does not predict failures of other writes.
//! 4. At the end of the listing a partly filled pack is written only if its data has waited long enough, or must go.
//! 5. With a thermometer ([`crate::thermometer`]), data that a rule calls cold is due, and hot data stays. Above the
//!    critical threshold hot data moves after all other data, in whole packs, until the workshop is at that threshold
//!    again.
//! 6. While a pass of checks ([`checks`]) reads the workshop anyway, its pages replace a listing: this is a *ride*.
//!    Data on them that is due, or cold above the regular threshold, is gathered as from any page, together with its
//!    bytes in memory. Meanwhile only a scan above the critical threshold may run, and it ends the ride. A ride ends by
//!    itself after `linger`, so that data elsewhere waits no longer than a pack may.
//!
//! Invariant: the migrator's state is bounded by one page and one pack per pin; it never names a version twice in one
//! scan. The migrator does not free staged data: only the commit of its blob does.
//!
//! A [`Rack`](crate::Rack) has a migrator; the reproduction of SOHO (`sim/src/soho/`) runs the same one in front of a
//! single disk. [`pacing`] decides block by block when composed data is copied.

pub mod checks;
pub mod dry_run;
pub mod idleness;
mod load;
#[cfg(test)]
mod naive_tests;
mod order;
mod outlook;
pub mod pacing;
mod selection;
#[cfg(test)]
mod tests;

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
use idleness::{Idleness, Verdict};
use model::{Attempt, GroupId, OpId, Time};

/// Maximum number of versions on a page of a listing.
pub const STAGED_PAGE_ENTRIES: u32 = 512;

/// Maximum number of packs under way that have the maximum number of members, or of more packs with fewer members:
/// until a pack is written, the world holds the name and the metadata of each member.
const FULL_PACKS_MAX: u64 = 4;

/// Backoff of the migrator after a refused or failed write. It doubles while writes fail, up to [`BACKOFF_MAX`], since
/// each try may wake groups without success.
const BACKOFF: Duration = Duration::from_secs(30);

/// The longest backoff. The cause may be gone long before it ends, so this bounds how long a full workshop stays full
/// unnecessarily.
const BACKOFF_MAX: Duration = Duration::from_hours(1);

/// Maximum number of times in a row that a pack is composed again because something in it cannot be read. All of its
/// bytes are read before it goes out again, so once is enough unless files become unreadable at that moment.
const RECOMPOSED_MAX: u32 = 3;

/// The minimum time between two scans; without it a rack with nothing to move would never come to rest.
const SCAN_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The reason for a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// Something may be older than the due age.
    Due,
    /// The workshop is above its regular threshold and no client waits.
    Regular,
    /// The workshop is above its critical threshold.
    Critical,
}

/// A pack that is being gathered.
#[derive(Clone, Debug, Default)]
struct OpenPack {
    versions: Vec<u64>,
    bytes: u64,
    /// Memory cost of its members that are in memory.
    held_bytes: u64,
    oldest: Duration,
    /// The longest time for which a member has been due by a rule.
    due_for: Option<Duration>,
}

/// The migrator's answer for the next page of a pass of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Nothing is to move.
    Nothing,
    /// Take this, for the ride of this number.
    Take(Attempt, Taking),
    /// Something may have to move, and cannot be taken now.
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
    /// Its start, if the pages come from a pass of checks.
    ride: Option<Time>,
}

/// Decides when and how staged data migrates. See the head of this file.
#[derive(Clone, Debug)]
pub struct Migrator {
    policy: MigrationPolicy,
    /// Fill level of the workshop.
    pub usage: Usage,
    scan: Option<Scan>,
    next_scan: Time,
    /// The end of the backoff after a failed write.
    left_alone: Time,
    /// The backoff after the next failed write.
    backoff: Duration,
    attempt: Attempt,
    next_op: u64,
    /// The writes under way, from composing to their end.
    under_way: BTreeMap<OpId, UnderWay>,
    /// Bytes of hot versions that were composed.
    hot_moved_bytes: u64,
    /// Decides if the workshop is idle; `None` where idleness is no condition.
    idleness: Option<Idleness>,
}

/// A write under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    /// The class or group that must store it.
    pin: PinnedTo,
    /// Its payload bytes.
    bytes: u64,
    /// Number of its versions when it was first composed.
    members: u64,
    /// Memory cost of its members that are in memory, until it ends.
    held_bytes: u64,
    /// How many times it was composed again because of an unreadable member.
    recomposed: u32,
    /// The group to which it was being written at that time.
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
            backoff: BACKOFF,
            attempt: Attempt(0),
            next_op: MIGRATOR_OPS,
            under_way: BTreeMap::new(),
            hot_moved_bytes: 0,
            idleness: None,
        }
    }

    /// The same migrator, but moves for the regular threshold wait until the workshop is idle. Its world must measure
    /// the load.
    #[must_use]
    pub(crate) fn awaiting_idleness(self) -> Self {
        Self { idleness: Some(Idleness::new(self.policy.scan_interval)), ..self }
    }

    /// Bytes of hot versions that were packed because the workshop was above its critical threshold.
    pub fn hot_moved_bytes(&self) -> u64 {
        self.hot_moved_bytes
    }

    /// Migration writes that are composed and have not ended.
    pub fn writes_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The same writes, each with its pin and with the group that was awake when it was composed again, if it was.
    pub(crate) fn composed(&self) -> impl Iterator<Item = (OpId, PinnedTo, Option<GroupId>)> {
        self.under_way.iter().map(|(op, write)| (*op, write.pin, write.group))
    }

    /// True while data is listed or written: with SOHO's blocking moves, while clients wait.
    pub fn is_moving(&self) -> bool {
        self.scan.is_some() || !self.under_way.is_empty()
    }

    /// True if `op` is a write that was composed and has not ended.
    pub fn awaits(&self, op: OpId) -> bool {
        self.under_way.contains_key(&op)
    }

    /// True if the workshop is above its critical threshold.
    pub fn is_critical(&self) -> bool {
        self.above(self.policy.critical_permille)
    }

    fn above(&self, permille: u32) -> bool {
        let limit = u128::from(self.usage.capacity_bytes) * u128::from(permille);
        u128::from(self.usage.staged_bytes) * 1000 > limit
    }

    /// Bytes that must leave for the workshop to be at this share (in thousandths), beyond those already on their way.
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

    /// Bytes that must leave, hot data included, for the workshop to be no longer above its critical threshold. Rounded
    /// up to whole packs; otherwise each accepted write would cost its own pack.
    fn hot_excess_bytes(&self) -> u64 {
        let is_used = self.policy.thermometer.is_used();
        let excess = if is_used { self.excess_bytes(self.policy.critical_permille) } else { 0 };
        excess.div_ceil(self.policy.pack_bytes).saturating_mul(self.policy.pack_bytes)
    }

    /// The time of the next poll; [`Time::MAX`] while there is nothing to do or an answer is awaited.
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

    /// Starts or resumes a scan if there is a reason. `clients_wait` returns true if any client's operation is queued
    /// or in service.
    pub fn poll(&mut self, now: Time, clients_wait: impl FnOnce() -> bool, actions: &mut Vec<Action>) {
        if !self.above(self.policy.regular_permille) {
            self.idleness.iter_mut().for_each(Idleness::nothing_waits);
        }
        if self.window_is_full() || now < self.next_scan {
            return;
        }
        if self.is_riding() && self.must_drain() {
            self.end_ride(actions);
            // The pack that this composed may have filled the window.
            if self.window_is_full() {
                return;
            }
        }
        if self.scan.is_some() {
            return self.go_on_with_scan(now, actions);
        }
        assert!(!self.window_is_full(), "no scan begins while the window is full");
        let mut reason = self.reason(clients_wait());
        match self.verdict(reason, now, actions) {
            Verdict::Idle => {}
            Verdict::Busy => reason = self.reason(true),
            Verdict::Unknown(_) => {
                self.next_scan = now + self.policy.scan_interval;
                return;
            }
        }
        // Due data may have to wait for a pass of checks.
        let Some(reason) = reason.filter(|reason| *reason != Reason::Due || !self.policy.due_with_checks) else {
            self.next_scan = now + self.policy.scan_interval;
            return;
        };
        self.begin_scan(reason, None);
        self.ask_for_page(reason, self.attempt, true, actions);
    }

    /// Resumes a paused listing, or ends it there because the workshop is no longer idle.
    fn go_on_with_scan(&mut self, now: Time, actions: &mut Vec<Action>) {
        let paused = self.scan.as_ref().filter(|scan| scan.paused);
        let Some((reason, attempt)) = paused.map(|scan| (scan.reason, scan.attempt)) else { return };
        match self.verdict(Some(reason), now, actions) {
            Verdict::Idle => {
                self.scan.iter_mut().for_each(|scan| scan.paused = false);
                return self.ask_for_page(reason, attempt, false, actions);
            }
            Verdict::Busy => self.scan.take().into_iter().for_each(|scan| self.close(scan, actions)),
            Verdict::Unknown(_) => {}
        }
        self.next_scan = now + self.policy.scan_interval;
    }

    /// The verdict on idleness for a move with this reason. Requests a measurement if the load is unknown.
    fn verdict(&mut self, reason: Option<Reason>, now: Time, actions: &mut Vec<Action>) -> Verdict {
        let must_drain = self.must_drain();
        let Some(idleness) = &mut self.idleness else { return Verdict::Idle };
        if reason != Some(Reason::Regular) || must_drain {
            return Verdict::Idle;
        }
        let verdict = idleness.verdict(now);
        if let Verdict::Unknown(Some(attempt)) = verdict {
            actions.push(Action::MeasureLoad { attempt });
        }
        verdict
    }

    /// The load of the workshop was measured, perhaps for another part.
    pub(crate) fn measured(&mut self, now: Time, attempt: Attempt, load_permille: u32) {
        let ours = self.idleness.as_mut().is_some_and(|idleness| idleness.measured(now, attempt, load_permille));
        if ours {
            self.next_scan = now.max(self.left_alone);
        }
    }

    fn begin_scan(&mut self, reason: Reason, ride: Option<Time>) {
        assert!(self.usage.staged_bytes > 0 && self.scan.is_none(), "a scan looks for something, and is the only one");
        self.attempt = Attempt(self.attempt.0.wrapping_add(1));
        self.scan = Some(Scan { reason, attempt: self.attempt, paused: false, open: BTreeMap::new(), ride });
    }

    /// True if data must leave regardless of the load.
    fn must_drain(&self) -> bool {
        self.is_critical() && self.excess_for(Reason::Critical).is_some_and(|bytes| bytes > 0)
    }

    fn is_riding(&self) -> bool {
        self.scan.as_ref().is_some_and(|scan| scan.ride.is_some())
    }

    /// The versions that a pass of checks is to take of its next page, with this amount of memory. May start a ride.
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
            return Offer::NotNow; // memory becomes free soon
        }
        let (older_than, coldest_bytes) = self.asked_of(scan.reason);
        let (order, min_bytes) = (self.policy.order, self.policy.min_bytes);
        let taking = Taking { older_than, order, coldest_bytes, min_bytes, hold_bytes, anew };
        Offer::Take(scan.attempt, taking)
    }

    /// Ends a ride that has blocked other scans for too long. True if it ended one.
    pub(crate) fn end_long_ride(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let most = self.policy.linger.max(self.policy.scan_interval);
        let ride = self.scan.as_ref().and_then(|scan| scan.ride);
        let is_long = ride.is_some_and(|begun| now.since(begun) > most);
        if is_long {
            self.end_ride(actions);
        }
        is_long
    }

    /// Takes the versions handed over on a page of the ride `ride`. If that ride has ended, releases their memory.
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

    /// Ends the ride, if any: packs that are worth it are composed, and the others are dropped.
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
        // If only rules make data cold, the regular threshold finds nothing that is not due.
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

    /// The minimum age of cold versions to list for this reason, and the number of bytes of the coldest.
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
        let min_bytes = if reason == Reason::Critical { 0 } else { self.policy.min_bytes };
        let (limit, order) = (STAGED_PAGE_ENTRIES, self.policy.order);
        let list =
            Action::ListStaged { attempt, older_than, order, coldest_bytes, hot_bytes, min_bytes, limit, restart };
        actions.push(list);
    }

    /// A page of the listing has arrived; the flag is true if more pages follow.
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
            self.next_scan = (now + self.policy.scan_interval).max(self.left_alone);
        } else if self.window_is_full() || (self.idleness.is_some() && scan.reason == Reason::Regular) {
            scan.paused = true;
            self.scan = Some(scan);
        } else {
            self.ask_for_page(scan.reason, scan.attempt, false, actions);
            self.scan = Some(scan);
        }
    }

    /// Adds `entry` to its open pack; `held_bytes` is its memory cost if it is in memory.
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
            // Data that has waited for this ride would have to wait for another pass.
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
        let op = self.begin(UnderWay { pin, bytes, members, held_bytes, recomposed: 0, group: None });
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

    /// Composes the write `of`, which is about to end because something in it cannot be read, again; the new write
    /// takes its place in the window. Returns its number; `None` if `of` is no write of this migrator, or was already
    /// composed again the maximum number of times.
    pub fn recompose(&mut self, of: OpId, group: GroupId) -> Option<OpId> {
        let UnderWay { pin, bytes, members, recomposed, .. } = *self.under_way.get(&of)?;
        if recomposed == RECOMPOSED_MAX {
            return None;
        }
        assert!(recomposed < RECOMPOSED_MAX, "{of} is composed anew a few times at most");
        self.under_way.remove(&of);
        // All of its bytes are read before it goes out again, and none are in memory then.
        let (recomposed, group) = (recomposed + 1, Some(group));
        Some(self.begin(UnderWay { pin, bytes, members, held_bytes: 0, recomposed, group }))
    }

    /// The group that was awake when `op` was composed again, if it was.
    pub fn group_of(&self, op: OpId) -> Option<GroupId> {
        self.under_way.get(&op)?.group
    }

    /// A drive has become available: writes that failed may now succeed.
    pub fn hasten(&mut self, now: Time) {
        self.left_alone = self.left_alone.min(now);
        self.backoff = BACKOFF;
        self.next_scan = self.next_scan.min(now + self.policy.scan_interval);
    }

    /// A write of this migrator ended; ignored if it is not one. After a failure the migrator backs off, since writing
    /// the same data again would fail the same way.
    pub fn ended(&mut self, now: Time, op: OpId, well: bool) {
        if self.under_way.remove(&op).is_none() {
            return;
        }
        if well {
            self.backoff = BACKOFF;
            return;
        }
        // A failure of a write that was already under way at an earlier failure belongs to that one.
        let is_another = now >= self.left_alone;
        let pause = if is_another { self.backoff } else { BACKOFF };
        self.left_alone = self.left_alone.max(now + pause);
        if is_another {
            self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
        }
        self.next_scan = self.next_scan.max(self.left_alone);
        assert!(self.next_scan > now, "after a failure the rack is left alone for a while");
    }
}
