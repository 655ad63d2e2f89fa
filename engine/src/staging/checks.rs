//! Checks: a periodic pass over the staged versions that reads every byte of them and compares its checksum, and hands
//! what is to move anyway, while it is in memory, to the open pack (Serviceable cold storage: cold objects migrate
//! "without extra reads, while deep scrub has them in memory").
//!
//! 1. A pass begins [`CheckPolicy::every`] after the one before it began, or at once if that took longer; the first one
//!    when the rack boots without having heard of any. It goes through the staged versions in key order, page by page.
//! 2. Before a page the world measures the load ([`LoadMeter`](super::LoadMeter): the pacer's own). Below
//!    [`LOAD_LIMIT_PERMILLE`] the page is read; else the pass pauses and looks again after a scan interval. The world
//!    stops in the middle of a page once the load is there; what it was reading is read again later.
//! 3. A pass is *overdue*, and goes on whatever the load, when twice the time that the rest of it takes, at the rate at
//!    which it was read so far, is more than what is left of its period. Beside clients the pacer still gives it no
//!    more than its share.
//! 4. The migrator says what of a page is to move (`Migrator::offer`): what is due by rule or age, and above the
//!    regular threshold what is coldest. The world keeps the bytes of that in memory, up to
//!    [`CheckPolicy::memory_bytes`] with those of packs that are not written yet: while these take most of it, a pass
//!    that is not overdue waits. Everything else is read and dropped.
//! 5. What is damaged is quarantined by the world at once, and counted. What lies in a pack that is being written is
//!    left out, since every byte of it is checked there; so is what is in quarantine already.
//! 6. How far a pass has come is made durable every [`PERSIST_INTERVAL`] and at its end, and a start goes on from
//!    there. What came in behind that place is left to the next pass: it was checked as it came in.
//!
//! Bounds: the policy holds counters and one outstanding request; a page has at most [`CHECK_PAGE_ENTRIES`] versions,
//! and ends behind the one that makes [`CHECK_PAGE_BYTES`].
//!
//! Invariants: at most one page is asked for at a time; no page is asked for at or above the load limit unless the pass
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
/// Versions on a page of a pass.
pub const CHECK_PAGE_ENTRIES: u32 = 256;
/// A page ends behind the version that makes it so many bytes.
pub const CHECK_PAGE_BYTES: u64 = 64_000_000;
/// Progress is made durable so often, in modelled time, and at the end of a pass.
pub const PERSIST_INTERVAL: Duration = Duration::from_mins(1);
/// The time that is left alone after a page could not be read, since the catalog failed.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The rate at which a pass is taken to be read before any of it was, in bytes a second.
const FIRST_BYTES_S: u64 = 50_000_000;
/// What was checked since boot, over all passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckTotals {
    /// Passes that were read to their end.
    pub passes: u64,
    /// Versions.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those found to be damaged.
    pub damaged: u64,
    /// Pages that were read although the load was at its limit or above, since the pass was overdue.
    pub overdue_pages: u64,
}

/// What a pass is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// There are no passes.
    Off,
    /// The last one has ended; the next one begins then.
    Until(Time),
    /// It is read.
    Running,
    /// It is read whatever the load, or would not be through in time.
    Overdue,
    /// Clients use the workshop.
    Busy,
    /// It waits for migration: for packs on their way, or a listing, or the workshop to be below its critical
    /// threshold.
    AwaitsMigration,
}

impl CheckState {
    /// Its name, for people.
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

/// A look at the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckView {
    /// What the pass is doing.
    pub state: CheckState,
    /// How far it has come.
    pub progress: CheckProgress,
    /// What was checked since boot.
    pub totals: CheckTotals,
    /// The load that was measured last, in thousandths.
    pub load_permille: u32,
    /// Bytes that are left of this pass, as far as is known.
    pub left_bytes: u64,
}

/// An answer that is awaited.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Load,
    Page { ride: Option<Attempt>, asked: Time },
}

/// A page that was read and checked, as [`Event::StagedChecked`](crate::Event::StagedChecked) has it.
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
    /// How often a pass that has paused looks again.
    interval: Duration,
    progress: CheckProgress,
    /// Bytes of this pass that left for the rack by its ride.
    taken_bytes: u64,
    /// The next page begins at the first key.
    restart: bool,
    attempt: Attempt,
    awaited: Option<Awaited>,
    /// The load, and when it was measured.
    load: Option<(u32, Time)>,
    /// Before this moment nothing is asked for.
    next_look: Time,
    /// Why nothing is, if a pass is under way.
    held_up: Option<CheckState>,
    /// The rate at which pages were read, in bytes a second; the newest is an eighth of it.
    bytes_s: u64,
    persisted: Time,
    totals: CheckTotals,
}

impl Checker {
    /// A policy that knows of no pass; `interval` is how often it looks again while it has to wait.
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

    /// At boot: how far the last pass had come. A clock that was set back has not begun it in the future.
    pub fn reported(&mut self, now: Time, progress: CheckProgress) {
        self.progress = CheckProgress {
            begun: progress.begun.min(now),
            ended: progress.ended.map(|ended| ended.min(now)),
            last_ended: progress.last_ended.map(|ended| ended.min(now)),
            ..progress
        };
        (self.restart, self.persisted) = (progress.ended.is_some(), now);
    }

    /// When to look again; [`Time::MAX`] while an answer is awaited.
    pub fn deadline(&self) -> Time {
        match self.policy.every {
            None => Time::MAX,
            Some(_) if self.awaited.is_some() => Time::MAX,
            Some(every) => self.next_begin(every).max(self.next_look),
        }
    }

    /// When the next pass begins; the past, while one is under way or none ever was.
    fn next_begin(&self, every: Duration) -> Time {
        let is_over = self.progress.ended.is_some();
        if is_over { self.progress.begun + every } else { Time::ZERO }
    }

    /// A look at the passes at `now`, with so many bytes staged.
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

    /// What of `staged_bytes` was not passed yet, if all is still there that was.
    fn left_bytes(&self, staged_bytes: u64) -> u64 {
        staged_bytes.saturating_sub(self.progress.bytes.saturating_sub(self.taken_bytes))
    }

    fn is_overdue(&self, now: Time, staged_bytes: u64) -> bool {
        let Some(every) = self.policy.every else { return false };
        let needed = 2 * transfer_time(self.left_bytes(staged_bytes), self.bytes_s);
        now + needed >= self.progress.begun + every
    }

    /// Begins or goes on with a pass, if it is time for that. `clients_wait` is as for [`Migrator::poll`].
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
        // A pass that never was has not begun; this one has, however early it is.
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

    /// A page could not be read. It is asked for again, later.
    pub fn unchecked(&mut self, now: Time, attempt: Attempt) {
        if attempt == self.attempt && matches!(self.awaited, Some(Awaited::Page { .. })) {
            (self.awaited, self.load, self.next_look) = (None, None, now + RETRY_AFTER);
            self.restart |= self.progress.objects == 0;
        }
    }

    /// A page was read and checked; whether there are more, and the load then.
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
