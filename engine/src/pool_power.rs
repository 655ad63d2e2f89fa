//! The power of the pool's drives: when an idle drive may stop, and when it is started again.
//!
//! The rotation ([`crate::shift`]) reports the drives that it does not need and those that it needs; other readers of a
//! drive report that they need it. This module turns the reports into starts and stops:
//!
//! ```text
//!             idle                stopped              wanted, permitted           started
//!  Spinning --------> Stopping -----------> Standby ----------------------> Starting --------> Spinning
//! ```
//!
//! 1. A drive that idles stops, unless it was started recently or has used up its starts of the day
//!    ([`SpinDownPolicy::stays_until`]): then it keeps spinning until that has passed, or until it is wanted.
//! 2. A request for a drive that spins is answered at once. A drive that stands still needs a permit to start, which is
//!    requested before those of any group, because clients wait for it. Everything else that a start takes is reserved
//!    at all times, so it waits for starts under way and for nothing else ([`crate::ledger`]).
//! 3. If a drive does not start, its request is answered with a failure, and the drive counts as standing still; the
//!    next request tries it again. A drive that does not stop keeps spinning, and is sent another stop after
//!    [`STOP_PAUSE`].
//! 4. Once the rack closes, no drive is stopped any more: the log is written until the end.
//! 5. A drive that something else started spins without a permit; this cannot be avoided. It is stopped as in 1, but
//!    not before [`STOP_PAUSE`] has passed, since the other user may come again. That start wears the drive like any
//!    other, so it counts in the budget, and it may still be under way, so no other drive starts beside it.
//!
//! Invariants: a drive of the pool is started only under a permit; each start is counted; a request for a drive is
//! answered once, when the drive spins or fails to start.

use crate::action::Action;
use crate::budget::StartBudget;
use crate::ledger::{Ledger, PowerState};
use crate::policy::SpinDownPolicy;
use crate::pool_protocol::{PoolDriveAction, PoolDriveEvent};
use crate::spin_down::Spinning;
use crate::step::Step;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, DriveId, PoolDriveId, RackSpec, Time};

#[cfg(test)]
mod tests;

/// Pause between a stop that failed, or that something else undid, and the next one. The cause may have passed by then,
/// and a drive is not stopped and started every few seconds.
pub const STOP_PAUSE: Duration = Duration::from_mins(10);

/// The power of a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolDrivePhase {
    /// Its platters turn.
    Spinning,
    /// It was sent a stop.
    Stopping,
    /// Its platters stand still.
    Standby,
    /// It was sent a start.
    Starting,
}

/// The known state of the power of a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolDriveView {
    /// The phase of its power.
    pub phase: PoolDrivePhase,
    /// It waits for a permit to start.
    pub waits: bool,
    /// Starts on the day.
    pub starts_today: u32,
    /// Starts that were commanded since boot.
    pub starts: u64,
}

#[derive(Clone, Copy)]
struct Pooled {
    phase: PoolDrivePhase,
    /// The number of the last command; an answer to another one is late.
    attempt: Attempt,
    idle: bool,
    wanted: bool,
    /// The time since which it spins.
    ready_at: Time,
    /// Something else may have started it at `ready_at`: it counts as starting.
    found: bool,
    /// It is sent no stop before then: the last one failed, or was undone.
    stop_from: Time,
    starts: u64,
}

impl Pooled {
    /// True if it executes the command `attempt`, whose phase is `phase`.
    fn does(&self, phase: PoolDrivePhase, attempt: Attempt) -> bool {
        self.phase == phase && self.attempt == attempt
    }
}

/// The power of all drives of the pool. See the head of this file.
pub(crate) struct PoolPower {
    drives: Vec<Pooled>,
    budget: StartBudget,
    starts_per_day: u32,
    spin_down: SpinDownPolicy,
    /// A start takes at most this long.
    spin_up_max: Duration,
}

impl PoolPower {
    /// The drives of the pool of `spec`, all of which spin.
    pub fn new(spec: &RackSpec, starts_per_day: u32, spin_down: SpinDownPolicy) -> Self {
        let drive_count = spec.pool.len();
        let phase = PoolDrivePhase::Spinning;
        let (attempt, ready_at, stop_from) = (Attempt(0), Time::ZERO, Time::ZERO);
        let spins = Pooled { phase, attempt, idle: false, wanted: false, ready_at, found: false, stop_from, starts: 0 };
        let budget = StartBudget::new(drive_count.max(1), starts_per_day);
        let spin_up_max = spec.profile.spin_up.longest();
        Self { drives: vec![spins; drive_count], budget, starts_per_day, spin_down, spin_up_max }
    }

    /// Applies what happened to `drive`. Ignored if the rack has no such drive.
    pub fn take_note(&mut self, drive: PoolDriveId, event: PoolDriveEvent, ledger: &mut Ledger, step: &mut Step) {
        let Some(one) = self.drives.get_mut(drive.index()) else { return };
        match event {
            PoolDriveEvent::Reported { day, starts } => self.budget.restore(of_budget(drive), day, starts),
            PoolDriveEvent::Wanted => (one.idle, one.wanted) = (false, true),
            PoolDriveEvent::Idle => one.idle = true,
            PoolDriveEvent::Started(attempt) if one.does(PoolDrivePhase::Starting, attempt) => {
                ledger.pool_spun_up(drive);
                (one.phase, one.ready_at) = (PoolDrivePhase::Spinning, step.now);
            }
            PoolDriveEvent::Stopped(attempt) if one.does(PoolDrivePhase::Stopping, attempt) => {
                ledger.pool_stopped(drive);
                (one.phase, one.found) = (PoolDrivePhase::Standby, false);
            }
            PoolDriveEvent::Failed(attempt) if one.does(PoolDrivePhase::Stopping, attempt) => {
                (one.phase, one.stop_from) = (PoolDrivePhase::Spinning, step.now + STOP_PAUSE);
            }
            PoolDriveEvent::Failed(attempt) if one.does(PoolDrivePhase::Starting, attempt) => {
                ledger.pool_stopped(drive);
                (one.phase, one.wanted) = (PoolDrivePhase::Standby, false);
                ask(drive, PoolDriveAction::Answer { awake: false }, step);
            }
            PoolDriveEvent::Spins if one.phase == PoolDrivePhase::Standby => {
                ledger.pool_found_spinning(drive);
                (one.phase, one.ready_at, one.found) = (PoolDrivePhase::Spinning, step.now, true);
                one.stop_from = step.now + STOP_PAUSE;
                self.budget.record(of_budget(drive), step.now);
            }
            // The drive was started from here meanwhile, or the answer is late.
            PoolDriveEvent::Spins
            | PoolDriveEvent::Started(_)
            | PoolDriveEvent::Stopped(_)
            | PoolDriveEvent::Failed(_) => {}
        }
    }

    /// Sends all answers and starts that can be sent, and the stops unless the rack `closes`.
    pub fn go_on(&mut self, ledger: &mut Ledger, closes: bool, step: &mut Step) {
        self.end_found_starts(ledger, step.now);
        for drive in (0..self.drives.len() as u32).map(PoolDriveId) {
            let one = self.drives[drive.index()];
            match one.phase {
                PoolDrivePhase::Spinning if one.wanted => {
                    self.drives[drive.index()].wanted = false;
                    ask(drive, PoolDriveAction::Answer { awake: true }, step);
                }
                PoolDrivePhase::Spinning if one.idle && !closes && self.stays_until(drive, step.now) <= step.now => {
                    let attempt = self.command(drive, PoolDrivePhase::Stopping);
                    ask(drive, PoolDriveAction::Stop(attempt), step);
                }
                PoolDrivePhase::Standby if one.wanted && ledger.request_pool(drive) => {
                    let attempt = self.command(drive, PoolDrivePhase::Starting);
                    let (day, starts) = self.budget.record(of_budget(drive), step.now);
                    self.drives[drive.index()].starts += 1;
                    ask(drive, PoolDriveAction::Start { attempt, day, starts }, step);
                }
                _ => {}
            }
            let permitted = ledger.pool_state(drive) != PowerState::Standby;
            let stands = self.drives[drive.index()].phase == PoolDrivePhase::Standby;
            assert!(permitted != stands, "{drive} turns under a permit, or stands still");
        }
    }

    /// Drives that something else started count as starting no longer than a start takes: before any drive asks for a
    /// permit that they release.
    fn end_found_starts(&mut self, ledger: &mut Ledger, now: Time) {
        for (one, drive) in self.drives.iter_mut().zip(0..) {
            if one.found && one.ready_at + self.spin_up_max <= now {
                one.found = false;
                ledger.pool_spun_up(PoolDriveId(drive));
            }
        }
    }

    /// When the start of a drive that something else started would be over.
    pub fn found_deadline(&self) -> Time {
        let found = self.drives.iter().filter(|one| one.found);
        found.map(|one| one.ready_at + self.spin_up_max).min().unwrap_or(Time::MAX)
    }

    /// When a drive that idles may stop, or the start of one that something else started would be over.
    pub fn deadline(&self, now: Time) -> Time {
        let idles = |one: &Pooled| one.phase == PoolDrivePhase::Spinning && one.idle;
        let idle = self.drives.iter().zip(0..).filter(|(one, _)| idles(one)).map(|(_, drive)| PoolDriveId(drive));
        idle.map(|drive| self.stays_until(drive, now)).min().unwrap_or(Time::MAX).min(self.found_deadline())
    }

    /// The state of `drive`; `None` if the rack has no such drive.
    pub fn view(&self, drive: PoolDriveId, now: Time) -> Option<PoolDriveView> {
        let one = self.drives.get(drive.index())?;
        let waits = one.phase == PoolDrivePhase::Standby && one.wanted;
        let starts_today = self.budget.starts_today(of_budget(drive), now);
        Some(PoolDriveView { phase: one.phase, waits, starts_today, starts: one.starts })
    }

    /// The time until which `drive`, which spins, keeps spinning.
    fn stays_until(&self, drive: PoolDriveId, now: Time) -> Time {
        let is_exhausted = self.budget.starts_today(of_budget(drive), now) >= self.starts_per_day;
        let Pooled { ready_at, stop_from, .. } = self.drives[drive.index()];
        // A stop mostly means another start on the same day. Groups stay awake for this only if the operator chooses
        // so.
        let policy = SpinDownPolicy { keeps_exhausted: true, ..self.spin_down };
        policy.stays_until(&Spinning { ready_at, is_exhausted, recovery_reserved: false }, now).max(stop_from)
    }

    fn command(&mut self, drive: PoolDriveId, phase: PoolDrivePhase) -> Attempt {
        let one = &mut self.drives[drive.index()];
        one.attempt = Attempt(one.attempt.0.wrapping_add(1));
        one.phase = phase;
        one.attempt
    }
}

/// The number by which the budget knows a drive of the pool.
fn of_budget(drive: PoolDriveId) -> DriveId {
    DriveId(drive.0)
}

fn ask(drive: PoolDriveId, action: PoolDriveAction, step: &mut Step) {
    step.ask(Action::PoolDrive { drive, action });
}
