//! Checks: a periodic pass over the staged versions that reads all of their bytes and compares checksums. While data
//! that is to move anyway is in memory, the pass hands it to the open pack (Serviceable cold storage: cold objects
//! migrate "without extra reads, while deep scrub has them in memory").
//!
//! 1. A pass starts [`CheckPolicy::every`] after the start of the previous one, or at once if that took longer. The
//!    first one starts when the rack boots without a report of an earlier one. A pass reads the staged versions in key
//!    order, page by page.
//! 2. Before a page the world measures the load ([`LoadMeter`](super::LoadMeter): the pacer's own). Below
//!    [`LOAD_LIMIT_PERMILLE`] the page is read; otherwise the pass pauses and tries again after a scan interval. The
//!    world also stops within a page when the load reaches the limit; it reads the interrupted version again later.
//! 3. A pass is *overdue*, and continues at any load, when the remaining time of its period is less than twice the time
//!    that the rest of the pass needs at its read rate so far. Beside clients the pacer still limits it to its share.
//! 4. The migrator selects the versions of a page that are to move (`Migrator::offer`): those due by rule or age and,
//!    above the regular threshold, the coldest ones. The world keeps their bytes in memory, up to
//!    [`CheckPolicy::memory_bytes`] including those of packs that are not written yet; while those use most of it, a
//!    pass that is not overdue waits. All other versions are read and dropped.
//! 5. The world quarantines a damaged version at once, and counts it. Versions in a pack that is being written are left
//!    out, since that write checks all of their bytes; so are versions already in quarantine.
//! 6. The progress of a pass is persisted every [`PERSIST_INTERVAL`] and at its end, and a restart resumes there. New
//!    versions before that position wait for the next pass: they were checked when they were staged.
//!
//! Bounds: the policy holds counters and one outstanding request; a page has at most [`CHECK_PAGE_ENTRIES`] versions,
//! and ends after the one that reaches [`CHECK_PAGE_BYTES`].
//!
//! Invariants: at most one page is requested at a time; no page is requested at or above the load limit unless the pass
//! is overdue; a pass that is not read to its end does not count as done.

#[cfg(test)]
mod tests;

use super::{Migrator, Offer};
pub use crate::action::{Taking, held_cost};
pub use crate::event::CheckProgress;
pub use crate::policy::CheckPolicy;

use crate::action::Action;
use crate::event::{CheckResult, CheckedEntry};
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, Time, transfer_time};

/// At this load, in thousandths, a pass that is not overdue pauses. The paper: deep scrub begins below 0.5.
pub const LOAD_LIMIT_PERMILLE: u32 = 500;
/// Maximum number of versions on a page of a pass.
pub const CHECK_PAGE_ENTRIES: u32 = 256;
/// A page ends after the version that reaches this number of bytes.
pub const CHECK_PAGE_BYTES: u64 = 64_000_000;
/// Interval at which progress is persisted, in modelled time; it is also persisted at the end of a pass.
pub const PERSIST_INTERVAL: Duration = Duration::from_mins(1);
/// The pause after a page that could not be read because the catalog failed.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The assumed read rate of a pass before its first page, in bytes per second.
const FIRST_BYTES_S: u64 = 50_000_000;
/// Totals of the checks since boot, over all passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckTotals {
    /// Passes that were read to their end.
    pub passes: u64,
    /// Versions checked.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Damaged versions found.
    pub damaged: u64,
    /// Pages that were read with the load at its limit or above, because the pass was overdue.
    pub overdue_pages: u64,
}

/// The state of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// There are no passes.
    Off,
    /// The last pass has ended; the next one starts at this time.
    Until(Time),
    /// A pass is being read.
    Running,
    /// A pass is being read at any load, because it would not end in time otherwise.
    Overdue,
    /// The pass is paused: clients use the workshop.
    Busy,
    /// It waits for migration: for packs that are under way, for a listing, or for the workshop to fall below its
    /// critical threshold.
    AwaitsMigration,
}

impl CheckState {
    /// Its name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Until(_) => "waiting for its time",
            Self::Running => "running",
            Self::Overdue => "overdue",
            Self::Busy => "paused for clients",
            Self::AwaitsMigration => "waiting for migration",
        }
    }
}

/// A snapshot of the checks, for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckView {
    /// The state of the pass.
    pub state: CheckState,
    /// The progress of the pass.
    pub progress: CheckProgress,
    /// Totals since boot.
    pub totals: CheckTotals,
    /// The last measured load, in thousandths.
    pub load_permille: u32,
    /// Remaining bytes of this pass, as far as is known.
    pub left_bytes: u64,
}

/// The answer that is awaited.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Load,
    Page { ride: Option<Attempt>, asked: Time },
}

/// A page that was read and checked, from [`Event::StagedChecked`](crate::Event::StagedChecked).
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedPage<'a> {
    pub(crate) attempt: Attempt,
    pub(crate) entries: &'a [CheckedEntry],
    pub(crate) more: bool,
    pub(crate) load_permille: u32,
}

/// Decides when staged versions are checked. See the head of this file.
#[derive(Clone, Debug)]
pub struct Checker {
    policy: CheckPolicy,
    /// The interval at which a paused pass tries again.
    interval: Duration,
    progress: CheckProgress,
    /// Bytes of this pass that its ride took for the rack.
    taken_bytes: u64,
    /// True if the next page starts at the first key.
    restart: bool,
    attempt: Attempt,
    awaited: Option<Awaited>,
    /// The load, and when it was measured.
    load: Option<(u32, Time)>,
    /// Nothing is requested before this time.
    next_look: Time,
    /// The reason for a delay of the pass that is under way.
    held_up: Option<CheckState>,
    /// Read rate of pages, in bytes per second; a moving average in which the newest page has a weight of 1/8.
    bytes_s: u64,
    persisted: Time,
    totals: CheckTotals,
}

impl Checker {
    /// A policy without any known pass; `interval` is the time after which it tries again while it has to wait.
    pub fn new(policy: CheckPolicy, interval: Duration) -> Self {
        assert!(policy.every.is_none_or(|every| every > Duration::ZERO), "passes take some time");
        Self {
            policy,
            interval: interval.max(super::SCAN_INTERVAL_MIN),
            progress: CheckProgress::default(),
            taken_bytes: 0,
            restart: true,
            attempt: Attempt(0),
            awaited: None,
            load: None,
            next_look: Time::ZERO,
            held_up: None,
            bytes_s: FIRST_BYTES_S,
            persisted: Time::ZERO,
            totals: CheckTotals::default(),
        }
    }

    /// At boot: records the reported progress of the last pass. If the clock was set back, times in the future become
    /// now.
    pub fn reported(&mut self, now: Time, progress: CheckProgress) {
        self.progress = CheckProgress {
            begun: progress.begun.min(now),
            ended: progress.ended.map(|ended| ended.min(now)),
            last_ended: progress.last_ended.map(|ended| ended.min(now)),
            ..progress
        };
        (self.restart, self.persisted) = (progress.ended.is_some(), now);
    }

    /// The time of the next poll; [`Time::MAX`] while an answer is awaited.
    pub fn deadline(&self) -> Time {
        match self.policy.every {
            None => Time::MAX,
            Some(_) if self.awaited.is_some() => Time::MAX,
            Some(every) => self.next_begin(every).max(self.next_look),
        }
    }

    /// The start of the next pass; in the past while one is under way or before the first one.
    fn next_begin(&self, every: Duration) -> Time {
        let is_over = self.progress.ended.is_some();
        if is_over { self.progress.begun + every } else { Time::ZERO }
    }

    /// A snapshot of the checks at `now`, with `staged_bytes` staged.
    pub fn view(&self, now: Time, staged_bytes: u64) -> CheckView {
        let state = match self.policy.every {
            None => CheckState::Off,
            Some(every) if self.progress.ended.is_some() => CheckState::Until(self.next_begin(every)),
            Some(_) => match self.held_up {
                Some(state) => state,
                None if self.is_overdue(now, staged_bytes) => CheckState::Overdue,
                None => CheckState::Running,
            },
        };
        let (progress, totals) = (self.progress, self.totals);
        let left_bytes = if progress.ended.is_some() { 0 } else { self.left_bytes(staged_bytes) };
        CheckView { state, progress, totals, left_bytes, load_permille: self.load.map_or(0, |(load, _)| load) }
    }

    /// The part of `staged_bytes` that the pass has not read yet, if nothing else has left since.
    fn left_bytes(&self, staged_bytes: u64) -> u64 {
        staged_bytes.saturating_sub(self.progress.bytes.saturating_sub(self.taken_bytes))
    }

    fn is_overdue(&self, now: Time, staged_bytes: u64) -> bool {
        let Some(every) = self.policy.every else { return false };
        let needed = 2 * transfer_time(self.left_bytes(staged_bytes), self.bytes_s);
        now + needed >= self.progress.begun + every
    }

    /// Starts or resumes a pass, if it is time. `clients_wait` is as for [`Migrator::poll`].
    pub fn poll(
        &mut self,
        now: Time,
        clients_wait: impl FnOnce() -> bool,
        migrator: &mut Migrator,
        actions: &mut Vec<Action>,
    ) {
        if now < self.deadline() {
            return;
        }
        if self.progress.ended.is_some() || self.is_the_first() {
            self.begin_pass(now);
        }
        let is_overdue = self.is_overdue(now, migrator.usage.staged_bytes);
        let Some(load) = self.load.filter(|(_, at)| now.since(*at) < self.interval).map(|(load, _)| load) else {
            return self.measure(actions);
        };
        if load >= LOAD_LIMIT_PERMILLE && !is_overdue {
            migrator.end_long_ride(now, actions);
            self.next_look = now + self.interval;
            self.held_up = Some(CheckState::Busy);
            return;
        }
        let offer = migrator.offer(now, clients_wait, self.policy.memory_bytes, actions);
        if offer == Offer::NotNow && !is_overdue {
            self.next_look = now + self.interval / 8;
            self.held_up = Some(CheckState::AwaitsMigration);
            return;
        }
        self.totals.overdue_pages += u64::from(load >= LOAD_LIMIT_PERMILLE);
        self.ask_for_page(now, offer, is_overdue, actions);
    }

    fn is_the_first(&self) -> bool {
        self.progress == CheckProgress::default()
    }

    fn begin_pass(&mut self, now: Time) {
        assert!(self.awaited.is_none(), "nothing of the pass before it is to come");
        // A start of zero means that no pass has ever started, so the start of this one is later than zero.
        let begun = now.max(Time::from_nanos(1));
        self.progress = CheckProgress { begun, last_ended: self.progress.last_ended, ..CheckProgress::default() };
        (self.restart, self.taken_bytes, self.persisted) = (true, 0, now);
    }

    fn next_attempt(&mut self) -> Attempt {
        self.attempt = Attempt(self.attempt.0.wrapping_add(1));
        self.attempt
    }

    fn measure(&mut self, actions: &mut Vec<Action>) {
        self.awaited = Some(Awaited::Load);
        let attempt = self.next_attempt();
        actions.push(Action::MeasureLoad { attempt });
    }

    fn ask_for_page(&mut self, now: Time, offer: Offer, is_overdue: bool, actions: &mut Vec<Action>) {
        let (ride, take) = match offer {
            Offer::Take(ride, taking) => (Some(ride), Some(taking)),
            Offer::Nothing | Offer::NotNow => (None, None),
        };
        self.awaited = Some(Awaited::Page { ride, asked: now });
        self.held_up = None;
        actions.push(Action::CheckStaged {
            attempt: self.next_attempt(),
            take,
            limit: CHECK_PAGE_ENTRIES,
            bytes_max: CHECK_PAGE_BYTES,
            load_limit_permille: Some(LOAD_LIMIT_PERMILLE).filter(|_| !is_overdue),
            restart: core::mem::take(&mut self.restart),
        });
    }

    /// The load was measured.
    pub fn measured(&mut self, now: Time, attempt: Attempt, load_permille: u32) {
        if attempt == self.attempt && matches!(self.awaited, Some(Awaited::Load)) {
            (self.awaited, self.load) = (None, Some((load_permille, now)));
        }
    }

    /// A page could not be read. It is requested again later.
    pub fn unchecked(&mut self, now: Time, attempt: Attempt) {
        if attempt == self.attempt && matches!(self.awaited, Some(Awaited::Page { .. })) {
            (self.awaited, self.load, self.next_look) = (None, None, now + RETRY_AFTER);
            self.restart |= self.progress.objects == 0;
        }
    }

    /// A page was read and checked; it also reports if more pages follow, and the load at its end.
    pub(crate) fn checked(
        &mut self,
        now: Time,
        page: &CheckedPage,
        migrator: &mut Migrator,
        actions: &mut Vec<Action>,
    ) {
        let CheckedPage { attempt, entries, more, load_permille } = *page;
        let Some(Awaited::Page { ride, asked }) = self.awaited.filter(|_| attempt == self.attempt) else {
            return; // late or twice
        };
        (self.awaited, self.load) = (None, Some((load_permille, now)));
        let bytes = self.count(entries);
        self.note_rate(bytes, now.since(asked));
        migrator.hand_over(ride, entries, actions);
        if !more {
            self.progress.ended = Some(now);
            self.progress.last_ended = Some(now);
            self.totals.passes += 1;
            migrator.end_ride(actions);
        }
        if !more || now.since(self.persisted) >= PERSIST_INTERVAL {
            self.persisted = now;
            actions.push(Action::PersistChecks { progress: self.progress });
        }
    }

    fn count(&mut self, entries: &[CheckedEntry]) -> u64 {
        let mut bytes = 0;
        for CheckedEntry { entry, result, taken, .. } in entries {
            let is_damaged = u64::from(*result == CheckResult::Damaged);
            if *result != CheckResult::Skipped {
                bytes += entry.bytes;
                self.progress.objects += 1;
                self.progress.damaged += is_damaged;
                self.totals.objects += 1;
                self.totals.damaged += is_damaged;
            }
            self.taken_bytes += if *taken { entry.bytes } else { 0 };
        }
        self.progress.bytes += bytes;
        self.totals.bytes += bytes;
        assert!(self.progress.damaged <= self.progress.objects, "what is damaged was checked");
        bytes
    }

    fn note_rate(&mut self, bytes: u64, took: Duration) {
        if bytes == 0 {
            return;
        }
        let rate = u128::from(bytes) * 1_000_000_000 / took.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.bytes_s = (self.bytes_s - self.bytes_s / 8).saturating_add(rate / 8).max(1);
    }
}
